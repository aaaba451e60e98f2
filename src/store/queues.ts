import { DelayqError, isDelayqError } from '../model/errors.js';
import { shellWord } from '../model/text.js';
import type { Caller, Connection, Reply } from '../redis/connection.js';
import { keyPattern, queueOf, queuesKey } from './keys.js';
import { scan } from './scan.js';

// The list of queues is only a hint: a queue also works if it is not listed.

/** Makes a call about the list. If other software uses its key, the error names it. */
async function ofList(redis: Connection, prefix: string, command: string, ...names: string[]): Promise<Reply> {
  const key = queuesKey(prefix);
  return redis.call(command, key, ...names).catch((error: unknown) => {
    if (!isDelayqError(error, 'config') || !/^WRONGTYPE/.test(error.why ?? '')) throw error;
    throw new DelayqError('config', error.what, { why: `WRONGTYPE ${key} is no set`, next: error.next, cause: error });
  });
}

/** Returns the names in the list of queues. Other software may have added invalid ones. */
export async function listQueues(redis: Connection, prefix: string): Promise<string[]> {
  return ((await ofList(redis, prefix, 'SMEMBERS')) as Reply[]).map(String);
}

export async function isListed(redis: Connection, prefix: string, queue: string): Promise<boolean> {
  return Number(await ofList(redis, prefix, 'SISMEMBER', queue)) === 1;
}

export async function addQueue(redis: Connection, prefix: string, queue: string): Promise<void> {
  await ofList(redis, prefix, 'SADD', queue);
}

export async function removeQueue(redis: Connection, prefix: string, queue: string): Promise<void> {
  await ofList(redis, prefix, 'SREM', queue);
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
