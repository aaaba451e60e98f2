import { describe, expect, it } from 'vitest';
import { type Job, Leases, type Queue } from '../../src/internal.js';
import { admin, freshQueue, timePasses } from '../support/redis.js';
import { until } from '../support/until.js';

describe('leases', () => {
  const held = async (n: number, leaseMs: number) => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: n }, (_, i) => ({ payload: i })));
    const { jobs } = await queue.drain({ leaseMs });
    const lost: Job[] = [];
    const leases = new Leases({ onLost: (job) => lost.push(job) });
    leases.hold({ queue, jobs, leaseMs, since: performance.now() });
    return { queue, jobs, leases, lost };
  };
  const firstEnd = async (queue: Queue) =>
    Number((await admin.zrange(`delayq:{${queue.name}}:active`, '0', '0', 'WITHSCORES'))[1]);

  it('are renewed until their jobs are settled', async () => {
    const { queue, jobs, leases, lost } = await held(3, 600);
    const before = await firstEnd(queue);
    await until(async () => (await firstEnd(queue)) > before + 600);
    await leases.ack(jobs);
    expect({ size: leases.size, lost, counts: await queue.counts() }).toMatchObject({
      size: 0,
      lost: [],
      counts: { active: 0, payload: 0 },
    });
    leases.close();
  });

  it('that were lost are reported, and their jobs are not settled', async () => {
    const { queue, jobs, leases, lost } = await held(2, 900);
    await timePasses(queue.name, 2_000);
    const taken = (await queue.drain({ limit: 1 })).jobs;
    await until(() => lost.length > 0);
    expect(lost.map(({ id }) => id)).toEqual(taken.map(({ id }) => id));
    await leases.ack(jobs);
    expect(await queue.counts()).toMatchObject({ active: 1, payload: 1, stats: { acked: 1 } });
    leases.close();
  });

  it('that are half over are renewed before their jobs are handed out', async () => {
    const { queue, jobs, leases } = await held(2, 60_000);
    expect(await leases.fresh(jobs)).toBe(jobs);
    await timePasses(queue.name, 61_000);
    const taken = (await queue.drain({ limit: 1 })).jobs;
    const realNow = performance.now;
    // The process was suspended for a minute and does not know.
    performance.now = () => realNow.call(performance) + 60_000;
    try {
      expect((await leases.fresh(jobs)).map(({ id }) => id)).toEqual(jobs.slice(1).map(({ id }) => id));
    } finally {
      performance.now = realNow;
    }
    expect(taken).toHaveLength(1);
    leases.close();
  });

  it('that are lost do not let their jobs be handed out', async () => {
    const { jobs, leases } = await held(3, 60_000);
    leases.forget(jobs.slice(0, 1));
    expect(await leases.fresh(jobs)).toEqual(jobs.slice(1));
    expect(await leases.fresh(jobs.slice(0, 1))).toEqual([]);
    leases.close();
  });

  it('count from when the call was sent, however late the reply', async () => {
    const { queue, jobs, leases } = await held(1, 60_000);
    leases.hold({ queue, jobs, leaseMs: 60_000, since: performance.now() - 40_000 });
    await timePasses(queue.name, 40_000);
    const before = await firstEnd(queue);
    expect(await leases.fresh(jobs)).toEqual(jobs);
    expect(await firstEnd(queue)).toBeGreaterThan(before);
    leases.close();
  });

  it('are given back all at once', async () => {
    const { queue, leases } = await held(3, 60_000);
    await leases.releaseAll();
    expect(await queue.counts()).toMatchObject({ pending: 3, active: 0, meta: 0 });
    leases.close();
  });
});
