import type { Backoff } from './backoff.js';
import type { Job } from './job.js';
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

/** Tells Redis what has become of jobs: while one call is under way, what is to be said next gathers. */
export class Settler {
  readonly #leases: Leases;
  readonly #backoff: Backoff | undefined;
  readonly #listener: Listener;
  #verdicts: Verdict[] = [];
  #telling: Promise<void> | undefined;
  readonly #releases = new Set<Promise<void>>();

  /** `backoff` left out: as each queue's config says. */
  constructor(leases: Leases, backoff: Backoff | undefined, listener: Listener) {
    this.#leases = leases;
    this.#backoff = backoff;
    this.#listener = listener;
  }

  settle(verdicts: readonly Verdict[]): void {
    this.#verdicts.push(...verdicts);
    this.#telling ??= this.#tell().finally(() => {
      this.#telling = undefined;
    });
  }

  /** Gives jobs back that no handler has seen, as if they had never been taken. */
  release(jobs: readonly Job[]): void {
    if (jobs.length === 0) return;
    const released: Promise<void> = this.#leases
      .release(jobs)
      .then(
        () => {},
        (error: unknown) => this.#listener.onFailed(error),
      )
      .finally(() => this.#releases.delete(released));
    this.#releases.add(released);
  }

  /** Resolves when nothing is under way. */
  async idle(): Promise<void> {
    while (this.#telling || this.#releases.size > 0) await Promise.all([this.#telling, ...this.#releases]);
  }

  async #tell(): Promise<void> {
    // Handlers that end in the same moment are told of together.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#verdicts.length > 0) {
      const verdicts = this.#verdicts;
      this.#verdicts = [];
      const of = (kind: Kind) => verdicts.filter((verdict) => verdict.kind === kind);
      try {
        await Promise.all([this.#ack(of('ack')), ...GIVEN_BACK.map((mode) => this.#giveBack(of(mode), mode))]);
        this.#listener.onRoom();
      } catch (error) {
        this.#listener.onFailed(error);
      }
    }
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
