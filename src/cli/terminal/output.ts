import type { ChalkInstance } from 'chalk';
import { DelayqError, type Id, idWord, inParts, isDelayqError, type Parts, printable } from '../../internal.js';

export { grouped, many } from '../../internal.js';

import type { Context } from '../host/context.js';

/** Colours text, or returns it unchanged. */
export type Paint = ChalkInstance;

/** Control and format characters, and separators of lines. */
const CONTROLS = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Escapes the control and format characters of `text`: it cannot control the terminal or break a row in two. */
export function visible(text: string): string {
  return text.replace(CONTROLS, (c) => {
    const code = c.codePointAt(0) as number;
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`;
  });
}

/** An id as it is, or quoted if it has characters that delayq does not accept in an id. */
export function shownId(id: Id = ''): string {
  const word = idWord(id);
  return /^[!-~]+$/.test(word) ? word : printable(word);
}

/** Escapes the control and format characters of JSON text. Its value stays the same. */
function visibleJson(json: string): string {
  const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return json.replace(CONTROLS, (c) => (c === '\n' ? c : c.split('').map(escaped).join('')));
}

/** Writes JSON to stdout. On a terminal its control characters are escaped. */
export function writeJson(context: Context, json: string | Buffer): Promise<void> {
  return context.write(context.stdout.isTTY ? visibleJson(json.toString()) : json);
}

/** Writes a line to stderr, without Redis logins. */
export function say(context: Context, text: string): void {
  tell(context, [`delayq: ${text}`]);
}

/** Writes an error to stderr in three parts: what failed, why, what to do next. */
export function complain(context: Context, error: unknown): void {
  const known = isDelayqError(error)
    ? error
    : new DelayqError('internal', 'delayq itself failed', {
        why: error instanceof Error ? (error.stack ?? error.message) : String(error),
        next: 'please report this as a bug',
      });
  sayInParts(context, known.what, known);
}

/** Writes to stderr what is the case, why, and what happens or is to be done next. */
export function sayInParts(context: Context, what: string, parts: Parts): void {
  tell(context, inParts(what, parts));
}

/** A command in a text, to be copied: until the end, or a comma or semicolon behind it. */
const COMMAND = /\bdelayq (?:(?![,;)](?: |$)).)+/g;

/** Writes lines to stderr. For a terminal they are broken between words, but not in a command. */
function tell(context: Context, lines: readonly string[]): void {
  const { stderr } = context;
  const said = lines.map((line) => visible(context.withoutLogins(line)));
  const { width } = sizeOf(context, stderr);
  // Holds a command together: one column wide, and `visible` has left none.
  const whole = (line: string) => line.replace(COMMAND, (command) => command.replaceAll(' ', '\x7f'));
  const folded = (line: string) =>
    broken(whole(line), width, 'delayq: '.length).map((one) => one.replaceAll('\x7f', ' '));
  stderr.write(`${(stderr.isTTY ? said.flatMap(folded) : said).join('\n')}\n`);
}

/** Returns the colours for `stream`: none unless it is a terminal. Respects NO_COLOR, FORCE_COLOR and TERM=dumb. */
export async function colours(context: Context, stream: NodeJS.WriteStream): Promise<Paint> {
  const { Chalk } = await import('chalk');
  const { NO_COLOR, FORCE_COLOR, TERM } = context.env;
  if (FORCE_COLOR !== undefined && FORCE_COLOR !== '') return new Chalk({ level: FORCE_COLOR === '0' ? 0 : 1 });
  return new Chalk({ level: NO_COLOR || TERM === 'dumb' || !stream.isTTY ? 0 : 1 });
}

/** Characters that are two columns wide. Errs on the wide side: a line that is too long would wrap. */
const WIDE =
  /^(?:\ufe0f|[\p{Emoji_Presentation}\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe10-\ufe19\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{16fe0}-\u{18dff}\u{1aff0}-\u{1b2ff}\u{1f000}-\u{1fbff}\u{20000}-\u{3fffd}])$/u;
const NARROW = /^[\p{Mn}\p{Me}]$/u;
// biome-ignore lint/suspicious/noControlCharactersInRegex: colours are made of them.
const PIECES = /\x1b\[[\d;]*m|./gsu;

function widthOf(piece: string): number {
  if (piece < '\x7f') return piece.length === 1 && piece >= ' ' ? 1 : 0;
  return WIDE.test(piece) ? 2 : NARROW.test(piece) ? 0 : 1;
}

/** Returns how many columns a line takes on a terminal. It may be coloured. */
export function columns(line: string): number {
  return /^[ -~]*$/.test(line) ? line.length : (line.match(PIECES) ?? []).reduce((sum, c) => sum + widthOf(c), 0);
}

/** Cuts a line to `room` columns and ends it with an ellipsis. It may be coloured; all colour codes are kept. */
export function clip(line: string, room: number): string {
  if (room === Number.POSITIVE_INFINITY || columns(line) <= room) return line;
  let left = room - 1;
  let text = '';
  for (const piece of line.match(PIECES) ?? []) {
    if (piece.length > 1 && piece.startsWith('\x1b')) text += piece;
    else if (left >= 0) {
      left -= widthOf(piece);
      if (left >= 0) text += piece;
      else text += room > 0 ? '…' : '';
    }
  }
  return text;
}

/** As many of `lines` as fit on `rows` rows of a terminal of `width` columns, on which long lines wrap. */
export function fitted(lines: readonly string[], rows: number, width: number): string[] {
  if (rows === Number.POSITIVE_INFINITY) return [...lines];
  const shown: string[] = [];
  for (let left = Math.floor(rows), i = 0; left > 0 && i < lines.length; i++) {
    const line = clip(lines[i] as string, left * width);
    left -= Math.max(1, Math.ceil(columns(line) / width));
    shown.push(line);
  }
  return shown;
}

/**
 * Breaks text between words into lines that fit a terminal; all but the first begin with `indent` spaces. Elsewhere it
 * stays one line, because a program may read it.
 */
export function fold(text: string, { width, height }: Room, indent = 2): string[] {
  return height === Number.POSITIVE_INFINITY ? [text] : broken(text, width, indent).map((line) => clip(line, width));
}

/** Breaks text between words into lines of at most `width` columns; a word that is longer stays whole. */
function broken(text: string, width: number, indent: number): string[] {
  const lines: string[] = [];
  let line: string | undefined;
  for (const word of text.split(' ')) {
    const longer: string = line === undefined ? word : `${line} ${word}`;
    if (line?.trim() && columns(longer) > width) {
      lines.push(line);
      line = ' '.repeat(indent) + word;
    } else line = longer;
  }
  return [...lines, line ?? ''];
}

/** Cuts a word in the middle to `room` columns: names that differ at the end stay different. */
export function shortened(word: string, room: number): string {
  if (columns(word) <= room) return word;
  const tail = word.slice(-Math.floor((room - 1) / 2));
  return `${clip(word, room - columns(tail))}${tail}`;
}

export function padded(line: string, room: number): string {
  return line + ' '.repeat(Math.max(0, room - columns(line)));
}

/** Room for text, in columns and lines. A height of Infinity: no terminal, so a program may read the text. */
export interface Room {
  readonly width: number;
  readonly height: number;
}

/** Returns the size of a terminal, 80 by 24 if it is unknown. Elsewhere lines are COLUMNS or 80 wide, and unlimited. */
export function sizeOf({ env }: Context, stream: NodeJS.WriteStream): Room {
  const asked = Math.floor(Number(env.COLUMNS));
  const width = stream.columns || (asked >= 1 ? asked : 80);
  return { width, height: stream.isTTY ? stream.rows || 24 : Number.POSITIVE_INFINITY };
}

const BORDERS = [
  ...['top', 'top-mid', 'top-left', 'top-right', 'bottom', 'bottom-mid', 'bottom-left', 'bottom-right'],
  ...['left', 'left-mid', 'mid', 'mid-mid', 'right', 'right-mid'],
];

/**
 * Formats a table for a terminal: no borders, two spaces between columns. Columns are aligned to the right, but for
 * those in `left`. Cells may be coloured. Without `head` there are only rows. Cells of the first column that are wider
 * than `widest` stay whole, and move the rest of their row.
 *
 * cli-table3 measures cells by an old version of Unicode. So it lays out placeholders, an x for each column that we
 * measured, and the cells then take their places.
 */
export async function table(
  head: string[] | undefined,
  rows: string[][],
  left: readonly number[] = [0],
  widest = Number.POSITIVE_INFINITY,
): Promise<string> {
  const { default: Table } = await import('cli-table3');
  const names = head ?? rows[0] ?? [];
  const last = names.length - 1;
  // The last column may hold large payloads. If it is aligned to the left, its width does not matter.
  const width = (cell: string, i: number) =>
    i === last && left.includes(i)
      ? Math.min(1, columns(cell.slice(0, 100)))
      : Math.min(columns(cell), i === 0 ? widest : Number.POSITIVE_INFINITY);
  const placeholders = (row: string[]) => row.map((cell, i) => 'x'.repeat(width(cell, i)));
  const layout = new Table({
    chars: { ...Object.fromEntries(BORDERS.map((name) => [name, ''])), middle: '  ' },
    style: { head: [], border: [], 'padding-left': 0, 'padding-right': 0 },
    colAligns: names.map((_, i) => (left.includes(i) ? 'left' : 'right')),
    head: placeholders(head ?? []),
  });
  layout.push(...rows.map(placeholders));
  const cells = [head ?? [], ...rows].flatMap((row) => row.filter((cell, i) => width(cell, i) > 0));
  return layout
    .toString()
    .replace(/ +$/gm, '')
    .replace(/x+/g, () => cells.shift() as string);
}

/** For JSON.stringify: null in place of missing values. */
export const orNull = (_: string, value: unknown): unknown => value ?? null;

/** Formats `value` as a JSON document with its schema number. */
export function document(value: object, replacer?: typeof orNull): string {
  return `${JSON.stringify({ schema: 1, ...value }, replacer)}\n`;
}

/** A line of what is told about one thing: its name and its value. */
export const field = (name: string, value: string): string => `  ${name.padEnd(10)}  ${value}`;
