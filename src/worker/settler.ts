import type { Backoff } from '../model/backoff.js';
import type { Job } from '../model/job.js';
import type { Queue } from '../queue/queue.js';
import type { GiveBack, Leases } from './leases.js';
import type { Call, Kind, TaskOutcome } from './task.js';

/** What is to become of a job that its handler was done with. */
export interface Verdict extends GiveBack {
  readonly call: Call;
  readonly kind: Kind;
  /** How long the handler ran, ms. */
  readonly ms: number;
}

/** What a settler tells of. */
interface Listener {
  /** A job is settled; `delayMs` is how long one that is tried again waits. */
  onSettled(verdict: Verdict, outcome: TaskOutcome, delayMs: number | undefined): void;
  /** Some jobs are out of our hands. */
  onRoom(): void;
  /** Jobs could not be settled, and trying on is of no use. */
  onFailed(error: unknown): void;
}

const GIVEN_BACK = ['retry', 'dead', 'release'] as const;

/**
 * Tells Redis what has become of jobs, of each queue apart: while one call is under way, what is to be said next gathers.
 */
export class Settler {
  readonly #leases: Leases;
  readonly #backoff: Backoff | undefined;
  readonly #listener: Listener;
  /** What is to be said next, of queues of which something is said now. */
  readonly #verdicts = new Map<Queue, Verdict[]>();
  readonly #underWay = new Set<Promise<void>>();

  /** `backoff` left out: as each queue's config says. */
  constructor(leases: Leases, backoff: Backoff | undefined, listener: Listener) {
    this.#leases = leases;
    this.#backoff = backoff;
    this.#listener = listener;
  }

  /** Settles what a call of a handler was done with. */
  settle(queue: Queue, verdicts: readonly Verdict[]): void {
    const waiting = this.#verdicts.get(queue);
    if (waiting) {
      waiting.push(...verdicts);
      return;
    }
    this.#verdicts.set(queue, [...verdicts]);
    this.#track(this.#tell(queue));
  }

  /** Gives jobs back that no handler has seen, as if they had never been taken. */
  release(jobs: readonly Job[]): void {
    if (jobs.length === 0) return;
    this.#track(this.#leases.release(jobs).catch((error: unknown) => this.#listener.onFailed(error)));
  }

  #track(work: Promise<unknown>): void {
    const tracked: Promise<void> = work.then(() => void this.#underWay.delete(tracked));
    this.#underWay.add(tracked);
  }

  /** Resolves when nothing is under way. */
  async idle(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.all(this.#underWay);
  }

  async #tell(queue: Queue): Promise<void> {
    // Handlers that end in the same moment are told of together.
    await new Promise((resolve) => setImmediate(resolve));
    for (let verdicts = this.#next(queue); verdicts.length > 0; verdicts = this.#next(queue)) {
      const of = (kind: Kind) => verdicts.filter((verdict) => verdict.kind === kind);
      const told = [this.#ack(of('ack')), ...GIVEN_BACK.map((mode) => this.#giveBack(of(mode), mode))];
      for (const one of await Promise.allSettled(told))
        if (one.status === 'rejected') this.#listener.onFailed(one.reason);
      this.#listener.onRoom();
    }
    this.#verdicts.delete(queue);
  }

  #next(queue: Queue): Verdict[] {
    return this.#verdicts.get(queue)?.splice(0) ?? [];
  }

  async #ack(verdicts: Verdict[]): Promise<void> {
    if (verdicts.length === 0) return;
    const answers = await this.#leases.ack(verdicts.map(({ job }) => job));
    for (const [i, verdict] of verdicts.entries()) {
      const answer = answers[i] ?? 'lost';
      this.#listener.onSettled(verdict, answer === 'held' ? 'acked' : answer, undefined);
    }
  }

  async #giveBack(verdicts: Verdict[], mode: Exclude<Kind, 'ack'>): Promise<void> {
    if (verdicts.length === 0) return;
    const nacked = await this.#leases.nack(verdicts, { mode, backoff: this.#backoff });
    for (const [i, verdict] of verdicts.entries()) {
      const { answer, delayMs } = nacked[i] ?? { answer: 'lost', delayMs: 0 };
      const outcome = answer === 'pending' ? (mode === 'release' ? 'released' : 'retried') : answer;
      this.#listener.onSettled(verdict, outcome, outcome === 'retried' ? delayMs : undefined);
    }
  }
}
