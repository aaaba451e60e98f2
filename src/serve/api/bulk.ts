import { Refusal } from '../http/refusal.js';

/** The most jobs of a bulk request. */
const MOST = 64;

/**
 * The elements of a JSON array, each as its bytes, without the white space around it. Throws a refusal: 400 if it is not
 * such an array, or has none or too many; 413 if one has over `mostBytes`.
 */
export function elementsOf(body: Buffer, mostBytes: number): Buffer[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body.toString());
  } catch {
    // Refused below.
  }
  if (parsed === null) throw new Refusal(400, 'no jobs');
  if (!Array.isArray(parsed)) throw new Refusal(400, 'request body should be an array of objects');
  if (parsed.length === 0) throw new Refusal(400, 'no jobs');
  if (parsed.length > MOST) throw new Refusal(400, 'too many jobs');
  const elements = split(body).map((part) => trimmed(part));
  if (elements.some(({ length }) => length > mostBytes)) throw new Refusal(413, 'job too large');
  return elements;
}

const [QUOTE, COMMA, BACKSLASH] = [0x22, 0x2c, 0x5c];

/** What is between the commas of a valid JSON array, which has at least one element. */
function split(body: Buffer): Buffer[] {
  const parts: Buffer[] = [];
  let depth = 0;
  let start = 0;
  for (let i = 0; i < body.length; i++) {
    const byte = body[i] as number;
    if (byte === QUOTE) i = endOfString(body, i);
    else if (byte === COMMA && depth === 1) {
      parts.push(body.subarray(start, i));
      start = i + 1;
    } else if (byte === 0x5b || byte === 0x7b) {
      if (depth++ === 0) start = i + 1;
    } else if ((byte === 0x5d || byte === 0x7d) && --depth === 0) parts.push(body.subarray(start, i));
  }
  return parts;
}

/** Where the string ends that begins at `start`. */
function endOfString(body: Buffer, start: number): number {
  for (let end = body.indexOf(QUOTE, start + 1); ; end = body.indexOf(QUOTE, end + 1)) {
    let escapes = 0;
    while (body[end - 1 - escapes] === BACKSLASH) escapes++;
    if (escapes % 2 === 0) return end;
  }
}

/** Without the white space of JSON at its ends. */
function trimmed(part: Buffer): Buffer {
  let [start, end] = [0, part.length];
  while ((part[start] as number) <= 0x20) start++;
  while ((part[end - 1] as number) <= 0x20) end--;
  return part.subarray(start, end);
}
