import { type Id, idOf } from '../model/id.js';
import type { Connection, Reply } from '../redis/connection.js';
import type { QueueKeys } from './keys.js';
import { groupsOf } from './map.js';
import { relocate } from './relocate.js';
import { text } from './replies.js';
import { SLICE } from './script.js';
import type { Store } from './store.js';

/** A growth that holds a job for longer than this counts as dead, ms. A transfer takes far less. */
const SILENT_MS = 15_000;

/** How often to look, ms. */
const LOOK_MS = 5_000;

/** The last look, and when to look again, by the monotonic clock, ms. */
const looks = new WeakMap<Store, { readonly look: Promise<unknown>; readonly next: number }>();

/**
 * Finishes the transfers of a grower that has died: its jobs would not be delivered until its command is repeated. Does
 * nothing if no growth is open, or after a look in the last seconds. Throws nothing: the next look tries again.
 */
export async function carryOn(store: Store): Promise<void> {
  const { from } = store.map;
  if (from === undefined) return;
  let last = looks.get(store);
  if (!last || performance.now() >= last.next) {
    const look = Promise.allSettled(Array.from({ length: from }, (_, i) => carryOnAt(store, i)));
    last = { look, next: performance.now() + LOOK_MS };
    looks.set(store, last);
  }
  // Other callers wait, too: their job may be among those being moved.
  await last.look;
}

async function carryOnAt(store: Store, at: number): Promise<void> {
  const { redis, queue, map } = store;
  const keys = store.keys(at, map);
  for (;;) {
    const { ids, leases } = await heldIn(redis, keys, SLICE);
    if (ids.length === 0) return;
    const now = await redis.now(keys.active);
    const isLeft = (_: Id, n: number) => {
      const [, since, to] = HELD.exec(leases[n] as string) ?? [];
      return to === queue && now - Number(since) > SILENT_MS;
    };
    const left = ids.filter(isLeft);
    for (const [to, some] of groupsOf(left, (id) => map.ownerOf(id)))
      await relocate({ store, map, from: at, to }, some);
    if (left.length < SLICE) return;
  }
}

/** The first jobs, at most `max`, whose leases do not end, as moves hold them; and their leases. */
export async function heldIn(redis: Connection, { active, lease }: QueueKeys, max: number) {
  const found = (await redis.call('ZRANGEBYSCORE', active, '+inf', '+inf', 'LIMIT', 0, max)) as Buffer[];
  const leases = found.length > 0 ? ((await redis.call('HMGET', lease, ...found)) as Reply[]) : [];
  return { ids: found.map(idOf), leases: leases.map((one) => text(one)) };
}

/** The lease of a transfer: receipt, score, since, holder (its queue, and the partition to which it goes). */
export const HELD = /^\S+ \S+ (\d+) move:(\S+)\/\d+ /;
