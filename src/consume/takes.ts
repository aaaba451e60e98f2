import { DelayqError, isDelayqError } from '../model/errors.js';
import type { Clock } from '../model/time.js';
import type { Queue } from '../queue/queue.js';
import { answerBy, repeatIfLost } from '../redis/retry.js';
import { countOf, type Drained, LONG_AGO, type Start, type StreamTarget } from '../store/jobs.js';
import { MAX_CALL } from '../store/script.js';
import type { Leases, TakenJobs } from './leases.js';
import type { OnTrouble } from './trouble.js';

/** How to poll queues, and which jobs to take. Durations are ms. */
export interface PollOptions {
  /** The most jobs to take in all; default: no limit. */
  readonly limit?: number | undefined;
  /** The most jobs to take per call; a function is called before each call. */
  readonly batch?: number | (() => number) | undefined;
  /** How many jobs the consumer can start now: see {@link Start}. */
  readonly start?: Start | undefined;
  /**
   * Lease of the jobs; default: the lease of each queue. 0 removes jobs from Redis as they are taken (at most once).
   */
  readonly leaseMs?: number | undefined;
  /** Moves the jobs into a stream: none is yielded. Needs `leaseMs` 0. */
  readonly stream?: StreamTarget | undefined;
  /** Keep waiting for jobs. If not set, the run ends when all jobs that were due at its start are taken. */
  readonly watch?: boolean | undefined;
  /** With `watch`: stop after this time. */
  readonly forMs?: number | undefined;
  /** Stops polling. Jobs that are already taken are still yielded. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Holds the leases of the jobs as soon as they arrive. After a stop, answers are awaited only until it gives up; jobs
   * that arrive later are given back.
   */
  readonly leases?: Leases | undefined;
  /** Called when one of several queues is in trouble; with `watch` also when Redis is, and again when that is over. */
  readonly onTrouble?: OnTrouble | undefined;
  /**
   * While there are more jobs, send the next call before the answer to the last one has arrived, so that neither Redis
   * nor the consumer waits for the other. After a stop or an error, read on until the end: jobs in flight are still
   * yielded. Breaking out of the loop gives them back.
   */
  readonly ahead?: boolean | undefined;
  /** Called with the answer of each drain call. */
  readonly onDrained?: ((queue: Queue, drained: Drained) => void) | undefined;
  /** Called before each wait: no more jobs come for now, even if the last answer promised some. */
  readonly onWait?: (() => void) | undefined;
  /** Default: that of this process. */
  readonly clock?: Clock | undefined;
}

/** The answer to a call for jobs. */
export interface TakeAnswer {
  readonly drained: Drained;
  readonly taken: TakenJobs;
}

/** A call for jobs whose outcome nobody has dealt with yet. */
export interface TakeCall {
  readonly queue: Queue;
  /** It only asks when the next job is due. */
  readonly isLook: boolean;
  /** By the clock, ms. */
  readonly sentAt: number;
  /** Until when the queues after this one wait for it; undefined: they do not yet. */
  waitUntil?: number;
  /** It takes long: the other queues go on meanwhile. */
  isLate: boolean;
  /** Its outcome was dealt with, or nobody waits for that any more. */
  isDone: boolean;
  /** Undefined: there was no answer yet. */
  outcome?: TakeAnswer | { readonly error: unknown };
}

/** How long a job may wait for a busy consumer before it is given back to others, ms. */
export const SURPLUS_MS = 1_000;

/** The owner of a clock: the server; in a cluster the queue, because its node is not known here. */
const clockOf = (queue: Queue) => (queue.redis.sharded ? queue : queue.redis);

/** Sends calls for jobs, within the limit of jobs and up to the cutoff time. */
export class Takes {
  readonly #options: PollOptions;
  readonly #clock: Clock;
  readonly #onEnd: () => void;
  /** When the run began, by the clock, ms. */
  readonly #began: number;
  #isBegun = false;
  /**
   * Without `watch`: the latest due times of the jobs to take, ms: the time of each server at the start of the run. Jobs
   * that fall due later, such as those that this process enqueues, are not part of the run.
   */
  readonly #cutoffs = new Map<ReturnType<typeof clockOf>, number>();
  /** How many more jobs may be asked for. */
  left: number;

  /** Calls `onEnd` when a call has ended. */
  constructor(options: PollOptions, clock: Clock, onEnd: () => void) {
    this.#options = options;
    this.#clock = clock;
    this.#onEnd = onEnd;
    this.#began = clock.now();
    this.left = options.limit ?? Number.POSITIVE_INFINITY;
  }

  /** Asks for as many jobs as the options allow, at most `max`; with 0, only asks when the next job is due. */
  send(queue: Queue, max = MAX_CALL): TakeCall {
    const { leases } = this.#options;
    const sentAt = this.#clock.now();
    const call: TakeCall = { queue, sentAt, isLook: max === 0, isLate: false, isDone: false };
    const answer = this.#take(queue, max);
    (leases ? answerBy(() => leases.giveUpAt, answer) : answer)
      .then(
        (outcome) => this.#answered(call, outcome),
        (error: unknown) => {
          call.outcome = { error };
          // The answer may still come.
          answer.then(({ taken }) => this.#giveBack(taken)).catch(() => {});
        },
      )
      .finally(this.#onEnd);
    return call;
  }

  /** Gives back the jobs of a late call unless the consumer takes them within a second: it may be busy. */
  #answered(call: TakeCall, outcome: TakeAnswer): void {
    call.outcome = outcome;
    const { drained, taken } = outcome;
    if (call.isDone) this.abandon(call);
    else if (call.isLate && taken.jobs.length > 0 && taken.leaseMs > 0 && this.#options.leases) {
      const surplus = () => {
        if (call.isDone) return;
        this.left += taken.jobs.length;
        call.outcome = { drained: { ...drained, state: 'more', jobs: [] }, taken: { ...taken, jobs: [] } };
        this.#giveBack(taken).catch(() => {});
      };
      this.#clock.after(SURPLUS_MS, surplus, { ref: false });
    }
  }

  /** Gives back what `call` takes. */
  abandon(call: TakeCall): void {
    call.isDone = true;
    const { outcome } = call;
    if (outcome && 'taken' in outcome) this.#giveBack(outcome.taken).catch(() => {});
  }

  async #giveBack({ queue, jobs, leaseMs }: TakenJobs): Promise<void> {
    if (jobs.length === 0) return;
    if (leaseMs === 0) await queue.putBack(jobs);
    else await this.#options.leases?.release(jobs);
  }

  async #take(queue: Queue, max: number): Promise<TakeAnswer> {
    const { batch = MAX_CALL, start, stream, leaseMs, leases, watch } = this.#options;
    const since = this.#clock.now();
    const limit = Math.min(typeof batch === 'number' ? batch : batch(), this.left, max);
    this.left -= limit;
    let unused = limit;
    const cutoffs = this.#cutoffs;
    const clock = clockOf(queue);
    // Only the first call of a run can do without the time of the server; others ask for it before they take jobs.
    const isUnknown = !watch && this.#isBegun && !cutoffs.has(clock);
    this.#isBegun = true;
    const cutoff = max === 0 || isUnknown ? LONG_AGO : watch ? undefined : cutoffs.get(clock);
    try {
      const send = () => queue.take({ limit: limit || 1, leaseMs, cutoff }, { start, stream });
      // What a lost call has moved into a stream is where it should be. Only for a limit it would have to be counted.
      const answer = await (stream && !watch && this.left === Number.POSITIVE_INFINITY ? repeatIfLost(send) : send());
      // Not before the time at the start, so that no job that was due then is left. Times are whole ms.
      if (!cutoffs.has(clock)) cutoffs.set(clock, answer.now - Math.floor(since - this.#began));
      const until = watch ? answer.now : (cutoffs.get(clock) as number);
      const { state, next = Number.POSITIVE_INFINITY } = answer;
      // The call may have had an earlier cutoff: it only looked, or a reply has revealed a cluster since.
      const drained: Drained = state === 'idle' && next <= until ? { ...answer, state: 'more' } : answer;
      const taken: TakenJobs = { queue, jobs: drained.jobs, since, leaseMs: drained.leaseMs };
      unused -= countOf(drained);
      if (taken.leaseMs > 0) leases?.hold(taken);
      return { drained, taken };
    } finally {
      this.left += unused;
    }
  }
}

/** The error for a call that may have taken jobs for a consumer that has stopped. */
export function inDoubt({ name }: Queue, error: unknown, { leaseMs, stream }: PollOptions): unknown {
  if (!isDelayqError(error, 'unknown')) return error;
  const next = stream
    ? `nothing is lost: jobs that this call took are in ${stream.key}, the others stay pending`
    : leaseMs === 0
      ? 'jobs that this call took were removed from Redis as it took them, and are lost'
      : 'jobs that this call took are delivered again when their leases expire';
  const what = `stopped before Redis answered the last call for jobs of ${name}`;
  return new DelayqError('unknown', what, { why: error.why, next, cause: error });
}
