import { closeSync, constants, fstatSync, openSync, readSync, statSync, writeSync } from 'node:fs';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError } from '../../internal.js';
import type { Context } from '../host/context.js';
import { type Descriptor, descriptorsOf, modeOf, statOf, stillReads, targetOf } from './descriptors.js';

/*
 * What the system tells about the reader of our stdout. Node has no call for it, so it depends on what stdout is:
 *
 *   a pipe on Linux   /proc/PID/fd shows which processes have it open. To count the bytes that nobody has read, they are
 *                     read out of the pipe and written back: safe only while nobody else writes into it.
 *   a pipe elsewhere  nothing is known: a line counts as handled after enough more output, or after a lease at the end.
 *   a socket          its end is noticed by reading from it.
 *   a file, a device  a line is done once it is written.
 */

/** Whether the reader is there. `gone` is only reported of a reader that was seen before. */
type Presence = 'reads' | 'gone' | 'unknown';

export interface Reader {
  /**
   * How many bytes it may have read, but not handled yet: a line counts as handled once so many more bytes were read
   * after it. 0: a line is done once it is written.
   */
  readonly readAhead: number;
  /** The most bytes that were written but not read, for when {@link Reader.unread} is unknown. */
  readonly maxInFlight: number;
  check(): Promise<Presence>;
  /** How many bytes nobody has read yet; undefined if unknown. Must not be called during a write. */
  unread(): number | undefined;
  /**
   * Removes what nobody has read yet, but for the first `keep(unread)` bytes. Returns the number of unread bytes
   * before, undefined if unknown. Must not be called during a write.
   */
  takeOut(keep: (unread: number) => number): number | undefined;
  /**
   * Ends the reader's input. Returns false if others may still write to it: then it sees no end before they close it.
   */
  close(): Promise<boolean>;
}

const KIB = 1024;

/** The largest pipe that an unprivileged process can make, bytes (pipe(7)). */
const LARGEST_PIPE = 1024 * KIB;

/** Streams of Node and asyncio process 64 KiB at a time and buffer up to 128 KiB more; most other readers less. */
const READ_AHEAD = 256 * KIB;

/** The pause before a second search, ms: during the first, a process may have started another and ended. */
const AGAIN_MS = 100;

/** Pauses between searches for a reader never seen, which may belong to another user or container, ms. */
const SEARCH_MS = [1_000, 60_000] as const;

/** Returns the reader of our stdout. Throws `output` if stdout is closed. */
export function readerOf({ stdout, stdoutFd: fd }: Context): Reader {
  const stat = fstatSync(fd);
  if (stat.isFIFO()) return new PipeReader(fd);
  if (stat.isSocket()) return new SocketReader(stdout, fd);
  const nullDevice = statSync('/dev/null', { throwIfNoEntry: false })?.rdev;
  // If stdout was closed, Node has opened /dev/null for reading and writing instead; a shell opens it for writing only.
  if (stat.isCharacterDevice() && stat.rdev === nullDevice && modeOf(fd)?.reads) {
    throw new DelayqError('output', 'cannot write jobs to stdout', {
      why: 'it is closed, or is a /dev/null that was not opened by a shell',
      next: 'pipe drain into a program, add a handler (-- ./handler), or drop the jobs with > /dev/null. No job was taken',
    });
  }
  const check = async (): Promise<Presence> => 'unknown';
  return { readAhead: 0, maxInFlight: 0, check, unread: () => 0, takeOut: () => 0, close: async () => false };
}

/**
 * The reader of a pipe. Node offers neither poll(2) on a pipe nor FIONREAD. On Linux, /proc shows which processes have
 * the pipe open, and lets us open it a second time (proc(5), pipe(7)).
 */
class PipeReader implements Reader {
  readonly readAhead = READ_AHEAD;
  readonly maxInFlight = LARGEST_PIPE;
  readonly #fd: number;
  readonly #target: string | undefined;
  /** The readers whose parents are no readers. Processes that they start may outlive them, with the pipe open. */
  #readers: readonly Descriptor[] = [];
  /** Only we can write into the pipe: bytes that we take out and write back stay in order, and closing it ends it. */
  #soleWriter = false;
  /** Our own read end, opened when our write end is closed. */
  #readEnd: number | undefined;
  #checking: Promise<Presence> | undefined;
  #searchAt = 0;
  #searchMs: number = SEARCH_MS[0];

  constructor(fd: number) {
    this.#fd = fd;
    this.#target = targetOf(fd);
  }

  check(): Promise<Presence> {
    this.#checking ??= this.#check().finally(() => {
      this.#checking = undefined;
    });
    return this.#checking;
  }

  async #check(): Promise<Presence> {
    const target = this.#target;
    if (target === undefined) return 'unknown';
    const before = this.#readers;
    if (before.length === 0) {
      if (performance.now() < this.#searchAt) return 'unknown';
      if (await this.#search(target)) return 'reads';
      this.#searchAt = performance.now() + this.#searchMs;
      this.#searchMs = Math.min(2 * this.#searchMs, SEARCH_MS[1]);
      return 'unknown';
    }
    if (before.every((reader) => stillReads(reader, target))) return 'reads';
    // A reader that closed the pipe but lives may have passed it on to another process. One that died cannot have.
    const lives = before.every(({ pid }) => statOf(pid) !== undefined);
    if (lives && (await this.#search(target))) return 'reads';
    await sleep(AGAIN_MS);
    if (lives && (await this.#search(target))) return 'reads';
    return 'gone';
  }

  async #search(target: string): Promise<boolean> {
    const found = await descriptorsOf(target);
    this.#soleWriter = isSoleWriter(found, target);
    const readers = found.filter(({ reads }) => reads);
    const pids = new Set(readers.map(({ pid }) => pid));
    // If none is found, keep the last ones: their end is what has to be noticed.
    if (readers.length > 0) this.#readers = readers.filter(({ pid }) => !pids.has(statOf(pid)?.parent ?? 0));
    return readers.length > 0;
  }

  unread(): number | undefined {
    return this.takeOut((unread) => unread);
  }

  takeOut(keep: (unread: number) => number): number | undefined {
    if (!this.#soleWriter) return undefined;
    const ends: number[] = [];
    const open = (fd: number, flags: number) => {
      ends.push(openSync(`/proc/self/fd/${fd}`, flags | constants.O_NONBLOCK));
      return ends.at(-1) as number;
    };
    try {
      // Open the write end before emptying the pipe: an empty pipe without a writer is the end for its reader.
      const writeEnd = this.#readEnd === undefined ? this.#fd : open(this.#readEnd, constants.O_WRONLY);
      const content = contentOf(this.#readEnd ?? open(this.#fd, constants.O_RDONLY));
      // It fits: it was just taken out.
      const kept = content.subarray(0, keep(content.length));
      for (let at = 0; at < kept.length; ) at += writeSync(writeEnd, kept, at);
      return content.length;
    } catch {
      return undefined;
    } finally {
      for (const end of ends) closeSync(end);
    }
  }

  async close(): Promise<boolean> {
    if (!this.#soleWriter && this.#target !== undefined) await this.#search(this.#target);
    if (!this.#soleWriter) return false;
    try {
      this.#readEnd = openSync(`/proc/self/fd/${this.#fd}`, constants.O_RDONLY | constants.O_NONBLOCK);
    } catch {
      return false;
    }
    closeSync(this.#fd);
    // Keep the descriptor in use: a new connection would get it, and anything printed to stdout would go there.
    openSync('/dev/null', 'w');
    return true;
  }
}

/** Whether only our stdout can write to `target`: no other process in `found`, and not our stderr. */
function isSoleWriter(found: readonly Descriptor[], target: string): boolean {
  return !found.some(({ writes }) => writes) && targetOf(2) !== target;
}

let scratch: Buffer | undefined;

/** Reads everything out of a pipe. One read is enough, unless root has made the pipe larger (pipe(7)). */
function contentOf(readEnd: number): Buffer {
  scratch ??= Buffer.allocUnsafe(LARGEST_PIPE);
  const pieces: Buffer[] = [];
  try {
    for (;;) {
      const piece = scratch.subarray(0, readSync(readEnd, scratch));
      if (piece.length < LARGEST_PIPE && pieces.length === 0) return piece;
      if (piece.length === 0) break;
      pieces.push(Buffer.from(piece));
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
  }
  return Buffer.concat(pieces);
}

/**
 * The peer of a socket, such as a Node program that has started us. When it closes the socket, we read an end if it has
 * read everything, else an error. A socket that others write to as well counts as read once everything is written, if
 * the peer is still there: nothing else is known.
 */
class SocketReader implements Reader {
  readonly readAhead = READ_AHEAD;
  // A Unix socket buffers up to 208 KiB, and the chunk that exceeds it; TCP's buffers grow to 6 and 4 MiB (tcp(7)).
  readonly maxInFlight: number;
  readonly #stdout: NodeJS.WriteStream;
  readonly #fd: number;
  #gone = false;
  #readAll = false;

  constructor(stdout: NodeJS.WriteStream, fd: number) {
    this.#stdout = stdout;
    this.#fd = fd;
    this.maxInFlight = (stdout as unknown as Socket).remoteAddress === undefined ? 320 * KIB : 16 * 1024 * KIB;
    const gone = (readAll: boolean) => {
      this.#readAll = readAll && !this.#gone;
      this.#gone = true;
    };
    stdout.once('end', () => gone(true)).once('error', () => gone(false));
    stdout.resume();
  }

  async check(): Promise<Presence> {
    return this.#gone ? 'gone' : 'reads';
  }

  unread(): number | undefined {
    return this.#readAll ? 0 : undefined;
  }

  takeOut(): undefined {}

  async close(): Promise<boolean> {
    const target = targetOf(this.#fd);
    const soleWriter = target !== undefined && isSoleWriter(await descriptorsOf(target), target);
    // Ending the socket would end it for the others, and nothing else tells what was read.
    if (!soleWriter && !this.#gone) this.#gone = this.#readAll = true;
    if (soleWriter) this.#stdout.end();
    return true;
  }
}
