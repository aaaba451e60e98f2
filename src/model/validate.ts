import { DelayqError } from './errors.js';
import { closest, printable } from './text.js';
import { LONGEST_MS } from './time.js';

const NAMES = {
  queue: { pattern: /^[A-Za-z0-9_-][A-Za-z0-9._:-]{0,510}$/, max: 511, first: 'a letter, a digit, _ or -' },
  prefix: { pattern: /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/, max: 128, first: 'a letter or digit' },
};
const ID = /^[!-,.-~][!-~]{0,255}$/;
const CONSUMER = /^[!-~]{1,128}$/;

/** The latest time that a Date can represent, ms since 1970. */
const LATEST_MS = 8.64e15;

/** Returns `name` if it is a valid queue name or prefix. Throws `usage` otherwise. */
export function checkName(name: string, what: 'queue' | 'prefix' = 'queue'): string {
  const { pattern, max, first } = NAMES[what];
  if (typeof name === 'string' && pattern.test(name)) return name;
  throw new DelayqError('usage', `${printable(String(name))} cannot name a ${what}`, {
    why: `a name has 1 to ${max} of the characters A-Z a-z 0-9 . _ : - and begins with ${first}`,
    next: `choose another name, for example ${what === 'queue' ? 'order-close' : 'shop'}`,
  });
}

/** Returns `id` if it is a valid job id. Throws `usage` otherwise, with the advice `next`. */
export function checkId(
  id: string,
  next = 'choose another id, for example order:42, or omit it and let delayq make one',
): string {
  if (typeof id === 'string' && ID.test(id)) return id;
  throw new DelayqError('usage', `${printable(String(id))} cannot be a job's id`, {
    why: 'an id has 1 to 256 printable ASCII characters, no spaces, and does not begin with a dash',
    next,
  });
}

/** Returns `ms` if it is a duration from `least` ms to 100 years. Throws `usage` otherwise. */
export function checkMs(ms: number, what: string, least = 0): number {
  if (typeof ms === 'number' && ms >= least && ms <= LONGEST_MS) return ms;
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

/** Returns `list` if it is an array: each character of a text would be taken for an item. Throws `usage` otherwise. */
export function checkList<L extends readonly unknown[]>(list: L, what: string): L {
  if (Array.isArray(list)) return list;
  throw new DelayqError('usage', `${what} are not an array`, { next: 'give an array, also of one' });
}

/** Returns `value` if it is one of `words`. Throws `usage` otherwise. */
export function checkWord<W extends string>(value: W, words: readonly W[], what: string): W {
  if (words.includes(value)) return value;
  const given = String(value);
  throw new DelayqError('usage', `${what} cannot be ${printable(given)}`, {
    why: `it must be one of ${words.join(', ')}`,
    next: suggestion(given, Object.fromEntries(words.map((word) => [word, '']))) ?? `write '${words[0]}', for example`,
  });
}

/**
 * Returns a function that returns an object if it has only keys that are in `known`. It throws `usage` for any other key,
 * even if its value is undefined: a misspelt option would silently have no effect. It does not look at symbols. `what` is
 * what the options are for. The values in `known` are words that people write instead of the key.
 */
export function keysOf<T extends object>(what: string, known: Readonly<Record<keyof T, string>>) {
  const names = new Set(Object.keys(known));
  return <G extends Partial<T>>(given: G): G => {
    if (typeof given !== 'object' || given === null) {
      throw new DelayqError('usage', `${what} must be an object`, { next: `with ${[...names].join(', ')}` });
    }
    for (const key in given) {
      if (names.has(key)) continue;
      throw new DelayqError('usage', `${what} has no option ${printable(key)}`, {
        why: `it knows only ${[...names].join(', ')}`,
        next: suggestion(key, known) ?? 'leave it out',
      });
    }
    return given;
  };
}

/** Asks whether one of the keys in `known` was meant: one that is like `given`, or has a synonym that is. */
function suggestion(given: string, known: Readonly<Record<string, string>>): string | undefined {
  const bare = (word: string) => word.toLowerCase().replace(/ms$/, '');
  const names = new Map<string | undefined, string>();
  for (const [name, synonyms] of Object.entries(known))
    for (const word of `${name} ${synonyms}`.trim().split(' ')) names.set(bare(word), name);
  const meant = names.get(closest(bare(given), [...names.keys()] as string[]));
  return meant && `did you mean ${meant}?`;
}

/** Returns `by` if it names a consumer. Throws `usage` otherwise. */
export function checkConsumer(by: string): string {
  if (typeof by === 'string' && CONSUMER.test(by)) return by;
  throw new DelayqError('usage', `${printable(String(by))} cannot name a consumer`, {
    why: 'a name has 1 to 128 printable ASCII characters, and no spaces',
    next: 'choose another name, for example host:pid, or leave it out',
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
  checkInstant(at, 'at');
}

/** Returns `ms` if it is a time, ms since 1970, or undefined. Throws `usage` otherwise, also if it looks like seconds. */
export function checkInstant(ms: number | undefined, what: string): number | undefined {
  if (ms !== undefined && ms >= 1e9 && ms < 1e11) {
    throw new DelayqError('usage', `invalid ${what}`, {
      why: `as ms since 1970, ${ms} is before 1973; it looks like seconds`,
      next: 'give ms since 1970: seconds * 1000',
    });
  }
  if (ms === undefined || Math.abs(ms) <= LATEST_MS) return ms;
  throw new DelayqError('usage', `invalid ${what}`, {
    why: `${printable(String(ms))} is not a time`,
    next: 'give ms since 1970, a valid Date, or text such as 2026-11-21T14:00:00+01:00',
  });
}
