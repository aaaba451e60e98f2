import { type Connection, closest, DelayqError, exists, Inspector } from '../../internal.js';

/** The error for a queue that does not exist. It suggests one with a similar name. */
export async function unknownQueue(redis: Connection, prefix: string, name: string): Promise<DelayqError> {
  const known = await new Inspector(redis, { prefix }).queues();
  const close = closest(name, known);
  return new DelayqError('missing', `there is no queue ${name}`, {
    why: `nothing is stored for it at ${redis.address} with the prefix ${prefix}`,
    next: close ? `did you mean ${close}?` : 'list the queues: delayq inspect',
  });
}

/** Throws `missing` if the queue does not exist. */
export async function requireQueue(redis: Connection, prefix: string, name: string): Promise<void> {
  if (!exists(await new Inspector(redis, { prefix }).inspect(name))) throw await unknownQueue(redis, prefix, name);
}
