import { type Clock, realClock } from '../../internal.js';
import type { Log } from '../http/log.js';
import { Recent } from './recent.js';

const MAX_ADDRESSES = 10_000;
const WINDOW_MS = 60_000;
const MAX_FAILURES = 10;

/** How many tokens of a blocked address to look up per second: one of them may be valid. */
const MAX_ASKED = 10;
const ASKED_MS = 1_000;

/** What an address has sent in a minute. */
interface Seen {
  /** How many requests had an invalid token. */
  count: number;
  readonly until: number;
  /** How many tokens were looked up since this time, ms, while it was blocked. */
  asked: number;
  since: number;
}

/** Counts the invalid tokens of each address: too many in a minute are guesses. */
export class Failures {
  readonly #addresses = new Recent<string, Seen>(MAX_ADDRESSES);
  readonly #clock: Clock;

  constructor(clock: Clock = realClock) {
    this.#clock = clock;
  }

  /** How long an address is blocked, ms; 0: it is not. */
  blockedMs(address: string): number {
    const seen = this.#addresses.get(address);
    return seen && seen.count >= MAX_FAILURES ? Math.max(0, seen.until - this.#clock.now()) : 0;
  }

  /**
   * Whether to look up a token of a blocked address: a client that repeats an invalid token must not lock out its
   * neighbours.
   */
  mayAsk(address: string): boolean {
    const seen = this.#addresses.get(address);
    if (!seen) return true;
    const now = this.#clock.now();
    if (now - seen.since >= ASKED_MS) {
      seen.since = now;
      seen.asked = 0;
    }
    seen.asked += 1;
    return seen.asked <= MAX_ASKED;
  }

  add(address: string): void {
    const now = this.#clock.now();
    const seen = this.#addresses.get(address);
    if (seen && now < seen.until) seen.count += 1;
    else this.#addresses.set(address, { count: 1, until: now + WINDOW_MS, asked: 0, since: now });
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
