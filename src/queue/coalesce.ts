import { MAX_CALL } from '../redis/script.js';

interface Waiting<T, R> {
  readonly item: T;
  readonly resolve: (result: R) => void;
  readonly reject: (error: unknown) => void;
}

/** What a {@link Gather} makes its calls with. */
export interface GatherOptions<T, R> {
  /** Makes the calls for many items. Results come in the order of the items. */
  readonly call: (items: readonly T[]) => Promise<R[]>;
  /** How many of the items, which are no more than a call may hold, make one call: the first ones, one at least. */
  readonly size: (items: readonly T[]) => number;
  /** What one of several must know of the error of their call. */
  readonly errorOf: (error: unknown, item: T) => unknown;
}

/**
 * Makes one call of many that come in one go, as from `Promise.all`: whoever calls gets a result or an error of its
 * own. One that comes alone is not kept waiting.
 */
export class Gather<T, R> {
  readonly #options: GatherOptions<T, R>;
  #waiting: Waiting<T, R>[] = [];

  constructor(options: GatherOptions<T, R>) {
    this.#options = options;
  }

  add(item: T): Promise<R> {
    return new Promise((resolve, reject) => {
      // Behind all that may run now, and before anything is heard of the world.
      if (this.#waiting.length === 0) queueMicrotask(() => this.flush());
      this.#waiting.push({ item, resolve, reject });
    });
  }

  /** Makes the calls now: before whatever must come behind them. */
  flush(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (let begin = 0, end: number; begin < waiting.length; begin = end) {
      end = begin + this.#options.size(waiting.slice(begin, begin + MAX_CALL).map(({ item }) => item));
      this.#call(waiting.slice(begin, end));
    }
  }

  async #call(some: readonly Waiting<T, R>[]): Promise<void> {
    try {
      const results = await this.#options.call(some.map(({ item }) => item));
      for (const [i, { resolve }] of some.entries()) resolve(results[i] as R);
    } catch (error) {
      const { errorOf } = this.#options;
      for (const { item, reject } of some) reject(some.length === 1 ? error : errorOf(error, item));
    }
  }
}
