import type { Command } from 'commander';
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

/** A handler after `--`, and where among the words of the command line that `--` is; -1: there is none. */
export interface HandlerWords {
  readonly handler: readonly string[];
  readonly words: readonly string[];
  readonly dashes: number;
}

/** Reads `QUEUE -- handler`. A queue whose name begins with a dash has a `--` of its own: `-- -x -- handler`. */
export function handlerAfter(queues: string, rest: readonly string[], command: Command): HandlerWords {
  const words = command.parent?.args ?? [];
  const first = words.indexOf('--');
  if (!queues.startsWith('-')) return { handler: rest, words, dashes: first };
  return { handler: rest[0] === '--' ? rest.slice(1) : rest, words, dashes: words.indexOf('--', first + 1) };
}
