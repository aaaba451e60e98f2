import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import {
  BatchWorker,
  Connection,
  type Job,
  Leases,
  Operator,
  poll,
  Queue,
  type Taken,
  type Task,
  Worker,
} from '../../src/internal.js';
import { Partitions } from '../../src/partitions/partitions.js';
import { afterwards, during } from '../support/afterwards.js';
import { Cluster } from '../support/cluster.js';
import { connection, freshQueue, listeners, redisUrl } from '../support/redis.js';
import { Server } from '../support/server.js';
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
    await queue.enqueue(spread(5_000, 60_000));
    await queue.enqueue({ payload: 'later', in: 60_000 });
    const seen = await takeAll(poll([new Queue(connection, queue.name)], { leaseMs: 0 }));
    expect([...seen].sort((a, b) => a - b)).toEqual(Array.from({ length: 5_000 }, (_, i) => i));
    // A call takes up to 100 jobs of a partition, which are next to as many of each other.
    for (const [place, i] of seen.entries()) expect(Math.abs(place - i)).toBeLessThan(16 * 100);
    expect(await queue.counts()).toMatchObject({ pending: 1 });
  });

  it('takes the only due job although it is not in the partition that is asked first', async () => {
    const queue = await parted();
    const { map } = Partitions.of(connection, 'delayq', queue.name);
    await new Queue(connection, queue.name).enqueue({ id: map.newIdOf(5), payload: 1 });
    expect(await takeAll(poll([queue], { leaseMs: 0 }))).toEqual([1]);
  });

  it('hands out a batch that is not full once the job it waited for has gone from another partition', async () => {
    const queue = await parted(2);
    const producer = new Queue(connection, queue.name);
    await producer.counts();
    const { map } = Partitions.of(connection, 'delayq', queue.name);
    const handled: string[] = [];
    let answered = performance.now();
    const handle = (tasks: Task[]) => void handled.push(...tasks.map(({ id }) => id));
    const worker = new BatchWorker(queue, handle, { batch: 9, onDrained: () => (answered = performance.now()) });
    const running = worker.run();
    // It waits, and listens.
    await until(() => performance.now() - answered > 3_000);
    const at = Date.now() + 1_500;
    const [first, second] = [map.newIdOf(0), map.newIdOf(1)];
    await producer.enqueue([{ id: first, payload: 1, at }]);
    await producer.enqueue([{ id: second, payload: 2, at }]);
    // It has heard of both.
    await sleep(700);
    await new Operator(connection).cancel(queue.name, [second]);
    await until(() => handled.includes(first));
    worker.stop();
    await running;
  });

  it('takes the only due job although its partition was made after others were known', async () => {
    const queue = await parted(2);
    expect(await takeAll(poll([queue], { leaseMs: 0 }))).toEqual([]);
    await grow(new Queue(connection, queue.name), 4);
    const { map } = Partitions.of(connection, 'delayq', queue.name);
    await new Queue(connection, queue.name).enqueue([2, 3].map((i) => ({ id: map.newIdOf(i), payload: i })));
    expect((await queue.drain({ leaseMs: 0 })).jobs).toHaveLength(1);
    expect(queue.partitions).toHaveLength(4);
  });

  it('takes due jobs of partitions that it learns of while it asks the others', async () => {
    const queue = await parted(2);
    expect(await takeAll(poll([queue], { leaseMs: 0 }))).toEqual([]);
    await grow(new Queue(connection, queue.name), 4);
    const { map } = Partitions.of(connection, 'delayq', queue.name);
    await new Queue(connection, queue.name).enqueue({ id: map.newIdOf(3), payload: 3 });
    expect(await takeAll(poll([queue], { leaseMs: 0 }))).toEqual([3]);
  });

  it('takes the oldest jobs first although they are all in one partition', async () => {
    const queue = await parted();
    await queue.enqueue(spread(500, 60_000));
    const old = Array.from({ length: 250 }, (_, i) => ({ payload: -i - 1, at: Date.now() - 3_600_000 + i }));
    await queue.enqueue(old);
    const seen = await takeAll(poll([queue], { leaseMs: 0 }));
    expect(seen.slice(0, 250)).toEqual(old.map(({ payload }) => payload));
    expect(seen).toHaveLength(750);
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

  it('goes on while it grows: each job comes once and in time, and what was taken before is settled after', async () => {
    const producer = freshQueue();
    const redis = new Connection(redisUrl);
    afterwards(() => redis.close());
    const queue = new Queue(redis, producer.name);
    const leases = new Leases();
    const stop = new AbortController();
    const late = new Map<string, number>();
    const kept: Job[] = [];
    const running = (async () => {
      for await (const { jobs } of poll([queue], { watch: true, signal: stop.signal, leases })) {
        for (const { id, due } of jobs) {
          expect(late.has(id)).toBe(false);
          late.set(id, Date.now() - due);
        }
        // Of some, the leases are held for longer.
        if (kept.length < 50) kept.push(...jobs);
        else expect(await leases.ack(jobs)).toEqual(jobs.map(() => 'held'));
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
    expect(await leases.ack(kept)).toEqual(kept.map(() => 'held'));
    await growing;
    await Promise.all([grow(producer, 24), enqueue('again')]);
    await enqueue('after');
    await until(() => late.size === 800);
    expect(queue.partitions).toHaveLength(24);
    // A partition is polled every 5 s.
    expect(Math.max(...late.values())).toBeLessThan(8_000);
    stop.abort();
    await running;
    leases.close();
    expect(await producer.counts()).toMatchObject({ pending: 0, active: 0, dead: 0 });
  });

  it('is not held up by a frozen node, which has some of them, and takes their jobs when it is back', async () => {
    const cluster = await during(Cluster.start({ nodeTimeoutMs: 60_000 }));
    const redis = new Connection(cluster.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, 'parted');
    await grow(queue, 16);
    const owners = await Promise.all(queue.partitions.map(({ wakeChannel }) => cluster.ownerOf(wakeChannel)));
    const frozen = cluster.nodes.find((node) => node !== owners[0]) as Server;
    afterwards(() => frozen.signal('SIGCONT'));
    const handled: number[] = [];
    const worker = new Worker([queue], ({ payload }) => handled.push(Number(payload)), { concurrency: 10 });
    const running = worker.run();
    afterwards(() => worker.stop());
    await queue.enqueue(spread(160, 1_000));
    await until(() => handled.length === 160 && queue.partitions.every((part) => part !== queue));
    const mine = owners.flatMap((owner, i) => (owner === frozen ? [i] : []));
    expect(mine.length).toBeGreaterThan(3);
    const inPart = (i: number) => Partitions.of(redis, 'delayq', 'parted').map.newIdOf(i);
    const to = (parts: number[]) => parts.map((i) => ({ id: inPart(i), payload: i }));
    // Not yet due: it will be while the node is frozen.
    await queue.enqueue(to(mine).map((job) => ({ ...job, in: 1_000 })));
    frozen.signal('SIGSTOP');
    const awake = [...owners.keys()].filter((i) => !mine.includes(i));
    const times: number[] = [];
    for (let round = 1; round <= 8; round++) {
      const before = handled.length;
      const since = performance.now();
      await queue.enqueue(to(awake));
      await until(() => handled.length === before + awake.length);
      times.push(performance.now() - since);
    }
    // 250 ms for the first that does not answer, 25 ms for each other, and what the machine takes: less than a call may.
    expect(Math.min(...times)).toBeLessThan(1_500);
    expect(Math.max(...times)).toBeLessThan(4_900);
    frozen.signal('SIGCONT');
    await until(() => mine.every((i) => handled.slice(160).includes(i)));
    await until(async () => (await queue.counts()).active === 0);
    worker.stop();
    await running;
  });

  it('makes about as few calls while idle when there are a hundred of it', async () => {
    const server = await during(Server.start());
    const open = () => {
      const redis = new Connection(server.url);
      afterwards(() => redis.close());
      return redis;
    };
    await grow(new Queue(open(), 'parted'), 16);
    const connections = Array.from({ length: 10 }, open);
    const stop = new AbortController();
    const running = Array.from({ length: 100 }, async (_, i) => {
      const queue = new Queue(connections[i % 10] as Connection, 'parted');
      for await (const _ of poll([queue], { watch: true, signal: stop.signal })) throw new Error('there are no jobs');
    });
    const calls = async () =>
      Number(/cmdstat_evalsha:calls=(\d+)/.exec(await server.admin.info('commandstats'))?.[1] ?? 0);
    // Each has asked all partitions twice, for those jobs that were enqueued before its wake channels were heard.
    await until(async () => (await calls()) >= 100 * 2 * 16);
    await until(async () => Number(/pubsub_channels:(\d+)/.exec(await server.admin.info('stats'))?.[1]) === 16);
    // On a busy machine some have just begun.
    await until(async () => {
      const before = await calls();
      await sleep(1_000);
      return (await calls()) === before;
    });
    await server.admin.config('RESETSTAT');
    const since = performance.now();
    await until(async () => (await calls()) >= 100 * 2 * 16);
    // Every 5 s, all partitions.
    expect(performance.now() - since).toBeGreaterThan(4_500);
    stop.abort();
    await Promise.all(running);
  });
});
