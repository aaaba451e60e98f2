import type { Clock } from '../../src/serve/http/clock.js';

/** A clock that stands still until the test moves it: how busy the machine is does not matter. */
export class HandClock implements Clock {
  #now = 0;
  readonly #timers = new Set<{ readonly at: number; readonly act: () => void }>();

  now(): number {
    return this.#now;
  }

  after(ms: number, act: () => void): () => void {
    const timer = { at: this.#now + ms, act };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /** Lets time pass, and calls in turn what falls due meanwhile. */
  pass(ms: number): void {
    const until = this.#now + ms;
    for (;;) {
      const [next] = [...this.#timers].filter(({ at }) => at <= until).sort((a, b) => a.at - b.at);
      if (!next) break;
      this.#timers.delete(next);
      this.#now = next.at;
      next.act();
    }
    this.#now = until;
  }
}
