import { shellWord } from '../model/text.js';
import { DEFAULT_URL } from '../redis/url.js';

/*
 * What a look at a server or a queue has found: the form in which doctor tells of everything.
 */

/** How bad it is. `skip`: it could not be looked at, which is no fault. */
type Level = 'ok' | 'skip' | 'warn' | 'fail';

/** One thing that was looked at, and how it was found. */
export interface Finding {
  readonly level: Level;
  /** What was looked at, as one word for programs. */
  readonly check: string;
  /** The queue that it is about; none: the server. */
  readonly queue?: string;
  readonly what: string;
  /** Why it matters. */
  readonly why?: string | undefined;
  /** What to do next: a command, where there is one. */
  readonly next?: string | undefined;
  /** How many jobs it is about, and the ids of a few of them. */
  readonly count?: number;
  readonly samples?: readonly string[];
  /** `fix` can put it right. */
  readonly mendable?: boolean;
  /** How many of them were put right. */
  readonly mended?: number;
}

/** A thing that is in order, or nearly. */
export const fine = (check: string, what: string): Finding => ({ level: 'ok', check, what });

/** A thing that could not be looked at. */
export const unknown = (check: string, what: string): Finding => ({
  level: 'skip',
  check,
  what: `cannot tell: ${what}`,
});

/** A thing that is not in order: what it is, why it matters, and what to do next. */
export const bad = (level: 'warn' | 'fail', check: string, what: string, why: string, next?: string): Finding => ({
  level,
  check,
  what,
  why,
  next,
});

/** The worst level of all findings. */
export function worst(findings: readonly Finding[]): 'ok' | 'warn' | 'fail' {
  const has = (level: Level) => findings.some((finding) => finding.level === level);
  return has('fail') ? 'fail' : has('warn') ? 'warn' : 'ok';
}

/** A redis-cli command for the server at `address`, which is without user and password. */
export function redisCli(address: string, command: string): string {
  const [, path, db] = /^unix:\/\/([^?]*)(?:\?db=(\d+))?$/.exec(address) ?? [];
  if (path) return `redis-cli -s ${shellWord(path)}${db ? ` -n ${db}` : ''} ${command}`;
  return `redis-cli ${address === DEFAULT_URL ? '' : `-u ${shellWord(address)} `}${command}`;
}
