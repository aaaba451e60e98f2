import type { PollOptions } from '../consume/takes.js';
import { type OnTrouble, onStderr, troubleTeller } from '../consume/trouble.js';
import { type Backoff, packBackoff, parseBackoff } from '../model/backoff.js';
import { DelayqError } from '../model/errors.js';
import type { Job } from '../model/job.js';
import { checkCount, checkMs, keysOf } from '../model/validate.js';
import { Queue } from '../queue/queue.js';
import { type DeadJob, failureTeller, type Release, type TaskResult } from './task.js';

/** How a worker works. Durations are ms. */
export interface WorkerOptions extends Pick<PollOptions, 'limit' | 'leaseMs' | 'forMs' | 'onDrained'> {
  /**
   * Keep waiting for new jobs; default true. If false, the run ends once all jobs that were due at its start are
   * handled.
   */
  readonly watch?: boolean | undefined;
  /** How many handlers run at the same time; default 1. */
  readonly concurrency?: number | undefined;
  /**
   * Delay before a failed job is retried: ms, text such as `30s,1m`, or a function of the number of failures, this one
   * included, that returns ms. Default: the backoff of the queue.
   */
  readonly backoff?: Backoff | string | ((failures: number, error: unknown) => number) | undefined;
  /**
   * After this many failures in a row try only one job at a time, after pauses that grow from 1 s to 30 s, until one
   * succeeds; without `watch`, end the run. Default 20.
   */
  readonly maxFailures?: number | undefined;
  /** A job whose handler has given it back more often than this, with {@link Release}, is dead. Default 1,000. */
  readonly maxReleases?: number | undefined;
  /** The most handlers to start per second; default: no limit. */
  readonly ratePerSecond?: number | undefined;
  /** A handler that runs longer than this has failed, and its signal aborts; default: no limit. */
  readonly timeoutMs?: number | undefined;
  /** How long running handlers may continue after a stop; default 30 s. */
  readonly graceMs?: number | undefined;
  /** How long to wait for a handler after its signal was aborted; default 5 s. */
  readonly abandonMs?: number | undefined;
  /** Aborting this stops the run. */
  readonly signal?: AbortSignal | undefined;
  /** Called before each start of a handler. While the promise it returns is pending, no handler starts. */
  readonly beforeStart?: (() => Promise<unknown> | undefined) | undefined;
  /** Called with each job that was taken. If it returns a text, the job is dead at once, with this as its error. */
  readonly refuse?: ((job: Job) => string | undefined) | undefined;
  /**
   * Called with an error when Redis cannot be used, or one of several queues (its second argument), or when too many
   * handlers have failed in a row (`'handlers'`), and with undefined when that is over. Also with failures of `onDead`
   * (`'onDead'`), the first ones of a minute. Default: print it on stderr.
   */
  readonly onTrouble?: OnTrouble | undefined;
  /** Called with the result of each job once Redis has confirmed it. Default: print failures on stderr. */
  readonly onResult?: ((result: TaskResult) => void) | undefined;
  /**
   * Called once for each job that dies by a call of this worker. It may return a promise: at most 4 are under way at
   * once, up to 1,000 jobs wait, and further ones are left out. Best effort: what it throws goes to `onTrouble`, and
   * nothing calls it again. The end of a run waits for it, at most `graceMs`.
   */
  readonly onDead?: ((job: DeadJob) => unknown) | undefined;
}

/** How a {@link BatchWorker} works. */
export interface BatchWorkerOptions extends WorkerOptions {
  /** The most jobs for one call of the handler; default 100. */
  readonly batch?: number | undefined;
}

/** Each option, with words that people try instead. */
const OPTIONS = {
  limit: true,
  leaseMs: true,
  forMs: true,
  onTrouble: true,
  onDrained: true,
  watch: true,
  concurrency: true,
  backoff: true,
  maxFailures: true,
  maxReleases: true,
  ratePerSecond: true,
  timeoutMs: true,
  graceMs: true,
  abandonMs: true,
  signal: true,
  beforeStart: true,
  refuse: true,
  onResult: true,
  onDead: true,
} as const;

const checkWorkerKeys = keysOf<WorkerOptions>('Worker', OPTIONS);
const checkKeys = keysOf<BatchWorkerOptions>('BatchWorker', { ...OPTIONS, batch: true });

/** Returns the options of a {@link Worker}. Throws `usage` for an unknown one. */
export function checkSingle(options: WorkerOptions): WorkerOptions {
  if (!('batch' in options)) return checkWorkerKeys(options);
  const next = 'use BatchWorker';
  throw new DelayqError('usage', 'Worker has no option "batch"', { why: 'its handler gets one job at a time', next });
}

export type CheckedOptions = ReturnType<typeof checkOptions>;

/** Fills in defaults. Throws a `usage` error for an invalid option. */
export function checkOptions(options: BatchWorkerOptions) {
  checkKeys(options);
  for (const name of ['concurrency', 'batch', 'limit', 'maxFailures', 'maxReleases'] as const)
    checkCount(options[name], name);
  if (options.leaseMs !== undefined) checkMs(options.leaseMs, 'leaseMs', 1);
  for (const name of ['forMs', 'timeoutMs', 'graceMs', 'abandonMs'] as const)
    if (options[name] !== undefined) checkMs(options[name], name);
  if (options.ratePerSecond !== undefined && !(options.ratePerSecond > 0)) {
    throw new DelayqError('usage', 'ratePerSecond must be greater than zero', { next: 'leave it out for no limit' });
  }
  const { watch = true, concurrency = 1, batch = 100, maxFailures = 20, graceMs = 30_000, abandonMs = 5_000 } = options;
  const { backoff: given, onResult = failureTeller(), onTrouble = troubleTeller(onStderr, { watch }) } = options;
  const backoff = typeof given === 'string' ? parseBackoff(given) : given;
  if (backoff !== undefined && typeof backoff !== 'function') packBackoff(backoff);
  return { ...options, watch, concurrency, batch, maxFailures, graceMs, abandonMs, backoff, onResult, onTrouble };
}

/** Throws `usage` if a worker cannot work with these: every job would fail. */
export function checkQueuesAndHandler(queues: readonly Queue[], handler: unknown): void {
  if (!queues.every((queue) => queue instanceof Queue)) {
    throw new DelayqError('usage', 'a worker needs a Queue, or several', { next: "give it new Queue(redis, 'name')" });
  }
  if (typeof handler !== 'function') {
    throw new DelayqError('usage', 'a worker needs a handler', { next: 'give a function as the second argument' });
  }
}
