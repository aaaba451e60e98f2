import type { Arg } from '../redis/connection.js';
import { queueKeys, queuesKey, streamKey, wakeChannel } from './keys.js';
import type { Store } from './store.js';

/** An id that no job has, so that reading or removing it changes nothing. */
const NOBODY = '(doctor)';

/** A command, as ACL rules name it, such as `config|get`, and arguments. */
export type Form = readonly [command: string, ...Arg[]];

type Need =
  | 'queues'
  | 'changing'
  | 'events'
  | 'stream'
  | 'cluster'
  | 'sentinel'
  | 'durability'
  | 'connection'
  | 'doctor';

/**
 * All commands that delayq and its scripts use, by what needs them, for `queue`, or for the tag of a partition. Without
 * CONFIG and SLOWLOG: doctor works without them, and they show secrets such as the passwords of Redis.
 */
export function formsFor(prefix: string, queue: string): Record<Need, Form[]> {
  const { pending, payload, stats, config, events } = queueKeys(prefix, queue);
  const [list, channel] = [queuesKey(prefix), wakeChannel(prefix, queue)];
  return {
    /** Queues; in a form that changes nothing. */
    queues: [
      ['eval', 'return 1', 1, pending],
      ['time'],
      ...on(
        pending,
        'type, exists, zadd XX 0 ID, zrem ID, zcard, zcount 1 0, zscore ID, zmscore ID, zrank ID, zrange 1 0',
      ),
      ...on(pending, 'zrangebyscore 1 0, zremrangebyrank 1 0, zscan 0 COUNT 1, pttl'),
      // HSET and HINCRBY fail, for lack of a value and of a number, but only after Redis has checked the permissions.
      ...on(payload, 'hset ID 0 ID, hget ID, hmget ID, hdel ID, hexists ID, hstrlen ID, hlen'),
      ...on(stats, 'hincrby ID none'),
      ...on(config, 'hgetall, hkeys, hscan 0, hrandfield'),
      ...on(`${pending}:${NOBODY}`, 'persist, unlink, mget, strlen'),
      // A message on this channel makes drains look once more, and nothing else.
      ['publish', channel, ''],
    ],
    /** Queues; in a form that would change something, or the connection. */
    changing: [
      ['evalsha', '0'.repeat(40), 1, pending],
      ['hsetnx', payload, NOBODY, NOBODY],
      ['sadd', list, queue],
      ['srem', list, queue],
      ['smembers', list],
      ['sismember', list, queue],
      ['subscribe', channel],
    ],
    /** Queues that keep events. */
    events: on(events, 'xadd * f v, xrange 1 0, xinfo|stream, xinfo|groups, xgroup|create g $, xgroup|setid g $'),
    /** drain --to-stream, whose key may also be another one. */
    stream: on(streamKey(prefix, queue), 'xadd * f v, xlen, xtrim MAXLEN 1, xpending g, xinfo|groups'),
    cluster: [['asking'], ['cluster|slots'], ['spublish', channel, ''], ['ssubscribe', channel]],
    /** Also for partitions: transfers wait until the replicas have them. */
    sentinel: [['role']],
    /** --replicas and --durable, and partitions. */
    durability: [['wait'], ['waitaof']],
    connection: [['select'], ['client|setname']],
    doctor: [['scan'], ['info'], ['acl|whoami'], ['acl|dryrun'], ['cluster|info'], ['cluster|nodes']],
  };
}

/** Commands on a key, with their further arguments. ID: one that no job has. */
const on = (key: string, commands: string): Form[] =>
  commands.split(', ').map((form) => {
    const [command = '', ...args] = form.split(' ');
    return [command, key, ...args.map((arg) => (arg === 'ID' ? NOBODY : arg))];
  });

/** The same for a queue, and for one of its other partitions if any is known. */
export function formsOf(store: Store): Record<Need, Form[]>[] {
  const tags = store.count === 1 ? [store.queue] : [store.queue, store.tagOf(1)];
  return tags.map((tag) => formsFor(store.prefix, tag));
}

/** The patterns of all keys and channels of `queues`, or of all queues of the prefix, as ACL rules write them. */
export function patternsFor(prefix: string, queues: readonly string[] = []): { keys: string[]; channels: string[] } {
  // A queue, and its partitions.
  const names = queues.length > 0 ? queues.flatMap((name) => [`{${name}}:*`, `{${name}/*}:*`]) : ['*'];
  const list = queues.length > 0 ? [`~${queuesKey(prefix)}`] : [];
  return {
    keys: [...names.map((name) => `~${prefix}:${name}`), ...list],
    channels: names.map((name) => `&${prefix}:${name}`),
  };
}
