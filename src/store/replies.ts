import type { Bytes } from '../model/payload.js';
import type { Reply } from '../redis/connection.js';

// Other software may have written anything into the keys of a queue, so nothing here throws.

export const text = (reply: Reply | undefined) =>
  Buffer.isBuffer(reply) ? reply.toString('utf8') : String(reply ?? '');
export const number = (reply: Reply | undefined) => (typeof reply === 'number' ? reply : Number(text(reply)));
export const bytes = (reply: Reply | undefined) => (reply as Bytes | null | undefined) ?? undefined;

/** The latest time that is returned, ms since 1970: what a Date can hold, less a day, which time zones need. */
export const FURTHEST = 8.64e15 - 86_400_000;

/** A score as a time in whole ms. Fractions are cut, and infinite ones become {@link FURTHEST}. */
export function time(reply: Reply | undefined): number {
  const word = text(reply);
  const ms = Math.floor(Number(word));
  return Math.abs(ms) <= FURTHEST ? ms : word.startsWith('-') ? -FURTHEST : FURTHEST;
}

/** A number of a record; undefined for anything else. */
export function known(value: unknown): number | undefined {
  const n = typeof value === 'number' || (typeof value === 'string' && value !== '') ? Number(value) : Number.NaN;
  return Math.abs(n) <= FURTHEST ? n : undefined;
}

/** The items of a flat reply from index `from` on, `width` at a time: one row for each job. */
export function rows(reply: Reply | undefined, from: number, width: number): Reply[][] {
  const list = reply as Reply[];
  return Array.from({ length: Math.floor((list.length - from) / width) }, (_, i) =>
    list.slice(from + i * width, from + (i + 1) * width),
  );
}

/** Names and values that alternate, as HGETALL returns them. */
export function pairs(reply: Reply | undefined): [string, string][] {
  return rows(reply, 0, 2).map(([name, value]) => [text(name), text(value)]);
}
