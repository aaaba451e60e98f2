import { DelayqError } from './errors.js';
import { exactDuration, LONGEST_MS, parseDuration } from './time.js';

/**
 * How long a job waits after its first, second, … failure, ms, the last repeating; or `exponential`: 15 s, 1 min, 4 min,
 * 16 min, then 1 h, times a random 0.8 to 1.2. The formula is at home in lua/jobs/nack.lua, where the failures are known.
 */
export type Backoff = readonly number[] | 'exponential';

/** Reads a backoff such as `30s,1m,10m`, or `exponential`. Throws a `usage` error. */
export function parseBackoff(text: string): Backoff {
  return text === 'exponential' ? text : text.split(',').map((part) => parseDuration(part.trim()));
}

/** Returns `backoff` as text for the scripts. Throws a `usage` error when it is none. */
export function packBackoff(backoff: Backoff): string {
  if (backoff === 'exponential') return backoff;
  const good = backoff.length > 0 && backoff.every((ms) => ms >= 0 && ms <= LONGEST_MS);
  if (good) return backoff.map(Math.round).join(' ');
  throw new DelayqError('usage', 'the backoff cannot be used', {
    why: "it is a list of ms, or 'exponential'",
    next: 'give one or more waits, such as [30_000, 60_000, 600_000]',
  });
}

/** Reads what {@link packBackoff} wrote; undefined for anything else, which the scripts take for exponential. */
export function unpackBackoff(text: string): Backoff | undefined {
  return text === 'exponential' ? text : /^\d+( \d+)*$/.test(text) ? text.split(' ').map(Number) : undefined;
}

/** Writes a backoff as {@link parseBackoff} reads it. */
export function formatBackoff(backoff: Backoff): string {
  return backoff === 'exponential' ? backoff : backoff.map(exactDuration).join(',');
}
