import { isUtf8 } from 'node:buffer';
import {
  checkId,
  type DelayqError,
  type Exported,
  idOf,
  isDelayqError,
  JsonText,
  type NewRecurring,
  NO_ATTRIBUTES,
  type Parcel,
  parseAt,
  parseDuration,
  type RecurringJob,
  readAttributes,
  recordOf,
  SCORE,
} from '../../internal.js';
import { parse } from './drain-line.js';
import { attributesOn, badLine, countOn, objectOn, payloadText, windowOn } from './job-line.js';

/*
 * A job as a line of export and import. Where possible it is also a line of `enqueue --jobs`:
 *   {"id":…, "at":"@seconds", "tries":…, "deliveries":…, "ttl":…, "onceFor":…, "attributes":…, "payload":…}
 * With `state` "dead", `at` is the time when the job died. `score` replaces `at` if the time is not a whole number of ms
 * with 4 to 14 digits. `record` replaces `tries` … `attributes` if the record holds more. A key ends in "Base64"
 * if its value is not text, or an id that no handler can get.
 */

/** The line of a job, without a line break. */
export function exportLine({ id, state, score, record, payload }: Exported): string {
  const head = [
    ...bytes('id', id, typeof idOf(id) === 'string'),
    ...(state === 'dead' ? ['"state":"dead"'] : []),
    ...(/^\d{4,14}$/.test(score) ? [`"at":"@${score.slice(0, -3)}.${score.slice(-3)}"`] : [`"score":"${score}"`]),
    ...(record ? recordKeys(record) : []),
  ].join();
  const text = jsonOf(payload);
  return text === undefined
    ? `{${head},"payloadBase64":"${payload.toString('base64')}"}`
    : `{${head},"payload":${text}}`;
}

/** A member of a JSON object: the bytes as a string if they are text, else as base64. */
function bytes(key: string, value: Buffer, isText = isUtf8(value)): string[] {
  return isText
    ? [`"${key}":${JSON.stringify(value.toString('utf8'))}`]
    : [`"${key}Base64":"${value.toString('base64')}"`];
}

/** A payload as JSON text; undefined if the import would not get the same bytes from it. */
function jsonOf(payload: Buffer): string | undefined {
  if (!isUtf8(payload)) return undefined;
  const text = payload.toString('utf8');
  try {
    return JsonText.parse(text).text === text ? text : undefined;
  } catch {
    return undefined;
  }
}

/** The members of a record: limits and attributes, if enqueue would write the same record for them. */
function recordKeys(record: Buffer): string[] {
  const text = record.toString('utf8');
  const fields = Object(parse(text));
  const [tries, deliveries] = [wholeNumber(fields.tries, 1), wholeNumber(fields.deliveries, 1)];
  const [ttl, onceFor] = [wholeNumber(fields.ttl, 0), wholeNumber(fields.once, 1)];
  const attributes = readAttributes(fields);
  if (text === '' || !isUtf8(record) || recordOf({ tries, deliveries, ttl, onceFor, attributes }) !== text)
    return bytes('record', record);
  return [
    ...(tries === undefined ? [] : [`"tries":${tries}`]),
    ...(deliveries === undefined ? [] : [`"deliveries":${deliveries}`]),
    ...(ttl === undefined ? [] : [`"ttl":"${ttl}ms"`]),
    ...(onceFor === undefined ? [] : [`"onceFor":"${onceFor}ms"`]),
    ...(attributes === NO_ATTRIBUTES ? [] : [`"attributes":${JSON.stringify(attributes)}`]),
  ];
}

const wholeNumber = (value: unknown, least: number) =>
  Number.isSafeInteger(value) && (value as number) >= least ? (value as number) : undefined;

/** The first line of an export with settings. */
export function headOf(queue: string, settings: Readonly<Record<string, string>>): string {
  return JSON.stringify({ delayq: 'export', schema: 1, queue, config: settings });
}

/** The line of a recurring job. */
export function everyLine(queue: string, job: RecurringJob): string {
  const { id, when, tz, created, missed, overlap, paused, tries, maxLost, ttl, onceFor, attributes, payload } = job;
  const from = tz === undefined ? created : undefined;
  const rest = { when, from, tz, missed, overlap, ...(paused && { paused }), tries, maxLost, ttl, onceFor };
  const head = JSON.stringify({ delayq: 'every', schema: 1, queue, id, ...rest, attributes });
  return `${head.slice(0, -1)},"payload":${payload.toString('utf8')}}`;
}

/** A recurring job of an export. */
export interface ImportedEvery {
  readonly job: NewRecurring;
  readonly paused: boolean;
}

/** The content of a line: a job, a recurring one, or the settings of the exported queue. */
export type Imported =
  | { readonly parcel: Parcel }
  | { readonly every: ImportedEvery }
  | { readonly settings: Readonly<Record<string, string>> };

const EXCLUSIVE = [
  ['id', 'idBase64'],
  ['at', 'score'],
  ['record', 'recordBase64', 'tries'],
  ['record', 'recordBase64', 'deliveries'],
  ['record', 'recordBase64', 'ttl'],
  ['record', 'recordBase64', 'onceFor'],
  ['record', 'recordBase64', 'attributes'],
];

const KEYS = [...EXCLUSIVE.flat(), 'state', 'payload', 'payloadBase64'];

/** Reads a line. Throws `usage` or `data` if it is bad; also for unknown keys, as a misspelt key would change the job. */
export function importedOf(text: string, zone: string, now: number): Imported {
  const line = objectOn(text);
  if (line.delayq === 'every') return { every: everyOf(line, text) };
  if ('delayq' in line) return { settings: settingsOf(line) };
  const other = Object.keys(line).find((key) => !KEYS.includes(key));
  if (other !== undefined) throw badLine(`it has the unknown key ${JSON.stringify(other)}`);
  for (const keys of EXCLUSIVE) {
    const given = keys.filter((key) => line[key] !== undefined);
    if (given.length > 1) throw badLine(`it has both ${given.slice(0, 2).join(' and ')}`);
  }
  const { id, state = 'pending', at, score, tries, deliveries, ttl, onceFor, payload, payloadBase64 } = line;
  if (state !== 'pending' && state !== 'dead') throw badLine('state is neither "pending" nor "dead"');
  const bytesOf = (key: 'id' | 'record') => {
    const [plain, base64] = [line[key], line[`${key}Base64`]];
    for (const value of [plain, base64]) {
      if (value !== undefined && typeof value !== 'string') throw badLine(`${key} is not a string`);
    }
    if (typeof plain === 'string') return Buffer.from(plain);
    return typeof base64 === 'string' ? decoded(key, base64) : undefined;
  };
  const name = bytesOf('id');
  if (name === undefined) throw badLine('it has no id: importing it again would make a second job');
  if (typeof id === 'string' && !id.isWellFormed()) checkId(id);
  const counts = { tries: countOn({ tries }), deliveries: countOn({ deliveries }) };
  const limits = { ...counts, ttl: ttlOf(ttl), onceFor: windowOn(onceFor) };
  const own = recordOf({ ...limits, attributes: attributesOn(line) });
  return {
    parcel: {
      id: name,
      state,
      score: scoreOf(at, score, zone, now),
      record: own === '' ? bytesOf('record') : Buffer.from(own),
      payload: payloadOf(line, text, payload, payloadBase64),
    },
  };
}

function payloadOf(line: object, text: string, payload: unknown, base64: unknown): Buffer {
  if ('payload' in line === (base64 !== undefined))
    throw badLine(base64 === undefined ? 'it has no payload' : 'it has two payloads');
  if (base64 === undefined) return Buffer.from(JsonText.part(payloadText(text) ?? JSON.stringify(payload)).text);
  if (typeof base64 !== 'string') throw badLine('payloadBase64 is not a string');
  return decoded('payload', base64);
}

function decoded(key: string, base64: string): Buffer {
  const found = Buffer.from(base64, 'base64');
  // Node ignores characters that are not base64.
  if (found.toString('base64') !== base64) throw badLine(`${key}Base64 is not base64`);
  return found;
}

function scoreOf(at: unknown, score: unknown, zone: string, now: number): string {
  if (at !== undefined) {
    if (typeof at !== 'string') throw badLine('at is not a string');
    return String(parseAt(at, { zone, now }).ms);
  }
  if (score === undefined) throw badLine('it has neither at nor score');
  if (typeof score !== 'string' || !SCORE.test(score)) throw badLine('score is not a string with a number of ms');
  if (!score.endsWith('inf') && !Number.isFinite(Number(score))) throw badLine('score is too large');
  return score;
}

function ttlOf(ttl: unknown): number | undefined {
  if (ttl !== undefined && typeof ttl !== 'string') throw badLine('ttl is not a string');
  return ttl === undefined ? undefined : parseDuration(ttl);
}

/** The values are checked as those of any recurring job when it is put. */
function everyOf({ delayq, schema, queue, paused = false, payload, ...job }: Record<string, unknown>, text: string) {
  if (schema !== 1) throw badLine('its export format is unknown to this version of delayq');
  if (typeof job.id !== 'string' || typeof job.when !== 'string') throw badLine('it has no id, or no time');
  const json = JsonText.part(payloadText(text) ?? JSON.stringify(payload));
  return { job: { ...job, payload: json } as unknown as NewRecurring, paused: paused === true };
}

function settingsOf({ delayq, schema, config }: Record<string, unknown>): Record<string, string> {
  if (delayq !== 'export' || schema !== 1) throw badLine('its export format is unknown to this version of delayq');
  const good =
    typeof config === 'object' && config !== null && Object.values(config).every((value) => typeof value === 'string');
  if (!good) throw badLine('a value of its config is not a string');
  return config as Record<string, string>;
}

export const isBadLine = (error: unknown): error is DelayqError => isDelayqError(error, 'usage', 'data');
