import { isUtf8 } from 'node:buffer';
import { DelayqError } from './errors.js';

/** The largest payload, bytes. */
export const MAX_PAYLOAD = 8 * 1024 * 1024;

const STRING = String.raw`"[^"\\\x00-\x1f\ud800-\udfff]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f\ud800-\udfff]*)*"`;
const NUMBER = String.raw`-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?`;
const SCALAR = `(?:${STRING}|${NUMBER}|true|false|null)`;

/** A scalar, or an object or array of what `value` matches. There is one way to match, so nothing is tried twice. */
function nested(value: string): string {
  const object = String.raw`\{ *(?:${STRING} *: *${value} *(?:, *(?=")|(?=\})))*\}`;
  const array = String.raw`\[ *(?:${value} *(?:, *(?!\])|(?=\])))*\]`;
  return `(?:${SCALAR}|${object}|${array})`;
}

/**
 * Most payloads: JSON that is stored as it stands, not nested deeply. JSON.parse takes five times as long, and its
 * strings pile up in the heap (V8 keeps short ones in a table until it collects all garbage).
 */
const PLAIN = new RegExp(`^${nested(nested(SCALAR))}$`);

/** The longest text that is matched, UTF-16 units: on longer ones V8 may run out of room for its steps back. */
const MAX_PLAIN = 4_096;

/** Texts that JSON.parse checks first: to compile the pattern takes as long as a thousand of them. */
const FEW = 100;

/** JSON that was checked once, as text: a payload whose big numbers, key order and escapes stay as they are. */
export class JsonText {
  static #parsed = 0;
  /** As it is stored. */
  readonly text: string;

  private constructor(text: string) {
    this.text = text;
  }

  /**
   * Trims outer whitespace and turns line breaks inside (in valid JSON they can only stand between tokens) into spaces;
   * every other character is kept. Throws a `data` error when it is not one JSON value, not valid Unicode, or over
   * {@link MAX_PAYLOAD}.
   */
  static parse(text: string): JsonText {
    if (JsonText.#parsed++ >= FEW && text.length <= MAX_PLAIN && PLAIN.test(text)) return new JsonText(text);
    checkSize(text);
    try {
      JSON.parse(text);
    } catch (cause) {
      throw new DelayqError('data', 'the payload is not JSON', {
        why: jsonFault(text, cause),
        next: 'quote it as JSON, or pass --text to store any text as a JSON string',
      });
    }
    return JsonText.#kept(text);
  }

  /** The same of a text that is known to be one JSON value, as it stood for one in a text that was parsed. */
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

  /** The JSON of a value. Throws a `data` error when JSON cannot hold it. */
  static from(value: unknown): JsonText {
    let text: string | undefined;
    try {
      text = JSON.stringify(value);
    } catch (cause) {
      throw new DelayqError('data', 'the payload cannot be written as JSON', { why: String(cause), cause });
    }
    if (text === undefined) {
      throw new DelayqError('data', 'the payload cannot be written as JSON', { why: `it is ${typeof value}` });
    }
    checkSize(text);
    // JSON.stringify escapes half of a pair, but for those that JSON.rawJSON, of newer Node, lets through.
    checkUnicode(text);
    return new JsonText(text);
  }
}

/** A payload as JSON text, which it may be already. Throws a `data` error when JSON cannot hold it. */
export function jsonOf(payload: unknown): JsonText {
  return payload instanceof JsonText ? payload : JsonText.from(payload);
}

function checkSize(text: string): void {
  // A UTF-16 unit is at most three bytes of UTF-8, so most payloads need no count.
  if (text.length * 3 > MAX_PAYLOAD && Buffer.byteLength(text) > MAX_PAYLOAD) throw tooLarge();
}

function checkUnicode(text: string): void {
  if (text.isWellFormed()) return;
  throw new DelayqError('data', 'the payload is not valid Unicode', {
    why: 'it has half of a surrogate pair',
    next: 'write the character whole, or escape it as \\uD83D\\uDE00',
  });
}

/** The error for a payload over {@link MAX_PAYLOAD}. */
export function tooLarge(): DelayqError {
  return new DelayqError('data', 'the payload is too large', {
    why: `it is over ${MAX_PAYLOAD / 1024 / 1024} MiB`,
    next: 'store the data elsewhere and enqueue a reference to it',
  });
}

/** V8's message without the excerpt of the payload that it quotes: payloads may be secret, and may hold escape sequences. */
function jsonFault(text: string, cause: unknown): string {
  if (text.trim() === '') return 'it is empty';
  const position = /at position (\d+)/.exec(String(cause))?.[1];
  if (position !== undefined) return `it breaks at character ${Number(position) + 1}`;
  return /end of (JSON )?(input|data)|Unterminated/i.test(String(cause)) ? 'it ends too early' : 'it is no JSON value';
}

/** Decodes bytes as UTF-8. Throws a `data` error when they are not: what came out would not be what went in. */
export function decodeUtf8(bytes: Buffer): string {
  if (isUtf8(bytes)) return bytes.toString('utf8');
  throw new DelayqError('data', 'the payload is not valid UTF-8', {
    why: 'it has bytes that no UTF-8 text has',
    next: 'convert it to UTF-8, for example with iconv, or encode binary data as base64 in a JSON string',
  });
}
