import { Leases, type TakenJobs } from '../consume/leases.js';
import { poll } from '../consume/poll.js';
import { SURPLUS_MS } from '../consume/takes.js';
import { DelayqError, isPassing } from '../model/errors.js';
import type { Job } from '../model/job.js';
import { many } from '../model/text.js';
import { realClock } from '../model/time.js';
import type { Queue } from '../queue/queue.js';
import { Circuit } from './circuit.js';
import { DeadJobs } from './dead-jobs.js';
import { Durations } from './durations.js';
import { Flow } from './flow.js';
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
 * handlers of other libraries do. Any other value that it returns for a single job is its result, if its queue keeps
 * jobs that are done: a string as it is, anything else as JSON, at most 4 KiB of it.
 *
 * The types of the queues determine what `json()` of a job returns.
 */
export class BatchWorker<T = unknown, Q extends Queue<T, unknown> = Queue<T, unknown>> {
  readonly #queues: readonly Queue[];
  readonly #options: CheckedOptions;
  readonly #leases: Leases;
  readonly #throttle: Throttle;
  readonly #circuit: Circuit;
  readonly #runner: Runner;
  readonly #settler: Settler;
  readonly #flow: Flow;
  readonly #durations = new Durations();
  readonly #deadJobs: DeadJobs | undefined;
  readonly #counts = { acked: 0, retried: 0, dead: 0, released: 0, lost: 0, superseded: 0, circuitOpen: false };
  readonly #fetchEnd = new AbortController();
  #running: Promise<Summary> | undefined;
  #fetches: ReturnType<typeof poll> | undefined;
  /** How many untried jobs were given back since the last fetch: they do not count against the limit. */
  #untried = 0;
  #endGrace = () => {};
  /** When a stop has to be over, by the clock, ms. */
  #graceEnd = Number.POSITIVE_INFINITY;
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
    const { ratePerSecond, maxFailures, watch, graceMs, onDead, onTrouble } = this.#options;
    const goOn = () => this.#goOn();
    this.#throttle = new Throttle(ratePerSecond, () => this.#beforeStart(), goOn);
    this.#circuit = new Circuit(maxFailures, {
      onOpen: (why) => this.#failing(why),
      onClose: () => onTrouble(undefined, 'handlers'),
      onReady: goOn,
      // Those about to start count, too.
      startedSince: (time) => this.#runner.startedSince(time) + this.#flow.busy - this.#runner.size,
    });
    this.#runner = new Runner(handler as (tasks: Task[]) => unknown, this.#options, (call, error, returned) =>
      this.#ended(call, error, returned),
    );
    this.#leases = new Leases({
      onLost: (job) => this.#runner.leaseLost(job),
      onTrouble,
      // A run that ends by itself must not wait forever for a Redis that is gone.
      ...(watch ? {} : { retryMs: graceMs }),
    });
    this.#settler = new Settler(this.#leases, this.#options, {
      onSettled: (settlement, outcome, delayMs) => this.#settled(settlement, outcome, delayMs),
      onRoom: goOn,
      // If no fetch follows anyway, finish the jobs of other queues.
      onFailed: (error) => this.#fail(error, this.#flow.isDrained && !isPassing(error)),
    });
    const tell = (text: string) => onTrouble(new DelayqError('temporary', text), 'onDead');
    this.#deadJobs = onDead && new DeadJobs(onDead, 'onDead', tell);
    this.#flow = new Flow(this.#options, {
      circuit: this.#circuit,
      throttle: this.#throttle,
      held: () => this.#leases.size,
      isGivingBack: () => this.#settler.isGivingBack,
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
      batch: () => this.#flow.batch,
      start: () => this.#flow.startable,
      signal: this.#fetchEnd.signal,
      leases: this.#leases,
      onDrained: (queue, drained) => {
        this.#flow.answered(queue, drained);
        this.#deadJobs?.drained(queue, drained);
        onDrained?.(queue, drained);
      },
      onWait: () => {
        this.#flow.waits();
        this.#goOn();
      },
    });
    const stop = () => this.stop();
    if (signal?.aborted) stop();
    signal?.addEventListener('abort', stop);
    // A run with a time limit must end even if Redis is gone by then.
    if (forMs !== undefined) this.#leases.giveUpAfter(forMs + graceMs);
    const timeOver = realClock.after(forMs ?? Number.POSITIVE_INFINITY, () => this.#circuit.hurry(), { ref: false });
    const surplus = setInterval(() => this.#settler.release(this.#flow.surplus()), SURPLUS_MS / 4).unref();
    await new Promise<void>((resolve) => {
      this.#finish = resolve;
      this.#goOn();
    });
    await this.#giveBackLate(this.#fetches);
    await this.#settler.idle();
    await this.#durations.flush();
    clearInterval(surplus);
    timeOver();
    if (this.#circuit.isOpen) this.#counts.circuitOpen = true;
    this.#circuit.close();
    this.#throttle.close();
    this.#endGrace();
    signal?.removeEventListener('abort', stop);
    this.#leases.close();
    await this.#deadJobs?.end(Math.min(graceMs, this.#graceEnd - realClock.now()));
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
    if (this.#flow.isStopped) return;
    this.#settler.release(this.#flow.stop());
    this.#fetchEnd.abort();
    this.#circuit.close();
    const { graceMs } = this.#options;
    this.#leases.giveUpAfter(graceMs);
    this.#graceEnd = realClock.now() + graceMs;
    if (this.#flow.busy > 0) this.#endGrace = realClock.after(graceMs, () => this.#runner.stop());
    this.#goOn();
  }

  /**
   * Stops the run, and waits for its end: for `await using`. Errors of the run are thrown by {@link BatchWorker.run}.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.stop();
    await this.#running?.catch(() => {});
  }

  /** Does everything that can be done now. Called after every event. */
  #goOn(): void {
    for (let action = this.#flow.next(); action; action = this.#flow.next()) {
      if (action.do === 'fetch') this.#fetch();
      else if (action.do === 'start') this.#start(action.queue, action.jobs);
      else if (action.do === 'giveBack') {
        this.#untried += action.jobs.length;
        this.#settler.release(action.jobs);
      } else {
        this.#finish?.();
        return;
      }
    }
  }

  #fetch(): void {
    const fetched = (this.#fetches as ReturnType<typeof poll>).next(this.#untried);
    this.#untried = 0;
    fetched.then(
      ({ value, done }) => {
        if (done) this.#flow.drained();
        else this.#settler.release(this.#flow.fetched(this.#flow.isStopped ? value : this.#settler.accepted(value)));
        this.#goOn();
      },
      (error: unknown) => {
        this.#flow.drained();
        // If other queues work, handle their jobs first.
        const { outages } = this.#leases;
        this.#fail(error, error === outages.error && !outages.all);
      },
    );
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

  /** Calls the handler, after renewing the leases of its jobs if necessary. */
  #start(queue: Queue, jobs: readonly Job[]): void {
    if (this.#leases.areFresh(jobs)) {
      this.#runner.start(queue, jobs);
      return;
    }
    const notStarted = () => {
      this.#flow.ended();
      this.#goOn();
    };
    this.#leases.fresh(jobs).then(
      (held) => {
        if (held.length > 0 && !this.#flow.isStopped) this.#runner.start(queue, held);
        else {
          this.#settler.release(held);
          notStarted();
        }
      },
      (error: unknown) => {
        this.#fail(error);
        notStarted();
      },
    );
  }

  #ended(call: HandlerCall, error: unknown, returned: unknown): void {
    const action = actionOf(call, error);
    const { isStopped } = this.#flow;
    if (!isStopped) {
      if (action === 'ack') this.#circuit.succeeded();
      // A lost lease is not a failure of the handler.
      else if (action === 'release') this.#circuit.released(call.started);
      else this.#circuit.failed(call.started, messageOf(error));
    }
    this.#settler.settle(call, action, error, isStopped, returned);
    this.#flow.ended();
    this.#goOn();
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
    this.#flow.ran(ms);
    if (outcome === 'acked') this.#durations.add(queue, ms);
    const reason = outcome === 'dead' ? DIED[action] : undefined;
    if (reason) this.#deadJobs?.died(queue, job, reason, error);
    this.#options.onResult({ queue, job, outcome, reason, ms, error, thrown, delayMs });
  }

  /** Ends the run, which then throws `error`: at once, or, with `atEnd`, after the jobs already taken. */
  #fail(error: unknown, atEnd = false): void {
    this.#problem ??= error;
    if (!atEnd) this.stop();
    this.#goOn();
  }
}

/** Why jobs are dead that were to be settled in these ways. */
const DIED = { ack: undefined, retry: 'failed', dead: 'refused', release: 'released', back: undefined } as const;

/** A {@link BatchWorker} whose handler is called with one job at a time. */
export class Worker<T = unknown, Q extends Queue<T, unknown> = Queue<T, unknown>> extends BatchWorker<T, Q> {
  /** Throws a `usage` error for an invalid option. Takes no jobs until {@link BatchWorker.run}. */
  constructor(queues: Q | readonly Q[], handler: (task: Task<PayloadOf<Q>>) => Returned, options: WorkerOptions = {}) {
    checkQueuesAndHandler([], handler);
    super(queues, ([task]) => handler(task as Task<PayloadOf<Q>>), { ...checkSingle(options), batch: 1 });
  }
}
