import { DelayqError, isDelayqError, isPassing } from '../model/errors.js';
import type { Queue } from '../queue/queue.js';
import { POLL_MS } from '../redis/keys.js';
import { answerBy } from '../redis/retry.js';
import { MAX_CALL } from '../redis/script.js';
import type { Drained } from '../scripts/jobs.js';
import type { Leases, Taken } from './leases.js';
import { type OnTrouble, Outages } from './outages.js';
import { PollTimer } from './poll-timer.js';

/** How to poll queues. Durations are ms. */
export interface PollOptions {
  /** The most jobs to take in all; default: no limit. */
  readonly limit?: number | undefined;
  /** The most jobs to take per call; a function is called before each call. */
  readonly batch?: number | (() => number) | undefined;
  /** Lease of the jobs; default: the lease of each queue. 0 removes jobs from Redis as they are taken (at most once). */
  readonly leaseMs?: number | undefined;
  /** Keep waiting for jobs. If not set, the run ends when all jobs that were due at its start are taken. */
  readonly watch?: boolean | undefined;
  /** With `watch`: stop after this time. */
  readonly forMs?: number | undefined;
  /** Stops polling. Jobs that are already taken are still yielded. */
  readonly signal?: AbortSignal | undefined;
  /** Called when one of several queues is in trouble; with `watch` also when Redis is, and again when that is over. */
  readonly onTrouble?: OnTrouble | undefined;
  /**
   * Holds the leases of the jobs as soon as they arrive. After a stop, answers are awaited only until it gives up; jobs
   * that arrive later are given back.
   */
  readonly leases?: Leases | undefined;
  /**
   * While there are more jobs, send the next call before the answer to the last one has arrived, so that neither Redis
   * nor the consumer waits for the other. After a stop or an error, read on until the end: jobs in flight are still
   * yielded. Breaking out of the loop would drop them.
   */
  readonly ahead?: boolean | undefined;
  /** Called with the answer of each drain call. */
  readonly onDrained?: ((queue: Queue, drained: Drained) => void) | undefined;
}

/**
 * Yields due jobs of `queues` until all that were due at the start are taken; with `watch`, until stopped. While a queue
 * has more jobs, those before it are tried again before each batch. Otherwise a queue is looked at when its next job
 * falls due, and once in each poll interval. Delivery relies on this alone; the wake channel only shortens the wait.
 *
 * With `watch`, errors that pass are waited out. A queue that fails with another error is left out and, with `watch`,
 * tried again later. Its error is thrown at the end, or as soon as no other queue is left.
 */
export async function* poll(queues: readonly Queue[], options: PollOptions = {}): AsyncGenerator<Taken> {
  const { watch = false, signal } = options;
  const end = performance.now() + (options.forMs ?? Number.POSITIVE_INFINITY);
  const timer = new PollTimer(queues, watch, end, signal);
  const calls = new DrainCalls(options);
  const outages = options.leases?.outages ?? new Outages();
  outages.begin(queues, options);
  const [first] = queues;
  /** A call of the first queue that was sent before the last answer arrived. */
  let ahead: Promise<DrainAnswer> | undefined;
  /** The last answer of the first queue said that there are more jobs. */
  let more = false;
  let failure: { readonly error: unknown } | undefined;
  const troubled = new Set<Queue>();
  let failures = 0;
  const over = () => failure !== undefined || outages.all || calls.left === 0 || signal?.aborted;
  const look = (queue: Queue) => {
    timer.planPoll(queue);
    return calls.send(queue);
  };
  if (watch) timer.listen();
  try {
    while (ahead || !over()) {
      let found = false;
      for (const queue of queues) {
        if (!ahead && over()) break;
        if (!ahead && !timer.isTime(queue)) continue;
        if (!ahead && outages.has(queue)) {
          timer.planPoll(queue);
          continue;
        }
        const call = ahead ?? look(queue);
        ahead = undefined;
        if (options.ahead && more && queue === first && !over() && performance.now() < end) ahead = look(queue);
        let answer: DrainAnswer;
        try {
          answer = await call;
        } catch (error) {
          if (signal?.aborted && isDelayqError(error, 'unknown')) failure ??= { error: inDoubt(queue, error, options) };
          else if (watch && isPassing(error)) {
            if (troubled.size === 0) options.onTrouble?.(error);
            troubled.add(queue);
            failures += 1;
            timer.lookAt(queue, performance.now() + Math.min(POLL_MS, 50 * 2 ** Math.min(failures, 10)));
          } else if (isDelayqError(error) && !isPassing(error)) outages.failed(queue, error);
          else failure ??= { error };
          more = false;
          if (ahead) break;
          continue;
        }
        if (troubled.delete(queue) && troubled.size === 0) {
          failures = 0;
          options.onTrouble?.(undefined);
        }
        outages.drained(queue);
        const { drained, taken } = answer;
        if (queue === first) more = drained.state === 'more';
        timer.learn(queue, drained);
        // With a call in flight, its answer will say when to look next.
        if (!ahead) timer.plan(queue, drained);
        options.onDrained?.(queue, drained);
        if (taken.jobs.length > 0) yield taken;
        found = taken.jobs.length > 0 || drained.state === 'more';
        if (found || ahead) break;
      }
      if (ahead || (found && performance.now() < end)) continue;
      if (over() || !watch || performance.now() >= end) break;
      await timer.wait();
    }
  } finally {
    timer.close();
    outages.end();
  }
  if (failure) throw failure.error;
  if (outages.error) throw outages.error;
}

/** The error for a drain call that may have taken jobs for a consumer that has stopped. */
function inDoubt({ name }: Queue, error: DelayqError, { leaseMs }: PollOptions): DelayqError {
  const next =
    leaseMs === 0
      ? 'jobs that this call took were removed from Redis as it took them, and are lost'
      : 'jobs that this call took are delivered again when their leases expire';
  const what = `stopped before Redis answered the last call for jobs of ${name}`;
  return new DelayqError('unknown', what, { why: error.why, next, cause: error });
}

/** The answer to a drain call. */
interface DrainAnswer {
  readonly drained: Drained;
  readonly taken: Taken;
}

/** Sends drain calls, within the limit of jobs and up to the cutoff time. */
class DrainCalls {
  readonly #options: PollOptions;
  /**
   * Without `watch`: the latest due time of the jobs to take of each queue, ms, by the clock of its server at the first
   * answer. Not one for all: each node of a cluster has a clock of its own.
   */
  readonly #cutoffs = new Map<Queue, number>();
  /** How many more jobs may be asked for. */
  left: number;

  constructor(options: PollOptions) {
    this.#options = options;
    this.left = options.limit ?? Number.POSITIVE_INFINITY;
  }

  send(queue: Queue): Promise<DrainAnswer> {
    const { leases } = this.#options;
    const call = this.#call(queue);
    const answer = leases ? answerBy(() => leases.giveUpAt, call) : call;
    // If nobody waits for the answer any more, its jobs are given back.
    answer.catch(() => call.then(({ taken }) => this.#giveBack(taken))).catch(() => {});
    return answer;
  }

  async #giveBack({ queue, jobs, leaseMs }: Taken): Promise<void> {
    if (leaseMs === 0) await queue.putBack(jobs);
    else await this.#options.leases?.release(jobs);
  }

  async #call(queue: Queue): Promise<DrainAnswer> {
    const { batch = MAX_CALL, leaseMs, leases, watch } = this.#options;
    const since = performance.now();
    const limit = Math.min(typeof batch === 'number' ? batch : batch(), this.left);
    this.left -= limit;
    let unused = limit;
    try {
      const drained = await queue.drain({ limit, leaseMs, cutoff: this.#cutoffs.get(queue) });
      const taken: Taken = { queue, jobs: drained.jobs, since, leaseMs: drained.leaseMs };
      unused -= taken.jobs.length;
      if (taken.leaseMs > 0) leases?.hold(taken);
      if (!watch && !this.#cutoffs.has(queue)) this.#cutoffs.set(queue, drained.now);
      return { drained, taken };
    } finally {
      this.left += unused;
    }
  }
}
