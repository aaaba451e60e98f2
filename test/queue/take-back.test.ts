import { describe, expect, it } from 'vitest';
import { Operator, Queue } from '../../src/index.js';
import { tagsOf } from '../support/partitions.js';
import { admin, connection, freshName, freshQueue, key, keysLike, timePasses } from '../support/redis.js';
import { until } from '../support/until.js';

const operator = new Operator(connection);

describe('takeBack', () => {
  it('takes back all expired leases, more than one call does, and takes no jobs', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 500 }, () => ({ payload: 1 })));
    for (let i = 0; i < 2; i++) await queue.drain({ leaseMs: 600_000 });
    await timePasses(queue.name, 601_000);
    await queue.enqueue({ payload: 1 });
    const before = await connection.now();
    const now = await queue.takeBack();
    expect(before <= now && now <= (await connection.now())).toBe(true);
    expect(await queue.counts()).toMatchObject({ pending: 501, active: 0 });
    expect(await admin.hget(key(queue.name, 'stats'), 'lost')).toBe('500');
  });

  it('takes no job, not even one that is due at the earliest time there is', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, at: -8.64e15 });
    await queue.takeBack();
    expect(await queue.counts()).toMatchObject({ pending: 1, active: 0 });
  });

  it('leaves leases that have not expired', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    await queue.drain({ limit: 1 });
    await queue.takeBack();
    expect(await queue.counts()).toMatchObject({ pending: 1, active: 1 });
  });

  it('is no drain: when a drain last came stays as it was', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    await queue.takeBack();
    expect(await admin.hget(key(queue.name, 'stats'), 'drained')).toBeNull();
    await admin.hset(key(queue.name, 'stats'), 'drained', '1000');
    await queue.takeBack();
    expect(await admin.hget(key(queue.name, 'stats'), 'drained')).toBe('1000');
    await operator.pause(queue.name);
    await queue.takeBack();
    expect(await admin.hget(key(queue.name, 'stats'), 'drained')).toBe('1000');
    await operator.resume(queue.name);
    await until(async () => {
      await queue.drain();
      return Number(await admin.hget(key(queue.name, 'stats'), 'drained')) > 1_000;
    });
  });

  it('makes jobs dead that were lost too often', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, maxLost: 1 });
    await queue.drain({ leaseMs: 1_000 });
    await timePasses(queue.name, 2_000);
    await queue.takeBack();
    expect(await queue.counts()).toMatchObject({ dead: 1 });
  });

  it('asks all partitions', async () => {
    const queue = new Queue(connection, freshName());
    for await (const _ of operator.partition(queue.name, 4));
    await queue.enqueue(Array.from({ length: 40 }, (_, i) => ({ id: `o:${i}`, payload: 1 })));
    for (let n = 1; n > 0; ) n = (await queue.drain({ leaseMs: 600_000 })).jobs.length;
    for (const tag of await tagsOf(admin, queue.name)) await timePasses(tag, 601_000);
    await queue.takeBack();
    expect(await queue.counts()).toMatchObject({ pending: 40, active: 0 });
  });

  it.each([{ rate: { jobs: 1, perMs: 3_600_000 } }, { maxActive: 1 }])(
    'ends in a queue with limits: %j',
    async (limits) => {
      const queue = freshQueue();
      await queue.enqueue(Array.from({ length: 3 }, () => ({ payload: 1 })));
      await queue.drain({ leaseMs: 1_000 });
      await operator.configure(queue.name, limits);
      await timePasses(queue.name, 2_000);
      await queue.takeBack();
      expect(await queue.counts()).toMatchObject({ pending: 3, active: 0 });
    },
  );

  it('makes no key of a queue that does not exist', async () => {
    const queue = freshQueue();
    await queue.takeBack();
    expect(await keysLike(`*{${queue.name}*`)).toEqual([]);
  });
});
