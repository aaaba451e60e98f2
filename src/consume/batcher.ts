import { DelayqError, isDelayqError } from '../model/errors.js';
import { MAX_CALL } from '../store/script.js';

interface BatcherOptions {
  /** The most calls under way; default 2. */
  readonly inFlight?: number;
  /** How long items may wait before one is sent, ms; default 5 s, as long as a call of Redis may take. */
  readonly patienceMs?: number;
}

/** An item, and how to report its result to whoever added it. */
export interface Item<T, R> {
  readonly item: T;
  readonly resolve: (result: R) => void;
  readonly reject: (error: unknown) => void;
}

const ignore = () => {};

/**
 * Shares calls between callers: those of one turn of the event loop share one, and while `inFlight` calls are under way,
 * others wait. So batches grow with the load, and a single caller is not delayed.
 *
 * The enqueuer of a queue has a way of its own: it sends before any I/O, because the caller decides in which
 * order its calls are made, bounds its calls by bytes, and lets none wait for another.
 */
export class Batcher<T, R> {
  readonly #call: (items: readonly Item<T, R>[]) => Promise<void>;
  readonly #maxInFlight: number;
  readonly #patienceMs: number;
  #waiting: Item<T, R>[] = [];
  #inFlight = 0;
  #isPlanned = false;
  #patience: NodeJS.Timeout | undefined;
  #onIdle: (() => void)[] = [];

  /**
   * `call` sends up to {@link MAX_CALL} items, and settles each; its error rejects the remaining ones. If the error says
   * that there was no answer, waiting items are rejected without being sent.
   */
  constructor(
    call: (items: readonly Item<T, R>[]) => Promise<void>,
    { inFlight = 2, patienceMs = 5_000 }: BatcherOptions = {},
  ) {
    this.#call = call;
    this.#maxInFlight = inFlight;
    this.#patienceMs = patienceMs;
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

  /** Resolves when no item waits, and no call is under way. */
  async idle(): Promise<void> {
    if (!this.isIdle) await new Promise<void>((resolve) => this.#onIdle.push(resolve));
  }

  /** Throws what the call throws; `unreachable` if nothing could be sent in time. */
  add(item: T): Promise<R> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      this.#plan();
    });
  }

  /** As {@link Batcher.add}, for callers that learn the result from the call itself. */
  push(item: T): void {
    this.#waiting.push({ item, resolve: ignore, reject: ignore });
    this.#plan();
  }

  #plan(): void {
    if (this.#isPlanned || this.#waiting.length === 0) return;
    if (this.#inFlight < this.#maxInFlight) {
      this.#isPlanned = true;
      setImmediate(() => {
        this.#isPlanned = false;
        void this.#send();
        this.#plan();
      });
    } else if (this.#patienceMs < Number.POSITIVE_INFINITY) {
      const late = `nothing could be sent for ${this.#patienceMs / 1000} s`;
      this.#patience ??= setTimeout(() => this.#giveUp(late), this.#patienceMs).unref();
    }
  }

  async #send(): Promise<void> {
    this.#endPatience();
    const some = this.#waiting.splice(0, MAX_CALL);
    this.#inFlight++;
    try {
      await this.#call(some);
    } catch (error) {
      for (const { reject } of some) reject(error);
      // Those that wait would otherwise wait for the time limit of one more call.
      if (isDelayqError(error, 'unknown', 'unreachable')) this.#giveUp('an earlier call was not answered');
    }
    this.#inFlight--;
    this.#plan();
    if (this.isIdle) for (const resolve of this.#onIdle.splice(0)) resolve();
  }

  #endPatience(): void {
    clearTimeout(this.#patience);
    this.#patience = undefined;
  }

  #giveUp(why: string): void {
    this.#endPatience();
    const error = new DelayqError('unreachable', 'Redis does not answer', { why, next: 'try again later' });
    for (const { reject } of this.#waiting.splice(0)) reject(error);
  }
}
