import { describe, expect, it } from 'vitest';
import { Connection, type Job, Leases, Operator, poll, Queue, type TakenJobs } from '../../src/internal.js';
import { Store } from '../../src/store/store.js';
import { afterwards } from '../support/afterwards.js';
import { connection, freshQueue, redisUrl } from '../support/redis.js';
import { until } from '../support/until.js';

/** Grows a queue. */
async function grow({ name, redis }: Queue, count: number): Promise<void> {
  for await (const _ of new Operator(redis).partition(name, count));
}

/** A queue with partitions, as a process sees it that does not know of them yet. */
async function parted(count = 16): Promise<Queue> {
  const made = freshQueue();
  await grow(made, count);
  const redis = new Connection(redisUrl);
  afterwards(() => redis.close());
  return new Queue(redis, made.name);
}

/** Jobs due a millisecond after another, the first `ago` ms ago, with ids of all partitions. */
const spread = (n: number, ago: number) =>
  Array.from({ length: n }, (_, i) => ({ id: `job-${i}`, payload: i, at: Date.now() - ago + i }));

const payloadsOf = ({ jobs }: TakenJobs) => jobs.map(({ payload }) => JSON.parse(String(payload)) as number);

async function takeAll(loop: AsyncIterable<TakenJobs>): Promise<number[]> {
  const seen: number[] = [];
  for await (const taken of loop) seen.push(...payloadsOf(taken));
  return seen;
}

describe.concurrent('a drain of a queue with partitions', () => {
  it('takes all that is due, from the partition with the oldest job, and then ends', async () => {
    const queue = await parted();
    await queue.enqueue(spread(5_000, 60_000));
    await queue.enqueue({ payload: 'later', in: 60_000 });
    const seen = await takeAll(poll([new Queue(connection, queue.name)], { leaseMs: 0 }));
    expect([...seen].sort((a, b) => a - b)).toEqual(Array.from({ length: 5_000 }, (_, i) => i));
    // A call takes up to 100 jobs of a partition, which are next to as many of each other, while others are in flight.
    for (const [place, i] of seen.entries()) expect(Math.abs(place - i)).toBeLessThan(2 * 16 * 100);
    expect(await queue.counts()).toMatchObject({ pending: 1 });
  });

  it('takes the only due job although it is not in the partition that is asked first', async () => {
    const queue = await parted();
    const { map } = Store.of(connection, 'delayq', queue.name);
    await new Queue(connection, queue.name).enqueue({ id: map.newIdOf(5), payload: 1 });
    expect(await takeAll(poll([queue], { leaseMs: 0 }))).toEqual([1]);
  });

  it('takes the only due job although its partition was made after others were known', async () => {
    const queue = await parted(2);
    expect(await takeAll(poll([queue], { leaseMs: 0 }))).toEqual([]);
    await grow(new Queue(connection, queue.name), 4);
    const { map } = Store.of(connection, 'delayq', queue.name);
    await new Queue(connection, queue.name).enqueue([2, 3].map((i) => ({ id: map.newIdOf(i), payload: i })));
    expect((await queue.drain({ leaseMs: 0 })).jobs).toHaveLength(1);
    expect(queue.partitions).toHaveLength(4);
  });

  it('takes due jobs of partitions that it learns of while it asks the others', async () => {
    const queue = await parted(2);
    expect(await takeAll(poll([queue], { leaseMs: 0 }))).toEqual([]);
    await grow(new Queue(connection, queue.name), 4);
    const { map } = Store.of(connection, 'delayq', queue.name);
    await new Queue(connection, queue.name).enqueue({ id: map.newIdOf(3), payload: 3 });
    expect(await takeAll(poll([queue], { leaseMs: 0 }))).toEqual([3]);
  });

  it.each([[1], [7], [333]])('keeps the order within a partition, %d jobs a call', async (batch) => {
    const queue = await parted();
    await queue.enqueue(spread(400, 60_000));
    const ofPart = new Map<string, number[]>();
    for await (const { jobs } of poll([queue], { batch, leaseMs: 60_000, ahead: true }))
      for (const { receipt, payload } of jobs) {
        const part = receipt.split('.')[1] ?? '';
        ofPart.set(part, [...(ofPart.get(part) ?? []), Number(payload)]);
      }
    expect(ofPart.size).toBe(16);
    for (const seen of ofPart.values()) expect(seen).toEqual([...seen].sort((a, b) => a - b));
    expect([...ofPart.values()].flat()).toHaveLength(400);
  });

  it('takes no more than the limit, nor leaves any of it, also in several consumers', async () => {
    const queue = await parted();
    await queue.enqueue(spread(1_000, 60_000));
    const counts = await Promise.all(
      [33, 100, 201].map(async (limit) => {
        const seen = await takeAll(poll([queue], { limit, leaseMs: 60_000, ahead: true }));
        return seen.length;
      }),
    );
    expect(counts).toEqual([33, 100, 201]);
    expect(await queue.counts()).toMatchObject({ active: 334, pending: 666 });
  });
});

describe.concurrent('a drain that watches a queue with partitions', () => {
  it('goes on while it grows: each job comes once, and what was taken before is settled after', async () => {
    const producer = freshQueue();
    const redis = new Connection(redisUrl);
    afterwards(() => redis.close());
    const queue = new Queue(redis, producer.name);
    const leases = new Leases();
    const stop = new AbortController();
    const seen = new Set<string>();
    const kept: Job[] = [];
    const running = (async () => {
      for await (const { jobs } of poll([queue], { watch: true, signal: stop.signal, leases })) {
        for (const { id } of jobs) {
          expect(seen.has(id)).toBe(false);
          seen.add(id);
        }
        // Of some, the leases are held for longer.
        if (kept.length < 50) kept.push(...jobs);
        else expect(await leases.ack(jobs.map((job) => ({ job })))).toEqual(jobs.map(() => 'held'));
      }
    })();
    const enqueue = async (name: string) =>
      producer.enqueue(Array.from({ length: 200 }, (_, i) => ({ id: `${name}-${i}`, payload: i, in: 10 * i })));
    await enqueue('before');
    await until(() => kept.length > 0);
    // It ends when the jobs have been answered for that are taken.
    const growing = grow(producer, 16);
    await enqueue('meanwhile');
    await until(() => queue.partitions.length === 16 && kept.length >= 50);
    expect(await leases.ack(kept.map((job) => ({ job })))).toEqual(kept.map(() => 'held'));
    await growing;
    await Promise.all([grow(producer, 24), enqueue('again')]);
    await enqueue('after');
    await until(() => seen.size === 800);
    expect(queue.partitions).toHaveLength(24);
    stop.abort();
    await running;
    leases.close();
    expect(await producer.counts()).toMatchObject({ pending: 0, active: 0, dead: 0 });
  });
});
