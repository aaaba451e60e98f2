import {
  type DelayqError,
  exists,
  type Inspector,
  isDelayqError,
  type Sample,
  type Snapshot,
  sampleOf,
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
  /** The consumers that hold leases; only if one queue was asked for by name. */
  readonly held?: Awaited<ReturnType<Inspector['holders']>>;
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

const AT_ONCE = 50;

/**
 * Reads all queues, or only the one called `name`, with more detail. Throws if that one cannot be read, or if Redis
 * does not answer.
 */
export async function lookAt(inspector: Inspector, name: string | undefined, before?: Look): Promise<Look> {
  const names = name === undefined ? await inspector.queues() : [name];
  const found: Look = { rows: [], broken: [] };
  const one = async (queue: string): Promise<void> => {
    try {
      const full = name !== undefined;
      const snapshot = await inspector.inspect(queue, full ? UPCOMING : 1, full ? AHEAD : []);
      const held = full && snapshot.active > 0 ? await inspector.holders(queue) : undefined;
      const old = before?.rows.find((row) => row.queue === queue);
      const now = sampleOf(snapshot);
      const seen = [...(old?.seen ?? []), now].slice(-LOOKS);
      found.rows.push({
        queue,
        snapshot,
        trend: trend(snapshot.samples, now, seen[0]),
        rates: ratesOf(now, old?.seen.at(-1)),
        seen,
        ...(held ? { held } : {}),
      });
    } catch (error) {
      // Other software may have put anything into the list of queues.
      if (name !== undefined || !isDelayqError(error, 'config', 'usage')) throw error;
      found.broken.push({ queue, error });
    }
  };
  for (let i = 0; i < names.length; i += AT_ONCE) await Promise.all(names.slice(i, i + AT_ONCE).map(one));
  // Usually in order already, but a script that Redis did not know is sent again and answered later.
  found.rows.sort((a, b) => (a.queue < b.queue ? -1 : 1));
  return found;
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
