import { slotOfKey } from '../redis/slots.js';
import type { PartitionMap } from './map.js';
import type { Store } from './store.js';

/** About how many jobs partition `i` has: counts its payloads. */
export async function jobsAt(store: Store, i: number, map?: PartitionMap): Promise<number> {
  return Number(await store.redis.call('HLEN', store.keys(i, map).payload));
}

/** About how many bytes the jobs of partition `i` take. Throws `refused` without permission for MEMORY. */
export async function bytesAt(store: Store, i: number): Promise<number> {
  const { pending, payload, meta } = store.keys(i);
  const sizes = await Promise.all([pending, payload, meta].map((key) => store.redis.call('MEMORY', 'USAGE', key)));
  return sizes.reduce<number>((sum, size) => sum + Number(size ?? 0), 0);
}

/** The slot of partition `i` in a Redis Cluster. */
export const slotOf = (store: Store, i: number): number => slotOfKey(store.keys(i).payload);
