import { describe, expect, it } from 'vitest';
import { Inspector, type JobEvent, Operator, type Queue, Recurring, Spread, Transfer } from '../../src/index.js';
import { afterwards } from '../support/afterwards.js';
import { tagsOf } from '../support/partitions.js';
import { admin, connection, freshName, freshQueue, key, timePasses } from '../support/redis.js';
import { until } from '../support/until.js';

const inspector = new Inspector(connection);
const operator = new Operator(connection);

/** A queue that keeps events. */
async function observed(events = 1_000, more = {}): Promise<Queue> {
  const queue = freshQueue();
  await operator.configure(queue.name, { events, ...more });
  return queue;
}

async function eventsOf(queue: Queue, options = {}): Promise<JobEvent[]> {
  const all: JobEvent[] = [];
  for await (const event of inspector.events(queue.name, options)) all.push(event);
  return all;
}

const storyOf = async (queue: Queue, id: string) => (await eventsOf(queue, { id })).map(({ type }) => type);

/** What a follower has heard so far. */
function following(queue: Queue, options: Parameters<Inspector['events']>[1] = {}) {
  const stop = new AbortController();
  afterwards(() => stop.abort());
  const heard: JobEvent[] = [];
  const missed: number[] = [];
  const asked = { ...options, follow: true, signal: stop.signal, onMissed: (n: number) => missed.push(n) };
  const ended = (async () => {
    for await (const event of inspector.events(queue.name, asked)) heard.push(event);
  })();
  return { heard, missed, stop: () => stop.abort(), ended };
}

describe('events', () => {
  it('tell what happened to a job, when, by whom, at which attempt and why', async () => {
    const queue = await observed();
    await operator.configure(queue.name, { tries: 2 });
    await queue.enqueue({ id: 'a', payload: 1, in: 20 });
    await until(async () => (await queue.counts()).due === 1);
    const first = (await queue.drain({ by: 'host:1' })).jobs;
    await queue.nack([{ ...(first[0] as (typeof first)[0]), delayMs: 0, error: 'exit 1\nstack' }]);
    const second = (await queue.drain({ by: 'host:2' })).jobs;
    await queue.nack(second, { mode: 'dead', error: 'no such order' });
    const all = await eventsOf(queue);
    const at = expect.any(Number);
    expect(all).toEqual([
      { type: 'enqueued', id: 'a', at, due: first[0]?.due },
      { type: 'delivered', id: 'a', at, by: 'host:1', attempt: 1, due: first[0]?.due },
      { type: 'retried', id: 'a', at, by: 'host:1', attempt: 1, due: second[0]?.due, error: 'exit 1\nstack' },
      { type: 'delivered', id: 'a', at, by: 'host:2', attempt: 2, due: second[0]?.due },
      { type: 'dead', id: 'a', at, by: 'host:2', attempt: 2, reason: 'refused', error: 'no such order' },
    ]);
    expect(all.map((event) => event.at)).toEqual(all.map((event) => event.at).sort((a, b) => a - b));
    expect(Math.abs((all.at(-1)?.at ?? 0) - (await connection.now()))).toBeLessThan(60_000);
  });

  it('tell of every way a job can go', async () => {
    const queue = await observed();
    await queue.enqueue([
      { id: 'a', payload: 1 },
      { id: 'b', payload: 1 },
      { id: 'e', payload: 1, ttl: 1 },
    ]);
    await queue.enqueue({ id: 'b', payload: 2 }, { ifExists: 'replace' });
    await timePasses(queue.name, 1_000);
    const { jobs } = await queue.drain();
    await queue.nack(
      jobs.filter(({ id }) => id === 'a'),
      { mode: 'release' },
    );
    await queue.nack(
      jobs.filter(({ id }) => id === 'b'),
      { mode: 'back' },
    );
    await operator.reschedule(queue.name, ['a'], new Spread({ in: 0 }));
    await operator.bury(queue.name, ['a']);
    await operator.requeue(queue.name, ['a']);
    await queue.drain({ leaseMs: 1_000 });
    await timePasses(queue.name, 2_000);
    await queue.drain();
    await operator.cancel(queue.name, ['a']);
    await queue.finish(['b']);
    const types = ['enqueued', 'delivered', 'released', 'rescheduled', 'dead', 'requeued'];
    expect(await storyOf(queue, 'a')).toEqual([...types, 'delivered', 'lost', 'delivered', 'cancelled']);
    const after = ['delivered', 'returned', 'delivered', 'lost', 'delivered', 'cancelled'];
    expect(await storyOf(queue, 'b')).toEqual(['enqueued', 'replaced', ...after]);
    expect(await storyOf(queue, 'e')).toEqual(['enqueued', 'expired']);
  });

  it('tell of jobs that are moved, made by a recurring one, removed as they are taken, and purged', async () => {
    const [from, to] = [await observed(), await observed()];
    await from.enqueue({ id: 'a', payload: 1 });
    await new Transfer(connection).move(from.name, ['a'], { to: to.name });
    expect(await storyOf(from, 'a')).toEqual(['enqueued', 'moved']);
    expect(await eventsOf(from, { types: ['moved'] })).toMatchObject([{ reason: to.name }]);
    expect(await storyOf(to, 'a')).toEqual(['restored']);
    expect((await to.drain({ leaseMs: 0 })).jobs).toHaveLength(1);
    expect(await storyOf(to, 'a')).toEqual(['restored', 'removed']);
    await new Recurring(connection).put(to.name, { id: 'r', when: '1s', payload: 1, from: 0 });
    await admin.zadd(key(to.name, 'occurs'), Math.floor(Date.now() / 1_000) * 1_000 - 1_000, 'r');
    await to.drain();
    expect((await eventsOf(to, { types: ['made'] }))[0]?.id).toMatch(/^r@/);
    await from.enqueue([{ payload: 1 }, { payload: 2, in: '1h' }]);
    for await (const _ of operator.purge(from.name));
    expect(await eventsOf(from, { types: ['purged'] })).toMatchObject([{ id: '', reason: '2 jobs' }]);
  });

  it('are kept as many as the setting says, about, and only those of its types', async () => {
    const queue = await observed(100, { eventTypes: ['enqueued', 'dead'] });
    await queue.enqueue(Array.from({ length: 1_000 }, (_, i) => ({ id: `j${i}`, payload: i })));
    await queue.nack((await queue.drain({ limit: 1 })).jobs, { mode: 'dead' });
    const all = await eventsOf(queue);
    // Redis removes whole nodes of the stream.
    expect(all.length).toBeGreaterThanOrEqual(100);
    expect(all.length).toBeLessThan(300);
    expect(all.at(-2)).toMatchObject({ type: 'enqueued', id: 'j999' });
    expect(all.at(-1)).toMatchObject({ type: 'dead', id: 'j0' });
    expect(await eventsOf(queue, { types: ['delivered'] })).toEqual([]);
  });

  it('are not kept by default, and go when they are turned off', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    expect(await admin.exists(key(queue.name, 'events'))).toBe(0);
    await operator.configure(queue.name, { events: 10 });
    await queue.enqueue({ payload: 1 });
    expect(await admin.xlen(key(queue.name, 'events'))).toBe(1);
    await operator.configure(queue.name, { events: null });
    expect(await admin.exists(key(queue.name, 'events'))).toBe(0);
    expect(await admin.hget(key(queue.name, 'config'), 'layout')).toBe(null);
  });

  it('that cannot be written lose no job: another type of key', async () => {
    const queue = await observed();
    await admin.set(key(queue.name, 'events'), 'x');
    await queue.enqueue([
      { id: 'a', payload: 1 },
      { id: 'b', payload: 2 },
    ]);
    const { jobs } = await queue.drain();
    expect(await queue.ack(jobs)).toEqual(['held', 'held']);
    await expect(eventsOf(queue)).rejects.toThrow('WRONGTYPE');
  });

  it.each([1, 499, 500, 501, 1_234])('are read to the end, in slices: %d', async (n) => {
    const queue = await observed(10_000);
    const jobs = Array.from({ length: n }, (_, i) => ({ id: `j${i}`, payload: i }));
    await queue.enqueue(jobs);
    expect((await eventsOf(queue)).map(({ id }) => id)).toEqual(jobs.map(({ id }) => id));
  });

  it('from a time on are those from then on', async () => {
    const queue = await observed();
    await queue.enqueue({ id: 'a', payload: 1 });
    await until(async () => (await connection.now()) > ((await eventsOf(queue))[0] as JobEvent).at);
    const since = await connection.now();
    await queue.enqueue({ id: 'b', payload: 1 });
    expect((await eventsOf(queue, { since })).map(({ id }) => id)).toEqual(['b']);
    expect(await eventsOf(queue, { since: since + 60_000 })).toEqual([]);
  });

  it.each([{ types: ['died'] }, { group: 'a b' }, { since: Number.NaN }, { from: 1 }])('refuse %j', async (options) => {
    await expect(eventsOf(await observed(), options)).rejects.toMatchObject({ code: 'usage' });
  });
});

/** How many groups read the events. */
const groupsOf = async (tag: string) =>
  ((await admin.xinfo('GROUPS', key(tag, 'events')).catch(() => [])) as unknown[]).length;

describe('a follower', () => {
  it('hears what happens, until it stops', async () => {
    const queue = await observed();
    await queue.enqueue({ id: 'a', payload: 1 });
    const { heard, stop, ended } = following(queue, { types: ['enqueued'] });
    await until(() => heard.length === 1);
    await queue.enqueue([
      { id: 'b', payload: 1 },
      { id: 'c', payload: 1 },
    ]);
    await queue.drain();
    await until(() => heard.length === 3);
    stop();
    await ended;
    expect(heard.map(({ id }) => id)).toEqual(['a', 'b', 'c']);
  });

  it('with a name goes on where the last one has stopped, and misses nothing meanwhile', async () => {
    const queue = await observed();
    await queue.enqueue({ id: 'before', payload: 1 });
    const first = following(queue, { group: 'pager' });
    await until(async () => (await groupsOf(queue.name)) === 1);
    await queue.enqueue({ id: 'a', payload: 1 });
    await until(() => first.heard.length === 1);
    first.stop();
    await first.ended;
    await queue.enqueue({ id: 'b', payload: 1 });
    const second = following(queue, { group: 'pager' });
    await until(() => second.heard.length === 1);
    await queue.enqueue({ id: 'c', payload: 1 });
    await until(() => second.heard.length === 2);
    expect([first, second].map(({ heard }) => heard.map(({ id }) => id))).toEqual([['a'], ['b', 'c']]);
    // Without follow, too.
    second.stop();
    await second.ended;
    await queue.enqueue({ id: 'd', payload: 1 });
    expect((await eventsOf(queue, { group: 'pager' })).map(({ id }) => id)).toEqual(['d']);
    expect(await eventsOf(queue, { group: 'pager' })).toEqual([]);
    expect((await eventsOf(queue, { group: 'new', since: 0 })).length).toBe(5);
  });

  it('gets events again whose batch it did not finish', async () => {
    const queue = await observed();
    expect(await eventsOf(queue, { group: 'g' })).toEqual([]);
    await queue.enqueue([
      { id: 'a', payload: 1 },
      { id: 'b', payload: 1 },
    ]);
    for await (const { id } of inspector.events(queue.name, { group: 'g' })) if (id === 'b') break;
    expect((await eventsOf(queue, { group: 'g' })).map(({ id }) => id)).toEqual(['a', 'b']);
  });

  it('that falls behind what is kept is told how many events it has missed, once', async () => {
    const queue = await observed(100);
    expect(await eventsOf(queue, { group: 'g' })).toEqual([]);
    await queue.enqueue({ payload: 1 });
    expect(await eventsOf(queue, { group: 'g' })).toHaveLength(1);
    await queue.enqueue(Array.from({ length: 1_000 }, (_, i) => ({ payload: i })));
    const left = await admin.xlen(key(queue.name, 'events'));
    const missed: number[] = [];
    const onMissed = (n: number) => missed.push(n);
    expect(await eventsOf(queue, { group: 'g', onMissed })).toHaveLength(left);
    expect(missed).toEqual([1_000 - left]);
    await queue.enqueue({ payload: 1 });
    expect(await eventsOf(queue, { group: 'g', onMissed })).toHaveLength(1);
    expect(missed).toHaveLength(1);
  });

  it('goes on when the events begin anew', async () => {
    const queue = await observed();
    const { heard, missed } = following(queue, { group: 'g', types: ['enqueued'] });
    await until(async () => (await groupsOf(queue.name)) === 1);
    await queue.enqueue({ id: 'a', payload: 1 });
    await until(() => heard.length === 1);
    await admin.del(key(queue.name, 'events'));
    await queue.enqueue({ id: 'b', payload: 1 });
    await until(() => heard.length === 2);
    await until(async () => (await groupsOf(queue.name)) === 1);
    expect(missed).toEqual([]);
  });
});

describe('the events of a queue with partitions', () => {
  it('come in the order of their times, and say in which they happened', async () => {
    const queue = await observed();
    for await (const _ of operator.partition(queue.name, 4));
    for (let i = 0; i < 40; i++) await queue.enqueue({ id: `j${i}`, payload: i });
    const all = await eventsOf(queue);
    expect(all.map(({ at }) => at)).toEqual(all.map(({ at }) => at).sort((a, b) => a - b));
    expect(new Set(all.map(({ id }) => id)).size).toBe(40);
    expect(new Set(all.map(({ partition }) => partition))).toEqual(new Set([0, 1, 2, 3]));
    for (const tag of await tagsOf(admin, queue.name)) expect(await admin.xlen(key(tag, 'events'))).toBeGreaterThan(0);
  });

  it('are followed when there are more of them, by a group that is made there, too', async () => {
    const queue = await observed();
    const { heard } = following(queue, { group: 'g', types: ['enqueued'] });
    await until(async () => (await groupsOf(queue.name)) === 1);
    await queue.enqueue({ id: 'first', payload: 1 });
    await until(() => heard.length === 1);
    for await (const _ of operator.partition(queue.name, 4));
    await queue.enqueue(Array.from({ length: 50 }, (_, i) => ({ id: `j${i}`, payload: i })));
    await until(() => heard.length === 51);
    for (const tag of await tagsOf(admin, queue.name)) await until(async () => (await groupsOf(tag)) === 1);
    // A stopped reader finds what happened in a partition that it did not know.
    expect(new Set(heard.map(({ id }) => id)).size).toBe(51);
  });

  it('which a reader has not seen yet come from their beginning', async () => {
    const queue = await observed();
    expect(await eventsOf(queue, { group: 'g' })).toEqual([]);
    for await (const _ of operator.partition(queue.name, 4));
    await queue.enqueue(Array.from({ length: 50 }, (_, i) => ({ id: `j${i}`, payload: i })));
    expect(await eventsOf(queue, { group: 'g' })).toHaveLength(50);
    expect(await eventsOf(queue, { group: 'g' })).toEqual([]);
  });
});

it('events of a queue that does not exist are none', async () => {
  const all: JobEvent[] = [];
  for await (const event of inspector.events(freshName())) all.push(event);
  expect(all).toEqual([]);
});
