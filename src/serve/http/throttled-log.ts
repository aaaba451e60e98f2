import { CLOCK, type Clock } from './clock.js';

/** Logs one message of a kind in this time, ms. */
const INTERVAL_MS = 10_000;

/** What has happened since the last message of a kind. */
interface Pending {
  count: number;
  /** Logs the last one. */
  say: (count: number) => void;
}

/** Logs what may happen often: the first at once, and after that every 10 s how many there were. */
export class ThrottledLog {
  readonly #pending = new Map<string, Pending>();
  readonly #clock: Clock;

  constructor(clock: Clock = CLOCK) {
    this.#clock = clock;
  }

  /**
   * Calls `say` with the number of messages, this one included: now, or at the end of the interval if it is the last of
   * its kind.
   */
  add(kind: string, say: (count: number) => void): void {
    const pending = this.#pending.get(kind);
    if (pending) {
      pending.count += 1;
      pending.say = say;
    } else this.#say(kind, { count: 1, say });
  }

  #say(kind: string, { count, say }: Pending): void {
    say(count);
    const next: Pending = { count: 0, say };
    this.#pending.set(kind, next);
    this.#clock.after(INTERVAL_MS, () => {
      if (next.count > 0) this.#say(kind, next);
      else this.#pending.delete(kind);
    });
  }
}
