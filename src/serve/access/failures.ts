import { CLOCK, type Clock } from '../http/clock.js';
import type { Log } from '../http/log.js';
import { Recent } from './recent.js';

const MAX_ADDRESSES = 10_000;
const WINDOW_MS = 60_000;
const MAX_FAILURES = 10;

/** How many further tokens of an address that has no attempt left are looked for in a second: one of them may be good. */
const MAX_ASKED = 10;
const ASKED_MS = 1_000;

/** The invalid tokens of an address in a minute. */
interface Seen {
  /** How many requests carried one. */
  count: number;
  /** Their hashes, at most as many as are allowed. */
  readonly hashes: Set<string>;
  readonly until: number;
  /** How many further tokens were looked for since this time, ms. */
  asked: number;
  since: number;
}

/** Counts the failures of each address: whoever has too many in a minute is guessing. */
export class Failures {
  readonly #addresses = new Recent<string, Seen>(MAX_ADDRESSES);
  readonly #clock: Clock;

  constructor(clock: Clock = CLOCK) {
    this.#clock = clock;
  }

  /**
   * How long an address has no further attempt with a token, ms; 0: it has one. One client that goes on with an invalid
   * token must not lock out its neighbours: tokens that failed here are refused after ten failures, others only after ten
   * different ones.
   */
  blockedMs(address: string, hash: string): number {
    const seen = this.#addresses.get(address);
    if (!seen || seen.count < MAX_FAILURES) return 0;
    const isBlocked = seen.hashes.has(hash) || seen.hashes.size >= MAX_FAILURES;
    return isBlocked ? Math.max(0, seen.until - this.#clock.now()) : 0;
  }

  /**
   * Whether this token of an address that has no attempt left may be looked for. Those that failed here do not count:
   * they are few, and each is asked for once a second at most.
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
