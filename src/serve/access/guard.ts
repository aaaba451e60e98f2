import { CLOCK, type Clock } from '../http/clock.js';
import { type Exchange, GONE } from '../http/exchange.js';
import { Refusal } from '../http/refusal.js';
import type { Pool } from '../queues/pool.js';
import { TokenCache } from './cache.js';
import { Failures, type Reason, type RefusalCounter } from './failures.js';
import { Limiter } from './limiter.js';
import type { Origin } from './origin.js';
import { hashOf, type Limits, type NewToken, type Token, Tokens } from './tokens.js';

/** The tokens of one pool. */
export class Keyring {
  readonly pool: Pool;
  readonly tokens: Tokens;
  readonly cache: TokenCache;
  readonly limiter: Limiter;
  /** How many tokens there were when Redis was asked last; undefined: it has not answered yet. */
  count: number | undefined;

  constructor(pool: Pool, clock: Clock) {
    this.pool = pool;
    this.tokens = new Tokens(pool.redis, pool.prefix);
    this.cache = new TokenCache(this.tokens, clock);
    this.limiter = new Limiter(pool.redis, pool.prefix);
  }

  /** Makes a token and returns its text. Throws what {@link Tokens.add} throws. */
  async add(ns: string, given: NewToken): Promise<string> {
    const text = await this.tokens.add(ns, given);
    this.cache.forget(hashOf(text));
    this.count = (this.count ?? 0) + 1;
    return text;
  }

  /** Removes a token: from this server's cache, too. */
  async remove(token: Token): Promise<void> {
    await this.tokens.remove(token);
    this.cache.forget(token.hash);
  }

  /** Sets the limits of a token, or removes them. Throws what {@link Tokens.limit} throws. */
  async limit(token: Token, limits: Limits | undefined): Promise<boolean> {
    const isThere = await this.tokens.limit(token, limits);
    this.cache.forget(token.hash);
    return isThere;
  }
}

/** A token that was accepted, and where it is from. */
export interface Holder {
  readonly ring: Keyring;
  readonly token: Token;
}

/** Identifies the tokens of requests, for both listeners. */
export class Guard {
  readonly rings: ReadonlyMap<string, Keyring>;
  readonly origin: Origin;
  readonly #first: Keyring;
  readonly #failures: Failures;
  readonly #refused: RefusalCounter;

  constructor(pools: ReadonlyMap<string, Pool>, origin: Origin, refused: RefusalCounter, clock: Clock = CLOCK) {
    this.#failures = new Failures(clock);
    this.rings = new Map([...pools].map(([name, pool]) => [name, new Keyring(pool, clock)]));
    [this.#first] = this.rings.values() as Iterable<Keyring> as [Keyring];
    this.origin = origin;
    this.#refused = refused;
  }

  /** Whether any pool has tokens; undefined: not all have answered yet. */
  get hasTokens(): boolean | undefined {
    let all: boolean | undefined = false;
    for (const { count } of this.rings.values()) {
      if (count === undefined) all = undefined;
      else if (count > 0) return true;
    }
    return all;
  }

  /** Splits `[pool:]token`. Throws a refusal (404) for an unknown pool. */
  ringOf(given: string): { ring: Keyring; text: string } {
    const colon = given.indexOf(':');
    if (colon < 0) return { ring: this.#first, text: given };
    const ring = this.rings.get(given.slice(0, colon));
    if (!ring) throw new Refusal(404, 'pool not found');
    return { ring, text: given.slice(colon + 1) };
  }

  /**
   * Finds the given token, synchronously if it is cached. Throws a refusal: 401 for a missing or invalid one, 429 if
   * the address has sent too many of those.
   */
  identify(exchange: Exchange, given: string): Holder | Promise<Holder> {
    const { ring, text } = this.ringOf(given);
    if (text === '') throw this.refuse(exchange, 'token', 401, 'token not found');
    const hash = hashOf(text);
    const token = ring.cache.get(hash);
    if (token) return { ring, token };
    const address = this.origin.addressOf(exchange);
    // A recently valid token is no guess.
    const blockedMs = ring.cache.wasKnown(hash) ? 0 : this.#failures.blockedMs(address, hash);
    const refusal = (waitMs: number) => this.refuse(exchange, 'address', 429, 'too many invalid tokens', waitMs);
    const invalid = () => (blockedMs > 0 ? refusal(blockedMs) : this.invalid(exchange, hash));
    if (token === null) throw invalid();
    // The token may be valid, and only new to this server: a few per second are looked up.
    if (blockedMs > 0 && !this.#failures.mayAsk(address, hash)) throw refusal(0);
    return ring.cache.ask(hash).then((found) => {
      if (!found) throw invalid();
      return { ring, token: found };
    });
  }

  /** The refusal of an invalid token, counted against its address. */
  invalid(exchange: Exchange, hash: string): Refusal {
    this.#failures.add(this.origin.addressOf(exchange), hash);
    return this.refuse(exchange, 'token', 401, 'invalid token');
  }

  /** A refusal, counted. `waitMs`: until another attempt makes sense. */
  refuse(exchange: Exchange, reason: Reason, status: number, error: string, waitMs?: number): Refusal {
    // The client has gone, and its address is unknown: it would be counted as one with a wrong Host.
    if (exchange.request.socket.remoteAddress === undefined) throw GONE;
    this.#refused.add(reason, this.origin.addressOf(exchange));
    if (waitMs === undefined) return new Refusal(status, error);
    // Never 0: clients then repeat the request at once.
    return new Refusal(status, error, { headers: { 'Retry-After': String(Math.max(1, Math.ceil(waitMs / 1000))) } });
  }
}
