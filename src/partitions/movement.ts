import { text } from '../redis/replies.js';
import { carryOn, HELD, heldIn } from './carry-on.js';
import type { Partitions } from './partitions.js';

/** The most jobs without an end of their leases that are looked at: a growth holds some hundreds at a time. */
const MOST_HELD = 10_000;

/**
 * How far a growth of the queue has come. If it is the same before and after something was listed, no job was moved from
 * one partition to another meanwhile. Undefined: some are on their way now.
 */
export async function movementOf(parts: Partitions): Promise<string | undefined> {
  const { count, from } = await parts.look();
  if (from === undefined) return String(count);
  const carried = await Promise.all(Array.from({ length: from }, (_, i) => carriedFrom(parts, i)));
  if (!carried.includes(undefined)) return [count, from, ...carried].join(' ');
  await carryOn(parts);
  return undefined;
}

/** How many jobs a growth has moved from a partition; undefined if it holds some. */
async function carriedFrom(parts: Partitions, i: number): Promise<string | undefined> {
  const { redis } = parts;
  const { leases } = await heldIn(redis, parts.keys(i), MOST_HELD);
  // Moves to other queues may stand still for days.
  if (leases.some((lease) => HELD.test(lease))) return undefined;
  return text((await redis.call('HGET', parts.keys(i).config, 'carried')) ?? undefined) || '0';
}
