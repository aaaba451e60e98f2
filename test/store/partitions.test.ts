import { describe, expect, it } from 'vitest';
import { Auditor, DelayqError, Operator, Queue } from '../../src/internal.js';
import { Connection } from '../../src/redis/connection.js';
import { byId } from '../../src/store/by-id.js';
import type { QueueKeys } from '../../src/store/keys.js';
import { Store } from '../../src/store/store.js';
import { afterwards } from '../support/afterwards.js';
import { openGrowth } from '../support/partitions.js';
import { admin, connection, freshName, key, keysLike, redisUrl, timePasses } from '../support/redis.js';

const operator = new Operator(connection);

/** A connection that has learned nothing. */
function stranger(): Connection {
  const other = new Connection(redisUrl);
  afterwards(() => other.close());
  return other;
}

async function grow(queue: string, count: number): Promise<void> {
  for await (const _ of operator.partition(queue, count));
}

/** A queue in which a growth is open, because a consumer holds a job that must be moved. Returns that job, and others. */
async function growing(from: number, to: number) {
  const name = freshName();
  const queue = new Queue(connection, name);
  if (from > 1) await grow(name, from);
  await queue.enqueue(Array.from({ length: 200 }, (_, i) => ({ id: `o:${i}`, payload: i })));
  const jobs = [];
  for (let i = 0; i < 3 * from; i++) jobs.push(...(await queue.drain({ limit: 10 })).jobs);
  const run = operator.partition(name, to);
  for await (const { active } of run) if (active > 0) break;
  const { map } = Store.of(connection, 'delayq', name);
  expect(map).toMatchObject({ from, count: to });
  const isMover = (id: string) => map.ownerOf(id) !== map.formerOf(id);
  const held = new Set(jobs.map(({ id }) => id));
  const ids = Array.from({ length: 200 }, (_, i) => `o:${i}`).filter((id) => isMover(id) && !held.has(id));
  return { name, queue, map, jobs: jobs.filter(({ id }) => isMover(id)), moved: ids };
}

/** How often an id is in a set of any partition. */
async function places(name: string, id: string): Promise<string[]> {
  const found: string[] = [];
  for (const set of await keysLike(`delayq:{${name}*}:*`)) {
    if (/:(pending|active|dead)$/.test(set) && (await admin.zscore(set, id)) !== null) found.push(set);
  }
  return found;
}

describe('a caller who knows of no partitions', () => {
  it('learns them from the first call, and does nothing before', async () => {
    const name = freshName();
    await grow(name, 4);
    const { enqueued } = (await new Queue(connection, name).counts()).stats;
    const queue = new Queue(stranger(), name);
    await queue.enqueue([
      { id: 'a', payload: 1 },
      { id: 'b', payload: 2 },
      { id: 'c', payload: 3 },
    ]);
    expect(queue.partitions).toHaveLength(4);
    expect(enqueued).toBe(undefined);
    for (const id of ['a', 'b', 'c']) {
      const { map } = Store.of(connection, 'delayq', name);
      const tag = map.ownerOf(id) === 0 ? name : map.tags[map.ownerOf(id)];
      expect(await places(name, id)).toEqual([key(tag as string, 'pending')]);
    }
  });

  it('drains all of them', async () => {
    const name = freshName();
    await grow(name, 8);
    await new Queue(connection, name).enqueue(Array.from({ length: 50 }, (_, i) => ({ id: `o:${i}`, payload: i })));
    const queue = new Queue(stranger(), name);
    const taken: string[] = [];
    for (let jobs = (await queue.drain()).jobs; jobs.length > 0; jobs = (await queue.drain()).jobs) {
      taken.push(...jobs.map(({ id }) => id));
      expect(new Set(await queue.ack(jobs))).toEqual(new Set(['held']));
    }
    expect(taken.sort()).toEqual(Array.from({ length: 50 }, (_, i) => `o:${i}`).sort());
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, payload: 0, stats: { acked: 50 } });
  });

  it('answers for a job in the partition that its receipt names', async () => {
    const name = freshName();
    await grow(name, 16);
    const queue = new Queue(connection, name);
    await queue.enqueue({ id: 'elsewhere', payload: 1 });
    const { jobs } = await queue.drain();
    expect(jobs[0]?.receipt).toMatch(/^\w{12}\.\d+$/);
    expect(await new Queue(stranger(), name).nack(jobs, { mode: 'release' })).toMatchObject([{ answer: 'pending' }]);
    const again = await queue.drain();
    expect(await new Queue(stranger(), name).renew(again.jobs, 60_000)).toEqual(['held']);
    expect(await new Queue(stranger(), name).ack(again.jobs)).toEqual(['held']);
  });
});

describe('a partition that is behind', () => {
  it('is brought up by whoever calls it', async () => {
    const name = freshName();
    await grow(name, 4);
    const store = Store.of(connection, 'delayq', name);
    const { config } = store.keys(2);
    await admin.del(config);
    const id = store.map.newIdOf(2);
    await new Queue(connection, name).enqueue({ id, payload: 1 });
    expect(await admin.hget(config, 'layout')).toBe('1 2/4');
    expect(await places(name, id)).toHaveLength(1);
  });

  it('has the settings of the queue then', async () => {
    const name = freshName();
    await operator.configure(name, { tries: 7 });
    await grow(name, 2);
    const store = Store.of(connection, 'delayq', name);
    expect(await admin.hget(store.keys(1).config, 'tries')).toBe('7');
    await admin.del(store.keys(1).config, store.keys(1).stats);
    await new Queue(connection, name).enqueue({ id: store.map.newIdOf(1), payload: 1 });
    expect(await admin.hget(store.keys(1).config, 'tries')).toBe('7');
  });

  it('keeps its own count of what goes back while settings change', async () => {
    const name = freshName();
    const tags = await openGrowth(admin, name, 2);
    for (const [i, tag] of tags.entries()) await admin.hset(key(tag, 'config'), 'returned', 3 + i);
    await operator.configure(name, { tries: 7 });
    for (const [i, tag] of tags.entries())
      expect(await admin.hgetall(key(tag, 'config'))).toMatchObject({ returned: String(3 + i), tries: '7' });
  });

  it('also if it is the first, which new callers ask', async () => {
    const name = freshName();
    await grow(name, 4);
    const store = Store.of(connection, 'delayq', name);
    await admin.del(store.keys(0).config);
    await admin.del(store.keys(3).config);
    await new Queue(connection, name).enqueue({ id: store.map.newIdOf(3), payload: 1 });
    expect(await admin.hget(store.keys(0).config, 'layout')).toBe('1 0/4');
  });
});

describe('an edit of jobs in several partitions', () => {
  it('is in doubt, not refused, if one partition fails after others have answered', async () => {
    const name = freshName();
    await grow(name, 2);
    const store = Store.of(connection, 'delayq', name);
    const ids = [store.map.newIdOf(0), store.map.newIdOf(1)];
    await new Queue(connection, name).enqueue(ids.map((id) => ({ id, payload: 1 })));
    const refused = new DelayqError('temporary', 'full', { why: 'OOM' });
    const cancel = (keys: QueueKeys, some: readonly string[]) =>
      keys === store.keys(1) ? Promise.reject(refused) : Promise.resolve(some.map(() => 'pending'));
    const acting = byId(store, ids, { idOf: (id) => id, act: cancel });
    await expect(acting).rejects.toMatchObject({ code: 'unknown', why: 'OOM' });
    await expect(byId(store, ids.slice(1), { idOf: (id) => id, act: cancel })).rejects.toBe(refused);
  });
});

describe('a partition whose layout nobody can have written', () => {
  it('is told with what to do, and changes nothing', async () => {
    const name = freshName();
    await grow(name, 2);
    const store = Store.of(connection, 'delayq', name);
    await admin.hset(store.keys(1).config, 'layout', '1 1/9');
    const enqueued = new Queue(connection, name).enqueue({ id: store.map.newIdOf(1), payload: 1 });
    await expect(enqueued).rejects.toMatchObject({ code: 'config', next: `delayq doctor --fix ${name}` });
  });

  it.each(['1', '1 0/1 uses', '1 0/0', '1 5/3', '1 0/2'])('is mended by what the error says: %s', async (layout) => {
    const queue = new Queue(stranger(), freshName());
    await operator.configure(queue.name, { tries: 3 });
    await queue.enqueue({ id: 'a', payload: 1 });
    const config = key(queue.name, 'config');
    await admin.hset(config, 'layout', layout);
    await expect(queue.drain()).rejects.toMatchObject({
      code: 'config',
      next: `redis-cli HDEL '${config}' layout; then delayq doctor --fix ${queue.name}`,
    });
    await admin.hdel(config, 'layout');
    await new Auditor(connection).examine(queue.name, { mend: true });
    expect(await queue.drain()).toMatchObject({ jobs: [{ id: 'a', tries: 3 }] });
  });
});

describe.each([
  [1, 4],
  [3, 8],
])('while a growth from %i to %i is open', (from, to) => {
  it('an id that was moved is kept, and is not there twice', async () => {
    const { name, queue, moved } = await growing(from, to);
    const [id] = moved as [string];
    expect(await new Queue(stranger(), name).enqueue({ id, payload: 'new' })).toMatchObject({ outcome: 'kept' });
    expect(await queue.enqueue({ id, payload: 'new' }, { ifExists: 'replace' })).toMatchObject({ outcome: 'replaced' });
    expect(await places(name, id)).toHaveLength(1);
  });

  it('a job that a consumer holds is kept where it is', async () => {
    const { name, queue, jobs } = await growing(from, to);
    const [{ id }] = jobs as [(typeof jobs)[0]];
    expect(await queue.enqueue({ id, payload: 'new' })).toMatchObject({ outcome: 'kept' });
    expect(await places(name, id)).toHaveLength(1);
    expect(new Set(await queue.ack(jobs))).toEqual(new Set(['held']));
    expect(await queue.enqueue({ id, payload: 'new' })).toMatchObject({ outcome: 'created' });
    expect(await places(name, id)).toHaveLength(1);
  });

  it('a job that a consumer holds is replaced where it is, and its lease is superseded', async () => {
    const { name, queue, jobs } = await growing(from, to);
    const [job] = jobs as [(typeof jobs)[0]];
    const put = await queue.enqueue({ id: job.id, payload: 'new', in: '1h' }, { ifExists: 'replace' });
    expect(put.outcome).toBe('replaced');
    expect(await places(name, job.id)).toHaveLength(1);
    expect(await queue.ack([job])).toEqual(['superseded']);
    expect((await places(name, job.id))[0]).toMatch(/:pending$/);
  });

  it('ends when the jobs that consumers hold were answered for or given back', async () => {
    const { name, queue, jobs } = await growing(from, to);
    const [first, second, third, ...rest] = jobs as [(typeof jobs)[0], (typeof jobs)[0], (typeof jobs)[0]];
    await queue.ack([first]);
    await queue.nack([second], { mode: 'dead', error: 'no' });
    await queue.nack([third], { mode: 'release' });
    await queue.ack(rest);
    await grow(name, to);
    const { map } = Store.of(connection, 'delayq', name);
    expect(map).toMatchObject({ count: to, from: undefined });
    const home = (id: string, set: string) => [
      key(map.ownerOf(id) === 0 ? name : (map.tags[map.ownerOf(id)] as string), set),
    ];
    expect(await places(name, first.id)).toEqual([]);
    expect(await places(name, second.id)).toEqual(home(second.id, 'dead'));
    expect(await places(name, third.id)).toEqual(home(third.id, 'pending'));
    expect((await queue.counts()).config).not.toHaveProperty('returned');
  });

  it('what goes back to pending is counted, by nack and by an expired lease', async () => {
    const { name, queue, map, jobs } = await growing(from, to);
    const counted = async () => {
      let sum = 0;
      for (let i = 0; i < from; i++) {
        const tag = i === 0 ? name : (map.tags[i] as string);
        sum += Number((await admin.hget(key(tag, 'config'), 'returned')) ?? 0);
      }
      return sum;
    };
    const before = await counted();
    await queue.nack(jobs.slice(0, 2), { mode: 'release' });
    expect(await counted()).toBe(before + 2);
    for (let i = 0; i < from; i++) await timePasses(i === 0 ? name : (map.tags[i] as string), 61_000);
    const { partitions } = queue;
    for (let i = 0; i < from; i++) await partitions[i]?.drain();
    expect(await counted()).toBe(before + jobs.length);
  });
});

it('of very many queues, what is known of those that were not asked for longest is forgotten', () => {
  const redis = new Connection(redisUrl);
  afterwards(() => redis.close());
  const [used, unused] = ['used', 'unused'].map((name) => Store.of(redis, 'delayq', name));
  for (let n = 0; n < 10_000; n++) {
    Store.of(redis, 'delayq', `stranger-${n}`);
    expect(Store.of(redis, 'delayq', 'used')).toBe(used);
  }
  expect(Store.of(redis, 'delayq', 'unused')).not.toBe(unused);
});
