import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { elementsOf } from '../../../src/serve/api/bulk.js';
import { Refusal } from '../../../src/serve/http/refusal.js';
import { runs, slowRuns } from '../../support/property.js';

const MAX_ELEMENTS = 1_000_000;
const texts = (body: string | Buffer) => elementsOf(Buffer.from(body as string), MAX_ELEMENTS).map(String);

function refusalOf(body: string | Buffer, most = MAX_ELEMENTS): unknown {
  try {
    return elementsOf(Buffer.from(body as string), most);
  } catch (error) {
    expect(error).toBeInstanceOf(Refusal);
    const { status, body } = error as Refusal;
    return [status, body.error];
  }
}

describe('the elements of a bulk body', () => {
  it('are the bytes between the commas, without the white space around them', () => {
    const body = ' [ {"a" : [1,{"b":"],[\\"}"}]} ,12345678901234567890,\n"\\\\",  "\\\\\\"," ,[],{},null\t]\r\n';
    const whole = ['{"a" : [1,{"b":"],[\\"}"}]}', '12345678901234567890', '"\\\\"', '"\\\\\\","', '[]', '{}', 'null'];
    expect(texts(body)).toEqual(whole);
  });

  it('are what was put in, whatever JSON that is', () => {
    const values = fc.array(fc.json({ maxDepth: 4 }), { minLength: 1, maxLength: 64 });
    const space = fc.stringMatching(/^[ \t\r\n]{0,3}$/);
    fc.assert(
      fc.property(values, space, space, (all, before, after) => {
        expect(texts(`${before}[${all.map((one) => before + one + after).join(',')}]${after}`)).toEqual(all);
      }),
      runs(),
    );
  });

  it('keep bytes that are not UTF-8 in their strings', () => {
    const odd = Buffer.from([0x22, 0xff, 0xfe, 0x22]);
    const body = Buffer.concat([Buffer.from('['), odd, Buffer.from(',1]')]);
    expect(elementsOf(body, MAX_ELEMENTS)).toEqual([odd, Buffer.from('1')]);
  });

  it.each(['', ' ', '{}', '1', '[1', '[1,]', '[1]x', '[1][2]', '\ufeff[1]', "['a']", '[01]'])('%j is none', (body) => {
    expect(refusalOf(body)).toEqual([400, 'request body should be an array of objects']);
  });

  it.each(['[]', ' [ ] ', 'null'])('%j has none', (body) => {
    expect(refusalOf(body)).toEqual([400, 'no jobs']);
  });

  it('are at most 64, each at most as long as allowed', () => {
    const many = (count: number) => `[${Array(count).fill('1').join()}]`;
    expect(texts(many(64))).toHaveLength(64);
    expect(refusalOf(many(65))).toEqual([400, 'too many jobs']);
    expect(refusalOf('["12345", "1234567"]', 9)).toEqual([Buffer.from('"12345"'), Buffer.from('"1234567"')]);
    expect(refusalOf('["12345", "1234567"]', 8)).toEqual([413, 'job too large']);
  });

  it('may be nested as deep as lmstfy reads them', () => {
    const nested = (depth: number, open = '[', close = ']') => `[${open.repeat(depth)}1${close.repeat(depth)}]`;
    expect(texts(nested(10_000))).toHaveLength(1);
    expect(texts(nested(5_000, '[{"a":', '}]'))).toHaveLength(1);
    for (const body of [nested(10_001), nested(5_001, '[{"a":', '}]'), '['.repeat(8 * MAX_ELEMENTS)])
      expect(refusalOf(body)).toEqual([400, 'request body is nested too deeply']);
  });

  it('are there if JSON.parse reads the body, and only then', () => {
    const bytes = fc.constantFrom(...'[]{}",:\\/u0123456789abcdefxEtrnl+-. \n\t\u0001\u00e9', '');
    const pieces = fc.array(
      fc.constantFrom('-', '0', '01', '.5', '1e', '+1', 'true', 'nul', '"\\u00', '{"a"', ':', ',', ']'),
    );
    fc.assert(
      fc.property(fc.json({ maxDepth: 3 }), fc.nat(), fc.nat(3), bytes, pieces, (json, place, length, byte, more) => {
        const at = place % (json.length + 1);
        for (const inside of [
          json.slice(0, at) + byte + json.slice(at + length),
          `${json},${more.join('')}`,
          more.join(''),
        ]) {
          const body = `[${inside}]`;
          const parsed = parsedOf(body);
          if (parsed?.length === 0 || (parsed?.length ?? 0) > 64) continue;
          if (!parsed)
            expect(refusalOf(body)).toEqual([400, expect.stringMatching(/^(request body|no jobs|too many)/)]);
          else expect(texts(body).map((text) => JSON.parse(text))).toEqual(parsed);
        }
      }),
      slowRuns(3_000),
    );
  });
});

/** An array in JSON; undefined if it is none. */
function parsedOf(body: string): unknown[] | undefined {
  try {
    return JSON.parse(body) as unknown[];
  } catch {
    return undefined;
  }
}
