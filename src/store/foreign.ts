import { DelayqError, isDelayqError } from '../model/errors.js';
import { type Id, idOf } from '../model/id.js';
import { printable } from '../model/text.js';
import type { Connection, Reply } from '../redis/connection.js';
import { text } from './replies.js';
import { MAX_BYTES, run, SLICE } from './script.js';

/** The keys in which other software keeps its jobs: a sorted set, and either a hash or string keys. */
export interface ForeignQueue {
  /** Key of a sorted set: id → due time. */
  readonly zset: string;
  /** Key of a hash: id → value. */
  readonly hash?: string | undefined;
  /** Names of the string keys with the values: `{id}` stands for the id, such as `job:{id}`. */
  readonly stringKeys?: string | undefined;
  /** Unit of the times in the sorted set, since 1970. */
  readonly unit: 's' | 'ms';
}

/** The placeholder of an id in the names of string keys. */
const ID = '{id}';

/** What lua/transfer/erase.lua replies. */
const [REMOVED, CHANGED] = [1, 0];

/** A job of other software, as it was read. */
export interface ForeignRow {
  readonly id: Buffer;
  readonly score: Buffer;
  /** Null if there is none, or none yet. */
  readonly value: Buffer | null;
}

/** A job of other software: as it was read there, and as it will be stored here. */
export interface ForeignJob {
  readonly id: string;
  readonly score: Buffer;
  readonly value: Buffer;
  readonly due: number;
  /** Its payload, if that is not `value` itself. */
  readonly payload: string | undefined;
}

/** The jobs of other software. */
export class ForeignJobs {
  readonly zset: string;
  readonly hash: string | undefined;
  readonly #redis: Connection;
  /** Names the string key of a job; only if values are in string keys. */
  readonly keyOf: (id: Buffer | string) => string;

  /** Throws `usage` unless there is either a hash or names of string keys. */
  constructor(redis: Connection, foreign: ForeignQueue) {
    this.#redis = redis;
    this.zset = foreign.zset;
    this.hash = foreign.hash;
    this.keyOf = stringKeysIn(foreign);
  }

  /** Returns the type of a key as Redis names it: `zset`, `hash`, `none` … */
  async typeOf(key: string): Promise<string> {
    return text(await this.#redis.call('TYPE', key));
  }

  /** How many jobs there are, by their times. */
  async size(): Promise<number> {
    return Number(await this.#redis.call('ZCARD', this.zset));
  }

  /** Reads about 1 MiB of jobs from rank `from` on, earliest first. Empty after the last one. */
  async read(from: number): Promise<ForeignRow[]> {
    const range = (await this.#redis.call('ZRANGE', this.zset, from, from + SLICE - 1, 'WITHSCORES')) as Buffer[];
    if (range.length === 0) return [];
    const listed = range.filter((_, i) => i % 2 === 0);
    let bytes = 0;
    const full = (await this.#sizes(listed)).findIndex((size, i) => {
      bytes += size;
      return i > 0 && bytes > MAX_BYTES;
    });
    const ids = full < 0 ? listed : listed.slice(0, full);
    const values = await this.values(ids);
    return ids.map((id, i) => ({ id, score: range[2 * i + 1] as Buffer, value: values[i] ?? null }));
  }

  /** Returns the values of jobs, in the order of their ids; null for each that has none. */
  async values(ids: readonly (Buffer | string)[]): Promise<(Buffer | null)[]> {
    if (this.hash !== undefined) return (await this.#redis.call('HMGET', this.hash, ...ids)) as (Buffer | null)[];
    // Each on its own: on a cluster they are in many slots. Where GET fails, for a key of another type, MGET has null.
    const found = await Promise.all(ids.map((id) => this.#redis.call('MGET', this.keyOf(id))));
    return found.map((values) => (values as [Buffer | null])[0]);
  }

  async #sizes(ids: readonly Buffer[]): Promise<number[]> {
    const { hash } = this;
    const sizeOf = (id: Buffer) =>
      hash === undefined
        ? this.#redis.call('STRLEN', this.keyOf(id)).catch(noSize)
        : this.#redis.call('HSTRLEN', hash, id);
    return (await Promise.all(ids.map(sizeOf))).map(Number);
  }

  /** Removes jobs that are still as they were read: first their times, as other consumers take them. Returns which. */
  async remove(jobs: readonly ForeignJob[]): Promise<boolean[]> {
    const times = await this.#erase(
      this.zset,
      'zset',
      jobs.map(({ id, score }) => [id, score]),
    );
    const taken = jobs.filter((_, i) => times[i] === REMOVED);
    const values =
      this.hash !== undefined
        ? await this.#erase(
            this.hash,
            'hash',
            taken.map(({ id, value }) => [id, value]),
          )
        : (
            await Promise.all(taken.map(({ id, value }) => this.#erase(this.keyOf(id), 'string', [[id, value]])))
          ).flat();
    // A value that has gone was deleted by a consumer that did not get the job.
    const changed = new Set(taken.filter((_, i) => values[i] === CHANGED));
    for (const { id, score } of changed) await this.#redis.call('ZADD', this.zset, 'NX', score, id);
    return jobs.map((job, i) => times[i] === REMOVED && !changed.has(job));
  }

  async #erase(key: string, kind: 'zset' | 'hash' | 'string', was: readonly (readonly [string, Buffer])[]) {
    if (was.length === 0) return [];
    return run(this.#redis, 'transfer/erase', undefined, [kind, ...was.flat()], [key]);
  }

  /** Whether each of these ids has a time. */
  async areListed(ids: readonly (string | Buffer)[]): Promise<boolean[]> {
    if (ids.length === 0) return [];
    const scores = (await this.#redis.call('ZMSCORE', this.zset, ...ids)) as Reply[];
    return scores.map((score) => score !== null);
  }

  /** Counts the times from `from` on and before `to`. */
  async countTimes(from: number, to: number): Promise<number> {
    const end = to === Number.POSITIVE_INFINITY ? '(inf' : `(${to}`;
    return Number(await this.#redis.call('ZCOUNT', this.zset, from, end));
  }

  /** The first time from `from` on. */
  async firstTimeFrom(from: number): Promise<string> {
    const found = await this.#redis.call('ZRANGEBYSCORE', this.zset, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1);
    return text((found as Reply[])[1]);
  }

  /** The number of fields of the hash, and some that are not ids with times. Undefined without a hash. */
  async fields(): Promise<{ fields: number; strays: Id[] } | undefined> {
    if (this.hash === undefined) return undefined;
    const fields = Number(await this.#redis.call('HLEN', this.hash));
    const some = fields === 0 ? [] : ((await this.#redis.call('HRANDFIELD', this.hash, 20)) as Buffer[]);
    const listed = await this.areListed(some);
    return { fields, strays: some.filter((_, i) => !listed[i]).map(idOf) };
  }
}

/** Names the string key of an id, if the values are in string keys. Throws `usage` unless there are these or a hash. */
function stringKeysIn({ hash, stringKeys }: ForeignQueue): (id: Buffer | string) => string {
  if ((hash === undefined) === (stringKeys === undefined)) {
    throw new DelayqError('usage', `${hash === undefined ? 'neither' : 'both'} a hash and string keys are given`, {
      why: 'the values of the jobs are in one of them',
      next: 'give either of them',
    });
  }
  // Nobody asks for one.
  if (stringKeys === undefined) return String;
  const [before = '', after, more] = stringKeys.split(ID);
  if (after === undefined || more !== undefined) {
    throw new DelayqError('usage', `${printable(stringKeys)} does not name string keys`, {
      why: `it must have ${ID} once, where the id is in the name`,
      next: `write it as job:${ID}, for example`,
    });
  }
  return (id) => `${before}${id}${after}`;
}

/** A key of another type has no size, and its job no value. */
function noSize(error: unknown): Reply {
  if (isDelayqError(error, 'config')) return 0;
  throw error;
}
