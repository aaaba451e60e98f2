import { DelayqError, decodeUtf8, JsonText, RawPayload, type StoredJob } from '../../internal.js';
import { jsonIn, parse } from './drain-line.js';
import { stringEnd } from './job-line.js';

/** A payload in a file, for an editor. */
export interface Form {
  readonly name: string;
  readonly content: Buffer;
  /** The payload in an edited file; undefined: it is the same. Throws `data` if it is none. */
  payloadOf(edited: Buffer): JsonText | RawPayload | undefined;
}

/** JSON has a line for each member and item. In a queue of texts, a text is itself; what is not JSON is so everywhere. */
export function formOf({ payload }: StoredJob, isText: boolean): Form {
  const value = payload && jsonIn(payload);
  if (isText && (!payload || typeof value === 'string')) {
    const content = Buffer.from(String(value ?? ''));
    const payloadOf = (edited: Buffer) => {
      const text = withoutNewEnd(edited, content);
      return text.equals(content) ? undefined : JsonText.from(decodeUtf8(text));
    };
    return { name: 'payload.txt', content, payloadOf };
  }
  if (payload && value === undefined) {
    const payloadOf = (edited: Buffer) => {
      const bytes = withoutNewEnd(edited, payload);
      return bytes.equals(payload) ? undefined : new RawPayload(bytes);
    };
    return { name: 'payload.txt', content: payload, payloadOf };
  }
  const json = payload?.toString() ?? '';
  const payloadOf = (edited: Buffer) => {
    const text = decodeUtf8(edited);
    if (parse(text) === undefined)
      throw new DelayqError('data', 'the payload is not JSON', { why: `it breaks at ${faultIn(text)}` });
    const stored = compact(text);
    return stored === compact(json) ? undefined : JsonText.parse(stored);
  };
  return { name: 'payload.json', content: Buffer.from(payload ? indented(json) : ''), payloadOf };
}

/** Without the line end that editors add to a text that has none. */
function withoutNewEnd(edited: Buffer, before: Buffer): Buffer {
  return edited.at(-1) === 10 && before.at(-1) !== 10 ? edited.subarray(0, -1) : edited;
}

/** Whitespace, a sign, or what has no end before one of them. */
const PIECE = /[ \t\r\n]+|[,:[\]{}]|[^ \t\r\n",:[\]{}]+/y;

/** The tokens of JSON, each as it stands there, and where they begin. The text may have faults. */
function* tokensOf(text: string): Generator<readonly [token: string, at: number]> {
  for (let at = 0; at < text.length; ) {
    PIECE.lastIndex = at;
    const token = text[at] === '"' ? text.slice(at, stringEnd(text, at)) : (PIECE.exec(text)?.[0] as string);
    if (!' \t\r\n'.includes(token.charAt(0))) yield [token, at];
    at += token.length;
  }
}

/** JSON without whitespace. Every token stays as it is: big numbers, equal keys and escapes, too. */
function compact(json: string): string {
  let text = '';
  for (const [token] of tokensOf(json)) text += token;
  return text;
}

/** Deeper levels are not indented further: of a payload with 100,000 of them the file would have gigabytes. */
const MAX_DEPTH = 50;

/** JSON with a line for each member and item. Every token stays as it is. */
function indented(json: string): string {
  let [text, last, depth] = ['', '', 0];
  for (const [token] of tokensOf(json)) {
    const opened = last === '{' || last === '[';
    const closes = token === '}' || token === ']';
    if (closes) depth -= 1;
    if (closes ? !opened : opened || last === ',') text += `\n${'  '.repeat(Math.min(depth, MAX_DEPTH))}`;
    if (token === '{' || token === '[') depth += 1;
    text += token === ':' ? ': ' : token;
    last = token;
  }
  return `${text}\n`;
}

/** Where a text that is not JSON ceases to be JSON, as in "line 3, column 7". */
function faultIn(text: string): string {
  const before = text.slice(0, faultAt(text));
  return `line ${before.split('\n').length}, column ${before.length - before.lastIndexOf('\n')}`;
}

function faultAt(text: string): number {
  const open: string[] = [];
  let [next, last] = ['value', ''];
  for (const [token, at] of tokensOf(text)) {
    const inside = open.at(-1);
    const isEnd = inside !== undefined && token === (inside === '{' ? '}' : ']');
    const isValue = token !== ',' && parse(token) !== undefined;
    if (isEnd && (next === 'more' || last === inside)) {
      open.pop();
      next = 'more';
    } else if (next === 'more' && token === ',' && inside) next = inside === '{' ? 'key' : 'value';
    else if (next === 'key' && isValue && token.startsWith('"')) next = 'colon';
    else if (next === 'colon' && token === ':') next = 'value';
    else if (next === 'value' && (token === '{' || token === '[')) {
      open.push(token);
      next = token === '{' ? 'key' : 'value';
    } else if (next === 'value' && isValue) next = 'more';
    else return at;
    last = token;
  }
  return text.trimEnd().length;
}
