import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeUtf8, JsonText, MAX_PAYLOAD, RawPayload } from '../../src/internal.js';
import { runs, slowRuns } from '../support/property.js';

describe('JSON text', () => {
  it.each([
    '12345678901234567890',
    '{"b":1,"a":2,"a":3}',
    '"\\/\\u0000\\ud800"',
    '1.0e-7',
    '"😀"',
    'null',
    '[ 1 , 2 ]',
  ])('%s stays unchanged', (text) => expect(JsonText.parse(text).text).toBe(text));

  it('is trimmed, and its line breaks become spaces', () => {
    expect(JsonText.parse(' \r\n{\n  "a": 1,\r\n  "b": 2\n}\n').text).toBe('{   "a": 1,    "b": 2 }');
  });

  it('of any value has the same meaning', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        expect(JSON.parse(JsonText.parse(text).text)).toEqual(JSON.parse(text));
      }),
      runs(),
    );
  });

  it('accepts what JSON.parse accepts, for any text made of pieces of JSON', () => {
    const pieces = [
      ...'{}[],:" \\-+.eE0159ua\t\u0001é',
      '"a"',
      '"":',
      'true',
      'null',
      '\\n',
      '\\u00aF',
      '1',
      '{"a":',
      '[1',
    ];
    fc.assert(
      fc.property(
        fc.oneof(
          fc.array(fc.constantFrom(...pieces), { maxLength: 14 }).map((some) => some.join('')),
          // Valid JSON with one change.
          fc.tuple(fc.json(), fc.nat(), fc.constantFrom('', ...pieces)).map(([text, at, piece]) => {
            const place = at % text.length;
            return text.slice(0, place) + piece + text.slice(place + 1);
          }),
        ),
        (text) => {
          const taken = (parse: () => unknown) => {
            try {
              parse();
              return true;
            } catch {
              return false;
            }
          };
          const good = taken(() => JSON.parse(text)) && text.isWellFormed();
          expect(taken(() => JsonText.parse(text))).toBe(good);
          if (good) expect(JsonText.parse(text).text).toBe(text.trim().replace(/[\r\n]/g, ' '));
        },
      ),
      slowRuns(20_000),
    );
  });

  it.runIf('rawJSON' in JSON)('of JSON.rawJSON with half of a surrogate pair is rejected', () => {
    const { rawJSON } = JSON as unknown as { rawJSON: (text: string) => unknown };
    expect(() => JsonText.from({ a: rawJSON('"\ud800"') })).toThrow(expect.objectContaining({ code: 'data' }));
  });

  it('is checked fast even if the text is valid almost to its end', () => {
    const almost = ['[', '{"a":', '[1,', '[ [1 , ', '{"a" : [', '"\\u0041', '[{"a":1}, '].map((piece) =>
      piece.repeat(4_096 / piece.length),
    );
    for (const text of almost) expect(() => JsonText.parse(text)).toThrow(expect.objectContaining({ code: 'data' }));
  });

  it.each([
    '',
    ' ',
    '{a}',
    '{"a":1}x',
    '1 2',
    '[1,',
    '"a\nb"',
    '"\u0000"',
    'undefined',
    "{'a':1}",
    '"\ud800"',
    '\ufeff1',
  ])('%j is rejected', (text) => {
    expect(() => JsonText.parse(text)).toThrow(expect.objectContaining({ code: 'data' }));
  });

  it('is not quoted in errors: payloads may be secret', () => {
    expect(() => JsonText.parse('{"password":hunter2}')).toThrow(
      expect.objectContaining({ why: expect.not.stringContaining('hunter') }),
    );
  });

  it('over 8 MiB is rejected', () => {
    expect(() => JsonText.parse(`"${'x'.repeat(MAX_PAYLOAD)}"`)).toThrow(
      expect.objectContaining({ what: 'the payload is too large' }),
    );
    expect(JsonText.parse(`"${'x'.repeat(MAX_PAYLOAD - 2)}"`).text.length).toBe(MAX_PAYLOAD);
    expect(() => JsonText.parse(`"${'€'.repeat(MAX_PAYLOAD / 2)}"`)).toThrow(expect.objectContaining({ code: 'data' }));
  });

  it('cannot be made from values that JSON cannot represent', () => {
    for (const value of [undefined, () => {}, 1n])
      expect(() => JsonText.from(value)).toThrow(expect.objectContaining({ code: 'data' }));
  });
});

it('bytes that are not UTF-8 are rejected', () => {
  expect(() => decodeUtf8(Buffer.from([0x22, 0xff, 0x22]))).toThrow(expect.objectContaining({ code: 'data' }));
  expect(decodeUtf8(Buffer.from('"ü"'))).toBe('"ü"');
});

describe('a raw payload', () => {
  it('is a copy of any bytes, also of none', () => {
    const given = Buffer.from([0, 10, 255]);
    const { bytes } = new RawPayload(given);
    given.fill(1);
    expect([...bytes]).toEqual([0, 10, 255]);
    expect(new RawPayload(new Uint8Array()).bytes).toHaveLength(0);
  });

  it('has at most the size of any payload, and is nothing but bytes', () => {
    expect(new RawPayload(Buffer.alloc(MAX_PAYLOAD)).bytes).toHaveLength(MAX_PAYLOAD);
    const code = (code: string) => expect.objectContaining({ code });
    expect(() => new RawPayload(Buffer.alloc(MAX_PAYLOAD + 1))).toThrow(code('data'));
    expect(() => new RawPayload('text' as unknown as Buffer)).toThrow(code('usage'));
  });

  it('is refused where only JSON can be', () => {
    const refused = expect.objectContaining({ code: 'data', why: 'TypeError: a RawPayload is not JSON' });
    expect(() => JsonText.from({ within: new RawPayload(Buffer.from('x')) })).toThrow(refused);
  });
});
