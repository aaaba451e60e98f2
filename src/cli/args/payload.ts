import { createReadStream } from 'node:fs';
import { DelayqError, decodeUtf8, MAX_PAYLOAD, tooLarge } from '../../internal.js';

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
    // One byte more than the largest payload is enough to know that it is too large.
    const stream = typeof file === 'string' ? createReadStream(file, { end: MAX_PAYLOAD }) : file;
    let length = 0;
    for await (const piece of stream) {
      pieces.push(piece as Buffer);
      length += piece.length;
      if (length > MAX_PAYLOAD) break;
    }
  } catch (cause) {
    throw new DelayqError('input', `cannot read ${typeof file === 'string' ? JSON.stringify(file) : 'stdin'}`, {
      why: (cause as Error).message,
      next,
      cause,
    });
  }
  const bytes = Buffer.concat(pieces);
  if (bytes.length > MAX_PAYLOAD) throw tooLarge();
  return decodeUtf8(bytes);
}
