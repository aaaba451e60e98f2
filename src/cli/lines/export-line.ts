import { isUtf8 } from 'node:buffer';
import {
  checkId,
  type Exported,
  idOf,
  JsonText,
  type NewRecurring,
  NO_ATTRIBUTES,
  type Parcel,
  type RecurringJob,
  readAttributes,
  recordOf,
  SCORE,
} from '../../internal.js';
import { parse } from './drain-line.js';
import { badLine, bytesOn, checkKeys, type Line, objectOn, optionsOn, payloadOn } from './job-line.js';

/*
 * A job as a line of export and import. Where possible it is also a line of `enqueue --jobs`:
 *   {"id":…, "at":"@seconds", "tries":…, "deliveries":…, "ttl":…, "onceFor":…, "attributes":…, "payload":…}
 * With `state` "dead", `at` is the time when the job died. `score` replaces `at` if the time is not a whole number of ms
 * with 4 to 14 digits. `record` replaces `tries` … `attributes` if the record holds more. A key ends in "Base64"
 * if its value is not text, or an id that no handler can get.
 */

/** The line of a job, without a line break. */
export function exportLine({ id, state, score, record, payload }: Exported): string {
  const head = JSON.stringify({
    ...bytesAs('id', id, typeof idOf(id) === 'string'),
    state: state === 'dead' ? state : undefined,
    ...(/^\d{4,14}$/.test(score) ? { at: `@${score.slice(0, -3)}.${score.slice(-3)}` } : { score }),
    ...(record && optionsIn(record)),
  });
  const text = jsonOf(payload);
  const last = text === undefined ? `"payloadBase64":"${payload.toString('base64')}"` : `"payload":${text}`;
  return `${head.slice(0, -1)},${last}}`;
}

/** A member of a JSON object: the bytes as a string if they are text, else as base64. */
function bytesAs(key: string, value: Buffer, isText = isUtf8(value)): object {
  return isText ? { [key]: value.toString('utf8') } : { [`${key}Base64`]: value.toString('base64') };
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

/** The options that enqueue would write as this record; the record itself if there are none. */
function optionsIn(record: Buffer): object {
  const { tries, deliveries, ttl, once: onceFor, ...rest } = Object(parse(record.toString('utf8')));
  const attributes = readAttributes(rest);
  let same = false;
  try {
    same = record.length > 0 && record.equals(Buffer.from(recordOf({ tries, deliveries, ttl, onceFor, attributes })));
  } catch {
    // enqueue would refuse them.
  }
  if (!same) return bytesAs('record', record);
  return {
    tries,
    deliveries,
    ttl: ttl === undefined ? undefined : `${ttl}ms`,
    onceFor: onceFor === undefined ? undefined : `${onceFor}ms`,
    attributes: attributes === NO_ATTRIBUTES ? undefined : attributes,
  };
}

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
  ...['tries', 'deliveries', 'ttl', 'onceFor', 'attributes'].map((key) => ['record', 'recordBase64', key]),
  ['payload', 'payloadBase64'],
];

const KEYS = [...new Set(EXCLUSIVE.flat()), 'state'];

/** Reads a line. Throws `usage` or `data` if it is bad. */
export function importedOf(text: string, zone: string, now: number): Imported {
  const line = objectOn(text);
  if (line.delayq === 'every') return { every: everyOf(line, text) };
  if ('delayq' in line) return { settings: settingsOf(line) };
  checkKeys(line, KEYS, EXCLUSIVE);
  const { id, state = 'pending' } = line;
  if (state !== 'pending' && state !== 'dead') throw badLine('state is neither "pending" nor "dead"');
  const name = bytesOn(line, 'id');
  if (name === undefined) throw badLine('it has no id: importing it again would make a second job');
  if (typeof id === 'string' && !id.isWellFormed()) checkId(id);
  const { at, ...options } = optionsOn(line, zone, now);
  const record = recordOf(options);
  const payload = 'payload' in line ? Buffer.from(payloadOn(line, text).text) : bytesOn(line, 'payload');
  if (payload === undefined) throw badLine('it has no payload');
  return {
    parcel: {
      id: name,
      state,
      score: at === undefined ? scoreOn(line) : String(at),
      record: record === '' ? bytesOn(line, 'record') : Buffer.from(record),
      payload,
    },
  };
}

function scoreOn({ score }: Line): string {
  if (score === undefined) throw badLine('it has neither at nor score');
  if (typeof score !== 'string' || !SCORE.test(score)) throw badLine('score is not a string with a number of ms');
  if (!score.endsWith('inf') && !Number.isFinite(Number(score))) throw badLine('score is too large');
  return score;
}

/** The values are checked as those of any recurring job when it is put. */
function everyOf(line: Line, text: string): ImportedEvery {
  const { delayq, schema, queue, paused, ...job } = line;
  if (schema !== 1) throw badLine('its export format is unknown to this version of delayq');
  if (typeof job.id !== 'string' || typeof job.when !== 'string') throw badLine('it has no id, or no time');
  return { job: { ...job, payload: payloadOn(line, text) } as unknown as NewRecurring, paused: paused === true };
}

function settingsOf({ delayq, schema, config }: Line): Record<string, string> {
  if (delayq !== 'export' || schema !== 1) throw badLine('its export format is unknown to this version of delayq');
  const good =
    typeof config === 'object' && config !== null && Object.values(config).every((value) => typeof value === 'string');
  if (!good) throw badLine('a value of its config is not a string');
  return config as Record<string, string>;
}
