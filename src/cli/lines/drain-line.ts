import { isUtf8 } from 'node:buffer';
import { type Job, NO_ATTRIBUTES } from '../../internal.js';

/**
 * What is printed of a job: its payload, the text of a payload that is a JSON string, or an envelope with all fields.
 * `exact`: as `text`, but a handler of one job gets only what is stored, without a line end.
 */
export type Form = 'payload' | 'text' | 'exact' | 'envelope';

/** The form of the jobs of a queue. */
export type FormOf = (queue: string) => Form;

const LF = 10;
const CR = 13;

/** Called for a job that cannot be written as asked, and is written as a JSON string: `what` says why. */
export type OnOdd = (queue: string, id: string, what: string) => void;

/** Why a job dies whose payload cannot be a line: it would break the lines of others, or its reader would get another. */
export const NOT_A_LINE = 'not a line: the payload is not JSON, and has line breaks or is not text';

/** Whether a job can be a line that is no envelope. */
export const isLine = ({ payload }: Job): boolean => oneLine(payload) !== undefined;

/** The line of a job, without a line break; undefined: {@link NOT_A_LINE}. */
export function lineOf(form: Form, queue: string, job: Job, onOdd: OnOdd): Buffer | undefined {
  if (form === 'payload') return oneLine(job.payload);
  if (form === 'text' || form === 'exact') {
    const value = jsonIn(job.payload);
    if (typeof value !== 'string') return oneLine(job.payload);
    if (!/[\r\n]/.test(value)) return Buffer.from(value);
    onOdd(queue, job.id, 'a text has line breaks');
    return oneLine(job.payload);
  }
  const { id, receipt, attempt, due } = job;
  const attributes = job.attributes === NO_ATTRIBUTES ? undefined : job.attributes;
  return withPayload(JSON.stringify({ queue, id, receipt, attempt, due, attributes }), job.payload);
}

/** Lines with their line ends, as one buffer. Buffer.concat() takes ten times as long. */
export function textOf(lines: readonly Buffer[]): Buffer {
  const text = Buffer.allocUnsafe(lines.reduce((size, { length }) => size + length + 1, 0));
  let at = 0;
  for (const line of lines) {
    text.set(line, at);
    at += line.length;
    text[at++] = LF;
  }
  return text;
}

/**
 * What a handler of one job reads: as its line, with an end, but a text keeps its line breaks, and what is not JSON, or in
 * a queue of texts, is given byte for byte.
 */
export function inputOf(form: Form, queue: string, job: Job, onOdd: OnOdd): Buffer {
  const value = form === 'envelope' ? null : jsonIn(job.payload);
  if (form === 'exact') return typeof value === 'string' ? Buffer.from(value) : job.payload;
  if (value === undefined) return job.payload;
  if (form === 'text' && typeof value === 'string') return Buffer.from(value.endsWith('\n') ? value : `${value}\n`);
  return textOf([lineOf(form, queue, job, onOdd) as Buffer]);
}

/**
 * A JSON object with the payload as its last member: as it is, or as `payloadBase64` if it is not JSON. `end`: what
 * follows that.
 */
export function withPayload(head: string, payload: Buffer, end = '}'): Buffer {
  const start = head.slice(0, -1);
  return jsonIn(payload) === undefined
    ? Buffer.from(`${start},"payloadBase64":"${payload.toString('base64')}"${end}`)
    : Buffer.concat([Buffer.from(`${start},"payload":`), spaced(payload), Buffer.from(end)]);
}

/** A payload as one line. It may be any text without line breaks, whose reader gets what was enqueued. */
function oneLine(payload: Buffer): Buffer | undefined {
  const isText = isUtf8(payload) && !payload.includes(0);
  if (isText && !payload.includes(LF) && !payload.includes(CR)) return payload;
  return jsonIn(payload) === undefined ? undefined : spaced(payload);
}

/** JSON with its line breaks, which other software may have stored, as spaces: they can only be whitespace. */
function spaced(json: Buffer): Buffer {
  if (!json.includes(LF) && !json.includes(CR)) return json;
  return Buffer.from(json.map((byte) => (byte === LF || byte === CR ? 32 : byte)));
}

/** The value of a payload; undefined if it is not JSON. */
export const jsonIn = (payload: Buffer): unknown => (isUtf8(payload) ? parse(payload.toString('utf8')) : undefined);

/** The value of a JSON text; undefined if it is not JSON. */
export function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
