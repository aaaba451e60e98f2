import { setTimeout as sleep } from 'node:timers/promises';
import { carryOn, HELD, heldIn } from './carry-on.js';
import { text } from './replies.js';
import type { Store } from './store.js';

/** The most jobs with endless leases to look at: a growth holds some hundreds at a time. */
const MAX_HELD = 10_000;

/** How long to wait before listing again because of a growth, ms. */
const AGAIN_MS = 50;

export interface Still {
  readonly signal?: AbortSignal;
  /** The result of {@link movementOf} before another read that must match the list. */
  readonly before?: string | null | Promise<string | null>;
}

/**
 * Lists by `list` until no growth has moved a job meanwhile: such a job may be missing from a list, or come twice.
 * Yields what each list yields; the jobs of an earlier one come again unless they have changed. `signal` ends it after
 * a list.
 */
export async function* untilStill<T>(
  store: Store,
  list: () => AsyncIterable<T>,
  { signal, before = movementOf(store) }: Still = {},
): AsyncGenerator<T> {
  for (let last = await before; ; ) {
    yield* list();
    const now = await movementOf(store);
    if ((now !== null && now === last) || signal?.aborted) return;
    last = now;
    await sleep(AGAIN_MS);
  }
}

/**
 * How far a growth of the queue has come. If it is the same before and after something was listed, no job was moved
 * from one partition to another meanwhile. Null: some are on their way now.
 */
export async function movementOf(store: Store): Promise<string | null> {
  const { count, from } = await store.look();
  if (from === undefined) return String(count);
  const carried = await Promise.all(Array.from({ length: from }, (_, i) => carriedFrom(store, i)));
  if (!carried.includes(undefined)) return [count, from, ...carried].join(' ');
  await carryOn(store);
  return null;
}

/** How many jobs a growth has moved from a partition; undefined if it holds some. */
async function carriedFrom(store: Store, i: number): Promise<string | undefined> {
  const { redis } = store;
  const { leases } = await heldIn(redis, store.keys(i), MAX_HELD);
  // Moves to other queues may stand still for days.
  if (leases.some((lease) => HELD.test(lease))) return undefined;
  return text(await redis.call('HGET', store.keys(i).config, 'carried')) || '0';
}
