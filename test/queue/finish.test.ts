import { describe, expect, it } from 'vitest';
import { Operator, Queue } from '../../src/index.js';
import { consumer } from '../../src/model/id.js';
import { Connection } from '../../src/redis/connection.js';
import { shaOf } from '../../src/store/script.js';
import { afterwards, during } from '../support/afterwards.js';
import { serverWith } from '../support/doctor.js';
import { openGrowth, placesOf, tagsOf } from '../support/partitions.js';
import { FaultyProxy } from '../support/proxy.js';
import {
  admin,
  connection,
  freshName,
  freshQueue,
  key,
  keysLike,
  redisTargets,
  redisUrl,
  timePasses,
} from '../support/redis.js';

const MINE = { by: consumer().slice(0, 5) };
const operator = new Operator(connection);
const jobs = (...ids: string[]) => ids.map((id) => ({ id, payload: id }));

/** What is left of a queue in Redis: its keys without counters. */
const leftOf = async (name: string) => (await keysLike(`*{${name}*`)).filter((one) => !/:(stats|config)$/.test(one));

describe('finish', () => {
  it('removes a job that a consumer of that name holds, as an ack does', async () => {
    const queue = freshQueue();
    await queue.enqueue(jobs('one'));
    const held = await queue.drain();
    expect(await queue.finish(['one'], MINE)).toEqual(['acked']);
    expect(await leftOf(queue.name)).toEqual([]);
    expect(await admin.hmget(key(queue.name, 'stats'), 'acked', 'cancelled')).toEqual(['1', null]);
    expect(await queue.ack(held.jobs)).toEqual(['lost']);
  });

  it.each([
    ['another name', { by: 'http:' }],
    ['no name', {}],
  ])('cancels a job whose lease is of %s, and its holder is told', async (_, how) => {
    const queue = freshQueue();
    await queue.enqueue(jobs('one'));
    const held = await queue.drain();
    expect(await queue.finish(['one'], how)).toEqual(['cancelled']);
    expect(await queue.ack(held.jobs)).toEqual(['superseded']);
    expect(await leftOf(queue.name)).toEqual([]);
    expect(await admin.hmget(key(queue.name, 'stats'), 'acked', 'cancelled')).toEqual([null, '1']);
  });

  it('cancels pending and dead jobs, and answers in the order of the ids', async () => {
    const queue = freshQueue();
    await queue.enqueue(jobs('dead', 'held'));
    const { jobs: taken } = await queue.drain();
    await queue.nack(
      taken.filter(({ id }) => id === 'dead'),
      { mode: 'dead' },
    );
    await queue.enqueue(jobs('pending'));
    const answers = await queue.finish(['pending', 'none', 'held', 'dead', 'held'], MINE);
    expect(answers).toEqual(['cancelled', 'missing', 'acked', 'cancelled', 'missing']);
    expect(await leftOf(queue.name)).toEqual([]);
    expect(await admin.hmget(key(queue.name, 'stats'), 'acked', 'cancelled')).toEqual(['1', '2']);
  });

  it('makes no key of a queue that does not exist', async () => {
    const queue = freshQueue();
    expect(await queue.finish(['none'], MINE)).toEqual(['missing']);
    expect(await queue.finish([])).toEqual([]);
    expect(await keysLike(`*{${queue.name}*`)).toEqual([]);
  });

  it('takes more ids than one call', async () => {
    const queue = freshQueue();
    const ids = Array.from({ length: 600 }, (_, i) => `o:${i}`);
    await queue.enqueue(jobs(...ids));
    expect(await queue.finish(ids)).toEqual(ids.map(() => 'cancelled'));
    expect(await leftOf(queue.name)).toEqual([]);
  });

  it('of a job whose lease has expired, but was not taken back, is an ack', async () => {
    const queue = freshQueue();
    await queue.enqueue(jobs('one'));
    await queue.drain({ leaseMs: 1_000 });
    await timePasses(queue.name, 2_000);
    expect(await queue.finish(['one'], MINE)).toEqual(['acked']);
  });

  it('begins the window of a job that is done, and frees the id of one that is cancelled', async () => {
    const queue = freshQueue();
    await operator.configure(queue.name, { onceFor: 60_000 });
    await queue.enqueue(jobs('done', 'other'));
    await queue.drain();
    await queue.enqueue(jobs('pending'));
    expect(await queue.finish(['done'], MINE)).toEqual(['acked']);
    expect(await queue.finish(['other', 'pending'])).toEqual(['cancelled', 'cancelled']);
    const again = await queue.enqueue(jobs('done', 'other', 'pending'));
    expect(again.map(({ outcome }) => outcome)).toEqual(['kept-done', 'created', 'created']);
    // What is remembered stays so.
    expect(await queue.finish(['done'], MINE)).toEqual(['missing']);
    expect((await queue.enqueue({ id: 'done', payload: 1 })).outcome).toBe('kept-done');
  });

  it('makes room under max-active', async () => {
    const queue = freshQueue();
    await operator.configure(queue.name, { maxActive: 1 });
    await queue.enqueue(jobs('one', 'two'));
    const [first] = (await queue.drain()).jobs;
    expect(await queue.drain()).toMatchObject({ state: 'full', jobs: [] });
    await queue.finish([first?.id as string], MINE);
    expect((await queue.drain()).jobs).toHaveLength(1);
  });

  it('finds jobs in all partitions, and what other software has put into the first', async () => {
    const queue = freshQueue();
    for await (const _ of operator.partition(queue.name, 4));
    const ids = Array.from({ length: 40 }, (_, i) => `o:${i}`);
    await queue.enqueue(jobs(...ids.slice(1)));
    await admin.hset(key(queue.name, 'payload'), 'o:0', '1');
    await admin.zadd(key(queue.name, 'pending'), 1, 'o:0');
    expect(await queue.finish([...ids, 'none'])).toEqual([...ids.map(() => 'cancelled'), 'missing']);
    expect(await placesOf(admin, queue.name)).toEqual(new Map());
  });

  it('finds jobs while the queue grows, wherever they are and whatever the caller knows of it', async () => {
    for (const isStranger of [false, true]) {
      const queue = freshQueue();
      const other = new Connection(redisUrl);
      afterwards(() => other.close());
      const ids = Array.from({ length: 40 }, (_, i) => `o:${i}`);
      await queue.enqueue(jobs(...ids));
      const held = new Set((await queue.drain({ limit: 20 })).jobs.map(({ id }) => id));
      await openGrowth(admin, queue.name, 4);
      if (!isStranger) await queue.counts();
      const caller = isStranger ? new Queue(other, queue.name) : queue;
      const answers = await caller.finish([...ids, 'none'], MINE);
      expect(answers).toEqual([...ids.map((id) => (held.has(id) ? 'acked' : 'cancelled')), 'missing']);
      expect(await placesOf(admin, queue.name)).toEqual(new Map());
      for (const tag of await tagsOf(admin, queue.name)) {
        expect(await admin.exists(key(tag, 'payload'), key(tag, 'meta'), key(tag, 'lease'))).toBe(0);
      }
    }
  });

  it('leaves a job that a growth is moving, whatever the name of the consumer', async () => {
    const queue = freshQueue();
    await queue.enqueue(jobs('one'));
    const lease = '- 1 1 move:q/2 p 1';
    await admin.zadd(key(queue.name, 'active'), '+inf', 'one');
    await admin.zrem(key(queue.name, 'pending'), 'one');
    await admin.hset(key(queue.name, 'lease'), 'one', lease);
    expect(await queue.finish(['one'], { by: 'mo' })).toEqual(['missing']);
    expect(await admin.hget(key(queue.name, 'lease'), 'one')).toBe(lease);
    expect(await admin.hkeys(key(queue.name, 'payload'))).toEqual(['one']);
  });

  it('is repeated if its reply is lost, which changes nothing', async () => {
    const proxy = await during(FaultyProxy.start(...redisTargets));
    const redis = new Connection(proxy.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, freshName());
    await queue.enqueue(jobs('one', 'two'));
    await queue.drain({ limit: 1 });
    proxy.fault = { word: shaOf('jobs/remove'), kind: 'cut', times: 1 };
    expect(await queue.finish(['one', 'two'], MINE)).toEqual(['missing', 'missing']);
    expect(await admin.hmget(key(queue.name, 'stats'), 'acked', 'cancelled')).toEqual(['1', '1']);
  });

  it('works on a full server', async () => {
    const server = await serverWith();
    const redis = new Connection(server.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, freshName());
    await queue.enqueue(jobs('one', 'two', 'three'));
    await queue.drain({ limit: 2 });
    await server.admin.config('SET', 'maxmemory', '1');
    expect(await queue.finish(['one'], MINE)).toEqual(['acked']);
    expect(await queue.finish(['two', 'three'])).toEqual(['cancelled', 'cancelled']);
  });

  it.each(['pending', 'active', 'dead', 'lease'])('removes nothing if %s is no key of a queue', async (broken) => {
    const queue = freshQueue();
    await queue.enqueue(jobs('one'));
    await queue.drain();
    await queue.enqueue(jobs('two'));
    await admin.del(key(queue.name, broken));
    await admin.set(key(queue.name, broken), 'text');
    await expect(queue.finish(['none', 'one', 'two'], MINE)).rejects.toMatchObject({
      code: 'config',
      why: expect.stringContaining(`{${queue.name}}:${broken} is a string`),
    });
    expect(await admin.hkeys(key(queue.name, 'payload'))).toHaveLength(2);
  });

  it('refuses an option that it does not know', async () => {
    await expect(freshQueue().finish(['one'], { consumer: 'x' } as never)).rejects.toMatchObject({ code: 'usage' });
  });
});
