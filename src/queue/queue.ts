import { DelayqError } from '../model/errors.js';
import { consumer, type Id, idWord, randomWord } from '../model/id.js';
import type { Answer, Enqueued, Finishing, Given, Held, Job, Nacked, NewJob, StoredJob } from '../model/job.js';
import { checkSchema, type Schema } from '../model/schema.js';
import { checkConsumer, checkCount, checkMs, checkName, keysOf } from '../model/validate.js';
import type { Connection } from '../redis/connection.js';
import type { RetryLimits } from '../redis/retry.js';
import { DURABLE_IN_FLIGHT, requiredBy } from '../store/durability.js';
import { type EnqueueOptions, putBack } from '../store/enqueue.js';
import type { Look } from '../store/finished.js';
import { type Snapshot, show } from '../store/inspect.js';
import * as scripts from '../store/jobs.js';
import { PART_POLL_MS, POLL_MS, type PrefixOption, prefixOf } from '../store/keys.js';
import { type Finished, type FinishOptions, removeByIds, swap } from '../store/remove.js';
import { MAX_CALL } from '../store/script.js';
import { type AckOptions, ack, countDurations, type NackOptions, nack, renew } from '../store/settle.js';
import { Store } from '../store/store.js';
import { inspectAll } from '../store/sum.js';
import { type BatchResult, inBatches } from './batches.js';
import { checkOptions, Enqueuer } from './enqueuer.js';
import type { JobResult, ResultOptions } from './result.js';

interface DrainOptions {
  readonly limit?: number;
  readonly leaseMs?: number | undefined;
  readonly cutoff?: number | undefined;
  readonly by?: string | undefined;
}

/** How a consumer takes jobs. */
interface Taking {
  readonly start?: scripts.Start | undefined;
  readonly stream?: scripts.StreamTarget | undefined;
}

const checkDrain = keysOf<DrainOptions>('drain', { limit: true, leaseMs: true, cutoff: true, by: true });

/** An option of a queue in a program. */
export interface QueueOptions<T = unknown, Input = T> extends PrefixOption {
  /** Validates payloads, by the interface of https://standardschema.dev: when they are enqueued, and in `json()`. */
  readonly schema?: Schema<Input, T> | undefined;
}

const checkQueue = keysOf<QueueOptions>('the constructor', { prefix: true, schema: true });

/**
 * A queue: enqueue, drain, ack, nack and renew. What operators need is in Inspector and Operator.
 *
 * `T` is the type of `json()` in handlers; without a `schema`, nothing checks it. `Input` is the type of payloads to
 * enqueue; it differs from `T` if the schema changes values.
 */
export class Queue<T = unknown, Input = T> {
  readonly name: string;
  readonly redis: Connection;
  /** What payloads must fit. */
  readonly schema: Schema<Input, T> | undefined;
  readonly #store: Store;
  /** If this is one of several partitions of a queue: takes only from it, and settles each job where its receipt says. */
  #part: { readonly whole: Queue; readonly index: number } | undefined;
  #partitions: readonly Queue[] = [this];
  readonly #enqueuer: Enqueuer;
  /** When something may be due next in each partition, ms by the clock of its server. */
  readonly #heads: number[] = [];

  /** Throws `usage` if `name` or an option is invalid. Sends nothing yet. */
  constructor(redis: Connection, name: string, options: QueueOptions<T, Input> = {}) {
    const { schema, ...rest } = checkQueue(options);
    const prefix = prefixOf(redis, rest);
    this.redis = redis;
    this.name = checkName(name);
    this.schema = checkSchema(schema);
    this.#store = Store.of(redis, prefix, name);
    this.#enqueuer = new Enqueuer(this.#store, schema);
  }

  /**
   * The known partitions, each as a queue that takes only from its own, or else the queue itself. Each of them can
   * settle all jobs.
   *
   * @internal
   */
  get partitions(): readonly Queue[] {
    const { count } = this.#store;
    if (!this.#part && this.#partitions.length < count) {
      const known = this.#partitions.length > 1 ? this.#partitions : [];
      this.#partitions = Array.from({ length: count }, (_, i) => known[i] ?? this.#partition(i));
    }
    return this.#partitions;
  }

  #partition(index: number): Queue {
    const partition = new Queue(this.redis, this.name, { prefix: this.#store.prefix });
    partition.#part = { whole: this, index };
    return partition;
  }

  /** The queue that this is a partition of, or itself. @internal */
  get whole(): Queue {
    return this.#part?.whole ?? this;
  }

  /** The channel that tells waiting drains of a job that falls due before their next poll. @internal */
  get wakeChannel(): string {
    return this.#store.keys(this.#part?.index).wake;
  }

  /** The longest time between two polls of a waiting drain, ms. @internal */
  get pollMs(): number {
    return this.#part ? PART_POLL_MS : POLL_MS;
  }

  /**
   * Enqueues one job, an array of jobs, or the jobs of an async iterable. Many jobs are sent in batches: each batch is
   * stored completely or not at all, and results come in the order of the jobs.
   *
   * If a reply is lost, the call is repeated with the same ids, which makes no second job. Throws `usage` or `data` for
   * an invalid job, also for a payload that does not fit the schema (before any job of its batch is sent), `temporary`
   * if Redis cannot accept jobs now, and `unknown` with `ids` if no reply arrives.
   *
   * With `durable` or `replicas`, returns only when the jobs are on Redis's disk, or on that many replicas. Throws
   * `config` or `temporary` before anything is sent if Redis cannot confirm that, and `unknown` with `ids` (and
   * `stored`) if it has not within 4 s. The wait blocks the connection: give workers a connection of their own.
   */
  enqueue(job: NewJob<Input>, options?: EnqueueOptions): Promise<Enqueued>;
  enqueue(jobs: readonly NewJob<Input>[], options?: EnqueueOptions): Promise<Enqueued[]>;
  enqueue(jobs: AsyncIterable<NewJob<Input>>, options?: EnqueueOptions): AsyncGenerator<Enqueued>;
  enqueue(
    jobs: NewJob<Input> | readonly NewJob<Input>[] | AsyncIterable<NewJob<Input>>,
    options: EnqueueOptions = {},
  ): Promise<Enqueued | Enqueued[]> | AsyncGenerator<Enqueued> {
    if (Array.isArray(jobs)) return this.#all(jobs, options);
    if (Object(jobs) === jobs && Symbol.asyncIterator in jobs) return this.#each(jobs, options);
    return this.#enqueuer.one(jobs as NewJob<Input>, options);
  }

  async #all(jobs: readonly NewJob<Input>[], options: EnqueueOptions): Promise<Enqueued[]> {
    const all: Enqueued[] = [];
    for await (const enqueued of this.#each(jobs, options)) all.push(enqueued);
    return all;
  }

  async *#each(
    jobs: Iterable<NewJob<Input>> | AsyncIterable<NewJob<Input>>,
    options: EnqueueOptions,
  ): AsyncGenerator<Enqueued> {
    async function* groups() {
      if (Array.isArray(jobs)) yield jobs as NewJob<Input>[];
      else for await (const job of jobs) yield [job];
    }
    for await (const result of this.enqueueBatches(groups(), options)) {
      if ('error' in result) throw result.error;
      yield* result.enqueued;
    }
  }

  /**
   * Enqueues the jobs of groups of any size: regroups them into batches, keeps several batches in flight, and yields
   * the result of each batch, in order. A batch that fails does not stop the others: the caller decides whether to go
   * on. Jobs may carry data of the caller under keys that are symbols.
   */
  async *enqueueBatches<J extends NewJob<Input>>(
    groups: AsyncIterable<readonly J[]>,
    options: EnqueueOptions = {},
  ): AsyncGenerator<BatchResult<J>> {
    const inFlight = requiredBy(checkOptions(options)) && DURABLE_IN_FLIGHT;
    const partitions = () => this.#store.count;
    yield* inBatches(groups, (batch) => this.#enqueuer.all(batch, options), { inFlight, partitions });
  }

  /**
   * Takes up to `limit` (at most 250) due jobs, oldest due first, and hides them from other drains for `leaseMs`
   * (default: the queue's). With 0 it removes them at once, and nothing brings them back. With `cutoff`, ms, it takes
   * only jobs that were due by then. `by` names the consumer to operators (default: host:pid): 1 to 128 printable ASCII
   * characters without spaces. Throws `usage` for an invalid option, and what Connection.call throws.
   */
  async drain(options: DrainOptions = {}): Promise<scripts.Drained> {
    const isOne = () => this.#part !== undefined || this.#store.count === 1;
    const drained = isOne() ? await this.take(options) : undefined;
    return drained && (isOne() || drained.jobs.length > 0) ? drained : this.#takeFirst(options);
  }

  /**
   * As {@link Queue.drain}, but from partition `i` only (default: this one). Takes nothing if only the reply reveals the
   * others. Throws `config` for a stream if there are others: a script reaches only one slot.
   *
   * @internal
   */
  async take(
    options: DrainOptions = {},
    { start, stream }: Taking = {},
    i = this.#part?.index ?? 0,
  ): Promise<scripts.Drained> {
    const { limit = MAX_CALL, leaseMs, cutoff, by } = checkDrain(options);
    checkCount(limit, 'limit');
    if (leaseMs !== undefined) checkMs(leaseMs, 'leaseMs');
    if (by !== undefined) checkConsumer(by);
    const known = this.#store.count;
    const drain = (occurs?: boolean) =>
      scripts.take(this.#store, i, () => {
        if (stream && this.#store.count > 1) throw scattered(this.name, this.#store.count);
        const receipt = i === 0 ? randomWord(12) : `${randomWord(12)}.${i}`;
        // The reply revealed partitions: others may have older jobs.
        const upTo = known === 1 && this.#store.count > 1 ? scripts.LONG_AGO : cutoff;
        return { limit, leaseMs, cutoff: upTo, receipt, by: by ?? consumer(), start, occurs, stream };
      });
    const drained = await drain();
    if (drained.state !== 'occurs') return drained;
    const { fireFirst } = await import('../recurring/fire.js');
    return fireFirst(this.#store, i, drained, drain);
  }

  /** Takes from the partition that probably has the oldest due job; if it has none, from another. */
  async #takeFirst(options: DrainOptions): Promise<scripts.Drained> {
    const heads = this.#heads;
    const asked = new Set<number>();
    let drained: scripts.Drained | undefined;
    do {
      // An answer may tell of new partitions.
      while (heads.length < this.#store.count) heads.push(0);
      const rest = [...heads.keys()].filter((i) => !asked.has(i));
      const first = rest.reduce((a, b) => ((heads[b] as number) < (heads[a] as number) ? b : a));
      asked.add(first);
      drained = await this.take(options, {}, first);
      heads[first] = drained.next ?? Number.POSITIVE_INFINITY;
    } while (drained.jobs.length === 0 && asked.size < this.#store.count);
    const next = Math.min(...heads);
    const { now, state } = drained as scripts.Drained;
    return {
      ...(drained as scripts.Drained),
      state: next <= now ? 'more' : state === 'more' ? 'idle' : state,
      next: Number.isFinite(next) ? next : undefined,
    };
  }

  /**
   * Puts back jobs that a drain with lease 0 has removed, with their records and due times. Throws `unknown` with `ids`
   * if the reply is lost: after a repeat, a job that was taken in between would be delivered twice.
   */
  putBack(jobs: readonly Job[]): Promise<void> {
    return putBack(this.#store, jobs);
  }

  /**
   * Removes finished jobs whose leases are still held. Returns the state of each lease, in the order of the jobs. Their
   * `result` is kept if the queue keeps jobs that are done: at most 4 KiB of it. Throws `usage` for one that is no text.
   */
  ack(jobs: readonly Finishing[], options: AckOptions = {}): Promise<Answer[]> {
    return ack(this.#store, jobs, options);
  }

  /** As {@link Queue.ack}, repeated while its errors may pass. @internal */
  ackWithin(limits: RetryLimits, jobs: readonly Finishing[]): Promise<Answer[]> {
    return ack(this.#store, jobs, {}, limits);
  }

  /**
   * Gives back jobs whose leases are still held. By default that counts a failure, and the job is delivered again after
   * its own delay or the backoff; see {@link NackOptions} for other modes. Throws `usage` for an invalid delay.
   */
  async nack(jobs: readonly Given[], how: NackOptions = {}): Promise<Nacked[]> {
    return nack(this.#store, jobs, how);
  }

  /** As {@link Queue.nack}, repeated while its errors may pass. @internal */
  nackWithin(limits: RetryLimits, jobs: readonly Given[], how: NackOptions = {}): Promise<Nacked[]> {
    return nack(this.#store, jobs, how, limits);
  }

  /** Adds to how many handlers took less than 2^k ms, and at least half of that, by k. @internal */
  async countDurations(counts: ReadonlyMap<number, number>): Promise<void> {
    await countDurations(this.#store, counts);
  }

  /**
   * How a job has ended, or its state if it has not: at once, or with `timeout` when it ends, at the latest after this
   * time. The queue must keep jobs that are done (its setting `keepDone`): throws `missing` if it does not. Throws
   * `usage` for an invalid option, and what Connection.call throws, but while there is time repeats what may pass.
   */
  async result(id: Id, options: ResultOptions = {}): Promise<JobResult> {
    const { resultOf, Watch } = await import('./result.js');
    const look = async () => (await this.lookUp([id]))[0] as Look;
    return resultOf(new Watch(this.name, idWord(id)), options, look);
  }

  /** What is known of jobs, also of those that are done. @internal */
  async lookUp(ids: readonly Id[]): Promise<Look[]> {
    const { lookUp } = await import('../store/finished.js');
    return lookUp(this.#store, ids);
  }

  /** Everything stored about a job; undefined if there is none. @internal */
  async show(id: Id): Promise<StoredJob | undefined> {
    const { value } = await show(this.#store, [id]).next();
    return value?.[0];
  }

  /** Extends leases that are still held to `leaseMs` from now (default: the queue's). Throws `usage` below 1 ms. */
  async renew(jobs: readonly Held[], leaseMs?: number): Promise<Answer[]> {
    return renew(this.#store, jobs, leaseMs);
  }

  /**
   * Removes jobs by their ids, whatever their states, without receipts. A job under a lease of a consumer whose name
   * begins with `by` is done (`acked`), as by {@link Queue.ack}. Any other is `cancelled`: a lease that another
   * consumer holds is superseded, and the id is free again. Answers in the order of `ids`; if a reply was lost, what
   * the first attempt removed is `missing`. Throws what Connection.call throws.
   */
  finish(ids: readonly Id[], options: FinishOptions = {}): Promise<Finished[]> {
    return removeByIds(this.#store, ids, options);
  }

  /**
   * Enqueues a job in place of the job `id`, which is removed as by {@link Queue.finish}; also if there is no such job.
   * Both happen, or none. The new job gets an id of its own. Throws `usage` or `data` for an invalid job, `temporary`
   * if Redis cannot accept jobs now: the old job is then still there. Throws `unknown` with the new id if no reply
   * arrives.
   */
  async swap(id: Id, job: Omit<NewJob<Input>, 'id'>, options: FinishOptions = {}): Promise<Enqueued> {
    if ('id' in job && job.id !== undefined) {
      throw new DelayqError('usage', 'swap makes the id of the new job', {
        why: 'an id of the caller may belong to another partition than that of the old job',
        next: 'leave out id, or enqueue with the id of the old job and ifExists: replace',
      });
    }
    return swap(this.#store, id, this.#enqueuer.ready(job), options);
  }

  /**
   * Takes back all expired leases, takes no jobs, and does not count as a drain. Returns the time of Redis's clock, ms.
   * A paused queue keeps its leases until it resumes. Throws what Connection.call throws.
   */
  async takeBack(): Promise<number> {
    const times = await scripts.takeBack(this.#store);
    return Math.max(...times);
  }

  /**
   * Returns the counts of the queue, at one moment unless it has partitions, and up to `upcoming` of the next due
   * times.
   */
  async counts(upcoming = 0): Promise<Snapshot> {
    return inspectAll(this.#store, upcoming);
  }
}

const scattered = (name: string, count: number) =>
  new DelayqError('config', `the jobs of ${name} cannot go to a stream`, {
    why: `it has ${count} partitions, each in a slot of its own, and a stream is in one`,
    next: 'drain it into handlers that write to the stream, or use queues without partitions',
  });
