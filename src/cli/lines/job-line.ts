import {
  type Attributes,
  checkId,
  DelayqError,
  JsonText,
  type NewJob,
  packAttributes,
  parseAt,
  parseDuration,
} from '../../internal.js';
import { parse } from './drain-line.js';

export const badLine = (why: string) => new DelayqError('data', 'the line is not a job', { why });

/** The JSON object on a line. Throws `data` if the line is not one. */
export function objectOn(text: string): Record<string, unknown> {
  const line = parse(text);
  if (line === undefined) throw badLine('it is not JSON');
  if (typeof line !== 'object' || line === null || Array.isArray(line)) throw badLine('it is not an object');
  return line as Record<string, unknown>;
}

const KEYS = ['payload', 'in', 'at', 'id', 'tries', 'deliveries', 'ttl', 'onceFor', 'attributes'];

/** Reads a line of `--jobs`. Throws `usage` or `data` if it is bad; also for unknown keys, as a misspelt key would change the job. */
export function jobOf(text: string, zone: string, now: number): NewJob {
  const line = objectOn(text);
  const { payload, in: delay, at, id, tries, deliveries, ttl, onceFor, attributes, ...others } = line;
  const [other] = Object.keys(others);
  if (!('payload' in line)) throw badLine('it has no key "payload"');
  if (other !== undefined) {
    throw badLine(`it has the unknown key ${JSON.stringify(other)}; known are ${KEYS.join(', ')}`);
  }
  if (delay !== undefined && at !== undefined) throw badLine('it has both in and at');
  for (const [key, value] of Object.entries({ in: delay, at, id, ttl, onceFor })) {
    if (value !== undefined && typeof value !== 'string')
      throw badLine(`${key} is not a string${key !== 'at' && key !== 'id' ? ', such as "15m"' : ''}`);
  }
  return {
    payload: JsonText.part(payloadText(text) ?? JSON.stringify(payload)),
    in: delay === undefined ? undefined : parseDuration(delay as string),
    at: at === undefined ? undefined : parseAt(at as string, { zone, now }).ms,
    id: id === undefined ? undefined : checkId(id as string),
    tries: countOn({ tries }),
    deliveries: countOn({ deliveries }),
    ttl: ttl === undefined ? undefined : parseDuration(ttl as string),
    onceFor: windowOn(onceFor),
    attributes: attributesOn(line),
  };
}

/** The count on a line, by its key, if it has one. Throws `data` if it is none. */
export function countOn(given: Readonly<Record<string, unknown>>): number | undefined {
  const [[key, value] = []] = Object.entries(given);
  if (value === undefined || (Number.isSafeInteger(value) && (value as number) >= 1))
    return value as number | undefined;
  throw badLine(`${key} is not a ${typeof value === 'number' ? 'whole number from 1' : 'number'}`);
}

/** The window on a line, ms, if it has one. Throws `usage` or `data` if it is not a duration greater than zero. */
export function windowOn(onceFor: unknown): number | undefined {
  if (onceFor === undefined) return undefined;
  if (typeof onceFor !== 'string') throw badLine('onceFor is not a string, such as "1d"');
  const ms = parseDuration(onceFor);
  if (ms > 0) return ms;
  throw badLine('onceFor must be greater than zero, such as "1d"');
}

/** The attributes on a line, if it has any. Throws `usage` if one is invalid. */
export function attributesOn({ attributes }: Record<string, unknown>): Attributes | undefined {
  if (attributes !== undefined) packAttributes(attributes as Attributes);
  return attributes as Attributes | undefined;
}

/** The text of the value of "payload" in a valid JSON object, byte for byte; undefined if there is none. */
export function payloadText(object: string): string | undefined {
  let depth = 0;
  let key = '';
  let start = -1;
  let found: string | undefined;
  for (let at = 0; at < object.length; ) {
    const c = object.charAt(at);
    const end = c === '"' ? stringEnd(object, at) : at + 1;
    if (depth === 1 && c === '"' && start < 0) key = JSON.parse(object.slice(at, end)) as string;
    if (depth === 1 && c === ':') start = end;
    if (depth === 1 && (c === ',' || c === '}')) {
      // JSON.parse takes the last of equal keys, too.
      if (key === 'payload') found = object.slice(start, at).trim();
      start = -1;
    }
    if (c === '{' || c === '[') depth += 1;
    if (c === '}' || c === ']') depth -= 1;
    at = end;
  }
  return found;
}

/** The index after the JSON string that starts at `start`. */
function stringEnd(text: string, start: number): number {
  for (let quote = text.indexOf('"', start + 1); ; quote = text.indexOf('"', quote + 1)) {
    let slashes = 0;
    while (text.charAt(quote - 1 - slashes) === '\\') slashes += 1;
    if (slashes % 2 === 0) return quote + 1;
  }
}
