import type { Sample } from '../scripts/samples.js';

/*
 * How a queue moves: what its samples, taken about once a minute by the scripts, tell beyond the counts of a moment.
 */

/** How a queue moves. Rates are jobs a second. */
export interface Trend {
  /** What the rates are drawn from: the time from then until now, ms. */
  readonly spanMs: number;
  readonly in: number;
  /** Done: acked, or removed as they were taken. */
  readonly out: number;
  readonly delivered: number;
  readonly retried: number;
  readonly dead: number;
  /** How much longer the lag gets in a ms: 1 when nothing is taken, 0 when it stays, less when it falls. */
  readonly lag: number;
  /** How many more jobs are due after a second. */
  readonly due: number;
  /** When nothing will be due any more, at the pace of the last minute: ms from now. Undefined: not at this pace. */
  readonly emptyInMs: number | undefined;
}

/** Rates are told over so long, ms: long enough for queues that cron drains once a minute. */
const RATES_MS = 5 * 60_000;

/** Where it goes is told by so long, ms: whoever has just mended something wants to see it. */
const COURSE_MS = 60_000;

/** Less than this tells nothing, ms. */
const LEAST_MS = 10_000;

/**
 * How a queue that stands as `now` moves, by its samples (the oldest first). Where it goes is told from `from` on, if the
 * caller has seen that itself, else by the last minute. Undefined when the queue is too young to tell.
 * Samples are taken only when jobs come, are taken or done: where none is, all counters stood still.
 */
export function trend(samples: readonly Sample[], now: Sample, from?: Sample): Trend | undefined {
  // Counters that somebody removed: what was before does not compare.
  const comparable = samples.filter((sample) => upTo(sample, now));
  // A clock that went back: what was before its jump is further away than it says.
  const ahead = comparable.filter(({ at }) => at > now.at);
  const past = comparable.filter((sample) => sample.at <= now.at && ahead.every((later) => upTo(later, sample)));
  const rates = standing(past, now, RATES_MS);
  if (!rates) return undefined;
  // Of a pace that began within the last minute, nothing but that pace counts.
  const begun = past.find(({ at }) => at > now.at - COURSE_MS);
  const before = standing(past, now, COURSE_MS) ?? rates;
  const seen = from && now.at - from.at >= LEAST_MS ? from : undefined;
  const course = seen ?? (begun && now.at - begun.at >= LEAST_MS && before.at === now.at - COURSE_MS ? begun : before);
  const spanMs = now.at - rates.at;
  const perSecond = (name: (typeof COUNTERS)[number]) => ((now[name] - rates[name]) / spanMs) * 1_000;
  const fallen = course.due - now.due;
  // As many as chance alone brings more or less of tell nothing: a queue that is kept at its length does not catch up.
  const newcomers = Math.max(0, now.delivered - course.delivered - fallen);
  const falls = fallen > 2 * Math.sqrt(newcomers);
  return {
    spanMs,
    in: perSecond('enqueued'),
    out: perSecond('done'),
    delivered: perSecond('delivered'),
    retried: perSecond('retried'),
    dead: perSecond('dead'),
    lag: (now.lag - course.lag) / (now.at - course.at),
    due: (-fallen / (now.at - course.at)) * 1_000,
    emptyInMs: now.due > 0 && falls ? (now.due / fallen) * (now.at - course.at) : undefined,
  };
}

const COUNTERS = ['enqueued', 'delivered', 'done', 'retried', 'dead'] as const;

/** Whether no counter of `a` is beyond that of `b`. */
function upTo(a: Sample, b: Sample): boolean {
  return COUNTERS.every((name) => a[name] <= b[name]);
}

/** How the queue stood `ms` before `now` or within a minute of that, or, when it is younger, at its beginning. */
function standing(samples: readonly Sample[], now: Sample, ms: number): Sample | undefined {
  const edge = now.at - ms;
  const before = samples.findLast(({ at }) => at <= edge);
  const after = samples.find(({ at }) => at > edge);
  if (!before) return after && now.at - after.at >= LEAST_MS ? after : undefined;
  // The minute that it speaks for has gone on beyond the edge.
  if (Math.floor(before.at / 60_000) === Math.floor(edge / 60_000)) return before;
  // Nothing was done from the end of that minute to the next sample, so all stood as it stands there.
  const next = after ?? now;
  return { ...next, at: edge, lag: next.lag > 0 ? Math.max(0, edge - (next.at - next.lag)) : 0 };
}
