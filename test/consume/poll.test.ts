import { describe, expect, it } from 'vitest';
import { Connection, Leases, poll, Queue, type TakenJobs } from '../../src/internal.js';
import { afterwards, during } from '../support/afterwards.js';
import { connection, freshName, freshQueue, redisUrl } from '../support/redis.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

const payloadsOf = ({ jobs }: TakenJobs) => jobs.map(({ payload }) => JSON.parse(String(payload)) as unknown);

describe.concurrent('a drain loop', () => {
  it('asks the first queue again before each batch', async () => {
    const [high, low] = [freshQueue(), freshQueue()];
    await high.enqueue({ payload: 'high 1' });
    await low.enqueue([{ payload: 'low 1' }, { payload: 'low 2' }]);
    const seen: unknown[] = [];
    for await (const batch of poll([high, low], { batch: 1, watch: true })) {
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
      await leases.ack(taken.jobs.map((job) => ({ job })));
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

  it('that does not watch makes one call if one is enough', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    let calls = 0;
    const seen: unknown[] = [];
    for await (const taken of poll([queue], { onDrained: () => calls++ })) seen.push(...payloadsOf(taken));
    expect({ seen, calls }).toEqual({ seen: [1, 2], calls: 1 });
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
    await queue.drain({ leaseMs: 100 });
    const attempts: number[] = [];
    for await (const { jobs } of poll([queue], { watch: true, limit: 1 }))
      attempts.push(...jobs.map(({ attempt }) => attempt));
    expect(attempts).toEqual([2]);
  });
});

describe.concurrent('a drain loop that does not watch', () => {
  /** Enqueues a job, and waits until it is due. */
  async function dueLater({ name }: Queue): Promise<void> {
    const queue = new Queue(connection, name);
    const { due } = await queue.counts();
    await queue.enqueue({ payload: 'late', in: 1 });
    await until(async () => (await queue.counts()).due > due);
  }

  it.each([3_600_000, -3_600_000])(
    'takes what was due when it began by the clock of each server: %i ms apart',
    async (apart) => {
      // As if the clock of the server differed: Redis does not run with a clock that is faked.
      class Apart extends Connection {
        override async now(key?: string) {
          return (await super.now(key)) + apart;
        }
      }
      class Far extends Queue {
        override async take({ cutoff, ...options }: NonNullable<Parameters<Queue['take']>[0]> = {}) {
          const drained = await super.take({ ...options, cutoff: cutoff && cutoff - apart });
          return { ...drained, now: drained.now + apart, next: drained.next && drained.next + apart };
        }
      }
      const redis = new Apart(redisUrl);
      afterwards(() => redis.close());
      const [near, far] = [freshQueue(), new Far(redis, freshName())];
      for (const queue of [near, far]) await queue.enqueue({ payload: queue.name });
      const seen: unknown[] = [];
      for await (const taken of poll([near, far])) {
        seen.push(...payloadsOf(taken));
        for (const queue of [near, far]) await dueLater(queue);
      }
      // On a busy machine, the second may answer first.
      expect(seen.sort()).toEqual([near.name, far.name].sort());
    },
  );
});

it('the clock of Redis is read in ms', async () => {
  for (const of of [undefined, freshName()]) {
    const before = Date.now();
    const now = await connection.now(of);
    expect(before <= now && now <= Date.now()).toBe(true);
  }
});
