import { DelayqError } from '../model/errors.js';
import { printable } from '../model/text.js';
import { checkName, keysOf } from '../model/validate.js';
import { Connection } from '../redis/connection.js';

/** The default namespace of all keys; the command line's `--prefix` replaces it. */
export const DEFAULT_PREFIX = 'delayq';

/** An option of each class that takes a connection. */
export interface PrefixOption {
  /** The prefix of all keys; default `delayq`. */
  readonly prefix?: string | undefined;
}

const checkOptions = keysOf<PrefixOption>('the constructor', { prefix: true });

/** Returns the prefix of all keys. Throws `usage` if it is invalid, for an unknown option, or without a connection. */
export function prefixOf(redis: Connection, options: PrefixOption): string {
  if (!(redis instanceof Connection)) {
    throw new DelayqError('usage', 'the first argument is not a connection of delayq', {
      why: 'a client of another library may send a script twice when a reply is lost',
      next: 'give what connect() returns',
    });
  }
  return checkName(checkOptions(options).prefix ?? DEFAULT_PREFIX, 'prefix');
}

/**
 * The keys of a queue and their types, in the order in which every script receives them, as KEYS[1] to KEYS[11]. The last
 * three are passed on a cluster only, behind the wake channel: scripts derive their names, and look at them only in
 * queues that use them.
 */
const KEY_TYPES = {
  pending: 'zset', // id → due, ms
  active: 'zset', // id → when its lease expires, ms
  lease: 'hash', // id → receipt, original due time, taken at, consumer
  dead: 'zset', // id → when it died, ms
  payload: 'hash', // id → payload bytes
  meta: 'hash', // id → JSON record, only for jobs that need one
  stats: 'hash', // counters, samples, and the time of the last drain
  config: 'hash', // what the queue uses, its settings, its partitions
  done: 'zset', // id → until when it is remembered, ms
  every: 'hash', // id → definition of a recurring job
  occurs: 'zset', // id of a recurring job → its next occurrence, ms
  events: 'stream', // what happened to jobs
  finished: 'zset', // id of a job that is done → when, ms
  results: 'hash', // its id → JSON: by whom, how long, what came out
} as const;

type KeyName = keyof typeof KEY_TYPES;
export const KEY_ORDER = Object.keys(KEY_TYPES) as readonly KeyName[];

/** The keys of one queue, or of one of its partitions. The hash tag keeps them in one slot of a Redis Cluster. */
export interface QueueKeys extends Readonly<Record<KeyName, string>> {
  /** The wake channel, see {@link wakeChannel}. */
  readonly wake: string;
  /** The layout as the caller knows it. Scripts refuse another one. */
  readonly layout: string;
}

/** Does not check the names. `tag`: the name of the queue, or the tag of a partition. */
export function queueKeys(prefix: string, tag: string, layout: string = ONE_PARTITION): QueueKeys {
  const keys = Object.fromEntries(KEY_ORDER.map((name) => [name, `${prefix}:{${tag}}:${name}`]));
  return { ...(keys as Record<KeyName, string>), wake: wakeChannel(prefix, tag), layout };
}

/** Says which key of a queue has another type than it must have; undefined if none has. */
export async function wrongTypeIn(keys: QueueKeys, typeOf: (key: string) => Promise<string>) {
  for (const name of KEY_ORDER) {
    const type = await typeOf(keys[name]);
    if (type !== 'none' && type !== KEY_TYPES[name]) return `${keys[name]} is a ${type}, not a ${KEY_TYPES[name]}`;
  }
  return undefined;
}

/** The layout of a queue with one partition; its config need not have it. Number 1 of all layouts. */
export const ONE_PARTITION = '1 0/1';

/** Decodes the field `layout` of config: the layout of a partition, and the features that it uses. */
export function layoutIn(field: string | undefined): { readonly layout: string; readonly uses: readonly string[] } {
  const [layout, uses = ''] = (field || ONE_PARTITION).split(' uses ');
  return { layout: layout as string, uses: uses.split(' ').filter(Boolean) };
}

/** The words in `layout` for what a queue uses, and the settings that each stands for: docs/reference/keys.md. */
export const FEATURES: Readonly<Record<string, readonly string[]>> = {
  settings: ['paused', 'tries', 'maxLost', 'backoff', 'lease', 'ttl'],
  rate: ['rate'],
  maxActive: ['maxActive'],
  windows: ['onceFor'],
  recurring: [],
  texts: ['text'],
  events: ['events'],
  results: ['keepDone'],
};

/** The fields of config that are not settings: each partition has its own. */
export const OWN_FIELDS = ['layout', 'partitions', 'returned', 'growing', 'carried'] as const;

/** The longest time between two polls of a waiting drain, ms. */
export const POLL_MS = 1_000;

/** The same for a partition of a queue that has several. */
export const PART_POLL_MS = 5_000;

/** The channel on which scripts wake waiting drains, if a job falls due before their next poll. */
export function wakeChannel(prefix: string, tag: string): string {
  return `${prefix}:{${tag}}:wake`;
}

/** set: names of the queues that delayq knows. Only a hint: a queue also works if it is not listed. */
export function queuesKey(prefix: string): string {
  return `${prefix}:queues`;
}

/**
 * The stream that gets the jobs of a queue; default: beside its keys. Throws `usage` for a key outside of their slot, in
 * which no script reaches both, and for a key of a queue.
 */
export function streamKey(prefix: string, queue: string, key = `${prefix}:{${queue}}:stream`): string {
  const [, tag] = /^[^{]*\{([^}]+)\}/.exec(key) ?? [];
  const [owner = ''] = key.split(':{');
  const why =
    tag !== queue
      ? `on a cluster it would be on another node than the queue, unless it contains {${queue}}`
      : queueOf(owner, key) !== undefined
        ? 'the keys of queues have such names'
        : undefined;
  if (why === undefined) return key;
  throw new DelayqError('usage', `the jobs of ${queue} cannot go to ${printable(key)}`, {
    why,
    next: `use another key, for example '{${queue}}:jobs'`,
  });
}

/** Returns the name of the queue that `key` belongs to; undefined if it is not a key of a queue. */
export function queueOf(prefix: string, key: string): string | undefined {
  const name = KEY_ORDER.find((one) => key.startsWith(`${prefix}:{`) && key.endsWith(`}:${one}`));
  // In the tag of a partition, the name ends at the slash, which no name has.
  return name && key.slice(prefix.length + 2, -name.length - 2).replace(/(?<=.)\/\d+\.\d+$/, '');
}

export const keyPattern = (prefix: string): string => `${prefix}:{*}:*`;
