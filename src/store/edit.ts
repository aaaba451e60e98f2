import type { Spread } from '../model/due-times.js';
import type { Id } from '../model/id.js';
import type { State } from '../model/job.js';
import type { Arg, Connection } from '../redis/connection.js';
import { answered, errorText, lettersOf, STATES } from './answers.js';
import type { QueueKeys } from './keys.js';
import { number, pairs, text } from './replies.js';
import { run } from './script.js';

/**
 * The result of a cancel: the state the job was in, or `missing` if it was in none of the given states. `freed`: it was no
 * job, but its id was remembered since one has ended, and is free again.
 */
export type Cancelled = State | 'missing' | 'freed';

/** Removes jobs that are in one of `states`. `keepId`: their windows begin, as if they were done. At most {@link MAX_CALL}. */
export async function cancel(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly Id[],
  states: readonly State[],
  keepId = false,
) {
  const reply = await run(redis, 'edit/cancel', keys, [`${lettersOf(states)}${keepId ? 'k' : ''}`, ...ids]);
  return answered<Cancelled>(reply, { ...STATES, m: 'missing', f: 'freed' });
}

/**
 * The result of a requeue: the job is pending again, or was not dead, or stays dead because it has no payload
 * (`orphaned`) or an id that no handler can receive (`bad-id`).
 */
export type Requeued = 'requeued' | 'missing' | 'orphaned' | 'bad-id';

/** New limits of jobs that are requeued; ttl in ms. Undefined: as they were; a ttl of 0: none of their own. */
interface NewLimits {
  readonly ttl?: number | undefined;
  readonly deliveries?: number | undefined;
}

const spreadDead = spreader<Requeued>('edit/requeue', { r: 'requeued', m: 'missing', o: 'orphaned', i: 'bad-id' });

/** Puts dead jobs back into pending and resets their counts. At most {@link MAX_CALL}. */
export const requeue = (
  redis: Connection,
  keys: QueueKeys,
  ids: readonly Id[],
  spread: Spread,
  { ttl, deliveries }: NewLimits = {},
) => spreadDead(redis, keys, ids, spread, [ttl ?? '', deliveries ?? '']);

/** The result of a reschedule: the job has its new due time, or it is not pending. */
export type Rescheduled = 'rescheduled' | 'active' | 'dead' | 'missing';

/** Gives pending jobs new due times and keeps their order. At most {@link MAX_CALL}. */
export const reschedule = spreader<Rescheduled>('edit/reschedule', {
  p: 'rescheduled',
  a: 'active',
  d: 'dead',
  m: 'missing',
});

/** The function for a script that gives jobs due times one after another. It continues `spread` behind them. */
function spreader<A>(name: 'edit/requeue' | 'edit/reschedule', meaning: Record<string, A>) {
  return async (redis: Connection, keys: QueueKeys, ids: readonly Id[], spread: Spread, more: readonly Arg[] = []) => {
    const reply = await run(redis, name, keys, [spread.next, spread.stepMs, ...more, ...ids]);
    spread.advance(text(reply[2]));
    return answered(reply, meaning);
  };
}

/** The result of a bury: the job is dead now, or was not pending. */
export type Buried = 'buried' | 'active' | 'dead' | 'missing';

/** Moves pending jobs to dead, with `error` as their last error unless it is empty. At most {@link MAX_CALL}. */
export async function bury(redis: Connection, keys: QueueKeys, ids: readonly Id[], error: string) {
  const reply = await run(redis, 'edit/bury', keys, [errorText(error), ...ids]);
  return answered<Buried>(reply, { b: 'buried', a: 'active', d: 'dead', m: 'missing' });
}

/** How many jobs of each state were removed, and whether there are more to remove. */
export interface Purged {
  readonly pending: number;
  readonly active: number;
  readonly dead: number;
  readonly more: boolean;
}

/**
 * Removes up to `limit` jobs of `states`. With all states and no active job left, removes everything. `due`, only with
 * pending jobs alone: those whose time has come.
 */
export async function purge(redis: Connection, keys: QueueKeys, states: readonly State[], limit: number, due = false) {
  const reply = await run(redis, 'edit/purge', keys, [lettersOf(states), limit, ...(due ? ['due'] : [])]);
  const [pending = 0, active = 0, dead = 0, more] = reply.map(number);
  return { pending, active, dead, more: more === 1 } satisfies Purged;
}

/** Removes counters and settings of a queue. Returns false, and removes nothing, if the queue has jobs. */
export async function forget(redis: Connection, keys: QueueKeys): Promise<boolean> {
  return number((await run(redis, 'edit/forget', keys, []))[0]) === 1;
}

/** Until when a queue was paused before a call, and is now: ms by Redis's clock, or Infinity. Undefined: not paused. */
export interface Paused {
  readonly was: number | undefined;
  readonly until: number | undefined;
}

/** Stops delivery for `forMs` (Infinity: without an end), or, if it is undefined, starts it again. */
export async function pause(redis: Connection, keys: QueueKeys, forMs: number | undefined) {
  const how = forMs === undefined ? '' : forMs === Number.POSITIVE_INFINITY ? 'inf' : `+${forMs}`;
  const [, was, until] = (await run(redis, 'edit/pause', keys, [how])).map(text);
  const parse = (word = '') => (word === '' ? undefined : word === 'inf' ? Number.POSITIVE_INFINITY : Number(word));
  return { was: parse(was), until: parse(until) } satisfies Paused;
}

/** Changes settings of a queue, given as names and texts in turn (empty: remove), and returns its whole config. */
export async function config(redis: Connection, keys: QueueKeys, change: readonly string[]) {
  return Object.fromEntries(pairs(await run(redis, 'edit/config', keys, [...change])));
}

/** Gives a partition settings, as names and texts in turn, unless it has newer ones than of this version. */
export async function takeSettings(redis: Connection, keys: QueueKeys, version: string, settings: readonly string[]) {
  await run(redis, 'edit/settings', keys, [version, ...settings]);
}
