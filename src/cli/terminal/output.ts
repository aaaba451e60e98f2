import type { ChalkInstance } from 'chalk';
import { DelayqError, type Id, idWord, isDelayqError, printable } from '../../internal.js';

export { grouped, many } from '../../internal.js';

import type { Context } from '../host/context.js';

/** Colours text, or leaves it as it is. */
export type Paint = ChalkInstance;

/** `text` with every character made visible that a terminal would obey, or that could make one row look like two. */
export function visible(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => {
    const code = c.codePointAt(0) as number;
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`;
  });
}

/** An id as it is, or quoted when it is not one that delayq would take. */
export function shownId(id: Id = ''): string {
  const word = idWord(id);
  return /^[!-~]+$/.test(word) ? word : printable(word);
}

/** `json` for a terminal: the same value, with every character escaped that a terminal would obey. */
export function visibleJson(json: string): string {
  return json.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) =>
    c === '\n'
      ? c
      : Array.from({ length: c.length }, (_, i) => `\\u${c.charCodeAt(i).toString(16).padStart(4, '0')}`).join(''),
  );
}

/** Writes one line for people to stderr. */
export function say(context: Context, text: string): void {
  context.stderr.write(`delayq: ${visible(context.withoutLogins(text))}\n`);
}

/** Writes an error to stderr in its three parts. */
export function complain(context: Context, error: unknown): void {
  const known = isDelayqError(error)
    ? error
    : new DelayqError('internal', 'delayq itself failed', {
        why: error instanceof Error ? (error.stack ?? error.message) : String(error),
        next: 'please report this as a bug',
      });
  const lines = [`delayq: ${visible(context.withoutLogins(known.message))}`];
  if (known.why)
    for (const [i, line] of context.withoutLogins(known.why).split('\n').entries())
      lines.push(`${i ? '       ' : '  why: '} ${visible(line)}`);
  if (known.next) lines.push(`  next: ${visible(context.withoutLogins(known.next))}`);
  context.stderr.write(`${lines.join('\n')}\n`);
}

/** Colours for `stream`: none unless it is a terminal that wants them (NO_COLOR, FORCE_COLOR and TERM=dumb obeyed). */
export async function colours(context: Context, stream: NodeJS.WriteStream): Promise<Paint> {
  const { Chalk } = await import('chalk');
  const { NO_COLOR, FORCE_COLOR, TERM } = context.env;
  if (FORCE_COLOR !== undefined && FORCE_COLOR !== '') return new Chalk({ level: FORCE_COLOR === '0' ? 0 : 1 });
  return new Chalk({ level: NO_COLOR || TERM === 'dumb' || !stream.isTTY ? 0 : 1 });
}

/** What a terminal draws two columns wide. Rather too much than too little: a line that is too long would wrap. */
const WIDE =
  /^(?:\ufe0f|[\p{Emoji_Presentation}\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe10-\ufe19\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{16fe0}-\u{18dff}\u{1aff0}-\u{1b2ff}\u{1f000}-\u{1fbff}\u{20000}-\u{3fffd}])$/u;
const NARROW = /^[\p{Mn}\p{Me}]$/u;
// biome-ignore lint/suspicious/noControlCharactersInRegex: colours are made of them.
const PIECES = /\x1b\[[\d;]*m|./gsu;

function widthOf(piece: string): number {
  if (piece < '\x7f') return piece.length === 1 && piece >= ' ' ? 1 : 0;
  return WIDE.test(piece) ? 2 : NARROW.test(piece) ? 0 : 1;
}

/** How many columns of a terminal a line takes that may be coloured. */
export function columns(line: string): number {
  return /^[ -~]*$/.test(line) ? line.length : (line.match(PIECES) ?? []).reduce((sum, c) => sum + widthOf(c), 0);
}

/** A line that may be coloured, cut to `room` columns: what is cut off becomes an ellipsis, colours end. */
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

/** A line with spaces behind it up to `room` columns. */
export function padded(line: string, room: number): string {
  return line + ' '.repeat(Math.max(0, room - columns(line)));
}

/** How large the terminal is: 80 by 24 when it does not say. */
export function sizeOf(stream: NodeJS.WriteStream): { width: number; height: number } {
  return { width: stream.columns || 80, height: stream.rows || 24 };
}

/** No meaning, one column wide: cli-table3 counts columns by an old table of Unicode, so it lays out these. */
const STAND_IN = '\ue000';

/**
 * A table for a terminal: no lines, columns two spaces apart, all but the first flush right unless `left` names them.
 * Cells may be coloured. Without `head` only the rows.
 */
export async function table(
  head: string[] | undefined,
  rows: string[][],
  left: readonly number[] = [0],
): Promise<string> {
  const { default: Table } = await import('cli-table3');
  const last = (head ?? rows[0] ?? []).length - 1;
  // Nothing stands behind the last column, so its cells, which may be long, need no measuring when they are flush left.
  const wide = (cell: string, i: number) =>
    i === last && left.includes(i) ? Math.min(1, columns(cell.slice(0, 100))) : columns(cell);
  const standIns = (row: string[]) => row.map((cell, i) => STAND_IN.repeat(wide(cell, i)));
  const none = ['top', 'top-mid', 'top-left', 'top-right', 'bottom', 'bottom-mid', 'bottom-left', 'bottom-right'];
  const lines = [...none, 'left', 'left-mid', 'mid', 'mid-mid', 'right', 'right-mid'];
  const made = new Table({
    chars: { ...Object.fromEntries(lines.map((name) => [name, ''])), middle: '  ' },
    style: { head: [], border: [], 'padding-left': 0, 'padding-right': 0 },
    colAligns: (head ?? rows[0] ?? []).map((_, i) => (left.includes(i) ? 'left' : 'right')),
    head: standIns(head ?? []),
  });
  made.push(...rows.map(standIns));
  const cells = [head ?? [], ...rows].flatMap((row) => row.filter((cell, i) => wide(cell, i) > 0));
  return made
    .toString()
    .split('\n')
    .map((line) => line.trimEnd())
    .join('\n')
    .replaceAll(new RegExp(`${STAND_IN}+`, 'g'), () => cells.shift() as string);
}

/** `value` as one JSON document with its schema number. */
export function document(value: object): string {
  return `${JSON.stringify({ schema: 1, ...value })}\n`;
}
