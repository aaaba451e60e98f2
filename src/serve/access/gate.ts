import type { Exchange } from '../http/exchange.js';
import { Refusal, unavailable } from '../http/refusal.js';
import type { Pool } from '../queues/pool.js';
import type { Guard, Holder, Keyring } from './guard.js';
import { isOfOtherSite } from './origin.js';
import { allows, type Right, type Side } from './tokens.js';

export type { Right } from './tokens.js';

/** What a route needs. */
export interface Needed {
  /** What a token must allow; undefined: no token is needed. */
  readonly right?: Right;
  /** Which limit of its token a request counts against. */
  readonly counts?: Side;
}

/** The status of a success on each side: only successes count against a limit. */
const SUCCESS = { read: 200, write: 201 } as const;

/** Why a request without a token is refused as long as there is none, and what to do. */
const FORWARDED = 'a request that a proxy passes on needs a token: make one with delayq token add';
const NO_HOST = 'host not allowed: start delayq serve with --allow-host, or make a token with delayq token add';

/** Decides, in one place, who may use a listener. */
export class Gate {
  readonly #guard: Guard;
  readonly #isLocal: boolean;

  /** `isLocal`: the listener is on loopback. */
  constructor(guard: Guard, isLocal: boolean) {
    this.#guard = guard;
    this.#isLocal = isLocal;
  }

  /** The pool that the request is about. Throws a refusal (404) for an unknown one. */
  poolOf(exchange: Exchange, { right }: Needed): Pool {
    return this.#guard.ringOf(right === undefined ? '' : tokenIn(exchange)).ring.pool;
  }

  /** The pool that the request may use: at once, if its token is cached and has no limits. Throws a refusal. */
  admit(exchange: Exchange, ns: string | undefined, { right, counts }: Needed): Pool | Promise<Pool> {
    const guard = this.#guard;
    if (right === undefined) return this.poolOf(exchange, {});
    const given = tokenIn(exchange);
    if (!guard.hasTokens) return this.#open(exchange, given);
    const found = guard.identify(exchange, given);
    if (found instanceof Promise) return found.then((holder) => this.#check(exchange, holder, ns, right, counts));
    return this.#check(exchange, found, ns, right, counts);
  }

  /** There is no token yet: programs on this machine need none. */
  #open(exchange: Exchange, given: string): Pool {
    const guard = this.#guard;
    const { ring } = guard.ringOf(given);
    if (guard.hasTokens === undefined) throw unavailable();
    if (!this.#isLocal) throw guard.refuse(exchange, 'token', 401, 'token not found');
    if (!guard.origin.isLocal(exchange))
      throw guard.refuse(exchange, 'host', 403, guard.origin.isForwarded(exchange) ? FORWARDED : NO_HOST);
    refuseOtherSites(guard, exchange);
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
      if (!token.rights.some((one) => allows(token, one, ns))) throw this.#guard.invalid(exchange, token.hash);
      throw this.#guard.refuse(exchange, 'right', 403, 'the token does not allow this');
    }
    exchange.admitted();
    const { limits } = token;
    if (counts === undefined || !limits || limits[counts] === 0) return ring.pool;
    return ring.limiter.take(token, limits, counts).then(({ window, restMs }) => {
      if (window === undefined) throw this.#guard.refuse(exchange, 'limit', 429, 'too many requests', restMs);
      exchange.onEnd((delivered) => {
        // A publish counts even if the answer was not delivered.
        const isUsed = exchange.status === SUCCESS[counts] && (delivered || counts === 'write');
        if (!isUsed) ring.limiter.giveBack(token, counts, window);
      });
      return ring.pool;
    });
  }

  /**
   * Lets an operator use the admin listener, for what concerns `ns`; undefined: all namespaces. Returns the one pool
   * that it may act on, that of its token; undefined: all pools. Throws a refusal.
   */
  async admitOperator(exchange: Exchange, ns: string | undefined): Promise<Keyring | undefined> {
    const guard = this.#guard;
    refuseOtherSites(guard, exchange);
    if (this.#isLocal && guard.origin.isLocal(exchange)) {
      exchange.admitted();
      return undefined;
    }
    const { ring, token } = await this.#identify(exchange);
    exchange.who = token.fingerprint;
    if (!allows(token, 'operate', ns)) throw guard.refuse(exchange, 'right', 403, 'the token does not allow this');
    exchange.admitted();
    return guard.rings.size === 1 ? undefined : ring;
  }

  async #identify(exchange: Exchange): Promise<Holder> {
    try {
      return await this.#guard.identify(exchange, exchange.header('x-token') || loginOf(exchange));
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 401) throw error;
      throw new Refusal(401, error.body, { headers: { 'WWW-Authenticate': 'Basic realm="delayq", charset="UTF-8"' } });
    }
  }
}

const tokenIn = (exchange: Exchange) => exchange.header('x-token') || exchange.query.get('token') || '';

function refuseOtherSites(guard: Guard, exchange: Exchange): void {
  if (isOfOtherSite(exchange)) throw guard.refuse(exchange, 'host', 403, 'requests from other sites are not allowed');
}

/** The token in `Authorization`: as Bearer, or as the password of Basic, or as its user if there is no password. */
function loginOf(exchange: Exchange): string {
  const [, scheme = '', value = ''] = /^(Bearer|Basic) +(\S+)$/i.exec(exchange.header('authorization') ?? '') ?? [];
  if (scheme.toLowerCase() !== 'basic') return value;
  const [, user = '', password = ''] = /^([^:]*):?(.*)$/s.exec(Buffer.from(value, 'base64').toString()) ?? [];
  return password || user;
}
