import { DelayqError, isDelayqError } from '../model/errors.js';
import { within } from '../model/time.js';
import { COUNTS, type Failures, type Holder, inspectIn, type Snapshot, sampleOf } from './inspect.js';
import { groupsOf } from './map.js';
import { mergeSamples } from './samples.js';
import type { Store } from './store.js';

/** The counts of one partition, or why they are not readable. */
export interface Part {
  readonly index: number;
  /** What replaces the name of the queue in its keys. */
  readonly tag: string;
  readonly found: Snapshot | undefined;
  readonly error: DelayqError | undefined;
}

/**
 * Returns the counts of each partition of a queue, not at one moment. Times: see {@link inspectIn}. Throws if the first
 * fails and no others are known.
 */
export async function inspectEach(
  store: Store,
  upcoming: number,
  ahead: readonly number[] = [],
  limitMs = Number.POSITIVE_INFINITY,
): Promise<Part[]> {
  const all = await store.settle((keys, i) => {
    const looked = inspectIn(store.redis, keys, upcoming, ahead);
    return i === 0 && store.count === 1 ? looked : inTime(limitMs, looked);
  });
  return all.map((one, index) => {
    const of = { index, tag: store.tagOf(index) };
    if (one.status === 'fulfilled') return { ...of, found: one.value, error: undefined };
    if (!isDelayqError(one.reason)) throw one.reason;
    return { ...of, found: undefined, error: one.reason };
  });
}

async function inTime<T>(limitMs: number, call: Promise<T>): Promise<T> {
  call.catch(() => {});
  const found = await within(limitMs, call);
  if (found === undefined) throw new DelayqError('unknown', 'no answer yet', { next: 'check that Redis is up' });
  return found;
}

/** Returns the counts of a queue: of its partitions together. Throws if one of them cannot be read. */
export async function inspectAll(store: Store, upcoming: number, ahead: readonly number[] = []): Promise<Snapshot> {
  const all = await store.each((keys) => inspectIn(store.redis, keys, upcoming, ahead));
  return sum(all, upcoming);
}

/** Adds up snapshots of partitions, one at least. The settings are those of the first. */
export function sum(all: readonly Snapshot[], upcoming: number): Snapshot {
  const [first] = all as [Snapshot];
  if (all.length === 1) return first;
  const add = (of: (one: Snapshot) => number) => all.reduce((total, one) => total + of(one), 0);
  const names = new Set(all.flatMap(({ stats }) => Object.keys(stats)));
  names.delete('drained');
  const drained = Math.max(...all.map(({ stats }) => stats.drained ?? 0));
  const now = Math.max(...all.map(({ now }) => now));
  // Each by the clock of its own server: differences of clocks are no lag.
  const oldest = now + Math.min(...all.map((one) => (one.oldest ?? Number.POSITIVE_INFINITY) - one.now));
  const counts = Object.fromEntries(COUNTS.map((name) => [name, add((one) => one[name])]));
  return {
    now,
    ...(counts as Record<(typeof COUNTS)[number], number>),
    oldest: Number.isFinite(oldest) ? oldest : undefined,
    upcoming: all
      .flatMap((one) => one.upcoming)
      .sort((a, b) => a.due - b.due)
      .slice(0, upcoming),
    stats: {
      ...Object.fromEntries([...names].map((name) => [name, add(({ stats }) => stats[name] ?? 0)])),
      ...(drained > 0 && { drained }),
    },
    refusal: all.find(({ refusal }) => refusal)?.refusal,
    failures: failuresOf(all),
    durations: first.durations.map(({ upTo }, i) => ({
      upTo,
      count: add(({ durations }) => durations[i]?.count ?? 0),
    })),
    held: { seen: add(({ held }) => held.seen), holders: holdersOf(all.flatMap(({ held }) => held.holders)) },
    samples: mergeSamples(all.map((one) => ({ samples: one.samples, now: sampleOf(one) }))),
    lateness: {
      buckets: first.lateness.buckets.map(({ upTo }, i) => ({
        upTo,
        count: add(({ lateness }) => lateness.buckets[i]?.count ?? 0),
      })),
      sum: add(({ lateness }) => lateness.sum),
    },
    ahead: first.ahead.map((span, i) => ({ ...span, count: add(({ ahead }) => ahead[i]?.count ?? 0) })),
    config: first.config,
    bucket: first.bucket,
    recurring: first.recurring,
  };
}

/** The last failures of several partitions: in a row are those after the last job that may have been done in one of them. */
function failuresOf(all: readonly Snapshot[]): Failures | undefined {
  const found = all.flatMap(({ failures }) => failures ?? []);
  const last = found.reduce<Failures | undefined>((a, b) => (a && a.at >= b.at ? a : b), undefined);
  if (!last) return undefined;
  const done = Math.max(...all.map(lastDone));
  const rows = found.map((one) => ({ one, n: countSince(one, done) })).filter(({ n }) => n > 0);
  const kinds = rows.flatMap(({ one: { kinds, inARow }, n }) =>
    kinds.map(({ kind, count }) => ({ kind, count: Math.max(1, Math.round((count * n) / inARow)) })),
  );
  return {
    ...last,
    inARow: rows.reduce((total, { n }) => total + n, 0),
    since: Math.max(done, Math.min(last.at, ...rows.map(({ one }) => one.since))),
    again: Math.max(...found.map(({ again }) => again)),
    kinds: [...groupsOf(kinds, ({ kind }) => kind)]
      .map(([kind, same]) => ({ kind, count: same.reduce((total, { count }) => total + count, 0) }))
      .sort((a, b) => b.count - a.count),
  };
}

/** The latest time at which a job of a partition may have been done, by its failures, or by samples, a minute apart. */
function lastDone(one: Snapshot): number {
  const present = sampleOf(one);
  if (present.done === 0) return 0;
  if (one.failures?.inARow) return one.failures.since;
  if (one.samples.length === 0) return present.at;
  const before = one.samples.findLastIndex(({ done }) => done < present.done);
  return before < 0 ? 0 : (one.samples[before + 1]?.at ?? present.at);
}

/** How many failures in a row a partition has had since a time; as if they were spread evenly. */
function countSince({ inARow, since, at }: Failures, from: number): number {
  if (inARow === 0 || at < from) return 0;
  return since >= from ? inARow : Math.max(1, Math.round((inARow * (at - from)) / (at - since)));
}

/** The holders of several partitions, each once. */
function holdersOf(all: readonly Holder[]): Holder[] {
  const each = [...groupsOf(all, ({ by }) => by)].map(([by, same]): Holder => {
    const since = same.flatMap((one) => one.since ?? []);
    return {
      by,
      jobs: same.reduce((total, { jobs }) => total + jobs, 0),
      since: since.length > 0 ? Math.min(...since) : undefined,
      ends: Math.min(...same.map(({ ends }) => ends)),
    };
  });
  return each.sort((a, b) => a.ends - b.ends);
}
