import { describe, expect, it } from 'vitest';
import { type Answer, type Held, type Job, Leases, Queue } from '../../src/internal.js';
import { afterwards } from '../support/afterwards.js';
import { ManualClock } from '../support/manual-clock.js';
import { admin, connection, freshName, timePasses } from '../support/redis.js';
import { until } from '../support/until.js';

const LEASE_MS = 90_000;

/** A queue that keeps the answers to its renewals. */
class Renewed extends Queue {
  readonly renewals: Promise<Answer[]>[] = [];

  override renew(jobs: readonly Held[], leaseMs?: number): Promise<Answer[]> {
    const renewal = super.renew(jobs, leaseMs);
    this.renewals.push(renewal);
    return renewal;
  }
}

describe.concurrent('leases', () => {
  const held = async (n: number) => {
    const queue = new Renewed(connection, freshName());
    await queue.enqueue(Array.from({ length: n }, (_, i) => ({ payload: i })));
    const { jobs } = await queue.drain({ leaseMs: LEASE_MS });
    const lost: Job[] = [];
    const clock = new ManualClock();
    const leases = new Leases({ onLost: (job) => lost.push(job), clock });
    afterwards(() => leases.close());
    leases.hold({ queue, jobs, leaseMs: LEASE_MS, since: clock.now() });
    /** Lets time pass for the leases, here and in Redis. */
    const pass = async (ms: number) => {
      await timePasses(queue.name, ms);
      clock.pass(ms);
    };
    return { queue, jobs, leases, lost, clock, pass };
  };
  const firstEnd = async (queue: Queue) =>
    Number((await admin.zrange(`delayq:{${queue.name}}:active`, '0', '0', 'WITHSCORES'))[1]);

  it('are renewed when a third of their time has passed, until their jobs are settled', async () => {
    const { queue, jobs, leases, lost, pass } = await held(3);
    await pass(LEASE_MS / 3 - 1);
    expect(queue.renewals).toHaveLength(0);
    await pass(1);
    expect(queue.renewals).toHaveLength(1);
    // Until later than they would have ended.
    for (const n of [1, 2, 3, 4]) {
      expect(await queue.renewals[n - 1]).toEqual(['held', 'held', 'held']);
      await pass(LEASE_MS / 3);
      expect(queue.renewals).toHaveLength(n + 1);
    }
    await queue.renewals[4];
    await leases.ack(jobs.map((job) => ({ job })));
    expect({ size: leases.size, lost }).toEqual({ size: 0, lost: [] });
    await pass(LEASE_MS);
    expect(queue.renewals).toHaveLength(5);
    expect(await queue.counts()).toMatchObject({ active: 0, payload: 0 });
  });

  it('are no longer renewed once they are closed', async () => {
    const { queue, leases, clock } = await held(1);
    leases.close();
    clock.pass(LEASE_MS);
    expect(queue.renewals).toEqual([]);
  });

  it('of a second call are renewed in their own time, although it is shorter', async () => {
    const { queue, leases, clock } = await held(1);
    await queue.enqueue({ payload: 'short' });
    const { jobs } = await queue.drain({ leaseMs: 900 });
    leases.hold({ queue, jobs, leaseMs: 900, since: clock.now() });
    clock.pass(299);
    expect(queue.renewals).toHaveLength(0);
    clock.pass(1);
    expect(await Promise.all(queue.renewals)).toEqual([['held']]);
  });

  it('that were lost are reported, and their jobs are not settled', async () => {
    const { queue, jobs, leases, lost, clock } = await held(2);
    await timePasses(queue.name, LEASE_MS + 1);
    const taken = (await queue.drain({ limit: 1 })).jobs;
    clock.pass(LEASE_MS / 3);
    await until(() => lost.length > 0);
    expect(lost.map(({ id }) => id)).toEqual(taken.map(({ id }) => id));
    await leases.ack(jobs.map((job) => ({ job })));
    expect(await queue.counts()).toMatchObject({ active: 1, payload: 1, stats: { acked: 1 } });
  });

  it('that are half over are renewed before their jobs are handed out', async () => {
    const { queue, jobs, leases, clock } = await held(2);
    clock.suspend(LEASE_MS / 2 - 1);
    expect(await leases.fresh(jobs)).toBe(jobs);
    await timePasses(queue.name, LEASE_MS + 1);
    const taken = (await queue.drain({ limit: 1 })).jobs;
    // The process was suspended, and does not know.
    clock.suspend(1);
    expect((await leases.fresh(jobs)).map(({ id }) => id)).toEqual(jobs.slice(1).map(({ id }) => id));
    expect(taken).toHaveLength(1);
  });

  it('that are lost do not let their jobs be handed out', async () => {
    const { jobs, leases } = await held(3);
    leases.forget(jobs.slice(0, 1));
    expect(await leases.fresh(jobs)).toEqual(jobs.slice(1));
    expect(await leases.fresh(jobs.slice(0, 1))).toEqual([]);
  });

  it('count from when the call was sent, however late the reply', async () => {
    const { queue, jobs, leases, clock } = await held(1);
    leases.hold({ queue, jobs, leaseMs: LEASE_MS, since: clock.now() - LEASE_MS / 2 });
    await timePasses(queue.name, LEASE_MS / 2);
    const before = await firstEnd(queue);
    expect(await leases.fresh(jobs)).toEqual(jobs);
    expect(await firstEnd(queue)).toBeGreaterThan(before);
  });

  it('are given back all at once', async () => {
    const { queue, leases } = await held(3);
    await leases.releaseAll();
    expect(await queue.counts()).toMatchObject({ pending: 3, active: 0, meta: 0 });
  });
});
