import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkId, checkName, decodeUtf8, JsonText, MAX_PAYLOAD } from '../../src/internal.js';
import { newId } from '../../src/model/id.js';
import { printable } from '../../src/model/text.js';

describe('an id made by delayq', () => {
  it('is 13 characters of base62', () => expect(newId()).toMatch(/^[0-9A-Za-z]{13}$/));

  it('sorts by the time it was made', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1_000_000 }), (ms) => {
        const now = Date.now() + 3_600_000;
        expect(newId(now) < newId(now + ms)).toBe(true);
      }),
    );
  });

  it('does not repeat, and sorts in the order of making within a millisecond and when the clock goes back', () => {
    const now = Date.now();
    const ids = Array.from({ length: 20_000 }, (_, i) => newId(now - Math.floor(i / 1_000)));
    expect(new Set(ids).size).toBe(20_000);
    expect([...ids].sort()).toEqual(ids);
  });
});

describe('a name (failures 31)', () => {
  it.each(['a', 'order-close', 'A.b_c:d-9', '0', 'x'.repeat(128)])('%s is taken', (name) =>
    expect(checkName(name)).toBe(name),
  );

  it.each(['', '-a', '.a', 'a b', 'a{b}', 'a*', '--', 'ä', 'a\n', '\u202ea', 'x'.repeat(129), 'x'.repeat(10_240)])(
    '%j is refused and shown with nothing that a terminal obeys',
    (name) => {
      const error = (() => {
        try {
          checkName(name);
        } catch (error) {
          return error as Error;
        }
        return undefined;
      })();
      expect(error).toMatchObject({ code: 'usage' });
      expect(error?.message).toMatch(/^[\x20-\x7e]{1,120}$/);
    },
  );
});

describe('an id of your own (failures 31)', () => {
  it.each(['a', '42', 'order:42', 'a@b.example/{x}*', 'x'.repeat(256)])('%s is taken', (id) =>
    expect(checkId(id)).toBe(id),
  );
  it.each(['', '-1', '--', 'a b', 'a\tb', 'a\nb', 'ä', '\x1b[31m', 'x'.repeat(257)])('%j is refused', (id) => {
    expect(() => checkId(id)).toThrow(expect.objectContaining({ code: 'usage' }));
  });
});

describe('JSON text', () => {
  it.each([
    '12345678901234567890',
    '{"b":1,"a":2,"a":3}',
    '"\\/\\u0000\\ud800"',
    '1.0e-7',
    '"😀"',
    'null',
    '[ 1 , 2 ]',
  ])('%s is kept as it is', (text) => expect(JsonText.parse(text).text).toBe(text));

  it('loses outer whitespace, and its line breaks become spaces', () => {
    expect(JsonText.parse(' \r\n{\n  "a": 1,\r\n  "b": 2\n}\n').text).toBe('{   "a": 1,    "b": 2 }');
  });

  it('of any value means that value', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        expect(JSON.parse(JsonText.parse(text).text)).toEqual(JSON.parse(text));
      }),
    );
  });

  it('is what JSON.parse takes, of any text made of the pieces of JSON', () => {
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
          // Valid but for one change.
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
      { numRuns: 20_000 },
    );
  });

  it.runIf('rawJSON' in JSON)('is none of a value that says itself how it is written, as no Unicode', () => {
    const { rawJSON } = JSON as unknown as { rawJSON: (text: string) => unknown };
    expect(() => JsonText.from({ a: rawJSON('"\ud800"') })).toThrow(expect.objectContaining({ code: 'data' }));
  });

  it('ends soon, of a text that is valid almost to its end', () => {
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
  ])('%j is refused', (text) => {
    expect(() => JsonText.parse(text)).toThrow(expect.objectContaining({ code: 'data' }));
  });

  it('does not show what it refuses: payloads may be secret', () => {
    expect(() => JsonText.parse('{"password":hunter2}')).toThrow(
      expect.objectContaining({ why: expect.not.stringContaining('hunter') }),
    );
  });

  it('over 8 MiB is refused', () => {
    expect(() => JsonText.parse(`"${'x'.repeat(MAX_PAYLOAD)}"`)).toThrow(
      expect.objectContaining({ message: 'the payload is too large' }),
    );
    expect(JsonText.parse(`"${'x'.repeat(MAX_PAYLOAD - 2)}"`).text.length).toBe(MAX_PAYLOAD);
    expect(() => JsonText.parse(`"${'€'.repeat(MAX_PAYLOAD / 2)}"`)).toThrow(expect.objectContaining({ code: 'data' }));
  });

  it('cannot be made of what JSON has no word for', () => {
    for (const value of [undefined, () => {}, 1n])
      expect(() => JsonText.from(value)).toThrow(expect.objectContaining({ code: 'data' }));
  });
});

it('bytes that are no UTF-8 are refused', () => {
  expect(() => decodeUtf8(Buffer.from([0x22, 0xff, 0x22]))).toThrow(expect.objectContaining({ code: 'data' }));
  expect(decodeUtf8(Buffer.from('"ü"'))).toBe('"ü"');
});

it('text in an error is short and plain', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (text) => /^[\x20-\x7e]{0,400}$/.test(printable(text))),
  );
});
