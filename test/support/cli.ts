import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import {
  closeSync,
  createReadStream,
  fstatSync,
  openSync,
  readFileSync,
  readSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { Script } from 'node:vm';
import { inject } from 'vitest';
import type { Host } from '../../src/cli/host/host.js';
import type * as commandLine from '../../src/cli/main.js';
import { afterFile } from './afterwards.js';
import { redisUrl } from './redis.js';

/** The binary, as npm installs it. */
const BIN = fileURLToPath(new URL('../../bin/delayq', import.meta.url));
const BIN_DIRECTORY = fileURLToPath(new URL('../../bin', import.meta.url));
const BUNDLE = fileURLToPath(new URL('../../dist/cli/main.cjs', import.meta.url));

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

interface InProcess extends Omit<Options, 'detached'> {
  /** Emits the signals that the run gets, such as SIGINT. */
  readonly signals?: EventEmitter;
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
    PATH: `${BIN_DIRECTORY}:${node}:${inject('serverPath')}/usr/bin:/bin`,
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

/** Runs the binary to its end. For what needs a process: how it starts and ends, signals, pipes, sockets, caches. */
export function binary(args: string[], options: Options = {}): Promise<Ended> {
  return start(BIN, args, { input: '', ...options }).ended;
}

/**
 * The command line of the bundle that the binary runs: what ships is tested, and it is there in an eighth of the time
 * that its sources take, which Vitest would transform for each worker.
 */
let bundle: typeof commandLine | undefined;

function loaded(): typeof commandLine {
  bundle ??= new Script(readFileSync(BUNDLE, 'latin1'), { filename: BUNDLE }).runInThisContext()(
    createRequire(`${BIN_DIRECTORY}/start.js`),
    BUNDLE,
  ) as typeof commandLine;
  return bundle;
}

/** Variables that Node, its libraries or the loader read when a process starts: delayq() cannot set them. */
const OF_PROCESS = /^(NODE_|LD_|FAKETIME|DEBUG$|TMPDIR$)/;

/** An empty file without a name. Returns its descriptor. */
function nameless(): number {
  const name = join(tmpdir(), `delayq-test-${randomUUID()}`);
  const fd = openSync(name, 'wx+', 0o600);
  unlinkSync(name);
  return fd;
}

/** A stream of a file with this content, as Node makes it for stdin. */
function fileOf(content: string | Buffer): Host['stdin'] {
  const fd = nameless();
  writeFileSync(fd, content);
  return Object.assign(createReadStream('', { fd, start: 0 }), { fd });
}

function contentOf(fd: number): string {
  const bytes = Buffer.alloc(fstatSync(fd).size);
  return bytes.toString('utf8', 0, readSync(fd, bytes, 0, bytes.length, 0));
}

/**
 * Runs the command line to its end, in this process: without the start of Node, which is most of a short run. Its stdin
 * and stdout are files, as in `delayq … < input > output`.
 */
export async function delayq(
  args: string[],
  { input = '', env, signals: events = new EventEmitter() }: InProcess = {},
): Promise<Ended> {
  const wrong = Object.keys(env ?? {}).find((name) => OF_PROCESS.test(name));
  if (wrong !== undefined) throw new Error(`a process reads ${wrong} at its start: use binary()`);
  const out = nameless();
  const err: Buffer[] = [];
  let stdin: Host['stdin'] | undefined;
  const host: Host = {
    words: args,
    isUtf8: true,
    program: [process.execPath, BIN],
    env: Object.fromEntries(Object.entries(cronEnv(env)).filter(([, value]) => value !== undefined)),
    get stdin() {
      stdin ??= fileOf(input);
      return stdin;
    },
    get stdout(): never {
      throw new Error('stdout is a file');
    },
    stdoutFd: out,
    stderr: new Writable({
      write: (text: Buffer, _, done) => {
        err.push(text);
        done();
      },
    }) as NodeJS.WriteStream,
    events,
    exit: () => {
      throw new Error('it ends by itself');
    },
  };
  try {
    const code = await loaded().run(host);
    events.emit('exit');
    return { code, signal: null, stdout: contentOf(out), stderr: Buffer.concat(err).toString() };
  } finally {
    stdin?.destroy();
    closeSync(out);
  }
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

/** What a drain says at a stop when somebody may have read what comes again: who started it has its stdout. */
export const GAVE_BACK = /^delayq: gave back [\d,]+ jobs? that the reader may have read: .*\n$/;

/** The lines of an output. */
export function linesOf(text: string): string[] {
  return text === '' ? [] : text.replace(/\n$/, '').split('\n');
}
