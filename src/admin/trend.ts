import { type Snapshot, sampleOf } from '../store/inspect.js';
import { LEAST_MS, type Sample, stateAt } from '../store/samples.js';

/** How a queue changes. Rates are jobs per second. */
export interface Trend {
  /** The time that the rates cover, up to now, ms. */
  readonly spanMs: number;
  /** Jobs enqueued. */
  readonly in: number;
  /** Jobs done: acked, or removed as they were taken. */
  readonly out: number;
  readonly delivered: number;
  readonly retried: number;
  readonly dead: number;
  /** Growth of the lag, ms per ms: 1 if nothing is taken, 0 if it is steady, negative if it falls. */
  readonly lag: number;
  /** Growth of the number of due jobs, per second. */
  readonly due: number;
  /**
   * When no job will be due any more, at the pace of the last minute, ms from now. Undefined: never at this pace, or more
   * attempts fail than succeed, so that most jobs only wait for another try.
   */
  readonly emptyInMs: number | undefined;
}

/** The time that rates cover, ms: long enough for queues that cron drains once a minute. */
const RATES_MS = 5 * 60_000;

/** The time that the growth of lag and due jobs covers, ms: short, so that the effect of a repair shows soon. */
const COURSE_MS = 60_000;

/**
 * Returns the trend of a queue, from the samples in its snapshot and its present state `now` (see {@link sampleOf}).
 * Growth is measured since `from`, an earlier state that the caller has seen, or else over the last minute. Returns
 * undefined if the queue is too young. Samples are taken only when jobs are enqueued or taken: jobs that were done
 * between two samples count as spread evenly.
 */
export function trend(samples: readonly Sample[], now: Sample, from?: Sample): Trend | undefined {
  // If the counters were removed, samples from before that do not compare.
  const comparable = samples.filter((sample) => upTo(sample, now));
  // If the clock went back, samples from before that are older than they seem.
  const ahead = comparable.filter(({ at }) => at > now.at);
  const past = comparable.filter((sample) => sample.at <= now.at && ahead.every((later) => upTo(later, sample)));
  const rates = stateAt(past, now, RATES_MS);
  if (!rates) return undefined;
  // A pace that began within the last minute is measured from its beginning.
  const begun = past.find(({ at }) => at > now.at - COURSE_MS);
  const before = stateAt(past, now, COURSE_MS) ?? rates;
  const seen = from && now.at - from.at >= LEAST_MS ? from : undefined;
  const course = seen ?? (begun && now.at - begun.at >= LEAST_MS && before.at === now.at - COURSE_MS ? begun : before);
  const spanMs = now.at - rates.at;
  const perSecond = (name: (typeof COUNTERS)[number]) => ((now[name] - rates[name]) / spanMs) * 1_000;
  const fallen = course.due - now.due;
  // Ignore a fall that chance explains: otherwise a queue of constant length would seem to catch up.
  const newcomers = Math.max(0, now.delivered - course.delivered - fallen);
  const since = (...names: (typeof COUNTERS)[number][]) =>
    names.reduce((total, name) => total + now[name] - course[name], 0);
  const falls = fallen > 2 * Math.sqrt(newcomers) && since('retried', 'dead') <= since('done');
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

/** The trend of a queue by its snapshot alone. */
export const trendOf = (snapshot: Snapshot): Trend | undefined => trend(snapshot.samples, sampleOf(snapshot));

const COUNTERS = ['enqueued', 'delivered', 'done', 'retried', 'dead'] as const;

/** Whether no counter of `a` is beyond that of `b`. */
function upTo(a: Sample, b: Sample): boolean {
  return COUNTERS.every((name) => a[name] <= b[name]);
}
