import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { Arg } from '../../src/net/call.js';
import { Encoded } from '../../src/net/call.js';
import { codePoint, slowRuns } from '../support/property.js';
import { connection } from '../support/redis.js';

const texts = fc.string({ unit: codePoint, maxLength: 20 });
const bytes = fc.uint8Array({ maxLength: 20 }).map((some) => Buffer.from(some));

it('arguments arrive as they were given: text, numbers, bytes, and what was encoded before', async () => {
  const argument = fc.oneof(texts, fc.integer(), bytes, fc.array(texts, { maxLength: 3 }));
  await fc.assert(
    fc.asyncProperty(fc.array(argument, { maxLength: 10 }), async (given) => {
      const args = given.map((arg): Arg => (Array.isArray(arg) ? new Encoded(arg) : arg));
      const arrived = await connection.call('EVAL', 'return ARGV', 0, ...args);
      expect(arrived).toEqual(given.flat().map((arg) => (Buffer.isBuffer(arg) ? arg : Buffer.from(String(arg)))));
    }),
    slowRuns(200),
  );
});

it('what cannot be sent rejects the call, and the next one gets its own reply', async () => {
  const wrong = Symbol('no text') as unknown as string;
  await expect(connection.call(wrong, 'x')).rejects.toThrow(TypeError);
  expect(await connection.call('ECHO', 'after')).toEqual(Buffer.from('after'));
});
