import { describe, expect, it } from 'vitest';
import { Connection, Leases, poll, Queue, type TakenJobs, Worker } from '../../src/internal.js';
import { afterwards, during } from '../support/afterwards.js';
import { admin, freshQueue, key } from '../support/redis.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

/** A queue on a server of its own, which can be frozen. */
async function far() {
  const server = await during(Server.start());
  const redis = new Connection(server.url);
  afterwards(() => redis.close());
  afterwards(() => server.signal('SIGCONT'));
  const queue = new Queue(redis, 'far');
  await queue.counts();
  return { server, queue };
}

/** A job on that server and one on the shared server, each with the name of its queue as payload. The former is frozen. */
async function farAndNear() {
  const { server, queue } = await far();
  const near = freshQueue();
  for (const one of [queue, near]) await one.enqueue({ payload: one.name });
  server.signal('SIGSTOP');
  const leases = new Leases();
  afterwards(() => leases.close());
  return { server, queue, near, leases };
}

const payloadsOf = ({ jobs }: TakenJobs) => jobs.map(({ payload }) => JSON.parse(String(payload)) as unknown);

describe.concurrent('a queue whose server does not answer', () => {
  it('has one call in flight, whose jobs are taken when they come; then it has priority again', async () => {
    const { server, queue } = await far();
    const near = freshQueue();
    await queue.enqueue(['far 1', 'far 2', 'far 3'].map((payload) => ({ payload })));
    await near.enqueue(['near 1', 'near 2', 'near 3'].map((payload) => ({ payload })));
    server.signal('SIGSTOP');
    const leases = new Leases();
    const seen: unknown[] = [];
    for await (const taken of poll([queue, near], { batch: 1, watch: true, limit: 6, leases })) {
      seen.push(...payloadsOf(taken));
      if (seen.length === 2) {
        server.signal('SIGCONT');
        await until(async () => (await queue.counts()).stats.delivered === 1);
      }
    }
    expect(seen).toEqual(['near 1', 'near 2', 'far 1', 'far 2', 'far 3', 'near 3']);
    expect((await queue.counts()).stats.delivered).toBe(3);
    leases.close();
  });

  it('counts against the limit as long as it may bring jobs', async () => {
    const { server, queue } = await far();
    const near = freshQueue();
    for (const one of [queue, near]) await one.enqueue([{ payload: one.name }, { payload: one.name }]);
    server.signal('SIGSTOP');
    setTimeout(() => server.signal('SIGCONT'), 1_500);
    const seen: unknown[] = [];
    for await (const taken of poll([queue, near], { watch: true, limit: 2 })) seen.push(...payloadsOf(taken));
    expect(seen).toEqual(['far', 'far']);
    expect(await near.counts()).toMatchObject({ pending: 2 });
  });

  it('does not end a drain that does not watch before it has answered', async () => {
    const { server, queue, near } = await farAndNear();
    const seen: unknown[] = [];
    for await (const taken of poll([queue, near])) {
      seen.push(...payloadsOf(taken));
      server.signal('SIGCONT');
    }
    expect(seen).toEqual([near.name, 'far']);
  });

  it('that answers while the consumer is busy leaves its jobs to others, and comes again for them', async () => {
    const { server, queue, near, leases } = await farAndNear();
    const loop = poll([queue, near], { watch: true, leases });
    expect(payloadsOf((await loop.next()).value as TakenJobs)).toEqual([near.name]);
    server.signal('SIGCONT');
    await until(async () => (await queue.counts()).active === 1);
    await until(async () => (await queue.counts()).pending === 1);
    await until(() => leases.size === 1);
    expect(payloadsOf((await loop.next()).value as TakenJobs)).toEqual(['far']);
    expect(await queue.counts()).toMatchObject({ active: 1, meta: 0, stats: { delivered: 2 } });
    await loop.return(undefined);
  });

  it('leaves what it brings to the consumer once that has it', async () => {
    const { server, queue, near, leases } = await farAndNear();
    const other = new Queue(queue.redis, 'farther');
    server.signal('SIGCONT');
    await other.enqueue({ payload: other.name });
    server.signal('SIGSTOP');
    const loop = poll([queue, other, near], { watch: true, leases });
    expect(payloadsOf((await loop.next()).value as TakenJobs)).toEqual([near.name]);
    const next = loop.next();
    server.signal('SIGCONT');
    expect(payloadsOf((await next).value as TakenJobs)).toEqual(['far']);
    // The other job came no earlier, and nobody takes it: it is given back when its time is over.
    await until(async () => (await other.counts()).stats.delivered === 1);
    await until(async () => (await other.counts()).pending === 1);
    expect(await queue.counts()).toMatchObject({ active: 1, pending: 0 });
    await loop.return(undefined);
  });

  it('gives back what it brings after the consumer has gone', async () => {
    const { server, queue, near, leases } = await farAndNear();
    for await (const _ of poll([queue, near], { watch: true, leases })) break;
    server.signal('SIGCONT');
    await until(async () => (await queue.counts()).stats.delivered === 1);
    await until(async () => (await queue.counts()).pending === 1);
  });

  it('does not keep a worker from handling the jobs of others, and gives back what it brings after a stop', async () => {
    const { server, queue, near } = await farAndNear();
    const troubles: unknown[] = [];
    const worker = new Worker([queue, near], () => {}, { onTrouble: (error) => troubles.push(error) });
    const running = worker.run();
    await until(async () => (await near.counts()).stats.acked === 1);
    // The call has not even failed yet.
    expect(troubles).toEqual([]);
    worker.stop();
    server.signal('SIGCONT');
    expect(await running).toMatchObject({ acked: 1 });
    await until(async () => (await queue.counts()).pending === 1);
    expect(await queue.counts()).toMatchObject({ active: 0, meta: 0 });
  });
});

describe('a run whose time ends while Redis is in trouble', () => {
  it('throws what the trouble is', async () => {
    const server = await during(Server.start());
    const redis = new Connection(server.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, 'q');
    await queue.enqueue({ payload: 1 });
    await server.admin.call('CONFIG', 'SET', 'min-replicas-to-write', '1');
    const watching = async () => {
      for await (const _ of poll([queue], { watch: true, forMs: 300 }));
    };
    await expect(watching()).rejects.toMatchObject({ code: 'temporary', why: expect.stringMatching(/^NOREPLICAS/) });
    await server.admin.call('CONFIG', 'SET', 'min-replicas-to-write', '0');
    await watching();
  });

  it('handles what it has taken from other queues', async () => {
    const { server, queue } = await far();
    await server.end('SIGKILL');
    const near = freshQueue();
    await near.enqueue([1, 2].map((n) => ({ payload: n })));
    const done: unknown[] = [];
    const worker = new Worker(
      [queue, near],
      async (task) => {
        await new Promise((resolve) => setTimeout(resolve, 600));
        done.push(task.json());
      },
      { forMs: 500, onTrouble: () => {} },
    );
    await expect(worker.run()).rejects.toMatchObject({ code: 'unreachable' });
    expect(done).toHaveLength(2);
    expect(await admin.exists(key(near.name, 'payload'))).toBe(0);
  });
});
