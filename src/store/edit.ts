import { createHash } from 'node:crypto';
import type { Spread } from '../model/due-times.js';
import { type Id, idKey } from '../model/id.js';
import type { State, StoredJob } from '../model/job.js';
import type { Arg, Connection, Reply } from '../redis/connection.js';
import { type Asked, ask, errorText, lettersOf, STATES } from './answers.js';
import { byId } from './by-id.js';
import { msOf } from './every.js';
import { sendable } from './jobs.js';
import type { QueueKeys } from './keys.js';
import { untilStill } from './movement.js';
import { ranked, spreadOver } from './order.js';
import { addQueue, removeQueue } from './queues.js';
import { number, pairs, text } from './replies.js';
import { run, SLICE } from './script.js';
import { changeEverywhere, copyEverywhere } from './settings.js';
import type { Store } from './store.js';
import { type Raw, raw, stored } from './stored.js';

/**
 * The result of a cancel: the state the job was in, or `missing` if it was in none of the given states. `freed`: there
 * was no job, but the id was still remembered by one that has ended, and is free again.
 */
export type Cancelled = State | 'missing' | 'freed';

export const CANCEL: Asked<Cancelled> = { script: 'edit/cancel', letters: { ...STATES, m: 'missing', f: 'freed' } };

/** Removes jobs that are in one of `states`. `keepId`: reserve their ids, as if the jobs were done. */
export async function cancel(
  store: Store,
  ids: readonly Id[],
  states: readonly State[],
  keepId = false,
): Promise<Cancelled[]> {
  const from = (some: readonly State[]) => asking(store, CANCEL, [`${lettersOf(some)}${keepId ? 'k' : ''}`]);
  const others = states.includes('active') ? { onActive: from(['active']) } : { ifActive: 'missing' as const };
  return byId<Id, Cancelled>(store, ids, { act: from(states), most: SLICE, ...others });
}

/** What {@link byId} calls: asks a script about ids. */
function asking<A>({ redis }: Store, asked: Asked<A>, args: readonly Arg[]) {
  return async (keys: QueueKeys, ids: readonly Id[]) => (await ask(redis, keys, asked, [...args, ...ids])).answers;
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

export const REQUEUE: Asked<Requeued> = {
  script: 'edit/requeue',
  letters: { r: 'requeued', m: 'missing', o: 'orphaned', i: 'bad-id' },
};

/** Puts dead jobs back into pending and resets their counts. Continues `spread` behind them. */
export async function requeue(
  store: Store,
  ids: readonly Id[],
  spread: Spread,
  { ttl, deliveries }: NewLimits = {},
): Promise<Requeued[]> {
  const how = { asked: REQUEUE, args: [ttl ?? '', deliveries ?? '', ''], set: 'dead', byTime: false } as const;
  return inSlices(ids, (some) => spreadOver<Requeued>(store, some, spread, { ...how, ifActive: 'missing' }));
}

/**
 * The result of an edit: the job has its new payload (`edited`), and if it was dead, is pending again (`requeued`); or
 * nothing was changed: there was no new payload (`unchanged`), the job is `active` or `missing`, has `changed` since it
 * was read, or has an id that no handler can receive (`bad-id`).
 */
export type Edited = 'edited' | 'requeued' | 'unchanged' | 'active' | 'missing' | 'changed' | 'bad-id';

export const EDIT: Asked<Edited> = {
  script: 'edit/requeue',
  letters: { p: 'edited', r: 'requeued', x: 'changed', i: 'bad-id' },
};

/** A job, and by which {@link edit} knows whether it has changed since. */
export interface AsRead {
  readonly job: StoredJob;
  readonly mark: string;
}

/** Reads a job to edit; undefined: it does not exist. */
export async function readToEdit(store: Store, id: Id): Promise<AsRead | undefined> {
  const [found] = await byId<Id, AsRead | null>(store, [id], {
    reads: { isMoving: (read) => read?.job.moving?.to.includes('/') === true },
    act: async (keys) => {
      const [row] = await raw(store.redis, keys, [id]);
      return [row && text(row.state) !== '' ? { job: stored(id, row), mark: markOf(row) } : null];
    },
    isMissing: (read) => read === null,
  });
  return found ?? undefined;
}

/** As lua/edit/requeue.lua works it out. */
export function markOf({ state, score, record, payload }: Raw): string {
  const hash = createHash('sha1').update(`${text(state)}${text(score)} `);
  for (const part of [record, ' ', payload]) hash.update((part as Buffer | string | null) ?? '');
  return hash.digest('hex');
}

/** Gives a job another payload if it is as it was read, and requeues it if it is dead. */
export async function edit(store: Store, id: Id, mark: string, payload: string | Buffer): Promise<Edited> {
  const [answer] = await byId<Id, Edited>(store, [id], {
    act: asking(store, EDIT, ['+0', 0, '', '', mark, sendable(payload)]),
    isMissing: (edited) => edited === 'changed',
    ifActive: 'changed',
  });
  return answer as Edited;
}

/** The result of a reschedule: the job has its new due time, or it is not pending. */
export type Rescheduled = 'rescheduled' | 'active' | 'dead' | 'missing';

export const RESCHEDULE: Asked<Rescheduled> = {
  script: 'edit/reschedule',
  letters: { p: 'rescheduled', a: 'active', d: 'dead', m: 'missing' },
};

/** Gives pending jobs new due times, in the order of their old ones. Continues `spread` behind them. */
export async function reschedule(store: Store, ids: readonly Id[], spread: Spread): Promise<Rescheduled[]> {
  const how = { asked: RESCHEDULE, args: [], set: 'pending', byTime: true, ifActive: 'active' } as const;
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

/** The result of a bury: the job is dead now, or was not pending. */
export type Buried = 'buried' | 'active' | 'dead' | 'missing';

export const BURY: Asked<Buried> = {
  script: 'edit/bury',
  letters: { b: 'buried', a: 'active', d: 'dead', m: 'missing' },
};

/** Moves pending jobs to dead, with `error` as their last error unless it is empty. */
export async function bury(store: Store, ids: readonly Id[], error: string): Promise<Buried[]> {
  const act = asking(store, BURY, [errorText(error)]);
  return byId<Id, Buried>(store, ids, { act, most: SLICE, ifActive: 'active' });
}

/** How many jobs of each state were removed, and whether there are more to remove. */
export interface Purged {
  readonly pending: number;
  readonly active: number;
  readonly dead: number;
  readonly more: boolean;
}

/**
 * Removes all jobs of `states`, and yields how many each call removed; with all states and no active job left, the rest
 * at once. `due`: only due jobs; `states` must be `pending` alone.
 */
export async function* purge(store: Store, states: readonly State[], due: boolean): AsyncGenerator<Purged> {
  const args = [lettersOf(states), SLICE, ...(due ? ['due'] : [])];
  const each = async function* () {
    for (let i = 0; i < store.count; i++) {
      for (let isMore = true; isMore; ) {
        const reply = await store.at(i, (keys) => run(store.redis, 'edit/purge', keys, args));
        const [pending = 0, active = 0, dead = 0, more] = reply.map(number);
        isMore = more === 1;
        yield { pending, active, dead, more: isMore || i + 1 < store.count };
      }
    }
  };
  if (store.count === 1) yield* each();
  // The calls have revealed any growth: partitions refuse an old layout.
  if (store.count > 1) yield* untilStill(store, each);
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
  const how = forMs === undefined ? '' : forMs === Number.POSITIVE_INFINITY ? 'inf' : `+${forMs}`;
  const [, was, until] = await changeEverywhere(store, (keys) => run(store.redis, 'edit/pause', keys, [how]));
  const parse = (word: Reply | undefined) => (text(word) === '' ? undefined : msOf(text(word)));
  return { was: parse(was), until: parse(until) };
}

/** Changes settings of a queue, given as names and texts in turn (empty: remove), and returns its whole config. */
export async function configure(store: Store, change: readonly string[]): Promise<Record<string, string>> {
  const set = (keys: QueueKeys) => run(store.redis, 'edit/config', keys, change);
  return Object.fromEntries(pairs(await (change.length > 0 ? changeEverywhere(store, set) : store.at(0, set))));
}

/** Copies the settings of partition 0 to all others, and writes which features each partition uses. */
export async function rewriteSettings(store: Store): Promise<void> {
  await configure(store, ['', '']);
}
