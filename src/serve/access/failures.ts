import { type Clock, realClock } from '../../internal.js';
import type { Log } from '../http/log.js';
import { Recent } from './recent.js';

const MAX_ADDRESSES = 10_000;
const WINDOW_MS = 60_000;
const MAX_FAILURES = 10;

/** How many further tokens of a blocked address to look up per second: one of them may be valid. */
const MAX_ASKED = 10;
const ASKED_MS = 1_000;

/** The invalid tokens of an address in a minute. */
interface Seen {
  /** How many requests carried one. */
  count: number;
  /** Their hashes, at most as many as are allowed. */
  readonly hashes: Set<string>;
  readonly until: number;
  /** How many further tokens were looked up since this time, ms. */
  asked: number;
  since: number;
}

/** Counts the failures of each address: too many in a minute are guesses. */
export class Failures {
  readonly #addresses = new Recent<string, Seen>(MAX_ADDRESSES);
  readonly #clock: Clock;

  constructor(clock: Clock = realClock) {
    this.#clock = clock;
  }

  /**
   * How long an address is blocked for a token, ms; 0: it is not. A client that repeats an invalid token must not lock
   * out its neighbours: blocks tokens that failed here after ten failures, others only after ten different ones.
   */
  blockedMs(address: string, hash: string): number {
    const seen = this.#addresses.get(address);
    if (!seen || seen.count < MAX_FAILURES) return 0;
    const isBlocked = seen.hashes.has(hash) || seen.hashes.size >= MAX_FAILURES;
    return isBlocked ? Math.max(0, seen.until - this.#clock.now()) : 0;
  }

  /**
   * Whether to look up this token of a blocked address. Tokens that failed here do not count: they are few, and the
   * cache looks up each once a second at most.
   */
  mayAsk(address: string, hash: string): boolean {
    const seen = this.#addresses.get(address);
    if (!seen || seen.hashes.has(hash)) return true;
    const now = this.#clock.now();
    if (now - seen.since >= ASKED_MS) {
      seen.since = now;
      seen.asked = 0;
    }
    seen.asked += 1;
    return seen.asked <= MAX_ASKED;
  }

  add(address: string, hash: string): void {
    const now = this.#clock.now();
    let seen = this.#addresses.get(address);
    if (!seen || now >= seen.until) {
      seen = { count: 0, hashes: new Set(), until: now + WINDOW_MS, asked: 0, since: now };
      this.#addresses.set(address, seen);
    }
    seen.count += 1;
    if (seen.hashes.size < MAX_FAILURES) seen.hashes.add(hash);
  }
}

/** Why requests are refused, for metrics and the log. */
const REASONS = {
  token: 'their token is missing or invalid',
  right: 'their token lacks a right',
  limit: 'their token is over its limit',
  address: 'their address has sent too many invalid tokens',
  host: 'without a token their Host is not allowed, or a proxy or another site made them',
  connections: 'their connections were more than --max-connections',
} as const;
export type Reason = keyof typeof REASONS;

/** Counts rejected requests; logs them rate-limited. */
export class RefusalCounter {
  readonly counts = new Map<Reason, number>();
  readonly #log: Log;

  constructor(log: Log) {
    this.#log = log;
  }

  add(reason: Reason, address: string): void {
    this.counts.set(reason, (this.counts.get(reason) ?? 0) + 1);
    this.#log.sayThrottled(reason, (count) => {
      const requests = count === 1 ? '1 request' : `${count} requests`;
      return `refused ${requests}: ${REASONS[reason]}; the last from ${address}`;
    });
  }
}
