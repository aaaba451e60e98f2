import { DelayqError, isDelayqError } from '../model/errors.js';
import { printable } from '../model/text.js';
import type { Connection, Reply } from '../redis/connection.js';
import * as moves from '../store/transfer.js';

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

/** What stands for an id in the names of string keys. */
const ID = '{id}';

/** The values of the jobs of other software. */
export interface Values {
  /** The values of jobs, in the order of their ids; null for each that has none. */
  get(ids: readonly (Buffer | string)[]): Promise<(Buffer | null)[]>;
  /** Their sizes, bytes. */
  sizes(ids: readonly (Buffer | string)[]): Promise<number[]>;
  /** Removes those that are still as they were read. */
  erase(jobs: readonly { readonly id: string; readonly value: Buffer }[]): Promise<void>;
}

/** Throws `usage` unless there is either a hash or names of string keys. */
export function valuesOf(redis: Connection, { hash, stringKeys }: ForeignQueue): Values {
  if ((hash === undefined) === (stringKeys === undefined)) {
    throw new DelayqError('usage', `${hash === undefined ? 'neither' : 'both'} a hash and string keys are given`, {
      why: 'the values of the jobs are in one of them',
      next: 'give either of them',
    });
  }
  if (stringKeys === undefined) return inHash(redis, hash as string);
  const [before = '', after, more] = stringKeys.split(ID);
  if (after === undefined || more !== undefined) {
    throw new DelayqError('usage', `${printable(stringKeys)} does not name string keys`, {
      why: `it must have ${ID} once, where the id is in the name`,
      next: `write it as job:${ID}, for example`,
    });
  }
  return inStringKeys(redis, (id) => `${before}${id}${after}`);
}

function inHash(redis: Connection, hash: string): Values {
  return {
    get: async (ids) => (await redis.call('HMGET', hash, ...ids)) as (Buffer | null)[],
    sizes: async (ids) => (await Promise.all(ids.map((id) => redis.call('HSTRLEN', hash, id)))).map(Number),
    erase: (jobs) => moves.erase(redis, hash, jobs),
  };
}

/** Each key is asked for on its own: on a cluster they are in many slots. */
function inStringKeys(redis: Connection, keyOf: (id: Buffer | string) => string): Values {
  return {
    get: (ids) =>
      Promise.all(
        ids.map(async (id) => {
          // Where GET fails, MGET has null: for a key of another type.
          const [value] = (await redis.call('MGET', keyOf(id))) as (Buffer | null)[];
          return value as Buffer | null;
        }),
      ),
    sizes: (ids) => Promise.all(ids.map(async (id) => Number(await redis.call('STRLEN', keyOf(id)).catch(noSize)))),
    erase: async (jobs) => {
      await Promise.all(jobs.map(({ id, value }) => moves.eraseKey(redis, keyOf(id), value)));
    },
  };
}

/** A key of another type has no size, and its job no value. */
function noSize(error: unknown): Reply {
  if (isDelayqError(error, 'config')) return 0;
  throw error;
}
