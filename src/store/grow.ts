import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError } from '../model/errors.js';
import { LIMITS, type Settings, settingWord } from '../model/settings.js';
import { within } from '../model/time.js';
import { checkCount } from '../model/validate.js';
import { wordOf } from '../net/errors.js';
import type { Reply } from '../redis/connection.js';
import { withRetries } from '../redis/retry.js';
import { atOnce } from './at-once.js';
import { takeBack } from './jobs.js';
import { ONE_PARTITION } from './keys.js';
import { PartitionMap } from './map.js';
import { forgetMarks } from './relocate.js';
import { jobsAt } from './sizes.js';
import type { Store } from './store.js';
import { Sweep } from './sweep-partition.js';
import { tagFor } from './tags.js';

/** The most partitions: a watcher asks each every few seconds. */
export const MAX_PARTITIONS = 1_024;

/** How often to check whether active jobs have been answered, ms. */
const LOOK_MS = 500;

/** How long to wait out trouble while nothing moves, ms: longer than a failover takes. */
const PATIENCE_MS = 10_000;

/** Progress interval, ms. */
const TICK_MS = 100;

/** How often the queue notes that its growth goes on, ms. */
const NOTE_MS = 5_000;

/** Partitions at once. */
const AT_ONCE = 4;

/** Options of {@link grow}. */
interface GrowOptions {
  /** See {@link PATIENCE_MS}, the default. */
  readonly patienceMs?: number;
  /** See {@link LOOK_MS}, the default. */
  readonly lookMs?: number;
}

/** How far a growth is. */
export interface Growth {
  readonly from: number;
  readonly to: number;
  /** Jobs that this run has moved. */
  readonly moved: number;
  /** Jobs that can be moved only when they are answered for, as far as is known. */
  readonly active: number;
  /** The queues to which unfinished moves hold some of these: they must be finished. */
  readonly moves: readonly string[];
  readonly done: boolean;
}

/** How many partitions a queue has. */
export interface Partitioning {
  readonly partitions: number;
  /** While a growth is open: from how many, and which part of the jobs that belong to the new partitions is there. */
  readonly growth: { readonly from: number; readonly moved: number } | undefined;
}

/** Returns how many partitions a queue has, and how far its growth is if one is open. Throws what Connection.call throws. */
export async function partitioningOf(store: Store): Promise<Partitioning> {
  const map = await store.look();
  const { count: partitions, from } = map;
  if (from === undefined) return { partitions, growth: undefined };
  const jobs = await Promise.all(upTo(partitions).map((i) => jobsAt(store, i, map)));
  const sum = (all: readonly number[]) => all.reduce((total, n) => total + n, 0);
  const expected = sum(jobs) * sum(jobs.map((_, i) => (i < from ? 0 : map.shareOf(i))));
  // It is not done before it is closed.
  const moved = expected === 0 ? 0 : Math.min(0.99, sum(jobs.slice(from)) / expected);
  return { partitions, growth: { from, moved: Math.floor(100 * moved) / 100 } };
}

/** Returns `count` if a queue may have so many partitions. Throws `usage` otherwise. */
export function checkPartitions(count: number, given = String(count)): number {
  checkCount(count, 'partitions', given);
  if (count <= MAX_PARTITIONS) return count;
  const why = `a queue can have up to ${MAX_PARTITIONS}`;
  throw new DelayqError('usage', `a queue cannot have ${count} partitions`, { why, next: 'choose fewer' });
}

/** Throws `usage` if a queue with `has` partitions cannot have `count`. */
export function checkGrows(queue: string, has: number, count: number): void {
  if (count >= has) return;
  throw new DelayqError('usage', `${queue} has ${has} partitions, and cannot have fewer`, {
    why: 'a queue can only grow',
    next: 'move its jobs to a new queue instead',
  });
}

/**
 * Grows a queue to `count` partitions while it works, and yields how far it is; see docs/internals/partitions.md. First
 * finishes a growth that was cut off. If this is interrupted at any moment, a repeat goes on. It does not end while
 * consumers hold jobs that must be moved. Throws `usage` for an invalid number, `temporary` if replicas do not follow, and
 * what Connection.call throws.
 */
export async function* grow(store: Store, count: number, options: GrowOptions = {}): AsyncGenerator<Growth> {
  checkPartitions(count);
  let map = await store.look();
  checkGrows(store.queue, map.count, count);
  for (let moved = 0; ; ) {
    if (map.from !== undefined) moved = yield* finishGrowth(store, map, moved, options);
    else if (map.count < count) await openGrowth(store, map, count);
    else return;
    map = store.map;
  }
}

/**
 * Throws `config`, with the advice `next`, if the queue has limits, or is to have some: they count the jobs of one
 * partition.
 */
export function checkNoLimits(queue: string, set: Partial<Record<keyof Settings, unknown>>, next?: string): void {
  const names = LIMITS.filter((name) => set[name] != null);
  if (names.length === 0) return;
  throw new DelayqError('config', `${queue} has limits, and cannot have partitions`, {
    why: `${names.map(settingWord).join(', ')}: a limit counts the jobs of one partition`,
    next: next ?? `remove them: configure the queue with ${names.map((name) => `${name}: null`).join(', ')}`,
  });
}

/** Steps 1 and 2: makes the new partitions, and then the growth public. May return before that: call it again. */
async function openGrowth(store: Store, old: PartitionMap, count: number): Promise<void> {
  if (old.count === 1) {
    const set = (await store.redis.call('HMGET', store.keys(0, old).config, ...LIMITS)) as Reply[];
    checkNoLimits(store.queue, Object.fromEntries(LIMITS.map((name, i) => [name, set[i]])));
  }
  const tags = [...old.tags];
  for (let i = old.count; i < count; i++) tags.push(tagFor(store.queue, i));
  const first = old.count;
  const wanted = new PartitionMap(count, old.count, tags);
  await store.advance(first, ONE_PARTITION, wanted);
  // The first new partition decides to how many: another growth may have begun there, and perhaps died.
  const { map } = await store.read(first, wanted);
  if (!map?.isNewerThan(old)) return;
  if (map.from === old.count) {
    try {
      const added = upTo(map.count).slice(first);
      await each(added.slice(1), (i) => store.advance(i, ONE_PARTITION, map));
      // All can be reached: with a growth open, calls by id need two partitions.
      await each(upTo(first), (i) => store.read(i, map));
      const versions = new Set<string>();
      await each(added, async (i) => versions.add(await store.copySettings(i, map)));
      const [version] = versions;
      if (versions.size === 1) await store.advance(0, old.layoutOf(0), map, { version });
    } catch (error) {
      // Another process has made it public, and has finished it.
      if (wordOf(error) !== 'LAYOUT') throw error;
    }
  } else {
    // Partition 0 has lost what it was: the others know.
    await store.bringUp(0, map);
  }
  await store.look();
}

/** Steps 3 to 5: moves what belongs elsewhere now, and closes the growth. Returns how many jobs were `moved` so far. */
async function* finishGrowth(
  store: Store,
  map: PartitionMap,
  moved: number,
  { patienceMs = PATIENCE_MS, lookMs = LOOK_MS }: GrowOptions,
): AsyncGenerator<Growth, number> {
  const from = map.from as number;
  const sweeps = upTo(from).map((i) => new Sweep(store, map, i));
  const state = (done = false): Growth => {
    const sum = (of: (sweep: Sweep) => number) => sweeps.reduce((total, sweep) => total + of(sweep), 0);
    const moves = [...new Set(sweeps.flatMap((sweep) => [...sweep.moves]))];
    const [all, active] = [moved + sum((one) => one.moved), sum((one) => one.active)];
    return { from, to: map.count, moved: all, active, moves, done };
  };
  const stop = new AbortController();
  // Trouble is the work's to tell.
  const note = () => noteAlive(store).catch(() => {});
  await note();
  const noting = setInterval(note, NOTE_MS);
  let [before, end] = [-1, 0];
  const until = () => {
    if (state().moved !== before) end = performance.now() + patienceMs;
    before = state().moved;
    return end;
  };
  try {
    // A failover is over in some seconds.
    const work = withRetries(() => closeUp(store, map, sweeps, { lookMs, signal: stop.signal }), { until });
    const ended = Promise.allSettled([work]).finally(() => clearInterval(noting));
    try {
      while (!(await within(TICK_MS, ended))) yield state();
      await work;
    } finally {
      // The caller may have enough. What was begun is ended.
      stop.abort();
      await ended;
    }
    // Else doctor does, when they are a day old.
    await each(upTo(map.count), (i) => forgetMarks(store.redis, store.keys(i), map.count)).catch(() => {});
    yield state(true);
  } catch (error) {
    // Another process has finished it.
    if (wordOf(error) !== 'LAYOUT' || (await store.look()).from !== undefined) throw error;
  }
  return state().moved;
}

/** Writes the time down: others see by it that this growth is being carried on. The end of the growth removes it. */
async function noteAlive(store: Store): Promise<void> {
  const { config } = store.keys();
  await store.redis.call('HSET', config, 'growing', await store.redis.now(config));
}

/** Sweeps until each partition is clean, then closes the growth. */
async function closeUp(
  store: Store,
  map: PartitionMap,
  sweeps: readonly Sweep[],
  { lookMs, signal }: { readonly lookMs: number; readonly signal: AbortSignal },
): Promise<void> {
  await each(upTo(map.count), (i) => store.bringUp(i, map));
  /** Those that were clean, and whose replicas have all that led to it: a failover after that cannot undo it. */
  const sure = new Set<Sweep>();
  for (let left = sweeps; left.length > 0; left = left.filter((sweep) => !sure.has(sweep))) {
    await each(left, async (sweep) => {
      await sweep.run(signal);
      if (!sweep.isClean || signal.aborted) return;
      // A failover may have come before this write: so look once more after it.
      await store.advance(sweep.at, map.layoutOf(sweep.at), map, { must: true });
      await sweep.run(signal);
      if (sweep.isClean) sure.add(sweep);
    });
    if (signal.aborted) return;
    // Active jobs can be moved when they are answered for, or their leases have expired: perhaps no drain looks.
    while (left.some(({ isClean }) => !isClean) && left.every(({ isClean, active }) => isClean || active > 0)) {
      await sleep(lookMs, undefined, { signal }).catch(() => {});
      if (signal.aborted) return;
      await takeBack(store);
      await each(left, (sweep) => sweep.lookAtActive());
    }
  }
  const closed = new PartitionMap(map.count, undefined, map.tags);
  // Partition 0 says whether the growth is done: a caller who meets another one first advances it.
  await store.advance(0, map.layoutOf(0), closed);
  await each(upTo(map.count).slice(1), (i) => store.advance(i, map.layoutOf(i), closed));
  await store.look();
}

const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);

const each = <T>(items: readonly T[], act: (item: T) => Promise<unknown>) => atOnce(AT_ONCE, items, act);
