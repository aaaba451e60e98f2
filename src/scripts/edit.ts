import type { Spread } from '../model/due-times.js';
import type { Id } from '../model/id.js';
import { MAX_ERROR, type StoredJob } from '../model/job.js';
import type { Arg, Connection, Reply } from '../redis/connection.js';
import type { QueueKeys } from '../redis/keys.js';
import { number, pairs, text, words } from '../redis/replies.js';
import { type Answered, run, type Wake } from '../redis/script.js';

/*
 * What operators do to a queue: one typed function per script.
 */

/** What cancel did: the state that the job was in, or it was not there, or not in one that was asked for. */
export type Cancelled = StoredJob['state'] | 'missing';

const CANCELLED: Record<string, Cancelled> = { p: 'pending', a: 'active', d: 'dead', m: 'missing' };

/** Removes jobs that are in one of `states`. At most {@link MAX_CALL}. */
export async function cancel(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly Id[],
  states: readonly StoredJob['state'][],
): Promise<Answered<Cancelled>> {
  const reply = await run(redis, 'edit/cancel', keys, [states.map(([letter]) => letter).join(''), ...ids]);
  return { now: number(reply[0]), answers: words(reply[1], CANCELLED) };
}

/**
 * What requeue did: the job is pending again, was not among the dead, or stays dead, as it has no payload, or an id that
 * no handler can be given.
 */
export type Requeued = 'requeued' | 'missing' | 'orphaned' | 'bad-id';

const REQUEUED: Record<string, Requeued> = { r: 'requeued', m: 'missing', o: 'orphaned', i: 'bad-id' };

/** Puts dead jobs back into pending, their counts reset. At most {@link MAX_CALL}. */
export async function requeue(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly Id[],
  { spread, wake }: { spread: Spread; wake: Wake },
): Promise<Answered<Requeued>> {
  return inLine(await run(redis, 'edit/requeue', keys, [...lineArgs(spread, wake), ...ids]), spread, REQUEUED);
}

/** What reschedule did: the job has its new due time, or it is in a state in which it has none, or not there. */
export type Rescheduled = 'rescheduled' | 'active' | 'dead' | 'missing';

const RESCHEDULED: Record<string, Rescheduled> = { p: 'rescheduled', a: 'active', d: 'dead', m: 'missing' };

/** Gives pending jobs new due times, in the order in which they stand in line. At most {@link MAX_CALL}. */
export async function reschedule(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly Id[],
  { spread, wake }: { spread: Spread; wake: Wake },
): Promise<Answered<Rescheduled>> {
  return inLine(await run(redis, 'edit/reschedule', keys, [...lineArgs(spread, wake), ...ids]), spread, RESCHEDULED);
}

function lineArgs(spread: Spread, wake: Wake): Arg[] {
  return [spread.next, spread.stepMs, wake.channel, wake.pollMs];
}

function inLine<A>(reply: Reply[], spread: Spread, meaning: Record<string, A>): Answered<A> {
  spread.goOn(text(reply[2]));
  return { now: number(reply[0]), answers: words(reply[1], meaning) };
}

/** What bury did: the job is dead now, or was in a state in which it cannot be buried, or not there. */
export type Buried = 'buried' | 'active' | 'dead' | 'missing';

const BURIED: Record<string, Buried> = { b: 'buried', a: 'active', d: 'dead', m: 'missing' };

/** Puts pending jobs among the dead; `error`, if not empty, is kept as their last error. At most {@link MAX_CALL}. */
export async function bury(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly Id[],
  error: string,
): Promise<Answered<Buried>> {
  const reply = await run(redis, 'edit/bury', keys, [error.slice(0, MAX_ERROR).toWellFormed(), ...ids]);
  return { now: number(reply[0]), answers: words(reply[1], BURIED) };
}

/** How many jobs of each state were removed, and whether there are more. */
export interface Purged {
  readonly pending: number;
  readonly active: number;
  readonly dead: number;
  readonly more: boolean;
}

/** Removes up to `limit` jobs of `states`; all that are left of all states, once none is active. */
export async function purge(
  redis: Connection,
  keys: QueueKeys,
  states: readonly StoredJob['state'][],
  limit: number,
): Promise<Purged> {
  const reply = await run(redis, 'edit/purge', keys, [states.map(([letter]) => letter).join(''), limit]);
  const [pending = 0, active = 0, dead = 0, more] = reply.map(number);
  return { pending, active, dead, more: more === 1 };
}

/** Removes what is left of a queue without jobs. Whether it was without. */
export async function forget(redis: Connection, keys: QueueKeys): Promise<boolean> {
  return number((await run(redis, 'edit/forget', keys, []))[0]) === 1;
}

/** Until when a queue was paused before, and is now: ms by Redis's clock, or Infinity; undefined: not. */
export interface Paused {
  readonly was: number | undefined;
  readonly until: number | undefined;
}

/** Has drains take nothing for `forMs` (Infinity: until told otherwise), or, undefined, take again. */
export async function pause(
  redis: Connection,
  keys: QueueKeys,
  forMs: number | undefined,
  wake: Wake,
): Promise<Paused> {
  const how = forMs === undefined ? '' : forMs === Number.POSITIVE_INFINITY ? 'inf' : `+${forMs}`;
  const [, was, until] = (await run(redis, 'edit/pause', keys, [how, wake.channel])).map(text);
  const told = (word = '') => (word === '' ? undefined : word === 'inf' ? Number.POSITIVE_INFINITY : Number(word));
  return { was: told(was), until: told(until) };
}

/** Sets or removes defaults of a queue, name and text (empty: remove) in turn, and returns its whole config. */
export async function config(
  redis: Connection,
  keys: QueueKeys,
  change: readonly string[],
): Promise<Record<string, string>> {
  return Object.fromEntries(pairs(await run(redis, 'edit/config', keys, [...change])));
}
