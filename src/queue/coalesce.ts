import { Batches } from './batches.js';

interface Waiting<T, R> {
  readonly item: T;
  readonly resolve: (result: R) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Combines calls that are made together, for example by `Promise.all`, into one. Each caller gets its own result or
 * error. A single call is not delayed.
 */
export class Coalescer<T, R> {
  readonly #call: (items: readonly T[]) => Promise<R[]>;
  readonly #errorOf: (error: unknown, item: T) => unknown;
  readonly #waiting = new Batches<Waiting<T, R>>();

  /** `call` returns the results in the order of its items. `errorOf` makes an item's error from that of its call. */
  constructor(call: (items: readonly T[]) => Promise<R[]>, errorOf: (error: unknown, item: T) => unknown) {
    this.#call = call;
    this.#errorOf = errorOf;
  }

  /** `units`: the size of the item, as {@link Batches} counts it. */
  add(item: T, units: number): Promise<R> {
    return new Promise((resolve, reject) => {
      // A microtask runs after all code that can run now, and before any I/O.
      if (this.#waiting.isEmpty) queueMicrotask(() => this.flush());
      this.#waiting.add({ item, resolve, reject }, units);
    });
  }

  /** Makes the calls now, for callers whose own call must come after them. */
  flush(): void {
    for (let batch = this.#waiting.take(true); batch; batch = this.#waiting.take(true)) this.#settle(batch.items);
  }

  async #settle(some: readonly Waiting<T, R>[]): Promise<void> {
    try {
      const results = await this.#call(some.map(({ item }) => item));
      for (const [i, { resolve }] of some.entries()) resolve(results[i] as R);
    } catch (error) {
      for (const { item, reject } of some) reject(some.length === 1 ? error : this.#errorOf(error, item));
    }
  }
}
