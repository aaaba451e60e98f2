import { DelayqError, isDelayqError } from '../model/errors.js';
import { idOf, idWord } from '../model/id.js';
import { decodeUtf8, JsonText } from '../model/payload.js';
import { closest, printable } from '../model/text.js';
import { checkId, checkWord, keysOf } from '../model/validate.js';
import type { Connection, Reply } from '../redis/connection.js';
import { slotOfKey } from '../redis/slots.js';
import { byId } from '../store/by-id.js';
import { PartitionMap } from '../store/map.js';
import { text } from '../store/replies.js';
import { MAX_BYTES, SLICE } from '../store/script.js';
import type { Store } from '../store/store.js';
import { raw } from '../store/stored.js';
import * as moves from '../store/transfer.js';
import { type ForeignQueue, type Values, valuesOf } from './foreign.js';

/** What to adopt, and how. */
export interface AdoptOptions extends ForeignQueue {
  /** Turn values that are not JSON into JSON strings; default: leave them where they are. */
  readonly wrap?: boolean | undefined;
  /** If the queue has another job with the same id: `keep` it (default), or `replace` it, also if it is active. */
  readonly ifExists?: 'keep' | 'replace' | undefined;
  /** Change nothing, and only report what would become of the jobs. */
  readonly dryRun?: boolean | undefined;
}

const checkOptions = keysOf<AdoptOptions>('adopt', {
  zset: '',
  hash: '',
  stringKeys: 'strings keys key pattern',
  unit: 'units',
  wrap: 'text',
  ifExists: 'onConflict replace overwrite',
  dryRun: '',
});

/**
 * Why a job was left where it is: it has no value (perhaps not yet), its id, time or value is not valid for a job
 * (`id`, `time`, `payload`), the queue has another job of its id (`exists`), or its producer has just changed it
 * (`changed`).
 */
export type LeftReason = 'no-value' | 'id' | 'time' | 'payload' | 'exists' | 'changed';

export interface AdoptedSlice {
  /** The pass over the sorted set, from 1. Passes are repeated while producers still write. */
  readonly pass: number;
  /** How many jobs were taken over. */
  readonly adopted: number;
  /** How many of other jobs with their ids were replaced by jobs that were taken over; not in `adopted`. */
  readonly replaced: number;
  /** How many were removed from the other software's keys because the same job was already in the queue. */
  readonly kept: number;
  /** Jobs that were left where they are. */
  readonly left: readonly LeftJob[];
}

interface LeftJob {
  readonly id: string;
  readonly reason: LeftReason;
  readonly why?: string | undefined;
}

/** How many pages of keys are looked through for a similar name. */
const MAX_PAGES = 10;

/** Ends the run even if producers change jobs faster than they are taken over. */
const MAX_PASSES = 10;

/** Numbers from here on are times in ms (from 1973 on): in seconds they would be after the year 5138. */
const LEAST_MS = 1e11;

/** Numbers from here on are times in seconds (from 1973 on); smaller ones may mean "now". */
const LEAST_S = 1e8;

/** Takes over jobs of other software; see {@link Transfer.adopt}. */
export async function* adoptJobs(
  store: Store,
  claims: string | undefined,
  options: AdoptOptions,
): AsyncGenerator<AdoptedSlice> {
  const { zset, unit, ifExists = 'keep', dryRun } = checkOptions(options);
  checkWord(unit, ['s', 'ms'], 'unit');
  checkWord(ifExists, ['keep', 'replace'], 'ifExists');
  const { redis } = store;
  const values = valuesOf(redis, options);
  await store.look();
  checkKeys(store, options);
  await checkTypes(redis, options);
  await checkUnit(redis, zset, unit);
  const adopt = adopter(store, values, claims, options);
  const resumed = dryRun ? [] : await adopt.resume();
  if (resumed.length > 0) yield sliceOf(1, resumed, []);
  else await checkThere(store, zset);
  let again = true;
  for (let pass = 1; again && pass <= MAX_PASSES; pass++) {
    let moved = 0;
    let changed = 0;
    let passed = 0;
    for (;;) {
      const members = (await redis.call('ZRANGE', zset, passed, passed + SLICE - 1, 'WITHSCORES')) as Buffer[];
      if (members.length === 0) break;
      const listed = members.filter((_, i) => i % 2 === 0);
      const ids = await firstThatFit(values, listed);
      const found = await values.get(ids);
      const read = ids.map((id, i) => readJob(id, members[2 * i + 1] as Buffer, found[i] ?? null, options));
      const valid = read.filter((job) => 'value' in job);
      const answers = dryRun ? await predict(store, valid, ifExists) : valid.length > 0 ? await adopt.some(valid) : [];
      let left: LeftJob[] = read.filter((job) => 'reason' in job);
      for (const [i, answer] of answers.entries()) {
        if (answer === 'exists' || answer === 'changed') left.push({ id: valid[i]?.id ?? '', reason: answer });
      }
      left = await stillThere(redis, zset, left);
      changed += answers.filter((answer) => answer === 'changed').length;
      moved += valid.length;
      passed += dryRun ? ids.length : left.length;
      yield sliceOf(pass, answers, left);
    }
    again = !dryRun && (changed > 0 || moved >= SLICE);
  }
}

/** Without those that another consumer has taken meanwhile: it had removed their values, or changed them. */
async function stillThere(redis: Connection, zset: string, left: AdoptedSlice['left']): Promise<LeftJob[]> {
  const passing = left.filter(({ reason }) => reason === 'no-value' || reason === 'changed').map(({ id }) => id);
  if (passing.length === 0) return [...left];
  const scores = (await redis.call('ZMSCORE', zset, ...passing)) as Reply[];
  const gone = new Set(passing.filter((_, i) => scores[i] === null));
  return left.filter(({ id }) => !gone.has(id));
}

function sliceOf(pass: number, answers: readonly moves.Adopted[], left: AdoptedSlice['left']): AdoptedSlice {
  const count = (word: moves.Adopted) => answers.filter((answer) => answer === word).length;
  return { pass, adopted: count('adopted'), replaced: count('replaced'), kept: count('kept'), left };
}

/**
 * Adopts with one script; in several steps if the values are in string keys, if the queue has partitions, or, on a cluster,
 * if the keys are in several slots.
 */
function adopter(store: Store, values: Values, claims: string | undefined, options: AdoptOptions) {
  const { zset, hash, wrap, ifExists = 'keep' } = options;
  const { redis } = store;
  const replace = ifExists === 'replace';
  const slots = new Set([store.keys().pending, zset, hash ?? zset].map(slotOfKey));
  let isApart = hash === undefined || (redis.sharded && slots.size > 1);
  const apart = async () => {
    if (claims === undefined) throw unclaimable(zset);
    return { ...(await import('./adopt-apart.js')), foreign: { zset, values, claims, replace } };
  };
  return {
    /** Finishes what earlier runs have left. */
    resume: async (): Promise<moves.Adopted[]> => {
      if (
        (hash !== undefined && slots.size === 1 && store.count === 1) ||
        claims === undefined ||
        !(await redis.call('EXISTS', claims))
      )
        return [];
      const { resumeApart, foreign } = await apart();
      return resumeApart(store, foreign, (value) => {
        try {
          return payloadOf(value, wrap) ?? value;
        } catch (error) {
          if (!isDelayqError(error)) throw error;
          return undefined;
        }
      });
    },
    some: async (jobs: readonly moves.Foreign[]): Promise<moves.Adopted[]> => {
      try {
        if (!isApart && hash !== undefined && store.count === 1)
          return await moves.adopt(redis, store.keys(), { zset, hash }, jobs, replace);
      } catch (error) {
        // A node of a cluster that nobody has asked yet about another slot. Nothing was changed.
        if (isDelayqError(error, 'config') && /CROSSSLOT/.test(error.why ?? '')) isApart = true;
        else await store.learnFrom(PartitionMap.ONE, error, 1);
      }
      const { adoptApart, foreign } = await apart();
      const likely = await predict(store, jobs, ifExists);
      const chosen = jobs.filter((_, i) => likely[i] !== 'exists');
      const answers = chosen.length > 0 ? await adoptApart(store, foreign, chosen) : [];
      return likely.map((answer) => (answer === 'exists' ? answer : (answers.shift() as moves.Adopted)));
    },
  };
}

/** The first of `ids` whose values have {@link MAX_BYTES} together; at least one. */
async function firstThatFit(values: Values, ids: readonly Buffer[]): Promise<readonly Buffer[]> {
  const sizes = await values.sizes(ids);
  let bytes = 0;
  const full = sizes.findIndex((size, i) => {
    bytes += size;
    return i > 0 && bytes > MAX_BYTES;
  });
  return full < 0 ? ids : ids.slice(0, full);
}

/** What is left of a sorted set and a hash: their sizes, and some fields of the hash that are not in the set. */
export async function foreignRest(redis: Connection, foreign: ForeignQueue) {
  const { zset, hash } = foreign;
  valuesOf(redis, foreign);
  await checkTypes(redis, foreign);
  const members = Number(await redis.call('ZCARD', zset));
  if (hash === undefined) return { members, strays: [] };
  const fields = Number(await redis.call('HLEN', hash));
  if (fields === 0) return { members, fields, strays: [] };
  const some = (await redis.call('HRANDFIELD', hash, 20)) as Buffer[];
  const scores = (await redis.call('ZMSCORE', zset, ...some)) as Reply[];
  const strays = some.filter((_, i) => scores[i] === null).map((id) => idWord(idOf(id)));
  return { members, fields, strays };
}

/** What adopting these jobs would do, as their queue is now. */
async function predict(
  store: Store,
  jobs: readonly moves.Foreign[],
  ifExists: 'keep' | 'replace',
): Promise<moves.Adopted[]> {
  const other = ifExists === 'replace' ? 'replaced' : 'exists';
  return byId<moves.Foreign, moves.Adopted>(store, jobs, {
    idOf: ({ id }) => id,
    reads: true,
    act: async (keys, some) => {
      const rows = await raw(
        store.redis,
        keys,
        some.map(({ id }) => id),
      );
      return rows.map((row, i) => {
        const { due, value, payload = value } = some[i] as moves.Foreign;
        const same = text(row.state) === 'p' && Number(text(row.score)) === due;
        const equal = same && Buffer.from(payload as string).equals((row.payload as Buffer | null) ?? Buffer.of());
        return text(row.state) === '' ? 'adopted' : equal ? 'kept' : other;
      });
    },
    isMissing: (answer) => answer === 'adopted',
  });
}

/** A job as it was read, or why it cannot be taken over. */
function readJob(
  member: Buffer,
  score: Buffer,
  value: Buffer | null,
  { unit, wrap }: AdoptOptions,
): moves.Foreign | { id: string; reason: LeftReason; why?: string | undefined } {
  const id = idWord(idOf(member));
  try {
    checkId(member.toString('utf8'));
  } catch (error) {
    if (!isDelayqError(error)) throw error;
    return { id, reason: 'id' };
  }
  if (!value) return { id, reason: 'no-value' };
  const time = Number(score);
  const due = Math.round(unit === 's' ? time * 1000 : time);
  if (looksLikeOther(time, unit) || !(Math.abs(due) <= 8.64e15)) return { id, reason: 'time', why: text(score) };
  try {
    return { id, score, value, due, payload: payloadOf(value, wrap) };
  } catch (error) {
    if (!isDelayqError(error)) throw error;
    return { id, reason: 'payload', why: `${error.what}${error.why ? `: ${error.why}` : ''}` };
  }
}

/** The payload in a value; undefined if it is the value itself. Throws `data` if there is none. */
function payloadOf(value: Buffer, wrap: boolean | undefined): string | undefined {
  const given = decodeUtf8(value);
  const payload = wrap && !isJson(given) ? JsonText.from(given).text : JsonText.parse(given).text;
  return payload === given ? undefined : payload;
}

function isJson(given: string): boolean {
  try {
    JSON.parse(given);
    return true;
  } catch {
    return false;
  }
}

const looksLikeOther = (time: number, unit: 's' | 'ms') =>
  unit === 's' ? time >= LEAST_MS : time >= LEAST_S && time < LEAST_MS;

function checkKeys(store: Store, { zset, hash }: ForeignQueue): void {
  const keys = Array.from({ length: store.count }, (_, i) => Object.values(store.keys(i))).flat();
  const own = [zset, hash].find((name) => name !== undefined && keys.includes(name));
  if (own === undefined) return;
  const next = 'name the keys of the other software';
  throw new DelayqError('usage', `${printable(own)} is a key of the queue itself`, { next });
}

async function checkTypes(redis: Connection, { zset, hash }: ForeignQueue): Promise<void> {
  for (const [want, name] of Object.entries(hash === undefined ? { zset } : { zset, hash })) {
    const type = text(await redis.call('TYPE', name));
    if (type === want || type === 'none') continue;
    throw new DelayqError('usage', `${printable(name)} is not a ${want === 'zset' ? 'sorted set' : want}`, {
      why: `its type is ${type}`,
      next: 'zset is for the key with ids and times, hash for the key with ids and values',
    });
  }
}

/**
 * Throws `missing` if there is no sorted set, and the queue has never adopted a job: Redis keeps no empty one, so that a
 * repeated adopt finds none either, and must not fail for that.
 */
async function checkThere(store: Store, zset: string): Promise<void> {
  const { redis } = store;
  if (Number(await redis.call('EXISTS', zset)) > 0) return;
  const all = Array.from({ length: store.count }, (_, i) => redis.call('HEXISTS', store.keys(i).stats, 'adopted'));
  if ((await Promise.all(all)).some((has) => Number(has) > 0)) return;
  const close = closest(zset, await someSortedSets(redis));
  throw new DelayqError('missing', `there is no key ${printable(zset)}`, {
    why: `${redis.address} has no such key; a sorted set without members does not exist`,
    next: close === undefined ? 'check its name and the database of the URL' : `did you mean ${printable(close)}?`,
  });
}

/** The names of some sorted sets: all of a small database. None without the permission to look. */
async function someSortedSets(redis: Connection): Promise<string[]> {
  const found: string[] = [];
  try {
    for (const node of await redis.nodes()) {
      for (let page = 0, cursor = ''; page < MAX_PAGES && cursor !== '0'; page++) {
        const scanned = await node.call('SCAN', cursor || '0', 'TYPE', 'zset', 'COUNT', 1_000);
        const [next, keys] = scanned as [Buffer, Reply[]];
        cursor = String(next);
        found.push(...keys.map(String));
      }
    }
  } catch {
    // The suggestion is not worth an error of its own.
  }
  return found;
}

async function checkUnit(redis: Connection, zset: string, unit: 's' | 'ms'): Promise<void> {
  const ms = Number(await redis.call('ZCOUNT', zset, LEAST_MS, '(inf'));
  const s = Number(await redis.call('ZCOUNT', zset, LEAST_S, `(${LEAST_MS}`));
  const [odd, other] = unit === 's' ? [ms, 'ms' as const] : [s, 's' as const];
  if (odd * 2 <= ms + s) return;
  const first = unit === 's' ? LEAST_MS : LEAST_S;
  const [, sample] = (await redis.call('ZRANGEBYSCORE', zset, first, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)) as Reply[];
  throw new DelayqError('usage', `the times in ${printable(zset)} do not look like ${UNITS[unit]}`, {
    why: `${odd} of ${ms + s} would be ${unit === 's' ? 'after the year 5138' : 'in 1970 to 1973'}, such as ${text(sample)}`,
    next: `nothing was changed; if they are ${UNITS[other]}, set the unit to ${other}`,
  });
}

const UNITS = { s: 'seconds', ms: 'milliseconds' };

/** The error for a sorted set beside which nothing can be stored. */
function unclaimable(zset: string): DelayqError {
  return new DelayqError('config', `no other key can be in the slot of ${printable(zset)}`, {
    why: 'its name contains }, and the queue and the hash are in other slots',
    next: 'nothing was changed; rename it while its producers are stopped',
  });
}
