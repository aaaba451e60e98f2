import { Redis } from 'ioredis';
import { afterAll, inject } from 'vitest';
import { Connection, Queue } from '../../src/index.js';

export const redisUrl = inject('redisUrl');

/** A plain client, to look at Redis without delayq. */
export const admin = new Redis(inject('redisSocket'));
export const connection = new Connection(redisUrl);

afterAll(() => {
  admin.disconnect();
  connection.close();
});

/** A queue name that no other test uses. */
export function freshName(): string {
  return `q${Math.random().toString(36).slice(2, 12)}`;
}

/** A queue that no other test uses. */
export function freshQueue(): Queue {
  return new Queue(connection, freshName());
}

/** The name of a key of a queue, as documented. */
export const key = (queue: string, name: string) => `delayq:{${queue}}:${name}`;

/**
 * Lets `ms` pass for a queue without waiting: moves all its times back by that.
 */
export async function timePasses(queue: string, ms: number, client: Redis = admin): Promise<void> {
  await client.eval(
    `for i = 1, 3 do
       local all = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')
       for j = 1, #all, 2 do redis.call('ZINCRBY', KEYS[i], -ARGV[1], all[j]) end
     end
     local leases = redis.call('HGETALL', KEYS[4])
     for j = 1, #leases, 2 do
       local receipt, due, rest = string.match(leases[j + 1], '^(%S+) (%S+)( .*)$')
       if receipt then
         redis.call('HSET', KEYS[4], leases[j], receipt .. ' ' .. string.format('%.17g', due - ARGV[1]) .. rest)
       end
     end
     local metas = redis.call('HGETALL', KEYS[5])
     for j = 1, #metas, 2 do
       local good, rec = pcall(cjson.decode, metas[j + 1])
       if good and rec.first then rec.first = rec.first - ARGV[1] end
       if good and rec.failed then rec.failed = rec.failed - ARGV[1] end
       if good then redis.call('HSET', KEYS[5], metas[j], cjson.encode(rec)) end
     end
     local paused = tonumber(redis.call('HGET', KEYS[6], 'paused'))
     if paused and paused < math.huge then
       redis.call('HSET', KEYS[6], 'paused', string.format('%.0f', paused - ARGV[1]))
     end`,
    6,
    ...['pending', 'active', 'dead', 'lease', 'meta', 'config'].map((name) => key(queue, name)),
    ms,
  );
}
