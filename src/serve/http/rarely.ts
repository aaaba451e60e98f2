import { CLOCK, type Clock } from './clock.js';

/** How often the same is said, ms. */
const AGAIN_MS = 10_000;

/** What has happened since it was said. */
interface Unsaid {
  count: number;
  /** Says the last one. */
  say: (count: number) => void;
}

/** Says what may happen often: the first at once, and after that every 10 s how many there were. */
export class Rarely {
  readonly #unsaid = new Map<string, Unsaid>();
  readonly #clock: Clock;

  constructor(clock: Clock = CLOCK) {
    this.#clock = clock;
  }

  /** Calls `say` now, or later if it is the last of its kind then: with how many there were, this one included. */
  add(kind: string, say: (count: number) => void): void {
    const unsaid = this.#unsaid.get(kind);
    if (unsaid) {
      unsaid.count += 1;
      unsaid.say = say;
    } else this.#say(kind, { count: 1, say });
  }

  #say(kind: string, { count, say }: Unsaid): void {
    say(count);
    const next: Unsaid = { count: 0, say };
    this.#unsaid.set(kind, next);
    this.#clock.after(AGAIN_MS, () => {
      if (next.count > 0) this.#say(kind, next);
      else this.#unsaid.delete(kind);
    });
  }
}
