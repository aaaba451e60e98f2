/** Replaces the namespace of every key; the command line's `--prefix`. */
export const DEFAULT_PREFIX = 'delayq';

/** The keys of one queue. Each name carries the queue's hash tag, so on Redis Cluster they share one slot. */
export interface QueueKeys {
  /** zset: id → due, ms */
  readonly pending: string;
  /** zset: id → time after which its lease may be taken back, ms */
  readonly active: string;
  /** hash: id → receipt, original due, taken at, by whom */
  readonly lease: string;
  /** zset: id → when it died, ms */
  readonly dead: string;
  /** hash: id → payload bytes */
  readonly payload: string;
  /** hash: id → JSON record, only for jobs that need one */
  readonly meta: string;
  /** hash: counters that only grow, and the time of the last drain */
  readonly stats: string;
  /** hash: layout version, paused, defaults */
  readonly config: string;
}

/** Names of a queue's keys in the order in which every script gets them as KEYS. */
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

/** The keys of the queue `queue` in the namespace `prefix`. Neither is checked here. */
export function queueKeys(prefix: string, queue: string): QueueKeys {
  return Object.fromEntries(KEY_ORDER.map((name) => [name, `${prefix}:{${queue}}:${name}`])) as unknown as QueueKeys;
}

/** The longest that a waiting drain sleeps before it looks again, ms. */
export const POLL_MS = 1_000;

/** Where a queue's watchers hear that something falls due before they look again. */
export function wakeOf(prefix: string, queue: string): { readonly channel: string; readonly pollMs: number } {
  return { channel: `${prefix}:{${queue}}:wake`, pollMs: POLL_MS };
}

/** set: the names of the queues that delayq has enqueued to. A hint: a queue works without being in it. */
export function queuesKey(prefix: string): string {
  return `${prefix}:queues`;
}

/** The name of the queue that a key belongs to; undefined for a key that is none of a queue. */
export function queueOf(prefix: string, key: string): string | undefined {
  const name = KEY_ORDER.find((one) => key.startsWith(`${prefix}:{`) && key.endsWith(`}:${one}`));
  return name && key.slice(prefix.length + 2, -name.length - 2);
}
