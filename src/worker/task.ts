import { type Job, MAX_ERROR } from '../model/job.js';
import { parseDuration } from '../model/time.js';
import { checkMs } from '../model/validate.js';
import type { Queue } from '../queue/queue.js';

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
 * `5m`), by default a second, or as it was when the worker is being stopped.
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
  readonly #call: Call;

  constructor(queue: string, job: Job, call: Call) {
    this.queue = queue;
    this.id = job.id;
    this.due = job.due;
    this.attempt = job.attempt;
    this.failures = job.failures;
    this.tries = job.tries;
    this.receipt = job.receipt;
    this.payload = job.payload;
    this.#call = call;
  }

  /** The payload as a value. Throws a SyntaxError when it is not JSON, as only other software could have stored it. */
  json(): unknown {
    return JSON.parse(this.payload.toString('utf8'));
  }

  /** Aborts when the lease was lost, the time is up, or the worker stops and grace is over; its reason is an Error. */
  get signal(): AbortSignal {
    return this.#call.signal;
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

/** Why a call was cut short. */
export type Cause = 'lost' | 'timeout' | 'stopped';

/** One call of a handler: its jobs, and the means to end it. */
export class Call {
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

/** What a handler's end means for its jobs. */
export type Kind = 'ack' | 'retry' | 'dead' | 'release';

/** What becomes of the jobs of a call that ended so; `error` undefined: they are done. */
export function kindOf(call: Call, error: unknown): Kind {
  if (error === undefined) return 'ack';
  if (call.cause === 'timeout') return 'retry';
  if (call.cause !== undefined || error instanceof Release) return 'release';
  return error instanceof Dead ? 'dead' : 'retry';
}

/** The text of what a handler threw, which may be anything. */
export function messageOf(error: unknown): string {
  try {
    const text = error instanceof Error ? error.message || error.name : error;
    return String(text).slice(0, MAX_ERROR);
  } catch {
    return 'the handler threw something without a text';
  }
}
