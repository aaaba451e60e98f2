import {
  type DelayqError,
  eachQueue,
  exists,
  type Inspector,
  isPassing,
  type Part,
  type Sample,
  type Snapshot,
  sampleOf,
  sum,
  type Trend,
  trend,
} from '../../internal.js';

/** Jobs per second into and out of a queue, between two looks. */
type Rates = Pick<Trend, 'in' | 'out'>;

/** A queue at one moment. */
export interface Row {
  readonly queue: string;
  readonly snapshot: Snapshot;
  readonly trend: Trend | undefined;
  /** Since the look before; undefined at the first look. */
  readonly rates: Rates | undefined;
  /** Its counters at the last looks, oldest first. */
  readonly seen: readonly Sample[];
  /** Its partitions; one if it has none. */
  readonly parts: readonly Part[];
}

/** All queues at one moment. Those that cannot be read are listed apart. */
export interface Look {
  readonly rows: Row[];
  readonly broken: { readonly queue: string; readonly error: DelayqError }[];
}

const UPCOMING = 5;

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** The bounds of the charts, ms from now: the next hour in steps of 5 minutes, then the next day in hours. */
const AHEAD = [
  ...Array.from({ length: 12 }, (_, i) => (i + 1) * 5 * MINUTE_MS),
  ...Array.from({ length: 23 }, (_, i) => (i + 2) * HOUR_MS),
];

/** How many looks the trend of a live view is computed from. */
const LOOKS = 16;

/** How long a live view waits for a queue, ms, and for one that it could not read the last time. */
const LIVE_MS = [1_000, 250] as const;

/**
 * Reads all queues, or only the one called `name`, with more detail. `before`: the look before in a live view, which
 * does not wait long for a server that does not answer. Throws if that one cannot be read, or if Redis does not answer.
 */
export async function lookAt(inspector: Inspector, name: string | undefined, before?: Look): Promise<Look> {
  const one = async (queue: string): Promise<Row> => {
    const full = name !== undefined;
    const upcoming = full ? UPCOMING : 1;
    const parts = await inspector.partitions(queue, upcoming, full ? AHEAD : [], before && LIVE_MS[1]);
    const found = parts.flatMap((part) => part.found ?? []);
    if (found.length === 0) throw parts[0]?.error;
    const snapshot = sum(found, upcoming);
    const old = before?.rows.find((row) => row.queue === queue);
    const now = sampleOf(snapshot);
    const seen = [...(old?.seen ?? []), now].slice(-LOOKS);
    return {
      queue,
      snapshot,
      trend: trend(snapshot.samples, now, seen[0]),
      rates: ratesOf(now, old?.seen.at(-1)),
      seen,
      parts,
    };
  };
  if (name !== undefined) return { rows: [await one(name)], broken: [] };
  const wasBroken = new Set(before?.broken.map(({ queue }) => queue));
  const limitMs = before && ((queue: string) => LIVE_MS[wasBroken.has(queue) ? 1 : 0]);
  const found: Look = { rows: [], broken: [] };
  for (const looked of await eachQueue(await inspector.queues(), one, limitMs)) {
    if ('found' in looked) found.rows.push(looked.found);
    else found.broken.push(looked);
  }
  return found;
}

/** Why a queue cannot be read. If its server is in trouble, that includes which one it is. */
export function reasonOf(error: DelayqError): string {
  const { what, why } = error;
  return why === undefined ? what : isPassing(error) ? `${what}: ${why}` : why;
}

/** Which partitions of a queue cannot be read, and why. */
export function unreadOf({ parts }: Row): { readonly partition: number; readonly error: string }[] {
  return parts.flatMap(({ index, error }) => (error ? [{ partition: index, error: reasonOf(error) }] : []));
}

export function nothingThere({ rows, broken }: Look): boolean {
  return broken.length === 0 && !rows.some(({ snapshot }) => exists(snapshot));
}

/** How many jobs fall due in each part of the next hour and of the next day. */
export function aheadOf({ now, ahead }: Snapshot): { hour: Snapshot['ahead']; day: Snapshot['ahead'] } {
  const hour = ahead.slice(0, 12);
  const all = { from: now, to: now + HOUR_MS, count: hour.reduce((sum, { count }) => sum + count, 0) };
  return { hour, day: ahead.length > 0 ? [all, ...ahead.slice(12)] : [] };
}

function ratesOf(now: Sample, before: Sample | undefined): Rates | undefined {
  if (!before || now.at <= before.at) return undefined;
  const seconds = (now.at - before.at) / 1000;
  return { in: (now.enqueued - before.enqueued) / seconds, out: (now.done - before.done) / seconds };
}
