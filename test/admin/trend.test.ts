import { describe, expect, it } from 'vitest';
import { type Sample, trend } from '../../src/index.js';
import { admin, freshQueue, key } from '../support/redis.js';

const fields = async (queue: string) => {
  const stats = await admin.hgetall(key(queue, 'stats'));
  return Object.keys(stats).filter((name) => name.startsWith('at:'));
};
/** As if the last sample were of another minute. */
const minutePasses = (queue: string) => admin.hset(key(queue, 'stats'), 'sampled', 1);

describe('samples', () => {
  it('are taken by enqueue and drain, once a minute, with the state of the queue', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1, at: Date.now() - 5_000 }, { payload: 2 }, { payload: 3, in: '1h' }]);
    await queue.enqueue({ payload: 4, in: '1h' });
    const { samples } = await queue.counts();
    expect(new Set(samples.map(({ at }) => Math.floor(at / 60_000))).size).toBe(samples.length);
    const [enqueued] = samples;
    expect(enqueued).toMatchObject({ enqueued: 0, delivered: 0, done: 0, retried: 0, dead: 0, due: 2, pending: 3 });
    expect(enqueued?.lag).toBeGreaterThanOrEqual(5_000);

    await minutePasses(queue.name);
    const { jobs } = await queue.drain();
    const [drained] = (await queue.counts()).samples.slice(-1);
    // What the drain has met, before it took anything.
    expect(drained).toMatchObject({ enqueued: 4, delivered: 0, due: 2, pending: 4 });

    await queue.ack(jobs);
    await minutePasses(queue.name);
    await queue.drain();
    const [idle] = (await queue.counts()).samples.slice(-1);
    expect(idle).toMatchObject({ enqueued: 4, delivered: 2, done: 2, due: 0, lag: 0, pending: 2 });
  });

  it('reuse sixteen fields, and are not shown as totals', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    for (let slot = 0; slot < 16; slot++) await admin.hset(key(queue.name, 'stats'), `at:${slot}`, 'x');
    await minutePasses(queue.name);
    await queue.enqueue([{ payload: 2 }, { payload: 3 }]);
    expect(await fields(queue.name)).toHaveLength(16);
    const { stats, samples } = await queue.counts();
    expect(samples).toHaveLength(1);
    expect(stats).toEqual({ enqueued: 3 });
  });

  it('never stop a script, whatever other software wrote into them', async () => {
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
  it('is counted for deliveries, with a lease and without, but not for dropped jobs', async () => {
    const queue = freshQueue();
    const lateBy = (ms: number, ttl?: string) => ({ payload: 1, at: Date.now() - ms, ttl });
    await queue.enqueue([lateBy(3_700_000), lateBy(30_000), lateBy(40_000_000, '1s'), lateBy(61_000)]);
    await admin.zadd(key(queue.name, 'pending'), Date.now() - 40_000_000, 'ghost');
    expect(await queue.drain()).toMatchObject({
      expired: 1,
      died: [{ id: 'ghost', reason: 'orphaned' }],
      jobs: [{}, {}, {}],
    });
    await queue.enqueue([lateBy(30_000)]);
    await queue.drain({ leaseMs: 0 });
    const { buckets, sum } = (await queue.counts()).lateness;
    expect(buckets.filter(({ count }) => count > 0)).toEqual([
      { upTo: 60_000, count: 2 },
      { upTo: 600_000, count: 1 },
      { upTo: Number.POSITIVE_INFINITY, count: 1 },
    ]);
    expect(sum).toBeGreaterThanOrEqual(3_821_000);
    expect(sum).toBeLessThan(40_000_000);
  });
});

describe('a trend', () => {
  const MINUTE = 60_000;
  /** Ten to twenty seconds into a minute. */
  const now = 1_000_000 * MINUTE + 20_000;
  const at = (ago: number, more: Partial<Sample> = {}): Sample => ({
    at: now - ago,
    enqueued: 0,
    delivered: 0,
    done: 0,
    retried: 0,
    dead: 0,
    due: 0,
    lag: 0,
    pending: 0,
    ...more,
  });

  it('spreads jobs that were done between two samples', () => {
    // Taken ten minutes ago, done since then: at an edge five minutes ago, half of them were.
    const samples = [at(10 * MINUTE, { enqueued: 100 })];
    const present = at(0, { enqueued: 100, delivered: 100, done: 100 });
    expect(trend(samples, present)).toMatchObject({ spanMs: 5 * MINUTE, out: 50 / 300 });
  });

  it('has rates over the last five minutes, and growth over the last minute', () => {
    const samples = [6, 5, 4, 3, 2, 1].map((minutes) =>
      at(minutes * MINUTE + 1_000, { enqueued: 1_000 - 60 * minutes, done: 600 - 30 * minutes, due: 400, lag: 90_000 }),
    );
    const found = trend(samples, at(0, { enqueued: 1_000, done: 600, due: 339, lag: 59_500 }));
    expect(found?.spanMs).toBe(5 * MINUTE + 1_000);
    expect(found?.in).toBeCloseTo(300 / 301, 6);
    expect(found?.out).toBeCloseTo(150 / 301, 6);
    expect(found?.due).toBe(-1);
    expect(found?.lag).toBe(-0.5);
    expect(found?.emptyInMs).toBe(339_000);
  });

  it('is undefined for a queue that is too young', () => {
    expect(trend([], at(0))).toBe(undefined);
    expect(trend([at(9_000)], at(0, { enqueued: 9 }))).toBe(undefined);
    expect(trend([at(10_000)], at(0, { enqueued: 9 }))).toMatchObject({ spanMs: 10_000, in: 0.9 });
  });

  it('assumes that without samples nothing was enqueued and the lag grew', () => {
    const long = [at(3 * 60 * MINUTE, { enqueued: 5, done: 4 })];
    const found = trend(long, at(0, { enqueued: 50, done: 40, due: 10, lag: 60 * MINUTE }));
    expect(found).toMatchObject({ spanMs: 5 * MINUTE, in: 0, lag: 1, emptyInMs: undefined });
  });

  it('after a pause has rates over the whole time, but growth since the pause ended', () => {
    const long = at(3 * 60 * MINUTE, { due: 40_000 });
    const begun = at(15_000, { due: 40_000, lag: 60 * MINUTE });
    const found = trend([long, begun], at(0, { done: 10_000, due: 30_000, lag: 30 * MINUTE }));
    expect(found?.out).toBeCloseTo(10_000 / 300, 6);
    expect(found?.emptyInMs).toBe(45_000);
    expect(found?.lag).toBe(-120);
  });

  it('ignores samples from before the counters were removed or the clock went back', () => {
    const wrong = [at(2 * MINUTE, { enqueued: 1e9 }), at(-5 * MINUTE)];
    expect(trend([...wrong, at(50_000)], at(0, { enqueued: 100 }))).toMatchObject({ spanMs: 50_000, in: 2 });
  });

  it('compares nothing across a jump of the clock, which would make hours out of minutes', () => {
    const before = [12, 11, 10].map((minutes) => at(minutes * MINUTE, { enqueued: 100 }));
    const jumped = [at(-30 * MINUTE, { enqueued: 9_000 }), at(20_000, { enqueued: 9_000 })];
    const found = trend([...before, ...jumped], at(0, { enqueued: 9_010 }));
    expect(found).toMatchObject({ spanMs: 20_000, in: 0.5 });
  });

  it('does not show a queue of constant length as catching up', () => {
    const of = (delivered: number, due: number) => at(0, { enqueued: 1_000, delivered, due, lag: 600_000 });
    const begun = [at(MINUTE, { due: 3_000, lag: 600_000 })];
    expect(trend(begun, of(480, 2_999))?.emptyInMs).toBe(undefined);
    expect(trend(begun, of(480, 2_960))?.emptyInMs).toBe(undefined);
    // Whereas these are not so many by chance, and where nothing comes each one taken tells.
    expect(trend(begun, of(480, 2_900))?.emptyInMs).toBe(29 * MINUTE);
    expect(trend(begun, of(3, 2_997))?.emptyInMs).toBe(999 * MINUTE);
  });

  it('reads an infinite time in a sample as in a snapshot', async () => {
    const queue = freshQueue();
    await admin.zadd(key(queue.name, 'pending'), '-inf', 'ghost');
    await queue.enqueue({ payload: 1, in: '1h' });
    const counts = await queue.counts();
    const [sample] = counts.samples;
    expect(sample?.lag).toBe((sample?.at ?? 0) - (counts.oldest ?? 0));
  });
});
