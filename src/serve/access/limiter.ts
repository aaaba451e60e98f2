import type { Connection, Reply } from '../../index.js';
import { Batcher } from '../queues/batcher.js';
import { usedKey } from './keys.js';
import { Recent } from './recent.js';
import type { Limits, Side, Token } from './tokens.js';

/**
 * Takes up to ARGV[2] of what is left of a limit (ARGV[3]) in its window, which begins with its first request and has
 * ARGV[4] ms; gives back if ARGV[2] is negative and the window is still that of ARGV[5]. Returns how much was taken, when
 * the window ends, and how long that is, ms. Atomic: between two calls a window might end. By Redis's clock: the windows
 * are those of all servers.
 */
const TAKE = `local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local used, till = string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '', '^(%d+) (%d+)$')
used, till = tonumber(used) or 0, tonumber(till) or 0
local want, most, window = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if want < 0 then
  if string.format('%.0f', till) ~= ARGV[5] then return {0, 0, 0} end
  used = math.max(0, used + want)
else
  -- After a step of the clock back, a window might last for years.
  if till <= now or till > now + window then used, till = 0, now + window end
  want = math.max(0, math.min(want, most - used))
  used = used + want
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %.0f', used, till))
return {want, string.format('%.0f', till), till - now}`;

/** What a request was allowed. */
export interface Granted {
  /** The window that it counts in; undefined: nothing was left. */
  readonly window: string | undefined;
  /** Until a new window begins, ms. */
  readonly restMs: number;
}

/** The most limits whose shared calls are kept ready. */
const MOST_KEPT = 1_000;

/** Counts requests against the limits of their tokens, over all servers. */
export class Limiter {
  readonly #redis: Connection;
  readonly #key: string;
  /** Calls that requests share, by what is counted. */
  readonly #batchers = new Recent<string, Batcher<Limits, Granted>>(MOST_KEPT);

  constructor(redis: Connection, prefix: string) {
    this.#redis = redis;
    this.#key = usedKey(prefix);
  }

  /** Counts a request. Throws what {@link Connection.call} throws. */
  take({ hash }: Token, limits: Limits, side: Side): Promise<Granted> {
    const field = `${hash}:${side}`;
    let batcher = this.#batchers.get(field);
    if (!batcher) {
      batcher = Batcher.of((asked) => this.#takeAll(field, side, asked));
      this.#batchers.set(field, batcher);
    }
    return batcher.add(limits);
  }

  async #takeAll(field: string, side: Side, asked: readonly Limits[]): Promise<Granted[]> {
    // They may have been changed meanwhile.
    const limits = asked.at(-1) as Limits;
    const [taken, window, rest] = await this.#call(field, asked.length, limits[side], limits.interval, '');
    return asked.map((_, i) => ({ window: i < Number(taken) ? String(window) : undefined, restMs: Number(rest) }));
  }

  /** Gives back what a request has not used: it was refused, or found no job. Best effort. */
  giveBack({ hash }: Token, side: Side, window: string): void {
    this.#call(`${hash}:${side}`, -1, 0, 0, window).catch(() => {});
  }

  async #call(field: string, n: number, most: number, seconds: number, window: string): Promise<Reply[]> {
    return (await this.#redis.call('EVAL', TAKE, 1, this.#key, field, n, most, seconds * 1000, window)) as Reply[];
  }
}
