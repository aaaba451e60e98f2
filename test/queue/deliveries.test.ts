import { describe, expect, it } from 'vitest';
import { Inspector, type Job, Operator, type Queue, Spread, timeOfId, Worker } from '../../src/index.js';
import { LONGEST_MS } from '../../src/internal.js';
import { admin, connection, freshQueue, key, timePasses } from '../support/redis.js';

const operator = new Operator(connection);
const inspector = new Inspector(connection);

async function fail(queue: Queue): Promise<Job> {
  const [job] = (await queue.drain()).jobs as [Job];
  await queue.nack([job], { backoff: [0] });
  return job;
}

/** Loses the lease of the one job of a queue. */
async function lose(queue: Queue): Promise<Job> {
  const [job] = (await queue.drain({ leaseMs: 1_000 })).jobs as [Job];
  await timePasses(queue.name, 1_500);
  return job;
}

/** The one job of a queue, after what has expired was taken back. */
async function shown(queue: Queue, id: string) {
  await queue.drain({ cutoff: 0 });
  return (await inspector.show(queue.name, [id]))[0];
}

describe('a job with deliveries', () => {
  it.each([
    ['failures', [fail, fail, fail], 'failed'],
    ['losses', [lose, lose, lose], 'lost'],
    ['both, the last a failure', [fail, lose, fail], 'failed'],
    ['both, the last a loss', [lose, fail, lose], 'lost'],
  ])('is dead after as many: %s', async (_, ends, reason) => {
    const queue = freshQueue();
    const { id } = await queue.enqueue({ payload: 1, deliveries: 3 });
    for (const [i, end] of ends.entries()) {
      expect(await shown(queue, id)).toMatchObject({ state: 'pending', deliveries: 3 });
      expect(await end(queue)).toMatchObject({ attempt: i + 1, tries: 3, deliveries: 3 });
    }
    expect(await shown(queue, id)).toMatchObject({ state: 'dead', reason, attempts: 3 });
  });

  it('and no more than one is dead at once, however that delivery ends', async () => {
    const [failing, losing] = [freshQueue(), freshQueue()];
    const job = { payload: 1, id: 'a', deliveries: 1 };
    await Promise.all([failing.enqueue(job), losing.enqueue(job)]);
    await fail(failing);
    await lose(losing);
    expect(await shown(failing, 'a')).toMatchObject({ state: 'dead', reason: 'failed', failures: 1, losses: 0 });
    expect(await shown(losing, 'a')).toMatchObject({ state: 'dead', reason: 'lost', failures: 0, losses: 1 });
  });

  it('does not die of the tries and losses that its queue allows, however small they are', async () => {
    const queue = freshQueue();
    await operator.configure(queue.name, { tries: 1, maxLost: 1 });
    const { id } = await queue.enqueue({ payload: 1, deliveries: 100 });
    for (const end of [fail, fail, lose, lose]) expect((await end(queue)).tries).toBe(100);
    expect(await shown(queue, id)).toMatchObject({ state: 'pending', failures: 2, losses: 2 });
  });

  it('still dies of its own tries or losses', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'failing', deliveries: 9, tries: 2 });
    expect((await fail(queue)).tries).toBe(2);
    await fail(queue);
    expect(await shown(queue, 'failing')).toMatchObject({ state: 'dead', reason: 'failed', attempts: 2 });
    await queue.enqueue({ payload: 1, id: 'losing', deliveries: 9, maxLost: 2 });
    await lose(queue);
    await lose(queue);
    expect(await shown(queue, 'losing')).toMatchObject({ state: 'dead', reason: 'lost', attempts: 2 });
  });

  it('does not count what was released', async () => {
    const queue = freshQueue();
    const { id } = await queue.enqueue({ payload: 1, deliveries: 1 });
    for (let i = 0; i < 3; i++) await queue.nack((await queue.drain()).jobs, { mode: 'release' });
    expect(await shown(queue, id)).toMatchObject({ state: 'pending', attempts: 0 });
  });

  it.each([[0], [1.5], ['3'], [Number.NaN], [-1]])(
    'is refused for a limit of %s, and nothing is stored',
    async (bad) => {
      const queue = freshQueue();
      const jobs = [{ payload: 1 }, { payload: 1, deliveries: bad as number }];
      await expect(queue.enqueue(jobs)).rejects.toMatchObject({ code: 'usage', what: /^deliveries cannot be/ });
      expect(await queue.counts()).toMatchObject({ pending: 0, meta: 0 });
    },
  );

  it('tells the handlers of a worker its deliveries, when it was made and until when it may come again', async () => {
    const queue = freshQueue();
    const [created, at] = [1_790_000_000_000, Date.now() - 1_000];
    await queue.enqueue({ payload: 1, deliveries: 2, ttl: '1h', at, created });
    const told: unknown[] = [];
    const worker = new Worker(queue, (task) => {
      told.push([task.deliveries, task.created, task.expires]);
      void worker.stop();
    });
    await worker.run();
    expect(told).toEqual([[2, created, at + 3_600_000]]);
  });
});

describe('what a drain and an inspector tell of a job', () => {
  it('the time when its producer made it, or as its id tells, is that of an inspector', async () => {
    const queue = freshQueue();
    const { id } = await queue.enqueue({ payload: 1 });
    await queue.enqueue([
      { payload: 1, id: 'own', created: new Date(1_700_000_000_123) },
      { payload: 1, id: 'unknown' },
    ]);
    const all = await inspector.show(queue.name, [id, 'own', 'unknown']);
    expect(all.map((job) => job?.created)).toEqual([timeOfId(id), 1_700_000_000_123, undefined]);
    const { jobs } = await queue.drain();
    expect(Object.fromEntries(jobs.map((job) => [job.id, job.created]))).toEqual({
      [id]: undefined,
      own: 1_700_000_000_123,
      unknown: undefined,
    });
  });

  it('refuses a time of making that is none, or was meant in seconds', async () => {
    const queue = freshQueue();
    for (const created of [Number.NaN, 1_790_000_000, '2026-11-21'])
      await expect(queue.enqueue({ payload: 1, created })).rejects.toMatchObject({ code: 'usage' });
    expect((await queue.counts()).pending).toBe(0);
  });

  it('until when it may be delivered: its ttl after its first due time, also after a failure and a release', async () => {
    const queue = freshQueue();
    const at = Date.now() - 1_000;
    await queue.enqueue({ payload: 1, id: 'a', at, ttl: '1h' });
    const expires = at + 3_600_000;
    expect((await fail(queue)).expires).toBe(expires);
    expect(await shown(queue, 'a')).toMatchObject({ state: 'pending', expires });
    const { jobs } = await queue.drain();
    expect(jobs).toMatchObject([{ expires, deliveries: undefined, tries: 5 }]);
    expect(await shown(queue, 'a')).toMatchObject({ state: 'active', expires });
    await queue.nack(jobs, { mode: 'dead' });
    expect(await shown(queue, 'a')).toMatchObject({ state: 'dead', expires: undefined });
  });

  it('tells as much of jobs that it removes, and puts their records back', async () => {
    const queue = freshQueue();
    const job = { payload: 1, id: 'a', deliveries: 2, ttl: '1h', created: 1_790_000_000_000 };
    const { due } = await queue.enqueue(job);
    const { jobs } = await queue.drain({ leaseMs: 0 });
    expect(jobs).toMatchObject([{ deliveries: 2, created: job.created, expires: due + 3_600_000 }]);
    await queue.putBack(jobs);
    expect(await shown(queue, 'a')).toMatchObject({ deliveries: 2, created: job.created, expires: due + 3_600_000 });
  });
});

describe('the consumer of a drain', () => {
  it('is named by the caller, or else host:pid', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1, id: 'a' }]);
    await queue.drain({ by: 'http:web-1:42' });
    await queue.enqueue([1, 2].map((payload) => ({ payload, id: `b${payload}`, tries: 2 })));
    await queue.drain({ by: '!'.repeat(128), limit: 1 });
    await queue.drain();
    const all = await inspector.show(queue.name, ['a', 'b1', 'b2']);
    expect(all.map((job) => job?.lease?.by)).toEqual([
      'http:web-1:42',
      '!'.repeat(128),
      expect.stringMatching(new RegExp(`:${process.pid}$`)),
    ]);
  });

  it.each([[''], ['two words'], ['é'], ['x'.repeat(129)], ['a\n'], [7]])('cannot be named %j', async (by) => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    await expect(queue.drain({ by: by as string })).rejects.toMatchObject({ code: 'usage', what: /a consumer$/ });
    expect(await queue.counts()).toMatchObject({ pending: 1, active: 0 });
  });
});

describe('a requeue', () => {
  const job = { payload: 1, id: 'a', deliveries: 1, ttl: '1h', tries: 4, created: 1_790_000_000_000 };

  async function withDead(): Promise<Queue> {
    const queue = freshQueue();
    await queue.enqueue(job);
    await fail(queue);
    return queue;
  }

  it.each([
    ['without limits keeps those that the job had', {}, { deliveries: 1, ttl: 3_600_000 }],
    ['with undefined limits, too', { ttl: undefined, deliveries: undefined }, { deliveries: 1, ttl: 3_600_000 }],
    ['gives the job a new ttl', { ttl: '2h' }, { deliveries: 1, ttl: 7_200_000 }],
    ['gives the job new deliveries', { deliveries: 3 }, { deliveries: 3, ttl: 3_600_000 }],
    ['with a ttl of 0 lets it live for ever', { ttl: 0 }, { deliveries: 1, ttl: LONGEST_MS, expires: undefined }],
  ])('%s', async (_, limits, expected) => {
    const queue = await withDead();
    expect(await operator.requeue(queue.name, ['a', 'b'], undefined, limits)).toEqual(['requeued', 'missing']);
    const found = await shown(queue, 'a');
    expect(found).toMatchObject({ state: 'pending', attempts: 0, tries: 4, created: job.created, ...expected });
    if (found?.expires !== undefined) expect(found.expires).toBe((found.due ?? 0) + (found.ttl ?? 0));
  });

  it('gives a limit to a job that had no record', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    await queue.nack((await queue.drain()).jobs, { mode: 'dead' });
    await operator.requeue(queue.name, ['a'], new Spread({ in: 0, stepMs: 0 }), { deliveries: 1 });
    expect(JSON.parse((await admin.hget(key(queue.name, 'meta'), 'a')) ?? '')).toEqual({ deliveries: 1 });
    await fail(queue);
    expect(await shown(queue, 'a')).toMatchObject({ state: 'dead', reason: 'failed' });
  });

  it('with a ttl of 0 lets it live longer than the ttl of the queue', async () => {
    const queue = await withDead();
    await operator.configure(queue.name, { ttl: 500 });
    await operator.requeue(queue.name, ['a'], undefined, { ttl: 0 });
    await timePasses(queue.name, 1_000);
    expect(await queue.drain()).toMatchObject({ jobs: [{ id: 'a' }], expired: 0 });
  });

  it.each([[{ ttl: -1 }], [{ ttl: 'soon' }], [{ deliveries: 0 }], [{ tries: 1 }]])('refuses %j', async (limits) => {
    const queue = await withDead();
    const requeued = operator.requeue(queue.name, ['a'], undefined, limits as object);
    await expect(requeued).rejects.toMatchObject({ code: 'usage' });
    expect((await shown(queue, 'a'))?.state).toBe('dead');
  });
});
