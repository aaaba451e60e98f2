import type { Spread } from '../model/due-times.js';
import { type Id, idKey } from '../model/id.js';
import type { State } from '../model/job.js';
import type { Arg, Connection } from '../redis/connection.js';
import { answered, errorText, lettersOf, STATES, unlessMissing } from './answers.js';
import { byId } from './by-id.js';
import type { QueueKeys } from './keys.js';
import { untilStill } from './movement.js';
import { ranked, spreadOver } from './order.js';
import { addQueue, removeQueue } from './queues.js';
import { number, pairs, text } from './replies.js';
import { run, SLICE } from './script.js';
import { changeEverywhere, copyEverywhere } from './settings.js';
import type { Store } from './store.js';

// Each change has two functions: one runs its script in one partition (`…In`), the other acts on a whole queue.

/**
 * The result of a cancel: the state the job was in, or `missing` if it was in none of the given states. `freed`: there
 * was no job, but the id was still remembered by one that has ended, and is free again.
 */
export type Cancelled = State | 'missing' | 'freed';

/** Removes jobs that are in one of `states`. `keepId`: reserve their ids, as if the jobs were done. */
export async function cancel(
  store: Store,
  ids: readonly Id[],
  states: readonly State[],
  keepId?: boolean,
): Promise<Cancelled[]> {
  const act = async (keys: QueueKeys, some: readonly Id[], from: readonly State[]) =>
    (await cancelIn(store.redis, keys, some.slice(0, SLICE), from, keepId)).answers;
  return byId<Id, Cancelled>(store, ids, {
    idOf: (id) => id,
    act: (keys, some) => act(keys, some, states),
    isMissing: (answer) => answer === 'missing',
    ...(states.includes('active')
      ? { onActive: async (keys, some) => (await act(keys, some, ['active'])).map(unlessMissing) }
      : { ifActive: () => 'missing' }),
  });
}

/** As {@link cancel}, in one partition. At most {@link MAX_CALL}. */
export async function cancelIn(
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

/** New limits of requeued jobs; ttl in ms. Undefined: unchanged; a ttl of 0: none of their own. */
interface NewLimits {
  readonly ttl?: number | undefined;
  readonly deliveries?: number | undefined;
}

const spreadDead = spreader<Requeued>('edit/requeue', { r: 'requeued', m: 'missing', o: 'orphaned', i: 'bad-id' });

/** Puts dead jobs back into pending and resets their counts. Continues `spread` behind them. */
export async function requeue(store: Store, ids: readonly Id[], spread: Spread, limits: NewLimits = {}) {
  const act: typeof requeueIn = (redis, keys, some, spread) => requeueIn(redis, keys, some, spread, limits);
  const how = { set: 'dead', byTime: false, act, ifActive: 'missing' } as const;
  return inSlices(ids, (some) => spreadOver<Requeued>(store, some, spread, how));
}

/** As {@link requeue}, in one partition. At most {@link MAX_CALL}. */
export const requeueIn = (
  redis: Connection,
  keys: QueueKeys,
  ids: readonly Id[],
  spread: Spread,
  { ttl, deliveries }: NewLimits = {},
) => spreadDead(redis, keys, ids, spread, [ttl ?? '', deliveries ?? '']);

/** The result of a reschedule: the job has its new due time, or it is not pending. */
export type Rescheduled = 'rescheduled' | 'active' | 'dead' | 'missing';

/** Gives pending jobs new due times, in the order of their old ones. Continues `spread` behind them. */
export async function reschedule(store: Store, ids: readonly Id[], spread: Spread): Promise<Rescheduled[]> {
  const how = { set: 'pending', byTime: true, act: rescheduleIn, ifActive: 'active' } as const;
  // Within one call, the script sorts.
  const sorted = ids.length > SLICE ? (await ranked(store, 'pending', ids)).map(({ id }) => id) : ids;
  const answers = await inSlices(sorted, (some) => spreadOver<Rescheduled>(store, some, spread, how));
  const answerOf = new Map(sorted.map((id, i) => [idKey(id), answers[i]] as const));
  return ids.map((id) => answerOf.get(idKey(id)) as Rescheduled);
}

async function inSlices<A>(ids: readonly Id[], act: (some: readonly Id[]) => Promise<A[]>): Promise<A[]> {
  const answers: A[] = [];
  for (let i = 0; i < ids.length; i += SLICE) answers.push(...(await act(ids.slice(i, i + SLICE))));
  return answers;
}

/** As {@link reschedule}, in one partition. At most {@link MAX_CALL}. */
export const rescheduleIn = spreader<Rescheduled>('edit/reschedule', {
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

/** Moves pending jobs to dead, with `error` as their last error unless it is empty. */
export async function bury(store: Store, ids: readonly Id[], error: string): Promise<Buried[]> {
  return byId<Id, Buried>(store, ids, {
    idOf: (id) => id,
    act: async (keys, some) => (await buryIn(store.redis, keys, some.slice(0, SLICE), error)).answers,
    isMissing: (answer) => answer === 'missing',
    ifActive: () => 'active',
  });
}

/** As {@link bury}, in one partition. At most {@link MAX_CALL}. */
export async function buryIn(redis: Connection, keys: QueueKeys, ids: readonly Id[], error: string) {
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
 * Removes all jobs of `states`, and yields how many each call removed. `due`: only due jobs; `states` must be `pending`
 * alone.
 */
export async function* purge(store: Store, states: readonly State[], due: boolean): AsyncGenerator<Purged> {
  const each = async function* () {
    for (let i = 0; i < store.count; i++) {
      for (let more = true; more; ) {
        const purged = await store.at(i, (keys) => purgeIn(store.redis, keys, states, SLICE, due));
        more = purged.more;
        yield { ...purged, more: more || i + 1 < store.count };
      }
    }
  };
  if (store.count === 1) yield* each();
  // The calls have revealed any growth: partitions refuse an old layout.
  if (store.count > 1) yield* untilStill(store, each);
}

/** Removes up to `limit` jobs, in one partition. With all states and no active job left, removes everything. */
export async function purgeIn(
  redis: Connection,
  keys: QueueKeys,
  states: readonly State[],
  limit: number,
  due = false,
) {
  const reply = await run(redis, 'edit/purge', keys, [lettersOf(states), limit, ...(due ? ['due'] : [])]);
  const [pending = 0, active = 0, dead = 0, more] = reply.map(number);
  return { pending, active, dead, more: more === 1 } satisfies Purged;
}

/** Removes counters, settings and the name of a queue. Returns false, and removes nothing, if it has jobs. */
export async function forget(store: Store): Promise<boolean> {
  const { redis, prefix, queue } = store;
  await store.look();
  if (store.count > 1) {
    const found = await store.each(({ pending, active, dead }) => redis.call('EXISTS', pending, active, dead));
    if (found.some((keys) => Number(keys) > 0)) return false;
    const others = await store.each(async (keys, i) => i === 0 || (await forgetIn(redis, keys)));
    if (!others.every(Boolean)) {
      // There are new jobs. Partition 0 still has the settings.
      await copyEverywhere(store);
      return false;
    }
  }
  if (!(await store.at(0, (keys) => forgetIn(redis, keys)))) return false;
  await removeQueue(redis, prefix, queue);
  // A producer may have created it again, and listed it, before that. The layout of partitions remains.
  const { stats, config } = store.keys();
  const again = await redis.call('EXISTS', stats, ...(store.count === 1 ? [config] : []));
  if (Number(again) > 0) await addQueue(redis, prefix, queue);
  return true;
}

async function forgetIn(redis: Connection, keys: QueueKeys): Promise<boolean> {
  return number((await run(redis, 'edit/forget', keys, []))[0]) === 1;
}

/** Until when a queue was paused before a call, and is now: ms by Redis's clock, or Infinity. Undefined: not paused. */
export interface Paused {
  readonly was: number | undefined;
  readonly until: number | undefined;
}

/** Stops delivery for `forMs` (Infinity: without an end), or, if it is undefined, starts it again. */
export async function pause(store: Store, forMs: number | undefined): Promise<Paused> {
  return changeEverywhere(store, (keys) => pauseIn(store.redis, keys, forMs));
}

/** As {@link pause}, in one partition. */
export async function pauseIn(redis: Connection, keys: QueueKeys, forMs: number | undefined) {
  const how = forMs === undefined ? '' : forMs === Number.POSITIVE_INFINITY ? 'inf' : `+${forMs}`;
  const [, was, until] = (await run(redis, 'edit/pause', keys, [how])).map(text);
  const parse = (word = '') => (word === '' ? undefined : word === 'inf' ? Number.POSITIVE_INFINITY : Number(word));
  return { was: parse(was), until: parse(until) } satisfies Paused;
}

/** Changes settings of a queue, given as names and texts in turn (empty: remove), and returns its whole config. */
export async function configure(store: Store, change: readonly string[]): Promise<Record<string, string>> {
  const set = (keys: QueueKeys) => configIn(store.redis, keys, change);
  return change.length > 0 ? changeEverywhere(store, set) : store.at(0, set);
}

/** Copies the settings of partition 0 to all others, and writes which features each partition uses. */
export async function rewriteSettings(store: Store): Promise<void> {
  await configure(store, ['', '']);
}

/** As {@link configure}, in one partition. */
export async function configIn(redis: Connection, keys: QueueKeys, change: readonly string[]) {
  return Object.fromEntries(pairs(await run(redis, 'edit/config', keys, [...change])));
}
