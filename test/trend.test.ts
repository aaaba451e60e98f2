import { describe, expect, it } from 'vitest';
import { admin, freshQueue, key } from './support/redis.js';

const fields = async (queue: string) => {
  const stats = await admin.hgetall(key(queue, 'stats'));
  return Object.keys(stats).filter((name) => name.startsWith('at:'));
};
/** As if the last sample were of another minute. */
const minutePasses = (queue: string) => admin.hset(key(queue, 'stats'), 'sampled', 1);

describe('samples', () => {
  it('are taken by enqueue, drain and ack, once a minute, and tell how the queue stands', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1, at: Date.now() - 5_000 }, { payload: 2 }, { payload: 3, in: '1h' }]);
    await queue.enqueue({ payload: 4, in: '1h' });
    const { samples } = await queue.counts();
    expect(new Set(samples.map(({ at }) => Math.floor(at / 60_000))).size).toBe(samples.length);
    const [enqueued] = samples;
    expect(enqueued).toMatchObject({ enqueued: 3, delivered: 0, done: 0, retried: 0, dead: 0, due: 2, pending: 3 });
    expect(enqueued?.lag).toBeGreaterThanOrEqual(5_000);

    await minutePasses(queue.name);
    const { jobs } = await queue.drain();
    const [drained] = (await queue.counts()).samples.slice(-1);
    // What the drain has met, before it took anything.
    expect(drained).toMatchObject({ enqueued: 4, delivered: 0, due: 2, pending: 4 });

    await minutePasses(queue.name);
    await queue.ack(jobs);
    const [acked] = (await queue.counts()).samples.slice(-1);
    expect(acked).toMatchObject({ enqueued: 4, delivered: 2, done: 2, due: 0, lag: 0, pending: 2 });
  });

  it('go round in sixteen fields, and are no totals', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    for (let slot = 0; slot < 16; slot++) await admin.hset(key(queue.name, 'stats'), `at:${slot}`, 'x');
    await minutePasses(queue.name);
    await queue.enqueue({ payload: 2 });
    expect(await fields(queue.name)).toHaveLength(16);
    const { stats, samples } = await queue.counts();
    expect(samples).toHaveLength(1);
    expect(stats).toEqual({ enqueued: 2 });
  });

  it('cannot be spoilt so that a script stops', async () => {
    const queue = freshQueue();
    const stats = key(queue.name, 'stats');
    await admin.hset(stats, {
      sampled: 'x\ny',
      enqueued: 'inf',
      acked: 'nan',
      'at:0': '1 2',
      'at:x': '\x1b',
      'at:1': '',
    });
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    await admin.zadd(key(queue.name, 'pending'), '-inf', 'ghost');
    await admin.hset(key(queue.name, 'payload'), 'ghost', '0');
    for (const late of ['5', '1000', 'inf', 'sum']) await admin.hset(stats, `late:${late}`, 'x');
    await admin.hset(stats, 'sampled', 'x');
    const { jobs } = await queue.drain();
    expect(jobs).toHaveLength(3);
    await admin.hset(stats, 'sampled', 'x');
    expect(await queue.ack(jobs)).toEqual(['held', 'held', 'held']);
  });
});

describe('lateness', () => {
  it('is counted of deliveries, with a lease and without, and not of what was dropped', async () => {
    const queue = freshQueue();
    const lateBy = (ms: number, ttl?: string) => ({ payload: 1, at: Date.now() - ms, ttl });
    await queue.enqueue([lateBy(3_700_000), lateBy(30_000), lateBy(20_000, '1s'), lateBy(7_000)]);
    await admin.zadd(key(queue.name, 'pending'), Date.now() - 2_000, 'ghost');
    expect(await queue.drain()).toMatchObject({ expired: 1, orphaned: 1, jobs: [{}, {}, {}] });
    await queue.enqueue([lateBy(30_000)]);
    await queue.drain({ leaseMs: 0 });
    const { buckets, sum } = (await queue.counts()).lateness;
    expect(buckets.filter(({ count }) => count > 0)).toEqual([
      { upTo: 10_000, count: 1 },
      { upTo: 60_000, count: 2 },
      { upTo: Number.POSITIVE_INFINITY, count: 1 },
    ]);
    expect(sum).toBeGreaterThanOrEqual(3_767_000);
    expect(sum).toBeLessThan(3_800_000);
  });
});
