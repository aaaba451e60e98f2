import { DelayqError } from '../model/errors.js';
import { printable } from '../model/text.js';
import { checkName } from '../model/validate.js';
import type { Arg } from '../redis/connection.js';
import { DEFAULT_PREFIX, queueKeys, queuesKey, wakeChannel } from '../store/keys.js';

/** An id that no job has, so that reading or removing it changes nothing. */
const NOBODY = '(doctor)';

/** A command, as ACL rules name it, such as `config|get`, and arguments. */
export type Form = readonly [command: string, ...Arg[]];

type Need = 'queues' | 'changing' | 'cluster' | 'sentinel' | 'durability' | 'connection' | 'doctor';

/** Commands that only make drains notice new jobs sooner. */
export const HINTS = ['publish', 'subscribe', 'spublish', 'ssubscribe'];

/** The first version of Redis that knows a command, if it is later than 6.2. Older ones refuse a rule that names it. */
const SINCE: Readonly<Record<string, number>> = { spublish: 700, ssubscribe: 700, 'acl|dryrun': 700, waitaof: 702 };

/**
 * All commands that delayq and its scripts use, by what needs them, for `queue`, or for the tag of a partition. Left out
 * are CONFIG and SLOWLOG: doctor does without, and they show what a user of queues should not see, such as the passwords
 * of Redis.
 */
export function formsFor(prefix: string, queue: string): Record<Need, Form[]> {
  const { pending, payload, stats, config } = queueKeys(prefix, queue);
  const [list, channel] = [queuesKey(prefix), wakeChannel(prefix, queue)];
  return {
    /** Queues; in a form that changes nothing. */
    queues: [
      ['eval', 'return 1', 1, pending],
      ['time'],
      ['type', pending],
      ['exists', pending],
      ['zadd', pending, 'XX', 0, NOBODY],
      ['zrem', pending, NOBODY],
      ['zcard', pending],
      ['zcount', pending, 1, 0],
      ['zscore', pending, NOBODY],
      ['zmscore', pending, NOBODY],
      ['zrank', pending, NOBODY],
      ['zrange', pending, 1, 0],
      ['zrangebyscore', pending, 1, 0],
      ['zremrangebyrank', pending, 1, 0],
      // These fail, for lack of a value and of a number, but only after Redis has checked the permissions.
      ['hset', payload, NOBODY, '', NOBODY],
      ['hincrby', stats, NOBODY, 'none'],
      ['hget', payload, NOBODY],
      ['hmget', payload, NOBODY],
      ['hdel', payload, NOBODY],
      ['hexists', payload, NOBODY],
      ['hstrlen', payload, NOBODY],
      ['hlen', payload],
      ['hgetall', config],
      ['hkeys', config],
      ['hscan', config, 0],
      ['hrandfield', config],
      ['zscan', pending, 0, 'COUNT', 1],
      ['pttl', pending],
      ['persist', `${pending}:${NOBODY}`],
      ['unlink', `${pending}:${NOBODY}`],
      ['mget', `${pending}:${NOBODY}`],
      ['strlen', `${pending}:${NOBODY}`],
      // A message on this channel makes drains look once more, and nothing else.
      ['publish', channel, ''],
    ],
    /** Queues; in a form that would change something, or the connection. */
    changing: [
      ['evalsha', '0'.repeat(40), 1, pending],
      ['sadd', list, queue],
      ['srem', list, queue],
      ['smembers', list],
      ['sismember', list, queue],
      ['subscribe', channel],
    ],
    cluster: [['asking'], ['cluster|slots'], ['spublish', channel, ''], ['ssubscribe', channel]],
    /** Also for partitions: transfers wait until the replicas have them. */
    sentinel: [['role']],
    /** --replicas and --durable, and partitions. */
    durability: [['wait'], ['waitaof']],
    connection: [['select'], ['client|setname']],
    doctor: [['scan'], ['info'], ['memory|usage'], ['acl|whoami'], ['acl|dryrun'], ['cluster|info'], ['cluster|nodes']],
  };
}

/**
 * Returns the ACL SETUSER line for a user who can do all that delayq does with `queues`, or with all queues of the
 * prefix. The place of the password holds what Redis refuses, so that the line does nothing before it is filled in.
 * `version` is that of Redis, such as 7.0; default: the newest. Throws `usage` for an invalid name or version.
 */
export function aclLine(queues: readonly string[], { prefix = DEFAULT_PREFIX, version = '99.0' } = {}): string {
  checkName(prefix, 'prefix');
  const [, major, minor] = /^(\d+)\.(\d{1,2})(?:\.\d+)?$/.exec(version) ?? [];
  const number = Number(major) * 100 + Number(minor);
  if (!(number >= 602)) {
    const why = 'it must be 6.2 or newer';
    const next = 'write it as 7.0; for Redis 7.2 or newer, and for Valkey, omit it';
    throw new DelayqError('usage', `no ACL for Redis ${printable(version)}`, { why, next });
  }
  // A queue, and its partitions.
  const names = queues.length > 0 ? queues.flatMap((name) => [`{${checkName(name)}}:*`, `{${name}/*}:*`]) : ['*'];
  const list = queues.length > 0 ? [`~${queuesKey(prefix)}`] : [];
  const commands = Object.values(formsFor(prefix, 'queue'))
    .flatMap((forms) => forms.map(([command]) => command))
    .filter((command) => number >= (SINCE[command] ?? 0));
  return [
    'ACL SETUSER app on #SHA256-OF-THE-PASSWORD',
    ...['resetkeys', ...names.map((name) => `~${prefix}:${name}`), ...list],
    ...['resetchannels', ...names.map((name) => `&${prefix}:${name}`)],
    ...['-@all', ...commands.sort().map((command) => `+${command}`)],
  ].join(' ');
}
