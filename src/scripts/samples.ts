import { time } from '../redis/replies.js';

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

/** Returns the samples in the hash `stats`, oldest first. Leaves out invalid ones. */
export function readSamples(stats: ReadonlyMap<string, string>): Sample[] {
  const samples: Sample[] = [];
  for (const [name, value] of stats) {
    if (!/^at:\d+$/.test(name)) continue;
    const words = value.split(' ');
    const [at, enqueued, delivered, done, retried, dead, due, , pending] = words.map(Number) as number[] &
      Record<0 | 1 | 2 | 3 | 4 | 5 | 6 | 8, number>;
    const counts = [at, enqueued, delivered, done, retried, dead, due, pending];
    if (words.length !== 9 || !counts.every((n) => Number.isSafeInteger(n) && n >= 0)) continue;
    const oldest = words[7] as string;
    const lag = due > 0 && oldest !== '-' ? Math.max(0, at - time(Buffer.from(oldest))) : 0;
    samples.push({ at, enqueued, delivered, done, retried, dead, due, lag, pending });
  }
  return samples.sort((a, b) => a.at - b.at);
}
