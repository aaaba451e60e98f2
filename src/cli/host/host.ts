import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { attempt } from './attempt.js';

/** What happens to a process: signals, and its end. */
interface Events {
  on(event: NodeJS.Signals | 'exit', listener: () => void): unknown;
  off(event: NodeJS.Signals | 'exit', listener: () => void): unknown;
}

/**
 * What surrounds a run of the command line: the process of the binary ({@link ownProcess}), or what a test puts in its
 * place. Only {@link Context} uses it; commands use Context.
 */
export interface Host {
  /** The words after `delayq`. */
  readonly words: readonly string[];
  /** Whether they were given in UTF-8: else Node has put U+FFFD in place of some bytes. */
  readonly isUtf8: boolean;
  /** How to start this delayq once more: the paths of Node and of the file that it runs. */
  readonly program: readonly [node: string, file: string];
  readonly env: NodeJS.ProcessEnv;
  /** Has `isTTY` and `setRawMode` if it is a terminal. */
  readonly stdin: Readable & { readonly fd: number; readonly isTTY?: boolean; setRawMode?(mode: boolean): unknown };
  /** Node's own stream for stdout, which not every run uses (openStdout of stdout.ts), and its descriptor. */
  readonly stdout: NodeJS.WriteStream;
  readonly stdoutFd: number;
  readonly stderr: NodeJS.WriteStream;
  readonly events: Events;
  exit(status: number): never;
}

/** No command for people: drain starts it (drain/watcher.ts). After it comes what the descriptors of a pipe refer to. */
export const WATCHER = 'watch-pipe';

/** The process that runs this. */
export function ownProcess(): Host {
  return {
    words: process.argv.slice(2),
    get isUtf8() {
      return attempt(() => isUtf8(readFileSync('/proc/self/cmdline'))) ?? true;
    },
    program: [process.execPath, process.argv[1] ?? ''],
    env: process.env,
    // Node makes these streams on first use, which takes it a while.
    get stdin() {
      return process.stdin;
    },
    get stdout() {
      return process.stdout;
    },
    stdoutFd: 1,
    stderr: process.stderr,
    events: process,
    exit: (status) => process.exit(status),
  };
}
