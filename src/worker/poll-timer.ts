import type { Queue } from '../queue/queue.js';
import { POLL_MS } from '../redis/keys.js';
import type { Drained } from '../scripts/jobs.js';

/**
 * Backoff after losing the race for a job: the first delay and the longest, ms. Each lost race doubles the delay. This
 * is enough for the winner to be done, and it bounds how late a job is if the winner is gone.
 */
const BACKOFF_MS = [1, 16] as const;

/** The pause between two looks at the queues. It ends at the earliest of the times it is given. */
export class PollTimer {
  readonly #queues: readonly Queue[];
  readonly #signal: AbortSignal | undefined;
  #end = 0;
  /** Ends the pause so that `#end` is looked at again. */
  #wake: (() => void) | undefined;
  #listener: ReturnType<Queue['redis']['listen']> | undefined;
  #listenAgain = 0;
  /** Redis's clock minus the monotonic clock, ms. */
  #clockOffset = 0;
  /** The pause ends when a job falls due, not because of the poll interval. */
  #forDue = false;
  /** The last pause ended when a job fell due, and no drain call has answered since. */
  #wokeForDue = false;
  /** How much later than due to wake, ms. 0 after winning a job: otherwise all drains would ask for each job. */
  #backoff = 0;

  constructor(queues: readonly Queue[], signal: AbortSignal | undefined) {
    this.#queues = queues;
    this.#signal = signal;
    signal?.addEventListener('abort', () => this.#wake?.());
  }

  /** Sets the latest end of the next pause, by the monotonic clock, ms. */
  begin(end: number): void {
    this.#end = end;
    this.#forDue = false;
  }

  until(end: number): void {
    // False for NaN, too: anybody may publish anything on the wake channel.
    if (!(end < this.#end)) return;
    this.#end = end;
    this.#wake?.();
  }

  /** Learns from the answer of a drain call when there is something to take. */
  learn({ now, next, jobs }: Drained): void {
    this.#clockOffset = now - performance.now();
    if (jobs.length > 0) this.#backoff = 0;
    else if (this.#wokeForDue) {
      const [first, longest] = BACKOFF_MS;
      this.#backoff = Math.min(Math.max(2 * this.#backoff, first), longest * (0.5 + Math.random() / 2));
    }
    this.#wokeForDue = false;
    if (next !== undefined) this.#untilDue(next);
  }

  #untilDue(due: number): void {
    const end = due - this.#clockOffset + this.#backoff;
    if (end < this.#end) this.#forDue = true;
    this.until(end);
  }

  /** Waits until the pause ends, or the signal aborts. */
  async wait(): Promise<void> {
    this.listen();
    for (;;) {
      const ms = this.#end - performance.now();
      if (ms <= 0 || this.#signal?.aborted) break;
      await new Promise<void>((resolve) => {
        // Rounded up because timers fire early, and asking too early means asking twice.
        const timer = setTimeout(resolve, Math.ceil(ms));
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wake = undefined;
    }
    this.#wokeForDue = this.#forDue;
  }

  /** Subscribes to the wake channels of the queues. Does so again if the connection for it was lost. */
  listen(): void {
    const [first] = this.#queues;
    if (!first || this.#listener?.alive() || performance.now() < this.#listenAgain) return;
    this.#listenAgain = performance.now() + POLL_MS;
    const channels = this.#queues.map((queue) => queue.wakeChannel);
    this.#listener = first.redis.listen(channels, (due) => this.#untilDue(Number(due)));
  }

  close(): void {
    this.#listener?.close();
  }
}
