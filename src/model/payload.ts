import { isUtf8 } from 'node:buffer';
import { DelayqError } from './errors.js';

/**
 * A Buffer that is not in shared memory, as fetch() and others want it. Older TypeScript has no `Buffer<ArrayBuffer>`:
 * this is what it calls `Buffer`.
 */
export type Bytes = ReturnType<typeof Buffer.alloc>;

/** The largest payload, bytes. */
export const MAX_PAYLOAD = 8 * 1024 * 1024;

const STRING = String.raw`"[^"\\\x00-\x1f\ud800-\udfff]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f\ud800-\udfff]*)*"`;
const NUMBER = String.raw`-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?`;
const SCALAR = `(?:${STRING}|${NUMBER}|true|false|null)`;

/** A scalar, or an object or array of what `value` matches. Unambiguous, so the match never backtracks far. */
function nested(value: string): string {
  const object = String.raw`\{ *(?:${STRING} *: *${value} *(?:, *(?=")|(?=\})))*\}`;
  const array = String.raw`\[ *(?:${value} *(?:, *(?!\])|(?=\])))*\]`;
  return `(?:${SCALAR}|${object}|${array})`;
}

/**
 * Matches most payloads: JSON that is not nested deeply and needs no change before it is stored. JSON.parse takes five
 * times as long, and its strings fill the heap (V8 keeps short ones in a table until a full garbage collection):
 * without the pattern a bulk enqueue uses 29 % more CPU.
 */
const PLAIN = new RegExp(`^${nested(nested(SCALAR))}$`);

/** The longest text to match, UTF-16 units: on longer ones V8 may run out of backtracking stack. */
const MAX_PLAIN = 4_096;

/** What to do about text that is not JSON. */
export const TEXT_ADVICE = 'quote it as JSON, or store any text as a JSON string: JsonText.from(text)';

/** Checked JSON as text: a payload whose big numbers, key order and escapes stay as they are. */
export class JsonText {
  /** The text to store. */
  readonly text: string;

  private constructor(text: string) {
    this.text = text;
  }

  /**
   * Trims outer whitespace and replaces line breaks (in valid JSON they only occur between tokens) by spaces; keeps
   * every other character. Throws `data` if the text is not one JSON value, not valid Unicode, or over
   * {@link MAX_PAYLOAD}.
   */
  static parse(text: string): JsonText {
    if (text.length <= MAX_PLAIN && PLAIN.test(text)) return new JsonText(text);
    // Outer whitespace is not stored.
    checkSize(text.length * 3 > MAX_PAYLOAD ? text.trim() : text);
    try {
      JSON.parse(text);
    } catch (cause) {
      throw new DelayqError('data', 'the payload is not JSON', {
        why: jsonFault(text, cause),
        next: TEXT_ADVICE,
      });
    }
    return JsonText.#kept(text);
  }

  /**
   * Like {@link JsonText.parse}, for a text that is known to be one JSON value, such as a part of parsed JSON.
   *
   * @internal
   */
  static part(text: string): JsonText {
    checkSize(text);
    return JsonText.#kept(text);
  }

  static #kept(text: string): JsonText {
    checkUnicode(text);
    const outer = text.charCodeAt(0) <= 32 || text.charCodeAt(text.length - 1) <= 32;
    const trimmed = outer ? text.trim() : text;
    return new JsonText(/[\r\n]/.test(trimmed) ? trimmed.replace(/[\r\n]/g, ' ') : trimmed);
  }

  /** Converts a value to JSON. Throws `data` if JSON cannot represent it, or the text is over {@link MAX_PAYLOAD}. */
  static from(value: unknown): JsonText {
    let text: string | undefined;
    try {
      text = JSON.stringify(value);
    } catch (cause) {
      const next = 'pass only what JSON has: no bigint and no object that contains itself';
      throw new DelayqError('data', 'the payload cannot be written as JSON', { why: String(cause), next, cause });
    }
    if (text === undefined) {
      const next = 'pass a payload; for a job without data, pass null';
      throw new DelayqError('data', 'the payload cannot be written as JSON', { why: `it is ${typeof value}`, next });
    }
    checkSize(text);
    // JSON.stringify escapes lone surrogates, except inside JSON.rawJSON of newer Node versions.
    checkUnicode(text);
    return new JsonText(text);
  }
}

/** Any bytes as a payload, also none: they are stored and delivered as they are. */
export class RawPayload {
  /** A copy of what was given. */
  readonly bytes: Bytes;

  /** Throws `usage` if `bytes` are not bytes, `data` if they are over {@link MAX_PAYLOAD}. */
  constructor(bytes: Uint8Array) {
    if (!(bytes instanceof Uint8Array)) {
      throw new DelayqError('usage', 'a raw payload must be bytes', {
        why: `it is ${typeof bytes}`,
        next: 'pass a Buffer or a Uint8Array',
      });
    }
    if (bytes.length > MAX_PAYLOAD) throw tooLarge();
    this.bytes = Buffer.from(bytes);
  }

  /** Throws, because JSON has no bytes: those of recurring jobs and those inside of a payload are refused. */
  toJSON(): never {
    throw new TypeError('a RawPayload is not JSON');
  }
}

/** Returns `payload` as JSON text. Throws `data` if JSON cannot represent it. */
export function jsonOf(payload: unknown): JsonText {
  return payload instanceof JsonText ? payload : JsonText.from(payload);
}

function checkSize(text: string): void {
  // A UTF-16 unit is at most three bytes of UTF-8, so most payloads need not be measured.
  if (text.length * 3 > MAX_PAYLOAD && Buffer.byteLength(text) > MAX_PAYLOAD) throw tooLarge();
}

function checkUnicode(text: string): void {
  if (text.isWellFormed()) return;
  throw new DelayqError('data', 'the payload is not valid Unicode', {
    why: 'it contains half of a surrogate pair',
    next: 'write the whole character, or escape it as \\uD83D\\uDE00',
  });
}

export function tooLarge(): DelayqError {
  return new DelayqError('data', 'the payload is too large', {
    why: `it is over ${MAX_PAYLOAD / 1024 / 1024} MiB`,
    next: 'store the data elsewhere and enqueue a reference to it',
  });
}

/** V8's message without the excerpt of the payload: payloads may be secret, and may contain escape sequences. */
function jsonFault(text: string, cause: unknown): string {
  if (text.trim() === '') return 'it is empty';
  const position = /at position (\d+)/.exec(String(cause))?.[1];
  if (position !== undefined) return `it breaks at character ${Number(position) + 1}`;
  return /end of (JSON )?(input|data)|Unterminated/i.test(String(cause))
    ? 'it ends too early'
    : 'it is not a JSON value';
}

/** Decodes UTF-8. Throws `data` for any other bytes, because decoding would silently change them. */
export function decodeUtf8(bytes: Buffer): string {
  if (isUtf8(bytes)) return bytes.toString('utf8');
  throw new DelayqError('data', 'the payload is not valid UTF-8', {
    why: 'it contains bytes that are not UTF-8',
    next: 'convert it to UTF-8, for example with iconv, or encode binary data as base64 in a JSON string',
  });
}
