import type { Connection, Reply } from '../redis/connection.js';
import { queuesKey } from './keys.js';

// The list of queues is only a hint: a queue also works if it is not listed.

/** Returns the names in the list of queues. Other software may have added invalid ones. */
export async function listQueues(redis: Connection, prefix: string): Promise<string[]> {
  return ((await redis.call('SMEMBERS', queuesKey(prefix))) as Reply[]).map(String);
}

/** Whether a queue is in the list. */
export async function isListed(redis: Connection, prefix: string, queue: string): Promise<boolean> {
  return Number(await redis.call('SISMEMBER', queuesKey(prefix), queue)) === 1;
}

/** Adds a queue to the list. */
export async function addQueue(redis: Connection, prefix: string, queue: string): Promise<void> {
  await redis.call('SADD', queuesKey(prefix), queue);
}

/**
 * As {@link addQueue}, but never fails: the list is in a slot of its own, and not worth the failure of what was done
 * in another. Returns whether the queue was added.
 */
export async function tryAddQueue(redis: Connection, prefix: string, queue: string): Promise<boolean> {
  return addQueue(redis, prefix, queue).then(
    () => true,
    () => false,
  );
}

/** Removes a queue from the list. */
export async function removeQueue(redis: Connection, prefix: string, queue: string): Promise<void> {
  await redis.call('SREM', queuesKey(prefix), queue);
}
