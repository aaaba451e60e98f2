import { shellWord } from '../model/text.js';
import type { Caller, Connection, Reply } from '../redis/connection.js';
import { keyPattern, queueOf, queuesKey } from './keys.js';
import { scan } from './scan.js';

// The list of queues is only a hint: a queue also works if it is not listed.

/** Returns the names in the list of queues. Other software may have added invalid ones. */
export async function listQueues(redis: Connection, prefix: string): Promise<string[]> {
  return ((await redis.call('SMEMBERS', queuesKey(prefix))) as Reply[]).map(String);
}

export async function isListed(redis: Connection, prefix: string, queue: string): Promise<boolean> {
  return Number(await redis.call('SISMEMBER', queuesKey(prefix), queue)) === 1;
}

export async function addQueue(redis: Connection, prefix: string, queue: string): Promise<void> {
  await redis.call('SADD', queuesKey(prefix), queue);
}

export async function removeQueue(redis: Connection, prefix: string, queue: string): Promise<void> {
  await redis.call('SREM', queuesKey(prefix), queue);
}

/** The command of redis-cli that removes a name from the list. */
export const unlistCommand = (prefix: string, name: string) => `srem ${queuesKey(prefix)} ${shellWord(name)}`;

/**
 * Yields the names of queues in the keys of one server, a part of its keys at a time; a name may come more than once.
 */
export async function* scanForQueues(node: Caller, prefix: string): AsyncGenerator<string[]> {
  for await (const keys of scan(node, ['SCAN'], 'MATCH', keyPattern(prefix), 'COUNT', 500))
    yield keys.flatMap((key) => queueOf(prefix, String(key)) ?? []);
}
