import { Batcher } from '../../consume/batcher.js';
import { Waitlist, type WaitlistHost } from '../../consume/waitlist.js';
import type { Answer, Enqueued, Finished, Held, NewJob, Queue } from '../../index.js';
import type { Figures } from '../http/figures.js';
import { enqueueAll, REPEAT_MS } from './enqueue-all.js';
import { Turns } from './turns.js';
import { Watchlist } from './watchlist.js';

/** How long to try to give jobs back, ms; at most until the lease ends. */
const LONGEST_RELEASE_MS = 10_000;

/** Begins the names of all consumers that take jobs over HTTP, as they stand in leases. */
export const BY = 'http:';

/** An ack over HTTP needs no receipt: it counts for a lease that was taken over HTTP. */
export const FINISH = { by: BY, repeatMs: REPEAT_MS };

/** How many requests read payloads at a time: replies that this process has not read yet fill Redis's memory. */
const MAX_READS = 4;

/** A queue whose calls requests share. */
export class SharedQueue {
  readonly queue: Queue;
  readonly waitlist: Waitlist;
  readonly watchlist: Watchlist;
  readonly #host: WaitlistHost;
  readonly #figures: Figures;
  readonly #publishes: Batcher<NewJob, Enqueued>;
  readonly #finishes: Batcher<string, Finished>;
  readonly #acks: Batcher<Held, Answer>;
  readonly #takeBacks: Batcher<undefined, number>;
  /** The turns of requests that read payloads, besides takes. */
  readonly reads = new Turns(MAX_READS);

  constructor(queue: Queue, host: WaitlistHost, figures: Figures) {
    this.queue = queue;
    this.#host = host;
    this.#figures = figures;
    this.waitlist = new Waitlist(queue, host, (jobs, leaseMs) => this.release(jobs, leaseMs));
    this.watchlist = new Watchlist(queue, host, () => this.takeBack());
    this.#publishes = new Batcher((items) => enqueueAll(queue, items));
    this.#finishes = Batcher.of((ids) => queue.finish(ids, FINISH));
    this.#acks = Batcher.of((held) => queue.ack(held, { repeatMs: REPEAT_MS }));
    this.#takeBacks = Batcher.of(async (asked) => {
      const time = await queue.takeBack();
      return asked.map(() => time);
    });
  }

  /** Whether no request uses it. */
  get isIdle(): boolean {
    return [this.waitlist, this.watchlist, this.#publishes, this.#finishes, this.#acks, this.#takeBacks].every(
      (one) => one.isIdle,
    );
  }

  /** Throws what Queue.enqueue throws. */
  publish(job: NewJob): Promise<Enqueued> {
    return this.#publishes.add(job);
  }

  /** Ends all waits. */
  stop(): void {
    this.waitlist.stop();
    this.watchlist.stop();
  }

  /** Removes a job by its id. Throws what Queue.finish throws. */
  finish(id: string): Promise<Finished> {
    return this.#finishes.add(id);
  }

  /** Throws what Queue.ack throws. */
  ack(held: Held): Promise<Answer> {
    return this.#acks.add(held);
  }

  /** Takes back expired leases: call this before reporting on the queue. Returns the time of Redis's clock, ms. */
  takeBack(): Promise<number> {
    return this.#takeBacks.add(undefined);
  }

  /** Gives back undelivered jobs without counting. If Redis does not take them, their leases end. */
  release(jobs: readonly Held[], leaseMs: number): void {
    this.#figures.released += jobs.length;
    const until = performance.now() + Math.min(leaseMs, LONGEST_RELEASE_MS);
    this.#host.underWay.add(this.queue.nackWithin({ until: () => until }, jobs, { mode: 'back' }));
  }
}
