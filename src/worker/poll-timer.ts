import type { Queue } from '../queue/queue.js';
import { POLL_MS } from '../redis/keys.js';
import type { Drained } from '../scripts/jobs.js';

/**
 * Backoff after losing the race for a job: the first delay and the longest, ms. Each lost race doubles the delay. This
 * is enough for the winner to be done, and it bounds how late a job is if the winner is gone.
 */
const BACKOFF_MS = [1, 16] as const;

/** When to look at a queue next. */
interface Look {
  /** By the monotonic clock, ms. */
  readonly at: number;
  /** Something falls due then. Otherwise the poll interval ends. */
  readonly forDue: boolean;
}

/** Decides when to look at which queue: when something falls due in it, and at the latest after a poll interval. */
export class PollTimer {
  readonly #queues: readonly Queue[];
  readonly #watch: boolean;
  readonly #end: number;
  readonly #signal: AbortSignal | undefined;
  readonly #looks = new Map<Queue, Look>();
  /** Ends the pause so that the times are looked at again. */
  #wake: (() => void) | undefined;
  #listener: ReturnType<Queue['redis']['listen']> | undefined;
  #listenAgain = 0;
  /** Redis's clock minus the monotonic clock, ms. Before the first answer, each message asks for a look at once. */
  #clockOffset = Number.POSITIVE_INFINITY;
  /** The last pause ended when a job fell due, and no drain call has answered since. */
  #wokeForDue = false;
  /** How much later than due to wake, ms. 0 after winning a job: otherwise all drains would ask for each job. */
  #backoff = 0;

  /** Times are by the monotonic clock, ms. Without `watch` a queue is looked at again only if there is more in it. */
  constructor(queues: readonly Queue[], watch: boolean, end: number, signal: AbortSignal | undefined) {
    this.#queues = queues;
    this.#watch = watch;
    this.#end = end;
    this.#signal = signal;
    for (const queue of queues) this.lookAt(queue, 0);
    signal?.addEventListener('abort', () => this.#wake?.());
  }

  isTime(queue: Queue): boolean {
    return (this.#looks.get(queue) as Look).at <= performance.now();
  }

  lookAt(queue: Queue, at: number): void {
    this.#looks.set(queue, { at, forDue: false });
  }

  /** Plans a look after the poll interval. Call this before each look: messages from then on may be news to its answer. */
  planPoll(queue: Queue): void {
    const now = performance.now();
    this.lookAt(queue, this.#watch && now < this.#end ? Math.min(this.#end, now + POLL_MS) : Number.POSITIVE_INFINITY);
  }

  /** Learns from the answer of a drain call what time it is for Redis, and whether another drain was faster. */
  learn({ now, jobs }: Drained): void {
    this.#clockOffset = now - performance.now();
    if (jobs.length > 0) this.#backoff = 0;
    else if (this.#wokeForDue) {
      const [first, longest] = BACKOFF_MS;
      this.#backoff = Math.min(Math.max(2 * this.#backoff, first), longest * (0.5 + Math.random() / 2));
    }
    this.#wokeForDue = false;
  }

  /** Plans the next look at a queue by the last answer about it. */
  plan(queue: Queue, { state, next }: Drained): void {
    // Queues with priority are asked again before the next batch of this one.
    const before = this.#queues.slice(0, this.#queues.indexOf(queue) + 1);
    if (state === 'more') for (const one of before) this.lookAt(one, 0);
    else if (next !== undefined && this.#watch) this.#untilDue(queue, next);
  }

  #untilDue(queue: Queue, due: number): void {
    const at = due - this.#clockOffset + this.#backoff;
    // False for NaN, too: anybody may publish anything on the wake channel.
    if (!(at < (this.#looks.get(queue) as Look).at)) return;
    this.#looks.set(queue, { at, forDue: true });
    this.#wake?.();
  }

  /** Waits until it is time to look at a queue, or the signal aborts. */
  async wait(): Promise<void> {
    this.listen();
    for (;;) {
      const soonest = [...this.#looks.values()].reduce((one, other) => (other.at < one.at ? other : one));
      const ms = soonest.at - performance.now();
      this.#wokeForDue = soonest.forDue;
      if (ms <= 0 || this.#signal?.aborted) return;
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
  }

  /** Subscribes to the wake channels of the queues. Does so again if the connection for it was lost. */
  listen(): void {
    const [first] = this.#queues;
    if (!first || this.#listener?.alive() || performance.now() < this.#listenAgain) return;
    this.#listenAgain = performance.now() + POLL_MS;
    const channels = this.#queues.map((queue) => queue.wakeChannel);
    this.#listener = first.redis.listen(channels, (_, due) => {
      for (const queue of this.#queues) this.#untilDue(queue, Number(due));
    });
  }

  close(): void {
    this.#listener?.close();
  }
}
