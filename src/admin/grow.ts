import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError } from '../model/errors.js';
import { checkCount } from '../model/validate.js';
import { wordOf } from '../net/errors.js';
import { PartitionMap } from '../partitions/map.js';
import type { Partitions } from '../partitions/partitions.js';
import { tagFor } from '../partitions/tags.js';
import { Sweep } from './sweep.js';

/** The most partitions: a watcher asks each every few seconds. */
export const MAX_PARTITIONS = 1_024;

/** How often is looked whether active jobs have been answered for, ms. */
const LOOK_MS = 500;

/** How far a growth is. */
export interface Growth {
  readonly from: number;
  readonly to: number;
  /** Jobs that this run has moved. */
  readonly moved: number;
  /** Jobs that can be moved only when they are answered for, as far as is known. */
  readonly active: number;
  readonly done: boolean;
}

/** How many partitions a queue has. */
export interface Partitioning {
  readonly partitions: number;
  /** While a growth is open: from how many, and which part of the jobs that belong to the new partitions is there. */
  readonly growth: { readonly from: number; readonly moved: number } | undefined;
}

/** Returns how many partitions a queue has, and how far its growth is if one is open. Throws what Connection.call throws. */
export async function partitioningOf(parts: Partitions): Promise<Partitioning> {
  const map = await parts.look();
  const { count: partitions, from } = map;
  if (from === undefined) return { partitions, growth: undefined };
  const sizes = Array.from({ length: partitions }, (_, i) => parts.redis.call('HLEN', parts.keys(i, map).payload));
  const jobs = (await Promise.all(sizes)).map(Number);
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
    next: 'move its jobs to a new queue instead (delayq move)',
  });
}

/**
 * Grows a queue to `count` partitions while it works, and yields how far it is; see docs/internals/partitions.md. First
 * finishes a growth that was cut off. If this is interrupted at any moment, a repeat goes on. It does not end while
 * consumers hold jobs that must be moved. Throws `usage` for an invalid number, `temporary` if replicas do not follow, and
 * what Connection.call throws.
 */
export async function* grow(parts: Partitions, count: number): AsyncGenerator<Growth> {
  checkPartitions(count);
  let map = await parts.look();
  checkGrows(parts.queue, map.count, count);
  for (let moved = 0; ; ) {
    if (map.from !== undefined) moved = yield* finish(parts, map, moved);
    else if (map.count < count) await open(parts, map, count);
    else return;
    map = parts.map;
  }
}

/** Steps 1 and 2: makes the new partitions, and then the growth public. May return before that: call it again. */
async function open(parts: Partitions, old: PartitionMap, count: number): Promise<void> {
  const tags = [...old.tags];
  for (let i = old.count; i < count; i++) tags.push(tagFor(parts.queue, i));
  const first = old.count;
  const wanted = new PartitionMap(count, old.count, tags);
  await parts.advance(first, '1', wanted);
  // The first new partition decides to how many: another growth may have begun there, and perhaps died.
  const { map } = await parts.read(first, wanted);
  if (!map?.isNewerThan(old)) return;
  if (map.from === old.count) {
    try {
      for (let i = first + 1; i < map.count; i++) await parts.advance(i, '1', map);
      const versions = new Set<string>();
      for (let i = first; i < map.count; i++) versions.add(await parts.copySettings(i, map));
      const [version] = versions;
      if (versions.size === 1) await parts.advance(0, old.layoutOf(0) ?? '1', map, version);
    } catch (error) {
      // Another process has made it public, and has finished it.
      if (wordOf(error) !== 'LAYOUT') throw error;
    }
  } else {
    // Partition 0 has lost what it was: the others know.
    await parts.bringUp(0, map);
  }
  await parts.look();
}

/** Steps 3 to 5: moves what belongs elsewhere now, and closes the growth. Returns how many jobs were `moved` so far. */
async function* finish(parts: Partitions, map: PartitionMap, moved: number): AsyncGenerator<Growth, number> {
  const from = map.from as number;
  const state = (active: number, done = false) => ({ from, to: map.count, moved, active, done });
  for (let i = 0; i < map.count; i++) await parts.bringUp(i, map);
  try {
    for (let i = 0; i < from; i++) {
      for (let sweep = new Sweep(parts, map, i); ; sweep = new Sweep(parts, map, i)) {
        for await (const some of sweep.run()) {
          moved += some;
          yield state(0);
        }
        if (sweep.isClean) break;
        for (let active = sweep.active; active > 0; active = await sweep.lookAtActive()) {
          yield state(active);
          await sleep(LOOK_MS);
        }
      }
      // Nothing that was answered for before this may come back with a failover.
      await parts.advance(i, map.layoutOf(i) as string, map);
    }
    const closed = new PartitionMap(map.count, undefined, map.tags);
    for (let i = 0; i < map.count; i++) await parts.advance(i, map.layoutOf(i) as string, closed);
    await parts.look();
    yield state(0, true);
  } catch (error) {
    // Another process has finished it.
    if (wordOf(error) !== 'LAYOUT' || (await parts.look()).from !== undefined) throw error;
  }
  return moved;
}
