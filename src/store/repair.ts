import { type Id, idOf } from '../model/id.js';
import type { Arg, Reply } from '../redis/connection.js';
import { KEY_ORDER } from './keys.js';
import { number, pairs, rows, text } from './replies.js';
import { LATEST_DUE, MAX_CALL, run } from './script.js';
import type { Store } from './store.js';

// What doctor reads and repairs in partition `i` of a queue.

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
  store: Store,
  i: number,
  { place, cursor, count, lean }: { place: Place; cursor: string; count: number; lean: boolean },
) {
  const reply = await repair(store, i, [place, cursor, Math.min(count, MAX_CALL), lean ? 1 : 0]);
  const next = text(reply[1]);
  return {
    suspects: suspects(reply),
    next: next === '0' ? undefined : next,
    looked: number(reply[2]),
    refused: number(reply[3]) === 1,
  };
}

/** Checks ids of a structure again, and returns those that still have a fault. At most {@link MAX_CALL}. */
export async function recheck(store: Store, i: number, place: Place, ids: readonly Buffer[]) {
  return suspects(await repair(store, i, [place, '', 1, 0, ...ids]));
}

const repair = (store: Store, i: number, args: readonly Arg[]) =>
  store.at(i, (keys) => run(store.redis, 'repair/repair', keys, args));

function suspects(reply: Reply[]): Suspect[] {
  return rows(reply, 4, 2).map(([id, letter]) => ({ id: id as Buffer, letter: text(letter) as Letter }));
}

/**
 * Mends ids of a structure. Returns the fault that was mended for each id; undefined if there was none, or none that
 * can be mended. At most {@link MAX_CALL}.
 */
export async function mend(store: Store, i: number, place: Place, ids: readonly Arg[]) {
  const reply = await repair(store, i, [place, 'mend', 1, 0, ...ids]);
  return Array.from(text(reply[1]), (letter) => (letter === '-' ? undefined : (letter as Letter)));
}

/** Returns the names of keys that Redis will delete: EXPIRE was set. */
export async function expiringKeys(store: Store, i: number): Promise<string[]> {
  const keys = store.keys(i);
  const names = KEY_ORDER.map((name) => keys[name]);
  const ttls = await Promise.all(names.map((name) => store.redis.call('PTTL', name)));
  return names.filter((_, n) => Number(ttls[n]) >= 0);
}

/** Removes the EXPIRE of keys. */
export async function persist({ redis }: Store, names: readonly string[]): Promise<void> {
  await Promise.all(names.map((name) => redis.call('PERSIST', name)));
}

/** How many ids are remembered for longer than scripts ever write, because other software wrote inf, and some of them. */
export async function rememberedTooLong(store: Store, i: number, max: number): Promise<{ count: number; ids: Id[] }> {
  const { done } = store.keys(i);
  const [count, ids] = (await Promise.all([
    store.redis.call('ZCOUNT', done, `(${LATEST_DUE}`, '+inf'),
    store.redis.call('ZRANGEBYSCORE', done, `(${LATEST_DUE}`, '+inf', 'LIMIT', 0, max),
  ])) as [number, Buffer[]];
  return { count, ids: ids.map(idOf) };
}

/** Returns the counters as they are stored, and the name of their key. */
export async function counters(store: Store, i: number): Promise<{ key: string; counters: [string, string][] }> {
  const { stats } = store.keys(i);
  const fields = pairs(await store.redis.call('HGETALL', stats));
  return { key: stats, counters: fields.filter(([name]) => !/^(at:|bucket$|failures$)/.test(name)) };
}
