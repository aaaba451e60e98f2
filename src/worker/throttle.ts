import { LONGEST_TIMER_MS } from './leases.js';
import type { WorkerOptions } from './options.js';

type BeforeStart = NonNullable<WorkerOptions['beforeStart']>;

/** A start may be this late without delaying the starts after it, ms: timers fire late. */
const SLACK_MS = 10;

/** Decides when the next handler may start: at most so many a second, and none while `beforeStart` says wait. */
export class Throttle {
  readonly #intervalMs: number;
  readonly #beforeStart: BeforeStart;
  readonly #onReady: () => void;
  /** Earliest time of the next start, by the monotonic clock, ms. */
  #next = 0;
  #waiting = false;
  #timer: NodeJS.Timeout | undefined;

  /** After {@link Throttle.mayStart} has returned false, `onReady` is called when it is time to ask again. */
  constructor(ratePerSecond: number | undefined, beforeStart: BeforeStart, onReady: () => void) {
    this.#intervalMs = ratePerSecond === undefined ? 0 : 1_000 / ratePerSecond;
    this.#beforeStart = beforeStart;
    this.#onReady = onReady;
  }

  /** Whether a handler may start now. If so, the start counts against the rate. */
  mayStart(): boolean {
    if (this.calls === 0) return false;
    this.#next = Math.max(this.#next, performance.now() - SLACK_MS) + this.#intervalMs;
    return true;
  }

  /** How many handlers may start now, at most. 0: `onReady` is called when it is time to ask again. */
  get calls(): number {
    if (this.#mustWait() || !this.#isTime()) return 0;
    return this.#intervalMs === 0 ? Number.MAX_SAFE_INTEGER : 1;
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  #mustWait(): boolean {
    const wait = this.#waiting ? undefined : this.#beforeStart();
    if (!wait) return this.#waiting;
    this.#waiting = true;
    const ready = () => {
      this.#waiting = false;
      this.#onReady();
    };
    wait.then(ready);
    return true;
  }

  #isTime(): boolean {
    if (this.#intervalMs === 0) return true;
    const now = performance.now();
    if (now < this.#next) {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(this.#onReady, Math.min(Math.ceil(this.#next - now), LONGEST_TIMER_MS));
      return false;
    }
    return true;
  }
}
