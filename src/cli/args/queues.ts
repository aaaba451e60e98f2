import { type Connection, DelayqError, exists, Inspector } from '../../internal.js';

/** The error for a queue that does not exist. It suggests one with a similar name. */
export async function unknownQueue(redis: Connection, prefix: string, name: string): Promise<DelayqError> {
  const known = await new Inspector(redis, { prefix }).queues();
  const [close] = known
    .map((other) => ({ other, distance: distance(name, other) }))
    .filter((found) => found.distance <= Math.max(2, name.length / 3))
    .sort((a, b) => a.distance - b.distance);
  return new DelayqError('missing', `there is no queue ${name}`, {
    why: `nothing was ever enqueued to it at ${redis.address} with the prefix ${prefix}`,
    next: close ? `did you mean ${close.other}?` : 'list the queues: delayq inspect',
  });
}

/** Throws `missing` if the queue does not exist. */
export async function requireQueue(redis: Connection, prefix: string, name: string): Promise<void> {
  if (!exists(await new Inspector(redis, { prefix }).inspect(name))) throw await unknownQueue(redis, prefix, name);
}

/** The edit distance of two names (Levenshtein 1966), with one row of the table kept. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (const [i, x] of [...a].entries()) {
    const next = [i + 1];
    for (const [j, y] of [...b].entries()) {
      next.push(Math.min((row[j] ?? 0) + (x === y ? 0 : 1), (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
