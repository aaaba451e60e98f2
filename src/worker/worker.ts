import { Leases, type TakenJobs } from '../consume/leases.js';
import { poll } from '../consume/poll.js';
import { SURPLUS_MS } from '../consume/takes.js';
import { DelayqError, isPassing } from '../model/errors.js';
import { many } from '../model/text.js';
import { realClock } from '../model/time.js';
import type { Queue } from '../queue/queue.js';
import { MAX_CALL } from '../store/script.js';
import { JobBuffer } from './buffer.js';
import { Circuit } from './circuit.js';
import {
  type BatchWorkerOptions,
  type CheckedOptions,
  checkOptions,
  checkQueuesAndHandler,
  checkSingle,
  type WorkerOptions,
} from './options.js';
import { type HandlerCall, Runner } from './runner.js';
import { actionOf, messageOf, type Settlement, Settler } from './settler.js';
import type { Task, TaskOutcome } from './task.js';
import { Throttle } from './throttle.js';

/** The most leases a worker holds besides those of running handlers, jobs that are being settled included. */
const MAX_HELD = 5_000;

/** What `json()` of a job returns, by the type of its queue. */
export type PayloadOf<Q> = Q extends Queue<infer T, infer _> ? T : never;

/** What a handler returns: with unknown, `const worker = new Worker(queue, () => worker.stop())` would not compile. */
// biome-ignore lint/suspicious/noExplicitAny: that is why
type Returned = any;

/** How many jobs had each outcome. */
export interface Summary extends Readonly<Record<TaskOutcome, number>> {
  /**
   * Whether too many failures in a row (`maxFailures`) ended the run; with `watch`: whether none succeeded after them.
   */
  readonly circuitOpen: boolean;
}

/**
 * Drains queues into a handler that is called with up to `batch` jobs of one queue and decides for all of them. Fetches
 * only the jobs that can start now or next, and renews their leases for as long as the handler runs.
 *
 * If the handler returns, or its promise is fulfilled, its jobs are done. If it throws or rejects, they have failed,
 * unless it throws {@link Dead}, {@link Retry} or {@link Release}. They have also failed if it returns `false`, as
 * handlers of other libraries do; any other value that it returns is not used.
 *
 * The types of the queues determine what `json()` of a job returns.
 */
export class BatchWorker<T = unknown, Q extends Queue<T, unknown> = Queue<T, unknown>> {
  readonly #queues: readonly Queue[];
  readonly #options: CheckedOptions;
  readonly #leases: Leases;
  readonly #buffer: JobBuffer;
  readonly #throttle: Throttle;
  readonly #circuit: Circuit;
  readonly #runner: Runner;
  readonly #settler: Settler;
  readonly #counts = { acked: 0, retried: 0, dead: 0, released: 0, lost: 0, superseded: 0, circuitOpen: false };

  #running: Promise<Summary> | undefined;
  #fetches: ReturnType<typeof poll> | undefined;
  /** How many jobs the fetch in flight has asked for; 0: none is in flight. */
  #fetching = 0;
  /** The last fetch said that there are more jobs to take. */
  #more = false;
  /** Queues with limits: no job is fetched from them before it can start. */
  readonly #limited = new Set<Queue>();
  /** No jobs are left to fetch. */
  #drained = false;
  readonly #fetchEnd = new AbortController();
  /** Handler calls that wait until the leases of their jobs are renewed. */
  #starting = 0;
  /** How many untried jobs were given back since the last fetch: they do not count against the limit. */
  #untried = 0;
  #stopping = false;
  #endGrace = () => {};
  /** Handlers are so slow that other drains should have the next jobs. */
  #slow = false;
  #problem: unknown;
  #finish: (() => void) | undefined;

  /** Throws a `usage` error for an invalid option. Takes no jobs until {@link BatchWorker.run}. */
  constructor(
    queues: Q | readonly Q[],
    handler: (tasks: Task<PayloadOf<Q>>[]) => Returned,
    options: BatchWorkerOptions = {},
  ) {
    this.#queues = Array.isArray(queues) ? queues : [queues as Q];
    checkQueuesAndHandler(this.#queues, handler);
    this.#options = checkOptions(options);
    const { concurrency, batch, ratePerSecond, maxFailures, watch, graceMs, onTrouble } = this.#options;
    this.#buffer = new JobBuffer(concurrency, batch);
    this.#throttle = new Throttle(
      ratePerSecond,
      () => this.#beforeStart(),
      () => this.#advance(),
    );
    this.#circuit = new Circuit(maxFailures, {
      onOpen: (why) => this.#failing(why),
      onClose: () => onTrouble(undefined, 'handlers'),
      onReady: () => this.#advance(),
      startedSince: (time) => this.#runner.startedSince(time) + this.#starting,
    });
    this.#runner = new Runner(handler as (tasks: Task[]) => unknown, this.#options, (call, error) =>
      this.#ended(call, error),
    );
    this.#leases = new Leases({
      onLost: (job) => this.#runner.leaseLost(job),
      onTrouble,
      // A run that ends by itself must not wait forever for a Redis that is gone.
      ...(watch ? {} : { retryMs: graceMs }),
    });
    this.#settler = new Settler(this.#leases, this.#options, {
      onSettled: (settlement, outcome, delayMs) => this.#settled(settlement, outcome, delayMs),
      onRoom: () => this.#advance(),
      // If no fetch follows anyway, finish the jobs of other queues.
      onFailed: (error) => this.#fail(error, this.#drained && !isPassing(error)),
    });
  }

  /**
   * Runs until it is stopped or, without `watch`, until all jobs that were due at the start are handled. Returns how
   * many jobs had each outcome. Can be called once; a second call throws `usage`.
   *
   * After `maxFailures` failures in a row, a run with `watch` gives back prefetched jobs, and tries one job at a time,
   * after growing pauses, until one succeeds. A run without `watch` ends.
   *
   * Errors that pass (a lost connection, Redis loading) are retried. Throws any other error of Redis after jobs that
   * have not started were given back; jobs that could not be settled are delivered again when their leases expire.
   */
  async run(): Promise<Summary> {
    if (this.#running) throw new DelayqError('usage', 'this worker has already run', { next: 'create a new one' });
    this.#running = this.#run();
    return this.#running;
  }

  async #run(): Promise<Summary> {
    const { signal, forMs, graceMs, onDrained } = this.#options;
    this.#fetches = poll(this.#queues, {
      ...this.#options,
      batch: () => Math.max(this.#room(), 1),
      start: () => this.#startable(),
      signal: this.#fetchEnd.signal,
      leases: this.#leases,
      onDrained: (queue, drained) => {
        this.#more = drained.state === 'more';
        if (drained.state !== 'paused') this.#limited[drained.hasLimits ? 'add' : 'delete'](queue);
        onDrained?.(queue, drained);
      },
      onWait: () => this.#advance(false),
    });
    const stop = () => this.stop();
    if (signal?.aborted) stop();
    signal?.addEventListener('abort', stop);
    // A run with a time limit must end even if Redis is gone by then.
    if (forMs !== undefined) this.#leases.giveUpAfter(forMs + graceMs);
    const timeOver = realClock.after(forMs ?? Number.POSITIVE_INFINITY, () => this.#circuit.hurry(), { ref: false });
    const surplus = setInterval(() => this.#releaseSurplus(), SURPLUS_MS / 4).unref();
    await new Promise<void>((resolve) => {
      this.#finish = resolve;
      this.#advance();
    });
    await this.#giveBackLate(this.#fetches);
    await this.#settler.idle();
    clearInterval(surplus);
    timeOver();
    if (this.#circuit.isOpen) this.#counts.circuitOpen = true;
    this.#circuit.close();
    this.#throttle.close();
    this.#endGrace();
    signal?.removeEventListener('abort', stop);
    this.#leases.close();
    const problem = this.#problem ?? this.#leases.outages.error;
    if (problem !== undefined) throw problem;
    return this.#counts;
  }

  /** After a stop: gives back the jobs of calls that were in flight. */
  async #giveBackLate(fetches: AsyncIterable<TakenJobs>): Promise<void> {
    try {
      for await (const { jobs } of fetches) this.#settler.release(jobs);
    } catch (error) {
      this.#problem ??= error;
    }
  }

  /**
   * Stops the run: takes no more jobs and gives back those that have not started, without counting anything. Running
   * handlers may finish within `graceMs`; then their signals abort and their jobs are given back, too.
   */
  stop(): void {
    if (this.#stopping) return;
    this.#stopping = true;
    this.#fetchEnd.abort();
    this.#circuit.close();
    const { graceMs } = this.#options;
    this.#leases.giveUpAfter(graceMs);
    this.#settler.release(this.#buffer.clear());
    if (this.#busy > 0) this.#endGrace = realClock.after(graceMs, () => this.#runner.stop());
    this.#advance();
  }

  /**
   * Stops the run, and waits for its end: for `await using`. Errors of the run are thrown by {@link BatchWorker.run}.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.stop();
    await this.#running?.catch(() => {});
  }

  /** Handler calls that run or are about to. */
  get #busy(): number {
    return this.#runner.size + this.#starting;
  }

  #room(): number {
    const { concurrency, batch } = this.#options;
    if (this.#circuit.isOpen) return this.#circuit.calls === 0 ? 0 : batch - this.#buffer.length;
    const max = MAX_HELD + concurrency * batch - this.#leases.size;
    return Math.min(this.#buffer.room(this.#busy), max, MAX_CALL);
  }

  /** How many jobs could start now. Jobs that are being settled occupy places: until then they are active. */
  #startable(): number {
    const { concurrency, batch } = this.#options;
    const calls = Math.min(this.#throttle.calls, this.#circuit.calls);
    return Math.max(0, Math.min(concurrency * batch - this.#leases.size, calls * batch));
  }

  /**
   * Whether this many calls keep the handlers busy, so that other drains should have the next job. Quick handlers
   * prefetch while Redis has more jobs.
   */
  #suffice(calls: number): boolean {
    return (this.#slow || !this.#more) && calls >= this.#options.concurrency;
  }

  /** Does everything that can be done now. Called after every event. `more`: there are more jobs to fetch. */
  #advance(more = this.#more): void {
    this.#more = more;
    // Fetch first: a batch that is not full waits for jobs that are on their way.
    this.#fetchIfWorthIt();
    while (!this.#stopping && this.#busy < this.#options.concurrency) {
      const size = this.#buffer.nextSize(this.#more && this.#fetching > 0);
      if (size === 0 || this.#circuit.calls === 0 || !this.#throttle.mayStart()) break;
      this.#start(size);
    }
    if (this.#circuit.calls === 0) this.#giveBack();
    // Again, because jobs have left the buffer, which may have been full of large payloads.
    this.#fetchIfWorthIt();
    const idle = this.#busy === 0 && this.#buffer.length === 0 && this.#fetching === 0;
    if (idle && (this.#drained || this.#stopping)) this.#finish?.();
  }

  #fetchIfWorthIt(): void {
    if (this.#drained || this.#stopping || this.#fetching > 0 || this.#settler.isGivingBack) return;
    if (this.#suffice(this.#busy + this.#buffer.calls)) return;
    const asked = this.#room();
    const worthIt = this.#circuit.isOpen ? 1 : this.#buffer.worthFetching;
    if (this.#limited.size > 0 ? this.#startable() === 0 : asked < worthIt) return;
    this.#fetching = asked;
    const fetched = (this.#fetches as ReturnType<typeof poll>).next(this.#untried);
    this.#untried = 0;
    fetched.then(
      ({ value, done }) => {
        this.#fetching = 0;
        if (done) this.#drained = true;
        else if (this.#stopping) this.#settler.release(value.jobs);
        else this.#buffer.add(this.#settler.accepted(value), asked, this.#busy);
        this.#advance();
      },
      (error: unknown) => {
        this.#fetching = 0;
        this.#drained = true;
        // If other queues work, handle their jobs first.
        const { outages } = this.#leases;
        this.#fail(error, error === outages.error && !outages.all);
      },
    );
  }

  /** Gives back jobs that will not start soon, so that other drains can take them. */
  #releaseSurplus(): void {
    // A run that has drained its queues would not fetch them again, and one with a limit has counted them.
    const { limit, watch } = this.#options;
    if (this.#drained || limit !== undefined || !(watch || (this.#more && this.#fetching === 0))) return;
    this.#slow ||= this.#busy >= this.#options.concurrency && this.#buffer.hasWaitedLong;
    this.#settler.release(this.#buffer.takeSurplus(this.#busy, this.#suffice(this.#busy)));
  }

  /** Gives back the jobs that were to start next. */
  #giveBack(): void {
    const jobs = this.#buffer.clear();
    this.#untried += jobs.length;
    this.#settler.release(jobs);
  }

  #beforeStart(): Promise<unknown> | undefined {
    const failed = (error: unknown) => this.#fail(error);
    try {
      return this.#options.beforeStart?.()?.catch(failed);
    } catch (error) {
      failed(error);
      return Promise.resolve();
    }
  }

  /** Calls the handler with the next `size` jobs, after renewing their leases if necessary. */
  #start(size: number): void {
    const { queue, jobs } = this.#buffer.take(size);
    if (this.#leases.areFresh(jobs)) {
      this.#runner.start(queue, jobs);
      return;
    }
    this.#starting += 1;
    this.#leases
      .fresh(jobs)
      .then(
        (held) => {
          if (this.#stopping) this.#settler.release(held);
          else if (held.length > 0) this.#runner.start(queue, held);
        },
        (error: unknown) => this.#fail(error),
      )
      .finally(() => {
        this.#starting -= 1;
        this.#advance();
      });
  }

  #ended(call: HandlerCall, error: unknown): void {
    const action = actionOf(call, error);
    if (!this.#stopping) {
      if (action === 'ack') this.#circuit.succeeded();
      // A lost lease is not a failure of the handler.
      else if (action === 'release') this.#circuit.released(call.started);
      else this.#circuit.failed(call.started, messageOf(error));
    }
    this.#settler.settle(call, action, error, this.#stopping);
    if (this.#fetching > 0) this.#buffer.handlerFree();
    this.#advance();
  }

  /** Handles too many failures in a row; `why` is the last. */
  #failing(why: string): void {
    const { maxFailures, watch, onTrouble } = this.#options;
    const next = watch
      ? 'one job at a time is tried until one succeeds'
      : 'the run ends, and the jobs that have not started are given back';
    const what = `${many(maxFailures, 'failure')} in a row`;
    onTrouble(new DelayqError('temporary', what, { why, next }), 'handlers');
    if (watch) return;
    this.#counts.circuitOpen = true;
    this.stop();
  }

  #settled({ queue, job, action, ms, error, thrown }: Settlement, outcome: TaskOutcome, delayMs?: number): void {
    this.#counts[outcome] += 1;
    this.#slow = ms >= SURPLUS_MS;
    const reason = outcome !== 'dead' ? undefined : action === 'dead' ? 'refused' : 'failed';
    this.#options.onResult({ queue, job, outcome, reason, ms, error, thrown, delayMs });
  }

  /** Ends the run, which then throws `error`: at once, or, with `atEnd`, after the jobs already taken. */
  #fail(error: unknown, atEnd = false): void {
    this.#problem ??= error;
    if (!atEnd) this.stop();
    this.#advance();
  }
}

/** A {@link BatchWorker} whose handler is called with one job at a time. */
export class Worker<T = unknown, Q extends Queue<T, unknown> = Queue<T, unknown>> extends BatchWorker<T, Q> {
  /** Throws a `usage` error for an invalid option. Takes no jobs until {@link BatchWorker.run}. */
  constructor(queues: Q | readonly Q[], handler: (task: Task<PayloadOf<Q>>) => Returned, options: WorkerOptions = {}) {
    checkQueuesAndHandler([], handler);
    super(queues, ([task]) => handler(task as Task<PayloadOf<Q>>), { ...checkSingle(options), batch: 1 });
  }
}
