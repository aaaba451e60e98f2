import { type Backoff, packBackoff, parseBackoff } from '../model/backoff.js';
import { DelayqError, isPassing } from '../model/errors.js';
import type { Job } from '../model/job.js';
import { formatDuration } from '../model/time.js';
import { checkCount, checkMs } from '../model/validate.js';
import type { Queue } from '../queue/queue.js';
import { MAX_CALL } from '../redis/script.js';
import { Line, SURPLUS_MS } from './buffer.js';
import { Leases, LONGEST_TIMER_MS, type Taken } from './leases.js';
import { type PollOptions, poll } from './poller.js';
import { Settler, type Verdict } from './settler.js';
import {
  Call,
  type Cause,
  type Kind,
  kindOf,
  messageOf,
  Release,
  Retry,
  Task,
  type TaskOutcome,
  type TaskResult,
} from './task.js';
import { Pace } from './throttle.js';

/** The most jobs that may be in hand, those whose outcome is on its way to Redis included. */
const MOST_IN_HAND = 5_000;

/** How long a job waits that a handler gives back without a delay, ms: it would come again at once, and again. */
const RELEASE_MS = 1_000;

/** How many jobs had which outcome, and whether too many failures in a row ended the run. */
export interface Summary extends Readonly<Record<TaskOutcome, number>> {
  readonly circuitOpen: boolean;
}

/** How a worker works. Durations are ms. */
export interface WorkerOptions extends Pick<PollOptions, 'limit' | 'leaseMs' | 'forMs' | 'onTrouble' | 'onDrained'> {
  /** Go on waiting for jobs; default true. Otherwise the run ends when none that was due at its start is left. */
  readonly watch?: boolean | undefined;
  /** Handlers at once; default 1. */
  readonly concurrency?: number | undefined;
  /** How long a failed job waits: ms, text such as `30s,1m`, or a function of the failures so far, this one included. */
  readonly backoff?: Backoff | string | ((failures: number, error: unknown) => number) | undefined;
  /** After so many failures in a row the run stops; default 20. */
  readonly maxFailures?: number | undefined;
  /** The most handlers to start in a second. */
  readonly ratePerSecond?: number | undefined;
  /** A handler that takes longer fails, and its signal aborts. */
  readonly timeoutMs?: number | undefined;
  /** How long running handlers may go on when the worker is stopped; default 30 s. */
  readonly graceMs?: number | undefined;
  /** How long a handler may take to end after its signal has aborted before it is left alone; default 5 s. */
  readonly abandonMs?: number | undefined;
  /** Stops the run. */
  readonly signal?: AbortSignal | undefined;
  /** Asked before each start: while it returns a promise, no handler is started. */
  readonly hold?: (() => Promise<unknown> | undefined) | undefined;
  /** Hears of each job that its handler was done with, once Redis knows. */
  readonly onResult?: ((result: TaskResult) => void) | undefined;
}

/**
 * Drains queues into a handler that takes up to `batch` jobs of one queue at a time and answers for them together.
 * Jobs are taken only for what can start now or is next in line, and held for as long as the handler runs.
 *
 * A handler that returns is done with its jobs; one that throws has failed, unless it throws {@link Dead},
 * {@link Retry} or {@link Release}.
 */
export class BatchWorker {
  readonly #queues: readonly Queue[];
  readonly #handler: (tasks: Task[]) => unknown;
  readonly #options: WorkerOptions;
  readonly #batch: number;
  readonly #concurrency: number;
  readonly #maxFailures: number;
  readonly #backoff: Backoff | undefined;
  readonly #leases: Leases;
  readonly #settler: Settler;
  readonly #counts = { acked: 0, retried: 0, dead: 0, released: 0, lost: 0, superseded: 0, circuitOpen: false };

  readonly #line: Line;
  readonly #pace: Pace;
  readonly #running = new Set<Call>();
  #starting = 0;
  #batches: AsyncGenerator<Taken> | undefined;
  /** How many jobs the call under way asked for; 0 when there is none. */
  #asked = 0;
  #more = false;
  #drained = false;
  readonly #enough = new AbortController();
  #stopping = false;
  #failedInRow = 0;
  #graceOver: NodeJS.Timeout | undefined;
  #problem: unknown;
  #finish: (() => void) | undefined;

  /** Throws a `usage` error for options that cannot be. Takes nothing before {@link BatchWorker.run}. */
  constructor(
    queues: Queue | readonly Queue[],
    handler: (tasks: Task[]) => unknown,
    { batch = 100, ...options }: WorkerOptions & { batch?: number | undefined } = {},
  ) {
    this.#queues = Array.isArray(queues) ? queues : [queues as Queue];
    this.#handler = handler;
    this.#options = options;
    this.#batch = checkCount(batch, 'batch');
    this.#concurrency = checkCount(options.concurrency ?? 1, 'concurrency');
    checkCount(options.limit, 'limit');
    this.#maxFailures = checkCount(options.maxFailures ?? 20, 'maxFailures');
    this.#line = new Line(this.#concurrency, this.#batch);
    this.#pace = new Pace(
      options.ratePerSecond,
      () => this.#heldBy(options.hold),
      () => this.#advance(),
    );
    if (options.leaseMs !== undefined) checkMs(options.leaseMs, 'leaseMs', 1);
    for (const name of ['forMs', 'timeoutMs', 'graceMs', 'abandonMs'] as const)
      if (options[name] !== undefined) checkMs(options[name], name);
    if (options.ratePerSecond !== undefined && !(options.ratePerSecond > 0)) {
      throw new DelayqError('usage', 'ratePerSecond must be more than 0');
    }
    const { backoff } = options;
    this.#backoff =
      typeof backoff === 'string' ? parseBackoff(backoff) : typeof backoff === 'function' ? undefined : backoff;
    if (this.#backoff) packBackoff(this.#backoff);
    this.#leases = new Leases({
      onLost: (job) => {
        const call = [...this.#running].find(({ jobs }) => jobs.includes(job));
        if (call) this.#abort(call, 'lost', 'its lease was lost: another drain has taken the job');
      },
      onTrouble: options.onTrouble,
      // A run that ends by itself must not wait for a Redis that is gone for ever.
      ...(options.watch === false ? { retryMs: this.#graceMs } : {}),
    });
    this.#settler = new Settler(this.#leases, this.#backoff, {
      onSettled: (verdict, outcome, delayMs) => this.#settled(verdict, outcome, delayMs),
      onRoom: () => this.#advance(),
      onFailed: (error) => this.#unsettled(error),
    });
  }

  get #graceMs(): number {
    return this.#options.graceMs ?? 30_000;
  }

  /**
   * Works until it is stopped, or, without `watch`, until no job is left that was due at the start. Returns how many jobs
   * had which outcome. Throws what Redis answers when that does not pass; what had not started is given back first, and
   * what could not be told comes again when its lease ends.
   */
  async run(): Promise<Summary> {
    if (this.#batches) throw new DelayqError('usage', 'this worker has run', { next: 'make a new one' });
    const { signal, watch = true, onDrained } = this.#options;
    this.#batches = poll(this.#queues, {
      ...this.#options,
      watch,
      batch: () => Math.max(this.#room(), 1),
      signal: this.#enough.signal,
      leases: this.#leases,
      onDrained: (queue, drained) => {
        this.#more = drained.state === 'more';
        onDrained?.(queue, drained);
      },
    });
    const stop = () => this.stop();
    if (signal?.aborted) stop();
    signal?.addEventListener('abort', stop);
    // A run that ends by itself must do so even if Redis is gone by then.
    if (this.#options.forMs !== undefined) this.#leases.giveUpAfter(this.#options.forMs + this.#graceMs);
    const surplus = setInterval(() => this.#giveBackSurplus(), SURPLUS_MS).unref();
    await new Promise<void>((resolve) => {
      this.#finish = resolve;
      this.#advance();
    });
    await this.#batches.return(undefined);
    await this.#settler.idle();
    clearInterval(surplus);
    this.#pace.close();
    clearTimeout(this.#graceOver);
    signal?.removeEventListener('abort', stop);
    this.#leases.close();
    const problem = this.#problem ?? this.#leases.outages.error;
    if (problem !== undefined) throw problem;
    return this.#counts;
  }

  /**
   * Takes nothing more and gives back what has not started, counting nothing. Running handlers may end within grace;
   * after that their signals abort, and their jobs are given back as well.
   */
  stop(): void {
    if (this.#stopping) return;
    this.#stopping = true;
    this.#enough.abort();
    this.#leases.giveUpAfter(this.#graceMs);
    this.#settler.release(this.#line.clear());
    const abort = () => {
      for (const call of [...this.#running]) this.#abort(call, 'stopped', 'the worker was stopped');
    };
    if (this.#busy > 0) this.#graceOver = setTimeout(abort, Math.min(this.#graceMs, LONGEST_TIMER_MS));
    this.#advance();
  }

  get #abandonMs(): number {
    return this.#options.abandonMs ?? 5_000;
  }

  /** How many more jobs may be taken. */
  #room(): number {
    const most = MOST_IN_HAND + this.#concurrency * this.#batch - this.#leases.size;
    return Math.min(this.#line.wanted(this.#busy), most, MAX_CALL);
  }

  #heldBy(hold: WorkerOptions['hold']): Promise<unknown> | undefined {
    try {
      return hold?.();
    } catch (error) {
      this.#fail(error);
      return Promise.resolve();
    }
  }

  get #busy(): number {
    return this.#running.size + this.#starting;
  }

  /** Does whatever can be done now; called after everything that happens. */
  #advance(): void {
    // Asked for first: a batch that could still be filled waits for what is on its way.
    this.#askIfWorthIt();
    while (!this.#stopping && this.#busy < this.#concurrency) {
      const size = this.#line.nextSize(this.#more && this.#asked > 0);
      if (size === 0 || !this.#pace.mayStart()) break;
      this.#start(size);
    }
    // And again: what has started has left the line, which may have been full of large payloads.
    this.#askIfWorthIt();
    const idle = this.#busy === 0 && this.#line.length === 0 && this.#asked === 0;
    if (idle && (this.#drained || this.#stopping)) this.#finish?.();
  }

  #askIfWorthIt(): void {
    const over = this.#drained || this.#stopping;
    if (!over && this.#asked === 0 && this.#room() >= this.#line.worthAsking) this.#ask();
  }

  #ask(): void {
    this.#asked = this.#room();
    const before = this.#asked;
    (this.#batches as AsyncGenerator<Taken>).next().then(
      ({ value, done }) => {
        this.#asked = 0;
        if (done) this.#drained = true;
        else this.#took(value, before);
        this.#advance();
      },
      (error: unknown) => {
        this.#asked = 0;
        this.#drained = true;
        // What was taken of queues that are well is handled first.
        if (error !== this.#leases.outages.error || this.#leases.outages.all) this.#fail(error);
        else this.#note(error);
      },
    );
  }

  #took(taken: Taken, asked: number): void {
    if (this.#stopping) {
      this.#settler.release(taken.jobs);
      return;
    }
    this.#line.add(taken, asked, this.#busy);
  }

  /** Gives back what will not start soon, for others to take. */
  #giveBackSurplus(): void {
    // A run that ends would not come back for them, and one with a limit has counted them.
    if (this.#drained || this.#options.limit !== undefined) return;
    this.#settler.release(this.#line.surplus(this.#busy));
  }

  #start(size: number): void {
    const { queue, jobs } = this.#line.take(size);
    const call = new Call(queue, jobs);
    if (this.#leases.areFresh(call.jobs)) {
      this.#call(call);
      return;
    }
    this.#starting += 1;
    this.#leases
      .fresh(call.jobs)
      .then(
        (ours) => {
          call.jobs = ours;
          if (this.#stopping) this.#settler.release(ours);
          else if (ours.length > 0) this.#call(call);
        },
        (error: unknown) => this.#fail(error),
      )
      .finally(() => {
        this.#starting -= 1;
        this.#advance();
      });
  }

  #call(call: Call): void {
    call.started = performance.now();
    this.#running.add(call);
    const { timeoutMs } = this.#options;
    if (timeoutMs !== undefined && timeoutMs <= LONGEST_TIMER_MS) {
      const late = () => this.#abort(call, 'timeout', `timed out after ${formatDuration(timeoutMs)}`);
      // A turn later: after a suspension timers come before the news of what has ended meanwhile.
      call.timeout = setTimeout(() => setImmediate(late), timeoutMs);
    }
    this.#handle(call);
  }

  async #handle(call: Call): Promise<void> {
    try {
      await this.#handler(call.jobs.map((job) => new Task(call.queue.name, job, call)));
    } catch (error) {
      // A turn later: handlers that throw at once would start one inside the other, as deep as the line is long.
      await undefined;
      this.#ended(call, error ?? new Error('the handler threw nothing'));
      return;
    }
    this.#ended(call, undefined);
  }

  #abort(call: Call, cause: Cause, message: string): void {
    if (call.over || call.cause !== undefined) return;
    call.abort(cause, message);
    call.abandon = setTimeout(
      () => this.#ended(call, new Error(`${message}, and did not end`)),
      Math.min(this.#abandonMs, LONGEST_TIMER_MS),
    );
  }

  #ended(call: Call, error: unknown): void {
    if (call.over) return;
    call.over = true;
    clearTimeout(call.timeout);
    clearTimeout(call.abandon);
    this.#running.delete(call);
    const ms = performance.now() - call.started;
    const kind = kindOf(call, error);
    // Only what a handler said itself counts: neither a stop nor a lost lease is its failure.
    if (kind === 'ack') this.#failedInRow = 0;
    else if (kind !== 'release' && ++this.#failedInRow >= this.#maxFailures) {
      this.#counts.circuitOpen = true;
      this.stop();
    }
    const message = error === undefined || kind === 'release' ? undefined : messageOf(error);
    this.#settler.settle(
      call.queue,
      call.jobs.map((job) => ({ call, job, kind, ms, error: message, delayMs: this.#delayOf(job, kind, error) })),
    );
    if (this.#asked > 0) this.#line.handlerFree();
    this.#advance();
  }

  #delayOf(job: Job, kind: Kind, error: unknown): number | undefined {
    // A worker that is being stopped will not take it again, so it keeps its place in line.
    if (error instanceof Release) return error.delayMs ?? (this.#stopping ? undefined : RELEASE_MS);
    if (kind !== 'retry') return undefined;
    if (error instanceof Retry) return error.delayMs;
    const { backoff } = this.#options;
    if (typeof backoff !== 'function') return undefined;
    try {
      return Math.round(checkMs(backoff(job.failures + 1, error), 'backoff'));
    } catch {
      // What is no delay must not stop the worker: the queue's own backoff serves.
      return undefined;
    }
  }

  #settled({ call, job, ms, error }: Verdict, outcome: TaskOutcome, delayMs: number | undefined): void {
    this.#counts[outcome] += 1;
    this.#options.onResult?.({ queue: call.queue, job, outcome, ms, error, delayMs });
  }

  /** Jobs of a queue could not be settled. When nothing more is taken anyway, what others have in hand is finished. */
  #unsettled(error: unknown): void {
    if (this.#drained && !isPassing(error)) this.#note(error);
    else this.#fail(error);
  }

  /** Something that does not pass by itself: ends the run in good order, and is thrown at the end. */
  #fail(error: unknown): void {
    this.#problem ??= error;
    this.stop();
    this.#advance();
  }

  /** Something to throw at the end. */
  #note(error: unknown): void {
    this.#problem ??= error;
    this.#advance();
  }
}

/** A {@link BatchWorker} whose handler takes one job at a time. */
export class Worker extends BatchWorker {
  constructor(queues: Queue | readonly Queue[], handler: (task: Task) => unknown, options: WorkerOptions = {}) {
    super(queues, ([task]) => handler(task as Task), { ...options, batch: 1 });
  }
}
