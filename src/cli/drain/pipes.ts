import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, constants, mkdtempSync, openSync, rmSync, unlinkSync, writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { DelayqError } from '../../internal.js';
import { noTemporary } from '../host/temporary.js';
import type { Channel, HandlerOutput } from './output.js';

/*
 * The stdin, stdout and stderr of handlers.
 *
 *   stdin            a file without a name that holds the payloads: it is complete however little of it is read
 *   stdout, stderr   named pipes, unlinked once they are open. Node would use socket pairs, in which scripts cannot
 *                    open /dev/stdout, and it cannot make pipes itself: the command mkfifo does
 *
 * Output never goes into a file: a handler that prints for days must not fill the disk.
 */

/** Asked for once: each time costs Node some 15 system calls. */
const DIRECTORY = tmpdir();

/** How much of the last output to stderr is kept for error messages, bytes: a stack, and the error above it. */
const TAIL = 4_000;

/** How much is still read after a process has ended, bytes: processes that it left behind may write for ever. */
const MAX_AFTER_END = 4 * 1024 * 1024;

/**
 * Stores `input` in a file without a name and returns its descriptor, at position 0. Throws what {@link noTemporary}
 * returns if it cannot be stored.
 */
export function inputFile(input: Iterable<Buffer>): number {
  let fd: number | undefined;
  try {
    const name = join(DIRECTORY, `delayq-${randomUUID()}`);
    fd = openSync(name, 'wx+', 0o600);
    unlinkSync(name);
    // Writing at explicit positions leaves the file offset, at which the handler will read, at 0.
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
    throw noTemporary('cannot store payloads for handlers', cause as Error);
  }
}

/**
 * Makes the pipes for `n` processes at a time. Throws `temporary` if there are too many open files or mkfifo was
 * killed, `config` if pipes cannot be made here.
 */
export async function makePipes(n: number): Promise<OutputPipes[]> {
  let directory: string | undefined;
  const pipes: Pipe[] = [];
  try {
    directory = mkdtempSync(join(DIRECTORY, 'delayq-'));
    const names = Array.from({ length: 2 * n }, (_, i) => join(directory as string, String(i)));
    await makeFifos(names);
    for (const name of names) pipes.push(openPipe(name));
    return pipes.slice(n).map((stderr, i) => new OutputPipes(pipes[i] as Pipe, stderr));
  } catch (cause) {
    for (const { reader, writer } of pipes) for (const fd of [reader, writer]) closeSync(fd);
    const full = 'lower -P, or raise the limit of open files (ulimit -n)';
    const passing: Record<string, string> = {
      EMFILE: full,
      ENFILE: full,
      EINTR: 'run drain again: no job was handled',
    };
    const next = passing[(cause as NodeJS.ErrnoException).code ?? ''];
    throw new DelayqError(next ? 'temporary' : 'config', 'cannot make pipes for handlers', {
      why: (cause as Error).message,
      next: next ?? 'set TMPDIR to a writable directory, and check that the command mkfifo exists',
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
  // Killed because memory ran short, or mistaken for a handler: it may work the next time.
  if (signal) throw Object.assign(new Error(`mkfifo was killed by ${signal}`), { code: 'EINTR' });
  if (status !== 0) throw new Error(text.trim() || `mkfifo exited with ${status}`);
}

interface Pipe {
  readonly reader: number;
  readonly writer: number;
}

/** Opens both ends of a pipe: as we keep the write end open, reading sees no end between two processes. */
function openPipe(name: string): Pipe {
  // The read end first: opening the write end would wait for a reader.
  const reader = openSync(name, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    return { reader, writer: openSync(name, constants.O_WRONLY) };
  } catch (error) {
    closeSync(reader);
    throw error;
  }
}

/** The pipes for stdout and stderr of a process. They are reused by one process after another. */
export class OutputPipes {
  readonly stdout: number;
  readonly stderr: number;
  readonly #readers: Socket[];
  #output: HandlerOutput | undefined;
  /** The process has ended: the rest of its output is read without waiting for a slow reader of ours. */
  #finishing = false;
  #bytes = 0;
  #tail = Buffer.alloc(0);

  constructor(stdout: Pipe, stderr: Pipe) {
    this.stdout = stdout.writer;
    this.stderr = stderr.writer;
    this.#readers = [stdout, stderr].map(({ reader }, i) => {
      const socket = new Socket({ fd: reader, readable: true, writable: false });
      socket.on('error', () => {});
      socket.on('data', (data: Buffer) => this.#read(socket, i === 0 ? 'stdout' : 'stderr', data));
      return socket;
    });
  }

  /** From now on, passes what is read to `output`, that of the next process. */
  open(output: HandlerOutput): void {
    this.#output = output;
    this.#tail = Buffer.alloc(0);
  }

  #read(socket: Socket, channel: Channel, data: Buffer): void {
    this.#bytes += data.length;
    if (channel === 'stderr') this.#tail = Buffer.concat([this.#tail, data.subarray(-TAIL)]).subarray(-TAIL);
    const room = this.#output?.take(channel, data);
    // Slows the process down to the speed of our own reader.
    if (!room || this.#finishing) return;
    socket.pause();
    room.then(() => socket.resume());
  }

  /**
   * After the end of a process: reads the rest of its output, until two turns of the event loop bring nothing more.
   * Returns its last lines on stderr.
   */
  async rest(): Promise<string> {
    this.#finishing = true;
    for (const socket of this.#readers) socket.resume();
    const limit = this.#bytes + MAX_AFTER_END;
    for (let before = -1; before !== this.#bytes && this.#bytes < limit; ) {
      before = this.#bytes;
      await turn();
      await turn();
    }
    this.#finishing = false;
    return lastLines(this.#tail);
  }

  /** Leaves the pipes to processes that still write into them: their output is passed on, but not waited for. */
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

/** The last lines of an output, without a line that was cut. */
function lastLines(tail: Buffer): string {
  const text = tail.toString('utf8').trimEnd();
  const cut = tail.length >= TAIL ? text.indexOf('\n') + 1 : 0;
  return text.slice(cut).trim();
}
