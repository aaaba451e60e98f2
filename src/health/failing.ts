import { consumersOf, durationAt, pausedUntil, stalled } from '../admin/snapshot.js';
import { trendOf } from '../admin/trend.js';
import { grouped, many } from '../model/text.js';
import { formatDuration } from '../model/time.js';
import { type Failures, type Snapshot, sampleOf } from '../store/inspect.js';
import { stateAt } from '../store/samples.js';

/** So many attempts say whether handlers fail. */
const ATTEMPTS = 10;

/** Since when they have failed at least, ms: a batch fails at one moment, while others succeed. */
const BATCH_MS = 1_000;

/** So long without a job that is done, ms, does one failure say it; and how long a handler may run, if nothing is known. */
const QUIET_MS = 60_000;

/** How long handlers may run that did jobs whose durations are not known, ms. */
const UNKNOWN_MS = 10 * 60_000;

/** So long after the last failure, or after the time of the next try, ms, failures say nothing about now. */
const RECENT_MS = 5 * 60_000;

/** How many kinds of errors are named. */
const KINDS = 3;

/** From this share of failures on, a queue has a problem. */
export const MANY = 0.5;

/** How many of the last attempts failed. */
export interface Failing {
  /** From 0 to 1. */
  readonly share: number;
  readonly what: string;
}

/**
 * Returns which share of the last attempts failed: 1 if ten have failed since a job was last done, or one has and none was
 * done for a minute; otherwise the share of the last 5 minutes. Undefined if there were fewer than ten, and while the queue
 * is paused or nobody drains it. The only place that decides whether handlers fail.
 */
export function failing(snapshot: Snapshot, trend = trendOf(snapshot)): Failing | undefined {
  if (pausedUntil(snapshot) !== undefined || stalled(snapshot) !== undefined) return undefined;
  const failures = failuresInARow(snapshot);
  const first = failures ? snapshot.now - failures.since : 0;
  if (failures && first >= (failures.inARow >= ATTEMPTS ? BATCH_MS : QUIET_MS)) {
    const what = `${grouped(failures.inARow)} failed, none done for ${formatDuration(first)}`;
    return { share: 1, what: `${what}: ${kindsOf(failures)}` };
  }
  // Without a record of a job, none of those that failed is there any more.
  if (!trend || snapshot.meta === 0) return undefined;
  const times = (rate: number) => Math.round((rate * trend.spanMs) / 1_000);
  const failed = times(trend.retried + trend.dead);
  const attempts = failed + times(trend.out);
  if (attempts < ATTEMPTS) return undefined;
  const error = snapshot.failures?.error;
  const what = `${grouped(failed)} of ${many(attempts, 'attempt')} failed in ${formatDuration(trend.spanMs)}`;
  return { share: failed / attempts, what: error ? `${what}; the last: ${clipped(error)}` : what };
}

/** The failures since a job was last done, if they still say something, and one of their jobs may be there. */
export function failuresInARow({ failures, meta, now }: Snapshot): Failures | undefined {
  if (!failures?.inARow || meta === 0) return undefined;
  return now - Math.max(failures.at, failures.again) < RECENT_MS ? failures : undefined;
}

function kindsOf({ kinds, inARow }: Failures): string {
  const named = kinds.filter(({ kind }) => kind !== '*').slice(0, KINDS);
  const words = named.map(({ kind, count }) => {
    return `${clipped(kind || 'no error given')}${kinds.length > 1 ? ` (${grouped(count)})` : ''}`;
  });
  const others = inARow - named.reduce((total, { count }) => total + count, 0);
  return [...words, ...(others > 0 ? [`others (${grouped(others)})`] : [])].join(', ');
}

/** The first line of an error, so short that several fit into a line of text. */
function clipped(error: string): string {
  const [line = ''] = error.split('\n', 1);
  return line.length > 80 ? `${line.slice(0, 79).toWellFormed()}…` : line;
}

/**
 * Says, in words, that handlers hang: jobs are due, and none was done for a minute, or for three times as long as nearly all
 * take, although some run. Undefined: they do not.
 */
export function hanging(snapshot: Snapshot): string | undefined {
  const { due, now, held, active, runOut, samples } = snapshot;
  const consumers = consumersOf(snapshot);
  const moving = held.seen - consumers.reduce((total, { jobs }) => total + jobs, 0);
  const running = active - runOut - moving;
  const [oldest] = consumers.sort((a, b) => (a.since ?? now) - (b.since ?? now));
  const present = sampleOf(snapshot);
  const usual = durationAt(snapshot, 0.99);
  // Of jobs that were acked over HTTP or behind a pipe, it is not known how long they take.
  const limit = usual === undefined ? (present.done === 0 ? QUIET_MS : UNKNOWN_MS) : Math.max(QUIET_MS, 3 * usual);
  if (due === 0 || running <= 0 || !oldest || pausedUntil(snapshot) !== undefined) return undefined;
  const age = now - (oldest.since ?? now);
  const then = stateAt(samples, present, limit);
  // A state that was worked out lies within a minute in which something may have been done.
  if (age < limit || !then || now - then.at < limit || then.done < present.done) return undefined;
  const before = samples.findLastIndex(({ done }) => done < present.done);
  const next = now - (samples[before + 1]?.at ?? then.at);
  // The only one that runs was delivered after the last one was done.
  const quiet = running === 1 ? Math.max(next, age) : next;
  const who = oldest.by === '' ? '' : ` on ${oldest.by}`;
  const others = running === 1 ? '1 has been running' : `${grouped(running)} are running, the oldest`;
  return `no job done for ${formatDuration(quiet)}, ${others} for ${formatDuration(age)}${who}`;
}
