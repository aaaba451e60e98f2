import {
  type Attributes,
  checkId,
  DelayqError,
  idOf,
  JsonText,
  type NewJob,
  packAttributes,
  parseAt,
  parseDuration,
  RawPayload,
  timeOfId,
} from '../../internal.js';
import { parse } from './drain-line.js';

/** The JSON object on a line. */
export type Line = Readonly<Record<string, unknown>>;

export const badLine = (why: string) => new DelayqError('data', 'the line is not a job', { why });

/** The JSON object on a line. Throws `data` if the line is not one. */
export function objectOn(text: string): Line {
  const line = parse(text);
  if (line === undefined) throw badLine('it is not JSON');
  if (typeof line !== 'object' || line === null || Array.isArray(line)) throw badLine('it is not an object');
  return line as Line;
}

/** Throws `data` for an unknown key, as a misspelt key would change the job, and for two keys that exclude each other. */
export function checkKeys(line: Line, known: readonly string[], exclusive: readonly (readonly string[])[]): void {
  const other = Object.keys(line).find((key) => !known.includes(key));
  if (other !== undefined)
    throw badLine(`it has the unknown key ${JSON.stringify(other)}; known are ${known.join(', ')}`);
  for (const keys of exclusive) {
    const given = keys.filter((key) => key in line);
    if (given.length > 1) throw badLine(`it has both ${given.slice(0, 2).join(' and ')}`);
  }
}

const KEYS = ['payload', 'in', 'at', 'id', 'tries', 'deliveries', 'ttl', 'onceFor', 'attributes'];

/** What `show --json` and `list --json` print besides. Of these, only what a job is enqueued with counts. */
const SHOWN = [
  ...['schema', 'made', 'queue', 'idBase64', 'state', 'due', 'died', 'reason', 'attempts', 'failures', 'losses'],
  'releases',
  ...['error', 'failed', 'maxLost', 'expires', 'created', 'moving', 'leasedBy', 'leasedAt', 'leaseEnds'],
  ...['triesLeft', 'payloadBase64'],
];

const EXCLUSIVE = [
  ['in', 'at'],
  ['payload', 'payloadBase64'],
];

/** Reads a line of `--jobs`, which may be one of `show --json`. Throws `usage` or `data` if it is bad. */
export function jobOf(text: string, zone: string, now: number): NewJob {
  const found = objectOn(text);
  const isShown = 'state' in found;
  if ('when' in found && 'missed' in found)
    throw badLine('it is a recurring job, which makes jobs; change it with delayq every and its --id');
  checkKeys(found, isShown ? [...KEYS, ...SHOWN] : KEYS, EXCLUSIVE);
  const line = isShown ? plain(found) : found;
  const isRaw = 'payloadBase64' in line;
  if (!isRaw && !('payload' in found)) throw badLine('it has no key "payload"');
  const id = textOn(line, 'id');
  const job = {
    payload: isRaw ? new RawPayload(bytesOn(line, 'payload') as Buffer) : payloadOn(found, text),
    in: durationOn(line, 'in'),
    id: id === undefined ? undefined : checkId(id),
    ...optionsOn(line, zone, now),
  };
  if (!isShown) return job;
  const { state, due, created } = line as { state?: unknown; due?: number; created?: number };
  const base64 = bytesOn({ idBase64: line.idBase64 }, 'id');
  if (base64) {
    const isEditable = typeof idOf(base64) === 'string';
    const advice = isEditable ? 'change it with delayq edit' : 'give it another id, and remove the key idBase64';
    throw badLine(`its id is not text on one line; ${advice}`);
  }
  return {
    ...job,
    // A dead job is due now, as after a requeue.
    at: job.in === undefined && job.at === undefined && state !== 'dead' ? due : job.at,
    maxLost: countOn(line, 'maxLost'),
    created: created === timeOfId(String(id)) ? undefined : created,
  };
}

/** A line of `show --json` in the form of the others: without what is null, and with units. */
function plain(line: Line): Line {
  const withUnit = (key: string, value: unknown) =>
    typeof value === 'number' && (key === 'ttl' || key === 'onceFor') ? `${value}ms` : value;
  const known = Object.entries(line).filter(([, value]) => value !== null);
  return Object.fromEntries(known.map(([key, value]) => [key, withUnit(key, value)]));
}

/** What the lines of `--jobs` and of exports have in common. Throws `usage` or `data` if it is bad. */
export function optionsOn(line: Line, zone: string, now: number) {
  const at = textOn(line, 'at');
  const { attributes } = line as { attributes?: Attributes };
  if (attributes !== undefined) packAttributes(attributes);
  return {
    at: at === undefined ? undefined : parseAt(at, { zone, now }).ms,
    tries: countOn(line, 'tries'),
    deliveries: countOn(line, 'deliveries'),
    ttl: durationOn(line, 'ttl'),
    onceFor: durationOn(line, 'onceFor', 1),
    attributes,
  };
}

/** The string of a key, if the line has the key. Throws `data` if it is no string; `suchAs`: an example, for the error. */
function textOn(line: Line, key: string, suchAs = ''): string | undefined {
  const value = line[key];
  if (value === undefined || typeof value === 'string') return value;
  throw badLine(`${key} is not a string${suchAs}`);
}

/** The bytes of a key, or of its form in base64; undefined: the line has neither. */
export function bytesOn(line: Line, key: string): Buffer | undefined {
  const [text, base64] = [textOn(line, key), textOn(line, `${key}Base64`)];
  if (base64 === undefined) return text === undefined ? undefined : Buffer.from(text);
  const bytes = Buffer.from(base64, 'base64');
  // Node ignores characters that are not base64.
  if (bytes.toString('base64') !== base64) throw badLine(`${key}Base64 is not base64`);
  return bytes;
}

function durationOn(line: Line, key: string, least = 0): number | undefined {
  const text = textOn(line, key, ', such as "15m"');
  const ms = text === undefined ? undefined : parseDuration(text);
  if (ms !== undefined && ms < least) throw badLine(`${key} must be greater than zero, such as "1d"`);
  return ms;
}

function countOn(line: Line, key: string): number | undefined {
  const value = line[key] as number | undefined;
  if (value === undefined || (Number.isSafeInteger(value) && value >= 1)) return value;
  throw badLine(`${key} is not a ${typeof value === 'number' ? 'whole number from 1' : 'number'}`);
}

/** The payload of a line, byte for byte as it stands there. */
export function payloadOn(line: Line, text: string): JsonText {
  return JsonText.part(payloadText(text) ?? JSON.stringify(line.payload));
}

/** The text of the value of "payload" in a valid JSON object, byte for byte; undefined if there is none. */
function payloadText(object: string): string | undefined {
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

/** The index after the JSON string that starts at `start`; that of the end if it does not end. */
export function stringEnd(text: string, start: number): number {
  for (let quote = text.indexOf('"', start + 1); ; quote = text.indexOf('"', quote + 1)) {
    if (quote < 0) return text.length;
    let slashes = 0;
    while (text.charAt(quote - 1 - slashes) === '\\') slashes += 1;
    if (slashes % 2 === 0) return quote + 1;
  }
}
