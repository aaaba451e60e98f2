import { type Holder, type Holders, inspect, type Snapshot } from '../scripts/inspect.js';
import type { Partitions } from './partitions.js';

/** Returns the counts of a queue: of its partitions together, then not at one moment. Times: see {@link inspect}. */
export async function inspectAll(
  parts: Partitions,
  upcoming: number,
  ahead: readonly number[] = [],
): Promise<Snapshot> {
  const all = await parts.each((keys) => inspect(parts.redis, keys, upcoming, ahead));
  return all.length === 1 ? (all[0] as Snapshot) : sum(all, upcoming);
}

/** Adds up snapshots of partitions. The settings are those of the first. */
export function sum(all: readonly Snapshot[], upcoming: number): Snapshot {
  const [first] = all as [Snapshot];
  const add = (of: (one: Snapshot) => number) => all.reduce((total, one) => total + of(one), 0);
  const names = new Set(all.flatMap(({ stats }) => Object.keys(stats)));
  names.delete('drained');
  const drained = Math.max(...all.map(({ stats }) => stats.drained ?? 0));
  const oldest = Math.min(...all.map((one) => one.oldest ?? Number.POSITIVE_INFINITY));
  return {
    now: Math.max(...all.map(({ now }) => now)),
    pending: add(({ pending }) => pending),
    active: add(({ active }) => active),
    lease: add(({ lease }) => lease),
    dead: add(({ dead }) => dead),
    payload: add(({ payload }) => payload),
    meta: add(({ meta }) => meta),
    due: add(({ due }) => due),
    runOut: add(({ runOut }) => runOut),
    oldest: Number.isFinite(oldest) ? oldest : undefined,
    upcoming: all
      .flatMap((one) => one.upcoming)
      .sort((a, b) => a.due - b.due)
      .slice(0, upcoming),
    stats: {
      ...Object.fromEntries([...names].map((name) => [name, add(({ stats }) => stats[name] ?? 0)])),
      ...(drained > 0 && { drained }),
    },
    samples: first.samples,
    lateness: {
      buckets: first.lateness.buckets.map(({ upTo }, i) => ({
        upTo,
        count: add(({ lateness }) => lateness.buckets[i]?.count ?? 0),
      })),
      sum: add(({ lateness }) => lateness.sum),
    },
    ahead: first.ahead.map((span, i) => ({ ...span, count: add(({ ahead }) => ahead[i]?.count ?? 0) })),
    config: first.config,
  };
}

/** Adds up who holds leases in each partition. */
export function sumHolders(all: readonly Holders[]): Holders {
  if (all.length === 1) return all[0] as Holders;
  const holders = new Map<string, Holder>();
  for (const holder of all.flatMap((one) => one.holders)) {
    const { by, jobs, since, ends } = holders.get(holder.by) ?? { ...holder, jobs: 0 };
    const begins = Math.min(since ?? Number.POSITIVE_INFINITY, holder.since ?? Number.POSITIVE_INFINITY);
    holders.set(by, {
      by,
      jobs: jobs + holder.jobs,
      since: Number.isFinite(begins) ? begins : undefined,
      ends: Math.min(ends, holder.ends),
    });
  }
  const add = (of: (one: Holders) => number) => all.reduce((total, one) => total + of(one), 0);
  return {
    now: Math.max(...all.map(({ now }) => now)),
    active: add(({ active }) => active),
    seen: add(({ seen }) => seen),
    holders: [...holders.values()].sort((a, b) => a.ends - b.ends),
  };
}
