import { execFile } from 'node:child_process';
import { closeSync, constants, mkdtempSync, openSync, rmSync } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { promisify } from 'node:util';
import { DelayqError } from '../../internal.js';
import { TEMPORARY } from '../host/temporary.js';
import type { Channel, HandlerOutput } from './output.js';

/*
 * The stdout and stderr of handlers: named pipes, unlinked once they are open.
 *
 * Node itself would use socket pairs, in which scripts cannot open /dev/stdout. It has no call that makes a pipe, named
 * or not, so the command mkfifo makes them. Output never goes into a file: a handler that prints for days must not fill
 * the disk.
 */

/** How much is still read after a process has ended, bytes: processes that it left behind may write for ever. */
const MAX_AFTER_END = 4 * 1024 * 1024;

/**
 * Makes the pipes for a process. Throws `temporary` if there are too many open files or mkfifo was killed, `config` if
 * pipes cannot be made here.
 */
export async function makePipes(): Promise<OutputPipes> {
  let directory = '';
  const opened: number[] = [];
  const open = (name: string): Pipe => {
    // The read end first: opening the write end would wait for a reader.
    for (const flags of [constants.O_RDONLY | constants.O_NONBLOCK, constants.O_WRONLY])
      opened.push(openSync(name, flags));
    const [reader, writer] = opened.slice(-2) as [number, number];
    return { reader, writer };
  };
  try {
    directory = mkdtempSync(join(TEMPORARY, 'delayq-'));
    const names = ['stdout', 'stderr'].map((name) => join(directory, name)) as [string, string];
    await makeFifos(names);
    return new OutputPipes(open(names[0]), open(names[1]));
  } catch (cause) {
    for (const fd of opened) closeSync(fd);
    const full = 'lower -P, or raise the limit of open files (ulimit -n)';
    const passing: Record<string, string> = { EMFILE: full, ENFILE: full, EINTR: 'run drain again' };
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
  const { signal, code, stderr } = await promisify(execFile)('mkfifo', ['-m', '600', ...names]).catch((error) => error);
  // Killed because memory ran short, or mistaken for a handler: it may work the next time.
  if (signal) throw Object.assign(new Error(`mkfifo was killed by ${signal}`), { code: 'EINTR' });
  if (code !== undefined)
    throw Object.assign(new Error(String(stderr).trim() || `mkfifo failed with ${code}`), { code });
}

/** Both ends of a pipe: as we keep the write end open, reading sees no end between two processes. */
interface Pipe {
  readonly reader: number;
  readonly writer: number;
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
  }

  #read(socket: Socket, channel: Channel, data: Buffer): void {
    this.#bytes += data.length;
    const room = this.#output?.take(channel, data);
    // Slows the process down to the speed of our own reader.
    if (!room || this.#finishing) return;
    socket.pause();
    room.then(() => socket.resume());
  }

  /**
   * After the end of a process: reads the rest of its output, until two turns of the event loop bring nothing more.
   */
  async rest(): Promise<void> {
    this.#finishing = true;
    for (const socket of this.#readers) socket.resume();
    const limit = this.#bytes + MAX_AFTER_END;
    for (let before = -1; before !== this.#bytes && this.#bytes < limit; ) {
      before = this.#bytes;
      await turn();
      await turn();
    }
    this.#finishing = false;
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
