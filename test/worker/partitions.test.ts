import { describe, expect, it } from 'vitest';
import { Connection, Operator, poll, Queue, type Taken } from '../../src/internal.js';
import { afterwards } from '../support/afterwards.js';
import { connection, freshQueue, listeners, redisUrl } from '../support/redis.js';
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

const payloadsOf = ({ jobs }: Taken) => jobs.map(({ payload }) => JSON.parse(String(payload)) as number);

async function takeAll(loop: AsyncIterable<Taken>): Promise<number[]> {
  const seen: number[] = [];
  for await (const taken of loop) seen.push(...payloadsOf(taken));
  return seen;
}

describe('a drain of a queue with partitions', () => {
  it('takes all that is due, from the partition with the oldest job, and then ends', async () => {
    const queue = await parted();
    await queue.enqueue(spread(2_000, 60_000));
    await queue.enqueue({ payload: 'later', in: 60_000 });
    const seen = await takeAll(poll([new Queue(connection, queue.name)], { leaseMs: 0 }));
    expect([...seen].sort((a, b) => a - b)).toEqual(Array.from({ length: 2_000 }, (_, i) => i));
    // 50 of each partition may be on their way.
    for (const [place, i] of seen.entries()) expect(Math.abs(place - i)).toBeLessThan(16 * 50);
    expect(await queue.counts()).toMatchObject({ pending: 1 });
  });

  it('takes the oldest jobs first although they are all in one partition', async () => {
    const queue = await parted();
    await queue.enqueue(spread(500, 60_000));
    const old = Array.from({ length: 300 }, (_, i) => ({ payload: -i - 1, at: Date.now() - 3_600_000 + i }));
    await queue.enqueue(old);
    const seen = await takeAll(poll([queue], { leaseMs: 0 }));
    expect(seen.slice(0, 300)).toEqual(old.map(({ payload }) => payload));
    expect(seen).toHaveLength(800);
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

  it('of one job at a time follows the order of the whole queue', async () => {
    const queue = await parted();
    await queue.enqueue(spread(100, 60_000));
    const seen = await takeAll(poll([queue], { batch: 1, leaseMs: 60_000 }));
    expect(seen).toEqual(Array.from({ length: 100 }, (_, i) => i));
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

  it('gives way to a queue before it', async () => {
    const [first, second] = [freshQueue(), await parted()];
    await second.enqueue(spread(400, 60_000));
    let taken = 0;
    for await (const { queue, jobs } of poll([first, second], { watch: true, leaseMs: 0 })) {
      taken += jobs.length;
      if (queue === first) break;
      await first.enqueue({ payload: 1 });
    }
    // One batch, and the job of the first queue.
    expect(taken).toBeLessThanOrEqual(51);
  });
});

describe('a drain that watches a queue with partitions', () => {
  it('delivers jobs of all partitions when they are due, and hears of those due soon', async () => {
    const queue = await parted();
    const late: number[] = [];
    const stop = new AbortController();
    const running = (async () => {
      for await (const { jobs } of poll([queue], { watch: true, signal: stop.signal, leaseMs: 0 }))
        for (const { due } of jobs) late.push(Date.now() - due);
    })();
    await until(() => queue.partitions.length === 16);
    await until(async () => {
      const heard = await Promise.all(queue.partitions.map(({ wakeChannel }) => listeners(wakeChannel)));
      return heard.every((n) => n > 0);
    });
    const producer = new Queue(connection, queue.name);
    await producer.enqueue(Array.from({ length: 64 }, (_, i) => ({ id: `soon-${i}`, payload: i, in: 500 + 10 * i })));
    await until(() => late.length === 64);
    // A partition is polled every 5 s.
    expect(Math.max(...late)).toBeLessThan(1_000);
    stop.abort();
    await running;
  });
});
