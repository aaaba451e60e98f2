import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, constants, mkdtempSync, openSync, rmSync, unlinkSync, writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { DelayqError } from '../../internal.js';
import type { Output } from './output.js';

/** How much of what a process last wrote to stderr is kept, bytes. */
const TAIL = 1_500;

/** After a process has ended, the most bytes that are still waited for: others may go on writing into its pipes. */
const MOST_AFTER_END = 4 * 1024 * 1024;

const CHANNELS = ['stdout', 'stderr'] as const;

/**
 * A file without a name that holds `input`, which is asked for one piece at a time. A file rather than a pipe: it is there
 * whole however little of it is read, and a handler may open /dev/stdin. Throws `temporary` when it cannot be stored.
 */
export function inputFile(input: Iterable<Buffer>): number {
  let fd: number | undefined;
  try {
    const name = join(tmpdir(), `delayq-${randomUUID()}`);
    fd = openSync(name, 'wx+', 0o600);
    unlinkSync(name);
    // With a position: the offset at which the process will read stays at the beginning.
    let at = 0;
    for (const piece of input)
      for (let from = 0; from < piece.length; ) {
        const written = writeSync(fd, piece, from, piece.length - from, at);
        from += written;
        at += written;
      }
    return fd;
  } catch (cause) {
    if (fd !== undefined) closeSync(fd);
    throw new DelayqError('temporary', 'cannot hand payloads to handlers', {
      why: (cause as Error).message,
      next: `free space in ${tmpdir()}, or set TMPDIR to another directory`,
      cause,
    });
  }
}

/**
 * Makes pipes for `n` processes. Named ones, unlinked once open: Node makes socket pairs for its children, in which
 * /dev/stdout cannot be opened, and it cannot make pipes itself.
 */
export async function makeChannels(n: number): Promise<Channels[]> {
  let directory: string | undefined;
  const made: Channels[] = [];
  try {
    directory = mkdtempSync(join(tmpdir(), 'delayq-'));
    const names = Array.from({ length: 2 * n }, (_, i) => join(directory as string, String(i)));
    await makeFifos(names);
    for (let i = 0; i < names.length; i += 2) made.push(new Channels(names[i] as string, names[i + 1] as string));
    return made;
  } catch (cause) {
    for (const channels of made) channels.close();
    const full = 'lower -P, or raise the limit of open files (ulimit -n)';
    const passing: Record<string, string> = { EMFILE: full, ENFILE: full, EINTR: 'repeat: nothing was handled' };
    const next = passing[(cause as NodeJS.ErrnoException).code ?? ''];
    throw new DelayqError(next ? 'temporary' : 'config', 'cannot make pipes for handlers', {
      why: (cause as Error).message,
      next: next ?? 'set TMPDIR to a directory that can be written; the command mkfifo is needed, too',
      cause,
    });
  } finally {
    if (directory) rmSync(directory, { recursive: true, force: true });
  }
}

async function makeFifos(names: readonly string[]): Promise<void> {
  const child = spawn('mkfifo', ['-m', '600', ...names], { stdio: ['ignore', 'ignore', 'pipe'] });
  let text = '';
  child.stderr.on('data', (data: Buffer) => {
    text += data;
  });
  const [status, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
  // Memory may have run short, or somebody killed what they took for a handler: that says nothing about the next time.
  if (signal) throw Object.assign(new Error(`mkfifo was ended by ${signal}`), { code: 'EINTR' });
  if (status !== 0) throw new Error(text.trim() || `mkfifo ended with ${status}`);
}

/** A pipe that we hold at both ends: the reader then sees no end between two processes. */
function openPipe(name: string): { reader: number; writer: number } {
  // Read first: without a reader a pipe cannot be opened for writing.
  const reader = openSync(name, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    return { reader, writer: openSync(name, constants.O_WRONLY) };
  } catch (error) {
    closeSync(reader);
    throw error;
  }
}

/** A pipe each for stdout and stderr of one process after another. */
export class Channels {
  /** What a process gets as its file descriptors. */
  readonly stdout: number;
  readonly stderr: number;
  readonly #readers: Socket[];
  #output: Output | undefined;
  /** What an ended process has left is being read, and waits for nobody. */
  #finishing = false;
  #bytes = 0;
  #tail = Buffer.alloc(0);

  constructor(stdout: string, stderr: string) {
    const out = openPipe(stdout);
    let err: { reader: number; writer: number };
    try {
      err = openPipe(stderr);
    } catch (error) {
      for (const fd of Object.values(out)) closeSync(fd);
      throw error;
    }
    this.stdout = out.writer;
    this.stderr = err.writer;
    this.#readers = [out, err].map(({ reader }, i) => {
      const socket = new Socket({ fd: reader, readable: true, writable: false });
      socket.on('error', () => {});
      socket.on('data', (data: Buffer) => this.#read(socket, CHANNELS[i] as 'stdout' | 'stderr', data));
      return socket;
    });
  }

  /** Begins to read for a process. */
  open(output: Output): void {
    this.#output = output;
    this.#tail = Buffer.alloc(0);
  }

  #read(socket: Socket, channel: 'stdout' | 'stderr', data: Buffer): void {
    this.#bytes += data.length;
    if (channel === 'stderr') this.#tail = Buffer.concat([this.#tail, data.subarray(-TAIL)]).subarray(-TAIL);
    const room = this.#output?.take(channel, data);
    // Whoever writes is slowed down to what can be passed on.
    if (!room || this.#finishing) return;
    socket.pause();
    room.then(() => socket.resume());
  }

  /** After the end of a process: reads what it left, until a turn of the event loop brings nothing more. */
  async rest(): Promise<string> {
    this.#finishing = true;
    for (const socket of this.#readers) socket.resume();
    const most = this.#bytes + MOST_AFTER_END;
    for (let before = -1; before !== this.#bytes && this.#bytes < most; ) {
      before = this.#bytes;
      await turn();
      await turn();
    }
    this.#finishing = false;
    return lastLines(this.#tail);
  }

  /** Leaves the pipes to whoever still writes into them: what comes is passed on, and nobody waits for it. */
  leave(): void {
    for (const socket of this.#readers) socket.unref();
    closeSync(this.stdout);
    closeSync(this.stderr);
  }

  close(): void {
    for (const socket of this.#readers) socket.destroy();
    closeSync(this.stdout);
    closeSync(this.stderr);
  }
}

/** The text of the last bytes of an output, from the beginning of a line where there is one. */
function lastLines(tail: Buffer): string {
  const text = tail.toString('utf8').trimEnd();
  const cut = tail.length >= TAIL ? text.indexOf('\n') + 1 : 0;
  return text.slice(cut).split('\n').slice(-10).join('\n').trim();
}
