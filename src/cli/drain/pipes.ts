import { execFile } from 'node:child_process';
import { closeSync, constants, mkdtempSync, openSync, rmSync } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { promisify } from 'node:util';
import { DelayqError, MAX_PAYLOAD } from '../../internal.js';
import { TEMPORARY } from '../host/temporary.js';
import { Lines, type Sieve } from './answers.js';
import type { Channel, OutputRelay } from './output.js';

/*
 * The stdout and stderr of handlers: named pipes, unlinked once they are open.
 *
 * One handler at a time: its output is passed on as it comes. Several: the output of each is buffered until it ends, so
 * that outputs do not mix; if it is too much for memory, its whole lines are passed on earlier.
 *
 * Node itself would use socket pairs, in which scripts cannot open /dev/stdout. It has no call that makes a pipe, named
 * or not, so the command mkfifo makes them. Output never goes into a file: a handler that prints for days must not fill
 * the disk.
 */

/** How much is still read after a process has ended, bytes: processes that it left behind may write for ever. */
const MAX_AFTER_END = 4 * 1024 * 1024;

/** How much output of a handler is buffered before its whole lines are passed on, bytes. */
const MAX_BUFFERED = 1024 * 1024;

/**
 * How much of a line without an end is buffered before a part of it is passed on, bytes: two of the largest payloads.
 */
const MAX_LINE = 2 * MAX_PAYLOAD;

/** How much of the last output to stderr is kept for error messages, bytes: a stack, and the error above it. */
const TAIL = 4_000;

const LF = 10;

/**
 * Makes pipes, which the caller closes. Throws `temporary` if there are too many open files, no space is left or mkfifo
 * was killed, `config` if pipes cannot be made here.
 */
export async function makePipes(...kinds: readonly ('output' | 'input')[]): Promise<Pipe[]> {
  let directory = '';
  const opened: number[] = [];
  const open = (name: string, flags: number): number => {
    const fd = openSync(name, flags);
    opened.push(fd);
    return fd;
  };
  try {
    directory = mkdtempSync(join(TEMPORARY, 'delayq-'));
    const names = kinds.map((_, i) => join(directory, String(i)));
    await makeFifos(names);
    return names.map((name, i) => {
      // The read end first: opening the write end would wait for a reader.
      const reader = open(name, constants.O_RDONLY | constants.O_NONBLOCK);
      const writer = open(name, constants.O_WRONLY);
      return { reader, writer, child: kinds[i] === 'input' ? open(name, constants.O_RDONLY) : writer };
    });
  } catch (cause) {
    for (const fd of opened) closeSync(fd);
    const full = 'lower -P, or raise the limit of open files (ulimit -n)';
    const space = `free space in ${TEMPORARY}, or set TMPDIR to another directory`;
    const passing: Record<string, string> = { EMFILE: full, ENFILE: full, EINTR: 'run drain again', ENOSPC: space };
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
  if (code === undefined) return;
  const error = Object.assign(new Error(String(stderr).trim() || `mkfifo failed with ${code}`), { code });
  try {
    // Says why in a word that has no language.
    closeSync(openSync(`${names[0]}.probe`, 'wx'));
  } catch (cause) {
    throw Object.assign(error, { code: (cause as NodeJS.ErrnoException).code });
  }
  throw error;
}

const lastOf = (lines: readonly string[]) => lines.findLast((line) => line.trim() !== '')?.trim();

/** Both ends of a pipe: as we keep the write end open, reading sees no end between two processes. */
export interface Pipe {
  readonly reader: number;
  readonly writer: number;
  /** What a process gets as its own: the writer or, of an input, a read end that waits for data. */
  readonly child: number;
}

/** The pipes for stdout and stderr of a process, and what it has printed. They are reused by one after another. */
export class OutputPipes {
  readonly stdout: number;
  readonly stderr: number;
  readonly #relay: OutputRelay;
  readonly #readers: Socket[];
  /** Takes answers out of stdout. */
  readonly #sieve: Sieve | undefined;
  #buffered: Record<Channel, Buffer[]> = { stdout: [], stderr: [] };
  /** Output is passed on at once; or its whole lines are. */
  #live = false;
  readonly #byLine: boolean;
  #size = 0;
  /** The buffer is searched for whole lines when it is larger than this, bytes. */
  #flushAt = MAX_BUFFERED;
  #tail = Buffer.alloc(0);
  /** The lines of stdout, if the last one is wanted, and the last one that is not empty. */
  #lines: Lines | undefined;
  #last = '';
  /** The process has ended: the rest of its output is read without waiting for a slow reader of ours. */
  #finishing = false;
  /** How much was read so far, bytes. */
  #read = 0;

  /** `byLine`: whole lines are passed on as they come, as the process has no end to wait for. */
  constructor(relay: OutputRelay, [stdout, stderr]: readonly [Pipe, Pipe], byLine = false, sieve?: Sieve) {
    this.#relay = relay;
    this.#byLine = byLine;
    this.#sieve = sieve;
    this.stdout = stdout.writer;
    this.stderr = stderr.writer;
    this.#readers = [stdout, stderr].map(({ reader }, i) => {
      const socket = new Socket({ fd: reader, readable: true, writable: false });
      socket.on('error', () => {});
      socket.on('data', (data: Buffer) => {
        const room = this.#take(i === 0 ? 'stdout' : 'stderr', data);
        // Slows the process down to the speed of our own reader.
        if (!room || this.#finishing) return;
        socket.pause();
        room.then(() => socket.resume());
      });
      return socket;
    });
  }

  /** A process starts, or begins with a job. `speaks`: its last line on stdout is wanted. */
  begin(speaks = false): void {
    this.#live = this.#relay.live;
    this.#lines = speaks ? new Lines() : undefined;
    this.#last = '';
    if (this.#tail.length > 0) this.#tail = Buffer.alloc(0);
  }

  /** Passes output on, or buffers it. If it returns a promise, nothing more should be read before that resolves. */
  #take(channel: Channel, read: Buffer): Promise<unknown> | undefined {
    this.#read += read.length;
    const data = channel === 'stdout' && this.#sieve ? this.#sieve.take(read) : read;
    if (channel === 'stdout' && this.#lines) this.#last = lastOf(this.#lines.take(data)) ?? this.#last;
    if (channel === 'stderr') this.#tail = Buffer.concat([this.#tail, data.subarray(-TAIL)]).subarray(-TAIL);
    if (this.#live) return this.#relay.write(channel, data);
    this.#buffered[channel].push(data);
    this.#size += data.length;
    const isLine = this.#byLine && data.includes(LF);
    return isLine || this.#size > this.#flushAt ? this.#flush(true) : undefined;
  }

  #flush(wholeLines: boolean): Promise<unknown> {
    this.#size = 0;
    const written: Promise<void>[] = [];
    for (const channel of ['stdout', 'stderr'] as const) {
      const bytes = Buffer.concat(this.#buffered[channel]);
      const end = wholeLines ? bytes.lastIndexOf(LF) + 1 : bytes.length;
      const cut = end === 0 && bytes.length > MAX_LINE ? bytes.length : end;
      this.#buffered[channel] = cut < bytes.length ? [bytes.subarray(cut)] : [];
      this.#size += bytes.length - cut;
      if (cut > 0) written.push(this.#relay.write(channel, bytes.subarray(0, cut)));
    }
    // The rest of a long line is not searched again with each piece of it.
    this.#flushAt = Math.max(MAX_BUFFERED, 2 * this.#size);
    return Promise.all(written);
  }

  /**
   * The process has ended: reads the rest of its output, until two turns of the event loop bring nothing more. Returns
   * {@link OutputPipes.tail}.
   */
  async rest(): Promise<string> {
    this.#finishing = true;
    for (const socket of this.#readers) socket.resume();
    const limit = this.#read + MAX_AFTER_END;
    for (let before = -1; before !== this.#read && this.#read < limit; ) {
      before = this.#read;
      await turn();
      await turn();
    }
    this.#finishing = false;
    return this.tail;
  }

  /** Its last line on stdout that is not empty, if that was wanted. */
  get said(): string {
    return lastOf([this.#lines?.begun ?? '']) ?? this.#last;
  }

  /** What the process has written to stderr last, without a line that was cut. */
  get tail(): string {
    const text = this.#tail.toString('utf8').trimEnd();
    const cut = this.#tail.length >= TAIL ? text.indexOf('\n') + 1 : 0;
    return text.slice(cut).trim();
  }

  /** Passes on what is buffered. Later output, of processes that the process left behind, is passed on as it comes. */
  end(): void {
    if (this.#sieve) this.#buffered.stdout.push(this.#sieve.rest());
    this.#flush(false);
    this.#live = true;
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
