import { within } from '../model/time.js';
import { LONG_AGO, type Queue } from '../queue/queue.js';
import { answerBy } from '../redis/retry.js';
import type { Drained, Start } from '../store/jobs.js';
import { MAX_CALL } from '../store/script.js';
import { SURPLUS_MS } from './buffer.js';
import type { Leases, TakenJobs } from './leases.js';

/** Which jobs to take. */
export interface TakeOptions {
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
  /** Keep waiting for jobs. If not set, the run ends when all jobs that were due at its start are taken. */
  readonly watch?: boolean | undefined;
  /**
   * Holds the leases of the jobs as soon as they arrive. After a stop, answers are awaited only until it gives up; jobs
   * that arrive later are given back.
   */
  readonly leases?: Leases | undefined;
}

export interface DrainAnswer {
  readonly drained: Drained;
  readonly taken: TakenJobs;
}

/** A drain call whose answer has not been taken yet. */
export interface DrainCall {
  answer: Promise<DrainAnswer>;
  readonly sentAt: number;
  /** It only asks when the next job is due. */
  readonly isLook: boolean;
  /** It takes long: poll the other queues meanwhile. */
  isLate: boolean;
  surplus?: NodeJS.Timeout;
}

/** The owner of a clock: the server; in a cluster the queue, because its node is not known here. */
const clockOf = (queue: Queue) => (queue.redis.sharded ? queue : queue.redis);

/** Sends drain calls, within the limit of jobs and up to the cutoff time. */
export class DrainCalls {
  readonly #options: TakeOptions;
  /** When the run began, by the monotonic clock, ms. */
  readonly #began = performance.now();
  /** Without `watch`: the latest due times of the jobs to take, ms: the time of each clock at the start of the run. */
  readonly #cutoffs = new Map<ReturnType<typeof clockOf>, number | Promise<number>>();
  /** How many more jobs may be asked for. */
  left: number;

  constructor(options: TakeOptions) {
    this.#options = options;
    this.left = options.limit ?? Number.POSITIVE_INFINITY;
  }

  /**
   * Begins the run. Without `watch`, reads several clocks before taking the first job: jobs that this process enqueues
   * later are not part of the run. With a single clock, the first answer has the time.
   */
  begin(queues: readonly Queue[]): void {
    if (this.#options.watch || queues.length === 1) return;
    const byClock = new Map(queues.flatMap(({ partitions }) => partitions).map((queue) => [clockOf(queue), queue]));
    if (byClock.size === 1) return;
    for (const [clock, { redis, wakeChannel }] of byClock) {
      const now = redis.now(wakeChannel);
      // The first call to the queue throws it.
      now.catch(() => {});
      this.#cutoffs.set(clock, now);
    }
  }

  /** Asks for as many jobs as the options allow, at most `max`; with 0, only asks when the next job is due. */
  send(queue: Queue, max = MAX_CALL): DrainCall {
    const { leases } = this.#options;
    const sentAt = performance.now();
    const call = this.#call(queue, max);
    const answer = leases ? answerBy(() => leases.giveUpAt, call) : call;
    // Gives the jobs back if the caller has stopped waiting.
    answer.catch(() => call.then(({ taken }) => this.#giveBack(taken))).catch(() => {});
    return { answer, sentAt, isLook: max === 0, isLate: false };
  }

  /**
   * Returns the answer of `call`, or undefined and marks the call as late if there is none within `ms`. Gives back the
   * jobs of a late answer unless this is called again within a second after it: the consumer may be busy.
   */
  async answerTo(call: DrainCall, ms: number): Promise<DrainAnswer | undefined> {
    const answer = await within(call.isLate ? 0 : ms, call.answer);
    if (answer || call.isLate) {
      clearTimeout(call.surplus);
      return answer;
    }
    call.isLate = true;
    call.answer
      .then(({ drained, taken }) => {
        if (taken.jobs.length === 0 || taken.leaseMs === 0 || !this.#options.leases) return;
        call.surplus = setTimeout(() => {
          this.left += taken.jobs.length;
          call.answer = Promise.resolve({
            drained: { ...drained, state: 'more', jobs: [] },
            taken: { ...taken, jobs: [] },
          });
          this.#giveBack(taken).catch(() => {});
        }, SURPLUS_MS);
      })
      .catch(() => {});
    return undefined;
  }

  /** Gives back what `call` takes. */
  abandon(call: DrainCall): void {
    clearTimeout(call.surplus);
    call.answer.then(({ taken }) => this.#giveBack(taken)).catch(() => {});
  }

  async #giveBack({ queue, jobs, leaseMs }: TakenJobs): Promise<void> {
    if (jobs.length === 0) return;
    if (leaseMs === 0) await queue.putBack(jobs);
    else await this.#options.leases?.release(jobs);
  }

  async #call(queue: Queue, max: number): Promise<DrainAnswer> {
    const { batch = MAX_CALL, start, leaseMs, leases, watch } = this.#options;
    const since = performance.now();
    const limit = Math.min(typeof batch === 'number' ? batch : batch(), this.left, max);
    this.left -= limit;
    let unused = limit;
    try {
      const cutoff = max === 0 ? LONG_AGO : await this.#cutoffs.get(clockOf(queue));
      const answer = await queue.take({ limit: limit || 1, leaseMs, cutoff }, start);
      const until = watch ? answer.now : await this.#cutoffOf(queue, answer.now, since);
      const { state, next = Number.POSITIVE_INFINITY } = answer;
      // The call may have had an earlier cutoff: it only looked, or a reply has revealed a cluster since.
      const drained: Drained = state === 'idle' && next <= until ? { ...answer, state: 'more' } : answer;
      const taken: TakenJobs = { queue, jobs: drained.jobs, since, leaseMs: drained.leaseMs };
      unused -= taken.jobs.length;
      if (taken.leaseMs > 0) leases?.hold(taken);
      return { drained, taken };
    } finally {
      this.left += unused;
    }
  }

  /** The cutoff of a queue whose clock shows `now` in the answer to a call sent at `since`. */
  #cutoffOf(queue: Queue, now: number, since: number): number | Promise<number> {
    const clock = clockOf(queue);
    const known = this.#cutoffs.get(clock);
    if (known !== undefined) return known;
    // Not before the time at the start, so that no job that was due then is left. Times are whole ms.
    const cutoff = now - Math.floor(since - this.#began);
    this.#cutoffs.set(clock, cutoff);
    return cutoff;
  }
}
