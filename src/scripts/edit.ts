import type { Spread } from '../model/due-times.js';
import type { Id } from '../model/id.js';
import { MAX_ERROR, type StoredJob } from '../model/job.js';
import type { Arg, Connection } from '../redis/connection.js';
import type { QueueKeys, Wake } from '../redis/keys.js';
import { number, pairs, text } from '../redis/replies.js';
import { run } from '../redis/script.js';
import { type Answered, answered, lettersOf } from './answers.js';

/** The result of a cancel: the state the job was in, or `missing` if it was in none of the given states. */
export type Cancelled = StoredJob['state'] | 'missing';

const CANCELLED: Record<string, Cancelled> = { p: 'pending', a: 'active', d: 'dead', m: 'missing' };

/** Removes jobs that are in one of `states`. At most {@link MAX_CALL}. */
export async function cancel(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly Id[],
  states: readonly StoredJob['state'][],
): Promise<Answered<Cancelled>> {
  return answered(await run(redis, 'edit/cancel', keys, [lettersOf(states), ...ids]), CANCELLED);
}

/**
 * The result of a requeue: the job is pending again, or was not dead, or stays dead because it has no payload
 * (`orphaned`) or an id that no handler can receive (`bad-id`).
 */
export type Requeued = 'requeued' | 'missing' | 'orphaned' | 'bad-id';

const REQUEUED: Record<string, Requeued> = { r: 'requeued', m: 'missing', o: 'orphaned', i: 'bad-id' };

/** Puts dead jobs back into pending and resets their counts. At most {@link MAX_CALL}. */
export function requeue(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly Id[],
  { spread, wake }: { spread: Spread; wake: Wake },
): Promise<Answered<Requeued>> {
  return runSpread(redis, 'edit/requeue', keys, ids, spread, wake, REQUEUED);
}

/** The result of a reschedule: the job has its new due time, or it is not pending. */
export type Rescheduled = 'rescheduled' | 'active' | 'dead' | 'missing';

const RESCHEDULED: Record<string, Rescheduled> = { p: 'rescheduled', a: 'active', d: 'dead', m: 'missing' };

/** Gives pending jobs new due times and keeps their order. At most {@link MAX_CALL}. */
export function reschedule(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly Id[],
  { spread, wake }: { spread: Spread; wake: Wake },
): Promise<Answered<Rescheduled>> {
  return runSpread(redis, 'edit/reschedule', keys, ids, spread, wake, RESCHEDULED);
}

/** Runs a script that gives jobs due times one after another, and continues `spread` behind them. */
async function runSpread<A>(
  redis: Connection,
  name: 'edit/requeue' | 'edit/reschedule',
  keys: QueueKeys,
  ids: readonly Id[],
  spread: Spread,
  wake: Wake,
  meaning: Record<string, A>,
): Promise<Answered<A>> {
  const args: Arg[] = [spread.next, spread.stepMs, wake.channel, wake.pollMs, ...ids];
  const reply = await run(redis, name, keys, args);
  spread.goOn(text(reply[2]));
  return answered(reply, meaning);
}

/** The result of a bury: the job is dead now, or was not pending. */
export type Buried = 'buried' | 'active' | 'dead' | 'missing';

const BURIED: Record<string, Buried> = { b: 'buried', a: 'active', d: 'dead', m: 'missing' };

/** Moves pending jobs to dead, with `error` as their last error unless it is empty. At most {@link MAX_CALL}. */
export async function bury(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly Id[],
  error: string,
): Promise<Answered<Buried>> {
  return answered(await run(redis, 'edit/bury', keys, [error.slice(0, MAX_ERROR).toWellFormed(), ...ids]), BURIED);
}

/** How many jobs of each state were removed, and whether there are more to remove. */
export interface Purged {
  readonly pending: number;
  readonly active: number;
  readonly dead: number;
  readonly more: boolean;
}

/** Removes up to `limit` jobs of `states`. With all states and no active job left, removes everything. */
export async function purge(
  redis: Connection,
  keys: QueueKeys,
  states: readonly StoredJob['state'][],
  limit: number,
): Promise<Purged> {
  const reply = await run(redis, 'edit/purge', keys, [lettersOf(states), limit]);
  const [pending = 0, active = 0, dead = 0, more] = reply.map(number);
  return { pending, active, dead, more: more === 1 };
}

/** Removes counters and settings of a queue. Returns false, and removes nothing, if the queue has jobs. */
export async function forget(redis: Connection, keys: QueueKeys): Promise<boolean> {
  return number((await run(redis, 'edit/forget', keys, []))[0]) === 1;
}

/**
 * Until when a queue was paused before the call, and is now: ms by Redis's clock, or Infinity. Undefined: not paused.
 */
export interface Paused {
  readonly was: number | undefined;
  readonly until: number | undefined;
}

/** Stops delivery for `forMs` (Infinity: without an end), or, if it is undefined, starts it again. */
export async function pause(
  redis: Connection,
  keys: QueueKeys,
  forMs: number | undefined,
  wake: Wake,
): Promise<Paused> {
  const how = forMs === undefined ? '' : forMs === Number.POSITIVE_INFINITY ? 'inf' : `+${forMs}`;
  const [, was, until] = (await run(redis, 'edit/pause', keys, [how, wake.channel])).map(text);
  const parse = (word = '') => (word === '' ? undefined : word === 'inf' ? Number.POSITIVE_INFINITY : Number(word));
  return { was: parse(was), until: parse(until) };
}

/** Changes settings of a queue, given as names and texts in turn (empty: remove), and returns its whole config. */
export async function config(
  redis: Connection,
  keys: QueueKeys,
  change: readonly string[],
): Promise<Record<string, string>> {
  return Object.fromEntries(pairs(await run(redis, 'edit/config', keys, [...change])));
}
