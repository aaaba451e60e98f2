import { describe, expect, it } from 'vitest';
import { type NewJob, Operator, Queue } from '../../src/internal.js';
import { crc32 } from '../../src/partitions/crc32.js';
import { Connection } from '../../src/redis/connection.js';
import { afterwards } from '../support/afterwards.js';
import { tagsOf } from '../support/partitions.js';
import { admin, freshName, key, redisUrl } from '../support/redis.js';

function connected(url = redisUrl): Connection {
  const redis = new Connection(url);
  afterwards(() => redis.close());
  return redis;
}

async function grow(redis: Connection, queue: string, count: number): Promise<void> {
  for await (const _ of new Operator(redis).partition(queue, count));
}

/** The first `n` of some ids that belong to partition `i` of 2 or 4. */
function idsOf(i: number, of: 2 | 4, n: number): string[] {
  const all = Array.from({ length: 40 * n }, (_, k) => `o:${k}`);
  return all.filter((id) => crc32(id) % of === i).slice(0, n);
}

/** Makes a partition of a queue fail: one of its keys has the wrong type. */
async function broken(queue: string, i: number): Promise<void> {
  const tag = (await tagsOf(admin, queue))[i] as string;
  await admin.set(key(tag, 'pending'), 'no zset');
}

const jobsOf = (ids: readonly string[]): NewJob[] => ids.map((id) => ({ id, payload: id }));

describe('enqueue, if one of several partitions fails', () => {
  it('fails only for its jobs, if single jobs are enqueued together', async () => {
    const [queue, redis] = [freshName(), connected()];
    await grow(redis, queue, 2);
    await broken(queue, 1);
    const [good, bad] = [idsOf(0, 2, 3), idsOf(1, 2, 3)];
    const all = new Queue(redis, queue);
    const ended = await Promise.allSettled(jobsOf([...good, ...bad]).map((job) => all.enqueue(job)));
    const ofEach = ended.map((one) => (one.status === 'fulfilled' ? one.value.outcome : one.reason.code));
    expect(ofEach).toEqual(['created', 'created', 'created', 'config', 'config', 'config']);
  });
});
