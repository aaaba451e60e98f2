import type { Arg, Connection, Reply } from '../redis/connection.js';
import type { QueueKeys } from './keys.js';
import { number, rows, text } from './replies.js';
import { MAX_CALL, run } from './script.js';

/** The keys of a queue that contain ids. */
export const PLACES = ['pending', 'active', 'dead', 'payload', 'meta', 'lease'] as const;
export type Place = (typeof PLACES)[number];

/** A fault, as lua/repair/repair.lua names it. */
export type Letter = 'o' | 'f' | 't' | 'n' | 'e' | 'b' | 'h' | 'u' | 'v' | 'l' | 'm' | 'r' | 's' | 'k' | 'i';

/** An id with a fault. It is bytes, because other software may use any bytes as an id. */
export interface Suspect {
  readonly id: Buffer;
  readonly letter: Letter;
}

/**
 * Checks about `count` ids of a structure, from `cursor` on. `lean`: HSCAN should leave out the values if it can;
 * `refused`: this Redis is too old for that. `looked`: how many ids were checked. `next`: the cursor of the next part;
 * undefined after the last one.
 */
export async function audit(
  redis: Connection,
  keys: QueueKeys,
  { place, cursor, count, lean }: { place: Place; cursor: string; count: number; lean: boolean },
) {
  const reply = await run(redis, 'repair/repair', keys, [place, cursor, Math.min(count, MAX_CALL), lean ? 1 : 0]);
  const next = text(reply[1]);
  return {
    suspects: suspects(reply),
    next: next === '0' ? undefined : next,
    looked: number(reply[2]),
    refused: number(reply[3]) === 1,
  };
}

/** Checks ids of a structure again, and returns those that still have a fault. At most {@link MAX_CALL}. */
export async function recheck(redis: Connection, keys: QueueKeys, place: Place, ids: readonly Buffer[]) {
  return suspects(await run(redis, 'repair/repair', keys, [place, '', 1, 0, ...ids]));
}

function suspects(reply: Reply[]): Suspect[] {
  return rows(reply, 4, 2).map(([id, letter]) => ({ id: id as Buffer, letter: text(letter) as Letter }));
}

/**
 * Mends ids of a structure. Returns the fault that was mended for each id; undefined if there was none, or none that
 * can be mended. At most {@link MAX_CALL}.
 */
export async function mend(redis: Connection, keys: QueueKeys, place: Place, ids: readonly Arg[]) {
  const reply = await run(redis, 'repair/repair', keys, [place, 'mend', 1, 0, ...ids]);
  return Array.from(text(reply[1]), (letter) => (letter === '-' ? undefined : (letter as Letter)));
}
