import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError, isPassing } from './errors.js';
import type { Answer, Held, Job } from './job.js';
import type { NackOptions, Queue } from './queue.js';

/** Pauses between attempts to settle while Redis is in trouble, ms; the last repeats. */
const RETRY_MS = [50, 200, 500, 1_000];

interface Holding {
  readonly queue: Queue;
  /** When the lease was taken or renewed last, by the process's monotonic clock, ms. */
  since: number;
}

/**
 * The jobs that this process holds: renews their leases until they are settled, and settles them with patience when
 * Redis is in trouble. Monotonic time throughout, as the wall clock may jump.
 */
export class Leases {
  readonly #leaseMs: number;
  readonly #held = new Map<Job, Holding>();
  readonly #timer: NodeJS.Timeout;
  readonly #lost: (queue: Queue, job: Job) => void;
  #renewing: Promise<void> = Promise.resolve();
  #patience = Number.POSITIVE_INFINITY;

  /** Jobs are held for `leaseMs`. `onLost` hears of each whose lease another drain has taken back. */
  constructor(leaseMs: number, onLost: (queue: Queue, job: Job) => void) {
    this.#leaseMs = leaseMs;
    this.#lost = onLost;
    this.#timer = setInterval(
      () => {
        this.#renewing = this.#renewing.then(() => this.#renewOlderThan(leaseMs / 3)).catch(() => {});
      },
      Math.max(leaseMs / 9, 10),
    ).unref();
  }

  /** How many jobs are held. */
  get size(): number {
    return this.#held.size;
  }

  /** Takes over jobs that were drained just now from `queue`. */
  hold(queue: Queue, jobs: readonly Job[]): void {
    const since = performance.now();
    for (const job of jobs) this.#held.set(job, { queue, since });
  }

  /** Lets go of jobs without settling them: their leases run on. */
  forget(jobs: Iterable<Job>): void {
    for (const job of jobs) this.#held.delete(job);
  }

  /** Of `jobs`, those still ours: renews what is half spent first, as the process may have been suspended. */
  async fresh(jobs: readonly Job[]): Promise<readonly Job[]> {
    const limit = performance.now() - this.#leaseMs / 2;
    if (jobs.every((job) => (this.#held.get(job)?.since ?? Number.POSITIVE_INFINITY) > limit)) return jobs;
    await this.#renewOlderThan(this.#leaseMs / 2);
    return jobs.filter((job) => this.#held.has(job));
  }

  /** Marks the end: from here on settling is tried for `ms` more and then given up. */
  giveUpAfter(ms: number): void {
    this.#patience = Math.min(this.#patience, performance.now() + ms);
  }

  /** Removes jobs that are done. Returns how many were not ours any more and will come again or were taken by another. */
  async ack(jobs: readonly Job[]): Promise<number> {
    return this.#settle(jobs, (queue, some) => queue.ack(some));
  }

  /** Gives jobs back, counting nothing unless `options` say so. */
  async nack(jobs: readonly Job[], options: NackOptions = { mode: 'release' }): Promise<number> {
    return this.#settle(jobs, (queue, some) => queue.nack(some, options));
  }

  /** Gives back everything still held, counting nothing. */
  async releaseAll(): Promise<void> {
    await this.nack([...this.#held.keys()]);
  }

  /** Stops renewing. */
  close(): void {
    clearInterval(this.#timer);
  }

  async #settle(jobs: readonly Job[], settle: (queue: Queue, some: Held[]) => Promise<string[]>): Promise<number> {
    let lost = 0;
    for (const [queue, some] of this.#byQueue(jobs)) {
      const answers = await this.#patiently(() => settle(queue, some));
      lost += answers.filter((answer) => answer === 'lost').length;
      this.forget(some);
    }
    return lost;
  }

  async #patiently<T>(call: () => Promise<T>): Promise<T> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await call();
      } catch (error) {
        const pause = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)] as number;
        if (!isPassing(error)) throw error;
        if (performance.now() + pause > this.#patience) throw this.#unsettled(error);
        await sleep(pause);
      }
    }
  }

  #unsettled(error: DelayqError): DelayqError {
    return new DelayqError(
      'temporary',
      `${this.#held.size} jobs could not be settled; they come again when their leases end`,
      {
        why: error.why ?? error.message,
        next: error.next,
        cause: error,
      },
    );
  }

  async #renewOlderThan(ms: number): Promise<void> {
    const before = performance.now();
    const old = [...this.#held.entries()].filter(([, holding]) => before - holding.since >= ms).map(([job]) => job);
    for (const [queue, jobs] of this.#byQueue(old)) {
      const answers: Answer[] = await queue.renew(jobs, this.#leaseMs);
      for (const [i, job] of jobs.entries()) {
        const holding = this.#held.get(job);
        // Settled while the answer was on its way.
        if (!holding) continue;
        if (answers[i] === 'held') holding.since = before;
        else this.#held.delete(job);
        if (answers[i] === 'lost') this.#lost(queue, job);
      }
    }
  }

  #byQueue(jobs: readonly Job[]): Map<Queue, Job[]> {
    const groups = new Map<Queue, Job[]>();
    for (const job of jobs) {
      const queue = this.#held.get(job)?.queue;
      if (!queue) continue;
      const group = groups.get(queue);
      if (group) group.push(job);
      else groups.set(queue, [job]);
    }
    return groups;
  }
}
