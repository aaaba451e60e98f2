import type { Attributes } from '../model/attributes.js';
import type { Job } from '../model/job.js';
import type { Bytes } from '../model/payload.js';
import { fitted, type Schema } from '../model/schema.js';
import { legible, printable } from '../model/text.js';
import { formatDuration, parseDuration } from '../model/time.js';
import { checkMs } from '../model/validate.js';
import type { Queue } from '../queue/queue.js';
import type { Drained } from '../store/jobs.js';

/** A handler throws this to move its job to the dead set at once, without further retries. */
export class Dead extends Error {
  override readonly name = 'Dead';
}

/**
 * A handler throws this to fail its job and retry it after `delay` (ms, or text such as `5m`) instead of the backoff.
 * The failure counts. The constructor throws a `usage` error for an invalid delay.
 */
export class Retry extends Error {
  override readonly name = 'Retry';
  /** How long the job waits, ms. */
  readonly delayMs: number;

  constructor(delay: number | string, message = 'the handler asked for a retry') {
    super(message);
    this.delayMs = msOf(delay);
  }
}

/**
 * A handler throws this to give its job back without counting a failure. It counts a release: a job with more than
 * `maxReleases` is dead. The job is due again after `delay` (ms, or
 * text such as `5m`): by default after a second, or at once if the worker is stopping. The constructor throws a `usage`
 * error for an invalid delay.
 */
export class Release extends Error {
  override readonly name = 'Release';
  /** How long the job waits, ms. */
  readonly delayMs: number | undefined;

  constructor(delay?: number | string) {
    super('the handler gave the job back');
    this.delayMs = delay === undefined ? undefined : msOf(delay);
  }
}

/**
 * A handler throws this to give its job back as it was: it has not begun with it, or was stopped by what is no fault of
 * the job. Nothing is counted. With `delayMs` it is due that much later than now, behind others. @internal
 */
export class GivenBack extends Error {
  override readonly name = 'GivenBack';
  readonly delayMs: number | undefined;

  constructor(delayMs?: number) {
    super('the job was given back');
    this.delayMs = delayMs;
  }
}

function msOf(delay: number | string): number {
  return typeof delay === 'string' ? parseDuration(delay) : checkMs(delay, 'delay');
}

/** The call of a handler that a task belongs to. */
export interface Call {
  /** Aborts when the handler should end. */
  readonly signal: AbortSignal;
  /** Called once, when `signal` aborts. Costs less than a listener. */
  onAbort: ((reason: Error) => void) | undefined;
  /** The handler has not begun with the job: until {@link Call.begin} no time counts, neither for it nor against it. */
  postpone(): void;
  /** The handler begins with the job now. */
  begin(): void;
}

/** A job as a handler gets it, with a payload of type `T`. */
export class Task<T = unknown> implements Job {
  /** Name of its queue. */
  readonly queue: string;
  readonly id: string;
  readonly due: number;
  readonly attempt: number;
  readonly failures: number;
  readonly tries: number;
  readonly receipt: string;
  readonly payload: Bytes;
  readonly attributes: Attributes;
  readonly deliveries: number | undefined;
  readonly created: number | undefined;
  readonly expires: number | undefined;
  readonly keepsResult?: true;
  readonly #schema: Schema<unknown, T> | undefined;
  readonly #call: Call;

  /** Made by the worker. */
  constructor({ name, schema }: Queue<T, unknown>, job: Job, call: Call) {
    this.queue = name;
    this.id = job.id;
    this.due = job.due;
    this.attempt = job.attempt;
    this.failures = job.failures;
    this.tries = job.tries;
    this.receipt = job.receipt;
    this.payload = job.payload;
    this.attributes = job.attributes;
    this.deliveries = job.deliveries;
    this.created = job.created;
    this.expires = job.expires;
    if (job.keepsResult) this.keepsResult = true;
    this.#schema = schema;
    this.#call = call;
  }

  /** The call that `task` belongs to, for handlers that queue their jobs. @internal */
  static callOf(task: Task): Call {
    return task.#call;
  }

  /**
   * Parses the payload. If its queue has a schema, returns the validated value, and throws `data` if it does not fit.
   * Throws a SyntaxError if it is not JSON: a {@link RawPayload}, or a payload of other software.
   */
  json(): T {
    const value = JSON.parse(this.payload.toString('utf8'));
    return this.#schema ? fitted(this.#schema, value, this.queue) : value;
  }

  /**
   * Aborts when the lease is lost, after `timeoutMs`, or `graceMs` after a stop of the worker. Its reason is an Error
   * that says which.
   */
  get signal(): AbortSignal {
    return this.#call.signal;
  }
}

/**
 * What became of a job: `acked` (done), `retried` (failed, waits for its next attempt), `dead`, `released` (given back,
 * not counted), `lost` (its lease expired and another drain took it) or `superseded` (it was cancelled or replaced).
 */
export type TaskOutcome = 'acked' | 'retried' | 'dead' | 'released' | 'lost' | 'superseded';

/** The result of one job, reported to `onResult` of a worker. */
export interface TaskResult {
  readonly queue: Queue;
  readonly job: Job;
  readonly outcome: TaskOutcome;
  /**
   * Why the job is dead, if it is: it `failed` or was `released` too often, or its handler `refused` it by throwing
   * {@link Dead}.
   */
  readonly reason: 'failed' | 'refused' | 'released' | undefined;
  /** How long the handler ran, ms. */
  readonly ms: number;
  /** The message of what the handler threw, if it failed. */
  readonly error: string | undefined;
  /** What the handler threw, if it failed. */
  readonly thrown: unknown;
  /** How long a retried job waits, ms. */
  readonly delayMs: number | undefined;
}

/** A job that has just died, as `onDead` of a worker gets it. */
export interface DeadJob {
  /** Name of its queue. */
  readonly queue: string;
  /** Its id; base64:… if it is not text. */
  readonly id: string;
  /**
   * It `failed`, was `released` or was `lost` too often, or was `refused`, by its handler or the worker. `orphaned`: it
   * has no payload. `bad id`: no handler could receive its id.
   */
  readonly reason: NonNullable<TaskResult['reason']> | Drained['died'][number]['reason'];
  /** The error that it died of, or else the last one that is stored with it, if any. */
  readonly error: string | undefined;
  /** How often it was delivered. */
  readonly attempts: number;
  readonly attributes: Attributes;
  /** The payload's bytes, as stored. Undefined: it has none. */
  readonly payload: Bytes | undefined;
}

/**
 * Returns the default `onResult`: prints the failure of each job on stderr, with the stack; if a call failed with
 * several jobs, only for the first. Also prints which jobs were released too often.
 */
export function failureTeller(): (result: TaskResult) => void {
  let told: unknown;
  return ({ queue, job, outcome, reason, error, thrown, delayMs }) => {
    if (reason === 'released')
      console.error(`delayq: ${queue.name}: job ${printable(job.id)} is dead: it was released too often`);
    if (error === undefined) return;
    const then = delayMs === undefined ? outcome : `retry in ${formatDuration(delayMs)}`;
    // Dead and Retry are deliberate: no stack.
    const short = thrown instanceof Dead || thrown instanceof Retry || thrown === told;
    // It may quote the payload, which must not control a terminal.
    const text = legible(short ? error : stackOf(thrown, error));
    told = thrown;
    console.error(
      `delayq: ${queue.name}: job ${printable(job.id)} failed at attempt ${job.attempt} (${then}): ${text}`,
    );
  };
}

/** The stacks of an error and its causes; `otherwise` if it has none. */
function stackOf(thrown: unknown, otherwise: string): string {
  const stacks: string[] = [];
  try {
    for (let one = thrown as Error | undefined; typeof one?.stack === 'string' && stacks.length < 5; ) {
      stacks.push(one.stack);
      one = one.cause as Error | undefined;
    }
  } catch {
    // A cause that cannot be read is left out.
  }
  return stacks.join('\ncaused by: ') || otherwise;
}
