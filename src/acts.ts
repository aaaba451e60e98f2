import type { StoredJob } from './job.js';
import type { QueueKeys } from './keys.js';
import type { Connection } from './redis.js';
import { number, pairs, words } from './replies.js';
import { type Answered, run, type Wake } from './script.js';

/*
 * What operators do to a queue: one typed function per script.
 */

/** What cancel did: the state that the job was in, or it was not there, or not in one that was asked for. */
export type Cancelled = StoredJob['state'] | 'missing';

const CANCELLED: Record<string, Cancelled> = { p: 'pending', a: 'active', d: 'dead', m: 'missing' };

/** Removes jobs that are in one of `states`. At most {@link MAX_CALL}. */
export async function cancel(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly string[],
  states: readonly StoredJob['state'][],
): Promise<Answered<Cancelled>> {
  const reply = await run(redis, 'cancel', keys, [states.map(([letter]) => letter).join(''), ...ids]);
  return { now: number(reply[0]), answers: words(reply[1], CANCELLED) };
}

/** What requeue did: the job is pending again, was not among the dead, or has no payload and stays dead. */
export type Requeued = 'requeued' | 'missing' | 'orphaned';

const REQUEUED: Record<string, Requeued> = { r: 'requeued', m: 'missing', o: 'orphaned' };

/** Puts dead jobs back into pending, due now, their counts reset. At most {@link MAX_CALL}. */
export async function requeue(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly string[],
  wake: Wake,
): Promise<Answered<Requeued>> {
  const reply = await run(redis, 'requeue', keys, [wake.channel, wake.pollMs, ...ids]);
  return { now: number(reply[0]), answers: words(reply[1], REQUEUED) };
}

/** Sets or removes defaults of a queue, name and text (empty: remove) in turn, and returns its whole config. */
export async function config(
  redis: Connection,
  keys: QueueKeys,
  change: readonly string[],
): Promise<Record<string, string>> {
  return Object.fromEntries(pairs(await run(redis, 'config', keys, [...change])));
}
