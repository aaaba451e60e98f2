import { time } from './replies.js';

/**
 * The state of a queue at one moment, stored about once a minute; Redis keeps the last sixteen. Counters count from the
 * queue's beginning and exclude the call that took the sample. Times are ms by Redis's clock.
 */
export interface Sample {
  readonly at: number;
  readonly enqueued: number;
  readonly delivered: number;
  /** Acked, or removed on delivery. */
  readonly done: number;
  readonly retried: number;
  readonly dead: number;
  /** Pending jobs that were due. */
  readonly due: number;
  /** How long the first pending job had been due, ms; 0 if none was due. */
  readonly lag: number;
  readonly pending: number;
}

const COUNTS = ['enqueued', 'delivered', 'done', 'retried', 'dead', 'due', 'pending'] as const;

/** Returns the samples in the hash `stats`, oldest first. Leaves out invalid ones. */
export function readSamples(stats: ReadonlyMap<string, string>): Sample[] {
  const samples: Sample[] = [];
  for (const [name, value] of stats) {
    if (!/^at:\d+$/.test(name)) continue;
    const words = value.split(' ');
    const [oldest = ''] = words.splice(7, 1);
    const [at = 0, ...numbers] = words.map(Number);
    if (words.length !== 8 || ![at, ...numbers].every((n) => Number.isSafeInteger(n) && n >= 0)) continue;
    const counts = countsOf((_, i) => numbers[i] as number);
    const lag = counts.due > 0 && oldest !== '-' ? Math.max(0, at - time(Buffer.from(oldest))) : 0;
    samples.push({ at, ...counts, lag });
  }
  return samples.sort((a, b) => a.at - b.at);
}

const countsOf = (of: (name: (typeof COUNTS)[number], i: number) => number) =>
  Object.fromEntries(COUNTS.map((name, i) => [name, of(name, i)])) as Pick<Sample, (typeof COUNTS)[number]>;

/** The shortest time that says anything, ms. */
export const LEAST_MS = 10_000;

/** The state of the queue `ms` before `now`, to the minute, or its first state if it is younger. */
export function stateAt(samples: readonly Sample[], now: Sample, ms: number): Sample | undefined {
  const edge = now.at - ms;
  const before = samples.findLast(({ at }) => at <= edge);
  const after = samples.find(({ at }) => at > edge);
  if (!before) return after && now.at - after.at >= LEAST_MS ? after : undefined;
  // The edge is within the minute of this sample.
  if (Math.floor(before.at / 60_000) === Math.floor(edge / 60_000)) return before;
  // Nothing was enqueued or taken from the end of that minute to the next sample, so take the state of the next one.
  const next = after ?? now;
  const done = before.done + ((next.done - before.done) * (edge - before.at)) / (next.at - before.at);
  return { ...next, at: edge, done, lag: next.lag > 0 ? Math.max(0, edge - (next.at - next.lag)) : 0 };
}

/** The samples of one partition, and its present state. */
interface Past {
  readonly samples: readonly Sample[];
  readonly now: Sample;
}

/**
 * Returns the samples of a queue from those of its partitions: one for each minute in which one of them has one. Leaves out
 * minutes that are too long ago for another to remember them.
 */
export function mergeSamples(all: readonly Past[]): Sample[] {
  const present = Math.min(...all.map(({ now }) => now.at));
  const times = new Map<number, number>();
  for (const { at } of all.flatMap(({ samples }) => samples)) {
    const minute = Math.floor(at / 60_000);
    if (at <= present) times.set(minute, Math.min(at, times.get(minute) ?? at));
  }
  const merged: Sample[] = [];
  for (const at of [...times.values()].sort((a, b) => a - b)) {
    const states = all.map((past) => stateOf(past, at));
    if (!states.includes(undefined)) merged.push((states as Sample[]).reduce((a, b) => ({ ...add(a, b), at })));
  }
  return merged;
}

/** The state of a partition at a time, ms; undefined if that is not known. */
function stateOf({ samples, now }: Past, at: number): Sample | undefined {
  const first = samples[0] ?? now;
  if (at >= first.at) return stateAt(samples, now, now.at - at);
  const isNew = first.enqueued + first.delivered + first.done + first.retried + first.dead === 0;
  return isNew ? { ...first, at, due: 0, lag: 0, pending: 0 } : undefined;
}

const add = (a: Sample, b: Sample): Sample => {
  return { at: a.at, ...countsOf((name) => a[name] + b[name]), lag: Math.max(a.lag, b.lag) };
};
