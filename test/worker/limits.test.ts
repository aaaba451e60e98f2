import { describe, expect, it } from 'vitest';
import {
  BatchWorker,
  Connection,
  Operator,
  poll,
  Queue,
  type SettingsChange,
  type TakenJobs,
  Worker,
} from '../../src/internal.js';
import { afterwards, during } from '../support/afterwards.js';
import { upTo } from '../support/jobs.js';
import { admin, connection, freshQueue, hearing, key } from '../support/redis.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

const operator = new Operator(connection);

/** A queue with limits and `n` due jobs. */
async function limited(change: SettingsChange, n: number): Promise<Queue> {
  const queue = freshQueue();
  await operator.configure(queue.name, change);
  await queue.enqueue(upTo(n).map((i) => ({ payload: i, at: 1_000 + i })));
  return queue;
}

/** The time of Redis's clock, ms. */
async function redisTime(): Promise<number> {
  const [seconds, micros] = await admin.time();
  return Number(seconds) * 1_000 + Number(micros) / 1_000;
}

const count = (all: readonly TakenJobs[]) => all.reduce((sum, { jobs }) => sum + jobs.length, 0);

async function takeAll(loop: AsyncIterable<TakenJobs>): Promise<TakenJobs[]> {
  const all: TakenJobs[] = [];
  for await (const taken of loop) all.push(taken);
  return all;
}

const perMs = (jobs: number): SettingsChange['rate'] => ({ jobs, perMs: 1_000 });

describe.concurrent('the rate of a queue', () => {
  it.each([1, 8])('is kept and all that was due is taken, by %i drains that do not watch', async (drains) => {
    const queue = await limited({ rate: perMs(100), burst: 5 }, 40);
    const from = await redisTime();
    const taken = await Promise.all(upTo(drains).map(() => takeAll(poll([queue], { leaseMs: 0 }))));
    const took = (await redisTime()) - from;
    expect(count(taken.flat())).toBe(40);
    // The burst at once, then no more than the rate.
    expect(took).toBeGreaterThanOrEqual((40 - 5) * 10 - 2);
  });

  it('makes each of 50 watchers ask once for each token at most', async () => {
    const server = await during(Server.start());
    const redis = new Connection(server.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, 'limited');
    await new Operator(redis).configure('limited', { rate: perMs(20), burst: 2 });
    await queue.enqueue(upTo(200).map((i) => ({ payload: i })));
    await server.admin.config('RESETSTAT');
    const from = await redis.now();
    const stop = new AbortController();
    let taken = 0;
    const loops = upTo(50).map(async () => {
      for await (const { jobs } of poll([queue], { watch: true, leaseMs: 0, batch: 1, signal: stop.signal }))
        taken += jobs.length;
    });
    await until(() => taken >= 25);
    stop.abort();
    await Promise.all(loops);
    const seconds = ((await redis.now()) - from) / 1_000;
    const calls = Number(/cmdstat_evalsha:calls=(\d+)/.exec(await server.admin.info('commandstats'))?.[1]);
    // Each asks first, and then once for each job; and once in each poll interval.
    expect(taken).toBeLessThanOrEqual(2 + 20 * seconds + 1);
    expect(calls).toBeLessThanOrEqual(50 + 2 * taken + 50 * (seconds + 1));
  });

  it('holds for jobs with handlers', async () => {
    const queue = await limited({ rate: perMs(50), burst: 1 }, 20);
    const from = await redisTime();
    const worker = new Worker(queue, () => {}, { watch: false, concurrency: 8 });
    expect(await worker.run()).toMatchObject({ acked: 20 });
    expect((await redisTime()) - from).toBeGreaterThanOrEqual(19 * 20 - 2);
  });

  it('does not hold up queues with less priority', async () => {
    const high = await limited({ rate: { jobs: 1, perMs: 3_600_000 } }, 3);
    const low = freshQueue();
    await low.enqueue(upTo(1_000).map((i) => ({ payload: i })));
    const stop = new AbortController();
    const seen: string[] = [];
    for await (const { queue, jobs } of poll([high, low], { leaseMs: 0, batch: 10, signal: stop.signal })) {
      seen.push(...jobs.map(() => queue.name));
      if (seen.length === 1_001) stop.abort();
    }
    expect(seen[0]).toBe(high.name);
    expect(seen.filter((name) => name === low.name)).toHaveLength(1_000);
  });

  it('can be raised while a drain waits for it', async () => {
    const queue = await limited({ rate: { jobs: 1, perMs: 3_600_000 } }, 100);
    const running = takeAll(poll([queue], { leaseMs: 0 }));
    await until(async () => (await queue.counts()).due === 99);
    await operator.configure(queue.name, { rate: null });
    expect(count(await running)).toBe(100);
  });

  it('can be set and lowered while drains run', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(50).map((i) => ({ payload: i })));
    const stop = new AbortController();
    let taken = 0;
    const running = (async () => {
      for await (const { jobs } of poll([queue], { leaseMs: 0, batch: 1, watch: true, signal: stop.signal })) {
        taken += jobs.length;
        if (taken === 10) await operator.configure(queue.name, { rate: { jobs: 1, perMs: 3_600_000 }, burst: 3 });
      }
    })();
    await until(() => taken === 10 + 3);
    expect(await queue.drain({ leaseMs: 0 })).toMatchObject({ state: 'limited', jobs: [] });
    stop.abort();
    await running;
    expect(await queue.counts()).toMatchObject({ pending: 50 - 10 - 3 });
  });

  it('does not keep a stop waiting', async () => {
    const queue = await limited({ rate: { jobs: 1, perMs: 3_600_000 } }, 3);
    const stop = new AbortController();
    const running = takeAll(poll([queue], { leaseMs: 0, signal: stop.signal }));
    await until(async () => (await queue.counts()).due === 2);
    stop.abort();
    expect(count(await running)).toBe(1);
  });
});

describe.concurrent('max-active', () => {
  it('is kept by several workers, and all jobs are handled', async () => {
    const queue = await limited({ maxActive: 3 }, 60);
    let running = 0;
    let most = 0;
    const handle = async () => {
      running += 1;
      most = Math.max(most, running, Number(await admin.zcard(key(queue.name, 'active'))));
      running -= 1;
    };
    const workers = upTo(4).map(() => new Worker(queue, handle, { watch: false, concurrency: 4 }));
    const done = await Promise.all(workers.map((worker) => worker.run()));
    expect(done.reduce((sum, { acked }) => sum + acked, 0)).toBe(60);
    expect(most).toBeLessThanOrEqual(3);
  });

  it('is reached', async () => {
    const queue = await limited({ maxActive: 3 }, 6);
    let running = 0;
    let free = () => {};
    const open = new Promise<void>((resolve) => {
      free = resolve;
    });
    const handle = async () => {
      running += 1;
      await open;
    };
    const workers = upTo(2).map(() => new Worker(queue, handle, { watch: false, concurrency: 2 }).run());
    await until(() => running === 3);
    expect(await queue.counts()).toMatchObject({ active: 3, due: 3 });
    free();
    await Promise.all(workers);
    expect(running).toBe(6);
  });

  it('leaves no job in the buffer of a worker: each that is active has begun', async () => {
    const queue = await limited({ maxActive: 100 }, 300);
    let begun = 0;
    let most = 0;
    const handle = async () => {
      begun += 1;
      most = Math.max(most, Number(await admin.zcard(key(queue.name, 'active'))) - begun);
      begun -= 1;
    };
    await new Worker(queue, handle, { watch: false, concurrency: 5 }).run();
    // Those that have just been taken, or are being settled.
    expect(most).toBeLessThanOrEqual(5);
  });

  it('limits the batches of a handler', async () => {
    const queue = await limited({ maxActive: 4 }, 10);
    const sizes: number[] = [];
    const worker = new BatchWorker(queue, (tasks) => void sizes.push(tasks.length), { watch: false, batch: 100 });
    await worker.run();
    expect(sizes.reduce((sum, n) => sum + n, 0)).toBe(10);
    expect(Math.max(...sizes)).toBe(4);
  });

  it('frees its places when leases end without an answer', async () => {
    const queue = await limited({ maxActive: 2 }, 3);
    await queue.drain({ leaseMs: 300 });
    expect(await queue.drain()).toMatchObject({ state: 'full', jobs: [] });
    const worker = new Worker(queue, () => {}, { watch: false });
    expect(await worker.run()).toMatchObject({ acked: 3 });
  });

  it.each(['ack', 'nack', 'cancel', 'purge', 'replace'] as const)('wakes a drain that waits, after %s', async (how) => {
    const queue = await limited({ maxActive: 1 }, 2);
    const [job] = (await queue.drain()).jobs;
    if (!job) throw new Error('nothing was taken');
    const running = takeAll(poll([queue], { leaseMs: 60_000, limit: 1 }));
    const { messages } = await hearing(queue.wakeChannel);
    if (how === 'ack') await queue.ack([job]);
    if (how === 'nack') await queue.nack([{ ...job, delayMs: 60_000 }]);
    if (how === 'cancel') await operator.cancel(queue.name, [job.id], ['active']);
    if (how === 'purge') for await (const _ of operator.purge(queue.name, ['active'])) break;
    if (how === 'replace') await queue.enqueue({ id: job.id, payload: 0, in: '1h' }, { ifExists: 'replace' });
    expect(count(await running)).toBe(1);
    await until(() => messages.length > 0);
  });

  it('refuses at most once, and drains that hold jobs they have not begun', async () => {
    const queue = await limited({ maxActive: 1 }, 2);
    const refused = { code: 'config', why: expect.stringContaining('max-active') };
    await expect(queue.drain({ leaseMs: 0 })).rejects.toMatchObject(refused);
    await expect(takeAll(poll([queue], { start: '-' }))).rejects.toMatchObject(refused);
    expect(await queue.counts()).toMatchObject({ pending: 2, active: 0 });
  });

  it('ignores moves', async () => {
    const queue = await limited({ maxActive: 1 }, 2);
    await admin.zadd(key(queue.name, 'active'), 'inf', 'moving');
    expect((await queue.drain()).jobs).toHaveLength(1);
  });
});
