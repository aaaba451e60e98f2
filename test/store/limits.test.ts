import { describe, expect, it } from 'vitest';
import { Operator, type Queue, type SettingsChange } from '../../src/internal.js';
import { upTo } from '../support/jobs.js';
import { admin, connection, freshQueue, key } from '../support/redis.js';

const HOURLY = { jobs: 1, perMs: 3_600_000 };

/** A queue with limits and `n` due jobs. */
async function limited(change: SettingsChange, n = 30): Promise<Queue> {
  const queue = freshQueue();
  await new Operator(connection).configure(queue.name, change);
  await queue.enqueue(upTo(n).map((i) => ({ payload: i, at: 1_000 + i })));
  return queue;
}

const bucketOf = async (queue: Queue) => (await admin.hget(key(queue.name, 'stats'), 'bucket'))?.split(' ').map(Number);
const fill = (queue: Queue, bucket: string) => admin.hset(key(queue.name, 'stats'), 'bucket', bucket);

describe('a take from a queue with a rate', () => {
  it.each([
    ['a tenth of the jobs of a second', { rate: { jobs: 200, perMs: 1_000 } }, 20],
    ['one, at a slow rate', { rate: HOURLY }, 1],
    ['what is set', { rate: HOURLY, burst: 7 }, 7],
  ])('of which nothing is known yet takes the burst: %s', async (_, change, burst) => {
    const queue = await limited(change);
    expect((await queue.drain()).jobs).toHaveLength(burst);
  });

  it('says when to ask again, each caller a later time', async () => {
    const queue = await limited({ rate: { jobs: 10, perMs: 60_000 } });
    const asked = await Promise.all(upTo(3).map(() => queue.drain({ limit: 1 })));
    expect(asked.map(({ state }) => state)).toEqual(['limited', 'limited', 'limited']);
    const first = asked[0]?.now ?? 0;
    // A token comes in 6 s: nobody need ask before, and nobody waits for more than a poll interval after it.
    for (const { next = 0 } of asked) expect(next - first).toBeGreaterThan(5_000);
    for (const { next = 0 } of asked) expect(next - first).toBeLessThan(7_100);
    const fast = await limited({ rate: { jobs: 4, perMs: 1_000 }, burst: 1 });
    const all = await Promise.all(upTo(4).map(() => fast.drain({ limit: 1 })));
    const nexts = all.map(({ next = 0 }) => next);
    for (const [i, next] of nexts.slice(1).entries()) expect(next - (nexts[i] as number)).toBeGreaterThanOrEqual(249);
  });

  it.each([
    ['none to one that can start no more: the next caller gets it', 1, { state: 'full', waits: 250 }],
    ['one to a caller that can start more', 2, { state: 'limited', waits: 500 }],
  ])('without a burst gives the next turn: %s', async (_, start, { state, waits }) => {
    const queue = await limited({ rate: { jobs: 4, perMs: 1_000 } });
    expect(await queue.take({}, { start: () => start })).toMatchObject({ state, jobs: [{}] });
    const { now, next = 0 } = await queue.take({}, { start: () => 1 });
    expect(next - now).toBeLessThanOrEqual(waits);
    expect(next - now).toBeGreaterThan(waits - 250);
  });

  it('goes on when the clock has gone back', async () => {
    const queue = await limited({ rate: { jobs: 1, perMs: 1 }, burst: 5 });
    const ahead = Date.now() + 3_600_000;
    await fill(queue, `0.5 ${ahead} ${ahead}`);
    const { state, now, next = 0, jobs } = await queue.drain();
    expect({ state, jobs }).toMatchObject({ state: 'limited', jobs: [] });
    expect(next - now).toBeLessThan(1_100);
    const [tokens, at] = (await bucketOf(queue)) ?? [];
    expect({ tokens, at }).toEqual({ tokens: 0.5, at: now });
  });

  it.each(['', 'nan 1 1', 'inf 0 0', '-5 0 0', '1e999 0 0', 'x'])(
    'takes no more than the burst if its bucket is %j',
    async (text) => {
      const queue = await limited({ rate: HOURLY, burst: 2 });
      await fill(queue, text);
      expect((await queue.drain()).jobs).toHaveLength(2);
      expect((await queue.drain()).jobs).toHaveLength(0);
    },
  );

  it('pays nothing for jobs whose time to live has passed, and gets nothing for those given back', async () => {
    const queue = await limited({ rate: HOURLY, burst: 2, ttl: 60_000 });
    await queue.enqueue(upTo(3).map((i) => ({ id: `new-${i}`, payload: i, ttl: 1e12 })));
    const { expired, jobs } = await queue.drain();
    expect({ expired, ids: jobs.map(({ id }) => id) }).toEqual({ expired: 30, ids: ['new-0', 'new-1'] });
    await queue.nack(jobs, { mode: 'release' });
    expect(await queue.drain()).toMatchObject({ state: 'limited', jobs: [] });
  });

  it('counts the bucket among no figures', async () => {
    const queue = await limited({ rate: HOURLY });
    await queue.drain();
    expect(await bucketOf(queue)).toBeDefined();
    expect((await queue.counts()).stats).not.toHaveProperty('bucket');
  });
});

it('a take is full when as many are active as max-active allows, and asks again at the next poll', async () => {
  const queue = await limited({ maxActive: 2 });
  const first = await queue.drain();
  expect(first).toMatchObject({ state: 'full', jobs: [{}, {}] });
  const { state, now, next = 0, jobs } = await queue.drain();
  expect({ state, jobs }).toEqual({ state: 'full', jobs: [] });
  expect(next).toBe(now + 1_000);
  await queue.ack(first.jobs.slice(0, 1));
  expect((await queue.drain()).jobs).toHaveLength(1);
});

describe('an ack in a queue with max-active', () => {
  it('is done even if other software has taken the key of the pending jobs', async () => {
    const queue = await limited({ maxActive: 1 }, 2);
    const { jobs } = await queue.drain();
    await admin.set(key(queue.name, 'pending'), 'mine');
    expect(await queue.ack(jobs)).toEqual(['held']);
  });
});
