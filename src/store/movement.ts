import { setTimeout as sleep } from 'node:timers/promises';
import { carryOn, HELD, heldIn } from './carry-on.js';
import type { Partitions } from './partitions.js';
import { text } from './replies.js';

/** The most jobs without an end of their leases that are looked at: a growth holds some hundreds at a time. */
const MOST_HELD = 10_000;

/** How long to wait before what a growth moves is looked at once more, ms. */
const AGAIN_MS = 50;

/** What may be given to {@link untilStill}. */
export interface Still {
  readonly signal?: AbortSignal;
  /** What {@link movementOf} said before something else was looked at, that must be as old as the list. */
  readonly before?: string | null | Promise<string | null>;
}

/**
 * Lists by `list` until no growth has moved a job meanwhile: such a job may be missing from a list, or come twice. Yields
 * what each list yields; the jobs of an earlier one come again unless they have changed. `signal` ends it after a list.
 */
export async function* untilStill<T>(
  parts: Partitions,
  list: () => AsyncIterable<T>,
  { signal, before = movementOf(parts) }: Still = {},
): AsyncGenerator<T> {
  for (let last = await before; ; ) {
    yield* list();
    const now = await movementOf(parts);
    if ((now !== null && now === last) || signal?.aborted) return;
    last = now;
    await sleep(AGAIN_MS);
  }
}

/**
 * How far a growth of the queue has come. If it is the same before and after something was listed, no job was moved from
 * one partition to another meanwhile. Null: some are on their way now.
 */
export async function movementOf(parts: Partitions): Promise<string | null> {
  const { count, from } = await parts.look();
  if (from === undefined) return String(count);
  const carried = await Promise.all(Array.from({ length: from }, (_, i) => carriedFrom(parts, i)));
  if (!carried.includes(undefined)) return [count, from, ...carried].join(' ');
  await carryOn(parts);
  return null;
}

/** How many jobs a growth has moved from a partition; undefined if it holds some. */
async function carriedFrom(parts: Partitions, i: number): Promise<string | undefined> {
  const { redis } = parts;
  const { leases } = await heldIn(redis, parts.keys(i), MOST_HELD);
  // Moves to other queues may stand still for days.
  if (leases.some((lease) => HELD.test(lease))) return undefined;
  return text((await redis.call('HGET', parts.keys(i).config, 'carried')) ?? undefined) || '0';
}
