import type { Connection, Reply } from '../redis/connection.js';
import { pairs, text } from './replies.js';
import { run } from './script.js';

/** What was taken of a limit. */
export interface TakenOfLimit {
  readonly count: number;
  /** The end of the window, which names it. */
  readonly window: string;
  /** Until then, ms. */
  readonly restMs: number;
}

/**
 * The tokens of `delayq serve` in one Redis, each as a record under its SHA-256, and how much of their limits is used.
 * The braces of a queue's keys are missing in these: no queue has such a key.
 */
export class TokenStore {
  readonly #redis: Connection;
  /** hash: SHA-256 of a token → its record. */
  readonly #tokens: string;
  /** hash: SHA-256 of a token and the side of a limit → how much of it is used, and until when that counts, ms. */
  readonly #used: string;

  constructor(redis: Connection, prefix: string) {
    this.#redis = redis;
    this.#tokens = `${prefix}:http:tokens`;
    this.#used = `${prefix}:http:used`;
  }

  /** The time of Redis's clock, ms. */
  now(): Promise<number> {
    return this.#redis.now();
  }

  async get(hash: string): Promise<string | undefined> {
    const record = await this.#redis.call('HGET', this.#tokens, hash);
    return record === null ? undefined : text(record);
  }

  /** All hashes and records. */
  async all(): Promise<[hash: string, record: string][]> {
    return pairs(await this.#redis.call('HGETALL', this.#tokens));
  }

  async count(): Promise<number> {
    return Number(await this.#redis.call('HLEN', this.#tokens));
  }

  /** Stores a record in place of `before`; undefined: there is none. Returns false if the present one is another. */
  async put(hash: string, before: string | undefined, record: string): Promise<boolean> {
    const args = [hash, before ?? '', record];
    return (await run<Reply>(this.#redis, 'http/put', undefined, args, [this.#tokens])) === 1;
  }

  /** Removes a token, and what is used of its limits. */
  async remove(hash: string, sides: readonly string[]): Promise<void> {
    await this.#redis.call('HDEL', this.#tokens, hash);
    await this.#redis.call('HDEL', this.#used, ...sides.map((side) => `${hash}:${side}`));
  }

  /** Takes up to `count` of what is left of a limit in its window. */
  async takeOfLimit(
    hash: string,
    side: string,
    { count, limit, windowMs }: { readonly count: number; readonly limit: number; readonly windowMs: number },
  ): Promise<TakenOfLimit> {
    const args = [`${hash}:${side}`, count, limit, windowMs, ''];
    const [taken, window, rest] = await run(this.#redis, 'http/take', undefined, args, [this.#used]);
    return { count: Number(taken), window: String(window), restMs: Number(rest) };
  }

  /** Gives one back to a limit, unless its window is over. */
  async giveBackToLimit(hash: string, side: string, window: string): Promise<void> {
    await run(this.#redis, 'http/take', undefined, [`${hash}:${side}`, -1, 0, 0, window], [this.#used]);
  }
}
