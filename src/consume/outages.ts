import type { DelayqError } from '../model/errors.js';
import { type Clock, realClock } from '../model/time.js';
import type { Queue } from '../queue/queue.js';
import { POLL_MS } from '../store/keys.js';
import type { OnTrouble } from './trouble.js';

interface Outage {
  readonly error: DelayqError;
  /** When to try the queue again, by the clock, ms. */
  readonly retryAt: number;
  /** Jobs could not be settled, rather than not be taken. */
  readonly settling: boolean;
}

/**
 * The queues of a run that cannot be used for now, for example because a key has the wrong type. The run continues with
 * the other queues and tries these again. It ends when no queue is left. Each partition of a queue counts as one, but
 * its trouble is reported as that of the queue.
 */
export class Outages {
  readonly #clock: Clock;
  readonly #out = new Map<Queue, Outage>();
  /** Queues whose jobs could not be settled, and from which jobs could be taken again since. */
  readonly #doubtful = new Set<Queue>();
  /** Queues whose server is in trouble that may pass: the last error, and how many there were in a row. */
  readonly #waiting = new Map<Queue, { readonly error: DelayqError; readonly failures: number }>();
  #queues: readonly Queue[] = [];
  #watch = false;
  #over = false;
  #onTrouble: OnTrouble | undefined;

  constructor(clock: Clock = realClock) {
    this.#clock = clock;
  }

  /** Begins a run. Without `watch`, a queue that has failed once is not tried again. */
  begin(queues: readonly Queue[], how: { watch?: boolean | undefined; onTrouble?: OnTrouble | undefined }): void {
    this.#queues = queues;
    this.#watch = how.watch ?? false;
    this.#onTrouble = how.onTrouble;
  }

  /**
   * Ends the run: from now on, a failure of any queue is an error. `inTime`: its time is over, so lasting trouble is an
   * error, too.
   */
  end(inTime: boolean): void {
    this.#over = true;
    if (inTime) for (const [queue, { error }] of this.#waiting) this.failed(queue, error);
  }

  /** Whether no queue is left. */
  get all(): boolean {
    return this.#queues.every(({ partitions }) => partitions.every((part) => this.#out.has(part)));
  }

  /** Why the first of these queues cannot be used. */
  get error(): DelayqError | undefined {
    return this.#out.values().next().value?.error;
  }

  /** Whether a queue should not be tried now. */
  has(queue: Queue): boolean {
    const out = this.#out.get(queue);
    return out !== undefined && (!this.#watch || this.#clock.now() < out.retryAt);
  }

  /** Records that a queue has failed. Returns whether the run can continue with others. */
  failed(queue: Queue, error: DelayqError, settling = false): boolean {
    const known = this.#out.get(queue);
    const isFirst = !this.#concerns(queue);
    // Half a poll interval: about one try a second when idle, instead of one for each batch of the other queues.
    const retryAt = this.#clock.now() + POLL_MS / 2;
    this.#out.set(queue, { error, retryAt, settling: settling || known?.settling === true });
    // If jobs can be taken but never settled, they would be handled again and again.
    if (this.#over || this.all || (settling && this.#doubtful.has(queue))) return false;
    if (isFirst) this.#onTrouble?.(error, queue.whole);
    return true;
  }

  /**
   * Records that the server of a queue is in trouble that may pass. Returns how long to wait before the next call, ms.
   */
  wait(queue: Queue, error: DelayqError): number {
    if (this.#waiting.size === 0) this.#onTrouble?.(error);
    const failures = (this.#waiting.get(queue)?.failures ?? 0) + 1;
    this.#waiting.set(queue, { error, failures });
    return Math.min(POLL_MS, 50 * 2 ** Math.min(failures, 10));
  }

  /** Whether the last call to this queue failed because of trouble that may pass. */
  isInTrouble(queue: Queue): boolean {
    return this.#waiting.has(queue);
  }

  /** Whether a queue, or one of its partitions, is out. */
  #concerns({ whole }: Queue): boolean {
    return [...this.#out.keys()].some((queue) => queue.whole === whole);
  }

  drained(queue: Queue): void {
    if (this.#waiting.delete(queue) && this.#waiting.size === 0) this.#onTrouble?.(undefined);
    const out = this.#out.get(queue);
    if (!out) return;
    this.#out.delete(queue);
    if (out.settling) this.#doubtful.add(queue);
    if (this.#watch && !this.#concerns(queue)) this.#onTrouble?.(undefined, queue.whole);
  }

  settled(queue: Queue): void {
    this.#doubtful.delete(queue);
  }
}
