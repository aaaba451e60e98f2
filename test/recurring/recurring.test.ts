import { describe, expect, it } from 'vitest';
import { Operator, type Queue, Recurring } from '../../src/internal.js';
import { admin, connection, freshName, freshQueue, key } from '../support/redis.js';

const recurring = new Recurring(connection);

/** Lets occurrences of a queue fall due: moves all of them back. */
async function occursBack(queue: string, ms: number): Promise<void> {
  const all = await admin.zrange(key(queue, 'occurs'), '0', '-1', 'WITHSCORES');
  for (let i = 0; i < all.length; i += 2)
    await admin.zadd(key(queue, 'occurs'), Number(all[i + 1]) - ms, all[i] as string);
}

const due = async (queue: Queue) => (await queue.drain()).jobs.map(({ id }) => id);

describe('a recurring job', () => {
  it('makes a job for an occurrence, with its payload, its limits and its time as due time', async () => {
    const queue = freshQueue();
    const { job } = await recurring.put(queue.name, { id: 'r', when: '10s', payload: { a: 1 }, tries: 2 });
    expect((await queue.drain()).next).toBe(job.next);
    await occursBack(queue.name, 10_000);
    const at = (job.next as number) - 10_000;
    const { jobs } = await queue.drain();
    const id = `r@${new Date(at).toISOString().slice(0, 19)}Z`;
    expect(jobs).toMatchObject([{ id, due: at, tries: 2 }]);
    expect(String(jobs[0]?.payload)).toBe('{"a":1}');
    expect(await recurring.show(queue.name, 'r')).toMatchObject({ next: job.next, last: id });
  });
});
void [Operator, freshName, due];
