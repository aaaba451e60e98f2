import { DelayqError, partly } from '../model/errors.js';
import type { Id } from '../model/id.js';
import type { Connection, Reply } from '../redis/connection.js';
import { replicasAt, replicated } from './durability.js';
import type { QueueKeys } from './keys.js';
import { type Moved, moveSome } from './move-steps.js';
import { text } from './replies.js';
import * as moves from './transfer.js';

/** A way between two partitions of a queue. */
export interface Way {
  readonly queue: string;
  readonly from: QueueKeys;
  readonly to: QueueKeys;
  /** The index of the partition `to`. */
  readonly index: number;
}

/**
 * Moves jobs that are pending or dead from one partition to another. Waits after each step until the replicas have it:
 * otherwise a failover could lose a job between the two, or bring it twice. With `must`, throws `temporary` if they do
 * not follow.
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
        // Otherwise they would be put back where they were, and be in both: only the replicas are behind.
        throw isCopied ? partly(error) : error;
      });
      // In a growth, whatever is there is newer: it can only be there because a failover brought the other one back.
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
 * Removes the tokens that transfers have left in a partition whose callers were killed. Only when the growth to `count` is
 * done: nobody can use them any more, and those of the next growth begin in another way.
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
 * Copies what one partition remembers to another: an id is remembered until the later of both times. What is remembered
 * there stays until the growth sweeps it, so this may be repeated, or never come to its end.
 */
export async function bringRemembered(
  redis: Connection,
  { to }: Way,
  ids: readonly moves.Remembered[],
  must = false,
): Promise<void> {
  await replicated(redis, to.pending, must, (caller) => moves.remember(caller, to, ids));
}

/** A job that replicas have must not go where fewer would have it: throws `temporary` then. */
async function checkReplicas(redis: Connection, { from, to, index }: Way): Promise<void> {
  const [before, after] = await Promise.all([from, to].map(({ pending }) => replicasAt(redis, pending)));
  if ((after as number) >= (before as number)) return;
  throw new DelayqError('temporary', `partition ${index} has too few replicas`, {
    why: `${after} replicas follow its server, and ${before} that where its jobs are now`,
    next: 'wait until the replicas are back, then try again',
  });
}
