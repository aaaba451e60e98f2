import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterFile } from './afterwards.js';
import { redisUrl } from './redis.js';

/** The binary, as npm installs it. */
const BIN = fileURLToPath(new URL('../../bin/delayq', import.meta.url));
const BIN_DIRECTORY = fileURLToPath(new URL('../../bin', import.meta.url));

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Running {
  readonly child: ChildProcess;
  /** The output so far. */
  stdout: string;
  stderr: string;
  readonly ended: Promise<Ended>;
}

type Environment = Record<string, string | undefined>;

interface Options {
  readonly input?: string | Buffer | undefined;
  readonly env?: Environment | undefined;
  /** In a process group of its own, to be signalled as a whole. */
  readonly detached?: boolean;
}

/** An environment like cron's, plus the URL of Redis. */
export function cronEnv(more: Environment = {}): NodeJS.ProcessEnv {
  const node = process.execPath.replace(/\/[^/]*$/, '');
  return {
    HOME: process.env.HOME,
    PATH: `${BIN_DIRECTORY}:${node}:/usr/bin:/bin`,
    SHELL: '/bin/sh',
    // Tells what a run of tests has left behind.
    TMPDIR: process.env.TMPDIR,
    DELAYQ_REDIS_URL: redisUrl,
    ...more,
  };
}

function start(command: string, args: string[], { input, env, detached = false }: Options = {}): Running {
  const child = spawn(command, args, { env: cronEnv(env), detached, stdio: ['pipe', 'pipe', 'pipe'] });
  // A failed test may leave it behind. After its end, this does nothing.
  afterFile(() => child.kill('SIGKILL'));
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  const started: Running = {
    child,
    get stdout() {
      return Buffer.concat(out).toString();
    },
    get stderr() {
      return Buffer.concat(err).toString();
    },
    ended: once(child, 'close').then(([code, signal]) => ({
      code: code as number | null,
      signal: signal as NodeJS.Signals | null,
      stdout: Buffer.concat(out).toString(),
      stderr: Buffer.concat(err).toString(),
    })),
  };
  child.stdout.on('data', (data: Buffer) => out.push(data));
  child.stderr.on('data', (data: Buffer) => err.push(data));
  child.stdin.on('error', () => {});
  if (input !== undefined) child.stdin.end(input);
  return started;
}

/** Starts the binary and leaves it running; its stdin stays open unless `input` is given. */
export function begin(args: string[], options?: Options): Running {
  return start(BIN, args, options);
}

/** Runs the binary to its end. */
export function delayq(args: string[], options: Options = {}): Promise<Ended> {
  return start(BIN, args, { input: '', ...options }).ended;
}

/** Runs a shell line, in which `delayq` is the binary, to its end. */
export function sh(line: string, options: Options = {}): Promise<Ended> {
  return start('/bin/sh', ['-c', line], { input: '', ...options }).ended;
}

/** Starts a shell line and leaves it running. */
export function beginSh(line: string, options: Options = {}): Running {
  return start('/bin/sh', ['-c', line], { input: '', ...options });
}

/** A progress line, which is redrawn and cleared. Whether there is one depends on time. */
export const PROGRESS = new RegExp(`\\r[^\\n]*?${'\x1b'}\\[K`, 'g');

/** Returns what a terminal shows for a shell line, with `typed` as the input; of progress lines only if `progress`. */
export async function onTerminal(
  line: string,
  {
    typed = '',
    env = {},
    columns = 200,
    rows = 24,
    progress = false,
  }: { typed?: string; env?: Environment; columns?: number; rows?: number; progress?: boolean } = {},
) {
  const inside = `script -qec 'stty cols ${columns} rows ${rows}; ${line.replaceAll("'", `'\\''`)}' /dev/null`;
  const { stdout } = await sh(inside, { input: typed, env: { TERM: 'xterm', NO_COLOR: '1', ...env } });
  return (progress ? stdout : stdout.replace(PROGRESS, '')).replaceAll('\r', '');
}

/** The lines of an output. */
export function linesOf(text: string): string[] {
  return text === '' ? [] : text.replace(/\n$/, '').split('\n');
}
