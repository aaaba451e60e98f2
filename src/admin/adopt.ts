import { DelayqError, isDelayqError } from '../model/errors.js';
import { idOf, idWord } from '../model/id.js';
import { decodeUtf8, JsonText } from '../model/payload.js';
import { printable } from '../model/text.js';
import { checkId, checkWord, keysOf } from '../model/validate.js';
import type { Connection } from '../redis/connection.js';
import { type Adopted, Adoption } from '../store/adopt.js';
import { type ForeignJob, ForeignJobs, type ForeignQueue, type ForeignRow } from '../store/foreign.js';
import type { Store } from '../store/store.js';

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

/** After a pass over so many jobs, producers may have written others meanwhile: so another one follows. */
const MANY = 100;

/** Ends the run even if producers change jobs faster than they are taken over. */
const MAX_PASSES = 10;

/** Numbers from here on are times in ms (from 1973 on): in seconds they would be after the year 5138. */
const FIRST_MS = 1e11;

/** Numbers from here on are times in seconds (from 1973 on); smaller ones may mean "now". */
const FIRST_S = 1e8;

/** Takes over jobs of other software; see {@link Transfer.adopt}. */
export async function* adoptJobs(store: Store, options: AdoptOptions): AsyncGenerator<AdoptedSlice> {
  const { unit, ifExists = 'keep', dryRun } = checkOptions(options);
  checkWord(unit, ['s', 'ms'], 'unit');
  checkWord(ifExists, ['keep', 'replace'], 'ifExists');
  const foreign = new ForeignJobs(store.redis, options);
  await store.look();
  checkKeys(store, options);
  await checkTypes(foreign);
  await checkUnit(foreign, unit);
  const adoption = new Adoption(store, foreign, ifExists === 'replace');
  // Redis keeps no empty set: a repeated adopt finds none, and must not fail for that.
  if ((await foreign.size()) === 0 && !(await adoption.hasAdopted())) throw missing(store.redis, foreign.zset);
  let again = true;
  for (let pass = 1; again && pass <= MAX_PASSES; pass++) {
    let moved = 0;
    let changed = 0;
    let passed = 0;
    for (;;) {
      const rows = await foreign.read(passed);
      if (rows.length === 0) break;
      const read = rows.map((row) => readJob(row, options));
      const valid = read.filter((job) => 'value' in job);
      const answers = await (dryRun ? adoption.predict(valid) : adoption.take(valid));
      let left: LeftJob[] = read.filter((job) => 'reason' in job);
      for (const [i, answer] of answers.entries()) {
        if (answer === 'exists' || answer === 'changed') left.push({ id: valid[i]?.id ?? '', reason: answer });
      }
      left = await stillThere(foreign, left);
      changed += answers.filter((answer) => answer === 'changed').length;
      moved += valid.length;
      passed += dryRun ? rows.length : left.length;
      yield sliceOf(pass, answers, left);
    }
    again = !dryRun && (changed > 0 || moved >= MANY);
  }
}

/** Without those that another consumer has taken meanwhile: it had removed their values, or changed them. */
async function stillThere(foreign: ForeignJobs, left: readonly LeftJob[]): Promise<LeftJob[]> {
  const passing = left.filter(({ reason }) => reason === 'no-value' || reason === 'changed').map(({ id }) => id);
  const listed = await foreign.areListed(passing);
  const gone = new Set(passing.filter((_, i) => !listed[i]));
  return left.filter(({ id }) => !gone.has(id));
}

function sliceOf(pass: number, answers: readonly Adopted[], left: AdoptedSlice['left']): AdoptedSlice {
  const count = (word: Adopted) => answers.filter((answer) => answer === word).length;
  return { pass, adopted: count('adopted'), replaced: count('replaced'), kept: count('kept'), left };
}

/** What is left of a sorted set and a hash: their sizes, and some fields of the hash that are not in the set. */
export async function foreignRest(redis: Connection, foreign: ForeignQueue) {
  const jobs = new ForeignJobs(redis, foreign);
  await checkTypes(jobs);
  const members = await jobs.size();
  const { fields, strays = [] } = (await jobs.fields()) ?? {};
  return { members, ...(fields !== undefined && { fields }), strays: strays.map(idWord) };
}

/** A job as it was read, or why it cannot be taken over. */
function readJob(
  { id: member, score, value }: ForeignRow,
  { unit, wrap }: AdoptOptions,
): ForeignJob | { id: string; reason: LeftReason; why?: string | undefined } {
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
  if (looksLikeOther(time, unit) || !(Math.abs(due) <= 8.64e15)) return { id, reason: 'time', why: String(score) };
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
  unit === 's' ? time >= FIRST_MS : time >= FIRST_S && time < FIRST_MS;

function checkKeys(store: Store, { zset, hash }: ForeignQueue): void {
  const own = [zset, hash].find((name) => name !== undefined && store.owns(name));
  if (own === undefined) return;
  const next = 'name the keys of the other software';
  throw new DelayqError('usage', `${printable(own)} is a key of the queue itself`, { next });
}

async function checkTypes(foreign: ForeignJobs): Promise<void> {
  const { zset, hash } = foreign;
  for (const [want, name] of Object.entries(hash === undefined ? { zset } : { zset, hash })) {
    const type = await foreign.typeOf(name);
    if (type === want || type === 'none') continue;
    throw new DelayqError('usage', `${printable(name)} is not a ${want === 'zset' ? 'sorted set' : want}`, {
      why: `its type is ${type}`,
      next: 'zset is for the key with ids and times, hash for the key with ids and values',
    });
  }
}

/** The error for a sorted set that does not exist. */
function missing({ address }: Connection, zset: string): DelayqError {
  return new DelayqError('missing', `there is no key ${printable(zset)}`, {
    why: `${address} has no such key; a sorted set without members does not exist`,
    next: 'check its name and the database of the URL',
  });
}

async function checkUnit(foreign: ForeignJobs, unit: 's' | 'ms'): Promise<void> {
  const ms = await foreign.countTimes(FIRST_MS, Number.POSITIVE_INFINITY);
  const s = await foreign.countTimes(FIRST_S, FIRST_MS);
  const [odd, other] = unit === 's' ? [ms, 'ms' as const] : [s, 's' as const];
  if (odd * 2 <= ms + s) return;
  const first = unit === 's' ? FIRST_MS : FIRST_S;
  const sample = await foreign.firstTimeFrom(first);
  throw new DelayqError('usage', `the times in ${printable(foreign.zset)} do not look like ${UNITS[unit]}`, {
    why: `${odd} of ${ms + s} would be ${unit === 's' ? 'after the year 5138' : 'in 1970 to 1973'}, such as ${sample}`,
    next: `nothing was changed; if they are ${UNITS[other]}, set the unit to ${other}`,
  });
}

const UNITS = { s: 'seconds', ms: 'milliseconds' };
