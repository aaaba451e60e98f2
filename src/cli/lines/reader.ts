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

const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);

/**
 * Splits a byte stream into lines; yields those that end in a chunk together. Needs memory for one chunk and one line: a
 * line longer than `longest` bytes is skipped. Blank lines are left out, but counted.
 */
export async function* lines(stream: AsyncIterable<Buffer>, longest = MAX_LINE): AsyncGenerator<InputLine[]> {
  let number = 0;
  /** The line that has not ended yet, and its length. */
  let rest: Buffer[] = [];
  let size = 0;
  const ended = (piece: Buffer): InputLine[] => {
    const cut = piece.indexOf(LF) < 0 ? piece.length : piece.indexOf(LF);
    const isTooLong = size + cut > longest;
    let bytes = isTooLong ? piece.subarray(cut + 1) : Buffer.concat([...rest, piece]);
    // A file may begin with a byte order mark.
    if (number === 0 && bytes.subarray(0, 3).equals(BYTE_ORDER_MARK)) bytes = bytes.subarray(3);
    const found: InputLine[] = isTooLong ? [{ number: ++number, text: '', error: tooLarge() }] : [];
    if (isTooLong && cut === piece.length) return found;
    for (const text of isUtf8(bytes) ? bytes.toString('utf8').split('\n') : linesOf(bytes)) {
      number += 1;
      if (typeof text !== 'string') found.push({ number, text: '', error: text });
      else if (text.trim() !== '') found.push({ number, text });
    }
    return found;
  };
  for await (const chunk of stream) {
    const end = chunk.lastIndexOf(LF);
    if (end >= 0) {
      yield ended(chunk.subarray(0, end));
      [rest, size] = [[], 0];
    }
    size += chunk.length - end - 1;
    if (size > longest) rest = [];
    else if (end + 1 < chunk.length) rest.push(chunk.subarray(end + 1));
  }
  if (size > 0) yield ended(Buffer.alloc(0));
}

/** The lines of bytes that are not UTF-8 as a whole; for those that are not, why. */
function* linesOf(bytes: Buffer): Generator<string | DelayqError> {
  for (let at = 0, end = 0; end < bytes.length; at = end + 1) {
    end = bytes.indexOf(LF, at) < 0 ? bytes.length : bytes.indexOf(LF, at);
    try {
      yield decodeUtf8(bytes.subarray(at, end));
    } catch (error) {
      yield error as DelayqError;
    }
  }
}
