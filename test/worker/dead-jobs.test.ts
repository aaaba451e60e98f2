import { describe, expect, it } from 'vitest';
import {
  BatchWorker,
  Dead,
  type DeadJob,
  type DelayqError,
  Operator,
  RawPayload,
  Release,
  Retry,
  Worker,
  type WorkerOptions,
} from '../../src/index.js';
import { show, upTo } from '../support/handlers.js';
import { tagsOf } from '../support/partitions.js';
import { admin, connection, freshQueue, key, timePasses } from '../support/redis.js';
import { until } from '../support/until.js';

/** Options of a run that ends by itself, what `onDead` was given, and what trouble was told. */
function watched(more: WorkerOptions = {}) {
  const dead: DeadJob[] = [];
  const told: string[] = [];
  const onTrouble = (error?: DelayqError, where?: unknown) => {
    if (error && where === 'onDead') told.push(error.what);
  };
  const onDead = (job: DeadJob) => dead.push(job);
  const options = { watch: false, maxFailures: 1_000, onResult: () => {}, onDead, onTrouble, ...more };
  return { options, dead, told };
}

const fail = () => {
  throw new Error('no such order');
};

describe.concurrent('onDead of a worker', () => {
  it('is called once for a job that has failed for the last time, with all about it, and not for retries', async () => {
    const queue = freshQueue();
    const payload = Buffer.from([0, 255, 10, 13, 128]);
    await queue.enqueue({ id: 'a', payload: new RawPayload(payload), tries: 2, attributes: { tenant: 'x' } });
    const { options, dead } = watched({ backoff: '0s' });
    await new Worker(queue, fail, options).run();
    expect({ dead, state: (await show(queue, 'a'))?.state }).toEqual({ dead: [], state: 'pending' });
    await new Worker(queue, fail, options).run();
    const rest = { reason: 'failed', error: 'no such order', attempts: 2, attributes: { tenant: 'x' }, payload };
    expect(dead).toEqual([{ queue: queue.name, id: 'a', ...rest }]);
  });

  it('tells jobs that were refused and those that were released too often apart', async () => {
    const queue = freshQueue();
    await queue.enqueue(['dead', 'released', 'refused', 'retried', 'done'].map((id) => ({ id, payload: id })));
    const { options, dead } = watched({
      maxReleases: 1,
      refuse: ({ id }) => (id === 'refused' ? 'not for us' : undefined),
    });
    const handler = ({ id }: { id: string }) => {
      if (id === 'dead') throw new Dead('never');
      if (id === 'released') throw new Release(0);
      if (id === 'retried') throw new Retry('1h');
    };
    for (let i = 0; i < 2; i++) await new Worker(queue, handler, options).run();
    const told = dead.map(({ id, reason, error }) => ({ id, reason, error }));
    expect(told.sort((a, b) => a.id.localeCompare(b.id))).toEqual([
      { id: 'dead', reason: 'refused', error: 'never' },
      { id: 'refused', reason: 'refused', error: 'not for us' },
      { id: 'released', reason: 'released', error: undefined },
    ]);
  });

  it('is called for each job of a batch', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(5).map((n) => ({ id: `${n}`, payload: n, tries: 1 })));
    const { options, dead } = watched();
    await new BatchWorker(queue, fail, { ...options, batch: 5 }).run();
    expect(dead.map(({ id, payload }) => `${id} ${payload}`).sort()).toEqual(upTo(5).map((n) => `${n} ${n}`));
  });

  it('is called for jobs that a take finds dead: lost too often, without a payload, with an invalid id', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { id: 'lost', payload: { a: 1 }, maxLost: 1, attributes: { tenant: 'x' } },
      { id: 'orphan', payload: 2, in: '1m' },
    ]);
    await queue.drain();
    await admin.hdel(key(queue.name, 'payload'), 'orphan');
    await admin.zadd(key(queue.name, 'pending'), 1, Buffer.from([255]));
    await admin.hset(key(queue.name, 'payload'), Buffer.from([255]), 'other');
    await timePasses(queue.name, 60_001);
    const { options, dead } = watched();
    await new Worker(queue, fail, options).run();
    const of = { queue: queue.name, error: undefined, attempts: 0, attributes: {} };
    expect(dead.sort((a, b) => a.id.localeCompare(b.id))).toEqual([
      { ...of, id: 'base64:/w==', reason: 'bad id', payload: Buffer.from('other') },
      { ...of, id: 'lost', reason: 'lost', attempts: 1, attributes: { tenant: 'x' }, payload: Buffer.from('{"a":1}') },
      { ...of, id: 'orphan', reason: 'orphaned', payload: undefined },
    ]);
  });

  it('is called for jobs that died in a partition', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(20).map((n) => ({ id: `${n}`, payload: n, maxLost: 1 })));
    for await (const _ of new Operator(connection).partition(queue.name, 4));
    for (let taken = 0; taken < 20; ) taken += (await queue.drain()).jobs.length;
    for (const tag of await tagsOf(admin, queue.name)) await timePasses(tag, 60_001);
    const { options, dead } = watched();
    await new Worker(queue, fail, options).run();
    expect(dead.map(({ payload }) => Number(payload)).sort((a, b) => a - b)).toEqual(upTo(20));
    expect(new Set(dead.map((job) => `${job.queue} ${job.reason}`))).toEqual(new Set([`${queue.name} lost`]));
  });

  it('is told of what it throws and rejects with, the first ones of a minute, and the run goes on', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(10).map((n) => ({ id: `${n}`, payload: n, tries: 1, at: 1_000 + n })));
    let calls = 0;
    const onDead = () => {
      if (++calls === 1) throw new Error('down\nand more');
      return Promise.reject('away');
    };
    const { options, told } = watched({ onDead });
    expect(await new Worker(queue, fail, options).run()).toMatchObject({ dead: 10 });
    expect(calls).toBe(10);
    expect(told).toEqual([
      `${queue.name} 0: onDead failed: down`,
      `${queue.name} 1: onDead failed: away`,
      `${queue.name} 2: onDead failed: away`,
      'onDead: 7 more failures in this minute',
    ]);
  });

  it('runs four at once, while handlers go on, and is waited for at the end', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(300).map((n) => ({ id: `${n}`, payload: n, tries: 1 })));
    const told: string[] = [];
    let [running, most, handled] = [0, 0, 0];
    const onDead = async ({ id }: DeadJob) => {
      most = Math.max(most, ++running);
      // None ends before all handlers have.
      await until(() => handled === 300);
      running -= 1;
      told.push(id);
    };
    const handler = () => {
      handled += 1;
      fail();
    };
    await new Worker(queue, handler, watched({ onDead }).options).run();
    expect({ most, told: new Set(told).size, calls: told.length }).toEqual({ most: 4, told: 300, calls: 300 });
  });

  it('leaves out jobs when 1,000 wait, and those that wait when grace is over, and tells how many', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(1_010).map((n) => ({ payload: n, tries: 1 })));
    let calls = 0;
    const onDead = () => {
      calls += 1;
      return new Promise(() => {});
    };
    const { options, told } = watched({ onDead, maxFailures: 2_000, graceMs: 10 });
    await new BatchWorker(queue, fail, options).run();
    expect(calls).toBe(4);
    expect(told).toEqual([
      'onDead had not ended for 4 dead jobs',
      'onDead was not called for 6 dead jobs: too many were waiting',
      'onDead was not called for 1,000 dead jobs: the run has ended',
    ]);
  });

  it('is waited for no longer than grace after a stop', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, tries: 1 });
    let isCalled = false;
    const onDead = () => {
      isCalled = true;
      return new Promise(() => {});
    };
    const { options, told } = watched({ onDead, watch: true, graceMs: 10 });
    const worker = new Worker(queue, fail, options);
    const run = worker.run();
    await until(() => isCalled);
    worker.stop();
    expect(await run).toMatchObject({ dead: 1 });
    expect(told).toEqual(['onDead had not ended for 1 dead job']);
  });
});
