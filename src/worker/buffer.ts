import type { Job } from '../model/job.js';
import type { Queue } from '../queue/queue.js';
import { MAX_CALL } from '../redis/script.js';
import type { Taken } from './leases.js';

/** The most jobs that wait in line behind the running handlers: while one call's are handled the next call's come. */
const MOST_AHEAD = 2 * MAX_CALL;

/** With so many bytes of payload the line is long enough, and so is a batch that is made of it. */
const ENOUGH_BYTES = 16 * 1024 * 1024;

/** How long jobs may wait in line before all but the next ones are given back for others to take, ms. */
export const SURPLUS_MS = 1_000;

/** Jobs that were taken and wait for a handler, and how many of them there should be. */
export class Line {
  readonly #waiting: { readonly job: Job; readonly queue: Queue; readonly since: number }[] = [];
  /** How large their payloads are. */
  #bytes = 0;
  /** Jobs for one call of the handler, and calls at once. */
  readonly #batch: number;
  readonly #concurrency: number;
  /** Calls of the handler that may be in line: grows while handlers wait for jobs that are there to be taken. */
  #ahead: number;
  /** A handler was done, and nobody was in line although jobs were on their way: too few were asked for, maybe. */
  #hungry = false;

  constructor(concurrency: number, batch: number) {
    this.#concurrency = concurrency;
    this.#batch = batch;
    this.#ahead = concurrency;
  }

  get length(): number {
    return this.#waiting.length;
  }

  /** How many more jobs there should be while `busy` handlers run. */
  wanted(busy: number): number {
    if (this.#bytes >= ENOUGH_BYTES) return 0;
    return (this.#concurrency - busy + this.#ahead) * this.#batch - this.#waiting.length;
  }

  /** How many must be wanted for a call of Redis to be worth it. */
  get worthAsking(): number {
    return Math.max(1, Math.min((this.#ahead * this.#batch) / 2, MAX_CALL));
  }

  /** A handler is done while jobs are on their way. */
  handlerFree(): void {
    this.#hungry ||= this.#waiting.length === 0;
  }

  /** Lines up what a call for `asked` jobs has brought, and learns from it how many to ask for. */
  add({ queue, jobs, since }: Taken, asked: number, busy: number): void {
    const most = Math.max(this.#concurrency, Math.ceil(MOST_AHEAD / this.#batch));
    if (this.#hungry && jobs.length >= asked) this.#ahead = Math.min(this.#ahead * 2, most);
    else if (this.#waiting.length > 0 && busy === this.#concurrency)
      this.#ahead = Math.max(this.#concurrency, Math.floor(this.#ahead * 0.75));
    this.#hungry = false;
    for (const job of jobs) {
      this.#waiting.push({ job, queue, since });
      this.#bytes += job.payload.length;
    }
  }

  /** How many jobs make the next call of the handler: those of one queue; 0 for none yet. `more` are on their way. */
  nextSize(more: boolean): number {
    const queue = this.#waiting[0]?.queue;
    let size = 0;
    while (size < this.#batch && size < this.#waiting.length && this.#waiting[size]?.queue === queue) size += 1;
    // A batch waits to be full only while more is coming.
    return more && size === this.#waiting.length && size < this.#batch ? 0 : size;
  }

  /** Takes the first jobs out of the line. */
  take(size: number): { queue: Queue; jobs: Job[] } {
    const { queue } = this.#waiting[0] as { queue: Queue };
    return { queue, jobs: this.#cut(0, size) };
  }

  /** Takes all jobs out of the line. */
  clear(): Job[] {
    return this.#cut(0);
  }

  /** Takes jobs out of the line that have waited long and will not start soon, as handlers have become slow. */
  surplus(busy: number): Job[] {
    // What would be taken in any case stays.
    const next = (2 * this.#concurrency - busy) * this.#batch;
    const first = this.#waiting[next];
    if (!first || performance.now() - first.since < SURPLUS_MS) return [];
    this.#ahead = this.#concurrency;
    return this.#cut(next);
  }

  #cut(start: number, size = this.#waiting.length): Job[] {
    const jobs = this.#waiting.splice(start, size).map(({ job }) => job);
    for (const { payload } of jobs) this.#bytes -= payload.length;
    return jobs;
  }
}
