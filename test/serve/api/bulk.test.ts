import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { elementsOf } from '../../../src/serve/api/bulk.js';
import { Refusal } from '../../../src/serve/http/refusal.js';

const MOST = 1_000_000;
const texts = (body: string | Buffer) => elementsOf(Buffer.from(body as string), MOST).map(String);

function refusalOf(body: string | Buffer, most = MOST): unknown {
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
    );
  });

  it('keep bytes that are not UTF-8 in their strings', () => {
    const odd = Buffer.from([0x22, 0xff, 0xfe, 0x22]);
    const body = Buffer.concat([Buffer.from('['), odd, Buffer.from(',1]')]);
    expect(elementsOf(body, MOST)).toEqual([odd, Buffer.from('1')]);
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

  it('may be nested as deep as a body is long', () => {
    const depth = 100_000;
    expect(texts(`[${'['.repeat(depth)}${']'.repeat(depth)}]`)).toHaveLength(1);
  });
});
