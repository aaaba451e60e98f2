import { DelayqError, isPassing } from '../model/errors.js';
import { many } from '../model/text.js';
import { checkName } from '../model/validate.js';
import type { Connection } from '../redis/connection.js';
import type { QueueKeys } from './keys.js';
import { Store } from './store.js';

/** The most partitions that an error names. */
const NAMED = 8;

/**
 * Changes the settings or the pause of a queue: runs `act` in partition 0, which orders concurrent changes, then copies
 * its settings to all others. Throws `temporary`, naming the partitions, if some have not confirmed: a repeat goes on.
 * Throws what `act` throws.
 */
export async function changeEverywhere<T>(store: Store, act: (keys: QueueKeys) => Promise<T>): Promise<T> {
  const changed = await store.at(0, act);
  if (store.count > 1) await copyEverywhere(store);
  return changed;
}

/** Whether the payloads of a queue are texts (its setting `text`). Throws `usage` for an invalid name. */
export async function isOfTexts(redis: Connection, prefix: string, queue: string): Promise<boolean> {
  const store = Store.of(redis, prefix, checkName(queue));
  await store.look();
  return store.texts;
}

/** Copies the settings of partition 0 to all others. New partitions get them from their growth. */
export async function copyEverywhere(store: Store): Promise<void> {
  const others = Array.from({ length: store.count - 1 }, (_, n) => n + 1);
  const ended = await Promise.allSettled(others.map((i) => store.at(i, () => store.copySettings(i))));
  const failed = ended.flatMap((one, n) =>
    one.status === 'rejected' ? [{ i: n + 1, error: one.reason as unknown }] : [],
  );
  const [first] = failed;
  if (!first) return;
  for (const { error } of failed) if (!isPassing(error)) throw error;
  const cause = first.error as DelayqError;
  const more = failed.length > NAMED ? ` and ${failed.length - NAMED} more` : '';
  const which = failed.slice(0, NAMED).map(({ i }) => i);
  const why = `${which.length === 1 ? 'partition' : 'partitions'} ${which.join(', ')}${more}: ${cause.why ?? cause.what}`;
  const what = `${many(failed.length, 'partition')} of ${store.queue} did not confirm the change`;
  throw new DelayqError('temporary', what, { why, next: 'repeat it: that changes the rest', cause });
}
