import type { TakenJobs } from '../consume/leases.js';
import { SURPLUS_MS } from '../consume/takes.js';
import type { Job } from '../model/job.js';
import { type Clock, realClock } from '../model/time.js';
import type { Queue } from '../queue/queue.js';
import type { Drained } from '../store/jobs.js';
import { MAX_CALL } from '../store/script.js';

/** The most leases a worker holds besides those of running handlers, jobs that are being settled included. */
const MAX_HELD = 5_000;

/** The most jobs to prefetch: handlers work through those of one fetch while the next fetch is under way. */
const MAX_PREFETCH = 2 * MAX_CALL;

/** The most bytes of payloads in the buffer, and in a batch. */
const MAX_BYTES = 16 * 1024 * 1024;

/** What a worker does next. */
export type Action =
  | { readonly do: 'fetch' }
  | { readonly do: 'start'; readonly queue: Queue; readonly jobs: readonly Job[] }
  | { readonly do: 'giveBack'; readonly jobs: readonly Job[] }
  | { readonly do: 'end' };

interface FlowOptions {
  readonly concurrency: number;
  readonly batch: number;
  readonly watch: boolean;
  readonly limit?: number | undefined;
}

/** What a {@link Flow} asks before it decides. */
interface Limits {
  /** How many handler calls the circuit lets start, and whether it is open. */
  readonly circuit: { readonly calls: number; readonly isOpen: boolean };
  /** How many the throttle lets start; `mayStart` counts a start. */
  readonly throttle: { readonly calls: number; mayStart(): boolean };
  /** How many leases are held. */
  held(): number;
  /** Jobs are on their way back: the last fetch must not overtake them, or it would miss them. */
  isGivingBack(): boolean;
}

/**
 * Where the jobs of a worker are: in the fetch under way, in the buffer, or with handlers. Decides what to do next:
 * {@link Flow.next}, called until there is nothing to do, after whatever has changed. Adapts how many jobs to prefetch
 * to the speed of the handlers.
 */
export class Flow {
  readonly #options: FlowOptions;
  readonly #limits: Limits;
  readonly #clock: Clock;
  /** The buffer: jobs that wait for a handler. */
  readonly #waiting: { readonly job: Job; readonly queue: Queue; readonly since: number }[] = [];
  #bytes = 0;
  /** How many handler calls to prefetch jobs for, beyond the running ones. */
  #prefetch: number;
  /** Buffer empty while a fetch was under way: increase the prefetch. */
  #ranDry = false;
  /** How many jobs the fetch under way has asked for; 0: none is under way. */
  #fetching = 0;
  /** The last fetch said that there are more jobs to take. */
  #hasMore = false;
  /** Queues with limits: no job is fetched from them before it can start. */
  readonly #limited = new Set<Queue>();
  /** Handler calls that run or are about to. */
  #busy = 0;
  /** Handlers are so slow that other drains should have the next jobs. */
  #isSlow = false;
  /** Fetching goes on, has found all jobs, or was stopped. */
  #state: 'fetching' | 'drained' | 'stopped' = 'fetching';

  constructor(options: FlowOptions, limits: Limits, clock: Clock = realClock) {
    this.#options = options;
    this.#limits = limits;
    this.#clock = clock;
    this.#prefetch = options.concurrency;
  }

  get isStopped(): boolean {
    return this.#state === 'stopped';
  }

  get isDrained(): boolean {
    return this.#state === 'drained';
  }

  get busy(): number {
    return this.#busy;
  }

  next(): Action | undefined {
    const { circuit, throttle } = this.#limits;
    // Fetch first: a batch that is not full waits for jobs that are on their way.
    if (this.#shouldFetch()) {
      this.#fetching = this.batch;
      return { do: 'fetch' };
    }
    if (!this.isStopped && this.#busy < this.#options.concurrency) {
      const size = this.#nextSize;
      if (size > 0 && circuit.calls > 0 && throttle.mayStart()) {
        this.#busy += 1;
        const { queue } = this.#waiting[0] as { queue: Queue };
        return { do: 'start', queue, jobs: this.#remove(0, size) };
      }
    }
    if (circuit.calls === 0 && this.#waiting.length > 0) return { do: 'giveBack', jobs: this.#remove(0) };
    const isIdle = this.#busy === 0 && this.#waiting.length === 0 && this.#fetching === 0;
    return isIdle && this.#state !== 'fetching' ? { do: 'end' } : undefined;
  }

  /** How many jobs to ask for, at most. */
  get batch(): number {
    return Math.max(this.#room, 1);
  }

  /** How many jobs could start now. Jobs that are being settled occupy places: until then they are active. */
  get startable(): number {
    const { concurrency, batch } = this.#options;
    const { throttle, circuit, held } = this.#limits;
    const calls = Math.min(throttle.calls, circuit.calls);
    return Math.max(0, Math.min(concurrency * batch - held(), calls * batch));
  }

  get #room(): number {
    const { concurrency, batch } = this.#options;
    const { circuit, held } = this.#limits;
    const waiting = this.#waiting.length;
    if (circuit.isOpen) return circuit.calls === 0 ? 0 : batch - waiting;
    if (this.#bytes >= MAX_BYTES) return 0;
    const room = (concurrency - this.#busy + this.#prefetch) * batch - waiting;
    return Math.min(room, MAX_HELD + concurrency * batch - held(), MAX_CALL);
  }

  #shouldFetch(): boolean {
    if (this.#state !== 'fetching' || this.#fetching > 0 || this.#limits.isGivingBack()) return false;
    const { batch } = this.#options;
    if (this.#suffice(this.#busy + Math.ceil(this.#waiting.length / batch))) return false;
    if (this.#limited.size > 0) return this.startable > 0;
    const worthIt = this.#limits.circuit.isOpen ? 1 : Math.min((this.#prefetch * batch) / 2, MAX_CALL);
    return this.#room >= Math.max(1, worthIt);
  }

  /**
   * Whether this many calls keep the handlers busy, so that other drains should have the next job. Quick handlers
   * prefetch while Redis has more jobs.
   */
  #suffice(calls: number): boolean {
    return (this.#isSlow || !this.#hasMore) && calls >= this.#options.concurrency;
  }

  /** An answer has come, of which the jobs follow. */
  answered(queue: Queue, { state, hasLimits }: Drained): void {
    this.#hasMore = state === 'more';
    if (state !== 'paused') this.#limited[hasLimits ? 'add' : 'delete'](queue);
  }

  /** No more jobs come for now. */
  waits(): void {
    this.#hasMore = false;
  }

  /** The fetch has brought jobs. Returns those to give back: the run was stopped. */
  fetched({ queue, jobs, since }: TakenJobs): readonly Job[] {
    const { concurrency, batch } = this.#options;
    const asked = this.#fetching;
    this.#fetching = 0;
    if (this.isStopped) return jobs;
    const max = Math.max(concurrency, Math.ceil(MAX_PREFETCH / batch));
    if (this.#ranDry && jobs.length >= asked) this.#prefetch = Math.min(this.#prefetch * 2, max);
    else if (this.#waiting.length > 0 && this.#busy === concurrency)
      this.#prefetch = Math.max(concurrency, Math.floor(this.#prefetch * 0.75));
    this.#ranDry = false;
    for (const job of jobs) {
      this.#waiting.push({ job, queue: queue.whole, since });
      this.#bytes += job.payload.length;
    }
    return [];
  }

  /** No jobs are left to fetch, or they cannot be fetched. */
  drained(): void {
    this.#fetching = 0;
    if (!this.isStopped) this.#state = 'drained';
  }

  /** A handler call has ended, or was not made. */
  ended(): void {
    this.#busy -= 1;
    if (this.#fetching > 0) this.#ranDry ||= this.#waiting.length === 0;
  }

  /** A handler ran for `ms`. */
  ran(ms: number): void {
    this.#isSlow = ms >= SURPLUS_MS;
  }

  /** Ends the fetching. Returns the jobs that have not started. */
  stop(): readonly Job[] {
    this.#state = 'stopped';
    return this.#remove(0);
  }

  /**
   * Removes and returns jobs that have waited too long and will not start soon, because handlers have become slow: other
   * drains can take them.
   */
  surplus(): readonly Job[] {
    // A run that has drained its queues would not fetch them again, and one with a limit has counted them.
    const { limit, watch, concurrency, batch } = this.#options;
    const fetchesAgain = watch || (this.#hasMore && this.#fetching === 0);
    if (this.isDrained || limit !== undefined || !fetchesAgain) return [];
    this.#isSlow ||= this.#busy >= concurrency && this.#isLong(0);
    // Keep the next ones, which would be fetched again at once, unless fetching has ended.
    const keep = this.#suffice(this.#busy) ? 0 : (2 * concurrency - this.#busy) * batch;
    if (!this.#isLong(keep)) return [];
    this.#prefetch = concurrency;
    return this.#remove(keep);
  }

  #isLong(place: number): boolean {
    const job = this.#waiting[place];
    return job !== undefined && this.#clock.now() - job.since >= SURPLUS_MS;
  }

  /** Size of the next handler call, whose jobs are all of one queue; 0: none yet. */
  get #nextSize(): number {
    const { batch } = this.#options;
    const queue = this.#waiting[0]?.queue;
    let size = 0;
    while (size < batch && size < this.#waiting.length && this.#waiting[size]?.queue === queue) size += 1;
    // Wait for a full batch only if more jobs are coming.
    const isComing = this.#hasMore && this.#fetching > 0;
    return isComing && size === this.#waiting.length && size < batch ? 0 : size;
  }

  #remove(start: number, size = this.#waiting.length): Job[] {
    const jobs = this.#waiting.splice(start, size).map(({ job }) => job);
    for (const { payload } of jobs) this.#bytes -= payload.length;
    return jobs;
  }
}
