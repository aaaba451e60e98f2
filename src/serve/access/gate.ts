import { type Clock, realClock } from '../../internal.js';
import { type Exchange, GONE } from '../http/exchange.js';
import { Refusal, unavailable } from '../http/refusal.js';
import type { Pool } from '../queues/pool.js';
import { Failures, type Reason, type RefusalCounter } from './failures.js';
import type { Keyring } from './keyring.js';
import { isOfOtherSite, type Origin } from './origin.js';
import { allows, hashOf, type Right, type Side, type Token } from './tokens.js';

/** What a route needs. */
export interface Needed {
  /** What a token must allow; undefined: no token is needed. */
  readonly right?: Right;
  /** Which limit of its token a request counts against. */
  readonly counts?: Side;
}

/** A token that was accepted, and where it is from. */
interface Holder {
  readonly ring: Keyring;
  readonly token: Token;
}

/** The status of a success on each side: only successes count against a limit. */
const SUCCESS = { read: 200, write: 201 } as const;

/** Why a request without a token is refused as long as there is none, and what to do. */
const FORWARDED = 'a request that a proxy passes on needs a token: make one with delayq token add';
const NO_HOST = 'host not allowed: start delayq serve with --allow-host, or make a token with delayq token add';

/** Decides, in one place, who may use the listeners. */
export class Gate {
  /** The tokens of each pool by its name; the first is the default. */
  readonly rings: ReadonlyMap<string, Keyring>;
  /** Whether only this machine can reach a listener. */
  readonly isLocal = { API: false, admin: false };
  readonly #first: Keyring;
  readonly #origin: Origin;
  readonly #failures: Failures;
  readonly #refused: RefusalCounter;

  constructor(rings: ReadonlyMap<string, Keyring>, origin: Origin, refused: RefusalCounter, clock: Clock = realClock) {
    this.rings = rings;
    [this.#first] = rings.values() as Iterable<Keyring> as [Keyring];
    this.#origin = origin;
    this.#failures = new Failures(clock);
    this.#refused = refused;
  }

  /** The pool that the request is about. Throws a refusal (404) for an unknown one. */
  poolOf(exchange: Exchange, { right }: Needed): Pool {
    return this.#ringOf(right === undefined ? '' : tokenIn(exchange)).ring.pool;
  }

  /** The pool that the request may use: at once, if its token is cached and has no limits. Throws a refusal. */
  admit(exchange: Exchange, ns: string | undefined, { right, counts }: Needed): Pool | Promise<Pool> {
    if (right === undefined) return this.#first.pool;
    const given = tokenIn(exchange);
    if (!this.#hasTokens) return this.#open(exchange, given);
    const found = this.#identify(exchange, given);
    if (found instanceof Promise) return found.then((holder) => this.#check(exchange, holder, ns, right, counts));
    return this.#check(exchange, found, ns, right, counts);
  }

  /**
   * Lets an operator use the admin listener, for what concerns `ns`; undefined: all namespaces. Returns the one pool
   * that it may act on, that of its token; undefined: all pools. Throws a refusal.
   */
  async admitOperator(exchange: Exchange, ns: string | undefined): Promise<Keyring | undefined> {
    this.#refuseOtherSites(exchange);
    if (this.isLocal.admin && this.#origin.isLocal(exchange)) {
      exchange.admitted();
      return undefined;
    }
    const { ring, token } = await this.#identifyOperator(exchange);
    exchange.who = token.fingerprint;
    if (!allows(token, 'operate', ns)) throw this.#refuse(exchange, 'right', 403, 'the token does not allow this');
    exchange.admitted();
    return this.rings.size === 1 ? undefined : ring;
  }

  /** Whether any pool has tokens; undefined: not all have answered yet. */
  get #hasTokens(): boolean | undefined {
    let all: boolean | undefined = false;
    for (const { count } of this.rings.values()) {
      if (count === undefined) all = undefined;
      else if (count > 0) return true;
    }
    return all;
  }

  /** There is no token yet: programs on this machine need none. */
  #open(exchange: Exchange, given: string): Pool {
    const { ring } = this.#ringOf(given);
    if (this.#hasTokens === undefined) throw unavailable();
    if (!this.isLocal.API) throw this.#refuse(exchange, 'token', 401, 'token not found');
    if (!this.#origin.isLocal(exchange))
      throw this.#refuse(exchange, 'host', 403, this.#origin.isForwarded(exchange) ? FORWARDED : NO_HOST);
    this.#refuseOtherSites(exchange);
    exchange.admitted();
    return ring.pool;
  }

  #check(
    exchange: Exchange,
    { ring, token }: Holder,
    ns: string | undefined,
    right: Right,
    counts: Side | undefined,
  ): Pool | Promise<Pool> {
    exchange.who = token.fingerprint;
    if (!allows(token, right, ns)) {
      // A token for other namespaces must reveal nothing about this one.
      if (!token.rights.some((one) => allows(token, one, ns))) throw this.#invalid(exchange);
      throw this.#refuse(exchange, 'right', 403, 'the token does not allow this');
    }
    exchange.admitted();
    const { limits } = token;
    if (counts === undefined || !limits || limits[counts] === 0) return ring.pool;
    return ring.limiter.take(token, limits, counts).then(({ window, restMs }) => {
      if (window === undefined) throw this.#refuse(exchange, 'limit', 429, 'too many requests', restMs);
      exchange.onEnd((delivered) => {
        // A publish counts even if the answer was not delivered.
        const isUsed = exchange.status === SUCCESS[counts] && (delivered || counts === 'write');
        if (!isUsed) ring.limiter.giveBack(token, counts, window);
      });
      return ring.pool;
    });
  }

  /** Splits `[pool:]token`. Throws a refusal (404) for an unknown pool. */
  #ringOf(given: string): { ring: Keyring; text: string } {
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
  #identify(exchange: Exchange, given: string): Holder | Promise<Holder> {
    const { ring, text } = this.#ringOf(given);
    if (text === '') throw this.#refuse(exchange, 'token', 401, 'token not found');
    const hash = hashOf(text);
    const token = ring.cache.get(hash);
    if (token) return { ring, token };
    const address = this.#origin.addressOf(exchange);
    // A recently valid token is no guess.
    const blockedMs = ring.cache.wasKnown(hash) ? 0 : this.#failures.blockedMs(address);
    const blocked = (waitMs: number) => this.#refuse(exchange, 'address', 429, 'too many invalid tokens', waitMs);
    const invalid = () => (blockedMs > 0 ? blocked(blockedMs) : this.#invalid(exchange));
    if (token === null) throw invalid();
    // The token may be valid, and only new to this server: a few per second are looked up.
    if (blockedMs > 0 && !this.#failures.mayAsk(address)) throw blocked(0);
    return ring.cache.ask(hash).then((found) => {
      if (!found) throw invalid();
      return { ring, token: found };
    });
  }

  async #identifyOperator(exchange: Exchange): Promise<Holder> {
    try {
      return await this.#identify(exchange, exchange.header('x-token') || loginOf(exchange));
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 401) throw error;
      throw new Refusal(401, error.body, { headers: { 'WWW-Authenticate': 'Basic realm="delayq", charset="UTF-8"' } });
    }
  }

  #refuseOtherSites(exchange: Exchange): void {
    if (isOfOtherSite(exchange)) throw this.#refuse(exchange, 'host', 403, 'requests from other sites are not allowed');
  }

  /** The refusal of an invalid token, counted against its address. */
  #invalid(exchange: Exchange): Refusal {
    this.#failures.add(this.#origin.addressOf(exchange));
    return this.#refuse(exchange, 'token', 401, 'invalid token');
  }

  /** A refusal, counted. `waitMs`: until another attempt makes sense. */
  #refuse(exchange: Exchange, reason: Reason, status: number, error: string, waitMs?: number): Refusal {
    // The client has gone, and its address is unknown: it would be counted as one with a wrong Host.
    if (exchange.request.socket.remoteAddress === undefined) throw GONE;
    this.#refused.add(reason, this.#origin.addressOf(exchange));
    if (waitMs === undefined) return new Refusal(status, error);
    // Never 0: clients then repeat the request at once.
    return new Refusal(status, error, { headers: { 'Retry-After': String(Math.max(1, Math.ceil(waitMs / 1000))) } });
  }
}

const tokenIn = (exchange: Exchange) => exchange.header('x-token') || exchange.query.get('token') || '';

/** The token in `Authorization`: as Bearer, or as the password of Basic, or as its user if there is no password. */
function loginOf(exchange: Exchange): string {
  const [, scheme = '', value = ''] = /^(Bearer|Basic) +(\S+)$/i.exec(exchange.header('authorization') ?? '') ?? [];
  if (scheme.toLowerCase() !== 'basic') return value;
  const [, user = '', password = ''] = /^([^:]*):?(.*)$/s.exec(Buffer.from(value, 'base64').toString()) ?? [];
  return password || user;
}
