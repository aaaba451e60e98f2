import { readAttributes } from '../model/attributes.js';
import { isDelayqError, isPassing, partly } from '../model/errors.js';
import type { Reply } from '../redis/connection.js';
import { repeatIfLost } from '../redis/retry.js';
import { byId } from './by-id.js';
import { groupsOf } from './map.js';
import { text } from './replies.js';
import { MAX_BYTES, SLICE } from './script.js';
import type { Store } from './store.js';
import { parseRecord, type Raw, raw } from './stored.js';
import * as moves from './transfer.js';

/** Puts jobs into a queue as they were. Repeats a call whose reply was lost. */
export async function restoreJobs(store: Store, jobs: readonly moves.Parcel[]): Promise<moves.Restored[]> {
  const restored: moves.Restored[] = [];
  for (const some of slices(jobs.map((job) => ({ ...job, token: '' })))) {
    // With every slice: Redis may have lost its data meanwhile.
    store.list();
    restored.push(...(await repeatIfLost(() => restoreInto(store, some))));
  }
  return restored;
}

/** Cuts jobs into slices that are limited in number and in bytes. */
function* slices(jobs: readonly moves.Brought[]): Generator<readonly moves.Brought[]> {
  let start = 0;
  let size = 0;
  for (const [i, { payload }] of jobs.entries()) {
    if (i > start && (i - start >= SLICE || size + payload.length > MAX_BYTES)) {
      yield jobs.slice(start, i);
      start = i;
      size = 0;
    }
    size += payload.length;
  }
  if (start < jobs.length) yield jobs.slice(start);
}

/**
 * Puts jobs into a queue as they are, each into the partition of its id; see {@link moves.restore}. Throws `unknown` if
 * it fails after some are there: the caller must not put those back where they were.
 */
export async function restoreInto(store: Store, jobs: readonly moves.Brought[]): Promise<moves.Restored[]> {
  const { redis } = store;
  return byId<moves.Brought, moves.Restored>(store, jobs, {
    idOf: ({ id }) => id,
    act: (keys, some) => moves.restore(redis, keys, some),
    inDoubt: (error, answers) => {
      const isPart = answers.some((answer) => answer === 'created' || (answer !== undefined && isPassing(error)));
      return isPart && isDelayqError(error) ? partly(error) : error;
    },
    // Brought before the growth, and perhaps done since.
    marked: async (keys, some) => {
      const marks = (await redis.call('HMGET', keys.lease, ...some.map(moves.markOf))) as Reply[];
      return marks.map((mark, i) => (mark !== null && some[i]?.token !== '' ? 'kept' : undefined));
    },
    onActive: async (keys, some) => {
      const ids = some.map(({ id }) => id);
      const rows = await raw(redis, keys, ids);
      const answers = rows.map((row, i) => answerOnActive(row, some[i] as moves.Brought));
      const kept = some.filter(({ token }, i) => token !== '' && answers[i] === 'kept');
      // As the script marks jobs: so a repeat does not bring a finished job again.
      for (const [i, marked] of groupsOf(kept, ({ id }) => store.map.ownerOf(id))) {
        const now = await redis.now();
        const marks = marked.flatMap((one) => [moves.markOf(one), `${now} moved`]);
        await redis.call('HSET', store.keys(i).lease, ...marks);
      }
      return answers;
    },
  });
}

/**
 * What lua/transfer/restore.lua would answer about a job that is active where it belonged before a growth. Undefined:
 * the job is not active there, or the growth is moving it.
 */
function answerOnActive(row: Raw, parcel: moves.Parcel): moves.Restored | undefined {
  if (text(row.state) !== 'a') return undefined;
  const [, to] = / move:(\S+) [pd] \S+$/.exec(text(row.held)) ?? [];
  if (to !== undefined) return to.includes('/') ? undefined : 'held';
  return isSame(row, parcel) ? 'kept' : 'differs';
}

/** As lua/transfer/restore.lua compares: by payload and attributes. */
function isSame(row: Raw, { payload, record }: moves.Parcel): boolean {
  const attributesOf = (json: Buffer | undefined) => JSON.stringify(readAttributes(parseRecord(text(json))));
  return (
    payload.equals((row.payload as Buffer | null) ?? Buffer.of()) &&
    attributesOf(record) === attributesOf(row.record as Buffer)
  );
}

/** Removes tokens of jobs where the jobs belong, and where they belonged before a growth. */
export async function forgetTokens(store: Store, jobs: Parameters<typeof moves.forgetTokens>[2]): Promise<void> {
  const { map, redis } = store;
  for (const of of ['ownerOf', 'formerOf'] as const) {
    if (of === 'formerOf' && map.from === undefined) continue;
    for (const [i, some] of groupsOf(jobs, ({ id }) => map[of](id)))
      await moves.forgetTokens(redis, store.keys(i, map), some);
  }
}
