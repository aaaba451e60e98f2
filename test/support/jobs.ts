import { type Id, Inspector, type Queue } from '../../src/index.js';
import { delayq, linesOf } from './cli.js';
import { admin, connection, freshQueue, key } from './redis.js';

/*
 * Queues with jobs in known states, and what stands in them, for the tests of commands that list or edit jobs.
 */

const inspector = new Inspector(connection);

/** The numbers from 0 to n - 1. */
export const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);

/** The ids on the lines of `delayq list`. */
export const idsOf = (stdout: string) => linesOf(stdout).map((line) => JSON.parse(line).id as string);

/** The ids that `delayq list` prints. */
export const listed = async (...args: string[]) => idsOf((await delayq(['list', '--json', ...args])).stdout);

/** A job as it stands in a queue. */
export const show = async (queue: Queue, id: Id) => (await inspector.show(queue.name, [id]))[0];

/** The due times of the pending jobs, first in line first, as they are stored, less that of the first. */
export async function apart(queue: Queue): Promise<number[]> {
  const scores = (await admin.zrange(key(queue.name, 'pending'), '0', '-1', 'WITHSCORES')).filter((_, i) => i % 2);
  return scores.map((score) => Number(score) - Number(scores[0]));
}

/** A queue with the dead job d, the active job a, and the pending jobs c, b and e, due in this order in 1 to 3 h. */
export async function withAll(): Promise<Queue> {
  const queue = await withDeadAndActive();
  await queue.enqueue([
    { payload: 1, id: 'c', in: '1h' },
    { payload: 2, id: 'b', in: '2h' },
    { payload: 3, id: 'e', in: '3h' },
  ]);
  return queue;
}

/** A queue with the dead job d, the active job a, and the pending jobs p0 (due), p1 (due in an hour) and p2 (in two). */
export async function withShops(): Promise<Queue> {
  const queue = await withDeadAndActive();
  await queue.enqueue([
    { payload: { shop: 7 }, id: 'p0' },
    { payload: { shop: 8 }, id: 'p1', in: '1h' },
    { payload: { shop: 7 }, id: 'p2', in: '2h' },
  ]);
  return queue;
}

async function withDeadAndActive(): Promise<Queue> {
  const queue = freshQueue();
  await queue.enqueue({ payload: 'dead', id: 'd' });
  await queue.nack((await queue.drain()).jobs, { mode: 'dead', error: 'no such order' });
  await queue.enqueue({ payload: 'held', id: 'a' });
  await queue.drain();
  return queue;
}

/** A queue with the dead jobs d0, d1 …, which died in this order. */
export async function withDead(n: number): Promise<Queue> {
  const queue = freshQueue();
  await queue.enqueue(upTo(n).map((i) => ({ payload: { n: i }, id: `d${i}`, at: 1_000 + i, tries: 7 })));
  for (const _ of upTo(n)) {
    await queue.nack((await queue.drain({ limit: 1 })).jobs, { mode: 'dead', error: 'exit 65: no such order\nreally' });
  }
  for (const i of upTo(n)) await admin.zadd(key(queue.name, 'dead'), 10_000 + i, `d${i}`);
  return queue;
}
