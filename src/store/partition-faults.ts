import { isPassing } from '../model/errors.js';
import type { Id } from '../model/id.js';
import { groupsOf, PartitionMap } from './map.js';
import type { Moved } from './move-steps.js';
import { relocate } from './relocate.js';
import { jobsAt } from './sizes.js';
import type { Store } from './store.js';
import { idsWhere } from './sweep-partition.js';
import { tagFor } from './tags.js';

/** A later layout of a queue than its partition 0 has. */
interface Later {
  /** The number of partitions in it. */
  readonly count: number;
  /** The new partitions have no jobs: the layout may be of a growth that is not public yet. */
  readonly isBegun: boolean;
  /** Writes it to partition 0. */
  restore(): Promise<void>;
}

/** If partition 0 knows of no others: the later layout of partition 1; undefined: there is none. */
export async function laterLayout(store: Store): Promise<Later | undefined> {
  const second = store.read(1, new PartitionMap(2, 1, ['', tagFor(store.queue, 1)]));
  // The second partition may be on another node: its trouble is not that of this queue.
  const { map } = await second.catch((error: unknown) => {
    if (isPassing(error)) return { map: undefined };
    throw error;
  });
  if (!map?.isNewerThan(store.map)) return undefined;
  const restore = async () => {
    await store.bringUp(0, map);
    await store.look();
  };
  return { count: map.count, isBegun: map.from === store.count && (await isEmpty(store, map)), restore };
}

/** Whether no job is in the partitions that a growth has added. */
async function isEmpty(store: Store, map: PartitionMap): Promise<boolean> {
  const added = map.tags.map((_, i) => i).slice(map.from);
  const sizes = await Promise.all(added.map((i) => jobsAt(store, i, map)));
  return sizes.every((size) => size === 0);
}

/** The layout of partition `i` if it differs from that of partition 0, and how to make both agree. */
export async function otherLayout(store: Store, i: number) {
  const { map } = store;
  const has = await store.read(i, map);
  if (has.layout === map.layoutOf(i) && has.map?.packed === map.packed) return undefined;
  const later = has.map?.isNewerThan(map) ? has.map : undefined;
  const mend = () => (later ? store.bringUp(0, later) : store.advance(i, has.layout, map));
  return { layout: has.layout, mend };
}

/** Which partitions have other settings, or another pause, than partition 0. */
export async function otherSettings(store: Store): Promise<number[]> {
  const { map } = store;
  const all = await Promise.all(map.tags.map((_, i) => store.settings(i, map)));
  const texts = all.map((fields) => {
    const lines = fields.flatMap((name, n) => (n % 2 === 0 ? [JSON.stringify([name, fields[n + 1]])] : []));
    return lines.sort().join();
  });
  return texts.flatMap((one, i) => (one === texts[0] ? [] : [i]));
}

/** Yields ids of jobs in partition `i` that belong to another one, and a function that moves them there. */
export async function* strays(
  store: Store,
  i: number,
): AsyncGenerator<{ readonly ids: readonly Id[]; relocate(): Promise<Moved[]> }> {
  const { map, redis } = store;
  const keys = store.keys(i, map);
  for (const set of ['pending', 'active', 'dead'] as const) {
    for await (const ids of idsWhere(redis, keys[set], (id) => map.ownerOf(id) !== i)) {
      for (const [to, some] of groupsOf(ids, (id) => map.ownerOf(id)))
        yield { ids: some, relocate: () => relocate({ store, map, from: i, to }, some, true) };
    }
  }
}
