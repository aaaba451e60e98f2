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

/** Jobs a second into and out of a queue, between two looks. */
interface Rates {
  readonly in: number;
  readonly out: number;
}

/** A queue as it was seen. */
export interface Row {
  readonly queue: string;
  readonly snapshot: Snapshot;
  readonly trend: Trend | undefined;
  /** Since the look before. */
  readonly rates: Rates | undefined;
  /** How it stood at the last looks, the oldest first. */
  readonly seen: readonly Sample[];
  /** Who holds leases, `seen` of `active` of them; only of a queue that was asked for by its name. */
  readonly held?: Awaited<ReturnType<Inspector['holders']>>;
}

/** All queues as they are at one moment; one that cannot be read does not hide the others. */
export interface Look {
  readonly rows: Row[];
  readonly broken: { readonly queue: string; readonly error: DelayqError }[];
}

/** How many of the next due times are shown for one queue. */
const UPCOMING = 5;

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** What falls due is counted up to these times, ms from now: an hour in twelfths, a day in hours. */
const AHEAD = [
  ...Array.from({ length: 12 }, (_, i) => (i + 1) * 5 * MINUTE_MS),
  ...Array.from({ length: 23 }, (_, i) => (i + 2) * HOUR_MS),
];

/** By so many of the last looks is told where a queue goes. */
const LOOKS = 16;

/** How many queues are asked at once. */
const AT_ONCE = 50;

/** Looks at all queues, or in full at the one called `name`. */
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
        rates: old && ratesOf(snapshot, old.snapshot),
        seen,
        ...(held ? { held } : {}),
      });
    } catch (error) {
      if (name !== undefined || !isDelayqError(error, 'config')) throw error;
      found.broken.push({ queue, error });
    }
  };
  for (let i = 0; i < names.length; i += AT_ONCE) await Promise.all(names.slice(i, i + AT_ONCE).map(one));
  // Replies come in the order of the calls, but for scripts that Redis had to be told anew.
  found.rows.sort((a, b) => (a.queue < b.queue ? -1 : 1));
  return found;
}

/** Whether anything of the queues is there. */
export function nothingThere({ rows, broken }: Look): boolean {
  return broken.length === 0 && !rows.some(({ snapshot }) => exists(snapshot));
}

/** What falls due in the coming hour and in the coming day. */
export function aheadOf({ now, ahead }: Snapshot): { hour: Snapshot['ahead']; day: Snapshot['ahead'] } {
  const hour = ahead.slice(0, 12);
  const all = { from: now, to: now + HOUR_MS, count: hour.reduce((sum, { count }) => sum + count, 0) };
  return { hour, day: ahead.length > 0 ? [all, ...ahead.slice(12)] : [] };
}

function ratesOf(now: Snapshot, before: Snapshot): Rates | undefined {
  const seconds = (now.now - before.now) / 1000;
  const [after, old] = [sampleOf(now), sampleOf(before)];
  return seconds > 0
    ? { in: (after.enqueued - old.enqueued) / seconds, out: (after.done - old.done) / seconds }
    : undefined;
}
