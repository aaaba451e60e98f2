import { setTimeout as sleep } from 'node:timers/promises';
import { type DelayqError, isDelayqError, isPassing, unknownOutcome } from '../model/errors.js';
import { newId } from '../model/id.js';
import { type Enqueued, type NewJob, type Outcome, type ReadyJob, readyJob } from '../model/job.js';
import type { Caller, Connection } from '../redis/connection.js';
import {
  askedFor,
  type Confirmation,
  confirm,
  type Durability,
  inDoubt,
  nothingWritten,
  ready,
  unconfirmed,
} from '../redis/durability.js';
import { type QueueKeys, queueKeys, queuesKey, wakeOf } from '../redis/keys.js';
import type { Wake } from '../redis/script.js';
import * as scripts from '../scripts/jobs.js';
import { firstBatch } from './batches.js';
import { Gather } from './coalesce.js';

/** Pauses before an enqueue whose reply was lost is repeated, ms. */
const REPEAT_AFTER_MS = [100, 1_000];

/** What Redis replied of a batch, the outcomes of its first sending, and what was confirmed if that was asked for. */
interface Sent {
  readonly now: number;
  readonly outcomes: Outcome[];
  readonly first: Outcome[];
  readonly repeated: boolean;
  readonly confirmation?: Confirmation;
}

/** A job that is ready to be sent; whoever gave it may change what it was made of. */
interface Prepared {
  readonly ready: ReadyJob;
  /** Its id was made here. */
  readonly ours: boolean;
}

/** How jobs are enqueued. */
export interface EnqueueOptions extends Durability {
  /** Of a job whose id is there already: `keep` (default) the one that is there, or `replace` it. */
  readonly ifExists?: 'keep' | 'replace' | undefined;
}

/** Puts jobs into a queue: what a reply means for each of them, or that there was none. */
export class Enqueuer {
  readonly #redis: Connection;
  readonly #name: string;
  readonly #prefix: string;
  readonly #keys: QueueKeys;
  readonly #wake: Wake;
  #listed = false;
  /** Single jobs that are enqueued in one go share a call. */
  readonly #singles = new Gather<Prepared, Enqueued>({
    call: (items) => this.#put(items, {}),
    size: (items) => firstBatch(items, ({ ready }) => ready.json.length).size,
    errorOf: (error, { ready }) =>
      isDelayqError(error, 'unknown') ? unknownOutcome([ready.id], error.why ?? error.message) : error,
  });

  constructor(redis: Connection, name: string, prefix: string) {
    this.#redis = redis;
    this.#name = name;
    this.#prefix = prefix;
    this.#keys = queueKeys(prefix, name);
    this.#wake = wakeOf(prefix, name);
  }

  /** Enqueues one job. Throws what Queue.enqueue does. */
  async one(job: NewJob, options: EnqueueOptions): Promise<Enqueued> {
    const item = prepared(job);
    // An answer to others could leave it unclear which of them was replaced, or confirmed.
    if (!askedFor(options) && options.ifExists !== 'replace') return this.#singles.add(item);
    this.#singles.flush();
    const [enqueued] = await this.#put([item], options);
    return enqueued as Enqueued;
  }

  /** Enqueues the jobs of one call. Throws what Queue.enqueue does. */
  async all(jobs: readonly NewJob[], options: EnqueueOptions): Promise<Enqueued[]> {
    const batch = jobs.map(prepared);
    this.#singles.flush();
    return this.#put(batch, options);
  }

  async #put(batch: readonly Prepared[], options: EnqueueOptions): Promise<Enqueued[]> {
    const { ifExists = 'keep' } = options;
    const asked = askedFor(options);
    const jobs = batch.map(({ ready }) => ready);
    if (jobs.length === 0) return [];
    const { now, outcomes, first, repeated, confirmation } = await this.#send(jobs, ifExists, asked);
    const confirmed = confirmation && 'confirmed' in confirmation ? confirmation.confirmed : undefined;
    const results: Enqueued[] = [];
    const collided: number[] = [];
    const unclear: string[] = [];
    for (const [i, job] of jobs.entries()) {
      let outcome = outcomes[i] as Outcome;
      const ours = batch[i]?.ours;
      if (isKept(outcome)) {
        // Kept at the first sending is a collision of ids we made; else it is the job of the first sending.
        if (ours && isKept(first[i])) collided.push(i);
        else if (ours || first[i] === 'created') outcome = 'created';
        else if (repeated && ifExists === 'replace') unclear.push(job.id);
      }
      const result = { id: job.id, outcome, due: job.at ?? now + job.in };
      results.push(confirmed ? { ...result, confirmed } : result);
    }
    const earlier = 'jobs of these ids are there, but perhaps the earlier ones';
    if (unclear.length > 0)
      throw first.length > 0 ? unconfirmed(results, { doubt: earlier }) : unknownOutcome(unclear, earlier);
    if (collided.length > 0) {
      const again = await this.#put(
        collided.map((i) => ({ ready: { ...(jobs[i] as ReadyJob), id: newId() }, ours: true })),
        options,
      );
      for (const [n, i] of collided.entries()) results[i] = again[n] as Enqueued;
    }
    if (confirmation && 'doubt' in confirmation) throw unconfirmed(results, confirmation);
    return results;
  }

  /**
   * Sends a batch and has it confirmed as asked; when a reply is lost, again, always with `keep`: what the first sending
   * made must stay. `first` are the outcomes of the first sending, empty when its reply was lost.
   */
  async #send(jobs: ReadyJob[], ifExists: 'keep' | 'replace', asked?: Durability): Promise<Sent> {
    let first: Outcome[] = [];
    let sent: Sent | undefined;
    let lost: DelayqError | undefined;
    for (const [n, pause] of [0, ...REPEAT_AFTER_MS].entries()) {
      if (n > 0) await sleep(pause);
      try {
        // What is to be confirmed must be asked for over the line over which it was written.
        const line = asked ? await ready(this.#redis, asked) : this.#redis;
        const reply = await this.send(jobs, n > 0 ? 'keep' : ifExists, line);
        if (n === 0) first = reply.outcomes;
        const now: Sent = { ...reply, first, repeated: n > 0 };
        // Should every wait be cut short, the reply nearest to the write tells best what became of it.
        sent ??= now;
        if (!asked) return now;
        return { ...now, confirmation: reply.written ? await confirm(line, asked) : nothingWritten(this.#keys.stats) };
      } catch (error) {
        if (!isDelayqError(error) || (n === 0 && error.code !== 'unknown')) throw error;
        lost = error;
        // However definite this answer is, the first sending stays in doubt.
        if (!isPassing(error)) break;
      }
    }
    const doubt = inDoubt(lost as DelayqError, "Redis's answer was lost; asked again: ");
    if (sent) return { ...sent, confirmation: doubt };
    const ids = jobs.map(({ id }) => id);
    throw unknownOutcome(ids, doubt.doubt);
  }

  /**
   * Sends jobs once, and lists the queue: before its first job, and again when the queue has begun anew, be it that Redis
   * came back empty or that the queue was forgotten.
   */
  async send(jobs: readonly ReadyJob[], ifExists: 'keep' | 'replace', line: Caller = this.#redis) {
    if (!this.#listed) this.#list(line);
    const reply = await scripts.enqueue(line, this.#keys, jobs, { ifExists, wake: this.#wake });
    if (reply.begun) await this.#list(line);
    return reply;
  }

  /** Lists the queue for `inspect`. In a call of its own, as the list lives in another slot; only a hint, so it may fail. */
  async #list(line: Caller): Promise<void> {
    this.#listed = true;
    await line.call('SADD', queuesKey(this.#prefix), this.#name).catch(() => {
      this.#listed = false;
    });
  }
}

const prepared = (job: NewJob): Prepared => ({ ready: readyJob(job), ours: job.id === undefined });

const isKept = (outcome: Outcome | undefined) => outcome === 'kept' || outcome === 'kept-dead';
