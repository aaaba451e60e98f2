import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  constants,
  fstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { DelayqError, MAX_PAYLOAD } from '../../internal.js';
import { attempt } from './attempt.js';
import type { Context } from './context.js';
import { noTemporary, TEMPORARY } from './temporary.js';

/** The editor of the user, a line for sh, and the variable that sets it, chosen as git does. */
export interface Editor {
  readonly line: string;
  readonly variable: 'VISUAL' | 'EDITOR';
}

/** Throws `usage`, with the advice `next`, if no editor is set and there is no terminal for vi. */
export function editorOf({ env, stdin, stderr }: Context, next: string): Editor {
  const isDumb = !env.TERM || env.TERM === 'dumb';
  if (env.VISUAL && !isDumb) return { line: env.VISUAL, variable: 'VISUAL' };
  if (env.EDITOR) return { line: env.EDITOR, variable: 'EDITOR' };
  if (!isDumb && stdin.isTTY && stderr.isTTY) return { line: 'vi', variable: 'EDITOR' };
  throw new DelayqError('usage', 'there is no editor', {
    why: `EDITOR is not set, and there is no terminal for vi${env.VISUAL ? ' or VISUAL' : ''}`,
    next,
  });
}

/** The largest file that is read, bytes: whitespace may make a payload much longer. */
const MAX_FILE = 8 * MAX_PAYLOAD;

/** A file to edit, which only its user can read. It goes when the process ends, unless it is kept or holds a text. */
export class Draft {
  readonly path: string;
  readonly #content: Buffer;
  #directory: string | undefined;

  /** Throws as {@link noTemporary} does. */
  constructor(context: Context, name: string, content: Buffer) {
    this.#content = content;
    try {
      this.#directory = mkdtempSync(join(TEMPORARY, 'delayq-edit-'));
      context.atExit(() => {
        if (this.place === undefined) this.remove();
      });
      this.path = join(this.#directory, name);
      writeFileSync(this.path, content, { mode: 0o600 });
    } catch (cause) {
      this.remove();
      throw noTemporary('cannot make a file to edit', cause as Error);
    }
  }

  /**
   * What it holds now; nothing if the editor has removed it. Throws `data` if it is too large, or a device or pipe, which
   * might never end.
   */
  read(): Buffer {
    const fd = attempt(() => openSync(this.path, constants.O_RDONLY | constants.O_NONBLOCK));
    if (fd === undefined) return Buffer.alloc(0);
    try {
      const found = fstatSync(fd);
      if (found.isFile() && found.size <= MAX_FILE) return readFileSync(fd);
      const why = found.isFile() ? 'it is too large' : 'the editor has put something else in its place';
      throw new DelayqError('data', 'the edited file is no payload', { why });
    } finally {
      closeSync(fd);
    }
  }

  /** Whether it holds another text, or is gone. */
  get isChanged(): boolean {
    const found = attempt(() => statSync(this.path));
    if (!found) return true;
    return found.isFile() && (found.size > MAX_FILE || !this.read().equals(this.#content));
  }

  /**
   * Where a text of the user may be after an edit that was broken off: in the file, or in another that the editor has
   * left, such as a swap file; then it is the directory. Undefined: nowhere.
   */
  get place(): string | undefined {
    const directory = dirname(this.path);
    const names = attempt(() => readdirSync(directory)) ?? [];
    if (names.some((name) => name !== basename(this.path))) return directory;
    return names.length > 0 && this.isChanged ? this.path : undefined;
  }

  keep(): void {
    this.#directory = undefined;
  }

  remove(): void {
    if (this.#directory !== undefined) rmSync(this.#directory, { recursive: true, force: true });
    this.#directory = undefined;
  }
}

/** A line that is one command: sh then becomes the editor, and a signal reaches it. */
const PLAIN = /^(?!exec )[\w./+-]+( [^;&|<>()`\n]*)?$/;

/**
 * Lets the user edit a file; the editor has the terminal until it ends. Returns how it failed; undefined: it did not.
 * Throws `config`, with the advice `next`, if it cannot be started.
 */
export async function runEditor(
  context: Context,
  { line, variable }: Editor,
  path: string,
  { stop, next }: { readonly stop: AbortSignal; readonly next: string },
): Promise<string | undefined> {
  const takeBack = context.lendTerminal();
  const command = `${PLAIN.test(line) ? 'exec ' : ''}${line} "$@"`;
  const child = spawn('/bin/sh', ['-c', command, line, path], { env: context.env, stdio: 'inherit' });
  const end = () => child.kill();
  stop.addEventListener('abort', end);
  try {
    const [status, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
    if (status === 126 || status === 127) {
      const why = `${context.env[variable] ? `sh cannot run ${variable}` : 'sh cannot run it'} (exit status ${status})`;
      throw new DelayqError('config', `cannot start the editor ${line}`, { why, next });
    }
    if (signal) return `the editor was ended by ${signal}`;
    return status === 0 ? undefined : `the editor failed with exit status ${status}`;
  } finally {
    stop.removeEventListener('abort', end);
    takeBack();
  }
}
