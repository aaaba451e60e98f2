import { setTimeout as sleep } from 'node:timers/promises';
import { type Backoff, packBackoff } from './backoff.js';
import { type BatchResult, inBatches } from './batches.js';
import {
  askedFor,
  type Confirmation,
  confirm,
  DURABLE_IN_FLIGHT,
  type Durability,
  inDoubt,
  nothingWritten,
  ready,
  unconfirmed,
} from './durability.js';
import { type DelayqError, isDelayqError, isPassing, unknownOutcome } from './errors.js';
import { consumer, randomWord } from './ids.js';
import {
  type Answer,
  afterRepeat,
  checkCount,
  checkMs,
  checkName,
  type Enqueued,
  type Given,
  type Held,
  type Job,
  type Nacked,
  type NewJob,
  type Outcome,
  type ReadyJob,
  readyJob,
} from './job.js';
import { DEFAULT_PREFIX, type QueueKeys, queueKeys, queuesKey, wakeOf } from './keys.js';
import { inspect, type Snapshot } from './looks.js';
import type { Caller, Connection } from './redis.js';
import { MAX_CALL, type Wake } from './script.js';
import * as scripts from './scripts.js';

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

/** How jobs are enqueued. */
export interface EnqueueOptions extends Durability {
  /** Of a job whose id is there already: `keep` (default) the one that is there, or `replace` it. */
  readonly ifExists?: 'keep' | 'replace' | undefined;
}

/** What happens to a job given back: a failure to try again, the end, or nothing that counts. */
export interface NackOptions {
  /** `retry` (default): a failure, dead once its tries are spent · `dead`: at once · `release`: counts nothing. */
  readonly mode?: 'retry' | 'dead' | 'release';
  /** Kept as the last error of jobs that bring none of their own. */
  readonly error?: string;
  /** How long a failed job without a delay of its own waits; left out: as the queue's config says. */
  readonly backoff?: Backoff | undefined;
}

/** A named set of jobs: what a job lives through. What operators do is in Inspector and Operator. */
export class Queue {
  readonly name: string;
  readonly redis: Connection;
  readonly #keys: QueueKeys;
  readonly #prefix: string;
  readonly #wake: Wake;
  #listed = false;

  /** Throws a `usage` error when `name` or `prefix` cannot be a name. Talks to nobody yet. */
  constructor(redis: Connection, name: string, { prefix = DEFAULT_PREFIX }: { prefix?: string } = {}) {
    this.redis = redis;
    this.name = checkName(name);
    this.#prefix = checkName(prefix, 'prefix');
    this.#keys = queueKeys(prefix, name);
    this.#wake = wakeOf(prefix, name);
  }

  /** The channel on which watchers hear of a job that falls due sooner than they would look. */
  get wakeChannel(): string {
    return this.#wake.channel;
  }

  /**
   * Enqueues one job, many, or as many as an async iterable yields. Many are sent in batches: each is there whole or
   * not at all, and results come in the order of the jobs.
   *
   * A reply that is lost is asked for again under the same id, which makes no second job. Throws `usage` or `data` for
   * a bad job (before any of its batch is sent), `temporary` when Redis cannot take it now, and `unknown` with `ids`
   * when no reply could be had.
   *
   * With `durable` or `replicas` a job is confirmed once it is on Redis's disk, or on so many replicas: throws `config`
   * or `temporary` before anything is sent when Redis cannot tell, and `unknown` with `ids` (and `stored`) when it has
   * not within 4 s. Meanwhile nothing else goes over the connection: give workers one of their own.
   */
  enqueue(job: NewJob, options?: EnqueueOptions): Promise<Enqueued>;
  enqueue(jobs: readonly NewJob[], options?: EnqueueOptions): Promise<Enqueued[]>;
  enqueue(jobs: AsyncIterable<NewJob>, options?: EnqueueOptions): AsyncGenerator<Enqueued>;
  enqueue(
    jobs: NewJob | readonly NewJob[] | AsyncIterable<NewJob>,
    options: EnqueueOptions = {},
  ): Promise<Enqueued | Enqueued[]> | AsyncGenerator<Enqueued> {
    if (Array.isArray(jobs)) return this.#all(jobs, options);
    if (Symbol.asyncIterator in jobs) return this.#each(jobs, options);
    return this.#put([jobs as NewJob], options).then(([enqueued]) => enqueued as Enqueued);
  }

  async #all(jobs: readonly NewJob[], options: EnqueueOptions): Promise<Enqueued[]> {
    const all: Enqueued[] = [];
    for await (const enqueued of this.#each(jobs, options)) all.push(enqueued);
    return all;
  }

  async *#each(jobs: Iterable<NewJob> | AsyncIterable<NewJob>, options: EnqueueOptions): AsyncGenerator<Enqueued> {
    async function* groups() {
      if (Array.isArray(jobs)) yield jobs as NewJob[];
      else for await (const job of jobs) yield [job];
    }
    for await (const result of this.enqueueBatches(groups(), options)) {
      if ('error' in result) throw result.error;
      yield* result.enqueued;
    }
  }

  /**
   * Enqueues the jobs of groups of any size, cut anew into batches, several of them on their way at once, and yields
   * what became of each batch, in order. A batch that fails does not stop the others: whoever reads decides whether to
   * go on.
   */
  async *enqueueBatches<J extends NewJob>(
    groups: AsyncIterable<readonly J[]>,
    options: EnqueueOptions = {},
  ): AsyncGenerator<BatchResult<J>> {
    yield* inBatches(groups, (batch) => this.#put(batch, options), askedFor(options) && DURABLE_IN_FLIGHT);
  }

  async #put(batch: readonly NewJob[], options: EnqueueOptions): Promise<Enqueued[]> {
    const { ifExists = 'keep' } = options;
    const asked = askedFor(options);
    const jobs = batch.map(readyJob);
    if (jobs.length === 0) return [];
    const { now, outcomes, first, repeated, confirmation } = await this.#send(jobs, ifExists, asked);
    const confirmed = confirmation && 'confirmed' in confirmation ? { confirmed: confirmation.confirmed } : {};
    const results: Enqueued[] = [];
    const collided: number[] = [];
    const unclear: string[] = [];
    for (const [i, job] of jobs.entries()) {
      let outcome = outcomes[i] as Outcome;
      const ours = batch[i]?.id === undefined;
      if (isKept(outcome)) {
        // Kept at the first sending is a collision of ids we made; else it is the job of the first sending.
        if (ours && isKept(first[i])) collided.push(i);
        else if (ours || first[i] === 'created') outcome = 'created';
        else if (repeated && ifExists === 'replace') unclear.push(job.id);
      }
      results.push({ id: job.id, outcome, due: job.at ?? now + job.in, ...confirmed });
    }
    const earlier = 'jobs of these ids are there, but perhaps the earlier ones';
    if (unclear.length > 0)
      throw first.length > 0 ? unconfirmed(results, { doubt: earlier }) : unknownOutcome(unclear, earlier);
    if (collided.length > 0) {
      const again = await this.#put(
        collided.map((i) => ({ ...batch[i], id: undefined }) as NewJob),
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
        const line = asked ? await ready(this.redis, asked) : this.redis;
        this.#list(line);
        const mode = n > 0 ? 'keep' : ifExists;
        const reply = await scripts.enqueue(line, this.#keys, jobs, { ifExists: mode, wake: this.#wake });
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

  /** Lists the queue for `inspect`. In a call of its own, as the list lives in another slot; only a hint, so it may fail. */
  #list(line: Caller): void {
    if (this.#listed) return;
    this.#listed = true;
    line.call('SADD', queuesKey(this.#prefix), this.name).catch(() => {
      this.#listed = false;
    });
  }

  /**
   * Takes up to `limit` (at most 500) due jobs, oldest due first, hidden from others for `leaseMs` (left out: as the
   * queue's config says); 0 removes them at once, and then nothing brings them back. With `cutoff`, ms, only jobs that
   * were due by then.
   */
  async drain({
    limit = MAX_CALL,
    leaseMs,
    cutoff,
  }: {
    limit?: number;
    leaseMs?: number | undefined;
    cutoff?: number | undefined;
  } = {}): Promise<scripts.Drained> {
    checkCount(limit, 'limit');
    if (leaseMs !== undefined) checkMs(leaseMs, 'leaseMs');
    return scripts.drain(this.redis, this.#keys, { limit, leaseMs, cutoff, receipt: randomWord(12), by: consumer() });
  }

  /**
   * Enqueues jobs again, as they were, that a drain without lease has removed. Throws `unknown` with `ids` when the reply
   * is lost: asked for again, a job that was taken meanwhile would come twice.
   */
  async putBack(jobs: readonly Job[]): Promise<void> {
    const none = { in: 0, tries: undefined, maxLost: undefined, ttl: undefined };
    for (const some of chunks(jobs)) {
      const ready = some.map(({ id, payload, due, record }) => ({ ...none, id, json: payload, at: due, record }));
      await scripts.enqueue(this.redis, this.#keys, ready, { ifExists: 'keep', wake: this.#wake }).catch((error) => {
        const ids = some.map(({ id }) => id);
        throw isDelayqError(error, 'unknown') ? unknownOutcome(ids, `Redis's answer was lost: ${error.why}`) : error;
      });
    }
  }

  /** Removes jobs that are done, if their leases are still held. Answers come in the order of the jobs. */
  async ack(jobs: readonly Held[]): Promise<Answer[]> {
    return this.#settle(jobs, (some) => scripts.ack(this.redis, this.#keys, some));
  }

  /**
   * Gives jobs back, if their leases are still held: to be tried again after their own delay or the backoff, or, with
   * `mode`, dead or as if nothing had been.
   */
  async nack(jobs: readonly Given[], { mode = 'retry', error, backoff }: NackOptions = {}): Promise<Nacked[]> {
    for (const { delayMs = 0 } of jobs) checkMs(delayMs, 'delayMs');
    const options = { mode, backoff: backoff ? packBackoff(backoff) : '', jitter: Math.random(), wake: this.#wake };
    return this.#settle(jobs, (some) =>
      scripts.nack(
        this.redis,
        this.#keys,
        some.map((job) => ({ ...job, error: job.error ?? error })),
        options,
      ),
    );
  }

  /** Extends leases that are still held to `leaseMs` from now; left out: as the queue's config says. */
  async renew(jobs: readonly Held[], leaseMs?: number): Promise<Answer[]> {
    if (leaseMs !== undefined) checkMs(leaseMs, 'leaseMs', 1);
    const answers: Answer[] = [];
    for (const some of chunks(jobs))
      answers.push(...(await scripts.renew(this.redis, this.#keys, some, leaseMs)).answers);
    return answers;
  }

  /** Settles in chunks. When a reply is lost the chunk is sent again. */
  async #settle<J, A extends Answer | Nacked>(
    jobs: readonly J[],
    settle: (some: readonly J[]) => Promise<{ answers: A[] }>,
  ): Promise<A[]> {
    const answers: A[] = [];
    for (const some of chunks(jobs)) {
      try {
        answers.push(...(await settle(some)).answers);
      } catch (error) {
        if (!isDelayqError(error, 'unknown')) throw error;
        // Whatever goes wrong now, the first sending stays in doubt.
        const again = await settle(some).catch(() => {
          throw error;
        });
        answers.push(...again.answers.map(afterRepeat));
      }
    }
    return answers;
  }

  /** Everything that can be counted about the queue, at one moment, with up to `upcoming` of the next due times. */
  async counts(upcoming = 0): Promise<Snapshot> {
    return inspect(this.redis, this.#keys, upcoming);
  }
}

const isKept = (outcome: Outcome | undefined) => outcome === 'kept' || outcome === 'kept-dead';

function* chunks<T>(list: readonly T[]): Generator<readonly T[]> {
  for (let i = 0; i < list.length; i += MAX_CALL) yield list.slice(i, i + MAX_CALL);
}
