import { slotOfKey } from '../redis/slots.js';
import type { PartitionMap } from './map.js';
import type { Store } from './store.js';

/** About how many jobs partition `i` has: counts its payloads. */
export async function jobsAt(store: Store, i: number, map?: PartitionMap): Promise<number> {
  return Number(await store.redis.call('HLEN', store.keys(i, map).payload));
}

/** The slot of a queue in a Redis Cluster; other partitions of it may be in others. */
export const slotOf = (store: Store): number => slotOfKey(store.keys().payload);
