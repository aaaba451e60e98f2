import { describe, expect, it } from 'vitest';
import { Operator, Queue, Transfer } from '../../src/internal.js';
import { Connection } from '../../src/redis/connection.js';
import { grow } from '../../src/store/grow.js';
import { Store } from '../../src/store/store.js';
import { tagFor } from '../../src/store/tags.js';
import { hold } from '../../src/store/transfer.js';
import { afterwards } from '../support/afterwards.js';
import { Cluster } from '../support/cluster.js';
import { tagsOf } from '../support/partitions.js';
import { admin, connection, freshName, key } from '../support/redis.js';

/** Grows a queue to two partitions, and gives up at the first trouble. */
async function grown(redis: Connection, queue: string): Promise<void> {
  for await (const _ of grow(Store.of(redis, 'delayq', queue), 2, { patienceMs: 0 }));
}

describe.concurrent('on a cluster with replicas', () => {
  it('leaves no job in two partitions when the replicas of the new one do not follow', async () => {
    const cluster = await Cluster.start({ masters: 2, replicas: 1 });
    afterwards(() => cluster.stop());
    const redis = new Connection(cluster.url);
    afterwards(() => redis.close());
    const ids = Array.from({ length: 20 }, (_, i) => `o:${i}`);
    await new Queue(redis, 'q').enqueue(ids.map((id) => ({ id, payload: id })));
    const places = async (id: string) => {
      const { map } = Store.of(redis, 'delayq', 'q');
      const scores = [0, 1].map((i) => redis.call('ZSCORE', Store.of(redis, 'delayq', 'q').keys(i, map).pending, id));
      return (await Promise.all(scores)).filter((score) => score !== null).length;
    };

    const owner = await cluster.ownerOf(`delayq:{${tagFor('q', 1)}}:pending`);
    expect(owner).not.toBe(await cluster.ownerOf('delayq:{q}:pending'));
    const [replica] = await cluster.replicasOf(owner);
    replica?.signal('SIGSTOP');
    await expect(grown(redis, 'q')).rejects.toThrow('too few replicas');
    expect(await Promise.all(ids.map(places))).not.toContain(2);

    replica?.signal('SIGCONT');
    await grown(redis, 'q');
    expect(await Promise.all(ids.map(places))).toEqual(ids.map(() => 1));
  });

  it('moves no job that a replica has to a server without one', async () => {
    const cluster = await Cluster.start({ masters: 2, replicas: 1 });
    afterwards(() => cluster.stop());
    const redis = new Connection(cluster.url);
    afterwards(() => redis.close());
    await new Queue(redis, 'q').enqueue(Array.from({ length: 20 }, (_, i) => ({ id: `o:${i}`, payload: i })));
    const owner = await cluster.ownerOf(`delayq:{${tagFor('q', 1)}}:pending`);
    const [replica] = await cluster.replicasOf(owner);
    await replica?.stop();
    await expect(grown(redis, 'q')).rejects.toMatchObject({
      code: 'temporary',
      what: 'partition 1 has too few replicas',
    });
    expect(await redis.call('ZCARD', 'delayq:{q}:pending')).toBe(20);
  });
});

it('finishes a move to another queue that was cut off before the queue grew', async () => {
  const [name, other] = [freshName(), freshName()];
  const ids = Array.from({ length: 20 }, (_, i) => `o:${i}`);
  await new Queue(connection, name).enqueue(ids.map((id) => ({ id, payload: id })));
  const keys = Store.of(connection, 'delayq', name).keys();
  await hold(connection, keys, ids, { states: ['pending'], receipt: 'r', by: `move:${other}` });
  for await (const { active } of new Operator(connection).partition(name, 4)) if (active > 0) break;

  const answers: string[] = [];
  for await (const some of new Transfer(connection).resume(name, other)) answers.push(...some.answers);
  expect(answers).toEqual(ids.map(() => 'moved'));
  let done = false;
  for await (const growth of new Operator(connection).partition(name, 4)) done = growth.done;
  expect(done).toBe(true);
  expect(await new Queue(connection, other).counts()).toMatchObject({ pending: ids.length });
});

it('puts back what it took beside no other job of this id, although the queue grows', async () => {
  const name = freshName();
  const queue = new Queue(connection, name);
  const ids = Array.from({ length: 20 }, (_, i) => `o:${i}`);
  const enqueue = () => queue.enqueue(ids.map((id) => ({ id, payload: id })));
  await enqueue();
  const { jobs } = await queue.drain({ limit: 20, leaseMs: 0 });
  await enqueue();
  await queue.drain({ limit: 20 });
  for await (const { active } of new Operator(connection).partition(name, 4)) if (active > 0) break;

  await queue.putBack(jobs);
  expect(await queue.counts()).toMatchObject({ pending: 0, active: ids.length });
});

it('leaves no job in two queues when one partition of the other queue fails', async () => {
  const [queue, to] = [new Queue(connection, freshName()), freshName()];
  for await (const _ of new Operator(connection).partition(to, 2));
  const ids = Array.from({ length: 20 }, (_, i) => `o:${i}`);
  await queue.enqueue(ids.map((id) => ({ id, payload: id })));
  const broken = (await tagsOf(admin, to))[1] as string;
  await admin.set(key(broken, 'pending'), 'no zset');
  const move = () => new Transfer(connection).move(queue.name, ids, { to });
  await expect(move()).rejects.toMatchObject({ code: 'unknown' });
  const copied = await admin.zrange(key(to, 'pending'), '0', '-1');
  expect(copied).not.toEqual([]);
  expect((await admin.zrange(key(queue.name, 'pending'), '0', '-1')).filter((id) => copied.includes(id))).toEqual([]);

  await admin.del(key(broken, 'pending'));
  expect(new Set(await move())).toEqual(new Set(['kept', 'moved']));
  expect((await queue.counts()).payload).toBe(0);
  expect((await new Queue(connection, to).counts()).pending).toBe(20);
});
