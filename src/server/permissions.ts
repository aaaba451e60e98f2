import { bad, type Finding, fine, redisCli } from '../health/finding.js';
import { isDelayqError } from '../model/errors.js';
import { shellWord } from '../model/text.js';
import type { Arg, Connection } from '../redis/connection.js';
import { type QueueKeys, queuesKey, wakeChannel } from '../redis/keys.js';

/** An id that no job has, so that reading or removing it changes nothing. */
const NOBODY = '(doctor)';

/** The commands that delayq and its scripts use, each in a form that never changes anything. */
export function probes(keys: QueueKeys, channel: string): Arg[][] {
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
    // These fail, for lack of a value and of a number, but only after Redis has checked the permissions.
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
    // A message on this channel makes drains look once more, and nothing else.
    ['PUBLISH', channel, ''],
  ];
}

/** Commands that only make drains notice new jobs sooner. */
const HINTS = ['publish', 'subscribe'];

/** Commands that would change something, or the connection, so they are only tried with ACL DRYRUN. */
export function dryRunProbes(prefix: string, queue: string, keys: QueueKeys, channel: string): Arg[][] {
  return [
    ['EVALSHA', '0'.repeat(40), 1, keys.pending],
    ['SADD', queuesKey(prefix), queue],
    ['SREM', queuesKey(prefix), queue],
    ['SMEMBERS', queuesKey(prefix)],
    ['SISMEMBER', queuesKey(prefix), queue],
    ['SUBSCRIBE', channel],
  ];
}

/** Checks this user's permissions for `queue`, with ACL DRYRUN or else by trying commands that change nothing. */
export async function checkPermissions(
  redis: Connection,
  prefix: string,
  queue: string,
  keys: QueueKeys,
): Promise<Finding> {
  const channel = wakeChannel(prefix, queue);
  const named = await redis.call('ACL', 'WHOAMI').then(String, refusedOr(undefined));
  const user = named === undefined ? 'the user of this connection' : `user ${named}`;
  const calls = probes(keys, channel);
  const dry = await redis
    .call('ACL', 'DRYRUN', String(named), ...(calls[0] as Arg[]))
    .then(() => true, refusedOr(false));
  const denied: string[] = [];
  const keysDenied = new Set<string>();
  for (const call of dry ? [...calls, ...dryRunProbes(prefix, queue, keys, channel)] : calls) {
    const said = dry
      ? await redis.call('ACL', 'DRYRUN', String(named), ...call).then(String)
      : await tryCall(redis, call);
    if (said === 'OK') continue;
    const command = String(call[0]).toLowerCase();
    if (/ access /.test(said)) keysDenied.add(HINTS.includes(command) ? `&${prefix}:*` : `~${prefix}:*`);
    else denied.push(command);
  }
  if (denied.length + keysDenied.size === 0) {
    const which = dry || named === 'default' ? 'delayq needs' : 'could be tried';
    return fine('rights', `${user} has all permissions that ${which}`);
  }
  const lacking = [...denied, ...(keysDenied.size > 0 ? [`use ${[...keysDenied].join(' ')}`] : [])];
  const onlyHints = denied.every((command) => HINTS.includes(command)) && !keysDenied.has(`~${prefix}:*`);
  const why = onlyHints
    ? 'waiting drains notice new jobs up to a second later'
    : 'commands that need this fail, perhaps only during an incident';
  const rules = [...denied.map((command) => `+${command}`), ...keysDenied].map(shellWord).join(' ');
  const cure = redisCli(redis.address, `acl setuser ${named ? shellWord(named) : 'USER'} ${rules}`);
  return bad(onlyHints ? 'warn' : 'fail', 'rights', `${user} may not ${lacking.join(', ')}`, why, cure);
}

/** Tries a call that changes nothing. Returns what Redis says about its permissions, or OK. */
async function tryCall(redis: Connection, [command, ...args]: Arg[]): Promise<string> {
  try {
    await redis.call(command as string, ...args);
    return 'OK';
  } catch (error) {
    if (!isDelayqError(error, 'refused', 'config', 'internal', 'temporary')) throw error;
    return error.code === 'refused' ? String(error.why) : 'OK';
  }
}

/** For commands that this server may not know or not allow: returns `otherwise` instead. */
export function refusedOr<T>(otherwise: T): (error: unknown) => T {
  return (error) => {
    if (isDelayqError(error, 'refused', 'config', 'internal')) return otherwise;
    throw error;
  };
}
