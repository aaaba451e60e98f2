import type { State } from '../model/job.js';
import type { Arg, Connection, Reply } from '../redis/connection.js';
import { msOf } from './every.js';
import type { QueueKeys } from './keys.js';
import { rows, text } from './replies.js';
import { run } from './script.js';
import type { Store } from './store.js';

/** Ids per call: cheap for Redis, and few are out of date by the time they are used. */
export const LISTED = 200;

/** `finished`: jobs that are done, and kept. */
type Listed = State | 'finished';

interface Entry {
  readonly id: Buffer;
  readonly score: number;
}

/** How far the list of one partition is. */
interface Lane {
  /** Read but not yielded yet, in order. */
  waiting: Entry[];
  /** The last yielded slice, up to the last yielded entry: {@link listIn} continues behind it. */
  before: readonly Reply[];
  slice: Reply[];
  done: boolean;
  /** The number of partitions before the growth that was open during the read, if any. */
  from: number | undefined;
}

/**
 * Yields the ids of one state with times `from` … `to`, ms, at most `limit`, in slices: over all partitions, in the
 * order of their times. Keeps at most one slice of each partition in memory. Jobs that a growth has moved come once;
 * only those that it is moving while they are read may be left out.
 */
export async function* listAll(
  store: Store,
  state: Listed,
  range: { readonly from?: number | undefined; readonly to?: number | undefined },
  limit: number,
): AsyncGenerator<Buffer[]> {
  const lanes: Lane[] = [];
  let last: Entry | undefined;
  for (let left = limit; left > 0; ) {
    const max = Math.min(left, LISTED);
    const read = async (lane: Lane, i: number) => {
      // Continue behind the last yielded entry, and read the rest again.
      lane.before = behind(lane);
      lane.slice = await store.at(i, (keys) =>
        listIn(store.redis, keys, state, range, { limit: max, before: lane.before }),
      );
      lane.waiting = entriesOf(lane.slice);
      lane.from = store.map.from;
      const isLast = store.count > 1 && store.map.from === undefined && lane.waiting.length < max;
      lane.done = lane.waiting.length === 0 || isLast;
    };
    await fill(store, lanes, read);
    const open = lanes.filter(({ done }) => !done).map(({ waiting }) => waiting.at(-1) as Entry);
    const bound = open.sort(order)[0];
    const some: Entry[] = [];
    for (const { waiting } of lanes) {
      const end = bound ? waiting.findIndex((entry) => order(entry, bound) > 0) : -1;
      some.push(...waiting.splice(0, end < 0 ? waiting.length : end));
    }
    const fresh: Buffer[] = [];
    for (const entry of some.sort(order)) {
      // Of a job that was moved between two partitions, both copies may have been read.
      if (last && order(entry, last) <= 0) continue;
      last = entry;
      fresh.push(entry.id);
    }
    for (let at = 0; at < fresh.length && left > 0; at += LISTED) {
      const ids = fresh.slice(at, at + Math.min(LISTED, left));
      left -= ids.length;
      yield ids;
    }
    if (!bound) return;
  }
}

/** Reads the next slice of each partition that has no entries waiting. */
async function fill(store: Store, lanes: Lane[], read: (lane: Lane, i: number) => Promise<void>): Promise<void> {
  for (let again = true; again; ) {
    while (lanes.length < store.count)
      lanes.push({ waiting: [], before: [], slice: [], done: false, from: store.map.from });
    const all = [...lanes.entries()];
    const wanted = all.filter(([, { waiting, done }]) => waiting.length === 0 && !done);
    // A growth moves jobs from the former partitions to the new ones, so read the new ones last.
    const isNew = ([i, { from = lanes.length }]: [number, Lane]) => i >= from;
    const former = wanted.filter((one) => !isNew(one));
    await Promise.all(former.map(([i, lane]) => read(lane, i)));
    const later = (former.length > 0 ? all : wanted).filter(isNew);
    await Promise.all(later.map(([i, lane]) => read(lane, i)));
    // Perhaps a growth began.
    again = lanes.length < store.count;
  }
}

function behind({ slice, waiting, before }: Lane): readonly Reply[] {
  const yielded = slice.slice(0, slice.length - 2 * waiting.length);
  return yielded.length > 0 ? yielded : before;
}

function entriesOf(slice: Reply[]): Entry[] {
  return rows(slice, 0, 2).map(([id, score]) => ({ id: id as Buffer, score: msOf(text(score)) }));
}

/** The order of a sorted set. Infinity - Infinity is NaN, as good as 0. */
const order = (a: Entry, b: Entry) => a.score - b.score || Buffer.compare(a.id, b.id);

/** Counts the jobs of `states` with times `from` … `to`, ms. */
export async function countAll(
  store: Store,
  states: readonly State[],
  { from = '-inf', to = '+inf' }: { from?: number | string | undefined; to?: number | string | undefined },
): Promise<number> {
  const counts = await store.steady(() => {
    const sets = store.all.flatMap((keys) => states.map((state) => keys[state]));
    return Promise.all(sets.map((key) => store.redis.call('ZCOUNT', key, from, to)));
  });
  return counts.reduce<number>((sum, n) => sum + Number(n), 0);
}

/**
 * Returns up to `limit` ids of one state in one partition with times `from` … `to`, ms, in the order of their times;
 * continues behind the slice `before`. Each id is followed by its score. Both are bytes, because the next call must
 * find the same entries.
 */
export async function listIn(
  redis: Connection,
  keys: QueueKeys,
  state: Listed,
  { from = '-inf', to = '+inf' }: { from?: number | string | undefined; to?: number | string | undefined },
  { limit, before }: { limit: number; before: readonly Reply[] },
): Promise<Reply[]> {
  const backwards: Arg[] = [];
  for (let i = before.length - 2; i >= 0; i -= 2) backwards.push(before[i] as Buffer, before[i + 1] as Buffer);
  return run(redis, 'inspect/list', keys, [state, limit, from, to, ...backwards]);
}
