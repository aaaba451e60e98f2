import type { Caller, Reply } from '../redis/connection.js';
import { run } from './script.js';

/** What was taken of a limit. */
export interface TakenOfLimit {
  readonly count: number;
  /** The end of the window, which names it. */
  readonly window: string;
  /** Until then, ms. */
  readonly restMs: number;
}

/** Takes up to `count` of what is left of a limit, a field of the hash at `key`, in its window. */
export async function takeOfLimit(
  redis: Caller,
  key: string,
  field: string,
  { count, limit, windowMs }: { readonly count: number; readonly limit: number; readonly windowMs: number },
): Promise<TakenOfLimit> {
  const [taken, window, rest] = await run(redis, 'http/take', undefined, [field, count, limit, windowMs, ''], [key]);
  return { count: Number(taken), window: String(window), restMs: Number(rest) };
}

/** Gives one back to a limit, unless its window is over. */
export async function giveBackToLimit(redis: Caller, key: string, field: string, window: string): Promise<void> {
  await run(redis, 'http/take', undefined, [field, -1, 0, 0, window], [key]);
}

/**
 * Sets a field of the hash at `key` that is still `before`; undefined: that is not there. Returns false if it is
 * something else.
 */
export async function putField(
  redis: Caller,
  key: string,
  field: string,
  before: string | undefined,
  value: string,
): Promise<boolean> {
  return (await run<Reply>(redis, 'http/put', undefined, [field, before ?? '', value], [key])) === 1;
}
