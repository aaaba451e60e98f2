import { describe, expect, it } from 'vitest';
import { type Job, Queue } from '../../src/index.js';
import { JobBuffer } from '../../src/worker/buffer.js';
import { ManualClock } from '../support/manual-clock.js';
import { connection } from '../support/redis.js';

const queue = new Queue(connection, 'buffered');
const jobs = (n: number) => Array.from({ length: n }, (_, i) => ({ id: `${i}`, payload: Buffer.from('1') }) as Job);

/** A buffer for one handler at a time, with `n` jobs that have just been fetched. */
function filled(n: number) {
  const clock = new ManualClock();
  const buffer = new JobBuffer(1, 1, clock);
  buffer.add({ queue, jobs: jobs(n), since: clock.now(), leaseMs: 60_000 }, n, 0);
  return { buffer, clock };
}

describe('a buffer of prefetched jobs', () => {
  it('gives back what has waited for a second, but for what starts next', () => {
    const { buffer, clock } = filled(5);
    clock.pass(999);
    expect([buffer.hasWaitedLong, buffer.takeSurplus(1, false)]).toEqual([false, []]);
    clock.pass(1);
    expect(buffer.hasWaitedLong).toBe(true);
    // One handler is busy: the next job is for it.
    expect(buffer.takeSurplus(1, false).map(({ id }) => id)).toEqual(['1', '2', '3', '4']);
    expect(buffer.length).toBe(1);
    expect(buffer.takeSurplus(1, false)).toEqual([]);
  });

  it('gives back all that has waited for a second if none will start soon', () => {
    const { buffer, clock } = filled(2);
    clock.pass(999);
    expect(buffer.takeSurplus(1, true)).toEqual([]);
    clock.pass(1);
    expect(buffer.takeSurplus(1, true)).toHaveLength(2);
    expect(buffer.length).toBe(0);
  });

  it('counts the second of each job from its own fetch', () => {
    const { buffer, clock } = filled(1);
    clock.pass(600);
    buffer.add({ queue, jobs: jobs(3), since: clock.now(), leaseMs: 60_000 }, 3, 1);
    clock.pass(600);
    expect([buffer.hasWaitedLong, buffer.takeSurplus(1, false)]).toEqual([true, []]);
    clock.pass(400);
    expect(buffer.takeSurplus(1, false)).toHaveLength(3);
  });
});
