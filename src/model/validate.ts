import { DelayqError } from './errors.js';
import { printable } from './text.js';
import { LONGEST_MS } from './time.js';

const NAME = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;
const ID = /^[!-,.-~][!-~]{0,255}$/;

/** Returns `name` when it may name a queue or a prefix; else throws a `usage` error. */
export function checkName(name: string, what: 'queue' | 'prefix' = 'queue'): string {
  if (NAME.test(name)) return name;
  throw new DelayqError('usage', `${printable(name)} cannot name a ${what}`, {
    why: 'a name has 1 to 128 of A-Z a-z 0-9 . _ : - and begins with a letter or digit',
    next: 'choose such a name, for example order-close',
  });
}

/** Returns `id` when it may be a job's id; else throws a `usage` error. */
export function checkId(id: string): string {
  if (ID.test(id)) return id;
  throw new DelayqError('usage', `${printable(id)} cannot be a job's id`, {
    why: 'an id has 1 to 256 printable ASCII characters, no space, and does not begin with a dash',
    next: 'choose such an id, for example order:42, or leave it out and let delayq make one',
  });
}

/** Returns `ms` when it is a duration of at least `least` ms; else throws a `usage` error. */
export function checkMs(ms: number, what: string, least = 0): number {
  if (ms >= least && ms <= LONGEST_MS) return ms;
  throw new DelayqError('usage', `${what} cannot be ${printable(String(ms))}`, {
    why: `it is ms, from ${least} to 100 years`,
    next: `give a number, such as ${what} 60000`,
  });
}

/** Returns `value` when it is left out or counts from 1; else throws a `usage` error. */
export function checkCount<N extends number | undefined>(value: N, what: string): N {
  if (value === undefined || (Number.isSafeInteger(value) && value >= 1)) return value;
  throw new DelayqError('usage', `${what} cannot be ${printable(String(value))}`, {
    why: 'it counts from 1',
    next: `give a whole number, such as ${what} 5`,
  });
}
