import { DelayqError, isDelayqError, isPassing } from '../model/errors.js';
import type { Queue } from '../queue/queue.js';
import { POLL_MS } from '../redis/keys.js';
import { answerBy } from '../redis/retry.js';
import { MAX_CALL } from '../redis/script.js';
import type { Drained } from '../scripts/jobs.js';
import type { Leases, Taken } from './leases.js';
import { type OnTrouble, Outages } from './outages.js';

/**
 * How much later than others a loop wakes which came too late, ms: at first, and the longest, twice as long each time.
 * Long enough for the one that comes first to be done, and all that a job is late when that one is not there any more.
 */
const LAG_MS = [1, 16] as const;

/** How a drain loop goes on. Times are ms. */
export interface PollOptions {
  /** The most jobs to take in all. */
  readonly limit?: number | undefined;
  /** The most jobs to take at once; asked before each call when it changes. */
  readonly batch?: number | (() => number) | undefined;
  /** How long taken jobs are hidden from others; left out: as each queue's config says. 0 removes jobs as they are taken. */
  readonly leaseMs?: number | undefined;
  /** Go on waiting for jobs instead of ending when none that was due at the start is left. */
  readonly watch?: boolean | undefined;
  /** With `watch`: stop after this long. */
  readonly forMs?: number | undefined;
  /** Stops the loop; what was taken by then is still yielded. */
  readonly signal?: AbortSignal | undefined;
  /** Hears that Redis, or one of several queues, is in trouble (once, until it is back) and that it is back. Only with `watch`. */
  readonly onTrouble?: OnTrouble | undefined;
  /**
   * Holds the leases of what is taken from the moment it is here. After a stop an answer is not waited for longer than
   * until it gives up; what comes later is given back.
   */
  readonly leases?: Leases | undefined;
  /**
   * Asks for the next batch but one before the next is here, while there is more to take: Redis and whoever reads then
   * never wait for each other. What was taken is still yielded after a stop or an error, but not to one who breaks out
   * of the loop: who ends it early aborts `signal` and reads on.
   */
  readonly ahead?: boolean | undefined;
  /** Hears what each call said beside its jobs. */
  readonly onDrained?: ((queue: Queue, drained: Drained) => void) | undefined;
}

/**
 * Takes due jobs from `queues`, the first of them asked again before each batch, until none that was due at the start
 * is left; with `watch` until stopped. The loop waits for the earliest next due time that Redis told, one poll interval
 * at most: that alone delivers. The wake channel only shortens the wait.
 *
 * With `watch` a connection that is lost and errors that pass are waited out. A queue that fails otherwise is left out,
 * with `watch` until it is well again; what it failed with is thrown at the end, or when no other is left.
 */
export async function* poll(queues: readonly Queue[], options: PollOptions = {}): AsyncGenerator<Taken> {
  const { watch = false, signal } = options;
  const end = performance.now() + (options.forMs ?? Number.POSITIVE_INFINITY);
  const rest = new Rest(queues, signal);
  const calls = new Calls(options);
  const outages = options.leases?.outages ?? new Outages();
  outages.begin(queues, options);
  const [first] = queues;
  /** A call of the first queue that was sent before the answer to the one before it was here. */
  let ahead: Promise<Answered> | undefined;
  /** The first queue's last answer said that there is more. */
  let more = false;
  let failure: { readonly error: unknown } | undefined;
  const troubled = new Set<Queue>();
  let tries = 0;
  const over = () => failure !== undefined || outages.all || calls.left === 0 || signal?.aborted;
  if (watch) rest.listen();
  try {
    while (ahead || !over()) {
      let found = false;
      rest.begin(Math.min(end, performance.now() + POLL_MS));
      for (const queue of queues) {
        if (!ahead && over()) break;
        if (!ahead && outages.has(queue)) continue;
        const call = ahead ?? calls.send(queue);
        ahead = undefined;
        if (options.ahead && more && queue === first && !over() && performance.now() < end) ahead = calls.send(queue);
        let answered: Answered;
        try {
          answered = await call;
        } catch (error) {
          if (signal?.aborted && isDelayqError(error, 'unknown')) failure ??= { error: inDoubt(queue, error, options) };
          else if (watch && isPassing(error)) {
            if (troubled.size === 0) options.onTrouble?.(error);
            troubled.add(queue);
            tries += 1;
            rest.until(performance.now() + Math.min(POLL_MS, 50 * 2 ** Math.min(tries, 10)));
          } else if (isDelayqError(error) && !isPassing(error)) outages.failed(queue, error);
          else failure ??= { error };
          more = false;
          if (ahead) break;
          continue;
        }
        if (troubled.delete(queue) && troubled.size === 0) {
          tries = 0;
          options.onTrouble?.(undefined);
        }
        outages.drained(queue);
        const { drained, taken } = answered;
        if (queue === first) more = drained.state === 'more';
        rest.learn(drained);
        options.onDrained?.(queue, drained);
        if (taken.jobs.length > 0) yield taken;
        found = taken.jobs.length > 0 || drained.state === 'more';
        if (found || ahead) break;
      }
      if (ahead || (found && performance.now() < end)) continue;
      if (over() || !watch || performance.now() >= end) break;
      await rest.take();
    }
  } finally {
    rest.close();
    outages.end();
  }
  if (failure) throw failure.error;
  if (outages.error) throw outages.error;
}

/** The error for a call that took jobs, maybe, when whoever was to get them has stopped. */
function inDoubt({ name }: Queue, error: DelayqError, { leaseMs }: PollOptions): DelayqError {
  const next =
    leaseMs === 0
      ? 'jobs that this call took were removed as it took them, and are lost'
      : 'jobs that this call took come again when their leases end';
  const what = `stopped before Redis answered the last call for jobs of ${name}`;
  return new DelayqError('unknown', what, { why: error.why, next, cause: error });
}

/** What a call of Redis said, and what it took. */
interface Answered {
  readonly drained: Drained;
  readonly taken: Taken;
}

/** The calls of a loop: how many jobs they may take, and up to which due time. */
class Calls {
  readonly #options: PollOptions;
  /** Until when a job must have been due, by the clock of each Redis at its first answer. */
  readonly #cutoffs = new Map<Queue['redis'], number>();
  /** How many more jobs may be asked for. */
  left: number;

  constructor(options: PollOptions) {
    this.#options = options;
    this.left = options.limit ?? Number.POSITIVE_INFINITY;
  }

  send(queue: Queue): Promise<Answered> {
    const { leases } = this.#options;
    const call = this.#call(queue);
    const answered = leases ? answerBy(() => leases.giveUpAt, call) : call;
    // Told when it is waited for. What is taken although nobody waits any more is given back.
    answered.catch(() => call.then(({ taken }) => this.#giveBack(taken))).catch(() => {});
    return answered;
  }

  async #giveBack({ queue, jobs, leaseMs }: Taken): Promise<void> {
    if (leaseMs === 0) await queue.putBack(jobs);
    else await this.#options.leases?.release(jobs);
  }

  async #call(queue: Queue): Promise<Answered> {
    const { batch = MAX_CALL, leaseMs, leases, watch } = this.#options;
    const since = performance.now();
    const limit = Math.min(typeof batch === 'number' ? batch : batch(), this.left);
    this.left -= limit;
    let unused = limit;
    try {
      const drained = await queue.drain({ limit, leaseMs, cutoff: this.#cutoffs.get(queue.redis) });
      const taken: Taken = { queue, jobs: drained.jobs, since, leaseMs: drained.leaseMs };
      unused -= taken.jobs.length;
      if (taken.leaseMs > 0) leases?.hold(taken);
      if (!watch && !this.#cutoffs.has(queue.redis)) this.#cutoffs.set(queue.redis, drained.now);
      return { drained, taken };
    } finally {
      this.left += unused;
    }
  }
}

/** The pause between two looks at the queues: ends at the earliest of the times it learns of. */
class Rest {
  readonly #queues: readonly Queue[];
  readonly #signal: AbortSignal | undefined;
  #end = 0;
  #ring: (() => void) | undefined;
  #listener: ReturnType<Queue['redis']['listen']> | undefined;
  #listenAgain = 0;
  /** Redis's clock minus the monotonic one, ms. */
  #ahead = 0;
  /** It rests until something falls due, rather than until it looks again anyway. */
  #forDue = false;
  /** It woke for what fell due, and has not heard what became of that. */
  #woken = false;
  /** How much later than others it wakes, ms. Whoever gets something wakes at once; else all would for each job. */
  #lag = 0;

  constructor(queues: readonly Queue[], signal: AbortSignal | undefined) {
    this.#queues = queues;
    this.#signal = signal;
    signal?.addEventListener('abort', () => this.#ring?.());
  }

  begin(end: number): void {
    this.#end = end;
    this.#forDue = false;
  }

  until(end: number): void {
    // Anybody may publish on the wake channel, so this may be no number.
    if (!(end < this.#end)) return;
    this.#end = end;
    this.#ring?.();
  }

  learn({ now, next, jobs }: Drained): void {
    this.#ahead = now - performance.now();
    if (jobs.length > 0) this.#lag = 0;
    else if (this.#woken) {
      this.#lag = Math.min(Math.max(2 * this.#lag, LAG_MS[0]), LAG_MS[1] * (0.5 + Math.random() / 2));
    }
    this.#woken = false;
    if (next !== undefined) this.#untilDue(next);
  }

  #untilDue(due: number): void {
    const end = due - this.#ahead + this.#lag;
    if (end < this.#end) this.#forDue = true;
    this.until(end);
  }

  async take(): Promise<void> {
    this.listen();
    for (;;) {
      const ms = this.#end - performance.now();
      if (ms <= 0 || this.#signal?.aborted) break;
      await new Promise<void>((resolve) => {
        // Rounded up: timers fire early, and to ask early is to ask twice.
        const timer = setTimeout(resolve, Math.ceil(ms));
        this.#ring = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#ring = undefined;
    }
    this.#woken = this.#forDue;
  }

  /** Hears of jobs that fall due sooner than it would look; again when the connection for it was lost. */
  listen(): void {
    const [first] = this.#queues;
    if (!first || this.#listener?.alive() || performance.now() < this.#listenAgain) return;
    this.#listenAgain = performance.now() + POLL_MS;
    const channels = this.#queues.map((queue) => queue.wakeChannel);
    this.#listener = first.redis.listen(channels, (due) => this.#untilDue(Number(due)));
  }

  close(): void {
    this.#listener?.close();
  }
}
