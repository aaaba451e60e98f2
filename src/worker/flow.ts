import type { TakenJobs } from '../consume/leases.js';
import { SURPLUS_MS } from '../consume/takes.js';
import type { Job } from '../model/job.js';
import { type Clock, realClock } from '../model/time.js';
import type { Queue } from '../queue/queue.js';
import type { Drained } from '../store/jobs.js';
import { MAX_CALL } from '../store/script.js';
import { JobBuffer } from './buffer.js';

/** The most leases a worker holds besides those of running handlers, jobs that are being settled included. */
const MAX_HELD = 5_000;

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
 * {@link Flow.next}, called until there is nothing to do, after whatever has changed.
 */
export class Flow {
  readonly #options: FlowOptions;
  readonly #limits: Limits;
  readonly #buffer: JobBuffer;
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
    this.#buffer = new JobBuffer(options.concurrency, options.batch, clock);
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
      const size = this.#buffer.nextSize(this.#hasMore && this.#fetching > 0);
      if (size > 0 && circuit.calls > 0 && throttle.mayStart()) {
        this.#busy += 1;
        return { do: 'start', ...this.#buffer.take(size) };
      }
    }
    if (circuit.calls === 0 && this.#buffer.length > 0) return { do: 'giveBack', jobs: this.#buffer.clear() };
    const isIdle = this.#busy === 0 && this.#buffer.length === 0 && this.#fetching === 0;
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
    if (circuit.isOpen) return circuit.calls === 0 ? 0 : batch - this.#buffer.length;
    return Math.min(this.#buffer.room(this.#busy), MAX_HELD + concurrency * batch - held(), MAX_CALL);
  }

  #shouldFetch(): boolean {
    if (this.#state !== 'fetching' || this.#fetching > 0 || this.#limits.isGivingBack()) return false;
    if (this.#suffice(this.#busy + this.#buffer.calls)) return false;
    if (this.#limited.size > 0) return this.startable > 0;
    return this.#room >= (this.#limits.circuit.isOpen ? 1 : this.#buffer.worthFetching);
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
  fetched(taken: TakenJobs): readonly Job[] {
    const asked = this.#fetching;
    this.#fetching = 0;
    if (this.isStopped) return taken.jobs;
    this.#buffer.add(taken, asked, this.#busy);
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
    if (this.#fetching > 0) this.#buffer.handlerFree();
  }

  /** A handler ran for `ms`. */
  ran(ms: number): void {
    this.#isSlow = ms >= SURPLUS_MS;
  }

  /** Ends the fetching. Returns the jobs that have not started. */
  stop(): readonly Job[] {
    this.#state = 'stopped';
    return this.#buffer.clear();
  }

  /** Removes and returns jobs that will not start soon, so that other drains can take them. */
  surplus(): readonly Job[] {
    // A run that has drained its queues would not fetch them again, and one with a limit has counted them.
    const { limit, watch, concurrency } = this.#options;
    const fetchesAgain = watch || (this.#hasMore && this.#fetching === 0);
    if (this.isDrained || limit !== undefined || !fetchesAgain) return [];
    this.#isSlow ||= this.#busy >= concurrency && this.#buffer.hasWaitedLong;
    return this.#buffer.takeSurplus(this.#busy, this.#suffice(this.#busy));
  }
}
