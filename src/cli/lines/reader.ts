import { isUtf8 } from 'node:buffer';
import { type DelayqError, decodeUtf8, MAX_PAYLOAD, tooLarge } from '../../internal.js';

/** A line of input: its number, from 1, and its text without the line break, or why it cannot be read. */
export interface InputLine {
  readonly number: number;
  readonly text: string;
  readonly error?: DelayqError;
}

const LF = 10;

/** The longest line, bytes: a payload and other keys. */
const MAX_LINE = MAX_PAYLOAD + 64 * 1024;

/**
 * Splits a byte stream into lines; yields those that end in a chunk together. Needs memory for one chunk and one line: a
 * line longer than `longest` bytes is skipped. Blank lines are left out, but counted.
 */
export async function* lines(stream: AsyncIterable<Buffer>, longest = MAX_LINE): AsyncGenerator<InputLine[]> {
  let number = 0;
  let rest: Buffer[] = [];
  let size = 0;
  let first = true;
  for await (const piece of stream) {
    let chunk = piece;
    const end = chunk.lastIndexOf(LF);
    if (end < 0) {
      size += chunk.length;
      if (size <= longest) rest.push(chunk);
      else rest = [];
      continue;
    }
    const batch: InputLine[] = [];
    if (size > 0) {
      const cut = chunk.indexOf(LF);
      size += cut;
      batch.push(
        ...split(size > longest ? undefined : Buffer.concat([...rest, chunk.subarray(0, cut)]), number, first),
      );
      number += 1;
      first = false;
      chunk = chunk.subarray(cut + 1);
    }
    const whole = chunk.lastIndexOf(LF);
    rest = whole + 1 < chunk.length ? [chunk.subarray(whole + 1)] : [];
    size = chunk.length - whole - 1;
    if (whole >= 0) {
      const text = chunk.subarray(0, whole);
      batch.push(...split(text, number, first));
      number += count(text) + 1;
      first = false;
    }
    yield batch;
  }
  if (size > 0) yield split(size > longest ? undefined : Buffer.concat(rest), number, first);
}

function count(text: Buffer): number {
  let n = 0;
  for (let at = text.indexOf(LF); at >= 0; at = text.indexOf(LF, at + 1)) n += 1;
  return n;
}

/** The lines of `bytes` (undefined: one line that is too long), which follow `before` others. */
function split(bytes: Buffer | undefined, before: number, first: boolean): InputLine[] {
  if (!bytes) return [{ number: before + 1, text: '', error: tooLarge() }];
  // A file may begin with a byte order mark.
  const body = first && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes;
  if (isUtf8(body)) {
    const found: InputLine[] = [];
    for (const [i, text] of body.toString('utf8').split('\n').entries()) {
      if (text.trim() !== '') found.push({ number: before + i + 1, text });
    }
    return found;
  }
  const found: InputLine[] = [];
  for (let at = 0, number = before + 1; at <= body.length; number++) {
    const end = body.indexOf(LF, at);
    const line = body.subarray(at, end < 0 ? body.length : end);
    at = end < 0 ? body.length + 1 : end + 1;
    try {
      const text = decodeUtf8(line);
      if (text.trim() !== '') found.push({ number, text });
    } catch (error) {
      found.push({ number, text: '', error: error as DelayqError });
    }
  }
  return found;
}
