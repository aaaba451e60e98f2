import { DelayqError, partly } from '../model/errors.js';
import type { Id } from '../model/id.js';
import type { Connection } from '../redis/connection.js';
import { replicasAt, replicated } from './durability.js';
import type { QueueKeys } from './keys.js';
import type { PartitionMap } from './map.js';
import { type Moved, moveSome } from './move-steps.js';
import { rows } from './replies.js';
import { scan } from './scan.js';
import type { Store } from './store.js';
import * as moves from './transfer.js';

/** From one partition of a queue to another. */
export interface Way {
  readonly store: Store;
  readonly map: PartitionMap;
  readonly from: number;
  readonly to: number;
}

/**
 * Moves jobs that are pending or dead from one partition to another. Waits after each step until the replicas have it:
 * otherwise a failover could lose or double a job. With `must`, throws `temporary` if they do not follow.
 */
export async function relocate(way: Way, ids: readonly Id[], must = false): Promise<Moved[]> {
  const { store, map } = way;
  const { redis } = store;
  const [from, to] = [store.keys(way.from, map), store.keys(way.to, map)];
  const at = (keys: QueueKeys) => {
    return <T>(write: Parameters<typeof replicated<T>>[3]) => replicated(redis, keys.pending, must, write);
  };
  const growsTo = map.from === undefined ? undefined : map.count;
  const destination = {
    holder: `move:${store.queue}/${way.to}`,
    ...(growsTo && { mark: markOf(growsTo) }),
    restore: async (jobs: readonly moves.Brought[]) => {
      let isCopied = false;
      const put = await at(to)(async (caller) => {
        const restored = await moves.restore(caller, to, jobs, 'transferred');
        isCopied = true;
        return restored;
      }).catch((error: DelayqError) => {
        // Only the replicas are behind. Without `partly`, the jobs would be put back, and be in both.
        throw isCopied ? partly(error) : error;
      });
      // In a growth, a job that is already there is newer: a failover has brought the other one back.
      return growsTo ? put.map((one) => (one === 'created' ? one : 'kept')) : put;
    },
    remember: (ids: readonly moves.Remembered[]) => bringRemembered(way, ids, must),
    forget: (jobs: Parameters<typeof moves.forgetTokens>[2]) => moves.forgetTokens(redis, to, jobs),
  };
  const source = { keys: from, step: at(from) };
  if (must) await checkReplicas(way);
  const moved: Moved[] = [];
  while (moved.length < ids.length) {
    moved.push(...(await moveSome(source, destination, ids.slice(moved.length), ['pending', 'dead'])));
  }
  return moved;
}

/** How the tokens of a growth to so many partitions begin. */
const markOf = (count: number) => `~${count}~`;

/**
 * Removes the tokens that killed transfers have left in a partition. Call this only when the growth to `count` is done:
 * its tokens have no more use, and those of the next growth begin in another way.
 */
export async function forgetMarks(redis: Connection, { lease }: QueueKeys, count: number): Promise<void> {
  for await (const found of scan(redis, ['HSCAN', lease], 'MATCH', `${markOf(count)}*`, 'COUNT', 500))
    if (found.length > 0) await redis.call('HDEL', lease, ...rows(found, 0, 2).map(([field]) => field as Buffer));
}

/**
 * Copies the remembered ids of one partition to another; the later time wins. The source keeps them until the growth
 * sweeps it, so this may be repeated or interrupted.
 */
export async function bringRemembered(
  { store, map, to }: Way,
  ids: readonly moves.Remembered[],
  must: boolean,
): Promise<void> {
  const keys = store.keys(to, map);
  await replicated(store.redis, keys.pending, must, (caller) => moves.remember(caller, keys, ids));
}

/** Throws `temporary` if the destination has fewer replicas than the source. */
async function checkReplicas({ store, map, from, to }: Way): Promise<void> {
  const replicas = [from, to].map((i) => replicasAt(store.redis, store.keys(i, map).pending));
  const [before = 0, after = 0] = await Promise.all(replicas);
  if (after >= before) return;
  throw new DelayqError('temporary', `partition ${to} has too few replicas`, {
    why: `${after} replicas follow its server, and ${before} that where its jobs are now`,
    next: 'wait until the replicas are back, then try again',
  });
}
