import type { Cluster } from './cluster.js';
import { freshName, key } from './redis.js';
import type { Server } from './server.js';

/** The name of a fresh queue whose slot `node` owns. */
export async function nameAt(cluster: Cluster, node: Server): Promise<string> {
  for (;;) {
    const name = freshName();
    if ((await cluster.ownerOf(key(name, 'pending'))) === node) return name;
  }
}

/** The names of fresh queues, one for each master. */
export async function namesOfAll(cluster: Cluster): Promise<string[]> {
  const names: string[] = [];
  for (const node of await cluster.masters()) names.push(await nameAt(cluster, node));
  return names;
}
