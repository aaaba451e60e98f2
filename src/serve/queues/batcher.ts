import { DelayqError, isDelayqError } from '../../index.js';

/** The most items of a call. */
const MAX_ITEMS = 250;

/** The most calls in flight. */
const IN_FLIGHT = 2;

/** How long items may wait before one is sent, ms: as long as a call of Redis may take. */
const PATIENCE_MS = 5_000;
const LATE = `nothing could be sent for ${PATIENCE_MS / 1000} s`;

/** An item of a request, and how to report its result. */
export interface Item<T, R> {
  readonly item: T;
  readonly resolve: (result: R) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Shares calls between requests: requests of one turn of the event loop share one, and while two are in flight, others
 * wait. So batches grow with the load, and a single request is not delayed.
 */
export class Batcher<T, R> {
  readonly #call: (items: readonly Item<T, R>[]) => Promise<void>;
  #waiting: Item<T, R>[] = [];
  #inFlight = 0;
  #isPlanned = false;
  #patience: NodeJS.Timeout | undefined;

  /**
   * `call` sends items, and settles each; its error rejects the remaining ones. If the error says that there was no
   * answer, waiting items are rejected without being sent.
   */
  constructor(call: (items: readonly Item<T, R>[]) => Promise<void>) {
    this.#call = call;
  }

  /** Makes a batcher whose call returns the results in the order of the items. */
  static of<T, R>(call: (items: readonly T[]) => Promise<readonly R[]>): Batcher<T, R> {
    return new Batcher<T, R>(async (items) => {
      const results = await call(items.map(({ item }) => item));
      for (const [i, { resolve }] of items.entries()) resolve(results[i] as R);
    });
  }

  get isIdle(): boolean {
    return this.#inFlight === 0 && this.#waiting.length === 0;
  }

  /** Throws what the call throws; `unreachable` if nothing could be sent for 5 s. */
  add(item: T): Promise<R> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      this.#plan();
    });
  }

  #plan(): void {
    if (this.#isPlanned || this.#waiting.length === 0) return;
    if (this.#inFlight < IN_FLIGHT) {
      this.#isPlanned = true;
      setImmediate(() => {
        this.#isPlanned = false;
        this.#send();
        this.#plan();
      });
    } else this.#patience ??= setTimeout(() => this.#giveUp(LATE), PATIENCE_MS).unref();
  }

  #send(): void {
    clearTimeout(this.#patience);
    this.#patience = undefined;
    const some = this.#waiting.length > MAX_ITEMS ? this.#waiting.splice(0, MAX_ITEMS) : this.#waiting;
    if (some === this.#waiting) this.#waiting = [];
    this.#inFlight++;
    this.#call(some)
      .catch((error) => {
        for (const { reject } of some) reject(error);
        // Those that wait would otherwise wait for the time limit of one more call.
        if (isDelayqError(error, 'unknown', 'unreachable')) this.#giveUp('an earlier call was not answered');
      })
      .finally(() => {
        this.#inFlight--;
        this.#plan();
      });
  }

  #giveUp(why: string): void {
    clearTimeout(this.#patience);
    this.#patience = undefined;
    const error = new DelayqError('unreachable', 'Redis does not answer', {
      why,
      next: 'try again later',
    });
    for (const { reject } of this.#waiting.splice(0)) reject(error);
  }
}
