import type { Id } from '../model/id.js';
import type { Answer } from '../model/job.js';
import type { Connection } from '../redis/connection.js';
import type { QueueKeys } from '../redis/keys.js';
import { bytes, rows, text } from '../redis/replies.js';
import { MAX_BYTES, run } from '../redis/script.js';
import { answered, LEASES, lettersOf, STATES } from './answers.js';

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

/**
 * The result of a restore: the job was `created`, or its id was already there: `kept` with the same payload and
 * attributes, `kept-dead` if it is dead there but not here, `differs` if they are others, `held` by an unfinished move.
 */
export type Restored = 'created' | 'kept' | 'kept-dead' | 'differs' | 'held';

/**
 * Puts jobs into a queue as they are, unless their ids exist there. `tokens` of the moves that bring them make a repeat
 * safe. At most {@link MAX_CALL}.
 */
export async function restore(
  redis: Connection,
  keys: QueueKeys,
  jobs: readonly Parcel[],
  tokens: readonly string[] = [],
): Promise<Restored[]> {
  const args = jobs.flatMap(({ id, state, score, record = '', payload }, i) => {
    return [id, state === 'dead' ? 'd' : 'p', score, record, payload, tokens[i] ?? ''];
  });
  const reply = await run(redis, 'transfer/restore', keys, args);
  return answered<Restored>(reply, { c: 'created', k: 'kept', x: 'kept-dead', d: 'differs', h: 'held' }).answers;
}

/** Removes the tokens that {@link restore} stored. */
export async function forgetTokens(
  redis: Connection,
  keys: QueueKeys,
  jobs: readonly { readonly parcel: Parcel; readonly token: string }[],
): Promise<void> {
  const fields = jobs.map(({ parcel, token }) => Buffer.concat([Buffer.from(`${token} `), parcel.id]));
  if (fields.length > 0) await redis.call('HDEL', keys.lease, ...fields);
}

/** A job that is held for a move, or why it is not. */
export type Hold = { readonly parcel: Parcel; readonly token: string } | 'active' | 'missing' | 'orphaned';

const NOT_HELD: Record<string, Hold> = { a: 'active', m: 'missing', o: 'orphaned' };

/**
 * Reserves the first of `ids`, as many as fit into one reply: nobody can take them until {@link finish}. Jobs that `by`
 * already holds are taken over and keep their first token. At most {@link MAX_CALL}.
 */
export async function hold(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly Id[],
  { states, receipt, by }: { states: readonly ('pending' | 'dead')[]; receipt: string; by: string },
): Promise<Hold[]> {
  const reply = await run(redis, 'transfer/hold', keys, [lettersOf(states), receipt, by, MAX_BYTES, ...ids]);
  return rows(reply, 1, 5).map(([letter, score, token, record, payload], i) => {
    const not = NOT_HELD[text(letter)];
    if (not) return not;
    const id = Buffer.from(ids[i] as string);
    const state = STATES[text(letter)] as Parcel['state'];
    const parcel = { id, state, score: text(score), record: bytes(record), payload: payload as Buffer };
    return { parcel, token: text(token) };
  });
}

/** Ends holds: removes jobs that were `moved`, and puts the others back where they were. At most {@link MAX_CALL}. */
export async function finish(
  redis: Connection,
  keys: QueueKeys,
  jobs: readonly { readonly id: Buffer; readonly moved: boolean }[],
  receipt: string,
): Promise<Answer[]> {
  const args = jobs.flatMap(({ id, moved }) => [id, receipt, moved ? 'm' : 'b']);
  const reply = await run(redis, 'transfer/finish', keys, args);
  return answered(reply, LEASES).answers;
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
 * The result of an adopt: the job was moved here, or an equal one was here (`kept`), or another with this id
 * (`exists`), or it has `changed` since it was read.
 */
export type Adopted = 'adopted' | 'kept' | 'exists' | 'changed';

/** Moves jobs here from the sorted set and the hash of other software. At most {@link MAX_CALL}. */
export async function adopt(
  redis: Connection,
  keys: QueueKeys,
  { zset, hash }: { zset: string; hash: string },
  jobs: readonly Foreign[],
): Promise<Adopted[]> {
  const args = jobs.flatMap(({ id, score, value, due, payload = '' }) => [id, score, value, String(due), payload]);
  const reply = await run(redis, 'transfer/adopt', keys, args, [zset, hash]);
  return answered<Adopted>(reply, { c: 'adopted', k: 'kept', e: 'exists', x: 'changed' }).answers;
}
