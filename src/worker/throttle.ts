import { type Clock, realClock } from '../model/time.js';
import type { WorkerOptions } from './options.js';

type BeforeStart = NonNullable<WorkerOptions['beforeStart']>;

/** A start may be this late without delaying the starts after it, ms: timers fire late. */
const SLACK_MS = 10;

/** Decides when the next handler may start: at most so many a second, and none while `beforeStart` says wait. */
export class Throttle {
  readonly #intervalMs: number;
  readonly #beforeStart: BeforeStart;
  readonly #onReady: () => void;
  readonly #clock: Clock;
  /** Earliest time of the next start, by the clock, ms. */
  #next = 0;
  #waiting = false;
  #cancelTimer = () => {};

  /** After {@link Throttle.mayStart} has returned false, `onReady` is called when it is time to ask again. */
  constructor(
    ratePerSecond: number | undefined,
    beforeStart: BeforeStart,
    onReady: () => void,
    clock: Clock = realClock,
  ) {
    this.#intervalMs = ratePerSecond === undefined ? 0 : 1_000 / ratePerSecond;
    this.#beforeStart = beforeStart;
    this.#onReady = onReady;
    this.#clock = clock;
  }

  /** Whether a handler may start now. If so, the start counts against the rate. */
  mayStart(): boolean {
    if (this.calls === 0) return false;
    this.#next = Math.max(this.#next, this.#clock.now() - SLACK_MS) + this.#intervalMs;
    return true;
  }

  /** How many handlers may start now, at most. 0: `onReady` is called when it is time to ask again. */
  get calls(): number {
    if (this.#mustWait() || !this.#isTime()) return 0;
    return this.#intervalMs === 0 ? Number.MAX_SAFE_INTEGER : 1;
  }

  close(): void {
    this.#cancelTimer();
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
    const now = this.#clock.now();
    if (now < this.#next) {
      this.#cancelTimer();
      this.#cancelTimer = this.#clock.after(this.#next - now, this.#onReady);
      return false;
    }
    return true;
  }
}
