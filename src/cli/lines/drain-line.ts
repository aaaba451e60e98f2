import { type Job, NO_ATTRIBUTES } from '../../internal.js';

/** What is printed of a job: its payload, the text of a payload that is a JSON string, or an envelope with all fields. */
export type Form = 'payload' | 'text' | 'envelope';

const LF = 10;
const CR = 13;
export const LINE_END = Buffer.from('\n');

/** Called for a job that cannot be written as asked, and is written as a JSON string: `what` says why. */
export type OnOdd = (queue: string, id: string, what: string) => void;

/** The line of a job, without a line break. */
export function lineOf(form: Form, queue: string, job: Job, onOdd: OnOdd): Buffer {
  if (form === 'payload') return oneLine(job.payload);
  const value = parse(job.payload.toString('utf8'));
  if (form === 'text') {
    if (typeof value !== 'string') return oneLine(job.payload);
    if (!/[\r\n]/.test(value)) return Buffer.from(value);
    onOdd(queue, job.id, 'a text has line breaks');
    return oneLine(job.payload);
  }
  const { id, receipt, attempt, due } = job;
  const attributes = job.attributes === NO_ATTRIBUTES ? undefined : job.attributes;
  const head = JSON.stringify({ queue, id, receipt, attempt, due, attributes });
  if (value === undefined) onOdd(queue, id, 'a payload is not JSON');
  return withPayload(head, job.payload, value !== undefined);
}

/** What a handler of one job reads: as its line, but a text keeps its line breaks. Ends with one. */
export function inputOf(form: Form, queue: string, job: Job, onOdd: OnOdd): Buffer[] {
  const text = form === 'text' ? parse(job.payload.toString('utf8')) : undefined;
  if (typeof text !== 'string') return [lineOf(form, queue, job, onOdd), LINE_END];
  return [Buffer.from(text.endsWith('\n') ? text : `${text}\n`)];
}

/** A JSON object with the payload as its last member: as it is, or as a JSON string if it is not JSON. */
export function withPayload(head: string, payload: Buffer, isJson: boolean): Buffer {
  const body = isJson ? oneLine(payload) : Buffer.from(JSON.stringify(payload.toString('utf8')));
  return Buffer.concat([Buffer.from(`${head.slice(0, -1)},"payload":`), body, Buffer.from('}')]);
}

/** Replaces line breaks, which other software may have stored: in JSON they can only be whitespace. */
function oneLine(payload: Buffer): Buffer {
  if (!payload.includes(LF) && !payload.includes(CR)) return payload;
  return Buffer.from(payload.map((byte) => (byte === LF || byte === CR ? 32 : byte)));
}

/** The value of a JSON text; undefined if it is not JSON. */
export function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
