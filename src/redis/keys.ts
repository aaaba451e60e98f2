/** The default namespace of all keys; the command line's `--prefix` replaces it. */
export const DEFAULT_PREFIX = 'delayq';

/** The keys of one queue. The hash tag in their names keeps them in one slot of a Redis Cluster. */
export interface QueueKeys {
  /** zset: id → due, ms */
  readonly pending: string;
  /** zset: id → when its lease expires, ms */
  readonly active: string;
  /** hash: id → receipt, original due time, taken at, consumer */
  readonly lease: string;
  /** zset: id → when it died, ms */
  readonly dead: string;
  /** hash: id → payload bytes */
  readonly payload: string;
  /** hash: id → JSON record, only for jobs that need one */
  readonly meta: string;
  /** hash: counters, samples, and the time of the last drain */
  readonly stats: string;
  /** hash: layout version, paused, settings */
  readonly config: string;
}

/** The order in which every script receives the keys of a queue, as KEYS[1] to KEYS[8]. */
export const KEY_ORDER = [
  'pending',
  'active',
  'lease',
  'dead',
  'payload',
  'meta',
  'stats',
  'config',
] as const satisfies (keyof QueueKeys)[];

/** Returns the keys of the queue `queue` in the namespace `prefix`. Does not check either name. */
export function queueKeys(prefix: string, queue: string): QueueKeys {
  return Object.fromEntries(KEY_ORDER.map((name) => [name, `${prefix}:{${queue}}:${name}`])) as unknown as QueueKeys;
}

/** The longest time between two polls of a waiting drain, ms. */
export const POLL_MS = 1_000;

/** How scripts wake waiting drains: by a message on `channel`, if a job falls due before the next poll in `pollMs`. */
export interface Wake {
  readonly channel: string;
  readonly pollMs: number;
}

/** Returns the wake channel of a queue and its poll interval. */
export function wakeOf(prefix: string, queue: string): Wake {
  return { channel: `${prefix}:{${queue}}:wake`, pollMs: POLL_MS };
}

/** set: names of the queues that delayq knows. Only a hint: a queue also works if it is not listed. */
export function queuesKey(prefix: string): string {
  return `${prefix}:queues`;
}

/** Returns the name of the queue that `key` belongs to; undefined if it is not a key of a queue. */
export function queueOf(prefix: string, key: string): string | undefined {
  const name = KEY_ORDER.find((one) => key.startsWith(`${prefix}:{`) && key.endsWith(`}:${one}`));
  return name && key.slice(prefix.length + 2, -name.length - 2);
}

/** A pattern for SCAN that matches all keys of queues. */
export const keyPattern = (prefix: string): string => `${prefix}:{*}:*`;
