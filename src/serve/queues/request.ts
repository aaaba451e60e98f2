import type { Drained, Job } from '../../index.js';

/** Where a request gets jobs of one queue. */
export interface JobSource {
  join(request: Request): void;
  leave(request: Request): void;
  /** Called when a request that another source had claimed can be claimed again. */
  freed(): void;
  /** Why its takes fail; undefined: they do not. */
  readonly failure: unknown;
}

/** What a request gets: jobs of one of its queues. */
export interface JobsOfQueue {
  /** The index of the queue in the request. */
  readonly queue: number;
  readonly jobs: readonly Job[];
  /** The time of Redis's clock, ms. */
  readonly now: number;
}

/** What a request asks for. Times are ms. */
export interface Wanted {
  readonly count: number;
  readonly leaseMs: number;
  /** How long to wait; 0: not at all. */
  readonly timeoutMs: number;
}

/**
 * A request for jobs of some queues. First asks their sources one after the other, so that the order of the queues is
 * their priority; then waits for the first jobs of any. A queue in trouble does not hold up the others: the request
 * fails only if none of them had a job.
 */
export class Request {
  readonly leaseMs: number;
  /** How many more jobs it wants. */
  count: number;
  mayWait: boolean;
  readonly #sources: readonly JobSource[];
  readonly #figures: { waiting: number };
  readonly #end: (taken: readonly JobsOfQueue[]) => void;
  readonly #fail: (error: unknown) => void;
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #taken: JobsOfQueue[] = [];
  /** The first queue that has not yet answered that it is empty. */
  #next = 0;
  /** The only source that may bring its jobs: a take for them is in flight. */
  #claimant: JobSource | undefined;
  /** The queues that could not be used, and why the first of them could not. */
  readonly #lost = new Set<JobSource>();
  #failure: unknown;
  /** It has its answer, or its client has gone. */
  isOver = false;
  /** Its time is over: it ends as soon as no take asks for its jobs. */
  isLate = false;

  /** Calls `end` with what it got, which may be nothing, or `fail`. */
  constructor(
    sources: readonly JobSource[],
    { count, leaseMs, timeoutMs }: Wanted,
    figures: { waiting: number },
    end: (taken: readonly JobsOfQueue[]) => void,
    fail: (error: unknown) => void,
  ) {
    this.count = count;
    this.leaseMs = leaseMs;
    this.mayWait = timeoutMs > 0;
    this.#sources = sources;
    this.#figures = figures;
    figures.waiting++;
    this.#end = end;
    this.#fail = fail;
    this.#timer = this.mayWait ? setTimeout(() => this.expire(), timeoutMs) : undefined;
    sources[0]?.join(this);
  }

  /** Called by a source that has handed out all jobs that were there when the request came. */
  looked(source: JobSource): void {
    if (this.isOver || this.#sources[this.#next] !== source) return;
    this.#next++;
    const next = this.#sources[this.#next];
    if (next) next.join(this);
    else if (!this.mayWait) this.expire();
  }

  /** Ends the wait. While takes fail, it is unknown whether there was a job. */
  expire(): void {
    this.isLate = true;
    if (this.isClaimed) return;
    const failure = this.#failure ?? this.#sources.find((source) => source.failure !== undefined)?.failure;
    if (failure !== undefined) this.fail(failure);
    else this.leave();
  }

  get isClaimed(): boolean {
    return this.#claimant !== undefined;
  }

  claim(source: JobSource): void {
    this.#claimant = source;
  }

  /** Ends the claim of a source that has no jobs for it. */
  unclaim(source: JobSource): void {
    if (this.#claimant !== source) return;
    this.#claimant = undefined;
    if (this.isOver) return;
    if (this.isLate) this.expire();
    else for (const other of this.#sources) if (other !== source) other.freed();
  }

  give(source: JobSource, jobs: readonly Job[], { now }: Drained): void {
    const queue = this.#sources.indexOf(source);
    this.#taken.push({ queue, jobs, now });
    this.count -= jobs.length;
    this.#claimant = undefined;
    if (this.count === 0 || this.isLate || queue !== this.#next || queue === this.#sources.length - 1) {
      this.leave();
      return;
    }
    // Later queues may have more jobs, but the request does not wait for them.
    this.mayWait = false;
    for (const known of this.#sources) known.leave(this);
    this.looked(source);
  }

  /** Whether it has other queues than the one that fails. */
  get hasOthers(): boolean {
    return this.#sources.length - this.#lost.size > 1;
  }

  /** Called by a source whose queue cannot be used. */
  lost(source: JobSource, error: unknown): void {
    if (!this.hasOthers) {
      this.fail(this.#failure ?? error);
      return;
    }
    this.#failure ??= error;
    this.#lost.add(source);
    source.leave(this);
    this.looked(source);
    this.unclaim(source);
  }

  /** Ends it with an error, unless it has got jobs. */
  fail(error: unknown): void {
    if (this.#taken.length > 0) this.leave();
    else this.#over(() => this.#fail(error));
  }

  /** Takes no more jobs: the client may have gone. */
  leave(): void {
    this.#over(() => this.#end(this.#taken));
  }

  #over(tell: () => void): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#figures.waiting--;
    clearTimeout(this.#timer);
    for (const source of this.#sources) source.leave(this);
    tell();
  }
}
