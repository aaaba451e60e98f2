import { describe, expect, it } from 'vitest';
import { Connection, Leases, poll, Queue, type Taken } from '../../src/internal.js';
import { afterwards, during } from '../support/afterwards.js';
import { admin, connection, freshQueue } from '../support/redis.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

const payloadsOf = ({ jobs }: Taken) => jobs.map(({ payload }) => JSON.parse(String(payload)) as unknown);

describe('a drain loop', () => {
  it('asks the first queue again before each batch', async () => {
    const [high, low] = [freshQueue(), freshQueue()];
    await high.enqueue({ payload: 'high 1' });
    await low.enqueue([{ payload: 'low 1' }, { payload: 'low 2' }]);
    const seen: unknown[] = [];
    for await (const batch of poll([high, low], { batch: 1, watch: true, forMs: 3_000 })) {
      seen.push(...payloadsOf(batch));
      if (seen.length === 2) await high.enqueue({ payload: 'high 2' });
      if (seen.length === 4) break;
    }
    expect(seen).toEqual(['high 1', 'low 1', 'high 2', 'low 2']);
  });

  it('with `ahead` takes no more than its limit, in order, and holds the leases from the start', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 10 }, (_, i) => ({ payload: i, at: 1_000 + i })));
    const leases = new Leases();
    const seen: unknown[] = [];
    let most = 0;
    for await (const taken of poll([queue], { batch: 2, limit: 7, ahead: true, leases })) {
      await until(() => leases.size > taken.jobs.length || seen.length > 3 || seen.length === 0);
      most = Math.max(most, leases.size);
      seen.push(...payloadsOf(taken));
      await leases.ack(taken.jobs);
    }
    expect({ seen, held: leases.size }).toEqual({ seen: [0, 1, 2, 3, 4, 5, 6], held: 0 });
    expect(most).toBeGreaterThan(2);
    expect(await queue.counts()).toMatchObject({ pending: 3, active: 0 });
    leases.close();
  });

  it('with `ahead` yields after a stop the jobs it had taken by then', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 10 }, (_, i) => ({ payload: i, at: 1_000 + i })));
    const stop = new AbortController();
    const seen: unknown[] = [];
    for await (const taken of poll([queue], { batch: 2, leaseMs: 0, ahead: true, signal: stop.signal })) {
      seen.push(...payloadsOf(taken));
      if (seen.length === 4) stop.abort();
    }
    const { pending } = await queue.counts();
    expect(seen).toEqual(Array.from({ length: 10 - pending }, (_, i) => i));
  });

  it('that watches notices a job that falls due before its next poll', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 'far', in: '1h' });
    const stop = new AbortController();
    let calls = 0;
    const loop = poll([queue], { watch: true, signal: stop.signal, onDrained: () => calls++ });
    const first = loop.next();
    await until(async () => Number(await admin.publish(queue.wakeChannel, 'no number')) > 0);
    await queue.enqueue({ payload: 'near', in: 300 });
    const { value } = await first;
    expect(payloadsOf(value as Taken)).toEqual(['near']);
    // By polling alone it would have looked once a second.
    expect(calls).toBeLessThan(8);
    const second = loop.next();
    stop.abort();
    expect(await second).toEqual({ done: true, value: undefined });
  });

  it('that watches an idle queue polls about once a second', async () => {
    const queue = freshQueue();
    let calls = 0;
    for await (const _ of poll([queue], { watch: true, forMs: 3_500, onDrained: () => calls++ }));
    expect(calls).toBeGreaterThan(1);
    expect(calls).toBeLessThan(7);
  });

  it('that is stopped while Redis is frozen ends without an answer, and gives back the jobs of a late one (failures 15)', async () => {
    const own = await during(Server.start());
    const redis = new Connection(own.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, 'q');
    await queue.enqueue([1, 2, 3].map((n) => ({ payload: n })));
    const stop = new AbortController();
    const leases = new Leases();
    const loop = poll([queue], { watch: true, signal: stop.signal, leases });
    own.signal('SIGSTOP');
    const taken = loop.next();
    stop.abort();
    leases.giveUpAfter(0);
    await expect(taken).rejects.toMatchObject({ code: 'unknown', next: expect.stringContaining('delivered again') });
    own.signal('SIGCONT');
    await until(async () => (await queue.counts()).stats.delivered === 3);
    await until(async () => (await queue.counts()).pending === 3);
    leases.close();
  });

  it('wakes when the lease of another consumer expires', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    await queue.drain({ leaseMs: 400 });
    for await (const { jobs } of poll([queue], { watch: true, forMs: 10_000 })) {
      expect(jobs).toMatchObject([{ attempt: 2 }]);
      break;
    }
  });
});

it('the clock of Redis is read in ms', async () => {
  expect(Math.abs((await connection.now()) - Date.now())).toBeLessThan(5_000);
});
