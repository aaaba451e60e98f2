import { type Command, Option } from 'commander';
import { DelayqError, parseDuration } from '../../internal.js';

/** Reads an option that is a duration, ms. */
export function duration(text: string): number {
  return parseDuration(text);
}

/** Reads an option that is a duration longer than none, ms. */
export function longerThanNone(text: string): number {
  const ms = parseDuration(text);
  if (ms > 0) return ms;
  throw new DelayqError('usage', `"${text}" is no time at all`, {
    why: 'the duration must be longer than zero',
    next: 'write it as 30s or 5m',
  });
}

/** Reads an option that counts from 1. */
export function count(text: string): number {
  const n = Number(text);
  if (/^\d+$/.test(text) && n >= 1 && n <= Number.MAX_SAFE_INTEGER) return n;
  throw new DelayqError('usage', `${JSON.stringify(text)} is not a count`, {
    why: 'a whole number from 1 is needed',
    next: 'write it in digits, such as 100',
  });
}

/** Reads an option such as `10/s`, `100/m` or `5/h` as a number a second. */
export function ratePerSecond(text: string): number {
  const match = /^(\d+(?:\.\d+)?)\/(s|m|h)$/.exec(text);
  const n = Number(match?.[1]);
  if (match && n > 0) return n / { s: 1, m: 60, h: 3_600 }[match[2] as 's' | 'm' | 'h'];
  throw new DelayqError('usage', `${JSON.stringify(text)} is not a rate`, {
    why: 'a number above zero and a unit of time are needed',
    next: 'write it as 10/s, 100/m or 5/h',
  });
}

/** Reads an option that lists exit statuses of a handler. */
export function statuses(text: string): ReadonlySet<number> {
  const list = text.split(',').map((part) => (/^ *\d+ *$/.test(part) ? Number(part) : Number.NaN));
  if (list.every((status) => status >= 1 && status <= 254)) return new Set(list);
  throw new DelayqError('usage', `${JSON.stringify(text)} does not list exit statuses`, {
    why: 'each is a number from 1 to 254: 0 is success, and 255 stops the run',
    next: 'write them as 65,100',
  });
}

/** Adds the options that every command has. */
export function addGlobals(command: Command): Command {
  return command
    .addOption(new Option('--redis <url>', 'where Redis is (env DELAYQ_REDIS_URL, REDIS_URL)'))
    .addOption(new Option('--prefix <name>', 'namespace of all keys (env DELAYQ_PREFIX)'));
}

/** Puts what needs more than a sentence below a command's options, its lines as they are. */
export function details(command: Command, lines: string[]): Command {
  return command.addHelpText('after', `\n${lines.join('\n')}`);
}

/** Puts examples at the top of a command's help. */
export function examples(command: Command, lines: string[]): Command {
  return command.addHelpText('before', `Examples:\n${lines.map((line) => `  ${line}`).join('\n')}\n`);
}
