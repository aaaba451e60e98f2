import { LONGEST_MS } from '../../internal.js';
import { Refusal } from '../http/refusal.js';
import type { Defaults } from './call.js';

const MAX_MS = (2 ** 32 - 1) * 1_000;

/**
 * A duration in a query, ms: whole seconds, or with a unit (`1500ms`, `90s`, `15m`, `2h`, `1d`). `otherwise` if it is
 * missing. More than 100 years count as 100 years. Throws a refusal (400) `invalid NAME`.
 */
export function msOf(query: URLSearchParams, name: string, otherwise: number): number {
  const text = query.get(name);
  if (text === null) return otherwise;
  const [, digits = '', unit = 's'] = /^(\d{1,16})(ms|s|m|h|d)?$/.exec(text) ?? [];
  const ms = Number(digits) * (UNITS[unit] as number);
  if (digits === '' || ms > MAX_MS) throw new Refusal(400, `invalid ${name}`);
  return Math.min(ms, LONGEST_MS);
}

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A whole number in a query from `min` to `max`. Throws a refusal (400) `invalid NAME`. */
export function countOf(query: URLSearchParams, name: string, otherwise: number, min: number, max: number): number {
  const text = query.get(name);
  if (text === null) return otherwise;
  const n = /^\d{1,19}$/.test(text) ? Number(text) : -1;
  if (n < min || n > max) throw new Refusal(400, `invalid ${name}`);
  return n;
}

/** One of some words in a query; the first if it is not given. Throws a refusal (400) `invalid NAME`. */
export function wordOf<W extends string>(query: URLSearchParams, name: string, words: readonly [W, ...W[]]): W {
  const text = query.get(name) ?? words[0];
  const found = words.find((word) => word === text);
  if (found === undefined) throw new Refusal(400, `invalid ${name}`);
  return found;
}

/** The time to live of a job, ms; 0 stands for ever: for 100 years, whatever the settings of its queue say. */
export const ttlOf = (query: URLSearchParams, { ttl }: Defaults): number => msOf(query, 'ttl', ttl) || LONGEST_MS;
