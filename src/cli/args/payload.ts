import { createReadStream } from 'node:fs';
import { DelayqError, decodeUtf8, isDelayqError, JsonText, MAX_PAYLOAD, tooLarge } from '../../internal.js';

/** The longest file, bytes: the line end after its payload does not count. */
const MAX_FILE = MAX_PAYLOAD + 2;

/**
 * Reads the text of a payload from a file, or from a stream. Throws `input` if it cannot be read, with the advice `next`,
 * `data` if it is no text.
 */
export async function readPayload(
  file: string | NodeJS.ReadableStream,
  next = 'write the path of a file after @; pass a text that begins with @ through stdin: --text q -',
): Promise<string> {
  const pieces: Buffer[] = [];
  try {
    // One byte more than the longest file is enough to know that it is too large.
    const stream = typeof file === 'string' ? createReadStream(file, { end: MAX_FILE }) : file;
    let length = 0;
    for await (const piece of stream) {
      pieces.push(piece as Buffer);
      length += piece.length;
      if (length > MAX_FILE) break;
    }
  } catch (cause) {
    throw new DelayqError('input', `cannot read ${typeof file === 'string' ? JSON.stringify(file) : 'stdin'}`, {
      why: (cause as Error).message,
      next,
      cause,
    });
  }
  const bytes = Buffer.concat(pieces);
  if (bytes.length > MAX_FILE) throw tooLarge();
  return decodeUtf8(bytes);
}

/** A payload that was written on the command line. Throws `data` if it is not JSON, and sees if a shell is the reason. */
export function jsonArgument(text: string): JsonText {
  try {
    return JsonText.parse(text);
  } catch (cause) {
    const isBare =
      /^\s*[[{]/.test(text) && !text.includes('"') && /\p{L}/u.test(text.replace(/\b(true|false|null)\b/g, ''));
    if (!isBare || !isDelayqError(cause, 'data')) throw cause;
    throw new DelayqError('data', cause.what, {
      why: 'it has no double quotes: the shell removes them from an argument without single quotes',
      next: `put the payload into single quotes: '{"a":1}'`,
      cause,
    });
  }
}
