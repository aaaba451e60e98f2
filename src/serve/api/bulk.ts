import { Refusal } from '../http/refusal.js';

/** The most jobs of a bulk request. */
const MAX_JOBS = 64;

/** How many arrays and objects may be open inside an element: about as many as lmstfy (Go's encoding/json) reads. */
const DEEPEST = 10_000;

/**
 * The elements of a JSON array, each as its bytes, without the white space around it. Throws a refusal: 400 if it is no
 * such array, or has none or too many; 413 if one has over `maxBytes`.
 */
export function elementsOf(body: Buffer, maxBytes: number): Buffer[] {
  if (body.length < 100 && /^[ \t\r\n]*null[ \t\r\n]*$/.test(body.toString('latin1')))
    throw new Refusal(400, 'no jobs');
  const elements = elementsIn(body, MAX_JOBS);
  if (!elements) throw new Refusal(400, 'request body should be an array of objects');
  if (elements.length === 0) throw new Refusal(400, 'no jobs');
  if (elements.length > MAX_JOBS) throw new Refusal(400, 'too many jobs');
  if (elements.some(({ length }) => length > maxBytes)) throw new Refusal(413, 'job too large');
  return elements;
}

const [QUOTE, COMMA, COLON, BACKSLASH, U] = [0x22, 0x2c, 0x3a, 0x5c, 0x75];
const [OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d];

/**
 * The elements of a JSON array, of more than `max` only the first; undefined if it is none. Throws a refusal (400) if
 * one is nested too deeply. Reads bytes and builds no values: JSON.parse would block the server for up to two seconds.
 */
function elementsIn(body: Buffer, max: number): Buffer[] | undefined {
  const elements: Buffer[] = [];
  let at = spaceEnd(body, 0);
  if (body[at] !== OPEN_ARRAY) return undefined;
  at = spaceEnd(body, at + 1);
  if (body[at] === CLOSE_ARRAY) return spaceEnd(body, at + 1) === body.length ? elements : undefined;
  for (;;) {
    const end = valueEnd(body, at);
    if (end < 0) return undefined;
    elements.push(body.subarray(at, end));
    at = spaceEnd(body, end);
    if (body[at] === CLOSE_ARRAY) return spaceEnd(body, at + 1) === body.length ? elements : undefined;
    if (body[at] !== COMMA) return undefined;
    if (elements.length > max) return elements;
    at = spaceEnd(body, at + 1);
  }
}

/** Where the value ends that begins at `at`; -1: there is none. */
function valueEnd(body: Buffer, at: number): number {
  /** The closing brackets of the arrays and objects around this place; that of the innermost is in `close`. */
  const open: number[] = [];
  let close = 0;
  let i = at;
  for (;;) {
    const byte = body[i];
    if (byte === OPEN_ARRAY || byte === OPEN_OBJECT) {
      if (open.push(close) > DEEPEST) throw new Refusal(400, 'request body is nested too deeply');
      close = byte === OPEN_ARRAY ? CLOSE_ARRAY : CLOSE_OBJECT;
      i = spaceEnd(body, i + 1);
      if (body[i] !== close) {
        if (close === CLOSE_OBJECT) i = keyEnd(body, i);
        if (i < 0) return -1;
        continue;
      }
    } else {
      i = byte === QUOTE ? stringEnd(body, i) : wordEnd(body, i);
      if (i < 0) return -1;
      if (close === 0) return i;
      i = spaceEnd(body, i);
    }
    // It may be the last value of the arrays and objects around it.
    while (body[i] === close) {
      close = open.pop() as number;
      if (close === 0) return i + 1;
      i = spaceEnd(body, i + 1);
    }
    if (body[i] !== COMMA) return -1;
    i = spaceEnd(body, i + 1);
    if (close === CLOSE_OBJECT) i = keyEnd(body, i);
    if (i < 0) return -1;
  }
}

/** Where the value begins whose key begins at `at`; -1: there is none. */
function keyEnd(body: Buffer, at: number): number {
  const end = body[at] === QUOTE ? stringEnd(body, at) : -1;
  const colon = end < 0 ? -1 : spaceEnd(body, end);
  return body[colon] === COLON ? spaceEnd(body, colon + 1) : -1;
}

const isHex = (byte = 0) =>
  (byte >= 0x30 && byte <= 0x39) || (byte >= 0x41 && byte <= 0x46) || (byte >= 0x61 && byte <= 0x66);

/** Where the string ends that begins at `at`; -1: it is none. Bytes that are not UTF-8 may be in it. */
function stringEnd(body: Buffer, at: number): number {
  for (let i = at + 1; i < body.length; i++) {
    const byte = body[i] as number;
    if (byte === QUOTE) return i + 1;
    if (byte < 0x20) return -1;
    if (byte !== BACKSLASH) continue;
    const escaped = body[++i] as number;
    if (escaped === U) {
      for (let n = 0; n < 4; n++) if (!isHex(body[++i])) return -1;
    } else if (!ESCAPED[escaped]) return -1;
  }
  return -1;
}

/** Not 0 for what may follow a backslash. */
const ESCAPED = Uint8Array.from({ length: 256 }, (_, byte) => Number('"\\/bfnrt'.includes(String.fromCharCode(byte))));
const WORDS = [Buffer.from('true'), Buffer.from('false'), Buffer.from('null')];

/** Where the number, or `true`, `false` or `null`, ends that begins at `at`; -1: there is none. */
function wordEnd(body: Buffer, at: number): number {
  const byte = body[at] as number;
  if (byte > 0x60) {
    for (const word of WORDS) {
      let n = 0;
      while (n < word.length && body[at + n] === word[n]) n++;
      if (n === word.length) return at + n;
    }
    return -1;
  }
  const digits = byte === 0x2d ? at + 1 : at;
  let end = digitsEnd(body, digits);
  if (end === digits || (body[digits] === 0x30 && end > digits + 1)) return -1;
  if (body[end] === 0x2e) {
    const fraction = end + 1;
    end = digitsEnd(body, fraction);
    if (end === fraction) return -1;
  }
  if (body[end] !== 0x65 && body[end] !== 0x45) return end;
  const exponent = body[end + 1] === 0x2b || body[end + 1] === 0x2d ? end + 2 : end + 1;
  end = digitsEnd(body, exponent);
  return end === exponent ? -1 : end;
}

function digitsEnd(body: Buffer, at: number): number {
  let i = at;
  while ((body[i] as number) >= 0x30 && (body[i] as number) <= 0x39) i++;
  return i;
}

/** Where white space ends that may begin at `at`. */
function spaceEnd(body: Buffer, at: number): number {
  let i = at;
  for (let byte = body[i]; byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09; byte = body[i]) i++;
  return i;
}
