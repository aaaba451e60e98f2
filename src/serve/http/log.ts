import { isDelayqError } from '../../index.js';
import type { Exchange } from './exchange.js';

/** Which requests are logged: all, those that failed here (5xx), or none. */
export type LogLevel = 'all' | 'errors' | 'none';

/** At level errors: how often requests are logged that fail for the same cause, ms. With Redis away, all do. */
const AGAIN_MS = 10_000;

/** Writes what happens, a line each but for bugs. Never a query, a token, a payload, or an id of a job. */
export class Log {
  readonly #write: (line: string) => boolean;
  readonly level: LogLevel;
  /** By cause: when a request that failed was logged last, and how many were not since. */
  readonly #failed = new Map<string, { at: number; more: number }>();

  /** `write` returns false while nobody reads: lines are then left out, because nothing may wait for a log. */
  constructor(write: (line: string) => boolean, level: LogLevel) {
    this.#write = write;
    this.level = level;
  }

  say(text: string): void {
    this.#write(`delayq serve: ${text}\n`);
  }

  /** Logs a request that has ended; at level errors, of those that fail for the same cause one every 10 s. */
  request(exchange: Exchange, delivered: boolean): void {
    const { level } = this;
    if (level === 'none' || (level === 'errors' && exchange.status < 500)) return;
    const more = level === 'errors' ? this.#others(exchange) : 0;
    if (more === undefined) return;
    const ms = (performance.now() - exchange.since).toFixed(1);
    const status = delivered ? exchange.status : 'gone';
    const why = reasonOf(exchange.cause) + (more > 0 ? ` (and ${more} more like it)` : '');
    this.#write(
      `${new Date().toISOString()} ${exchange.method} ${exchange.route} ${status} ${ms}ms ${exchange.who} ${exchange.id}${why}\n`,
    );
  }

  /** How many requests that failed for the same cause were not logged; undefined: nor is this one. */
  #others(exchange: Exchange): number | undefined {
    const cause = causeOf(exchange);
    const before = this.#failed.get(cause);
    const now = performance.now();
    if (before && now - before.at < AGAIN_MS) {
      before.more++;
      return undefined;
    }
    this.#failed.set(cause, { at: now, more: 0 });
    return before?.more ?? 0;
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
