import { describe, expect, it } from 'vitest';
import { Connection, Inspector, Operator, Queue, RawPayload } from '../../src/index.js';
import { consumer } from '../../src/model/id.js';
import { shaOf } from '../../src/store/script.js';
import { Store } from '../../src/store/store.js';
import { afterwards, during } from '../support/afterwards.js';
import { serverWith } from '../support/doctor.js';
import { openGrowth, placesOf } from '../support/partitions.js';
import { FaultyProxy } from '../support/proxy.js';
import { admin, connection, freshName, freshQueue, hearing, key, redisTargets, redisUrl } from '../support/redis.js';
import { until } from '../support/until.js';

const MINE = { by: consumer().slice(0, 5) };
const inspector = new Inspector(connection);
const operator = new Operator(connection);
const jobs = (...ids: string[]) => ids.map((id) => ({ id, payload: id }));

describe('swap', () => {
  it('puts a new job in the place of one that is held, which is done', async () => {
    const queue = freshQueue();
    await queue.enqueue(jobs('one'));
    const held = await queue.drain();
    const { id, outcome, due } = await queue.swap('one', { payload: 'new', in: '1h', attributes: { a: 'b' } }, MINE);
    expect({ id, outcome }).toEqual({ id: expect.stringMatching(/^\w{13}$/), outcome: 'created' });
    expect(due - (await connection.now())).toBeGreaterThan(3_590_000);
    expect(await inspector.show(queue.name, ['one', id])).toEqual([
      undefined,
      expect.objectContaining({ state: 'pending', due, attributes: { a: 'b' }, payload: Buffer.from('"new"') }),
    ]);
    expect(await queue.ack(held.jobs)).toEqual(['lost']);
    expect(await admin.hmget(key(queue.name, 'stats'), 'acked', 'cancelled', 'enqueued')).toEqual(['1', null, '2']);
  });

  it('cancels a job that is pending, dead or held by others', async () => {
    const queue = freshQueue();
    await queue.enqueue(jobs('dead', 'held'));
    const held = await queue.drain();
    await queue.nack(
      held.jobs.filter(({ id }) => id === 'dead'),
      { mode: 'dead' },
    );
    await queue.enqueue(jobs('pending'));
    const ids: string[] = [];
    for (const id of ['dead', 'held', 'pending'])
      ids.push((await queue.swap(id, { payload: id, at: 1_000 + ids.length }, { by: 'http:' })).id);
    expect(await queue.ack(held.jobs.filter(({ id }) => id === 'held'))).toEqual(['superseded']);
    expect((await queue.drain()).jobs.map(({ id }) => id)).toEqual(ids);
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 3, dead: 0 });
    expect(await admin.hmget(key(queue.name, 'stats'), 'acked', 'cancelled')).toEqual([null, '3']);
  });

  it('enqueues also if there is no such job, and lists the queue', async () => {
    const queue = freshQueue();
    const { id } = await queue.swap('none', { payload: new RawPayload(Buffer.from([255])) });
    expect((await queue.drain()).jobs).toMatchObject([{ id, payload: Buffer.from([255]) }]);
    expect(await admin.sismember('delayq:queues', queue.name)).toBe(1);
  });

  it('wakes drains that wait', async () => {
    const queue = freshQueue();
    const { messages } = await hearing(queue.wakeChannel);
    await queue.swap('none', { payload: 1 });
    await expect.poll(() => messages).toHaveLength(1);
  });

  it('changes nothing if the new job is not valid', async () => {
    const queue = freshQueue();
    await queue.enqueue(jobs('one'));
    const swaps = [{ payload: undefined }, { payload: 1, in: 'x' }, { payload: 1, id: 'mine' }] as never[];
    for (const job of swaps) await expect(queue.swap('one', job)).rejects.toMatchObject({ next: expect.any(String) });
    expect(await queue.counts()).toMatchObject({ pending: 1 });
  });

  it('changes nothing on a full server', async () => {
    const server = await serverWith();
    const redis = new Connection(server.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, freshName());
    await queue.enqueue(jobs('one', 'two'));
    const { jobs: held } = await queue.drain({ limit: 1 });
    await server.admin.config('SET', 'maxmemory', '1');
    for (const id of ['one', 'two'])
      await expect(queue.swap(id, { payload: 1 }, MINE)).rejects.toMatchObject({ code: 'temporary' });
    await server.admin.config('SET', 'maxmemory', '0');
    expect(await queue.counts()).toMatchObject({ pending: 1, active: 1 });
    expect(await queue.ack(held)).toEqual(['held']);
  });

  it('respects windows: that of the old job begins, and that of the new one is its own', async () => {
    const queue = freshQueue();
    await queue.enqueue({ id: 'one', payload: 1, onceFor: '1h' });
    await queue.drain();
    const { id } = await queue.swap('one', { payload: 1, onceFor: '1h' }, MINE);
    expect((await queue.enqueue({ id: 'one', payload: 1 })).outcome).toBe('kept-done');
    await queue.finish([id]);
    expect((await queue.enqueue({ id, payload: 1 })).outcome).toBe('created');
    const plain = freshQueue();
    await plain.swap('none', { payload: 1, onceFor: '1h' });
    await plain.ack((await plain.drain()).jobs);
    expect(await plain.counts()).toMatchObject({ remembered: 1 });
  });

  it.each(['pending', 'active', 'lease', 'dead', 'payload', 'meta'])(
    'changes nothing if %s is no key of a queue',
    async (broken) => {
      const queue = freshQueue();
      await queue.enqueue(jobs('one'));
      await admin.del(key(queue.name, broken));
      await admin.set(key(queue.name, broken), 'text');
      await expect(queue.swap('one', { payload: 1 })).rejects.toMatchObject({
        code: 'config',
        why: expect.stringContaining(`{${queue.name}}:${broken} is a string`),
      });
      const others = ['pending', 'payload'].filter((one) => one !== broken).map((one) => key(queue.name, one));
      for (const one of others) expect(await (one.endsWith('pending') ? admin.zcard(one) : admin.hlen(one))).toBe(1);
    },
  );

  it('keeps the new job in the partition of the old one', async () => {
    const queue = freshQueue();
    for await (const _ of operator.partition(queue.name, 4));
    const { map } = Store.of(connection, 'delayq', queue.name);
    await queue.enqueue(jobs('a', 'b', 'c', 'd', 'e', 'f'));
    for (const old of ['a', 'b', 'c', 'd', 'e', 'f', 'none']) {
      const { id } = await queue.swap(old, { payload: 1 });
      expect(map.ownerOf(id)).toBe(map.ownerOf(old));
    }
    const places = await placesOf(admin, queue.name);
    expect(places.size).toBe(7);
    for (const [id, where] of places) expect(where).toEqual([`${map.ownerOf(id)} pending`]);
  });

  it('removes a job that other software has put into the first partition', async () => {
    const queue = freshQueue();
    for await (const _ of operator.partition(queue.name, 4));
    const { map } = Store.of(connection, 'delayq', queue.name);
    const stray = ['a', 'b', 'c', 'd', 'e', 'f'].find((id) => map.ownerOf(id) > 0) as string;
    await admin.hset(key(queue.name, 'payload'), stray, '1');
    await admin.zadd(key(queue.name, 'pending'), 1, stray);
    const { id } = await queue.swap(stray, { payload: 1 });
    expect([...(await placesOf(admin, queue.name)).keys()]).toEqual([id]);
  });

  it('finds the old job while the queue grows, and puts the new one where it belongs', async () => {
    for (const isStranger of [false, true]) {
      const queue = freshQueue();
      const other = new Connection(redisUrl);
      afterwards(() => other.close());
      const ids = Array.from({ length: 20 }, (_, i) => `o:${i}`);
      await queue.enqueue(jobs(...ids));
      await queue.drain({ limit: 10 });
      await openGrowth(admin, queue.name, 4);
      if (!isStranger) await queue.counts();
      const caller = isStranger ? new Queue(other, queue.name) : queue;
      const made: string[] = [];
      for (const id of [...ids, 'none']) made.push((await caller.swap(id, { payload: 1 }, MINE)).id);
      const { map } = Store.of(caller.redis, 'delayq', queue.name);
      const places = await placesOf(admin, queue.name);
      expect([...places.keys()].sort()).toEqual(made.sort());
      for (const [id, where] of places) expect(where).toEqual([`${map.ownerOf(id)} pending`]);
    }
  });

  describe('whose reply is lost', () => {
    async function proxied() {
      const proxy = await during(FaultyProxy.start(...redisTargets));
      const redis = new Connection(proxy.url);
      afterwards(() => redis.close());
      const queue = new Queue(redis, freshName());
      await queue.enqueue(jobs('one'));
      const lose = (times: number) => {
        proxy.fault = { word: shaOf('jobs/remove'), kind: 'cut', times };
      };
      return { queue, lose };
    }

    it('is repeated, and makes one job', async () => {
      const { queue, lose } = await proxied();
      lose(1);
      const { id } = await queue.swap('one', { payload: 1 });
      expect((await queue.drain()).jobs.map((job) => job.id)).toEqual([id]);
      expect(await admin.hmget(key(queue.name, 'stats'), 'enqueued', 'cancelled')).toEqual(['2', '1']);
    });

    it('tells the new id if the repeat fails, too', async () => {
      const { queue, lose } = await proxied();
      lose(10);
      const error = await queue.swap('one', { payload: 1 }).catch((error) => error);
      expect(error).toMatchObject({ code: 'unknown', ids: [expect.stringMatching(/^\w{13}$/)] });
      // The last call was sent, and its connection cut: Redis may still have to execute it.
      await until(async () => `${await admin.zrange(key(queue.name, 'pending'), '0', '-1')}` === `${error.ids}`);
    });
  });
});
