import { execFileSync } from 'node:child_process';
import { afterwards } from './afterwards.js';
import { cronEnv } from './cli.js';
import { temporaryDirectory } from './temporary.js';

/** Whether tmux is installed, which provides terminals. */
export const tmux = (() => {
  try {
    execFileSync('tmux', ['-V']);
    return true;
  } catch {
    return false;
  }
})();

/** A tmux terminal of a given size, which runs a shell line and then a shell. It ends after its test. */
export class Terminal {
  readonly #env: NodeJS.ProcessEnv;

  constructor(
    line: string,
    { width = 80, height = 24, env = {} }: { width?: number; height?: number; env?: Record<string, string> } = {},
  ) {
    this.#env = { ...cronEnv({ LC_ALL: 'C.UTF-8', PS1: '$ ', ...env }), TMUX_TMPDIR: temporaryDirectory() };
    afterwards(() => this.end());
    const shell = `printf 'before\\n'; ${line}; echo "ended $?"; exec sh -i`;
    this.#tmux('-f', '/dev/null', 'new-session', '-d', '-x', `${width}`, '-y', `${height}`, shell);
  }

  #tmux(...args: string[]): string {
    return execFileSync('tmux', args, { env: this.#env, encoding: 'utf8' });
  }

  /** The visible lines. */
  get lines(): string[] {
    return this.#tmux('capture-pane', '-p').replace(/\n$/, '').split('\n');
  }

  get text(): string {
    return this.lines.join('\n');
  }

  /** Whether the alternate screen and the cursor are shown, and long lines wrap. */
  get state(): { other: boolean; cursor: boolean; wraps: boolean } {
    const flags = this.#tmux('display-message', '-p', '#{alternate_on} #{cursor_flag} #{wrap_flag}').trim().split(' ');
    const [other, cursor, wraps] = flags.map((flag) => flag === '1') as [boolean, boolean, boolean];
    return { other, cursor, wraps };
  }

  /** Presses keys, given by their tmux names. */
  press(...keys: string[]): void {
    this.#tmux('send-keys', ...keys);
  }

  resize(width: number, height: number): void {
    this.#tmux('resize-window', '-x', `${width}`, '-y', `${height}`);
  }

  end(): void {
    try {
      this.#tmux('kill-server');
    } catch {
      // It has already ended.
    }
  }
}
