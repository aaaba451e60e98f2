/** Calls in flight, limited in number and in the sum of their sizes. Results are taken in the order of the calls. */
export class Window {
  readonly #calls: number;
  readonly #size: number;
  readonly #inFlight: { readonly size: number; readonly taken: Promise<void> }[] = [];
  #sizeInFlight = 0;

  constructor(limits: { calls: number; size?: number }) {
    this.#calls = limits.calls;
    this.#size = limits.size ?? Number.POSITIVE_INFINITY;
  }

  /**
   * Adds a call. `take` gets its result once those of all earlier calls were taken. Resolves when there is room for
   * another call. Throws the error of the first call that failed; no result after it is taken.
   */
  async add<T>(call: Promise<T>, take: (result: T) => void, size = 0): Promise<void> {
    const taken = Promise.all([call, this.#inFlight.at(-1)?.taken]).then(([result]) => take(result));
    // It is thrown when its turn comes.
    taken.catch(() => {});
    this.#inFlight.push({ size, taken });
    this.#sizeInFlight += size;
    while (this.#inFlight.length >= this.#calls || this.#sizeInFlight >= this.#size) await this.#land();
  }

  /** Resolves when all results were taken. Throws as {@link add} does. */
  async end(): Promise<void> {
    while (this.#inFlight.length > 0) await this.#land();
  }

  async #land(): Promise<void> {
    const [first] = this.#inFlight;
    await first?.taken;
    this.#inFlight.shift();
    this.#sizeInFlight -= first?.size ?? 0;
  }
}
