import { DelayqError } from './errors.js';
import { printable } from './text.js';
import { LONGEST_MS } from './time.js';

const NAME = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;
const ID = /^[!-,.-~][!-~]{0,255}$/;

/** The latest time that a Date can represent, ms since 1970. */
const LATEST_MS = 8.64e15;

/** Returns `name` if it is a valid queue name or prefix. Throws `usage` otherwise. */
export function checkName(name: string, what: 'queue' | 'prefix' = 'queue'): string {
  if (NAME.test(name)) return name;
  throw new DelayqError('usage', `${printable(name)} cannot name a ${what}`, {
    why: 'a name has 1 to 128 of the characters A-Z a-z 0-9 . _ : - and begins with a letter or digit',
    next: `choose another name, for example ${what === 'queue' ? 'order-close' : 'shop'}`,
  });
}

/** Returns `id` if it is a valid job id. Throws `usage` otherwise. */
export function checkId(id: string): string {
  if (ID.test(id)) return id;
  throw new DelayqError('usage', `${printable(id)} cannot be a job's id`, {
    why: 'an id has 1 to 256 printable ASCII characters, no spaces, and does not begin with a dash',
    next: 'choose another id, for example order:42, or omit it and let delayq make one',
  });
}

/** Returns `ms` if it is a duration from `least` ms to 100 years. Throws `usage` otherwise. */
export function checkMs(ms: number, what: string, least = 0): number {
  if (ms >= least && ms <= LONGEST_MS) return ms;
  throw new DelayqError('usage', `${what} cannot be ${printable(String(ms))}`, {
    why: `it must be a number of ms, from ${least} to 100 years`,
    next: `give a number such as 60000, which is a minute`,
  });
}

/** Returns `value` if it is a whole number from 1, or undefined. Throws `usage` otherwise. */
export function checkCount<N extends number | undefined>(value: N, what: string, given = String(value)): N {
  if (value === undefined || (Number.isSafeInteger(value) && value >= 1)) return value;
  throw new DelayqError('usage', `${what} cannot be ${printable(given)}`, {
    why: 'it must be a whole number of at least 1',
    next: 'give a number such as 5',
  });
}

/** Checks a due time, of which `in` or `at` may be given. Throws `usage` if both are, or if `at` (ms) is not a time. */
export function checkDue({ in: delay, at }: { in?: unknown; at?: number | undefined }): void {
  if (delay !== undefined && at !== undefined) {
    throw new DelayqError('usage', 'a job has only one due time', {
      why: 'both in and at are given',
      next: 'omit one of them',
    });
  }
  if (at !== undefined && !(Math.abs(at) <= LATEST_MS)) {
    throw new DelayqError('usage', 'invalid at', {
      why: `${printable(String(at))} is not a time`,
      next: 'give a valid Date, or ms since 1970',
    });
  }
}
