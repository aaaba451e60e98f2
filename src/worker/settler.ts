import { Batcher, type Item } from '../consume/batcher.js';
import type { GiveBack, Leases, TakenJobs } from '../consume/leases.js';
import { UnderWay } from '../consume/under-way.js';
import { type Job, MAX_ERROR } from '../model/job.js';
import { checkMs } from '../model/validate.js';
import type { Queue } from '../queue/queue.js';
import type { CheckedOptions } from './options.js';
import type { HandlerCall } from './runner.js';
import { Dead, GivenBack, Release, Retry, type TaskOutcome } from './task.js';

/** Delay of a job that its handler gives back without naming one, ms: without it, the job would come back at once. */
const RELEASE_MS = 1_000;

export type Action = 'ack' | 'retry' | 'dead' | 'release' | 'back';

/** A job whose handler has ended, and what to do with it. */
export interface Settlement extends GiveBack {
  readonly queue: Queue;
  readonly action: Action;
  /** How long the handler ran, ms. */
  readonly ms: number;
  /** Why the handler failed, if it did: what it threw. */
  readonly thrown: unknown;
  /** What came out of the job, if its queue keeps that. */
  readonly result?: string | undefined;
}

/** What to do with the jobs of a call that failed with `error`; undefined: the handler succeeded. */
export function actionOf(call: HandlerCall, error: unknown): Action {
  if (error === undefined) return 'ack';
  if (call.cause === 'timeout') return 'retry';
  if (call.cause !== undefined || error instanceof GivenBack) return 'back';
  if (error instanceof Release) return 'release';
  return error instanceof Dead ? 'dead' : 'retry';
}

interface Listener {
  /** A job is settled; `delayMs` is how long a retried job waits. */
  onSettled(settlement: Settlement, outcome: TaskOutcome, delayMs: number | undefined): void;
  /** Some leases have ended, so there may be room for new jobs. */
  onRoom(): void;
  /** Jobs could not be settled, and retries are over or useless. */
  onFailed(error: unknown): void;
}

const NACKED = ['retry', 'dead', 'release', 'back'] as const;

/**
 * Settles jobs in Redis. Jobs of a queue share calls, one at a time. Each partition on its own: one whose server is in
 * trouble must not delay the others.
 */
export class Settler {
  readonly #leases: Leases;
  readonly #backoff: CheckedOptions['backoff'];
  readonly #refuse: CheckedOptions['refuse'];
  readonly #maxReleases: CheckedOptions['maxReleases'];
  readonly #listener: Listener;
  readonly #batchers = new Map<Queue, Batcher<Settlement, void>>();
  readonly #underWay = new UnderWay();
  readonly #watch: boolean;
  /** How many calls that give back jobs are in flight. */
  #releasing = 0;

  /** Without `backoff` that of each queue applies. */
  constructor(
    leases: Leases,
    { backoff, refuse, maxReleases, watch }: Pick<CheckedOptions, 'backoff' | 'refuse' | 'maxReleases' | 'watch'>,
    listener: Listener,
  ) {
    this.#leases = leases;
    this.#backoff = backoff;
    this.#refuse = refuse;
    this.#maxReleases = maxReleases;
    this.#watch = watch;
    this.#listener = listener;
  }

  /** Jobs are on their way back: the last fetch must not overtake them, or it would miss them. */
  get isGivingBack(): boolean {
    return !this.#watch && this.#releasing > 0;
  }

  /** Settles the jobs of a call that has ended. */
  settle(
    { queue, jobs, ms = 0 }: HandlerCall,
    action: Action,
    error: unknown,
    stopping: boolean,
    returned?: unknown,
  ): void {
    const failed = action === 'retry' || action === 'dead';
    const message = failed ? messageOf(error) : undefined;
    const thrown = failed ? error : undefined;
    const isWhole = queue.partitions.length === 1;
    for (const job of jobs) {
      const delayMs = this.#delayOf(job, action, error, stopping);
      const from = isWhole ? queue : (this.#leases.queueOf(job) ?? queue);
      const result = job.keepsResult && action === 'ack' && jobs.length === 1 ? resultOf(returned) : undefined;
      this.#add(from, { queue, job, action, ms, error: message, thrown, delayMs, result });
    }
  }

  /** Moves jobs that the worker's `refuse` rejects to dead. Returns the others. */
  accepted(taken: TakenJobs): TakenJobs {
    const refuse = this.#refuse;
    if (!refuse) return taken;
    const { queue, jobs } = taken;
    let errors: (string | undefined)[];
    try {
      errors = jobs.map((job) => refuse(job));
    } catch (error) {
      this.#listener.onFailed(error);
      this.release(jobs);
      return { ...taken, jobs: [] };
    }
    for (const [i, job] of jobs.entries()) {
      const [error, action] = [errors[i], 'dead' as const];
      if (error !== undefined) this.#add(queue, { queue: queue.whole, job, action, ms: 0, error, thrown: undefined });
    }
    return { ...taken, jobs: jobs.filter((_, i) => errors[i] === undefined) };
  }

  /** Settles a job that was taken from `queue`, or from one of its partitions. */
  #add(queue: Queue, settlement: Settlement): void {
    let batcher = this.#batchers.get(queue);
    if (!batcher) {
      batcher = new Batcher((items) => this.#send(items), { inFlight: 1, patienceMs: Number.POSITIVE_INFINITY });
      this.#batchers.set(queue, batcher);
    }
    batcher.push(settlement);
  }

  /** Gives back jobs that no handler has seen, as if they had never been taken. */
  release(jobs: readonly Job[]): void {
    if (jobs.length === 0) return;
    this.#releasing += 1;
    const released = this.#leases.release(jobs).catch((error: unknown) => this.#listener.onFailed(error));
    this.#underWay.add(
      released.then(() => {
        this.#releasing -= 1;
        this.#listener.onRoom();
      }),
    );
  }

  async idle(): Promise<void> {
    await Promise.all([...this.#batchers.values()].map((batcher) => batcher.idle()));
    await this.#underWay.ended();
  }

  /** The delay of a job that is given back, ms; undefined: by its backoff, or none. */
  #delayOf(job: Job, action: Action, error: unknown, stopping: boolean): number | undefined {
    // A worker that stops will not take the job again, so it need not wait.
    if (error instanceof GivenBack) return error.delayMs;
    if (action === 'release') return (error as Release).delayMs ?? (stopping ? undefined : RELEASE_MS);
    if (action !== 'retry') return undefined;
    if (error instanceof Retry) return error.delayMs;
    if (typeof this.#backoff !== 'function') return undefined;
    try {
      return Math.round(checkMs(this.#backoff(job.failures + 1, error), 'backoff'));
    } catch {
      // An invalid delay must not stop the worker: use the backoff of the queue.
      return undefined;
    }
  }

  async #send(items: readonly Item<Settlement, void>[]): Promise<void> {
    const by: Record<Action, Settlement[]> = { ack: [], retry: [], dead: [], release: [], back: [] };
    for (const { item } of items) by[item.action].push(item);
    const calls = [this.#ack(by.ack), ...NACKED.map((mode) => this.#nack(by[mode], mode))];
    for (const call of await Promise.allSettled(calls))
      if (call.status === 'rejected') this.#listener.onFailed(call.reason);
    this.#listener.onRoom();
  }

  async #ack(settlements: Settlement[]): Promise<void> {
    if (settlements.length === 0) return;
    const answers = await this.#leases.ack(settlements);
    for (const [i, settlement] of settlements.entries()) {
      const answer = answers[i] ?? 'lost';
      this.#listener.onSettled(settlement, answer === 'held' ? 'acked' : answer, undefined);
    }
  }

  async #nack(settlements: Settlement[], mode: Exclude<Action, 'ack'>): Promise<void> {
    if (settlements.length === 0) return;
    const backoff = typeof this.#backoff === 'function' ? undefined : this.#backoff;
    const nacked = await this.#leases.nack(settlements, { mode, backoff, maxReleases: this.#maxReleases });
    for (const [i, settlement] of settlements.entries()) {
      const { answer, delayMs } = nacked[i] ?? { answer: 'lost', delayMs: 0 };
      const outcome = answer === 'pending' ? (mode === 'retry' ? 'retried' : 'released') : answer;
      this.#listener.onSettled(settlement, outcome, outcome === 'retried' ? delayMs : undefined);
    }
  }
}

/** What a handler returned, as text: a string as it is, bytes as UTF-8, anything else as JSON. Undefined: nothing. */
function resultOf(returned: unknown): string | undefined {
  if (returned === undefined || returned === null || returned === '') return undefined;
  if (ArrayBuffer.isView(returned))
    return Buffer.from(returned.buffer, returned.byteOffset, returned.byteLength).toString('utf8');
  try {
    return typeof returned === 'string' ? returned : JSON.stringify(returned);
  } catch {
    // It has a cycle, or a BigInt: the job is done all the same.
    return undefined;
  }
}

/** The text of what a handler threw, which may be anything. */
export function messageOf(error: unknown): string {
  try {
    const text = error instanceof Error ? error.message || error.name : error;
    return String(text).slice(0, MAX_ERROR);
  } catch {
    return 'the handler threw something that has no text';
  }
}
