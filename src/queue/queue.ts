import { type Backoff, packBackoff } from '../model/backoff.js';
import { isDelayqError, unknownOutcome } from '../model/errors.js';
import { consumer, randomWord } from '../model/id.js';
import {
  type Answer,
  afterRepeat,
  type Enqueued,
  type Given,
  type Held,
  type Job,
  type Nacked,
  type NewJob,
} from '../model/job.js';
import { checkCount, checkMs, checkName } from '../model/validate.js';
import type { Connection } from '../redis/connection.js';
import { askedFor, DURABLE_IN_FLIGHT } from '../redis/durability.js';
import { DEFAULT_PREFIX, type QueueKeys, queueKeys, wakeOf } from '../redis/keys.js';
import { MAX_CALL, type Wake } from '../redis/script.js';
import { inspect, type Snapshot } from '../scripts/inspect.js';
import * as scripts from '../scripts/jobs.js';
import { type BatchResult, inBatches } from './batches.js';
import { type EnqueueOptions, Enqueuer } from './enqueuer.js';

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
  readonly #wake: Wake;
  readonly #enqueuer: Enqueuer;
  /** Throws a `usage` error when `name` or `prefix` cannot be a name. Talks to nobody yet. */
  constructor(redis: Connection, name: string, { prefix = DEFAULT_PREFIX }: { prefix?: string } = {}) {
    this.redis = redis;
    this.name = checkName(name);
    this.#keys = queueKeys(checkName(prefix, 'prefix'), name);
    this.#wake = wakeOf(prefix, name);
    this.#enqueuer = new Enqueuer(redis, name, prefix);
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
    return this.#enqueuer.one(jobs as NewJob, options);
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
    yield* inBatches(groups, (batch) => this.#enqueuer.all(batch, options), askedFor(options) && DURABLE_IN_FLIGHT);
  }

  /**
   * Takes up to `limit` (at most 250) due jobs, oldest due first, hidden from others for `leaseMs` (left out: as the
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
      await this.#enqueuer.send(ready, 'keep').catch((error) => {
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

function* chunks<T>(list: readonly T[]): Generator<readonly T[]> {
  for (let i = 0; i < list.length; i += MAX_CALL) yield list.slice(i, i + MAX_CALL);
}
