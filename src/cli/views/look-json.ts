import {
  type Connection,
  durationAt,
  lag,
  limitsOf,
  orphans,
  type Part,
  partitionsOf,
  pausedUntil,
  stalled,
  type Trend,
} from '../../internal.js';
import { document, orNull } from '../terminal/output.js';
import { aheadOf, type Look, type Row, reasonOf, unreadOf } from './snapshot.js';

/** Formats what was seen as a JSON document. Missing values, and times without an end, are null. */
export function lookJson(redis: Connection, prefix: string, { rows, broken }: Look, eachPartition = false): string {
  const queues = rows.map((row) => queueJson(row, eachPartition));
  const unreadable = [
    ...broken.map(({ queue, error }) => ({ queue, error: reasonOf(error) })),
    ...rows.flatMap((row) => unreadOf(row).map((part) => ({ queue: row.queue, ...part }))),
  ];
  return document({ redis: redis.address, prefix, queues, unreadable }, orNull);
}

function queueJson({ queue, snapshot, rates, trend, parts }: Row, eachPartition: boolean) {
  const {
    lease,
    payload,
    meta,
    runOut,
    oldest,
    ahead,
    lateness,
    durations,
    held,
    recurring,
    bucket,
    refusal,
    ...shown
  } = snapshot;
  const { pending, active, dead } = shown;
  const { rate, burst, maxActive } = limitsOf(snapshot);
  const { count, from } = partitionsOf(snapshot);
  const until = pausedUntil(snapshot);
  return {
    queue,
    ...shown,
    ...(count > 1 && { partitions: { count, from, ...(eachPartition && { each: parts.map(partJson) }) } }),
    lagMs: lag(snapshot),
    oldestDue: oldest,
    nextDue: shown.upcoming[0]?.due,
    drained: shown.stats.drained,
    refusal,
    stalled: stalled(snapshot) !== undefined,
    paused: until === undefined ? null : { until },
    limits: rate || maxActive !== undefined ? { rate, burst, maxActive } : null,
    leasesRunOut: runOut,
    orphans: orphans(snapshot),
    ratePerSecond: rates,
    trend: trend && trendJson(trend),
    structures: { pending, active, lease, dead, payload, meta },
    ...(ahead.length > 0 && { ahead: aheadOf(snapshot) }),
    ...(active > 0 && { holders: held.holders, holdersSeen: held.seen }),
    lateness: { sumMs: lateness.sum, buckets: lateness.buckets.map(({ upTo, count }) => ({ upToMs: upTo, count })) },
    durations: {
      p50Ms: durationAt(snapshot, 0.5),
      p99Ms: durationAt(snapshot, 0.99),
      buckets: durations.filter(({ count }) => count > 0).map(({ upTo, count }) => ({ upToMs: upTo, count })),
    },
    ...(recurring && { recurring }),
  };
}

function partJson({ index, tag, found, error }: Part) {
  if (!found) return { index, tag, error: error && reasonOf(error) };
  const { pending, due, active, dead } = found;
  return { index, tag, pending, due, lagMs: lag(found), active, dead };
}

function trendJson({ spanMs, lag: slope, emptyInMs, ...perSecond }: Trend) {
  return { spanMs, perSecond, lagMsPerMinute: slope * 60_000, emptyInMs };
}
