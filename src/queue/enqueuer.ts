import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError, isDelayqError, unknownOutcome } from '../model/errors.js';
import { newId } from '../model/id.js';
import { type Enqueued, GIVEN, type NewJob, type Outcome, type ReadyJob, readyJob } from '../model/job.js';
import { JsonText } from '../model/payload.js';
import { fitted, type Schema } from '../model/schema.js';
import { checkMs, checkWord, keysOf } from '../model/validate.js';
import type { Caller, Connection } from '../redis/connection.js';
import { repeatIfLost } from '../redis/retry.js';
import {
  type Confirmation,
  confirm,
  type Durability,
  doubtOf,
  nothingWritten,
  pinnedFor,
  requiredBy,
  unconfirmed,
} from '../store/durability.js';
import * as scripts from '../store/jobs.js';
import { type QueueKeys, queuesKey } from '../store/keys.js';
import type { PartitionMap } from '../store/map.js';
import { MAX_CALL } from '../store/script.js';
import type { Store } from '../store/store.js';
import { Coalescer } from './coalesce.js';

/** How long a new queue waits to be listed, ms: on a cluster another node may have the list, and be down. */
const LIST_MS = 500;

/** Pauses before the repeats of an enqueue whose reply was lost, ms. */
const REPEAT_AFTER_MS = [100, 1_000];

/** The reply for a batch, and its confirmation if required. `first`: outcomes of the first attempt; empty if lost. */
interface Sent {
  readonly now: number;
  readonly outcomes: Outcome[];
  readonly first: Outcome[];
  readonly repeated: boolean;
  readonly confirmation?: Confirmation;
}

/** How jobs are enqueued. */
export interface EnqueueOptions extends Durability {
  /** If a job with the same id exists: `keep` it (default) or `replace` it. */
  readonly ifExists?: 'keep' | 'replace' | undefined;
  /** If the reply is lost: for how long the call may be repeated, ms. Default: twice, however long that takes. */
  readonly repeatMs?: number | undefined;
}

const checkKeys = keysOf<EnqueueOptions>('enqueue', {
  ifExists: 'onConflict replace overwrite',
  durable: 'fsync sync',
  replicas: 'wait',
  repeatMs: 'retryMs repeat retry',
});

/** Returns the options if they are valid. Throws `usage` otherwise. */
export function checkOptions(options: EnqueueOptions): EnqueueOptions {
  const { ifExists = 'keep', repeatMs } = checkKeys(options);
  if (repeatMs !== undefined) checkMs(repeatMs, 'repeatMs');
  checkWord(ifExists, ['keep', 'replace'], 'ifExists');
  return options;
}

/** Enqueues jobs, repeats lost replies, and works out each result. Throws what Queue.enqueue throws. */
export class Enqueuer {
  readonly #redis: Connection;
  readonly #store: Store;
  readonly #schema: Schema | undefined;
  #listed = false;
  /** The partition for the next jobs whose ids are made here: another one after a full batch of jobs, or a failure. */
  #turn = Math.floor(Math.random() * 1024);
  #putInTurn = 0;
  /** Single jobs that are enqueued together share a call; one for each partition, so that each fails on its own. */
  readonly #singles: Coalescer<ReadyJob, Enqueued>[] = [];

  /** Payloads must fit `schema`, if there is one. */
  constructor(store: Store, schema?: Schema) {
    this.#redis = store.redis;
    this.#store = store;
    this.#schema = schema;
  }

  /** Checks a job, and fills in defaults. Throws `usage` or `data` if a part of it is invalid. */
  ready(job: NewJob, makeId?: () => string): ReadyJob {
    const ready = readyJob(job, makeId);
    // As its handler will read it: JSON has no Date, for example.
    if (this.#schema) fitted(this.#schema, parsed(ready.json), this.#store.queue);
    return ready;
  }

  async one(job: NewJob & Pick<ReadyJob, typeof GIVEN>, options: EnqueueOptions): Promise<Enqueued> {
    checkOptions(options);
    const made = this.ready(job, this.#makeId);
    const ready = job[GIVEN] === undefined ? made : { ...made, [GIVEN]: job[GIVEN] };
    // A shared call that fails would leave open which of its jobs was replaced or confirmed.
    if (!requiredBy(options) && options.ifExists !== 'replace' && options.repeatMs === undefined)
      return this.#singlesOf(ready).add(ready, ready.json.length + ready.record.length);
    this.#flushSingles();
    const [enqueued] = await this.#put([ready], options);
    return enqueued as Enqueued;
  }

  async all(jobs: readonly NewJob[], options: EnqueueOptions): Promise<Enqueued[]> {
    this.#flushSingles();
    return this.#put(
      jobs.map((job) => this.ready(job, this.#makeId)),
      options,
    );
  }

  #singlesOf({ id }: ReadyJob): Coalescer<ReadyJob, Enqueued> {
    const i = this.#store.map.ownerOf(id);
    this.#singles[i] ??= new Coalescer<ReadyJob, Enqueued>(
      (items) => this.#put(items, {}),
      (error, { id }) => (isDelayqError(error, 'unknown') ? unknownOutcome([id], error.why ?? error.what) : error),
    );
    return this.#singles[i];
  }

  #flushSingles(): void {
    for (const singles of this.#singles) singles?.flush();
  }

  #takeTurns(): void {
    this.#turn++;
    this.#putInTurn = 0;
  }

  /** Makes ids of one partition until the next call: so a batch of them is one call, stored whole or not at all. */
  readonly #makeId = (): string => {
    const { map } = this.#store;
    return map.count === 1 ? newId() : map.newIdOf(this.#turn % map.count);
  };

  async #put(jobs: readonly ReadyJob[], options: EnqueueOptions): Promise<Enqueued[]> {
    if (jobs.length === 0) return [];
    this.#putInTurn += jobs.length;
    if (this.#putInTurn >= MAX_CALL) this.#takeTurns();
    try {
      return await this.#route(jobs, options);
    } catch (error) {
      this.#takeTurns();
      throw error;
    }
  }

  /** Puts jobs into the partitions to which they belong. */
  async #route(jobs: readonly ReadyJob[], options: EnqueueOptions): Promise<Enqueued[]> {
    const store = this.#store;
    const { map } = store;
    const owner = ownerOfAll(jobs, map);
    let ready = jobs;
    if (owner !== undefined) {
      try {
        return await this.#putInto(store.keys(owner, map), this.#asTexts(jobs), options);
      } catch (error) {
        await store.learnFrom(map, error, 1);
      }
      // The ids made here would be spread over all partitions.
      ready = jobs.map((job) => (job.ours ? { ...job, id: this.#makeId() } : job));
    }
    const { putApart } = await import('./put-apart.js');
    return putApart(store, this.#asTexts(ready), {
      put: (keys, some) => this.#putInto(keys, some, options),
      onActive: (keys, some) => this.#putActive(keys, some, options),
    });
  }

  /** In a queue of texts, jobs become the texts that were given. A refusal tells of it: no call asks. */
  #asTexts(jobs: readonly ReadyJob[]): readonly ReadyJob[] {
    if (!this.#store.texts) return jobs;
    return jobs.map((job) => (job[GIVEN] === undefined ? job : { ...job, json: JsonText.from(job[GIVEN]).text }));
  }

  /** Puts jobs into one partition. */
  async #putInto(keys: QueueKeys, jobs: readonly ReadyJob[], options: EnqueueOptions): Promise<Enqueued[]> {
    const { ifExists = 'keep' } = options;
    const { now, outcomes, first, repeated, confirmation } = await this.#send(keys, jobs, ifExists, options);
    const results: Enqueued[] = [];
    const collided: number[] = [];
    const unclear: string[] = [];
    for (const [i, job] of jobs.entries()) {
      let outcome = outcomes[i] as Outcome;
      if (isKept(outcome)) {
        // `kept` with an id made here: a collision if the first attempt says so, else the job of the first attempt, which
        // may be done by now: with a window that is told, and without one the repeat would have made it again.
        if (job.ours && isKept(first[i])) collided.push(i);
        else if (job.ours || first[i] === 'created') outcome = 'created';
        else if (repeated && ifExists === 'replace') unclear.push(job.id);
      }
      results.push(resultOf(job, outcome, now, confirmation));
    }
    const earlier = 'jobs with these ids exist, but they may be the earlier ones';
    if (unclear.length > 0)
      throw first.length > 0 ? unconfirmed(results, { doubt: earlier }) : unknownOutcome(unclear, earlier);
    if (collided.length > 0) {
      const renamed = collided.map((i) => ({ ...(jobs[i] as ReadyJob), id: newId() }));
      const again = await this.#put(renamed, options);
      for (const [n, i] of collided.entries()) results[i] = again[n] as Enqueued;
    }
    if (confirmation && 'doubt' in confirmation) throw unconfirmed(results, confirmation);
    return results;
  }

  /** Replaces or keeps jobs that are active where they belonged before a growth. Undefined for each that is not. */
  async #putActive(
    keys: QueueKeys,
    jobs: readonly ReadyJob[],
    options: EnqueueOptions,
  ): Promise<(Enqueued | undefined)[]> {
    const required = requiredBy(options);
    const over = async (caller: Caller) => {
      const confirmed = async () => required && (await confirm(caller, required));
      if (options.ifExists === 'replace')
        return { ...(await scripts.replaceActive(caller, keys, jobs)), confirmation: await confirmed() };
      // As a script counts them; it is also what there is to confirm.
      await caller.call('HINCRBY', keys.stats, 'kept', jobs.length);
      return { now: Date.now(), outcomes: jobs.map(() => 'kept' as const), confirmation: await confirmed() };
    };
    const { now, outcomes, confirmation } = await (required
      ? pinnedFor(this.#redis, keys.pending, required, over)
      : over(this.#redis));
    const results = outcomes.map((outcome, i) => outcome && resultOf(jobs[i] as ReadyJob, outcome, now, confirmation));
    if (confirmation && 'doubt' in confirmation)
      throw unconfirmed(
        results.filter((one) => one !== undefined),
        confirmation,
      );
    return results;
  }

  /** Sends a batch, and confirms it if required. Repeats with `keep`: what the first attempt stored stays. */
  async #send(
    keys: QueueKeys,
    jobs: readonly ReadyJob[],
    ifExists: 'keep' | 'replace',
    options: EnqueueOptions,
  ): Promise<Sent> {
    const required = requiredBy(options);
    let first: Outcome[] = [];
    let sent: Sent | undefined;
    const over = async (caller: Caller, n: number): Promise<Sent> => {
      const { now, outcomes, written } = await this.send(keys, jobs, n > 0 ? 'keep' : ifExists, caller);
      if (n === 0) first = outcomes;
      const reply: Sent = { now, outcomes, first, repeated: n > 0 };
      // If every wait fails, the earliest reply describes best what happened to the jobs.
      sent ??= reply;
      if (!required) return reply;
      const confirmation = written ? await confirm(caller, required) : nothingWritten(keys.stats);
      return { ...reply, confirmation };
    };
    // WAIT only covers writes of its own connection.
    const attempt = (n: number) =>
      required ? pinnedFor(this.#redis, keys.pending, required, (pinned) => over(pinned, n)) : over(this.#redis, n);
    try {
      return await repeatIfLost(attempt, REPEAT_AFTER_MS, options.repeatMs);
    } catch (error) {
      if (!isDelayqError(error, 'unknown')) throw error;
      const doubt = doubtOf(error.cause as DelayqError, "Redis's reply was lost, and the repeat failed: ");
      if (sent) return { ...sent, confirmation: doubt };
      const ids = jobs.map(({ id }) => id);
      throw unknownOutcome(ids, doubt.doubt);
    }
  }

  /**
   * Sends jobs once. Lists the queue before its first job, and again if the queue is new: Redis may have come back
   * empty, or the queue was forgotten.
   */
  async send(
    keys: QueueKeys,
    jobs: readonly ReadyJob[],
    ifExists: scripts.IfExists,
    caller: Caller = this.#redis,
  ): Promise<scripts.EnqueueReply> {
    return this.listing(() => scripts.enqueue(caller, keys, jobs, ifExists));
  }

  /** Makes a call that may put the first job into the queue, and lists the queue as {@link Enqueuer.send} does. */
  async listing<R extends { readonly begun: boolean }>(send: () => Promise<R>): Promise<R> {
    if (!this.#listed) this.#list();
    const reply = await send();
    if (reply.begun) await Promise.race([this.#list(), sleep(LIST_MS, undefined, { ref: false })]);
    return reply;
  }

  /** Lists the queue for `inspect`: in a separate call, because of another slot. Only a hint, so it may fail. */
  async #list(): Promise<void> {
    this.#listed = true;
    await this.#redis.call('SADD', queuesKey(this.#store.prefix), this.#store.queue).catch(() => {
      this.#listed = false;
    });
  }
}

/** The value of a payload. Throws `data` if it need not be JSON. */
function parsed(json: string | Buffer): unknown {
  if (typeof json === 'string') return JSON.parse(json);
  throw new DelayqError('data', 'a RawPayload fits no schema', {
    why: 'it is not JSON',
    next: 'enqueue it to a queue without a schema',
  });
}

const isKept = (outcome: Outcome | undefined) => outcome?.startsWith('kept');

/**
 * The partition to which all jobs belong, if one call can put them there: at most {@link MAX_CALL}, and while a growth is
 * open only those that cannot be elsewhere.
 */
function ownerOfAll(jobs: readonly ReadyJob[], map: PartitionMap): number | undefined {
  if (map.count === 1) return 0;
  const [first] = jobs as [ReadyJob];
  const owner = map.ownerOf(first.id);
  const isHere = ({ id, ours }: ReadyJob) => (map.from === undefined || ours) && map.ownerOf(id) === owner;
  return jobs.length <= MAX_CALL && jobs.every(isHere) ? owner : undefined;
}

function resultOf(job: ReadyJob, outcome: Outcome, now: number, confirmation?: Confirmation): Enqueued {
  const result = { id: job.id, outcome, due: job.at ?? now + job.in };
  return confirmation && 'confirmed' in confirmation ? { ...result, confirmed: confirmation.confirmed } : result;
}
