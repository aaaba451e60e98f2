import { vi } from 'vitest';
import type { Queue } from '../../src/index.js';
import { afterwards } from './afterwards.js';

/** How far the clock moves at once, ms. */
export const STEP_MS = 5;

/** Resolves when this process has dealt with all that the servers of `queues` have answered or published so far. */
export async function allHeard(...queues: readonly Queue[]): Promise<void> {
  for (let n = 0; n < 5; n++) {
    const parts = queues.flatMap(({ partitions }) => partitions);
    // One for each connection: what was sent before its answer is read before it, or together with it.
    const asked = new Map(parts.map((queue) => [queue.redis.sharded ? queue : queue.redis, queue]));
    await Promise.all([...asked.values()].map(({ redis, wakeChannel }) => redis.now(wakeChannel)));
    await new Promise(setImmediate);
  }
}

/** How to move the clock of this process. How busy the machine is does not matter. */
export interface StoppedClock {
  /** See {@link allHeard}. The clock stands. */
  settled(): Promise<void>;
  /** Resolves when `condition` is true. The clock stands. */
  settledUntil(condition: () => unknown): Promise<void>;
  /** Moves the clock until `ended`. Returns how far, ms. */
  clockUntil(ended: () => unknown): Promise<number>;
  /** Moves the clock in steps, and lets happen what follows from each. */
  pass(ms: number, stepMs?: number): Promise<void>;
  /** Moves the clock at once, and does not wait for what follows. */
  advance(ms: number): void;
}

/**
 * Stops the monotonic clock of this process, and its timers, until the end of the test. The wall clock goes on, and so do
 * the servers of `queues`, which must answer. For tests that run alone.
 */
export function stopClock(...queues: readonly Queue[]): StoppedClock {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] });
  afterwards(() => vi.useRealTimers());
  const settled = () => allHeard(...queues);
  const clockUntil = async (ended: () => unknown) => {
    for (let ms = 0; ; ms += STEP_MS) {
      await settled();
      if (await ended()) return ms;
      vi.advanceTimersByTime(STEP_MS);
    }
  };
  return {
    settled,
    clockUntil,
    advance: (ms) => void vi.advanceTimersByTime(ms),
    settledUntil: async (condition) => {
      while (!(await condition())) await settled();
    },
    pass: async (ms, stepMs = STEP_MS) => {
      for (let passed = 0; passed < ms; passed += stepMs) {
        await settled();
        vi.advanceTimersByTime(stepMs);
      }
      await settled();
    },
  };
}
