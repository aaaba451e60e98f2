import { DelayqError } from './errors.js';
import { exactDuration, LONGEST_MS, parseDuration } from './time.js';

/**
 * How long a job waits after its first, second, … failure, ms; the last value repeats. `exponential` means 15 s, 1 min,
 * 4 min, 16 min, then 1 h, each multiplied by a random factor from 0.8 to 1.2. lua/jobs/nack.lua computes it, because
 * only Redis knows the number of failures.
 */
export type Backoff = readonly number[] | 'exponential';

/** Parses a backoff such as `30s,1m,10m`, or `exponential`. Throws `usage` if the text is neither. */
export function parseBackoff(text: string): Backoff {
  return text === 'exponential' ? text : text.split(',').map((part) => parseDuration(part.trim()));
}

/** Returns `backoff` in the form that the scripts read. Throws `usage` if it is empty or has an invalid wait. */
export function packBackoff(backoff: Backoff): string {
  if (backoff === 'exponential') return backoff;
  const good = backoff.length > 0 && backoff.every((ms) => ms >= 0 && ms <= LONGEST_MS);
  if (good) return backoff.map(Math.round).join(' ');
  throw new DelayqError('usage', 'invalid backoff', {
    why: "it must be a list of waits in ms, or 'exponential'",
    next: 'give one or more waits, such as [30_000, 60_000, 600_000]',
  });
}

/** Reads what {@link packBackoff} wrote. Undefined for any other text; the scripts then use the exponential backoff. */
export function unpackBackoff(text: string): Backoff | undefined {
  return text === 'exponential' ? text : /^\d+( \d+)*$/.test(text) ? text.split(' ').map(Number) : undefined;
}

/** Formats a backoff so that {@link parseBackoff} can read it. */
export function formatBackoff(backoff: Backoff): string {
  return backoff === 'exponential' ? backoff : backoff.map(exactDuration).join(',');
}
