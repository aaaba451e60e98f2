import { DelayqError } from './errors.js';
import { printable } from './text.js';

/** Short texts that belong to a job besides its payload, by name: for example its `traceparent`. */
export type Attributes = Readonly<Record<string, string>>;

/** The attributes of all jobs that have none. */
export const NO_ATTRIBUTES: Attributes = Object.freeze({});

/** Precedes the name of an attribute in a record, beside the names of its other fields. */
const PREFIX = 'a:';

const NAME = /^[a-z][a-z0-9_-]{0,31}$/;

/** The longest value, bytes. */
const MAX_VALUE = 128;

/** The most attributes of a job. */
const MAX_COUNT = 16;

/**
 * Returns attributes as fields of a record, ordered by name; without those whose value is undefined. Throws `usage` if
 * one is invalid.
 */
export function packAttributes(attributes: Readonly<Record<string, string | undefined>>): Record<string, string> {
  // Of a Map or Headers there would be no names, so nothing would be stored.
  if (typeof attributes !== 'object' || attributes === null || Symbol.iterator in attributes) {
    throw new DelayqError('usage', 'invalid attributes', {
      why: 'they are not an object with names and values',
      next: "write them as { traceparent: '…' }",
    });
  }
  const names = Object.keys(attributes).filter((name) => attributes[name] !== undefined);
  if (names.length > MAX_COUNT) {
    throw new DelayqError('usage', `a job cannot have ${names.length} attributes`, {
      why: `it can have at most ${MAX_COUNT}`,
      next: 'put the rest into the payload',
    });
  }
  const variables = names.map((name) => name.replaceAll('_', '-'));
  const second = variables.findIndex((variable, i) => variables.indexOf(variable) !== i);
  if (second >= 0) {
    throw new DelayqError(
      'usage',
      `${names[second]} clashes with ${names[variables.indexOf(variables[second] ?? '')]}`,
      {
        why: 'handlers would get both attributes in the same variable',
        next: 'rename one of them',
      },
    );
  }
  return Object.fromEntries(names.sort().map((name) => [PREFIX + checkName(name), checkValue(name, attributes[name])]));
}

function checkName(name: string): string {
  if (NAME.test(name)) return name;
  throw new DelayqError('usage', `${printable(name)} cannot name an attribute`, {
    why: 'a name has 1 to 32 of the characters a-z 0-9 _ - and begins with a letter',
    next: 'choose another name, for example traceparent',
  });
}

function checkValue(name: string, value: unknown): string {
  const why = faultOf(value);
  if (why === undefined) return value as string;
  throw new DelayqError('usage', `the attribute ${name} has an invalid value`, {
    why,
    next: `give it a text of at most ${MAX_VALUE} bytes, or put the value into the payload`,
  });
}

/** Why a value is invalid; undefined: it is valid. */
function faultOf(value: unknown): string | undefined {
  if (typeof value !== 'string') return 'it is not a string';
  if (Buffer.byteLength(value) > MAX_VALUE) return `it is over ${MAX_VALUE} bytes`;
  // What is not UTF-8 has become this character when it was decoded.
  if (value.includes('\ufffd')) return 'it contains U+FFFD, which stands for damaged text';
  if (!value.isWellFormed()) return 'it contains half of a surrogate pair';
  return /\p{Cc}/u.test(value) ? 'it contains a control character' : undefined;
}

/**
 * Returns the attributes in a record, ordered by name. Ignores invalid ones, which other software may have stored, and
 * those that are too many.
 */
export function readAttributes(record: Readonly<Record<string, unknown>>): Attributes {
  const fields = Object.keys(record).filter(
    (field) =>
      field.startsWith(PREFIX) && NAME.test(field.slice(PREFIX.length)) && faultOf(record[field]) === undefined,
  );
  if (fields.length === 0) return NO_ATTRIBUTES;
  const kept = fields.sort().slice(0, MAX_COUNT);
  return Object.fromEntries(kept.map((field) => [field.slice(PREFIX.length), record[field] as string]));
}
