import { DelayqError, partly } from '../model/errors.js';
import type { Id } from '../model/id.js';
import type { Connection, Reply } from '../redis/connection.js';
import { replicasAt, replicated } from './durability.js';
import type { QueueKeys } from './keys.js';
import { type Moved, moveSome } from './move-steps.js';
import { text } from './replies.js';
import * as moves from './transfer.js';

/** From one partition of a queue to another. */
export interface Way {
  readonly queue: string;
  readonly from: QueueKeys;
  readonly to: QueueKeys;
  /** The index of the partition `to`. */
  readonly index: number;
}

/**
 * Moves jobs that are pending or dead from one partition to another. Waits after each step until the replicas have it:
 * otherwise a failover could lose or double a job. With `must`, throws `temporary` if they do not follow.
 */
export async function relocate(redis: Connection, way: Way, ids: readonly Id[], must = false): Promise<Moved[]> {
  const at = (keys: QueueKeys) => {
    return <T>(write: Parameters<typeof replicated<T>>[3]) => replicated(redis, keys.pending, must, write);
  };
  const [, growsTo] = /^1 \d+\/(\d+) from /.exec(way.to.layout ?? '') ?? [];
  const destination = {
    holder: `move:${way.queue}/${way.index}`,
    ...(growsTo && { mark: markOf(growsTo) }),
    restore: async (jobs: readonly moves.Parcel[], tokens: readonly string[]) => {
      let isCopied = false;
      const put = await at(way.to)(async (caller) => {
        const restored = await moves.restore(caller, way.to, jobs, tokens, 'transferred');
        isCopied = true;
        return restored;
      }).catch((error: DelayqError) => {
        // Only the replicas are behind. Without `partly`, the jobs would be put back, and be in both.
        throw isCopied ? partly(error) : error;
      });
      // In a growth, a job that is already there is newer: a failover has brought the other one back.
      return growsTo ? put.map((one) => (one === 'created' ? one : 'kept')) : put;
    },
    remember: (ids: readonly moves.Remembered[]) => bringRemembered(redis, way, ids, must),
    forget: (jobs: Parameters<typeof moves.forgetTokens>[2]) => moves.forgetTokens(redis, way.to, jobs),
  };
  const source = { redis, keys: way.from, step: at(way.from) };
  if (must) await checkReplicas(redis, way);
  const moved: Moved[] = [];
  while (moved.length < ids.length) {
    moved.push(...(await moveSome(source, destination, ids.slice(moved.length), ['pending', 'dead'])));
  }
  return moved;
}

/** How the tokens of a growth to so many partitions begin. */
const markOf = (count: number | string) => `~${count}~`;

/**
 * Removes the tokens that killed transfers have left in a partition. Call this only when the growth to `count` is done:
 * its tokens have no more use, and those of the next growth begin in another way.
 */
export async function forgetMarks(redis: Connection, { lease }: QueueKeys, count: number): Promise<void> {
  let cursor = '0';
  do {
    const [next, found] = (await redis.call('HSCAN', lease, cursor, 'MATCH', `${markOf(count)}*`, 'COUNT', 500)) as [
      Reply,
      Buffer[],
    ];
    cursor = text(next);
    const fields = found.filter((_, n) => n % 2 === 0);
    if (fields.length > 0) await redis.call('HDEL', lease, ...fields);
  } while (cursor !== '0');
}

/**
 * Copies the remembered ids of one partition to another; the later time wins. The source keeps them until the growth
 * sweeps it, so this may be repeated or interrupted.
 */
export async function bringRemembered(
  redis: Connection,
  { to }: Way,
  ids: readonly moves.Remembered[],
  must = false,
): Promise<void> {
  await replicated(redis, to.pending, must, (caller) => moves.remember(caller, to, ids));
}

/** Throws `temporary` if the destination has fewer replicas than the source. */
async function checkReplicas(redis: Connection, { from, to, index }: Way): Promise<void> {
  const [before, after] = await Promise.all([from, to].map(({ pending }) => replicasAt(redis, pending)));
  if ((after as number) >= (before as number)) return;
  throw new DelayqError('temporary', `partition ${index} has too few replicas`, {
    why: `${after} replicas follow its server, and ${before} that where its jobs are now`,
    next: 'wait until the replicas are back, then try again',
  });
}
