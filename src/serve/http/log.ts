import { type Clock, isDelayqError, realClock } from '../../internal.js';
import type { Exchange } from './exchange.js';

/** Logs one message of a kind in this time, ms. */
const INTERVAL_MS = 10_000;

/** What has happened since the last message of a kind, and how to log the last of it. */
interface Pending {
  count: number;
  log: (count: number) => void;
}

/** Which requests are logged: all, those that failed here (5xx), or none. */
export type LogLevel = 'all' | 'errors' | 'none';

/** Writes events and requests, a line each; bugs with their stack. Never a query, a token, a payload, or a job's id. */
export class Log {
  readonly #write: (line: string) => boolean;
  readonly #level: LogLevel;
  readonly #clock: Clock;
  readonly #pending = new Map<string, Pending>();

  /** `write` may drop lines while their reader is slow: requests must not wait for a log. */
  constructor(write: (line: string) => boolean, level: LogLevel, clock: Clock = realClock) {
    this.#write = write;
    this.#level = level;
    this.#clock = clock;
  }

  say(text: string): void {
    this.#write(`delayq serve: ${text}\n`);
  }

  /** Logs the first of a kind at once, and then every 10 s how many there were. */
  sayThrottled(kind: string, text: (count: number) => string): void {
    this.#throttle(kind, (count) => this.say(text(count)));
  }

  /** Logs a request that has ended; at level errors, one of those that fail for the same cause every 10 s. */
  request(exchange: Exchange, delivered: boolean): void {
    if (this.#level === 'none' || (this.#level === 'errors' && exchange.status < 500)) return;
    const ms = (performance.now() - exchange.since).toFixed(1);
    const status = delivered ? exchange.status : 'gone';
    const { method, route, who, id, cause } = exchange;
    const line = `${new Date().toISOString()} ${method} ${route} ${status} ${ms}ms ${who} ${id}${reasonOf(cause)}`;
    const log = (count: number) => this.#write(`${line}${count > 1 ? ` (and ${count - 1} more like it)` : ''}\n`);
    if (this.#level === 'all') log(1);
    // While Redis is away, all requests fail for the same cause.
    else this.#throttle(causeOf(exchange), log);
  }

  #throttle(kind: string, log: Pending['log']): void {
    const pending = this.#pending.get(kind);
    if (!pending) this.#begin(kind, 1, log);
    else {
      pending.count += 1;
      pending.log = log;
    }
  }

  #begin(kind: string, count: number, log: Pending['log']): void {
    log(count);
    const next: Pending = { count: 0, log };
    this.#pending.set(kind, next);
    const end = () => (next.count > 0 ? this.#begin(kind, next.count, next.log) : this.#pending.delete(kind));
    this.#clock.after(INTERVAL_MS, end, { ref: false });
  }
}

/** What failures have in common: few different texts, whatever clients send. */
function causeOf({ status, cause }: Exchange): string {
  if (!isDelayqError(cause)) return `${status} ${framesOf(cause)}`;
  return `${status} ${cause.code} ${/^[A-Z]+\b/.exec(cause.why ?? '')}`;
}

/** Why a request failed. Messages of errors may hold ids, names and pieces of payloads, so they are left out. */
function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return cause === undefined ? '' : ' (no error was thrown)';
  if (!isDelayqError(cause)) return ` (a bug: ${framesOf(cause)})`;
  const { code, why } = cause;
  const isOfRedis = code !== 'usage' && code !== 'data' && code !== 'internal';
  return ` (${code}${isOfRedis && why ? `: ${why}` : ''})`;
}

/** Where an error came from, without its message. */
export function framesOf(error: unknown): string {
  if (!(error instanceof Error)) return 'no error was thrown';
  const frames = (error.stack ?? '').split('\n').filter((line) => /^ +at /.test(line));
  return [error.name, ...frames].join('\n');
}
