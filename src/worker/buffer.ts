import type { TakenJobs } from '../consume/leases.js';
import { SURPLUS_MS } from '../consume/takes.js';
import type { Job } from '../model/job.js';
import { type Clock, realClock } from '../model/time.js';
import type { Queue } from '../queue/queue.js';
import { MAX_CALL } from '../store/script.js';

/** The most jobs to prefetch: handlers work through those of one fetch while the next fetch is under way. */
const MAX_PREFETCH = 2 * MAX_CALL;

/** The most bytes of payloads in the buffer, and in a batch. */
const MAX_BYTES = 16 * 1024 * 1024;

/** Jobs that were prefetched and wait for a handler. Adapts how many to prefetch to the speed of the handlers. */
export class JobBuffer {
  readonly #waiting: { readonly job: Job; readonly queue: Queue; readonly since: number }[] = [];
  #bytes = 0;
  readonly #batch: number;
  readonly #concurrency: number;
  readonly #clock: Clock;
  /** How many handler calls to prefetch jobs for, beyond the running ones. */
  #prefetch: number;
  /** Buffer empty while a fetch was in flight: increase the prefetch. */
  #ranDry = false;

  constructor(concurrency: number, batch: number, clock: Clock = realClock) {
    this.#concurrency = concurrency;
    this.#batch = batch;
    this.#prefetch = concurrency;
    this.#clock = clock;
  }

  get length(): number {
    return this.#waiting.length;
  }

  /** The least number of handler calls that the waiting jobs suffice for. */
  get calls(): number {
    return Math.ceil(this.#waiting.length / this.#batch);
  }

  /** How many more jobs to fetch while `busy` handlers run. */
  room(busy: number): number {
    if (this.#bytes >= MAX_BYTES) return 0;
    return (this.#concurrency - busy + this.#prefetch) * this.#batch - this.#waiting.length;
  }

  /** The least room for which to call Redis. */
  get worthFetching(): number {
    return Math.max(1, Math.min((this.#prefetch * this.#batch) / 2, MAX_CALL));
  }

  /** Call this when a handler becomes free while a fetch is under way. */
  handlerFree(): void {
    this.#ranDry ||= this.#waiting.length === 0;
  }

  /** Adds what a fetch of up to `asked` jobs brought, and adapts the prefetch. */
  add({ queue, jobs, since }: TakenJobs, asked: number, busy: number): void {
    const max = Math.max(this.#concurrency, Math.ceil(MAX_PREFETCH / this.#batch));
    if (this.#ranDry && jobs.length >= asked) this.#prefetch = Math.min(this.#prefetch * 2, max);
    else if (this.#waiting.length > 0 && busy === this.#concurrency)
      this.#prefetch = Math.max(this.#concurrency, Math.floor(this.#prefetch * 0.75));
    this.#ranDry = false;
    for (const job of jobs) {
      this.#waiting.push({ job, queue: queue.whole, since });
      this.#bytes += job.payload.length;
    }
  }

  /**
   * Size of the next handler call, whose jobs are all of one queue; 0: none yet. `more`: a fetch will bring more jobs.
   */
  nextSize(more: boolean): number {
    const queue = this.#waiting[0]?.queue;
    let size = 0;
    while (size < this.#batch && size < this.#waiting.length && this.#waiting[size]?.queue === queue) size += 1;
    // Wait for a full batch only if more jobs are coming.
    return more && size === this.#waiting.length && size < this.#batch ? 0 : size;
  }

  take(size: number): { queue: Queue; jobs: Job[] } {
    const { queue } = this.#waiting[0] as { queue: Queue };
    return { queue, jobs: this.#remove(0, size) };
  }

  clear(): Job[] {
    return this.#remove(0);
  }

  /** The next job has waited too long. */
  get hasWaitedLong(): boolean {
    return this.#isLong(0);
  }

  #isLong(place: number): boolean {
    const job = this.#waiting[place];
    return job !== undefined && this.#clock.now() - job.since >= SURPLUS_MS;
  }

  /**
   * Removes and returns jobs that have waited too long and will not start soon, because handlers have become slow.
   * `all`: even those that are next in line.
   */
  takeSurplus(busy: number, all: boolean): Job[] {
    // Keep the next ones, which would be fetched again at once, unless fetching has ended.
    const keep = all ? 0 : (2 * this.#concurrency - busy) * this.#batch;
    if (!this.#isLong(keep)) return [];
    this.#prefetch = this.#concurrency;
    return this.#remove(keep);
  }

  #remove(start: number, size = this.#waiting.length): Job[] {
    const jobs = this.#waiting.splice(start, size).map(({ job }) => job);
    for (const { payload } of jobs) this.#bytes -= payload.length;
    return jobs;
  }
}
