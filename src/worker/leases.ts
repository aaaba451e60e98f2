import { DelayqError, isDelayqError, isPassing } from '../model/errors.js';
import type { Answer, Given, Job, Nacked } from '../model/job.js';
import type { NackOptions, Queue } from '../queue/queue.js';
import { type RetryLimits, settleWithRetries, withRetries } from '../redis/retry.js';
import { MAX_CALL } from '../redis/script.js';
import { type OnTrouble, Outages } from './outages.js';

/** The longest that a timer of Node takes, ms. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** What holds leases is told, and how long it tries to settle. */
export interface LeasesOptions {
  /** Hears of each job whose lease another drain has taken back. */
  readonly onLost?: (job: Job) => void;
  /** Hears that jobs cannot be settled now, and, with undefined, that they can again. */
  readonly onTrouble?: OnTrouble | undefined;
  /** How long settling is tried while Redis is in trouble, ms; default: until {@link Leases.giveUpAfter}. */
  readonly retryMs?: number | undefined;
}

/** Jobs of one queue that were asked for at `since`, ms by the monotonic clock: their leases count from there. */
export interface Taken {
  readonly queue: Queue;
  readonly jobs: readonly Job[];
  readonly since: number;
  readonly leaseMs: number;
}

/** How a job is given back. */
export interface GiveBack {
  readonly job: Job;
  readonly delayMs?: number | undefined;
  readonly error?: string | undefined;
}

/** Of jobs that were taken or renewed by one call, the same object. */
interface Holding {
  readonly queue: Queue;
  readonly leaseMs: number;
  /** When the lease was taken or renewed last, by the process's monotonic clock, ms. */
  readonly since: number;
}

/**
 * The jobs that this process holds: renews their leases until they are settled, and settles them, with retries, when
 * Redis is in trouble. Monotonic time throughout, as the wall clock may jump.
 */
export class Leases {
  readonly #held = new Map<Job, Holding>();
  /** What became of leases that ended before their jobs were settled. */
  readonly #ended = new WeakMap<Job, 'lost' | 'superseded'>();
  readonly #options: LeasesOptions;
  #timer: NodeJS.Timeout | undefined;
  #tickMs = Number.POSITIVE_INFINITY;
  readonly #renewing = new Set<Queue>();
  #giveUpAt = Number.POSITIVE_INFINITY;
  /** Queues of the run that holds these leases which cannot be used now. */
  readonly outages = new Outages();

  constructor(options: LeasesOptions = {}) {
    this.#options = options;
  }

  /** How many jobs are held. */
  get size(): number {
    return this.#held.size;
  }

  /** Takes over jobs: holds and renews their leases from now on. */
  hold({ queue, jobs, since, leaseMs }: Taken): void {
    const holding: Holding = { queue, since, leaseMs };
    for (const job of jobs) this.#held.set(job, holding);
    const tickMs = Math.min(Math.max(leaseMs / 9, 10), LONGEST_TIMER_MS);
    if (tickMs >= this.#tickMs) return;
    clearInterval(this.#timer);
    this.#tickMs = tickMs;
    this.#timer = setInterval(() => this.#tick(), tickMs).unref();
  }

  #tick(): void {
    for (const [queue, spent] of this.#spent(1 / 3)) {
      // A queue that is slow must not keep the others from being renewed.
      if (this.#renewing.has(queue)) continue;
      this.#renewing.add(queue);
      // What fails now is tried again at the next tick; that Redis is in trouble those say who wait for it.
      this.#renew(queue, spent)
        .catch(() => {})
        .finally(() => this.#renewing.delete(queue));
    }
  }

  /** Whether a job is still ours. */
  holds(job: Job): boolean {
    return this.#held.has(job);
  }

  /** Lets go of jobs without settling them: their leases run on. */
  forget(jobs: Iterable<Job>): void {
    for (const job of jobs) this.#held.delete(job);
  }

  /** Whether all of `jobs` are ours with less than half of their leases spent. */
  areFresh(jobs: readonly Job[]): boolean {
    const now = performance.now();
    return jobs.every((job) => {
      const holding = this.#held.get(job);
      return holding !== undefined && now - holding.since < holding.leaseMs / 2;
    });
  }

  /**
   * Of `jobs`, those still ours: renews what is half spent first, as the process may have been suspended. While others
   * of the run's queues can be used, those of one that cannot are no longer ours.
   */
  async fresh(jobs: readonly Job[]): Promise<readonly Job[]> {
    if (this.areFresh(jobs)) return jobs;
    const queues = new Set(jobs.map((job) => this.#held.get(job)?.queue));
    const renew = async (queue: Queue) => {
      const renewed = () => this.#renew(queue, this.#spent(1 / 2).get(queue) ?? []);
      await this.#trying(() => withRetries(renewed, this.#retryLimits())).catch((error: unknown) => {
        if (!this.#goesOn(queue, error)) throw error;
        this.forget(jobs.filter((job) => this.#held.get(job)?.queue === queue));
      });
    };
    await Promise.all([...queues].map((queue) => queue && renew(queue)));
    return jobs.filter((job) => this.#held.has(job));
  }

  /** Whether a run can go on without a queue that has failed: others are well, and it is not all of Redis. */
  #goesOn(queue: Queue, error: unknown, settling?: boolean): boolean {
    return isDelayqError(error) && !isPassing(error) && this.outages.failed(queue, error, settling);
  }

  /** Marks the end: from here on settling is tried for `ms` more and then given up, whatever Redis does. */
  giveUpAfter(ms: number): void {
    this.#giveUpAt = Math.min(this.#giveUpAt, performance.now() + ms);
  }

  /** When to stop waiting for Redis, by the monotonic clock, ms. */
  get giveUpAt(): number {
    return this.#giveUpAt;
  }

  /** Removes jobs that are done. Answers come in the order of the jobs. */
  async ack(jobs: readonly Job[]): Promise<Answer[]> {
    const items = jobs.map((job) => ({ job }));
    return this.#settle<Answer>(
      items,
      (queue, some) => queue.ack(some),
      (gone) => gone,
    );
  }

  /** Gives jobs back, counting nothing unless `options` say so. Answers come in the order of the jobs. */
  async nack(jobs: readonly GiveBack[], options: NackOptions = { mode: 'release' }): Promise<Nacked[]> {
    return this.#settle<Nacked>(
      jobs,
      (queue, some) => queue.nack(some, options),
      (answer) => ({ answer, delayMs: 0 }),
    );
  }

  /** Gives jobs back as if they had never been taken. */
  async release(jobs: Iterable<Job>): Promise<Nacked[]> {
    return this.nack([...jobs].map((job) => ({ job })));
  }

  /** Gives back everything still held, counting nothing. */
  async releaseAll(): Promise<void> {
    await this.release(this.#held.keys());
  }

  /** Stops renewing. */
  close(): void {
    clearInterval(this.#timer);
    this.#tickMs = 0;
  }

  /** Settles jobs, a queue at a time; `gone` is the answer for a job whose lease had ended before. */
  async #settle<A extends Answer | Nacked>(
    items: readonly GiveBack[],
    call: (queue: Queue, some: Given[]) => Promise<A[]>,
    gone: (why: 'lost' | 'superseded') => A,
  ): Promise<A[]> {
    const answers: A[] = [];
    const settleOf = async (queue: Queue | undefined, places: number[]): Promise<void> => {
      // In calls of their own, so that what was answered need not be asked again when a later one fails.
      for (let i = 0; queue && i < places.length; i += MAX_CALL) {
        const some = places.slice(i, i + MAX_CALL);
        const given = some.map((place) => {
          const { job, delayMs, error } = items[place] as GiveBack;
          return { id: job.id, receipt: job.receipt, delayMs, error };
        });
        const told = await this.#trying(() => settleWithRetries(() => call(queue, given), this.#retryLimits())).catch(
          (error: unknown) => {
            if (!this.#goesOn(queue, error, true)) throw error;
          },
        );
        if (!told) {
          // They come again when their leases end.
          this.forget(places.slice(i).map((place) => (items[place] as GiveBack).job));
          return;
        }
        this.outages.settled(queue);
        some.forEach((place, n) => {
          answers[place] = told[n] as A;
          this.#held.delete((items[place] as GiveBack).job);
        });
      }
    };
    // One queue that is in trouble must not keep the jobs of others.
    const groups = groupBy(items.keys(), (place) => this.#held.get((items[place] as GiveBack).job)?.queue);
    const ended = await Promise.allSettled([...groups].map(([queue, some]) => settleOf(queue, some)));
    for (const one of ended) if (one.status === 'rejected') throw one.reason;
    return items.map(({ job }, place) => answers[place] ?? gone(this.#ended.get(job) ?? 'lost'));
  }

  #retryLimits(): RetryLimits {
    const end = performance.now() + (this.#options.retryMs ?? Number.POSITIVE_INFINITY);
    const giveUpAt = () => this.#giveUpAt;
    return { until: () => Math.min(end, this.#giveUpAt), giveUpAt, onTrouble: this.#options.onTrouble };
  }

  async #trying<T>(call: () => Promise<T>): Promise<T> {
    try {
      return await call();
    } catch (error) {
      if (!isPassing(error)) throw error;
      const what = `${this.#held.size} jobs could not be settled; they come again when their leases end`;
      throw new DelayqError('temporary', what, { why: error.why ?? error.message, next: error.next, cause: error });
    }
  }

  /** What is held of which `share` of the lease is spent, by queue. */
  #spent(share: number): Map<Queue, [Job, Holding][]> {
    const now = performance.now();
    const spent = [...this.#held].filter(([, { since, leaseMs }]) => now - since >= leaseMs * share);
    return groupBy(spent, ([, { queue }]) => queue);
  }

  async #renew(queue: Queue, spent: readonly [Job, Holding][]): Promise<void> {
    for (const [leaseMs, some] of groupBy(spent, ([, holding]) => holding.leaseMs)) {
      const jobs = some.map(([job]) => job);
      const renewed: Holding = { queue, leaseMs, since: performance.now() };
      const answers = await queue.renew(jobs, leaseMs);
      for (const [i, job] of jobs.entries()) this.#renewed(job, answers[i] as Answer, renewed);
    }
  }

  #renewed(job: Job, answer: Answer, renewed: Holding): void {
    // Settled while the answer was on its way.
    if (!this.#held.has(job)) return;
    if (answer === 'held') {
      this.#held.set(job, renewed);
      return;
    }
    this.#held.delete(job);
    this.#ended.set(job, answer);
    if (answer === 'lost') this.#options.onLost?.(job);
    // Removes the mark by which superseded is told from lost: we know now, and nobody else will ask.
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
