import { FURTHEST } from '../redis/replies.js';
import type { Snapshot } from '../scripts/inspect.js';
import type { Sample } from '../scripts/samples.js';

/** A job that has been due for this long is late, and so is a queue without a drain for this long, ms: cron runs every minute. */
export const LATE_MS = 120_000;

/** Whether anything of the queue exists in Redis. */
export function exists(snapshot: Snapshot): boolean {
  const { pending, active, lease, dead, payload, meta, stats, config } = snapshot;
  return pending + active + lease + dead + payload + meta + Object.keys(stats).length + Object.keys(config).length > 0;
}

/**
 * The number of ids without a payload and of payloads without an id. Known only from the sizes of the structures, so
 * one of each cancels out.
 */
export function orphans({ pending, active, dead, payload }: Snapshot): { ids: number; payloads: number } {
  const difference = pending + active + dead - payload;
  return { ids: Math.max(0, difference), payloads: Math.max(0, -difference) };
}

/** How long the oldest due job has been due, ms; 0: none is due. */
export function lag({ now, oldest }: Snapshot): number {
  return oldest === undefined ? 0 : Math.max(0, now - oldest);
}

/** Until when the queue is paused, ms by Redis's clock (Infinity: until it is resumed); undefined: it is not paused. */
export function pausedUntil({ config, now }: Snapshot): number | undefined {
  const { paused } = config;
  if (paused === undefined) return undefined;
  const until = /^\+?inf(inity)?$/i.test(paused) ? Number.POSITIVE_INFINITY : Number(paused);
  if (!(until > now)) return undefined;
  // Too far away for a Date.
  return until <= FURTHEST ? until : Number.POSITIVE_INFINITY;
}

/** Returns a snapshot in the form of a sample, for {@link trend}. */
export function sampleOf(snapshot: Snapshot): Sample {
  const { now: at, due, pending, stats } = snapshot;
  const { enqueued = 0, delivered = 0, acked = 0, removed = 0, retried = 0, dead = 0 } = stats;
  return { at, enqueued, delivered, done: acked + removed, retried, dead, due, lag: lag(snapshot), pending };
}

/** Time since a drain last asked for jobs or renewed a lease, ms (Infinity: never, as far as is known). */
export function drainAge({ stats, now }: Snapshot): number {
  return stats.drained ? Math.max(0, now - stats.drained) : Number.POSITIVE_INFINITY;
}

/**
 * The drain age, ms (Infinity: never drained), of a queue that nobody drains although jobs are late or leases have
 * expired. Undefined if the queue is drained, has nothing to drain, or is paused.
 */
export function stalled(snapshot: Snapshot): number | undefined {
  const age = drainAge(snapshot);
  const waits = (lag(snapshot) >= LATE_MS || snapshot.runOut > 0) && pausedUntil(snapshot) === undefined;
  return waits && age >= LATE_MS ? age : undefined;
}
