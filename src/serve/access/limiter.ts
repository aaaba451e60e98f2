import { Batcher } from '../../consume/batcher.js';
import { type Connection, giveBackToLimit, takeOfLimit } from '../../index.js';
import { usedKey } from './keys.js';
import { Recent } from './recent.js';
import type { Limits, Side, Token } from './tokens.js';

/** What a request was allowed. */
export interface Granted {
  /** The window that it counts in; undefined: nothing was left. */
  readonly window: string | undefined;
  /** Until a new window begins, ms. */
  readonly restMs: number;
}

/** The most limits whose shared calls are kept ready. */
const MAX_KEPT = 1_000;

/** Counts requests against the limits of their tokens, over all servers. */
export class Limiter {
  readonly #redis: Connection;
  readonly #key: string;
  /** Calls that requests share, by what is counted. */
  readonly #batchers = new Recent<string, Batcher<Limits, Granted>>(MAX_KEPT);

  constructor(redis: Connection, prefix: string) {
    this.#redis = redis;
    this.#key = usedKey(prefix);
  }

  /** Counts a request. Throws what {@link Connection.call} throws. */
  take({ hash }: Token, limits: Limits, side: Side): Promise<Granted> {
    const field = `${hash}:${side}`;
    let batcher = this.#batchers.get(field);
    if (!batcher) {
      batcher = Batcher.of((asked) => this.#takeAll(field, side, asked));
      this.#batchers.set(field, batcher);
    }
    return batcher.add(limits);
  }

  async #takeAll(field: string, side: Side, asked: readonly Limits[]): Promise<Granted[]> {
    // They may have been changed meanwhile.
    const limits = asked.at(-1) as Limits;
    const wanted = { count: asked.length, limit: limits[side], windowMs: limits.interval * 1_000 };
    const { count, window, restMs } = await takeOfLimit(this.#redis, this.#key, field, wanted);
    return asked.map((_, i) => ({ window: i < count ? window : undefined, restMs }));
  }

  /** Gives back what a request has not used: it was refused, or found no job. Best effort. */
  giveBack({ hash }: Token, side: Side, window: string): void {
    giveBackToLimit(this.#redis, this.#key, `${hash}:${side}`, window).catch(() => {});
  }
}
