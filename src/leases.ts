import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError, isDelayqError, isPassing } from './errors.js';
import type { Answer, Held, Job } from './job.js';
import type { NackOptions, Queue } from './queue.js';

/** Pauses between attempts to settle while Redis is in trouble, ms; the last repeats. */
const RETRY_MS = [50, 200, 500, 1_000];

/** The longest that a timer of Node takes, ms. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** What holds leases is told, and how long it tries to settle. */
export interface LeasesOptions {
  /** Hears of each job whose lease another drain has taken back. */
  readonly onLost?: (job: Job) => void;
  /** Hears that jobs cannot be settled now, and, with undefined, that they can again. */
  readonly onTrouble?: (error: DelayqError | undefined) => void;
  /** How long settling is tried while Redis is in trouble, ms; default: until {@link Leases.giveUpAfter}. */
  readonly patienceMs?: number;
}

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
  readonly #options: LeasesOptions;
  #renewing: Promise<void> = Promise.resolve();
  #giveUpAt = Number.POSITIVE_INFINITY;

  /** Jobs are held for `leaseMs` at a time. */
  constructor(leaseMs: number, options: LeasesOptions = {}) {
    this.#leaseMs = leaseMs;
    this.#options = options;
    this.#timer = setInterval(
      () => {
        this.#renewing = this.#renewing.then(() => this.#renewOlderThan(leaseMs / 3)).catch(() => {});
      },
      Math.min(Math.max(leaseMs / 9, 10), LONGEST_TIMER_MS),
    ).unref();
  }

  /** How many jobs are held. */
  get size(): number {
    return this.#held.size;
  }

  /** Takes over jobs of `queue` that were asked for at `since`, ms by the monotonic clock: their leases count from there. */
  hold(queue: Queue, jobs: readonly Job[], since: number = performance.now()): void {
    for (const job of jobs) this.#held.set(job, { queue, since });
  }

  /** Whether a job is still ours. */
  holds(job: Job): boolean {
    return this.#held.has(job);
  }

  /** Lets go of jobs without settling them: their leases run on. */
  forget(jobs: Iterable<Job>): void {
    for (const job of jobs) this.#held.delete(job);
  }

  /** Of `jobs`, those still ours: renews what is half spent first, as the process may have been suspended. */
  async fresh(jobs: readonly Job[]): Promise<readonly Job[]> {
    const limit = performance.now() - this.#leaseMs / 2;
    if (jobs.every((job) => (this.#held.get(job)?.since ?? Number.NEGATIVE_INFINITY) > limit)) return jobs;
    await this.#patiently(() => this.#renewOlderThan(this.#leaseMs / 2));
    return jobs.filter((job) => this.#held.has(job));
  }

  /** Marks the end: from here on settling is tried for `ms` more and then given up. */
  giveUpAfter(ms: number): void {
    this.#giveUpAt = Math.min(this.#giveUpAt, performance.now() + ms);
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
      let inDoubt = false;
      const answers = await this.#patiently(async () => {
        try {
          return await settle(queue, some);
        } catch (error) {
          inDoubt ||= isDelayqError(error, 'unknown');
          throw error;
        }
      });
      // After a reply that was lost, "lost" most likely means that the call had done its work.
      if (!inDoubt) lost += answers.filter((answer) => answer === 'lost').length;
      this.forget(some);
    }
    return lost;
  }

  async #patiently<T>(call: () => Promise<T>): Promise<T> {
    const end = performance.now() + (this.#options.patienceMs ?? Number.POSITIVE_INFINITY);
    for (let attempt = 0; ; attempt++) {
      try {
        const result = await call();
        if (attempt > 0) this.#options.onTrouble?.(undefined);
        return result;
      } catch (error) {
        const pause = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)] as number;
        if (!isPassing(error)) throw error;
        if (performance.now() + pause > Math.min(end, this.#giveUpAt)) throw this.#unsettled(error);
        if (attempt > 0) this.#options.onTrouble?.(error);
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
        if (answers[i] === 'lost') this.#options.onLost?.(job);
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
