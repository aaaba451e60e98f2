import { describe, expect, it } from 'vitest';
import { Operator } from '../../src/index.js';
import { admin, connection, freshQueue, key } from '../support/redis.js';

const operator = new Operator(connection);

describe('purge of what is due', () => {
  it('leaves what is not due yet, active or dead, in all partitions', async () => {
    for (const partitions of [1, 4]) {
      const queue = freshQueue();
      for await (const _ of operator.partition(queue.name, partitions));
      await queue.enqueue(Array.from({ length: 300 }, (_, i) => ({ id: `now:${i}`, payload: 1 })));
      await queue.enqueue(Array.from({ length: 20 }, (_, i) => ({ id: `later:${i}`, payload: 1, in: '1h' })));
      const { jobs } = await queue.drain({ limit: 2 });
      await queue.nack(jobs.slice(0, 1), { mode: 'dead' });
      let removed = 0;
      for await (const { pending, active, dead } of operator.purge(queue.name, ['pending'], { due: true })) {
        removed += pending;
        expect(active + dead).toBe(0);
      }
      expect(removed).toBe(300 - jobs.length);
      const left = { pending: 20, dead: 1, active: jobs.length - 1 };
      expect(await queue.counts()).toMatchObject({ ...left, payload: 20 + jobs.length });
    }
  });

  it('is of pending jobs alone, and knows no other options', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const purges = [
      operator.purge(queue.name, undefined, { due: true }),
      operator.purge(queue.name, ['pending', 'dead'], { due: true }),
      operator.purge(queue.name, ['pending'], { ready: true } as never),
    ];
    for (const purge of purges) await expect(purge.next()).rejects.toMatchObject({ code: 'usage' });
    expect(await admin.zcard(key(queue.name, 'pending'))).toBe(1);
  });
});
