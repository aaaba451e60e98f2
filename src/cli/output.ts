import type { ChalkInstance } from 'chalk';
import { DelayqError, isDelayqError, printable } from '../index.js';
import type { Context } from './context.js';

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
export function shownId(id = ''): string {
  return /^[!-~]+$/.test(id) ? id : printable(id);
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
  context.stderr.write(`delayq: ${visible(text)}\n`);
}

/** Writes an error to stderr in its three parts. */
export function complain(context: Context, error: unknown): void {
  const known = isDelayqError(error)
    ? error
    : new DelayqError('internal', 'delayq itself failed', {
        why: error instanceof Error ? (error.stack ?? error.message) : String(error),
        next: 'please report this as a bug',
      });
  const lines = [`delayq: ${visible(known.message)}`];
  if (known.why)
    for (const [i, line] of known.why.split('\n').entries())
      lines.push(`${i ? '       ' : '  why: '} ${visible(line)}`);
  if (known.next) lines.push(`  next: ${visible(known.next)}`);
  context.stderr.write(`${lines.join('\n')}\n`);
}

/** Colours for `stream`: none unless it is a terminal that wants them (NO_COLOR, FORCE_COLOR and TERM=dumb obeyed). */
export async function colours(context: Context, stream: NodeJS.WriteStream): Promise<Paint> {
  const { Chalk } = await import('chalk');
  const { NO_COLOR, FORCE_COLOR, TERM } = context.env;
  if (FORCE_COLOR !== undefined && FORCE_COLOR !== '') return new Chalk({ level: FORCE_COLOR === '0' ? 0 : 1 });
  return new Chalk({ level: NO_COLOR || TERM === 'dumb' || !stream.isTTY ? 0 : 1 });
}

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
  const none = ['top', 'top-mid', 'top-left', 'top-right', 'bottom', 'bottom-mid', 'bottom-left', 'bottom-right'];
  const lines = [...none, 'left', 'left-mid', 'mid', 'mid-mid', 'right', 'right-mid'];
  const made = new Table({
    chars: { ...Object.fromEntries(lines.map((name) => [name, ''])), middle: '  ' },
    style: { head: [], border: [], 'padding-left': 0, 'padding-right': 0 },
    colAligns: (head ?? rows[0] ?? []).map((_, i) => (left.includes(i) ? 'left' : 'right')),
    head: head ?? [],
  });
  made.push(...rows);
  return made
    .toString()
    .split('\n')
    .map((line) => line.trimEnd())
    .join('\n');
}

/** `value` as one JSON document with its schema number. */
export function document(value: object): string {
  return `${JSON.stringify({ schema: 1, ...value })}\n`;
}

/** A whole number with thousands separated: 1,234,567. */
export function grouped(n: number): string {
  return n.toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

/** A number of things, in words: 1 job, 2,000 jobs. */
export function many(n: number, thing: string): string {
  return `${grouped(n)} ${n === 1 ? thing : thing.endsWith('s') ? `${thing}es` : `${thing}s`}`;
}
