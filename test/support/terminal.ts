import { execFileSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach } from 'vitest';
import { cronEnv } from './cli.js';

/** Whether there is a terminal to look at: tmux. */
export const tmux = (() => {
  try {
    execFileSync('tmux', ['-V']);
    return true;
  } catch {
    return false;
  }
})();

const open = new Set<Terminal>();

afterEach(() => {
  for (const terminal of open) terminal.end();
});

/** A terminal of a given size, made by tmux, in which a shell line runs and then a shell stays. */
export class Terminal {
  readonly #env: NodeJS.ProcessEnv;

  constructor(
    line: string,
    { width = 80, height = 24, env = {} }: { width?: number; height?: number; env?: Record<string, string> } = {},
  ) {
    const directory = mkdtempSync(join(tmpdir(), 'delayq-test-'));
    this.#env = { ...cronEnv({ LC_ALL: 'C.UTF-8', PS1: '$ ', ...env }), TMUX_TMPDIR: directory };
    open.add(this);
    const shell = `printf 'before\\n'; ${line}; echo "ended $?"; exec sh -i`;
    this.#tmux('-f', '/dev/null', 'new-session', '-d', '-x', `${width}`, '-y', `${height}`, shell);
  }

  #tmux(...args: string[]): string {
    return execFileSync('tmux', args, { env: this.#env, encoding: 'utf8' });
  }

  /** The lines that are seen now. */
  get lines(): string[] {
    return this.#tmux('capture-pane', '-p').replace(/\n$/, '').split('\n');
  }

  get text(): string {
    return this.lines.join('\n');
  }

  /** Whether the other screen is shown, the cursor is, and lines that are too long wrap. */
  get state(): { other: boolean; cursor: boolean; wraps: boolean } {
    const flags = this.#tmux('display-message', '-p', '#{alternate_on} #{cursor_flag} #{wrap_flag}').trim().split(' ');
    const [other, cursor, wraps] = flags.map((flag) => flag === '1') as [boolean, boolean, boolean];
    return { other, cursor, wraps };
  }

  /** Presses keys, by their names in tmux. */
  press(...keys: string[]): void {
    this.#tmux('send-keys', ...keys);
  }

  resize(width: number, height: number): void {
    this.#tmux('resize-window', '-x', `${width}`, '-y', `${height}`);
  }

  end(): void {
    open.delete(this);
    try {
      this.#tmux('kill-server');
    } catch {
      // It has ended by itself.
    }
  }
}
