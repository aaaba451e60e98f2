import { within } from '../model/time.js';
import type { RedisCommand } from './client.js';

/** A call that has waited this long, for a connection or for its reply, is slow, ms. */
export const SLOW_MS = 1_000;

/** The calls of one connection that have no reply yet. Ends them at their time limit, with one timer for all. */
export class InFlight {
  /** The oldest first. */
  readonly #calls = new Set<RedisCommand>();
  readonly #slow: () => (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  #timerAt = 0;

  /** `slow` returns what to call each second while the oldest call is slow, if anything. */
  constructor(slow: () => (() => void) | undefined) {
    this.#slow = slow;
  }

  add(call: RedisCommand): void {
    this.#calls.add(call);
    if (!this.#timer || call.by < this.#timerAt) this.#watch();
  }

  delete(call: RedisCommand): void {
    this.#calls.delete(call);
  }

  /** Resolves when no call is without a reply, or after `ms`. */
  async settled(ms: number): Promise<void> {
    for (const by = performance.now() + ms; this.#calls.size > 0 && performance.now() < by; ) {
      const replies = Array.from(this.#calls, ({ promise }) => promise);
      await within(by - performance.now(), Promise.allSettled(replies));
    }
  }

  #watch(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const slow = this.#slow();
    const now = performance.now();
    let oldest: RedisCommand | undefined;
    this.#timerAt = slow ? now + SLOW_MS : Number.POSITIVE_INFINITY;
    for (const call of this.#calls) {
      if (call.by <= now) call.reject(new Error('Command timed out'));
      else {
        oldest ??= call;
        this.#timerAt = Math.min(this.#timerAt, call.by);
      }
    }
    if (!oldest) return;
    if (oldest.sentAt + SLOW_MS <= now) slow?.();
    // The stream keeps the process alive while calls are in flight.
    this.#timer = setTimeout(() => this.#watch(), this.#timerAt - now).unref();
  }
}
