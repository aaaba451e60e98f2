import { type Clock, DelayqError, isPassing, realClock } from '../../internal.js';
import type { Pool } from '../queues/pool.js';
import { TokenCache } from './cache.js';
import { Limiter } from './limiter.js';
import { hashOf, type Limits, type NewToken, type Token, Tokens } from './tokens.js';

/** How often to ask Redis for the number of tokens, ms: once there is one, all requests need one. */
const LOOK_MS = 5_000;

/** How often to ask a Redis that does not answer, ms: until it does, the server refuses its requests. */
const LOOK_AGAIN_MS = 250;

/** The tokens of one pool. */
export class Keyring {
  readonly pool: Pool;
  readonly tokens: Tokens;
  readonly cache: TokenCache;
  readonly limiter: Limiter;
  readonly #clock: Clock;
  /** How many tokens there were when Redis was asked last; undefined: it has not answered yet. */
  #count: number | undefined;
  /** Whether Redis answered when it was asked last. */
  #isUp = true;
  #cancelLook = () => {};
  #isStopped = false;

  constructor(pool: Pool, clock: Clock = realClock) {
    this.pool = pool;
    this.tokens = new Tokens(pool.redis, pool.prefix);
    this.cache = new TokenCache(this.tokens, clock);
    this.limiter = new Limiter(pool.redis, pool.prefix);
    this.#clock = clock;
  }

  get count(): number | undefined {
    return this.#count;
  }

  get isUp(): boolean {
    return this.#isUp;
  }

  /** Makes a token and returns its text. Throws what {@link Tokens.add} throws. */
  async add(ns: string, given: NewToken): Promise<string> {
    const text = await this.tokens.add(ns, given);
    this.cache.forget(hashOf(text));
    this.#count = (this.#count ?? 0) + 1;
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

  /**
   * Asks Redis whether it answers, and how many tokens it has: once, and then at intervals. Throws if Redis answers
   * that it cannot be used: `refused` or `config`. `say` logs when Redis stops to answer, and when it is back.
   */
  async watch(say: (text: string) => void): Promise<void> {
    await this.#look(say, true);
    const lookLater = () => {
      const look = () => void this.#look(say, false).finally(() => this.#isStopped || lookLater());
      this.#cancelLook = this.#clock.after(this.#isUp ? LOOK_MS : LOOK_AGAIN_MS, look, { ref: false });
    };
    lookLater();
  }

  stopWatching(): void {
    this.#isStopped = true;
    this.#cancelLook();
  }

  async #look(say: (text: string) => void, isFirst: boolean): Promise<void> {
    const { name } = this.pool;
    try {
      this.#count = await this.tokens.count();
      if (!this.#isUp) say(`pool ${name}: Redis is back`);
      this.#isUp = true;
    } catch (error) {
      if (!(error instanceof DelayqError) || (isFirst && !isPassing(error))) throw error;
      if (!this.#isUp || this.#isStopped) return;
      this.#isUp = false;
      const why = error.why ? ` (${error.why})` : '';
      say(`pool ${name}: ${error.what}${why}; its requests get ${isPassing(error) ? 503 : 500} until it answers`);
    }
  }
}
