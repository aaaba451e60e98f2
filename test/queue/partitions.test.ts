import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { DelayqError, isDelayqError, type NewJob, Operator, Queue } from '../../src/internal.js';
import { inBatches } from '../../src/queue/batches.js';
import { Connection } from '../../src/redis/connection.js';
import { crc32 } from '../../src/store/crc32.js';
import { afterwards } from '../support/afterwards.js';
import { openGrowth, tagsOf } from '../support/partitions.js';
import { FaultyProxy } from '../support/proxy.js';
import { admin, freshName, key, onCluster, redisTargets, redisUrl } from '../support/redis.js';

function connected(url = redisUrl): Connection {
  const redis = new Connection(url);
  afterwards(() => redis.close());
  return redis;
}

async function grow(redis: Connection, queue: string, count: number): Promise<void> {
  for await (const _ of new Operator(redis).partition(queue, count));
}

/** The first `n` of some ids that belong to partition `i` of 2 or 4. */
function idsOf(i: number, of: 2 | 4, n: number): string[] {
  const all = Array.from({ length: 40 * n }, (_, k) => `o:${k}`);
  return all.filter((id) => crc32(id) % of === i).slice(0, n);
}

/** Makes a partition of a queue fail: one of its keys has the wrong type. */
async function broken(queue: string, i: number): Promise<void> {
  const tag = (await tagsOf(admin, queue))[i] as string;
  await admin.set(key(tag, 'pending'), 'no zset');
}

const jobsOf = (ids: readonly string[]): NewJob[] => ids.map((id) => ({ id, payload: id }));

/** A connection on which the first answers about leases of partition 1 are refused for now. */
class Busy extends Connection {
  #isFirst = true;

  override call(...args: Parameters<Connection['call']>) {
    if (!this.#isFirst || !args.some((arg) => /^\w{12}\.1$/.test(String(arg)))) return super.call(...args);
    this.#isFirst = false;
    return Promise.reject(new DelayqError('temporary', 'busy', { next: 'wait' }));
  }
}

describe('leases of several partitions', () => {
  const limits = { until: () => Number.POSITIVE_INFINITY };
  async function taken() {
    const [queue, redis] = [freshName(), connected()];
    await grow(redis, queue, 2);
    const all = new Queue(redis, queue);
    await all.enqueue(jobsOf([...idsOf(0, 2, 3), ...idsOf(1, 2, 3)]));
    const jobs = [...(await all.drain()).jobs, ...(await all.drain()).jobs];
    expect(jobs).toHaveLength(6);
    const busy = new Busy(redisUrl);
    afterwards(() => busy.close());
    return { jobs, again: new Queue(busy, queue) };
  }

  it('are held when they are acked again because one partition could not answer', async () => {
    const { jobs, again } = await taken();
    expect(new Set(await again.ackWithin(limits, jobs))).toEqual(new Set(['held']));
  });

  it('are held when they are given back again because one partition could not answer', async () => {
    const { jobs, again } = await taken();
    const nacked = await again.nackWithin(limits, jobs, { mode: 'release' });
    expect(new Set(nacked.map(({ answer }) => answer))).toEqual(new Set(['pending']));
  });

  it('are looked for once, whatever their receipts say', async () => {
    const { jobs, again } = await taken();
    const made = jobs.map(({ id }) => ({ id, receipt: 'x.9999' }));
    let looks = 0;
    const { redis } = again;
    const call = redis.call.bind(redis);
    redis.call = (...args) => {
      if (args[0] === 'HMGET') looks++;
      return call(...args);
    };
    expect(new Set(await again.ack(made))).toEqual(new Set(['lost']));
    expect(looks).toBe(1);
  });
});

describe('enqueue, if one of several partitions fails', () => {
  it('fails only for its jobs, if single jobs are enqueued together', async () => {
    const [queue, redis] = [freshName(), connected()];
    await grow(redis, queue, 2);
    await broken(queue, 1);
    const [good, bad] = [idsOf(0, 2, 3), idsOf(1, 2, 3)];
    const all = new Queue(redis, queue);
    const ended = await Promise.allSettled(jobsOf([...good, ...bad]).map((job) => all.enqueue(job)));
    const ofEach = ended.map((one) => (one.status === 'fulfilled' ? one.value.outcome : one.reason.code));
    expect(ofEach).toEqual(['created', 'created', 'created', 'config', 'config', 'config']);
  });

  it('goes on with another one for jobs without ids', async () => {
    const [queue, redis] = [freshName(), connected()];
    await grow(redis, queue, 2);
    await broken(queue, 1);
    const all = new Queue(redis, queue);
    const outcomes: string[] = [];
    for (let n = 0; n < 4; n++) {
      const one = all.enqueue({ payload: n });
      outcomes.push(
        await one.then(
          ({ outcome }) => outcome,
          () => 'failed',
        ),
      );
    }
    expect(outcomes.filter((outcome) => outcome === 'failed').length).toBeLessThanOrEqual(2);
    expect(outcomes).toContain('created');
  });

  it('stores a batch without ids whole or not at all, also if the call tells that there are partitions', async () => {
    const [queue, redis] = [freshName(), connected()];
    await grow(connected(), queue, 4);
    const made = await new Queue(redis, queue).enqueue(Array.from({ length: 20 }, (_, n) => ({ payload: n })));
    expect(new Set(made.map(({ id }) => crc32(id) % 4)).size).toBe(1);
    expect(made.map(({ id }) => id)).toEqual(made.map(({ id }) => id).sort());
  });

  it('names all jobs that may not be enqueued, if several replies are lost', async () => {
    const proxy = await FaultyProxy.start(...redisTargets);
    afterwards(() => proxy.stop());
    const [queue, redis] = [freshName(), connected(proxy.url)];
    await grow(redis, queue, 4);
    const ids = [0, 1, 2, 3].flatMap((i) => idsOf(i, 4, 5));
    // Not the first call: it opens the connections to the nodes of a cluster.
    await new Queue(redis, queue).enqueue({ payload: 0 });
    proxy.fault = { word: ids[0] as string, kind: 'cut', times: 100 };
    const failure = await new Queue(redis, queue).enqueue(jobsOf(ids)).catch((error: unknown) => error);
    proxy.fault = undefined;
    if (!isDelayqError(failure, 'unknown')) throw failure;
    const stored = new Set((await new Queue(connected(), queue).drain({ limit: 250 })).jobs.map(({ id }) => id));
    const missing = ids.filter((id) => !stored.has(id));
    expect(failure.ids).toEqual(expect.arrayContaining([ids[0], ...(onCluster ? [] : missing)]));
    expect(failure.ids).toEqual(ids.filter((id) => failure.ids.includes(id)));
  });

  it('names all of its jobs if one fails and the reply of another is lost', async () => {
    const proxy = await FaultyProxy.start(...redisTargets);
    afterwards(() => proxy.stop());
    const [queue, redis] = [freshName(), connected(proxy.url)];
    await grow(redis, queue, 2);
    await broken(queue, 1);
    const [lost, bad] = [idsOf(0, 2, 3), idsOf(1, 2, 3)];
    proxy.fault = { word: lost[0] as string, kind: 'cut', times: 100 };
    const failure = await new Queue(redis, queue).enqueue(jobsOf([...lost, ...bad])).catch((error: unknown) => error);
    proxy.fault = undefined;
    expect(failure).toMatchObject({ code: 'unknown', ids: [...lost, ...bad] });
  });
});

describe('while a growth is open, enqueue of a job that is active where it belonged', () => {
  for (const ifExists of ['keep', 'replace'] as const) {
    it(`requires replicas before it does anything: ${ifExists}`, async () => {
      const [queue, redis] = [freshName(), connected()];
      const [id] = idsOf(1, 2, 1) as [string];
      await new Queue(connected(), queue).enqueue({ id, payload: 1 });
      const { jobs } = await new Queue(connected(), queue).drain();
      await openGrowth(admin, queue, 2);
      await new Queue(redis, queue).counts();
      const again = new Queue(redis, queue).enqueue({ id, payload: 2 }, { ifExists, replicas: 9 });
      await expect(again).rejects.toMatchObject({ code: 'temporary' });
      expect(await new Queue(connected(), queue).renew(jobs)).toEqual(['held']);
    });

    it(`is counted: ${ifExists}`, async () => {
      const [queue, redis] = [freshName(), connected()];
      const [id] = idsOf(1, 2, 1) as [string];
      await new Queue(connected(), queue).enqueue({ id, payload: 1 });
      await new Queue(connected(), queue).drain();
      await openGrowth(admin, queue, 2);
      await new Queue(redis, queue).enqueue({ id, payload: 2 }, { ifExists });
      const counter = ifExists === 'keep' ? 'kept' : 'replaced';
      expect((await new Queue(redis, queue).counts()).stats).toMatchObject({ [counter]: 1 });
    });
  }

  it('names the job if the reply is lost', async () => {
    const proxy = await FaultyProxy.start(...redisTargets);
    afterwards(() => proxy.stop());
    const [queue, redis] = [freshName(), connected(proxy.url)];
    const [id] = idsOf(1, 2, 1) as [string];
    await new Queue(connected(), queue).enqueue({ id, payload: 1 });
    await new Queue(connected(), queue).drain();
    await openGrowth(admin, queue, 2);
    await new Queue(redis, queue).counts();
    proxy.fault = { word: 'active 1 1 0', kind: 'cut', times: 100 };
    const failure = await new Queue(redis, queue)
      .enqueue({ id, payload: 2 }, { ifExists: 'replace' })
      .catch((error: unknown) => error);
    expect(proxy.struck).toBeGreaterThan(0);
    expect(failure).toMatchObject({ code: 'unknown', ids: [id] });
  });
});

it('has a bounded number of jobs with own ids in flight, however many partitions there are', async () => {
  let pulled = 0;
  async function* source() {
    for (; pulled < 400_000; pulled += 1_000) yield jobsOf(Array.from({ length: 1_000 }, (_, k) => `${pulled + k}`));
  }
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const send = () => released.then(() => []);
  const sent = inBatches(source(), send, { partitions: () => 1_024 });
  const first = sent.next();
  // It goes on in turns of the event loop, without a timer: until it waits for the first answer.
  for (let before = -1, quiet = 0; quiet < 1_000; quiet = pulled > before ? 0 : quiet + 1) {
    before = pulled;
    await setImmediate();
  }
  expect(pulled).toBeLessThan(150_000);
  release();
  await first;
  await sent.return(undefined);
});
