import { LONGEST_TIMER_MS } from './leases.js';

/** How late a start may be without the ones after it being put off as well, ms: timers fire late. */
const SLACK_MS = 10;

/** Says when a handler may be started: so many a second, and none while somebody holds them up. */
export class Pace {
  readonly #intervalMs: number;
  readonly #hold: (() => Promise<unknown> | undefined) | undefined;
  readonly #again: () => void;
  #next = 0;
  #held = false;
  #timer: NodeJS.Timeout | undefined;

  /** `hold` is asked before each start: none while it returns a promise. `again` is called when to ask anew. */
  constructor(
    ratePerSecond: number | undefined,
    hold: (() => Promise<unknown> | undefined) | undefined,
    again: () => void,
  ) {
    this.#intervalMs = ratePerSecond === undefined ? 0 : 1_000 / ratePerSecond;
    this.#hold = hold;
    this.#again = again;
  }

  /** Whether one may be started now, which then counts as started. */
  mayStart(): boolean {
    return !this.#isHeld() && this.#isTime();
  }

  /** Stops asking. */
  close(): void {
    clearTimeout(this.#timer);
  }

  #isHeld(): boolean {
    const held = this.#held ? undefined : this.#hold?.();
    if (!held) return this.#held;
    this.#held = true;
    const letGo = () => {
      this.#held = false;
      this.#again();
    };
    held.then(letGo, letGo);
    return true;
  }

  #isTime(): boolean {
    if (this.#intervalMs === 0) return true;
    const now = performance.now();
    if (now < this.#next) {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(this.#again, Math.min(Math.ceil(this.#next - now), LONGEST_TIMER_MS));
      return false;
    }
    this.#next = Math.max(this.#next, now - SLACK_MS) + this.#intervalMs;
    return true;
  }
}
