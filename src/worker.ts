import { type Backoff, packBackoff, parseBackoff } from './backoff.js';
import { DelayqError } from './errors.js';
import { checkCount, checkMs, type Job, MAX_ERROR } from './job.js';
import { type GiveBack, Leases, LONGEST_TIMER_MS, type Taken } from './leases.js';
import { drainLoop, type LoopOptions } from './loop.js';
import type { Queue } from './queue.js';
import { formatDuration, parseDuration } from './time.js';

/** The most jobs that wait in line behind the running handlers. */
const MOST_AHEAD = 250;

/** How long jobs may wait in line before all but the next ones are given back for others to take, ms. */
const SURPLUS_MS = 1_000;

/** The most jobs that may be in hand, those whose outcome is on its way to Redis included. */
const MOST_IN_HAND = 5_000;

/** How late a start may be without the ones after it being put off as well, ms: timers fire late. */
const RATE_SLACK_MS = 10;

/** Thrown by a handler: this job is dead, trying it again has no use. */
export class Dead extends Error {
  override readonly name = 'Dead';
}

/** Thrown by a handler: a failure, to be tried again after `delay` (ms, or text such as `5m`) instead of the backoff. */
export class Retry extends Error {
  override readonly name = 'Retry';
  readonly delayMs: number;

  constructor(delay: number | string, message = 'the handler asked for another try') {
    super(message);
    this.delayMs = msOf(delay);
  }
}

/**
 * Thrown by a handler: not now. The job is given back and nothing is counted; due after `delay` (ms, or text such as
 * `5m`), or at once, behind those that are due already.
 */
export class Release extends Error {
  override readonly name = 'Release';
  readonly delayMs: number | undefined;

  constructor(delay?: number | string) {
    super('the handler gave the job back');
    this.delayMs = delay === undefined ? undefined : msOf(delay);
  }
}

function msOf(delay: number | string): number {
  return typeof delay === 'string' ? parseDuration(delay) : checkMs(delay, 'delay');
}

/** A job in the hands of a handler. */
export class Task implements Job {
  /** The name of its queue. */
  readonly queue: string;
  readonly id: string;
  readonly due: number;
  readonly attempt: number;
  readonly failures: number;
  readonly tries: number;
  readonly receipt: string;
  readonly payload: Buffer;
  readonly #run: Run;

  constructor(queue: string, job: Job, run: Run) {
    this.queue = queue;
    this.id = job.id;
    this.due = job.due;
    this.attempt = job.attempt;
    this.failures = job.failures;
    this.tries = job.tries;
    this.receipt = job.receipt;
    this.payload = job.payload;
    this.#run = run;
  }

  /** The payload as a value. Throws a SyntaxError when it is not JSON, as only other software could have stored it. */
  json(): unknown {
    return JSON.parse(this.payload.toString('utf8'));
  }

  /** Aborts when the lease was lost, the time is up, or the worker stops and grace is over; its reason is an Error. */
  get signal(): AbortSignal {
    return this.#run.signal;
  }
}

/** What became of a job. `lost`: its lease was taken back meanwhile, so it comes or came again. */
export type TaskOutcome = 'acked' | 'retried' | 'dead' | 'released' | 'lost' | 'superseded';

/** What a worker tells of each job that its handler was done with. */
export interface TaskResult {
  readonly queue: Queue;
  readonly job: Job;
  readonly outcome: TaskOutcome;
  /** How long the handler ran, ms. */
  readonly ms: number;
  /** What the handler said when it failed. */
  readonly error: string | undefined;
  /** How long a job that is tried again waits, ms. */
  readonly delayMs: number | undefined;
}

/** How many jobs had which outcome, and whether too many failures in a row ended the run. */
export interface Summary extends Readonly<Record<TaskOutcome, number>> {
  readonly circuitOpen: boolean;
}

/** How a worker works. Durations are ms. */
export interface WorkerOptions extends Pick<LoopOptions, 'limit' | 'leaseMs' | 'forMs' | 'onTrouble' | 'onDrained'> {
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
  /** Hears of each job that its handler was done with, once Redis knows. */
  readonly onResult?: ((result: TaskResult) => void) | undefined;
}

/** Why a run was cut short. */
type Cause = 'lost' | 'timeout' | 'stopped';

/** One call of the handler: its jobs, and the means to end it. */
class Run {
  readonly queue: Queue;
  jobs: readonly Job[];
  started = 0;
  cause: Cause | undefined;
  over = false;
  timeout: NodeJS.Timeout | undefined;
  abandon: NodeJS.Timeout | undefined;
  #controller: AbortController | undefined;
  #reason: Error | undefined;

  constructor(queue: Queue, jobs: readonly Job[]) {
    this.queue = queue;
    this.jobs = jobs;
  }

  // Made when asked for: most handlers never look, and it costs more than all the rest.
  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#reason && !this.#controller.signal.aborted) this.#controller.abort(this.#reason);
    return this.#controller.signal;
  }

  abort(cause: Cause, message: string): void {
    this.cause = cause;
    this.#reason = new Error(message);
    this.#controller?.abort(this.#reason);
  }
}

/** What is to be told to Redis of a job. */
interface Verdict extends GiveBack {
  readonly run: Run;
  readonly kind: 'ack' | 'retry' | 'dead' | 'release';
  readonly ms: number;
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
  readonly #counts = { acked: 0, retried: 0, dead: 0, released: 0, lost: 0, superseded: 0, circuitOpen: false };

  /** Jobs in line: taken, not started. */
  readonly #line: { job: Job; from: Taken }[] = [];
  /** Calls of the handler that may be in line: grows while handlers wait for jobs that are there to be taken. */
  #ahead: number;
  readonly #running = new Map<Run, true>();
  #starting = 0;
  readonly #runOf = new WeakMap<Job, Run>();
  #batches: AsyncGenerator<Taken> | undefined;
  /** How many jobs the call under way asked for; 0 when there is none. */
  #asked = 0;
  #more = false;
  /** A handler was done, and none was in line although some were asked for: too few were asked for, maybe. */
  #hungry = false;
  #drained = false;
  readonly #enough = new AbortController();
  #stopping = false;
  #failedInRow = 0;
  #nextStart = 0;
  #wait: NodeJS.Timeout | undefined;
  #graceOver: NodeJS.Timeout | undefined;
  #verdicts: Verdict[] = [];
  #telling: Promise<void> | undefined;
  readonly #releases = new Set<Promise<unknown>>();
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
    this.#maxFailures = checkCount(options.maxFailures ?? 20, 'maxFailures');
    this.#ahead = this.#concurrency;
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
        const run = this.#runOf.get(job);
        if (run) this.#abort(run, 'lost', 'its lease was lost: another drain has taken the job');
      },
      onTrouble: options.onTrouble,
      // A run that ends by itself must not wait for a Redis that is gone for ever.
      ...(options.watch === false ? { patienceMs: this.#graceMs } : {}),
    });
  }

  get #graceMs(): number {
    return this.#options.graceMs ?? 30_000;
  }

  /**
   * Works until it is stopped, or, without `watch`, until no job is left that was due at the start. Returns how many jobs
   * had which outcome. Throws what Redis answers when that does not pass; everything in hand is given back first.
   */
  async run(): Promise<Summary> {
    if (this.#batches) throw new DelayqError('usage', 'this worker has run', { next: 'make a new one' });
    const { signal, watch = true, onDrained } = this.#options;
    this.#batches = drainLoop(this.#queues, {
      ...this.#options,
      watch,
      batch: () => Math.max(this.#room(), 1),
      signal: this.#enough.signal,
      onDrained: (queue, drained) => {
        this.#more = drained.state === 'more';
        onDrained?.(queue, drained);
      },
    });
    const stop = () => this.stop();
    if (signal?.aborted) stop();
    signal?.addEventListener('abort', stop);
    const surplus = setInterval(() => this.#giveBackSurplus(), SURPLUS_MS).unref();
    await new Promise<void>((resolve) => {
      this.#finish = resolve;
      this.#advance();
    });
    await this.#batches.return(undefined);
    clearInterval(surplus);
    clearTimeout(this.#wait);
    clearTimeout(this.#graceOver);
    signal?.removeEventListener('abort', stop);
    try {
      while (this.#telling) await this.#telling;
      await Promise.all(this.#releases);
    } catch (error) {
      this.#problem ??= error;
    }
    this.#leases.close();
    if (this.#problem !== undefined) throw this.#problem;
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
    this.#leases.giveUpAfter(this.#graceMs + this.#abandonMs);
    this.#release(this.#line.splice(0).map(({ job }) => job));
    this.#graceOver = setTimeout(
      () => {
        for (const run of [...this.#running.keys()]) this.#abort(run, 'stopped', 'the worker was stopped');
      },
      Math.min(this.#graceMs, LONGEST_TIMER_MS),
    );
    this.#advance();
  }

  get #abandonMs(): number {
    return this.#options.abandonMs ?? 5_000;
  }

  /** How many more jobs may be taken. */
  #room(): number {
    const wanted = (this.#concurrency - this.#busy + this.#ahead) * this.#batch - this.#line.length;
    return Math.min(wanted, MOST_IN_HAND + this.#concurrency * this.#batch - this.#leases.size);
  }

  get #busy(): number {
    return this.#running.size + this.#starting;
  }

  /** Does whatever can be done now; called after everything that happens. */
  #advance(): void {
    // Asked for first: a batch that could still be filled waits for what is on its way.
    const over = this.#drained || this.#stopping;
    if (!over && this.#asked === 0 && this.#room() >= Math.max(1, (this.#ahead * this.#batch) / 2)) this.#ask();
    while (!this.#stopping && this.#busy < this.#concurrency) {
      const size = this.#nextSize();
      if (size === 0 || !this.#mayStart()) break;
      this.#start(this.#line.splice(0, size));
    }
    const idle = this.#busy === 0 && this.#line.length === 0 && this.#asked === 0;
    if (idle && (this.#drained || this.#stopping)) this.#finish?.();
  }

  /** How many of the jobs in line make the next call of the handler; 0: none yet. */
  #nextSize(): number {
    const queue = this.#line[0]?.from.queue;
    let size = 0;
    while (size < this.#batch && size < this.#line.length && this.#line[size]?.from.queue === queue) size += 1;
    // A batch waits to be full only while more is on its way.
    const filling = size === this.#line.length && size < this.#batch && this.#more && this.#asked > 0;
    return filling ? 0 : size;
  }

  #mayStart(): boolean {
    const rate = this.#options.ratePerSecond;
    if (rate === undefined) return true;
    const now = performance.now();
    if (now < this.#nextStart) {
      clearTimeout(this.#wait);
      this.#wait = setTimeout(() => this.#advance(), Math.ceil(this.#nextStart - now));
      return false;
    }
    this.#nextStart = Math.max(this.#nextStart, now - RATE_SLACK_MS) + 1_000 / rate;
    return true;
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
        this.#fail(error);
      },
    );
  }

  #took(taken: Taken, asked: number): void {
    this.#leases.hold(taken);
    if (this.#stopping) {
      this.#release(taken.jobs);
      return;
    }
    const most = Math.max(this.#concurrency, Math.ceil(MOST_AHEAD / this.#batch));
    if (this.#hungry && taken.jobs.length >= asked) this.#ahead = Math.min(this.#ahead * 2, most);
    else if (this.#line.length > 0 && this.#busy === this.#concurrency)
      this.#ahead = Math.max(this.#concurrency, Math.floor(this.#ahead * 0.75));
    this.#hungry = false;
    for (const job of taken.jobs) this.#line.push({ job, from: taken });
  }

  /** Handlers have become slow: what will not start soon is for others. */
  #giveBackSurplus(): void {
    const next = this.#concurrency * this.#batch;
    // A run that ends would not come back for them.
    if (this.#drained || this.#line.length <= next) return;
    const since = this.#line[next]?.from.since ?? Number.POSITIVE_INFINITY;
    if (performance.now() - since < SURPLUS_MS) return;
    this.#ahead = this.#concurrency;
    this.#release(this.#line.splice(next).map(({ job }) => job));
  }

  #release(jobs: readonly Job[]): void {
    if (jobs.length === 0) return;
    const released: Promise<unknown> = this.#leases.release(jobs).then(
      () => this.#releases.delete(released),
      (error: unknown) => this.#fail(error),
    );
    this.#releases.add(released);
  }

  #start(units: { job: Job; from: Taken }[]): void {
    const run = new Run(
      (units[0] as { from: Taken }).from.queue,
      units.map(({ job }) => job),
    );
    if (this.#leases.areFresh(run.jobs)) {
      this.#call(run);
      return;
    }
    this.#starting += 1;
    this.#leases
      .fresh(run.jobs)
      .then(
        (jobs) => {
          run.jobs = jobs;
          if (this.#stopping) this.#release(jobs);
          else if (jobs.length > 0) this.#call(run);
        },
        (error: unknown) => this.#fail(error),
      )
      .finally(() => {
        this.#starting -= 1;
        this.#advance();
      });
  }

  #call(run: Run): void {
    run.started = performance.now();
    this.#running.set(run, true);
    for (const job of run.jobs) this.#runOf.set(job, run);
    const { timeoutMs } = this.#options;
    if (timeoutMs !== undefined) {
      run.timeout = setTimeout(
        () => this.#abort(run, 'timeout', `timed out after ${formatDuration(timeoutMs)}`),
        Math.min(timeoutMs, LONGEST_TIMER_MS),
      );
    }
    const tasks = run.jobs.map((job) => new Task(run.queue.name, job, run));
    const call = async () => this.#handler(tasks);
    call().then(
      () => this.#ended(run, undefined),
      (error: unknown) => this.#ended(run, error ?? new Error('the handler threw nothing')),
    );
  }

  #abort(run: Run, cause: Cause, message: string): void {
    if (run.over || run.cause !== undefined) return;
    run.abort(cause, message);
    run.abandon = setTimeout(
      () => this.#ended(run, new Error(`${message}, and did not end`)),
      Math.min(this.#abandonMs, LONGEST_TIMER_MS),
    );
  }

  #ended(run: Run, error: unknown): void {
    if (run.over) return;
    run.over = true;
    clearTimeout(run.timeout);
    clearTimeout(run.abandon);
    this.#running.delete(run);
    const ms = performance.now() - run.started;
    const kind = kindOf(run, error);
    // Only what a handler said itself counts: neither a stop nor a lost lease is its failure.
    if (kind === 'ack') this.#failedInRow = 0;
    else if (kind !== 'release' && ++this.#failedInRow >= this.#maxFailures) {
      this.#counts.circuitOpen = true;
      this.stop();
    }
    for (const job of run.jobs) {
      const message = error === undefined || kind === 'release' ? undefined : messageOf(error);
      this.#verdicts.push({ run, job, kind, ms, error: message, delayMs: this.#delayOf(job, kind, error) });
    }
    this.#tell();
    this.#hungry ||= this.#asked > 0 && this.#line.length === 0;
    this.#advance();
  }

  #delayOf(job: Job, kind: Verdict['kind'], error: unknown): number | undefined {
    // A worker that is being stopped will not take it again, so it keeps its place in line.
    if (error instanceof Release) return error.delayMs ?? (this.#stopping ? undefined : 0);
    if (kind !== 'retry') return undefined;
    if (error instanceof Retry) return error.delayMs;
    const { backoff } = this.#options;
    if (typeof backoff !== 'function') return undefined;
    const ms = backoff(job.failures + 1, error);
    // What cannot be a delay must not stop the worker: the queue's own backoff serves.
    return ms >= 0 && ms <= LONGEST_TIMER_MS * 1_000 ? Math.round(ms) : undefined;
  }

  /** Tells Redis what has become of jobs; while one call is under way, the verdicts for the next one gather. */
  #tell(): void {
    this.#telling ??= this.#tellAll().finally(() => {
      this.#telling = undefined;
    });
    this.#telling.catch(() => {});
  }

  async #tellAll(): Promise<void> {
    // Handlers that end in the same moment are told of together.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#verdicts.length > 0) {
      const verdicts = this.#verdicts;
      this.#verdicts = [];
      const of = (kind: Verdict['kind']) => verdicts.filter((verdict) => verdict.kind === kind);
      try {
        await Promise.all([
          this.#tellAcked(of('ack')),
          ...(['retry', 'dead', 'release'] as const).map((mode) => this.#tellGivenBack(of(mode), mode)),
        ]);
      } catch (error) {
        this.#fail(error);
        throw error;
      }
      // Jobs in hand were the limit, maybe.
      this.#advance();
    }
  }

  async #tellAcked(verdicts: Verdict[]): Promise<void> {
    if (verdicts.length === 0) return;
    const answers = await this.#leases.ack(verdicts.map(({ job }) => job));
    for (const [i, verdict] of verdicts.entries()) {
      const answer = answers[i];
      this.#report(verdict, answer === 'held' || answer === undefined ? 'acked' : answer, undefined);
    }
  }

  async #tellGivenBack(verdicts: Verdict[], mode: 'retry' | 'dead' | 'release'): Promise<void> {
    if (verdicts.length === 0) return;
    const nacked = await this.#leases.nack(verdicts, { mode, backoff: this.#backoff });
    for (const [i, verdict] of verdicts.entries()) {
      const { answer, delayMs } = nacked[i] ?? { answer: 'lost', delayMs: 0 };
      const outcome = answer === 'pending' ? (mode === 'release' ? 'released' : 'retried') : answer;
      this.#report(verdict, outcome, outcome === 'retried' ? delayMs : undefined);
    }
  }

  #report({ run, job, ms, error }: Verdict, outcome: TaskOutcome, delayMs: number | undefined): void {
    this.#counts[outcome] += 1;
    this.#options.onResult?.({ queue: run.queue, job, outcome, ms, error, delayMs });
  }

  /** Something that does not pass by itself: ends the run in good order, and is thrown at the end. */
  #fail(error: unknown): void {
    this.#problem ??= error;
    this.stop();
    this.#advance();
  }
}

/** A {@link BatchWorker} whose handler takes one job at a time. */
export class Worker extends BatchWorker {
  constructor(queues: Queue | readonly Queue[], handler: (task: Task) => unknown, options: WorkerOptions = {}) {
    super(queues, ([task]) => handler(task as Task), { ...options, batch: 1 });
  }
}

function kindOf(run: Run, error: unknown): Verdict['kind'] {
  if (error === undefined) return 'ack';
  if (run.cause === 'timeout') return 'retry';
  if (run.cause !== undefined || error instanceof Release) return 'release';
  return error instanceof Dead ? 'dead' : 'retry';
}

function messageOf(error: unknown): string {
  const text = error instanceof Error ? error.message || error.name : String(error);
  return text.slice(0, MAX_ERROR);
}
