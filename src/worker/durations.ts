import { realClock, within } from '../model/time.js';
import type { Queue } from '../queue/queue.js';

/** How long durations are collected, ms: so seldom that even a job a second costs no call more. */
const EVERY_MS = 10_000;

/** How long the end of a run waits for them, ms. */
const PATIENCE_MS = 500;

/**
 * Counts how long handlers ran, in Redis, for `inspect` and metrics. The figures of a process that dies may be lost, and
 * those that Redis does not take are: no job waits for them.
 */
export class Durations {
  /** How many calls took less than 2^k ms, and at least half of that. */
  readonly #counts = new Map<Queue, Map<number, number>>();
  #stopTimer: (() => void) | undefined;

  /** A handler succeeded within `ms`. */
  add(queue: Queue, ms: number): void {
    const counts = this.#counts.get(queue) ?? new Map<number, number>();
    this.#counts.set(queue, counts);
    const k = Math.ceil(Math.log2(Math.floor(Math.max(0, ms)) + 1));
    counts.set(k, (counts.get(k) ?? 0) + 1);
    this.#stopTimer ??= realClock.after(EVERY_MS, () => void this.flush(), { ref: false });
  }

  /** Writes what was counted since the last time. Never fails. */
  async flush(): Promise<void> {
    this.#stopTimer?.();
    this.#stopTimer = undefined;
    const counted = [...this.#counts];
    this.#counts.clear();
    await within(PATIENCE_MS, Promise.allSettled(counted.map(([queue, counts]) => queue.countDurations(counts))));
  }
}
