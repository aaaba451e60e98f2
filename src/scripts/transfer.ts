import type { Id } from '../model/id.js';
import type { Answer } from '../model/job.js';
import type { Arg, Connection, Reply } from '../redis/connection.js';
import type { QueueKeys } from '../redis/keys.js';
import { text, words } from '../redis/replies.js';
import { MAX_BYTES, run, type Wake } from '../redis/script.js';

/*
 * How jobs go from one place to another: one typed function per script. Ids, records and payloads stay bytes.
 */

/** A job as it is stored, wherever that is. */
export interface Parcel {
  readonly id: Buffer;
  readonly state: 'pending' | 'dead';
  /** When it is due, or died, ms: as Redis writes it, for it may be a fraction, or without end. */
  readonly score: string;
  /** What else is stored of it, if anything. */
  readonly record: Buffer | undefined;
  readonly payload: Buffer;
}

/**
 * What restore did: the job is there now, or was there with the same payload (and is dead there, unlike this one), or
 * another payload was there under its id, or a move that has not ended holds one of its id there.
 */
export type Restored = 'created' | 'kept' | 'kept-dead' | 'differs' | 'held';

const RESTORED: Record<string, Restored> = { c: 'created', k: 'kept', x: 'kept-dead', d: 'differs', h: 'held' };
const ANSWERS: Record<string, Answer> = { h: 'held', l: 'lost', s: 'superseded' };
const STATES = { p: 'pending', d: 'dead' } as const;

/** Puts jobs into a queue as they are, unless their ids are there. At most {@link MAX_CALL}; `tokens` of the moves that bring them. */
export async function restore(
  redis: Connection,
  keys: QueueKeys,
  jobs: readonly Parcel[],
  { wake, tokens = [] }: { wake: Wake; tokens?: readonly string[] },
): Promise<Restored[]> {
  const args: Arg[] = [wake.channel, wake.pollMs];
  for (const [i, { id, state, score, record, payload }] of jobs.entries()) {
    args.push(id, state === 'dead' ? 'd' : 'p', score, record ?? '', payload, tokens[i] ?? '');
  }
  return words((await run(redis, 'transfer/restore', keys, args))[1], RESTORED);
}

/** Forgets the tokens that restore has left behind. */
export async function forgetTokens(
  redis: Connection,
  keys: QueueKeys,
  jobs: readonly { readonly parcel: Parcel; readonly token: string }[],
): Promise<void> {
  const fields = jobs.map(({ parcel, token }) => Buffer.concat([Buffer.from(`${token} `), parcel.id]));
  if (fields.length > 0) await redis.call('HDEL', keys.lease, ...fields);
}

/** A job that is out of everybody's reach, or why it is not. */
export type Hold = { readonly parcel: Parcel; readonly token: string } | 'active' | 'missing' | 'orphaned';

const NOT_HELD: Record<string, Hold> = { a: 'active', m: 'missing', o: 'orphaned' };

/**
 * Takes the first of `ids`, as many as fit into a reply, out of everybody's reach until `finish`. At most
 * {@link MAX_CALL}. What `by` holds already is taken over, under its first token.
 */
export async function hold(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly Id[],
  { states, receipt, by }: { states: readonly ('pending' | 'dead')[]; receipt: string; by: string },
): Promise<Hold[]> {
  const letters = states.map(([letter]) => letter).join('');
  const reply = await run(redis, 'transfer/hold', keys, [letters, receipt, by, MAX_BYTES, ...ids]);
  return Array.from({ length: (reply.length - 1) / 5 }, (_, i) => {
    const [letter, score, token, record, payload] = reply.slice(1 + 5 * i, 6 + 5 * i);
    const was = text(letter);
    const state = STATES[was as keyof typeof STATES];
    if (!state) return NOT_HELD[was] as Hold;
    const id = Buffer.from(ids[i] as string);
    const parcel = { id, state, score: text(score), record: bytes(record), payload: payload as Buffer };
    return { parcel, token: text(token) };
  });
}

/** Ends holds: jobs that were `moved` go, others stand again where they stood. At most {@link MAX_CALL}. */
export async function finish(
  redis: Connection,
  keys: QueueKeys,
  jobs: readonly { readonly id: Buffer; readonly moved: boolean }[],
  { receipt, wake }: { receipt: string; wake: Wake },
): Promise<Answer[]> {
  const args = jobs.flatMap(({ id, moved }) => [id, receipt, moved ? 'm' : 'b']);
  const reply = await run(redis, 'transfer/finish', keys, [wake.channel, wake.pollMs, ...args]);
  return words(reply[1], ANSWERS);
}

/** What is stored of a job, undecoded: state letter, score, lease, record, payload. */
export type Raw = Readonly<Record<'state' | 'score' | 'held' | 'record' | 'payload', Reply | undefined>>;

/** What is stored of the first of `ids`, as many as fit into a reply. */
export async function raw(redis: Connection, keys: QueueKeys, ids: readonly Reply[]): Promise<Raw[]> {
  const reply = await run(redis, 'inspect/show', keys, [MAX_BYTES, ...(ids as Buffer[])]);
  return Array.from({ length: (reply.length - 1) / 5 }, (_, i) => {
    const [state, score, held, record, payload] = reply.slice(1 + 5 * i, 6 + 5 * i);
    return { state, score, held, record, payload };
  });
}

/** A job of other software: its id, its time and its value as they were read, and what they are here. */
export interface Foreign {
  readonly id: string;
  readonly score: Buffer;
  readonly value: Buffer;
  readonly due: number;
  /** Its payload, where that is not the value as it is. */
  readonly payload: string | undefined;
}

/** What adopt did: it is a job now, was one just so, another of that id is one, or it is no longer what was read. */
export type Adopted = 'adopted' | 'kept' | 'exists' | 'changed';

const ADOPTED: Record<string, Adopted> = { c: 'adopted', k: 'kept', e: 'exists', x: 'changed' };

/** Takes jobs over from the sorted set and the hash of other software. At most {@link MAX_CALL}. */
export async function adopt(
  redis: Connection,
  keys: QueueKeys,
  { zset, hash }: { zset: string; hash: string },
  jobs: readonly Foreign[],
  wake: Wake,
): Promise<Adopted[]> {
  const args: Arg[] = [wake.channel, wake.pollMs];
  for (const { id, score, value, due, payload = '' } of jobs) args.push(id, score, value, String(due), payload);
  return words((await run(redis, 'transfer/adopt', keys, args, [zset, hash]))[1], ADOPTED);
}

const bytes = (reply: Reply | undefined) => (reply as Buffer | null | undefined) ?? undefined;
