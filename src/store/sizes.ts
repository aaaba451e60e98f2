import type { PartitionMap } from './map.js';
import type { Store } from './store.js';

/** About how many jobs partition `i` has: counts its payloads. */
export async function jobsAt(store: Store, i: number, map?: PartitionMap): Promise<number> {
  return Number(await store.redis.call('HLEN', store.keys(i, map).payload));
}
