import { describe, expect, it } from 'vitest';
import { poll } from '../../src/consume/poll.js';
import { Source } from '../../src/consume/source.js';
import type { Drained } from '../../src/store/jobs.js';
import { ManualClock } from '../support/manual-clock.js';
import { freshQueue, key } from '../support/redis.js';

describe('while the groups of a stream have acked too little', () => {
  /** An answer at the time of the clock: so many jobs were moved, and more are due. */
  const unacked = (clock: ManualClock, count = 0) => {
    const handedOver = { count, unacked: 10, slowest: 'g' };
    return {
      state: 'unacked',
      now: clock.now(),
      next: clock.now(),
      jobs: [] as Drained['jobs'],
      handedOver,
    } as Drained;
  };
  const setUp = () => {
    const clock = new ManualClock();
    const source = new Source(clock);
    /** Looks when it is time. Returns after which wait. */
    const look = (count = 0) => {
      const waited = source.at - clock.now();
      clock.pass(waited);
      source.sent(clock.now() + 1_000);
      source.answered(unacked(clock, count));
      return waited;
    };
    return { clock, source, look };
  };

  it('each look in vain doubles the wait, up to a poll interval', () => {
    const { look } = setUp();
    const waits = Array.from({ length: 10 }, () => look());
    expect(waits).toEqual([0, 16, 32, 64, 128, 256, 512, 1_000, 1_000, 1_000]);
  });

  it('a look that moves jobs makes the next wait short', () => {
    const { look } = setUp();
    for (let i = 0; i < 6; i++) look();
    look(3);
    expect([look(1), look(), look(), look()]).toEqual([16, 16, 32, 64]);
  });

  it('no message brings the next look forward', () => {
    const { source, clock, look } = setUp();
    for (let i = 0; i < 6; i++) look();
    const at = source.at;
    expect(source.heard(clock.now())).toBe(false);
    expect(source.heard(Number.NaN)).toBe(false);
    expect(source.at).toBe(at);
  });

  it('a drain that watches does so, however long the jobs have been due', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, at: 1_000 },
      { payload: 2, at: 1_001 },
    ]);
    const stop = new AbortController();
    const times: number[] = [];
    const jobs = poll([queue], {
      ...{ watch: true, leaseMs: 0, ahead: true, signal: stop.signal },
      stream: { key: key(queue.name, 'stream'), maxUnacked: 1 },
      onDrained: (_, { state, now }) => {
        if (state === 'unacked') times.push(now);
        if (times.length === 6) stop.abort();
      },
    });
    expect(await jobs.next()).toMatchObject({ done: true });
    const gaps = times.slice(1).map((time, i) => time - (times[i] as number));
    // Timers may be up to 1 ms early, and times are whole ms.
    for (const [i, least] of [16, 16, 32, 64, 128].entries()) expect(gaps[i]).toBeGreaterThanOrEqual(least - 2);
  });
});
