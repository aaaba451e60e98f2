import { describe, expect, it } from 'vitest';
import { Inspector, Operator, type Queue, Transfer, Worker } from '../../src/index.js';
import { admin, connection, freshQueue, key, timePasses } from '../support/redis.js';

const TRACE = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
const attributes = { tenant: 'a "b" é/\\', traceparent: TRACE };
const operator = new Operator(connection);
const inspector = new Inspector(connection);

/** The attributes of the jobs that a drain takes now, by id. */
async function taken(queue: Queue, leaseMs?: number) {
  const { jobs } = await queue.drain({ leaseMs });
  return Object.fromEntries(jobs.map((job) => [job.id, job.attributes]));
}

describe('attributes of a job', () => {
  it('come with it, and a job without any has an empty frozen object', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, id: 'with', attributes },
      { payload: 1, id: 'plain', attributes: {} },
      { payload: 1, id: 'limited', tries: 3, attributes: { traceparent: undefined } },
    ]);
    const { jobs } = await queue.drain();
    expect(jobs.map((job) => [job.id, job.attributes, job.tries]).sort()).toEqual([
      ['limited', {}, 3],
      ['plain', {}, 5],
      ['with', attributes, 5],
    ]);
    for (const job of jobs) expect(Object.isFrozen(job.attributes)).toBe(job.id !== 'with');
    expect(await admin.hkeys(key(queue.name, 'meta'))).toEqual(expect.not.arrayContaining(['plain']));
  });

  it('of which one is invalid: nothing of the batch is enqueued', async () => {
    const queue = freshQueue();
    const bad = { payload: 2, attributes: { traceparent: 'x\ny' } };
    await expect(queue.enqueue([{ payload: 1 }, bad])).rejects.toMatchObject({ code: 'usage' });
    await expect(queue.enqueue(bad)).rejects.toMatchObject({ code: 'usage' });
    expect(await queue.counts()).toMatchObject({ pending: 0, payload: 0, meta: 0 });
  });

  it('stay through failures, a lost lease, a release, death and requeue', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a', attributes, ttl: '1d' });
    await queue.nack((await queue.drain()).jobs, { error: 'down', backoff: [0] });
    await queue.nack((await queue.drain()).jobs, { mode: 'release' });
    await queue.drain({ leaseMs: 1 });
    await timePasses(queue.name, 1_000);
    const { jobs } = await queue.drain();
    expect(jobs).toMatchObject([{ attempt: 3, attributes }]);
    await queue.nack(jobs, { mode: 'dead' });
    expect(await inspector.show(queue.name, ['a'])).toMatchObject([{ state: 'dead', attributes, error: undefined }]);
    expect(await operator.requeue(queue.name, ['a'])).toEqual(['requeued']);
    await operator.bury(queue.name, ['a'], { reason: 'wait' });
    await operator.requeue(queue.name, ['a']);
    expect(await taken(queue)).toEqual({ a: attributes });
  });

  it('stay when the job is moved, and when it is exported and restored', async () => {
    const [queue, other, third] = [freshQueue(), freshQueue(), freshQueue()];
    const transfer = new Transfer(connection);
    await queue.enqueue({ payload: 1, id: 'a', attributes });
    await transfer.move(queue.name, ['a'], { to: other.name });
    for await (const { jobs } of transfer.export(other.name)) await transfer.restore(third.name, jobs);
    expect(await taken(other)).toEqual({ a: attributes });
    expect(await taken(third)).toEqual({ a: attributes });
  });

  it('come at most once, too, and stay when such a job is put back', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a', attributes });
    const { jobs } = await queue.drain({ leaseMs: 0 });
    expect(jobs).toMatchObject([{ attributes }]);
    await queue.putBack(jobs);
    expect(await taken(queue)).toEqual({ a: attributes });
  });

  it('are replaced with the job', async () => {
    const queue = freshQueue();
    const replace = { ifExists: 'replace' } as const;
    await queue.enqueue({ payload: 1, id: 'a', attributes });
    await queue.enqueue({ payload: 1, id: 'a', attributes: { tenant: '7' } }, replace);
    expect(await inspector.show(queue.name, ['a'])).toMatchObject([{ attributes: { tenant: '7' } }]);
    await queue.enqueue({ payload: 1, id: 'a' }, replace);
    expect(await taken(queue)).toEqual({ a: {} });
  });

  it('are the same in one call for many jobs, and differ where they were given to differ', async () => {
    const queue = freshQueue();
    await queue.enqueue(['1', '2', '2'].map((tenant, i) => ({ payload: 1, id: `j${i}`, attributes: { tenant } })));
    expect(await taken(queue)).toEqual({ j0: { tenant: '1' }, j1: { tenant: '2' }, j2: { tenant: '2' } });
  });

  it('count against the size of a batch', async () => {
    const queue = freshQueue();
    const large = Object.fromEntries(Array.from({ length: 16 }, (_, i) => [`n${i}`, 'x'.repeat(128)]));
    async function* group(more: object) {
      yield Array.from({ length: 250 }, () => ({ payload: 'x'.repeat(3_000), ...more }));
    }
    const sizes = async (more: object) => {
      const found: number[] = [];
      for await (const { batch } of queue.enqueueBatches(group(more))) found.push(batch.length);
      return found;
    };
    expect(await sizes({})).toEqual([250]);
    expect((await sizes({ attributes: large })).length).toBe(2);
  });

  it('come to the handler of a worker', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, attributes });
    const seen: unknown[] = [];
    await new Worker(queue, (job) => seen.push(job.attributes), { watch: false }).run();
    expect(seen).toEqual([attributes]);
  });

  it('that other software wrote wrongly are ignored, and stop nothing', async () => {
    const { name } = freshQueue();
    const many = Object.fromEntries(Array.from({ length: 40 }, (_, i) => [`a:n${10 + i}`, 'x']));
    const records = {
      good: '{ "a:traceparent" : "00-\\u0034bf9" }',
      mixed: JSON.stringify({ tries: 9, 'a:PATH': '/', 'a:n': 5, 'a:o': {}, 'a:c': 'x\ny', 'a:long': 'x'.repeat(129) }),
      many: JSON.stringify(many),
      huge: JSON.stringify({ 'a:x': 'x'.repeat(2_000_000), 'a:y': 'z' }),
      list: '["a:x"]',
      broken: '{"a:x":"y"',
    };
    for (const [id, record] of Object.entries(records)) {
      await admin
        .multi()
        .hset(key(name, 'payload'), id, '1')
        .hset(key(name, 'meta'), id, record)
        .zadd(key(name, 'pending'), 1, id)
        .exec();
    }
    const queue = freshQueue();
    const transfer = new Transfer(connection);
    await transfer.move(name, Object.keys(records), { to: queue.name });
    const found: Record<string, object> = {};
    for (let jobs = await taken(queue); Object.keys(jobs).length > 0; jobs = await taken(queue))
      Object.assign(found, jobs);
    expect(found).toEqual({
      ...{ good: { traceparent: '00-4bf9' }, mixed: {}, huge: { y: 'z' }, list: {}, broken: {} },
      many: Object.fromEntries(Array.from({ length: 16 }, (_, i) => [`n${10 + i}`, 'x'])),
    });
  });

  it.each([60_000, 0])('count against the bytes of a reply (lease %i)', async (leaseMs) => {
    const queue = freshQueue();
    const { name } = queue;
    const record = JSON.stringify({ 'a:x': 'y', error: 'e'.repeat(300_000) });
    for (let i = 0; i < 8; i += 1) {
      await admin.hset(key(name, 'payload'), `j${i}`, '1');
      await admin.hset(key(name, 'meta'), `j${i}`, record);
      await admin.zadd(key(name, 'pending'), i, `j${i}`);
    }
    const sizes: number[] = [];
    const take = async () => (await queue.drain({ leaseMs })).jobs.length;
    for (let size = await take(); size > 0; size = await take()) sizes.push(size);
    expect(sizes).toEqual([3, 3, 2]);
  });
});
