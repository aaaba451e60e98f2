import { Cron } from 'croner';
import { describe, expect, it, vi } from 'vitest';
import { type Job, Operator, Queue, Recurring } from '../../src/internal.js';
import { Connection } from '../../src/redis/connection.js';
import { shaOf } from '../../src/store/script.js';
import { afterwards } from '../support/afterwards.js';
import { FaultyProxy } from '../support/proxy.js';
import { admin, connection, freshQueue, key, redisTargets, redisUrl } from '../support/redis.js';

const recurring = new Recurring(connection);
const operator = new Operator(connection);

/** Lets time pass for the recurring jobs of a queue: moves their occurrences and their creation back. */
async function occursBack(queue: string, ms: number): Promise<void> {
  const [every, occurs] = [key(queue, 'every'), key(queue, 'occurs')];
  const all = await admin.zrange(occurs, '0', '-1', 'WITHSCORES');
  for (let i = 0; i < all.length; i += 2) await admin.zadd(occurs, Number(all[i + 1]) - ms, all[i] as string);
  for (const [id, text] of Object.entries(await admin.hgetall(every)))
    await admin.hset(
      every,
      id,
      text.replace(/"created":(\d+)/, (_, at) => `"created":${Number(at) - ms}`),
    );
}

/** A queue with one recurring job, `r`, each 10 s, of which as many occurrences as asked are due. */
async function withDue(n: number, options: Partial<Parameters<Recurring['put']>[1]> = {}) {
  const queue = freshQueue();
  const { job } = await recurring.put(queue.name, { id: 'r', when: '10s', payload: 1, ...options });
  await occursBack(queue.name, 10_000 * n);
  return { queue, name: queue.name, next: job.next as number };
}

const idsIn = async (queue: Queue) => (await queue.drain()).jobs.map(({ id }) => id);
const idAt = (ms: number) => `r@${new Date(ms).toISOString().slice(0, 19)}Z`;
const skipped = async (queue: Queue) => (await queue.counts()).stats.skipped ?? 0;

describe('a recurring job', () => {
  it('makes a job for an occurrence, with its payload, its limits and its time as due time', async () => {
    const { queue, next } = await withDue(1, { payload: { a: 1 }, tries: 2, attributes: { tenant: '7' } });
    const { jobs } = await queue.drain();
    const at = next - 10_000;
    expect(jobs).toMatchObject([{ id: idAt(at), due: at, tries: 2, attributes: { tenant: '7' } }]);
    expect(String(jobs[0]?.payload)).toBe('{"a":1}');
    expect(await recurring.show(queue.name, 'r')).toMatchObject({ next, last: idAt(at) });
  });

  it('wakes drains when it is due: next is its occurrence', async () => {
    const queue = freshQueue();
    const { job } = await recurring.put(queue.name, { id: 'r', when: '1h', payload: 1 });
    expect((await queue.drain()).next).toBe(job.next);
    await queue.enqueue({ payload: 2 });
    expect((await queue.drain({ limit: 1 })).next).toBeLessThanOrEqual(job.next as number);
  });

  it('makes one job for an occurrence, however many drains there are', async () => {
    const { name, next } = await withDue(1);
    const connections = Array.from({ length: 8 }, () => new Connection(redisUrl));
    afterwards(() => {
      for (const redis of connections) redis.close();
    });
    const all = await Promise.all(connections.map((redis) => idsIn(new Queue(redis, name))));
    expect(all.flat()).toEqual([idAt(next - 10_000)]);
  });

  it.each(['refuse', 'cut'] as const)('makes one job if a drain dies as it makes it (%s)', async (kind) => {
    const { name, next } = await withDue(1);
    const proxy = await FaultyProxy.start(...redisTargets);
    const redis = new Connection(proxy.url);
    afterwards(async () => {
      redis.close();
      await proxy.stop();
    });
    const word = shaOf('every/fire');
    proxy.fault = { word, kind, times: 1 };
    const taken = await idsIn(new Queue(redis, name)).catch(() => []);
    expect(proxy.struck).toBe(1);
    expect([...taken, ...(await idsIn(new Queue(connection, name)))]).toEqual([idAt(next - 10_000)]);
  });

  it('keeps a job of that id that is there', async () => {
    const { queue, next } = await withDue(1);
    await queue.enqueue({ id: idAt(next - 10_000), payload: 'mine' });
    const { jobs } = await queue.drain();
    expect(jobs.map(({ payload }) => String(payload))).toEqual(['"mine"']);
  });

  it('does not let the first of 250 jobs wait for the last: they are made and taken by the hundred', async () => {
    const queue = freshQueue();
    for (let i = 0; i < 250; i++) await recurring.put(queue.name, { id: `r${i}`, when: '1h', payload: i });
    await occursBack(queue.name, 3_600_000);
    const [first, second, third] = [await queue.drain(), await queue.drain(), await queue.drain()];
    expect([first, second, third].map(({ state, jobs }) => [state, jobs.length])).toEqual([
      ['more', 100],
      ['more', 100],
      ['idle', 50],
    ]);
  });

  it('does not ask again and again for 100 that nobody can make', async () => {
    const queue = freshQueue();
    for (let i = 0; i < 100; i++) await recurring.put(queue.name, { id: `r${i}`, when: '1h', payload: i });
    await occursBack(queue.name, 3_600_000);
    for (const [id, text] of Object.entries(await admin.hgetall(key(queue.name, 'every'))))
      await admin.hset(key(queue.name, 'every'), id, text.replace('{"rev"', '{ "rev"'));
    const { state, now, next = 0 } = await queue.drain();
    expect(state).toBe('idle');
    expect(next).toBeGreaterThan(now);
  });
});

describe('missed occurrences', () => {
  it('make one job, for the latest', async () => {
    const { queue, next } = await withDue(5);
    expect(await idsIn(queue)).toEqual([idAt(next - 10_000)]);
    expect(await skipped(queue)).toBe(4);
  });

  it('make none with skip, if the latest is over a minute old, and one if it is not', async () => {
    const { queue, name } = await withDue(0, { missed: 'skip', when: '1h' });
    await admin.zadd(key(name, 'occurs'), Date.now() - 120_000, 'r');
    expect(await idsIn(queue)).toEqual([]);
    expect(await skipped(queue)).toBe(1);
    await admin.zadd(key(name, 'occurs'), Date.now() - 5_000, 'r');
    expect(await idsIn(queue)).toHaveLength(1);
  });

  it('make a job each with all', async () => {
    const { queue, next } = await withDue(5, { missed: 'all' });
    expect(await idsIn(queue)).toEqual([5, 4, 3, 2, 1].map((n) => idAt(next - n * 10_000)));
    expect(await skipped(queue)).toBe(0);
  });

  it('are worked out quickly, however many there are', async () => {
    const { queue } = await withDue(1, { when: '* * * * *', missed: 'all' });
    await occursBack(queue.name, 2_000 * 60_000);
    const asked = vi.spyOn(Cron.prototype, 'nextRun');
    afterwards(() => asked.mockRestore());
    await queue.drain();
    expect((await queue.counts()).stats.enqueued).toBe(1_000);
    expect(asked.mock.calls.length).toBeLessThan(5_000);
  });

  it('make the latest 1,000 jobs with all', async () => {
    const { queue, next } = await withDue(3_000, { missed: 'all' });
    await queue.drain();
    const { pending, active } = await queue.counts();
    expect(pending + active).toBe(1_000);
    expect(await admin.zscore(key(queue.name, 'pending'), idAt(next - 10_000))).not.toBeNull();
  });
});

describe('overlap skip', () => {
  it('makes no job while the last one is pending or active, and one when it is done or dead', async () => {
    const { queue, name } = await withDue(1, { overlap: 'skip' });
    const [first] = (await queue.drain()).jobs;
    await occursBack(name, 11_000);
    expect(await idsIn(queue)).toEqual([]);
    expect(await skipped(queue)).toBe(1);
    await queue.nack([first as Job], { mode: 'dead' });
    await occursBack(name, 11_000);
    expect(await idsIn(queue)).toHaveLength(1);
  });

  it('excludes missed all', async () => {
    const job = { id: 'r', when: '10s', payload: 1, overlap: 'skip', missed: 'all' } as const;
    await expect(recurring.put(freshQueue().name, job)).rejects.toMatchObject({ code: 'usage' });
  });
});

describe('a pause', () => {
  it('of the queue keeps occurrences: they are missed ones when it resumes', async () => {
    const { queue, name, next } = await withDue(3);
    await operator.pause(name);
    expect(await queue.drain()).toMatchObject({ state: 'paused', jobs: [] });
    await operator.resume(name);
    expect(await idsIn(queue)).toEqual([idAt(next - 10_000)]);
  });

  it('of a recurring job makes none, and it goes on with the first occurrence from then', async () => {
    const { queue, name, next } = await withDue(0);
    expect(await recurring.pause(name, 'r')).toMatchObject({ paused: true, next: undefined });
    expect((await queue.drain()).next).toBeUndefined();
    expect(await recurring.put(name, { id: 'r', when: '10s', payload: 1 })).toMatchObject({ outcome: 'unchanged' });
    const resumed = await recurring.resume(name, 'r');
    expect(resumed?.paused).toBe(false);
    expect(((resumed?.next as number) - next) % 10_000).toBe(0);
    expect(await recurring.resume(name, 'none')).toBeUndefined();
  });
});

describe('putting it again', () => {
  it('unchanged changes nothing; changed, it tells what, and counts on', async () => {
    const name = freshQueue().name;
    const job = { id: 'r', when: '1h', payload: 1 };
    expect((await recurring.put(name, job)).outcome).toBe('created');
    const stored = await admin.hget(key(name, 'every'), 'r');
    const next = (await recurring.show(name, 'r'))?.next;
    expect(await recurring.put(name, job)).toMatchObject({ outcome: 'unchanged', changes: [] });
    expect(await admin.hget(key(name, 'every'), 'r')).toBe(stored);
    expect(await recurring.put(name, { ...job, payload: 2, tries: 3 })).toMatchObject({
      outcome: 'replaced',
      changes: ['payload', 'tries'],
      job: { next },
    });
    expect(await recurring.put(name, { ...job, when: '0 9 * * *', tz: 'Europe/Berlin' })).toMatchObject({
      changes: expect.arrayContaining(['when', 'tz']),
    });
  });

  it.each(['1h', '0 * * * *'])('unchanged (%s) sets right a next occurrence that is too late', async (when) => {
    const name = freshQueue().name;
    const job = { id: 'r', when, payload: 1 };
    const next = (await recurring.put(name, job)).job.next as number;
    await admin.zadd(key(name, 'occurs'), next + 365 * 86_400_000, 'r');
    expect(await recurring.put(name, job)).toMatchObject({ outcome: 'replaced', changes: [], job: { next } });
    expect((await recurring.show(name, 'r'))?.next).toBe(next);
    await recurring.pause(name, 'r');
    expect(await recurring.put(name, job)).toMatchObject({ outcome: 'unchanged', job: { paused: true } });
  });

  it('unchanged counts an interval from now that was put while the clock was ahead', async () => {
    const name = freshQueue().name;
    const job = { id: 'r', when: '1h', payload: 1 };
    await recurring.put(name, job);
    await occursBack(name, -365 * 86_400_000);
    const { outcome, job: put } = await recurring.put(name, job);
    expect(outcome).toBe('replaced');
    expect(put.next).toBeLessThan(Date.now() + 3_700_000);
  });

  it.each([
    { when: '0 0 30 2 *' },
    { when: '61 * * * *' },
    { when: '0 9 * * *', tz: 'Mars/X' },
    { when: '10ms' },
    { missed: 'twice' as never },
    { id: 'a b' },
    { id: 'x'.repeat(240) },
  ])('with $when $tz $missed $id is refused, and nothing is written', async (bad) => {
    const name = freshQueue().name;
    await expect(recurring.put(name, { id: 'r', when: '10s', payload: 1, ...bad })).rejects.toMatchObject({
      code: 'usage',
    });
    expect(await admin.exists(key(name, 'config'), key(name, 'every'))).toBe(0);
  });
});

describe('a definition', () => {
  it('that cannot be read is put off, and stops no other job', async () => {
    const { queue, name } = await withDue(1);
    await admin.hset(key(name, 'every'), 'r', '\n{"rev":"x","new":true}\n1');
    await queue.enqueue({ id: 'other', payload: 1 });
    expect(await idsIn(queue)).toEqual(['other']);
    expect(await admin.zscore(key(name, 'occurs'), 'r')).toBe('inf');
    expect((await recurring.put(name, { id: 'r', when: '1h', payload: 1 })).outcome).toBe('replaced');
    expect(await recurring.show(name, 'r')).toMatchObject({ when: '1h' });
  });

  it('that is gone leaves no occurrence', async () => {
    const { queue, name } = await withDue(1);
    await admin.hdel(key(name, 'every'), 'r');
    expect(await idsIn(queue)).toEqual([]);
    expect(await admin.zcard(key(name, 'occurs'))).toBe(0);
  });

  it('stays when the queue is purged and forgotten', async () => {
    const { queue, name, next } = await withDue(0);
    await queue.enqueue({ payload: 1 });
    for await (const _ of operator.purge(name));
    expect(await operator.forget(name)).toBe(true);
    expect(await recurring.list(name)).toMatchObject([{ id: 'r', next }]);
    await occursBack(name, 10_000);
    expect(await idsIn(queue)).toEqual([idAt(next - 10_000)]);
  });

  it('is removed for good; its jobs stay', async () => {
    const { queue, name } = await withDue(1);
    await queue.drain();
    expect(await recurring.remove(name, ['r', 'none'])).toEqual([true, false]);
    expect(await recurring.list(name)).toEqual([]);
    expect((await queue.counts()).active).toBe(1);
  });

  it('is not removed by a text in place of a list, nor paused by a list', async () => {
    const { name } = await withDue(0);
    await expect(recurring.remove(name, 'r' as never)).rejects.toMatchObject({ what: 'ids are not an array' });
    for (const act of ['pause', 'resume'] as const)
      await expect(recurring[act](name, ['r'] as never)).rejects.toMatchObject({ code: 'usage' });
    expect(await recurring.list(name)).toMatchObject([{ id: 'r', paused: false }]);
  });
});

describe('with partitions', () => {
  it('its jobs are in partition 0, and calls by id find them', async () => {
    const { queue, name, next } = await withDue(0);
    for await (const _ of operator.partition(name, 4));
    await occursBack(name, 10_000);
    const id = idAt(next - 10_000);
    const [job] = (await queue.drain()).jobs;
    expect(job?.id).toBe(id);
    expect(await admin.zscore(key(name, 'active'), id)).not.toBeNull();
    expect(await operator.cancel(name, [id])).toEqual(['active']);
  });
});
