import { Batcher } from '../../consume/batcher.js';
import { type Connection, TokenStore } from '../../internal.js';
import { Recent } from './recent.js';
import type { Limits, Side, Token } from './tokens.js';

/** What a request was allowed. */
export interface Granted {
  /** The window that it counts in; undefined: nothing was left. */
  readonly window: string | undefined;
  /** Until a new window begins, ms. */
  readonly restMs: number;
}

/** The most limits to keep batchers for. */
const MAX_KEPT = 1_000;

/** Counts requests against the limits of their tokens, over all servers. */
export class Limiter {
  readonly #store: TokenStore;
  /** Calls that requests share, by what they count. */
  readonly #batchers = new Recent<string, Batcher<Limits, Granted>>(MAX_KEPT);

  constructor(redis: Connection, prefix: string) {
    this.#store = new TokenStore(redis, prefix);
  }

  /** Counts a request. Throws what {@link Connection.call} throws. */
  take({ hash }: Token, limits: Limits, side: Side): Promise<Granted> {
    const name = `${hash}:${side}`;
    let batcher = this.#batchers.get(name);
    if (!batcher) {
      batcher = Batcher.of(async (asked) => {
        // They may have been changed meanwhile.
        const { [side]: limit, interval } = asked.at(-1) as Limits;
        const wanted = { count: asked.length, limit, windowMs: interval * 1_000 };
        const { count, window, restMs } = await this.#store.takeOfLimit(hash, side, wanted);
        return asked.map((_, i) => ({ window: i < count ? window : undefined, restMs }));
      });
      this.#batchers.set(name, batcher);
    }
    return batcher.add(limits);
  }

  /** Gives back what a request has not used: it was refused, or found no job. Best effort. */
  giveBack({ hash }: Token, side: Side, window: string): void {
    this.#store.giveBackToLimit(hash, side, window).catch(() => {});
  }
}
