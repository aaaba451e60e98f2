import { DelayqError, isDelayqError, isPassing } from '../model/errors.js';
import type { Answer, Job, Nacked } from '../model/job.js';
import { many } from '../model/text.js';
import { type Clock, realClock } from '../model/time.js';
import type { Queue } from '../queue/queue.js';
import { type RetryLimits, withRetries } from '../redis/retry.js';
import type { NackOptions } from '../store/settle.js';
import { Outages } from './outages.js';
import type { OnTrouble } from './trouble.js';

/** Callbacks, retry limit and clock for {@link Leases}. */
export interface LeasesOptions {
  /** Called when a lease has expired and another drain has taken the job. */
  readonly onLost?: (job: Job) => void;
  /** Called with an error when jobs cannot be settled, and with undefined when they can again. */
  readonly onTrouble?: OnTrouble | undefined;
  /** How long to retry settling while Redis is in trouble, ms; default: until {@link Leases.giveUpAfter}. */
  readonly retryMs?: number | undefined;
  /** Decides when to renew; default: the monotonic clock. */
  readonly clock?: Clock | undefined;
}

/** Jobs that one drain call took. */
export interface TakenJobs {
  /** The queue, or the partition of it, that they were taken from. */
  readonly queue: Queue;
  readonly jobs: readonly Job[];
  /** When the call was sent, by the clock of {@link Leases}, ms. The leases are counted from here, to be on the safe side. */
  readonly since: number;
  readonly leaseMs: number;
}

export interface GiveBack {
  readonly job: Job;
  /** Delay until it is due again, ms. */
  readonly delayMs?: number | undefined;
  readonly error?: string | undefined;
}

/** A job that is done. Of a queue that keeps that: how long its handler ran, ms, and what came out. */
interface Done {
  readonly job: Job;
  readonly ms?: number;
  readonly result?: string | undefined;
}

/** A lease. All jobs that one call took or renewed share one object. */
interface Lease {
  readonly queue: Queue;
  readonly leaseMs: number;
  /** When it was taken or last renewed, by the clock, ms. */
  readonly since: number;
}

/**
 * The leases that this process holds. Renews them until their jobs are settled, and settles jobs, with retries while
 * Redis is in trouble.
 */
export class Leases {
  readonly #held = new Map<Job, Lease>();
  /** Why leases ended before their jobs were settled. */
  readonly #ended = new WeakMap<Job, 'lost' | 'superseded'>();
  readonly #options: LeasesOptions;
  readonly #clock: Clock;
  #tickMs = Number.POSITIVE_INFINITY;
  #cancelTick = () => {};
  readonly #renewing = new Set<Queue>();
  /** When to give up settling, by the clock, ms. */
  giveUpAt = Number.POSITIVE_INFINITY;
  /** Called when jobs of a queue were settled. */
  onSettled: ((queue: Queue) => void) | undefined;
  /** Queues that cannot be used for now. */
  readonly outages: Outages;

  constructor(options: LeasesOptions = {}) {
    this.#options = options;
    this.#clock = options.clock ?? realClock;
    this.outages = new Outages(this.#clock);
  }

  get size(): number {
    return this.#held.size;
  }

  /** Adds jobs: from now on their leases are renewed, once a third of their time has passed. */
  hold({ queue, jobs, since, leaseMs }: TakenJobs): void {
    const lease: Lease = { queue, since, leaseMs };
    for (const job of jobs) this.#held.set(job, lease);
    const tickMs = Math.max(leaseMs / 9, 10);
    if (tickMs >= this.#tickMs) return;
    this.#cancelTick();
    this.#tickMs = tickMs;
    this.#tickLater();
  }

  #tickLater(): void {
    this.#cancelTick = this.#clock.after(this.#tickMs, () => this.#tick(), { ref: false });
  }

  #tick(): void {
    this.#tickLater();
    for (const [queue, due] of this.#olderThan(1 / 3)) {
      // Each queue on its own: a slow one must not delay the renewal of others.
      if (this.#renewing.has(queue)) continue;
      this.#renewing.add(queue);
      // The next tick retries. Trouble with Redis is reported by the calls that wait for it.
      this.#renew(queue, due)
        .catch(() => {})
        .finally(() => this.#renewing.delete(queue));
    }
  }

  holds(job: Job): boolean {
    return this.#held.has(job);
  }

  /** The queue, or its partition, that a job was taken from; undefined if its lease is not held. */
  queueOf(job: Job): Queue | undefined {
    return this.#held.get(job)?.queue;
  }

  /** Drops jobs without settling them. Their leases expire in their own time. */
  forget(jobs: Iterable<Job>): void {
    for (const job of jobs) this.#held.delete(job);
  }

  /** Whether all leases of `jobs` are held and less than half of their time has passed. */
  areFresh(jobs: readonly Job[]): boolean {
    const now = this.#clock.now();
    for (const job of jobs) {
      const lease = this.#held.get(job);
      if (!lease || now - lease.since >= lease.leaseMs / 2) return false;
    }
    return true;
  }

  /**
   * Returns those of `jobs` whose leases are still held. First renews leases that are half over, because the process
   * may have been suspended. If a queue fails while others work, its jobs are dropped; otherwise this throws its error.
   */
  async fresh(jobs: readonly Job[]): Promise<readonly Job[]> {
    if (this.areFresh(jobs)) return jobs;
    const queues = new Set(jobs.map((job) => this.#held.get(job)?.queue));
    const renew = async (queue: Queue) => {
      const renewed = () => this.#renew(queue, this.#olderThan(1 / 2).get(queue) ?? []);
      await this.#explain(() => withRetries(renewed, this.#retryLimits())).catch((error: unknown) => {
        if (!this.#canContinue(queue, error)) throw error;
        this.forget(jobs.filter((job) => this.#held.get(job)?.queue === queue));
      });
    };
    await Promise.all([...queues].map((queue) => queue && renew(queue)));
    return jobs.filter((job) => this.#held.has(job));
  }

  /** Whether the run can continue with other queues after this one has failed. */
  #canContinue(queue: Queue, error: unknown, settling?: boolean): boolean {
    return isDelayqError(error) && !isPassing(error) && this.outages.failed(queue, error, settling);
  }

  /** Gives up settling `ms` from now, whatever the state of Redis. */
  giveUpAfter(ms: number): void {
    this.giveUpAt = Math.min(this.giveUpAt, this.#clock.now() + ms);
  }

  /** Removes jobs that are done. The answers are in the order of the jobs. */
  async ack(jobs: readonly Done[]): Promise<Answer[]> {
    const call = (queue: Queue, some: Done[]) => {
      const done = some.map(({ job, ms, result }) =>
        job.keepsResult ? { id: job.id, receipt: job.receipt, tookMs: ms, result } : job,
      );
      return queue.ackWithin(this.#retryLimits(), done);
    };
    return this.#settle<Answer, Done>(jobs, call, (gone) => gone);
  }

  /** Gives jobs back. The answers are in the order of the jobs. */
  async nack(jobs: readonly GiveBack[], options: NackOptions): Promise<Nacked[]> {
    const call = (queue: Queue, some: GiveBack[]) => {
      const given = some.map(({ job: { id, receipt }, delayMs, error }) => ({ id, receipt, delayMs, error }));
      return queue.nackWithin(this.#retryLimits(), given, options);
    };
    return this.#settle<Nacked>(jobs, call, (answer) => ({ answer, delayMs: 0 }));
  }

  /** Gives jobs back as if they had never been taken. */
  async release(jobs: Iterable<Job>): Promise<Nacked[]> {
    return this.nack(
      [...jobs].map((job) => ({ job })),
      { mode: 'back' },
    );
  }

  async releaseAll(): Promise<void> {
    await this.release(this.#held.keys());
  }

  close(): void {
    this.#cancelTick();
    this.#tickMs = 0;
  }

  /** Settles jobs, each queue on its own. `gone` makes the answer for a job whose lease has already ended. */
  async #settle<A extends Answer | Nacked, I extends GiveBack = GiveBack>(
    items: readonly I[],
    call: (queue: Queue, some: I[]) => Promise<A[]>,
    gone: (why: 'lost' | 'superseded') => A,
  ): Promise<A[]> {
    const answers = new Array<A | undefined>(items.length);
    const settleOf = async (queue: Queue | undefined, indexes: number[]): Promise<void> => {
      if (!queue) return;
      const some = indexes.map((i) => items[i] as I);
      const settled = await this.#explain(() => call(queue, some)).catch((error: unknown) => {
        if (!this.#canContinue(queue, error, true)) throw error;
      });
      // If there is no answer, they are delivered again when their leases expire.
      for (const [n, { job }] of some.entries()) {
        if (settled) answers[indexes[n] as number] = settled[n];
        this.#held.delete(job);
      }
      if (!settled) return;
      this.outages.settled(queue);
      this.onSettled?.(queue);
    };
    // All queues at once: one that is in trouble must not delay the jobs of others.
    const groups = groupBy(items.keys(), (i) => this.#held.get((items[i] as I).job)?.queue);
    const ended = await Promise.allSettled([...groups].map(([queue, indexes]) => settleOf(queue, indexes)));
    for (const one of ended) if (one.status === 'rejected') throw one.reason;
    return items.map(({ job }, i) => answers[i] ?? gone(this.#ended.get(job) ?? 'lost'));
  }

  #retryLimits(): RetryLimits {
    const end = this.#clock.now() + (this.#options.retryMs ?? Number.POSITIVE_INFINITY);
    const giveUpAt = () => this.giveUpAt;
    return { until: () => Math.min(end, this.giveUpAt), giveUpAt, onTrouble: this.#options.onTrouble };
  }

  /** Adds what happens to the jobs to an error that did not pass in time. */
  async #explain<T>(call: () => Promise<T>): Promise<T> {
    try {
      return await call();
    } catch (error) {
      if (!isPassing(error)) throw error;
      const what = `could not settle ${many(this.#held.size, 'job')}: delivered again when their leases expire`;
      throw new DelayqError('temporary', what, { why: error.why ?? error.what, next: error.next, cause: error });
    }
  }

  /** Leases of which this share of the time has passed, by queue. */
  #olderThan(share: number): Map<Queue, [Job, Lease][]> {
    const now = this.#clock.now();
    const old = [...this.#held].filter(([, { since, leaseMs }]) => now - since >= leaseMs * share);
    return groupBy(old, ([, { queue }]) => queue);
  }

  async #renew(queue: Queue, leases: readonly [Job, Lease][]): Promise<void> {
    for (const [leaseMs, some] of groupBy(leases, ([, lease]) => lease.leaseMs)) {
      const jobs = some.map(([job]) => job);
      const renewed: Lease = { queue, leaseMs, since: this.#clock.now() };
      const answers = await queue.renew(jobs, leaseMs);
      for (const [i, job] of jobs.entries()) this.#renewed(job, answers[i] as Answer, renewed);
    }
  }

  #renewed(job: Job, answer: Answer, renewed: Lease): void {
    // Settled in the meantime.
    if (!this.#held.has(job)) return;
    if (answer === 'held') {
      this.#held.set(job, renewed);
      return;
    }
    this.#held.delete(job);
    this.#ended.set(job, answer);
    if (answer === 'lost') this.#options.onLost?.(job);
    // Removes the mark in Redis that tells superseded from lost. Nobody else will ask for it.
    else renewed.queue.ack([job]).catch(() => {});
  }
}

function groupBy<T, K>(items: Iterable<T>, keyOf: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group) group.push(item);
    else groups.set(key, [item]);
  }
  return groups;
}
