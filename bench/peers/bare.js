// Not a queue: the least that a call can cost which stores a job in Redis at once. A script of two commands.
import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';

const ONE = "redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1]) redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])";
const MANY = `
local n = 2 * ARGV[1]
redis.call('ZADD', KEYS[1], unpack(ARGV, 2, n + 1))
redis.call('HSET', KEYS[2], unpack(ARGV, n + 2))`;
const KEYS = [2, 'bare:due', 'bare:data'];

/** @param {import('./peer.js').Where} where */
export async function open({ redis: address }) {
  const redis = new Redis(address);
  const [one, many] = await Promise.all([ONE, MANY].map((script) => redis.script('LOAD', script)));
  return {
    add: (data, at) => redis.evalsha(one, ...KEYS, randomUUID(), at, JSON.stringify(data)),
    addMany: (jobs) => {
      const named = jobs.map(({ data, at = Date.now() }) => ({ id: randomUUID(), at, text: JSON.stringify(data) }));
      const scores = named.flatMap(({ id, at }) => [at, id]);
      return redis.evalsha(many, ...KEYS, jobs.length, ...scores, ...named.flatMap(({ id, text }) => [id, text]));
    },
    close: async () => redis.disconnect(),
  };
}
