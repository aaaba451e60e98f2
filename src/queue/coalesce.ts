import { Batches } from './batches.js';

interface Waiting<T, R> {
  readonly item: T;
  readonly resolve: (result: R) => void;
  readonly reject: (error: unknown) => void;
}

/** How a {@link Coalescer} makes its calls. */
export interface CoalescerOptions<T, R> {
  /** Makes one call for many items, and returns their results in the same order. */
  readonly call: (items: readonly T[]) => Promise<R[]>;
  /** The size of an item's payload, as {@link Batches} counts it. */
  readonly unitsOf: (item: T) => number;
  /** Converts the error of a shared call to the error of one of its items. */
  readonly errorOf: (error: unknown, item: T) => unknown;
}

/**
 * Combines calls that are made together, for example by `Promise.all`, into one. Each caller gets its own result or
 * error. A single call is not delayed.
 */
export class Coalescer<T, R> {
  readonly #options: CoalescerOptions<T, R>;
  #waiting = new Batches<Waiting<T, R>>();

  constructor(options: CoalescerOptions<T, R>) {
    this.#options = options;
  }

  add(item: T): Promise<R> {
    return new Promise((resolve, reject) => {
      // A microtask runs after all code that can run now, and before any I/O.
      if (this.#waiting.isEmpty) queueMicrotask(() => this.flush());
      this.#waiting.add({ item, resolve, reject }, this.#options.unitsOf(item));
    });
  }

  /** Makes the calls now, for callers whose own call must come after them. */
  flush(): void {
    for (let batch = this.#waiting.take(true); batch; batch = this.#waiting.take(true)) this.#call(batch.items);
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
