import { setTimeout as sleep } from 'node:timers/promises';
import {
  type Answer,
  type Enqueued,
  type Finished,
  type Held,
  isPassing,
  type NewJob,
  type Queue,
} from '../../index.js';
import { Batcher } from './batcher.js';
import { enqueueAll, REPEAT_MS } from './enqueue-all.js';
import { Turns } from './turns.js';
import { type Shared, tracked, Waitlist } from './waitlist.js';

/** Pauses between attempts to give jobs back, ms. The last one repeats. */
const RELEASE_MS = [50, 200, 500, 1_000];

/** How long to try, ms; at most until the lease ends. */
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
  readonly #shared: Shared;
  readonly #publishes: Batcher<NewJob, Enqueued>;
  readonly #finishes: Batcher<string, Finished>;
  readonly #acks: Batcher<Held, Answer>;
  readonly #takeBacks: Batcher<undefined, number>;
  /** The turns of requests that read payloads, besides takes. */
  readonly reads = new Turns(MAX_READS);

  constructor(queue: Queue, shared: Shared) {
    this.queue = queue;
    this.#shared = shared;
    this.waitlist = new Waitlist(queue, shared, (jobs, leaseMs) => this.release(jobs, leaseMs));
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
    return [this.waitlist, this.#publishes, this.#finishes, this.#acks, this.#takeBacks].every((one) => one.isIdle);
  }

  /** Throws what Queue.enqueue throws. */
  publish(job: NewJob): Promise<Enqueued> {
    return this.#publishes.add(job);
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
    const { underWay, figures } = this.#shared;
    figures.released += jobs.length;
    tracked(underWay, this.#giveBack(jobs, performance.now() + Math.min(leaseMs, LONGEST_RELEASE_MS)));
  }

  async #giveBack(jobs: readonly Held[], until: number): Promise<void> {
    for (let attempt = 0; ; attempt++) {
      try {
        await this.queue.nack(jobs, { mode: 'release' });
        return;
      } catch (error) {
        const pause = RELEASE_MS[Math.min(attempt, RELEASE_MS.length - 1)] as number;
        if (!isPassing(error) || performance.now() + pause > until) return;
        await sleep(pause);
      }
    }
  }
}
