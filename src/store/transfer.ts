import type { Id } from '../model/id.js';
import type { Answer } from '../model/job.js';
import type { Caller, Connection } from '../redis/connection.js';
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

const RESTORE: Asked<Restored> = {
  script: 'transfer/restore',
  letters: { c: 'created', k: 'kept', x: 'kept-dead', d: 'differs', h: 'held', e: 'kept-done' },
};

/**
 * Puts jobs into a queue as they are, unless their ids exist there. `counter` counts them in the queue. At most
 * {@link MAX_CALL}.
 */
export async function restore(
  redis: Caller,
  keys: QueueKeys,
  jobs: readonly Brought[],
  counter: 'restored' | 'adopted' | 'transferred' = 'restored',
): Promise<Restored[]> {
  const args = jobs.flatMap(({ id, state, score, record = '', payload, token }) => {
    return [id, state === 'dead' ? 'd' : 'p', score, record, payload, token];
  });
  return (await ask(redis, keys, RESTORE, [...args, counter])).answers;
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
