import type { Command } from 'commander';
import {
  Auditor,
  type Connection,
  closest,
  DelayqError,
  exists,
  Inspector,
  isDelayqError,
  isPassing,
  Operator,
  queueWord,
  Recurring,
  Transfer,
} from '../../internal.js';
import type { Context, Globals } from '../host/context.js';
import { usageError } from './command.js';

/** The connection that the options of a command lead to, and what looks at its queues and acts on them. */
export function access(context: Context, options: Globals) {
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  return {
    redis,
    prefix,
    inspector: new Inspector(redis, { prefix }),
    auditor: new Auditor(redis, { prefix }),
    operator: new Operator(redis, { prefix }),
    recurring: new Recurring(redis, { prefix }),
    transfer: new Transfer(redis, { prefix }),
  };
}

/** The queue whose name is most like this one; undefined: no name is. */
export async function similarQueue(redis: Connection, prefix: string, name: string): Promise<string | undefined> {
  return closest(name, await new Inspector(redis, { prefix }).queues());
}

/** The error for a queue that does not exist. It suggests one with a similar name. */
export async function unknownQueue(redis: Connection, prefix: string, name: string): Promise<DelayqError> {
  const close = await similarQueue(redis, prefix, name);
  return new DelayqError('missing', `there is no queue ${name}`, {
    why: `nothing is stored for it at ${redis.address} with the prefix ${prefix}`,
    next: close ? `did you mean ${close}?` : 'list the queues: delayq inspect',
  });
}

/** Throws `missing` if the queue does not exist. */
export async function requireQueue(redis: Connection, prefix: string, name: string): Promise<void> {
  if (!exists(await new Inspector(redis, { prefix }).inspect(name))) throw await unknownQueue(redis, prefix, name);
}

/*
 * Commands that add jobs (enqueue, every, import, adopt, move --into) make the queue. Those that only set something need
 * --create for that: otherwise a mistyped name would go unnoticed.
 */

export interface CreateOption {
  readonly create?: boolean;
}

/** Adds the option with which a command may set something of a queue that does not exist. */
export const addCreate = (command: Command): Command =>
  command.option('--create', 'make the queue if it does not exist');

/** Throws `missing` if the queue certainly does not exist, unless it may be made. */
export async function requireOrCreate(
  redis: Connection,
  prefix: string,
  name: string,
  { create }: CreateOption,
): Promise<void> {
  if (create) return;
  await requireQueue(redis, prefix, name).catch((error: unknown) => {
    // A node that does not answer concerns the command only as far as the command needs it.
    if (isPassing(error)) return;
    if (!isDelayqError(error, 'missing')) throw error;
    const { what, why, next = '' } = error;
    const sentence = next.endsWith('?') ? next : `${next};`;
    throw new DelayqError('missing', what, { why, next: `${sentence} to make it, add --create` });
  });
}

/** Reads `QUEUE -- handler`. A queue whose name begins with a dash has a `--` of its own: `-- -x -- handler`. */
export function handlerAfter(queues: string, rest: readonly string[], command: Command): readonly string[] {
  const write = `write delayq ${command.name()}`;
  const words = command.parent?.args ?? [];
  const isDashed = queues.startsWith('-');
  const first = words.indexOf('--');
  const dashes = isDashed ? words.indexOf('--', first + 1) : first;
  const handler = isDashed && rest[0] === '--' ? rest.slice(1) : rest;
  // A variable that is not set in a script must not turn this into a drain without a handler.
  if (handler.length === 0 && dashes === words.length - 2)
    throw usageError('the queue is missing', `${write} QUEUE -- ${queues}`);
  if (handler[0] === '' || (handler.length === 0 && dashes >= 0))
    throw usageError('the handler is empty', 'give a program after --; is a variable not set?');
  if (handler.length === 0 || dashes === words.length - handler.length - 1) return handler;
  // Without -- the options of the handler would be parsed as ours.
  const before = dashes < 0 ? [] : handler.slice(0, handler.length - (words.length - dashes - 1));
  if (before.length === 0 || !before.every((word) => /^\w[\w.:-]*$/.test(word)))
    throw usageError('the handler must follow --', `${write} ${queueWord(queues)} -- ${handler.join(' ')}`);
  const line = `${[queues, ...before].join(',')} -- ${handler.slice(before.length).join(' ')}`;
  throw usageError('several queues need commas', `${write} ${line}`);
}
