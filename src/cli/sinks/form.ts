import { type Job, printable, type Queue } from '../../index.js';

/** What is written of a job: its payload, the text that its payload is as a JSON string, or all there is to know. */
export type Form = 'payload' | 'text' | 'envelope';

const LF = 10;
const CR = 13;

/** The line for a job, without its end. `odd` hears of what could not be written as asked. */
export function lineOf(form: Form, queue: Queue, job: Job, odd: (notice: string) => void): Buffer {
  if (form === 'payload') return oneLine(job.payload);
  const text = job.payload.toString('utf8');
  const value = parse(text);
  if (form === 'text') {
    if (typeof value !== 'string') return oneLine(job.payload);
    if (!/[\r\n]/.test(value)) return Buffer.from(value);
    odd(`${queue.name}: the text of job ${printable(job.id)} has line breaks; written as a JSON string`);
    return oneLine(job.payload);
  }
  const { id, receipt, attempt, due } = job;
  const head = JSON.stringify({ queue: queue.name, id, receipt, attempt, due });
  if (value === undefined) {
    odd(`${queue.name}: the payload of job ${printable(id)} is not JSON; written as a JSON string`);
  }
  const body = value === undefined ? Buffer.from(JSON.stringify(text)) : oneLine(job.payload);
  return Buffer.concat([Buffer.from(`${head.slice(0, -1)},"payload":`), body, Buffer.from('}')]);
}

/** A payload that other software stored may hold line breaks; in JSON they can only be whitespace. */
function oneLine(payload: Buffer): Buffer {
  if (!payload.includes(LF) && !payload.includes(CR)) return payload;
  return Buffer.from(payload.map((byte) => (byte === LF || byte === CR ? 32 : byte)));
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
