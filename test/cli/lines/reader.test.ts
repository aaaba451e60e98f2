import fc from 'fast-check';
import { expect, it } from 'vitest';
import { lines } from '../../../src/cli/lines/reader.js';
import { delayq, linesOf } from '../../support/cli.js';
import { slowRuns } from '../../support/property.js';
import { admin, freshName, key } from '../../support/redis.js';

async function read(chunks: Buffer[]) {
  async function* stream() {
    yield* chunks;
  }
  const all = [];
  for await (const some of lines(stream())) all.push(...some);
  return all;
}

it('lines are the same however the stream is cut into chunks', async () => {
  const line = fc.oneof(
    fc.string({ unit: 'grapheme', maxLength: 12 }).map((text) => Buffer.from(text.replaceAll('\n', ' '))),
    fc.uint8Array({ maxLength: 8 }).map((bytes) => Buffer.from(bytes.filter((byte) => byte !== 10))),
    fc.constantFrom(Buffer.from(''), Buffer.from(' \r'), Buffer.from([0xef, 0xbb, 0xbf])),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(line, { maxLength: 12 }),
      fc.array(fc.nat({ max: 80 }), { maxLength: 6 }),
      fc.boolean(),
      async (parts, cuts, ended) => {
        const whole = Buffer.concat(
          parts.flatMap((part, i) => (i < parts.length - 1 || ended ? [part, Buffer.from('\n')] : [part])),
        );
        const at = [0, ...cuts.map((cut) => Math.min(cut, whole.length)), whole.length].sort((a, b) => a - b);
        const chunks = at.slice(1).map((end, i) => whole.subarray(at[i], end));
        expect(await read(chunks)).toEqual(await read([whole]));
        const found = await read(chunks);
        for (const { number, text, error } of found) {
          const raw = parts[number - 1] as Buffer;
          const bytes =
            number === 1 && raw.subarray(0, 3).equals(Buffer.from([0xef, 0xbb, 0xbf])) ? raw.subarray(3) : raw;
          if (error) expect(Buffer.from(bytes.toString()).equals(bytes)).toBe(false);
          else expect(Buffer.from(text).equals(bytes)).toBe(true);
        }
        // Nothing but blank lines is left out.
        const numbers = new Set(found.map(({ number }) => number));
        for (const [i, part] of parts.entries())
          if (!numbers.has(i + 1))
            expect(
              part
                .toString()
                .replace(/^\ufeff/, '')
                .trim(),
            ).toBe('');
      },
    ),
    slowRuns(2_000),
  );
});

it('a payload in a line of --jobs is taken byte for byte, wherever it stands', async () => {
  const space = fc.constantFrom('', ' ', '\t', '  ');
  const value = fc.oneof(
    fc.json({ maxDepth: 3 }),
    fc.constantFrom(
      '{"payload":{"payload":1}}',
      '"}\\",{\\"payload\\":2"',
      '[[{}],"[",{"a":"]"}]',
      '12345678901234567890',
      '-1e-7',
    ),
  );
  const object = fc
    .tuple(value, space, space, fc.boolean(), fc.constantFrom('"payload"', '"pay\\u006coad"'))
    .map(([json, a, b, first, name]) => {
      const payload = `${a}${name}${b}:${a}${json}${b}`;
      return { json, line: first ? `{${payload},"in":"1h"}` : `{"in":${b}"1h",${payload}}` };
    });
  const objects = fc.sample(object, { numRuns: 800, seed: 7 });
  const name = freshName();
  const { code, stdout, stderr } = await delayq(['enqueue', '--jobs', name, '-'], {
    input: objects.map(({ line }) => line).join('\n'),
  });
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(await admin.hmget(key(name, 'payload'), ...linesOf(stdout))).toEqual(objects.map(({ json }) => json.trim()));
});
