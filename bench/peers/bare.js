// Not a queue: the least that a call can cost which stores a job in Redis at once. A script of two commands.
import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';

const SCRIPT = "redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1]) redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])";

/** @param {import('./peer.js').Where} where */
export async function open({ redis: address }) {
  const redis = new Redis(address);
  const sha = await redis.script('LOAD', SCRIPT);
  return {
    add: (data, at) => redis.evalsha(sha, 2, 'bare:due', 'bare:data', randomUUID(), at, JSON.stringify(data)),
    close: async () => redis.disconnect(),
  };
}
