import { isDelayqError, isPassing } from '../../index.js';
import { CLOCK, type Clock } from '../http/clock.js';
import type { Keyring } from './guard.js';

/** How often to ask each Redis for its number of tokens, ms: once there is one, all requests need one. */
const LOOK_MS = 5_000;

/** How often to ask a Redis that does not answer, ms: until it does, its requests are refused. */
const LOOK_AGAIN_MS = 250;

/** Watches the Redis of each pool: whether it answers, and whether it has tokens. */
export class Watch {
  readonly #rings: readonly Keyring[];
  readonly #say: (text: string) => void;
  /** Those that do not answer. */
  readonly #down = new Set<Keyring>();
  readonly #clock: Clock;
  /** Cancels the next look at each. */
  readonly #next = new Map<Keyring, () => void>();
  #isStopped = false;

  constructor(rings: Iterable<Keyring>, say: (text: string) => void, clock: Clock = CLOCK) {
    this.#rings = [...rings];
    this.#say = say;
    this.#clock = clock;
  }

  /** Looks once, then at intervals. Throws if a Redis answers that it cannot be used: `refused` or `config`. */
  async start(): Promise<void> {
    await Promise.all(this.#rings.map((ring) => this.#look(ring, true)));
    for (const ring of this.#rings) this.#lookLater(ring);
  }

  stop(): void {
    this.#isStopped = true;
    for (const callOff of this.#next.values()) callOff();
  }

  /** Whether this Redis answered when it was asked last. */
  isUp(ring: Keyring): boolean {
    return !this.#down.has(ring);
  }

  #lookLater(ring: Keyring): void {
    const look = () => void this.#look(ring, false).finally(() => this.#isStopped || this.#lookLater(ring));
    this.#next.set(ring, this.#clock.after(this.isUp(ring) ? LOOK_MS : LOOK_AGAIN_MS, look));
  }

  async #look(ring: Keyring, isFirst: boolean): Promise<void> {
    const { name } = ring.pool;
    try {
      ring.count = await ring.tokens.count();
      if (this.#down.delete(ring)) this.#say(`pool ${name}: Redis is back`);
    } catch (error) {
      if (!isDelayqError(error) || (isFirst && !isPassing(error))) throw error;
      if (this.#down.has(ring) || this.#isStopped) return;
      this.#down.add(ring);
      this.#say(
        `pool ${name}: ${error.what}${error.why ? ` (${error.why})` : ''}; its requests get ${isPassing(error) ? 503 : 500} until it answers`,
      );
    }
  }
}
