import type { Id } from '../model/id.js';
import type { Answer } from '../model/job.js';
import type { Caller, Connection, Reply } from '../redis/connection.js';
import { type Asked, ask, LEASES, lettersOf, STATES } from './answers.js';
import type { QueueKeys } from './keys.js';
import { bytes, rows, text } from './replies.js';
import { MAX_BYTES, run } from './script.js';

/** A job in the form in which it is stored. */
export interface Parcel {
  readonly id: Buffer;
  readonly state: 'pending' | 'dead';
  /** When it is due, or died, ms. As text, because Redis allows fractions and inf. */
  readonly score: string;
  /** Its record, if it has one. */
  readonly record: Buffer | undefined;
  readonly payload: Buffer;
}

/** A job that a move brings. The token keeps a repeat from making a second copy; '' without a move. */
export interface Brought extends Parcel {
  readonly token: string;
}

/**
 * The result of a restore: the job was `created`, or its id was already there: `kept` with the same payload and
 * attributes, `kept-dead` if it is dead there but not here, `differs` if they are others, `held` by an unfinished move.
 * `kept-done`: a job with this id has ended there within its window (never with a token).
 */
export type Restored = 'created' | 'kept' | 'kept-dead' | 'kept-done' | 'differs' | 'held';

/** The result of a restore that may replace jobs: with `replaced`, the job took the place of another one of its id. */
export type Replacing = Restored | 'replaced';

const RESTORE: Asked<Replacing> = {
  script: 'transfer/restore',
  letters: { c: 'created', r: 'replaced', k: 'kept', x: 'kept-dead', d: 'differs', h: 'held', e: 'kept-done' },
};

/** How jobs are restored. */
export interface RestoreHow {
  /** Counts them in the queue. Default: `restored`. */
  readonly counter?: 'restored' | 'adopted' | 'transferred';
  /** In place of other jobs with these ids, which are superseded if they are active. */
  readonly replace?: boolean;
}

/** Puts jobs into a queue as they are, unless their ids exist there. At most {@link MAX_CALL}. */
export async function restore(
  redis: Caller,
  keys: QueueKeys,
  jobs: readonly Brought[],
  { counter = 'restored', replace = false }: RestoreHow = {},
): Promise<Replacing[]> {
  const args = jobs.flatMap(({ id, state, score, record = '', payload, token }) => {
    return [id, state === 'dead' ? 'd' : 'p', score, record, payload, token];
  });
  return (await ask(redis, keys, RESTORE, [...args, ...(replace ? ['replace'] : []), counter])).answers;
}

/** The field of `lease` by which a queue remembers that a move has brought a job. */
export const markOf = ({ id, token }: Pick<Brought, 'id' | 'token'>) => Buffer.concat([Buffer.from(`${token} `), id]);

/** Removes the tokens that {@link restore} stored. */
export async function forgetTokens(redis: Caller, keys: QueueKeys, jobs: readonly Pick<Brought, 'id' | 'token'>[]) {
  if (jobs.length > 0) await redis.call('HDEL', keys.lease, ...jobs.map(markOf));
}

/** A remembered id, and until when, ms as text. */
export type Remembered = readonly [until: string, id: Id];

/** Remembers ids that another partition remembers; the later time wins. At most {@link MAX_CALL}. */
export async function remember(redis: Caller, keys: QueueKeys, ids: readonly Remembered[]): Promise<void> {
  await run(redis, 'transfer/remember', keys, ids.flat());
}

/** A job that is held for a move, or why it is not. */
export type Hold = Brought | 'active' | 'missing' | 'orphaned';

const NOT_HELD: Record<string, Hold> = { a: 'active', m: 'missing', o: 'orphaned' };

/**
 * Holds the first of `ids`, as many as fit into one reply: no drain takes them until {@link endHolds}. Takes over jobs
 * that `by` already holds; they keep their first token. Also returns which ids are remembered without a job. At most
 * {@link MAX_CALL}.
 */
export async function hold(
  redis: Caller,
  keys: QueueKeys,
  ids: readonly Id[],
  { states, receipt, by }: { states: readonly ('pending' | 'dead')[]; receipt: string; by: string },
): Promise<{ holds: Hold[]; remembered: Remembered[] }> {
  const reply = await run(redis, 'transfer/hold', keys, [lettersOf(states), receipt, by, MAX_BYTES, ...ids]);
  const remembered: Remembered[] = [];
  const holds = rows(reply, 1, 5).map(([letter, score, token, record, payload], i): Hold => {
    const not = NOT_HELD[text(letter)];
    if (not && score !== null) remembered.push([text(score), ids[i] as Id]);
    if (not) return not;
    const id = Buffer.from(ids[i] as string);
    const state = STATES[text(letter)] as Parcel['state'];
    const parcel = { id, state, score: text(score), record: bytes(record), payload: payload as Buffer };
    return { ...parcel, token: text(token) };
  });
  return { holds, remembered };
}

/** Ends holds: removes jobs that were `moved`, and puts the others back where they were. At most {@link MAX_CALL}. */
export async function endHolds(
  redis: Caller,
  keys: QueueKeys,
  jobs: readonly { readonly id: Buffer; readonly moved: boolean }[],
  receipt: string,
): Promise<Answer[]> {
  const args = jobs.flatMap(({ id, moved }) => [id, receipt, moved ? 'm' : 'b']);
  return (await ask(redis, keys, { script: 'transfer/end', letters: LEASES }, args)).answers;
}

/** A job of other software: as it was read there, and as it will be stored here. */
export interface Foreign {
  readonly id: string;
  readonly score: Buffer;
  readonly value: Buffer;
  readonly due: number;
  /** Its payload, if that is not `value` itself. */
  readonly payload: string | undefined;
}

/**
 * The result of an adopt. The job was moved here: `adopted`, or `replaced` another with its id. It was not: an equal
 * job was here (`kept`), another job has its id (`exists`), or it has `changed` since it was read.
 */
export type Adopted = 'adopted' | 'replaced' | 'kept' | 'exists' | 'changed';

/**
 * Moves jobs here from the sorted set and the hash of other software; with `replace` also in place of other jobs with
 * their ids. At most {@link MAX_CALL}.
 */
export async function adopt(
  redis: Connection,
  keys: QueueKeys,
  { zset, hash }: { zset: string; hash: string },
  jobs: readonly Foreign[],
  replace = false,
): Promise<Adopted[]> {
  const args = jobs.flatMap(({ id, score, value, due, payload = '' }) => [id, score, value, String(due), payload]);
  return (await ask(redis, keys, ADOPT, [...args, ...(replace ? ['replace'] : [])], [zset, hash])).answers;
}

const ADOPT: Asked<Adopted> = {
  script: 'transfer/adopt',
  letters: { c: 'adopted', r: 'replaced', k: 'kept', e: 'exists', x: 'changed' },
};

/**
 * Changes the layout of a partition that still has `keys.layout`. Returns false if its settings do not have the given
 * `version`.
 */
export async function advance(
  redis: Caller,
  keys: QueueKeys,
  { layout, tags, version = '' }: { layout: string; tags: string; version?: string },
): Promise<boolean> {
  return Number((await run(redis, 'transfer/advance', keys, [layout, tags, version]))[0]) === 1;
}

/** Writes settings to a partition, as names and texts in turn, unless its own are newer than `version`. */
export async function takeSettings(redis: Connection, keys: QueueKeys, version: string, settings: readonly string[]) {
  await run(redis, 'edit/settings', keys, [version, ...settings]);
}

/** Where the claims of an adopt are, beside the sorted set of the jobs. */
export interface ClaimKeys {
  readonly zset: string;
  readonly claims: string;
}

/** A job of other software that an adopt has claimed. The `token` makes it safe to bring it to a queue again. */
export interface Claim {
  readonly id: string;
  readonly token: string;
  readonly score: string;
  /** When it is due here, ms. */
  readonly due: string;
  /** SHA-1 of its value when it was read. */
  readonly sha: string;
}

const inClaim = ({ token, score, due, sha }: Claim) => [token, score, due, sha].join(' ');

/** Claims jobs whose scores have not changed, and removes them from their sorted set. Undefined for the others. */
export async function claim(
  redis: Connection,
  { zset, claims }: ClaimKeys,
  jobs: readonly Claim[],
  owner: string,
): Promise<(Claim | undefined)[]> {
  const found = await change(redis, { zset, claims }, owner, 'c', jobs);
  return jobs.map((job, i) => (found[i] === undefined ? undefined : job));
}

/** Takes over all claims of runs that have not finished. */
export async function takeOver(redis: Connection, { zset, claims }: ClaimKeys, owner: string): Promise<Claim[]> {
  const ids = ((await redis.call('HKEYS', claims)) as Reply[]).map(text);
  const found = await change(
    redis,
    { zset, claims },
    owner,
    't',
    ids.map((id) => ({ id })),
  );
  return ids.flatMap((id, i) => {
    const [token, score = '', due = '', sha = ''] = found[i]?.split(' ') ?? [];
    return token === undefined ? [] : [{ id, token, score, due, sha }];
  });
}

/** Ends claims: `back` puts a job back into its sorted set. Returns whether each was still claimed by `owner`. */
export async function unclaim(
  redis: Connection,
  where: ClaimKeys,
  jobs: readonly { readonly id: string; readonly back: boolean }[],
  owner: string,
): Promise<boolean[]> {
  const ends = jobs.map(({ id, back }) => ({ id, act: back ? 'b' : 'd' }));
  return (await change(redis, where, owner, 'd', ends)).map((claim) => claim !== undefined);
}

/** Runs `act` of lua/transfer/claim.lua on claims. Returns the content of each; undefined: not done. */
async function change(
  redis: Connection,
  { zset, claims }: ClaimKeys,
  owner: string,
  act: string,
  jobs: readonly (Claim | { readonly id: string; readonly act?: string })[],
): Promise<(string | undefined)[]> {
  if (jobs.length === 0) return [];
  const args = jobs.flatMap((job) =>
    'token' in job ? [job.id, act, job.score, inClaim(job)] : [job.id, job.act ?? act, '', ''],
  );
  const reply = await run(redis, 'transfer/claim', undefined, [owner, ...args], [zset, claims]);
  return reply.map((claim) => (claim === null ? undefined : text(claim)));
}

/** Removes values of other software, fields of a hash, that have not changed since they were read. */
export async function erase(
  redis: Connection,
  hash: string,
  jobs: readonly { readonly id: string; readonly value: Buffer }[],
): Promise<void> {
  if (jobs.length === 0) return;
  const args = jobs.flatMap(({ id, value }) => [id, value]);
  await run<Reply>(redis, 'transfer/erase', undefined, args, [hash]);
}

/** Removes a value of other software, a string key, if it has not changed since it was read. */
export async function eraseKey(redis: Connection, key: string, value: Buffer): Promise<void> {
  await run<Reply>(redis, 'transfer/erase', undefined, ['', value], [key]);
}
