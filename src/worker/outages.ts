import type { DelayqError } from '../model/errors.js';
import type { Queue } from '../queue/queue.js';
import { POLL_MS } from '../redis/keys.js';

/** Hears of trouble, and, with undefined, that it is over. With `queue` only that one is concerned; others go on. */
export type OnTrouble = (error: DelayqError | undefined, queue?: Queue) => void;

/**
 * The queues of a run that cannot be used for now, because a key has the wrong type, say. The run goes on with the
 * others and tries these again; it ends when none is left.
 */
export class Outages {
  readonly #out = new Map<Queue, { readonly error: DelayqError; readonly again: number; readonly settling: boolean }>();
  /** Jobs could be taken again, after others could not be settled. */
  readonly #doubtful = new Set<Queue>();
  #queues: readonly Queue[] = [];
  #watch = false;
  #over = false;
  #onTrouble: OnTrouble | undefined;

  /** Begins a run. Without `watch` a queue that failed once is left out for good. */
  begin(queues: readonly Queue[], how: { watch?: boolean | undefined; onTrouble?: OnTrouble | undefined }): void {
    this.#queues = queues;
    this.#watch = how.watch ?? false;
    this.#onTrouble = how.onTrouble;
  }

  /** Ends the run: from now on nothing goes on without a queue that fails. */
  end(): void {
    this.#over = true;
  }

  /** Whether no queue is left. */
  get all(): boolean {
    return this.#out.size >= this.#queues.length;
  }

  /** Why the first of the queues that are out cannot be used. */
  get error(): DelayqError | undefined {
    for (const { error } of this.#out.values()) return error;
    return undefined;
  }

  /** Whether a queue is not to be asked now. */
  has(queue: Queue): boolean {
    const out = this.#out.get(queue);
    return out !== undefined && (!this.#watch || performance.now() < out.again);
  }

  /** A queue has failed. Returns whether the run can go on with others. */
  failed(queue: Queue, error: DelayqError, settling = false): boolean {
    const known = this.#out.get(queue);
    // Half a poll: one look a second when idle, and not one for each batch of the others.
    const again = performance.now() + POLL_MS / 2;
    this.#out.set(queue, { error, again, settling: settling || known?.settling === true });
    // Where jobs can be taken but never settled, they would be handled again and again.
    if (this.#over || this.all || (settling && this.#doubtful.has(queue))) return false;
    if (!known && this.#watch) this.#onTrouble?.(error, queue);
    return true;
  }

  /** Jobs of a queue could be asked for. */
  drained(queue: Queue): void {
    const out = this.#out.get(queue);
    if (!out) return;
    this.#out.delete(queue);
    if (out.settling) this.#doubtful.add(queue);
    if (this.#watch) this.#onTrouble?.(undefined, queue);
  }

  /** Jobs of a queue could be settled. */
  settled(queue: Queue): void {
    this.#doubtful.delete(queue);
  }
}
