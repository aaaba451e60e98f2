import type { Cluster, Redis } from 'ioredis';
import { key } from './redis.js';

/** What each partition of a queue has in its keys in place of the name of the queue, as documented. */
export async function tagsOf(client: Redis | Cluster, queue: string): Promise<string[]> {
  const others = (await client.hget(key(queue, 'config'), 'partitions')) ?? '';
  return [queue, ...others.split(' ').filter(Boolean)];
}

/** Makes the growth of a queue to n partitions public, as documented: nothing is moved yet. Returns all tags. */
export async function openGrowth(client: Redis | Cluster, queue: string, n: number): Promise<string[]> {
  const tags = [queue, ...Array.from({ length: n - 1 }, (_, i) => `${queue}/${i + 1}.0`)];
  // Partition 0 comes last.
  for (const [i, tag] of [...tags.entries()].reverse()) {
    const fields = { layout: `1 ${i}/${n} from 1`, partitions: tags.slice(1).join(' ') };
    await client.hset(key(tag, 'config'), fields);
  }
  return tags;
}

/** What each partition of a queue says of itself: `2 i/n`, or nothing without partitions. */
export async function layoutsOf(client: Redis | Cluster, queue: string): Promise<(string | null)[]> {
  const tags = await tagsOf(client, queue);
  return Promise.all(tags.map((tag) => client.hget(key(tag, 'config'), 'layout')));
}

/** Where the ids of a queue stand: `partition state`, one for each set that has it. */
export async function placesOf(client: Redis | Cluster, queue: string): Promise<Map<string, string[]>> {
  const places = new Map<string, string[]>();
  for (const [i, tag] of (await tagsOf(client, queue)).entries()) {
    for (const state of ['pending', 'active', 'dead']) {
      for (const id of await client.zrange(key(tag, state), '0', '-1'))
        places.set(id, [...(places.get(id) ?? []), `${i} ${state}`]);
    }
  }
  return places;
}
