import { isPassing } from '../../index.js';

/** Lets few requests at a time read large things from Redis, in the order in which they came. */
export class Turns {
  #free: number;
  #waiting: { readonly resolve: () => void; readonly reject: (error: unknown) => void }[] = [];

  /** `max` at a time. */
  constructor(max: number) {
    this.#free = max;
  }

  /**
   * Throws what `act` throws. If Redis does not answer one, all that wait for their turns end with the same error: otherwise
   * each would wait for the deadlines of those before it.
   */
  async take<T>(act: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve, reject) => this.#waiting.push({ resolve, reject }));
    try {
      return await act();
    } catch (error) {
      if (isPassing(error)) for (const { reject } of this.#waiting.splice(0)) reject(error);
      throw error;
    } finally {
      const next = this.#waiting.shift();
      if (next) next.resolve();
      else this.#free++;
    }
  }
}
