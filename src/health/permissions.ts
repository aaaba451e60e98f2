import { isDelayqError } from '../model/errors.js';
import { shellWord } from '../model/text.js';
import type { Arg, Connection } from '../redis/connection.js';
import { type QueueKeys, queuesKey, wakeOf } from '../redis/keys.js';
import { bad, type Finding, fine, redisCli } from './finding.js';

/*
 * Whether the user of this connection may do all that delayq does, inside scripts as well.
 */

/** An id that no job has: looking for it, or removing it, changes nothing. */
const NOBODY = '(doctor)';

/** The commands that delayq sends or its scripts call, each in a form that changes nothing, whatever is there. */
export function harmless(keys: QueueKeys, channel: string): Arg[][] {
  const { pending, payload, stats, config } = keys;
  return [
    ['EVAL', 'return 1', 1, pending],
    ['TIME'],
    ['TYPE', pending],
    ['EXISTS', pending],
    ['ZADD', pending, 'XX', 0, NOBODY],
    ['ZREM', pending, NOBODY],
    ['ZCARD', pending],
    ['ZCOUNT', pending, 1, 0],
    ['ZSCORE', pending, NOBODY],
    ['ZMSCORE', pending, NOBODY],
    ['ZRANK', pending, NOBODY],
    ['ZRANGE', pending, 1, 0],
    ['ZRANGEBYSCORE', pending, 1, 0],
    ['ZREMRANGEBYRANK', pending, 1, 0],
    // A field without a value: refused, but only after the rights were looked at. As is a number that is none.
    ['HSET', payload, NOBODY, '', NOBODY],
    ['HINCRBY', stats, NOBODY, 'none'],
    ['HGET', payload, NOBODY],
    ['HMGET', payload, NOBODY],
    ['HDEL', payload, NOBODY],
    ['HEXISTS', payload, NOBODY],
    ['HSTRLEN', payload, NOBODY],
    ['HLEN', payload],
    ['HGETALL', config],
    ['HKEYS', config],
    ['HSCAN', config, 0],
    ['HRANDFIELD', config],
    ['ZSCAN', pending, 0, 'COUNT', 1],
    ['PTTL', pending],
    ['PERSIST', `${pending}:${NOBODY}`],
    ['UNLINK', `${pending}:${NOBODY}`],
    // Anybody may publish there: who listens looks once more.
    ['PUBLISH', channel, ''],
  ];
}

/** Those that only shorten the time until a new job is seen. */
const HINTS = ['publish', 'subscribe'];

/** Those that can only be asked about, as they would change something, or the connection. */
export function asked(prefix: string, queue: string, keys: QueueKeys, channel: string): Arg[][] {
  return [
    ['EVALSHA', '0'.repeat(40), 1, keys.pending],
    ['SADD', queuesKey(prefix), queue],
    ['SREM', queuesKey(prefix), queue],
    ['SMEMBERS', queuesKey(prefix)],
    ['SISMEMBER', queuesKey(prefix), queue],
    ['SUBSCRIBE', channel],
  ];
}

/** Looks whether this user may do on `queue` what delayq does: by ACL DRYRUN, or by trying what changes nothing. */
export async function rights(redis: Connection, prefix: string, queue: string, keys: QueueKeys): Promise<Finding> {
  const { channel } = wakeOf(prefix, queue);
  const named = await redis.call('ACL', 'WHOAMI').then(String, refusedOr(undefined));
  const who = named ?? 'the user of this connection';
  const calls = harmless(keys, channel);
  const first = calls[0] as Arg[];
  const dry = await redis.call('ACL', 'DRYRUN', who, ...first).then(() => true, refusedOr(false));
  const denied: string[] = [];
  const keysDenied = new Set<string>();
  for (const call of dry ? [...calls, ...asked(prefix, queue, keys, channel)] : calls) {
    const said = dry ? await redis.call('ACL', 'DRYRUN', who, ...call).then(String) : await tried(redis, call);
    if (said === 'OK') continue;
    const command = String(call[0]).toLowerCase();
    if (/ access /.test(said)) keysDenied.add(HINTS.includes(command) ? `&${prefix}:*` : `~${prefix}:*`);
    else denied.push(command);
  }
  if (denied.length + keysDenied.size === 0) {
    return fine(
      'rights',
      dry || who === 'default' ? `${who} may do all that delayq does` : `${who} may do all that could be tried`,
    );
  }
  const lacks = [...denied, ...(keysDenied.size > 0 ? [`use ${[...keysDenied].join(' ')}`] : [])];
  const onlyHints = denied.every((command) => HINTS.includes(command)) && !keysDenied.has(`~${prefix}:*`);
  return bad(
    onlyHints ? 'warn' : 'fail',
    'rights',
    `${who} may not ${lacks.join(', ')}`,
    onlyHints
      ? 'a waiting drain sees new jobs up to a second later'
      : 'whatever needs it is refused, in the middle of an incident at the latest',
    redisCli(
      redis.address,
      `acl setuser ${named ? shellWord(who) : 'USER'} ${[...denied.map((command) => `+${command}`), ...keysDenied].map(shellWord).join(' ')}`,
    ),
  );
}

/** Tries a call that changes nothing; what Redis says of the rights to it, or OK. */
async function tried(redis: Connection, [command, ...args]: Arg[]): Promise<string> {
  try {
    await redis.call(command as string, ...args);
    return 'OK';
  } catch (error) {
    if (!isDelayqError(error, 'refused', 'config', 'internal', 'temporary')) throw error;
    return error.code === 'refused' ? String(error.why) : 'OK';
  }
}

/** For calls that may not be known, or not be allowed, here. */
export function refusedOr<T>(otherwise: T): (error: unknown) => T {
  return (error) => {
    if (isDelayqError(error, 'refused', 'config', 'internal')) return otherwise;
    throw error;
  };
}
