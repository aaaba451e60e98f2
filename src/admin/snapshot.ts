import { formatRate, readSettings } from '../model/settings.js';
import { grouped } from '../model/text.js';
import { COUNTS, lag, partitionsOf, type Snapshot } from '../store/inspect.js';
import { FURTHEST } from '../store/replies.js';

export { lag, partitionsOf, sampleOf } from '../store/inspect.js';

/** A job that has been due for this long is late, and so is a queue without a drain for this long, ms: cron runs every minute. */
export const LATE_MS = 120_000;

/** Whether anything of the queue exists in Redis. */
export function exists(snapshot: Snapshot): boolean {
  const { stats, config, recurring } = snapshot;
  return COUNTS.some((name) => snapshot[name] > 0) || Object.keys({ ...stats, ...config }).length > 0 || !!recurring;
}

/**
 * The number of ids without a payload and of payloads without an id. Known only from the sizes of the structures, so
 * one of each cancels out.
 */
export function orphans({ pending, active, dead, payload }: Snapshot): { ids: number; payloads: number } {
  const difference = pending + active + dead - payload;
  return { ids: Math.max(0, difference), payloads: Math.max(0, -difference) };
}

/**
 * The time within which this share of the handlers succeeded, ms; undefined if none has. Within a bucket,
 * durations count as spread evenly.
 */
export function durationAt({ durations }: Snapshot, share: number): number | undefined {
  const total = durations.reduce((sum, { count }) => sum + count, 0);
  let left = total * share;
  for (const { upTo, count } of durations) {
    if (count > 0 && left <= count) return upTo === 1 ? 1 : Math.round((upTo / 2) * (1 + left / count));
    left -= count;
  }
  return undefined;
}

/** Who holds jobs that were delivered: not a move. */
export const consumersOf = ({ held }: Snapshot) => held.holders.filter(({ by }) => !by.startsWith('move:'));

/** Until when the queue is paused, ms by Redis's clock (Infinity: until it is resumed); undefined: it is not paused. */
export function pausedUntil({ config, now }: Snapshot): number | undefined {
  const { paused } = config;
  if (paused === undefined) return undefined;
  const until = /^\+?inf(inity)?$/i.test(paused) ? Number.POSITIVE_INFINITY : Number(paused);
  if (!(until > now)) return undefined;
  // Too far away for a Date.
  return until <= FURTHEST ? until : Number.POSITIVE_INFINITY;
}

/** Time since a drain last asked for jobs or renewed a lease, ms (Infinity: never, as far as is known). */
export function drainAge({ stats, now }: Snapshot): number {
  return stats.drained ? Math.max(0, now - stats.drained) : Number.POSITIVE_INFINITY;
}

/**
 * The drain age, ms (Infinity: never drained), of a queue without a drain although jobs are late or leases have
 * expired. Undefined if the queue is drained, has nothing to drain, or is paused.
 */
export function stalled(snapshot: Snapshot): number | undefined {
  const age = drainAge(snapshot);
  const waits = (lag(snapshot) >= LATE_MS || snapshot.runOut > 0) && pausedUntil(snapshot) === undefined;
  return waits && age >= LATE_MS ? age : undefined;
}

/** After this long without a sign of life, ms, the process that grows a queue counts as dead: longer than a failover. */
const STALLED_MS = 30_000;

/** A growth whose process has died or was stopped. */
interface StoppedGrowth {
  readonly count: number;
  readonly from: number;
  /** For how long, ms; undefined: unknown. */
  readonly ms: number | undefined;
}

/** The growth of a queue, if its process has died, or was stopped. */
export function stoppedGrowth(snapshot: Snapshot): StoppedGrowth | undefined {
  const { count, from } = partitionsOf(snapshot);
  if (from === undefined) return undefined;
  const { growing } = snapshot.config;
  const ms = growing === undefined ? undefined : snapshot.now - Number(growing);
  return ms === undefined || ms >= STALLED_MS ? { count, from, ms } : undefined;
}

/** The limits of a queue that are set. `burst` is the one that applies. */
export function limitsOf({ config }: Snapshot) {
  const { rate, burst, maxActive } = readSettings(config);
  const perSecond = rate && (1_000 * rate.jobs) / rate.perMs;
  return { rate, perSecond, burst: perSecond && (burst ?? Math.max(1, perSecond / 10)), maxActive };
}

/**
 * Which limit holds due jobs back, in words. `perSecond`: how many jobs were delivered lately; if it is unknown, the rate
 * is taken for the reason.
 */
export function heldBackBy(snapshot: Snapshot, perSecond?: number): string | undefined {
  const { due, active, runOut, now, bucket } = snapshot;
  const { rate, perSecond: most = 0, burst = 0, maxActive } = limitsOf(snapshot);
  if (due === 0) return undefined;
  const tokens = bucket && Math.min(burst, bucket.tokens + (Math.max(0, now - bucket.at) * most) / 1_000);
  const isFull = maxActive !== undefined && active - runOut >= maxActive;
  // With a token left, it is the places that are missing.
  if (isFull && !(rate && tokens !== undefined && tokens < 1)) return `limited to ${grouped(maxActive)} active`;
  // Figures of a minute are not exact.
  return rate && (isFull || (perSecond ?? most) >= most * 0.9) ? `limited to ${formatRate(rate)}` : undefined;
}
