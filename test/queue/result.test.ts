import { describe, expect, it } from 'vitest';
import { connect, Inspector, Operator, Queue, type Task, Worker } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { admin, connection, freshQueue, key, timePasses } from '../support/redis.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

const operator = new Operator(connection);
const inspector = new Inspector(connection);

/** A queue that keeps jobs that are done. */
async function keeping(more = {}): Promise<Queue> {
  const queue = freshQueue();
  await operator.configure(queue.name, { keepDone: 60_000, ...more });
  return queue;
}

const doneOf = async (queue: Queue, range = {}) => {
  const all: string[] = [];
  for await (const { id } of inspector.done(queue.name, range)) all.push(id);
  return all;
};

/** Has a worker do what is due. */
const work = (queue: Queue, handler: (task: Task) => unknown) =>
  new Worker(queue, handler, { watch: false, onResult: () => {} }).run();

describe('the result of a job', () => {
  it.each([
    ['a text', 'https://…/1.png', 'https://…/1.png'],
    ['an object', { a: [1, 'ü'] }, '{"a":[1,"ü"]}'],
    ['a number', 42, '42'],
    ['true', true, 'true'],
    ['bytes', Buffer.from('bytes'), 'bytes'],
    ['other bytes', new Uint8Array([65, 66]), 'AB'],
    ['nothing', undefined, undefined],
    ['null', null, undefined],
    ['what JSON cannot represent', 1n, undefined],
  ])('is what its handler returned: %s', async (_, returned, result) => {
    const queue = await keeping();
    await queue.enqueue({ id: 'a', payload: 1 });
    await work(queue, () => returned);
    const now = await connection.now();
    const found = await queue.result('a');
    expect(found).toMatchObject({ state: 'done', id: 'a', attempts: 1, result, by: expect.stringMatching(/:\d+$/) });
    if (found.state !== 'done') return;
    expect(found.done).toBeGreaterThan(now - 60_000);
    expect(found.done).toBeLessThanOrEqual(now);
    expect(found.tookMs).toBeGreaterThanOrEqual(0);
    expect(found.due).toBeLessThanOrEqual(found.done);
  });

  it('is cut at 4 KiB, between two characters', async () => {
    const queue = await keeping();
    await queue.enqueue({ id: 'a', payload: 1 });
    await work(queue, () => `x${'ü'.repeat(5_000)}`);
    expect(await queue.result('a')).toMatchObject({ result: `x${'ü'.repeat(2_047)}` });
  });

  it('may be given with an ack, each of many its own', async () => {
    const queue = await keeping();
    await queue.enqueue(['a', 'b', 'c'].map((id) => ({ id, payload: 1 })));
    const { jobs } = await queue.drain({ by: 'me' });
    const done = jobs.map((job, i) => ({ ...job, result: i === 2 ? undefined : `result of ${job.id}`, tookMs: i }));
    expect(await queue.ack(done)).toEqual(['held', 'held', 'held']);
    expect(await Promise.all(['a', 'b', 'c'].map((id) => queue.result(id)))).toMatchObject([
      { result: 'result of a', tookMs: 0, by: 'me' },
      { result: 'result of b', tookMs: 1 },
      { result: undefined, tookMs: 2 },
    ]);
    await queue.enqueue({ id: 'd', payload: 1 });
    const [job] = (await queue.drain()).jobs as [(typeof jobs)[0]];
    await expect(queue.ack([{ ...job, result: 4 as unknown as string }])).rejects.toMatchObject({ code: 'usage' });
    expect(await queue.ack([job])).toEqual(['held']);
  });

  it('is not kept of a job that others have taken over', async () => {
    const queue = await keeping();
    await queue.enqueue({ id: 'a', payload: 1 });
    const [job] = (await queue.drain({ leaseMs: 1_000 })).jobs as [never];
    await timePasses(queue.name, 2_000);
    await queue.drain();
    expect(await queue.ack([{ ...(job as object), result: 'late' } as never])).toEqual(['lost']);
    expect(await queue.result('a')).toEqual({ state: 'active', id: 'a' });
  });

  it('is waited for, and comes when the job ends', async () => {
    const queue = await keeping();
    await queue.enqueue({ id: 'a', payload: 1, in: 200 });
    const waiting = queue.result('a', { timeout: '30s' });
    await until(async () => (await queue.counts()).due === 1);
    await work(queue, () => 'x');
    expect(await waiting).toMatchObject({ state: 'done', result: 'x' });
  });

  it('that does not come in time: the job is as it is', async () => {
    const queue = await keeping();
    await queue.enqueue([
      { id: 'a', payload: 1, in: '1h' },
      { id: 'b', payload: 1 },
    ]);
    await queue.drain();
    expect(await queue.result('a', { timeout: 20 })).toEqual({ state: 'pending', id: 'a' });
    expect(await queue.result('b')).toEqual({ state: 'active', id: 'b' });
    const stop = new AbortController();
    const waiting = queue.result('b', { timeout: '1h', signal: stop.signal });
    stop.abort();
    expect(await waiting).toEqual({ state: 'active', id: 'b' });
  });

  it('of a job that dies is why', async () => {
    const queue = await keeping({ tries: 1 });
    await queue.enqueue({ id: 'a', payload: 1 });
    const waiting = queue.result('a', { timeout: '30s' });
    await work(queue, () => {
      throw new Error('no such order');
    });
    const dead = { state: 'dead', id: 'a', reason: 'failed', error: 'no such order', attempts: 1 };
    expect(await waiting).toEqual(dead);
    expect(await queue.result('a')).toEqual(dead);
  });

  it('of a job that is not there is that it is missing, also if it goes while it is waited for', async () => {
    const queue = await keeping();
    expect(await queue.result('a', { timeout: '30s' })).toEqual({ state: 'missing', id: 'a' });
    await queue.enqueue({ id: 'b', payload: 1, in: '1h' });
    const waiting = queue.result('b', { timeout: '30s' });
    await operator.cancel(queue.name, ['b']);
    expect(await waiting).toEqual({ state: 'missing', id: 'b' });
  });

  it('of an id that is used again is that of the new job, once it is done', async () => {
    const queue = await keeping();
    for (const n of [1, 2]) {
      await queue.enqueue({ id: 'a', payload: n });
      if (n === 2) expect(await queue.result('a')).toEqual({ state: 'pending', id: 'a' });
      await work(queue, () => `result ${n}`);
    }
    expect(await queue.result('a')).toMatchObject({ result: 'result 2' });
    expect(await doneOf(queue)).toEqual(['a']);
  });

  it('of an earlier job with this id is forgotten when there is a new one, also if that is not done', async () => {
    const queue = await keeping();
    for (const enqueue of [
      () => queue.enqueue({ id: 'a', payload: 2 }),
      () => queue.enqueue([{ id: 'a', payload: 2 }]),
    ]) {
      await queue.enqueue({ id: 'a', payload: 1 });
      await work(queue, () => 'old');
      expect(await queue.result('a')).toMatchObject({ result: 'old' });
      await enqueue();
      await operator.cancel(queue.name, ['a']);
      expect(await queue.result('a')).toEqual({ state: 'missing', id: 'a' });
    }
  });

  it('of an id that is no text is found by its bytes', async () => {
    const queue = await keeping();
    await admin.hset(key(queue.name, 'payload'), '\n', '1');
    await admin.zadd(key(queue.name, 'pending'), 1, '\n');
    await work(queue, () => 'x');
    expect(await queue.result('\n')).toMatchObject({ state: 'done', id: 'base64:Cg==', result: 'x' });
  });

  it('is waited for although Redis does not answer for a while', async () => {
    const server = await during(Server.start({ args: ['--appendonly', 'yes', '--appendfsync', 'always'] }));
    const own = await connect(server.url);
    afterwards(() => own.close());
    const queue = new Queue(own, 'q');
    await new Operator(own).configure('q', { keepDone: 60_000 });
    await queue.enqueue({ id: 'a', payload: 1 });
    const waiting = queue.result('a', { timeout: '60s' });
    await server.end('SIGKILL');
    await server.run();
    await until(() =>
      queue.drain().then(
        ({ jobs }) => queue.ack(jobs),
        () => false,
      ),
    );
    expect(await waiting).toMatchObject({ state: 'done', id: 'a' });
    await server.end('SIGKILL');
    await expect(queue.result('a')).rejects.toMatchObject({ code: 'unreachable' });
  });

  it('is refused by a queue that keeps nothing, with what to do', async () => {
    const queue = freshQueue();
    await queue.enqueue({ id: 'a', payload: 1 });
    await expect(queue.result('a')).rejects.toMatchObject({
      code: 'missing',
      next: expect.stringContaining(`delayq config ${queue.name} keep-done=24h`),
    });
    await expect(queue.result('a', { wait: 1 } as never)).rejects.toMatchObject({ code: 'usage' });
  });
});

describe('jobs that are done', () => {
  it('are listed in the order of their ends, and only as long as they are kept', async () => {
    const queue = await keeping();
    for (const id of ['c', 'a', 'b']) {
      await queue.enqueue({ id, payload: 1 });
      await queue.ack((await queue.drain()).jobs);
      await timePasses(queue.name, 10_000);
    }
    expect(await doneOf(queue)).toEqual(['c', 'a', 'b']);
    expect(await doneOf(queue, { limit: 2 })).toEqual(['c', 'a']);
    expect(await doneOf(queue, { from: (await connection.now()) - 15_000 })).toEqual(['b']);
    await timePasses(queue.name, 35_000);
    expect(await doneOf(queue)).toEqual(['a', 'b']);
    expect(await queue.result('c')).toEqual({ state: 'missing', id: 'c' });
    // The next one makes room.
    await queue.enqueue({ id: 'd', payload: 1 });
    await queue.ack((await queue.drain()).jobs);
    expect(await admin.zrange(key(queue.name, 'finished'), '0', '-1')).toEqual(['a', 'b', 'd']);
    expect((await admin.hkeys(key(queue.name, 'results'))).sort()).toEqual(['a', 'b', 'd']);
  });

  it('go by themselves where a drain waits', async () => {
    const queue = await keeping();
    await queue.enqueue([
      { id: 'a', payload: 1 },
      { id: 'later', payload: 1, in: '1h' },
    ]);
    await queue.ack((await queue.drain()).jobs);
    await timePasses(queue.name, 61_000);
    await queue.drain();
    expect(await admin.exists(key(queue.name, 'finished'), key(queue.name, 'results'))).toBe(0);
  });

  it('are kept at most as many as the setting says: the last ones', async () => {
    const queue = await keeping({ maxDone: 100 });
    await queue.enqueue(Array.from({ length: 350 }, (_, i) => ({ id: `j${i}`, payload: i })));
    while (true) {
      const { jobs } = await queue.drain({ limit: 40 });
      if (jobs.length === 0) break;
      await queue.ack(jobs);
    }
    expect(await admin.zcard(key(queue.name, 'finished'))).toBe(100);
    expect(await admin.hlen(key(queue.name, 'results'))).toBe(100);
    expect(await queue.result('j349')).toMatchObject({ state: 'done' });
  });

  it('are kept without a receipt, too, as over HTTP', async () => {
    const queue = await keeping();
    await queue.enqueue({ id: 'a', payload: 1 });
    await queue.drain({ by: 'http:me' });
    expect(await queue.finish(['a'], { by: 'http:' })).toEqual(['acked']);
    expect(await queue.result('a')).toMatchObject({ state: 'done', by: 'http:me', result: undefined });
  });

  it('of all partitions are found, also those that were done before a growth', async () => {
    const queue = await keeping();
    const ids = Array.from({ length: 20 }, (_, i) => `j${i}`);
    await queue.enqueue(ids.map((id) => ({ id, payload: 1 })));
    await work(queue, ({ id }) => `result of ${id}`);
    for await (const _ of operator.partition(queue.name, 4));
    await queue.enqueue(ids.map((id) => ({ id: `new-${id}`, payload: 1 })));
    await work(queue, ({ id }) => `result of ${id}`);
    for (const id of [...ids, ...ids.map((one) => `new-${one}`)])
      expect(await queue.result(id)).toMatchObject({ state: 'done', result: `result of ${id}` });
    expect((await doneOf(queue)).length).toBe(40);
  });

  it('go when they are turned off', async () => {
    const queue = await keeping();
    await queue.enqueue({ id: 'a', payload: 1 });
    await queue.ack((await queue.drain()).jobs);
    await operator.configure(queue.name, { keepDone: null });
    expect(await admin.exists(key(queue.name, 'finished'), key(queue.name, 'results'))).toBe(0);
    expect(await admin.hget(key(queue.name, 'config'), 'layout')).toBe(null);
  });

  it('that cannot be kept are done all the same: another type of key', async () => {
    const queue = await keeping();
    await admin.set(key(queue.name, 'finished'), 'x');
    await queue.enqueue({ id: 'a', payload: 1 });
    expect(await queue.ack((await queue.drain()).jobs)).toEqual(['held']);
    expect((await queue.counts()).active).toBe(0);
  });
});
