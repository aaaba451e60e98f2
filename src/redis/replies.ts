import { type Id, idWord } from '../model/id.js';
import type { StoredJob } from '../model/job.js';
import type { Reply } from './connection.js';

/*
 * What Redis answers, decoded. Other software may have written anything into the keys of a queue.
 */

export const text = (reply: Reply | undefined) =>
  Buffer.isBuffer(reply) ? reply.toString('utf8') : String(reply ?? '');
export const number = (reply: Reply | undefined) => Number(text(reply));

/** The furthest time that is told, ms from 1970: what Date can hold, but for a day, which time zones need. */
export const FURTHEST = 8.64e15 - 86_400_000;

/** A time of a set, where other software may have written a fraction, or one without end: inf, which is no number here. */
export function time(reply: Reply | undefined): number {
  const word = text(reply);
  const ms = Math.floor(Number(word));
  return Math.abs(ms) <= FURTHEST ? ms : word.startsWith('-') ? -FURTHEST : FURTHEST;
}

/** Letters of a script's reply as words; an unknown letter would be a script out of step with this file. */
export function words<W>(reply: Reply | undefined, meaning: Record<string, W>): W[] {
  return Array.from(text(reply), (letter) => meaning[letter] as W);
}

export function pairs(reply: Reply | undefined): [string, string][] {
  const list = reply as Reply[];
  return Array.from({ length: list.length / 2 }, (_, i) => [text(list[2 * i]), text(list[2 * i + 1])]);
}

/** A number out of a record, where other software may have written anything. */
export function known(value: unknown): number | undefined {
  const n = typeof value === 'number' || (typeof value === 'string' && value !== '') ? Number(value) : Number.NaN;
  return Math.abs(n) <= FURTHEST ? n : undefined;
}

const STATES: Record<string, StoredJob['state']> = { p: 'pending', a: 'active', d: 'dead' };

export function stored(
  id: Id,
  { state, score, held, record, payload }: { [name: string]: Reply | undefined },
): StoredJob {
  const at = time(score);
  const [, due, since, ...by] = text(held).split(' ');
  // Written by hold.lua: for whom, where it stood before, and a token.
  const [, to, was] = (text(score) === 'inf' && /^move:(\S+) ([pd]) \S+$/.exec(by.join(' '))) || [];
  const rec = recordOf(text(record));
  const failures = known(rec.failures) ?? 0;
  const losses = known(rec.losses) ?? 0;
  const is = STATES[text(state)] as StoredJob['state'];
  return {
    id: idWord(id),
    ...(idWord(id) === id ? {} : { idBase64: Buffer.from(id as string).toString('base64') }),
    state: is,
    due: is === 'pending' ? at : is === 'active' ? known(was === 'd' ? rec.first : due) : known(rec.first),
    lease: is === 'active' ? { by: to ? `move:${to}` : by.join(' '), since: known(since) ?? 0, ends: at } : undefined,
    died: is === 'dead' ? at : undefined,
    reason: typeof rec.reason === 'string' ? rec.reason : undefined,
    attempts: failures + losses + (is === 'active' ? 1 : 0),
    failures,
    losses,
    error: typeof rec.error === 'string' ? rec.error : undefined,
    failed: known(rec.failed),
    tries: known(rec.tries),
    maxLost: known(rec.maxLost),
    ttl: known(rec.ttl),
    payload: (payload as Buffer | null | undefined) ?? undefined,
    ...(is === 'active' && to ? { moving: { to, from: STATES[was as string] as 'pending' | 'dead' } } : {}),
  };
}

function recordOf(json: string): Record<string, unknown> {
  try {
    return Object(JSON.parse(json || '{}'));
  } catch {
    return {};
  }
}
