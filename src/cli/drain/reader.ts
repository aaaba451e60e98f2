import { closeSync, constants, fstatSync, openSync, readSync, statSync, writeSync } from 'node:fs';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError } from '../../internal.js';
import { attempt } from '../host/attempt.js';
import type { Context } from '../host/context.js';
import { WATCHER } from '../host/host.js';
import {
  type Descriptor,
  descriptorsOf,
  isStillOpen,
  modeOf,
  signalState,
  statOf,
  targetOf,
  wordsOf,
} from './descriptors.js';

/*
 * What the system tells about the reader of our stdout. Node has no call for it, so it depends on what stdout is:
 *
 *   a pipe on Linux   /proc/PID/fd shows which processes have it open. To count the unread bytes, they are
 *                     read out of the pipe and written back: safe only if no other process writes into it.
 *   a pipe elsewhere  nothing is known: a line counts as handled after enough more output, or after a lease at the end.
 *   a socket          its end is noticed by reading from it.
 *   a file, a device  has no reader.
 */

/** Whether the reader is there. `gone` is only reported of a reader that was seen before. */
type Presence = 'reads' | 'gone' | 'unknown';

export interface Reader {
  /** The most bytes that were written but not read, for when {@link Reader.unread} is unknown. */
  readonly maxInFlight: number;
  check(): Promise<Presence>;
  /**
   * The number of unread bytes; undefined if unknown. Removes them, but for the first `keep(unread)` bytes; by default
   * it keeps all. Must not be called during a write.
   */
  unread(keep?: (unread: number) => number): number | undefined;
  /**
   * Ends the reader's input. Returns false if others may still write to it: then it sees no end before they close it.
   */
  close(): Promise<boolean>;
  /** After the reader's end: whether it has read everything. What it has not read is gone then. */
  hasReadAll(): boolean;
  /**
   * Whether the reader has got `signal` too, or may have: then it is ending, and may not handle what it has read. Until
   * this resolves, it does not get the end of its input.
   */
  isStoppedBy(signal: NodeJS.Signals): Promise<boolean>;
  /** What a watcher needs to go on in the place of this process (watcher.ts); undefined: none can. */
  handOver(): Pipe | undefined;
}

/** A pipe, for another process that is to watch its reader. */
export interface Pipe {
  /** What its descriptors refer to. */
  readonly target: string;
  /** The processes that read from it. */
  readonly readers: readonly Descriptor[];
  /** A descriptor of it; undefined: it must not be held open, because the end of its reader cannot be noticed. */
  readonly descriptor: number | undefined;
}

const KIB = 1024;

/** The largest pipe that an unprivileged process can make, bytes (pipe(7)). */
const LARGEST_PIPE = 1024 * KIB;

/**
 * How many bytes a reader may have read, but not handled yet, at most. Streams of Node and asyncio process 64 KiB at a
 * time and buffer up to 128 KiB more; most other readers less.
 */
export const READ_AHEAD = 256 * KIB;

/**
 * The pause before a reader counts as gone, ms. During the first search for another one, a process may have started
 * another and ended; and the signal that has ended the reader may be on its way to us.
 */
const RETRY_MS = 100;

/** How long a process may live on after a signal that ends it, ms. */
const DEATH_MS = 300;

/** The signals that stop a drain. */
const STOPS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** Pauses between searches for a reader never seen, which may belong to another user or container, ms. */
const SEARCH_MS = [1_000, 60_000] as const;

/** What is written, and what to do if it cannot be: for an error. */
const JOBS = {
  things: 'jobs',
  next: 'pipe drain into a program, add a handler (-- ./handler), or drop the jobs with > /dev/null. No job was taken',
};

/** Returns the reader of our stdout; undefined if it has none. Throws `output` if stdout is closed. */
export function readerOf({ stdout, stdoutFd: fd }: Context, { things, next } = JOBS): Reader | undefined {
  const stat = fstatSync(fd);
  if (stat.isFIFO()) return new PipeReader(fd);
  if (stat.isSocket()) return new SocketReader(stdout, fd);
  const nullDevice = statSync('/dev/null', { throwIfNoEntry: false })?.rdev;
  // If stdout was closed, Node has opened /dev/null for reading and writing instead; a shell opens it for writing only.
  if (stat.isCharacterDevice() && stat.rdev === nullDevice && modeOf(fd)?.reads) {
    const why = 'it is closed, or is a /dev/null that was not opened by a shell';
    throw new DelayqError('output', `cannot write ${things} to stdout`, { why, next });
  }
  return undefined;
}

/** Returns the reader of a pipe that another process has written into. Closes our descriptor of it, if we can write. */
export function readerOfPipe({ descriptor, ...pipe }: Pipe): Reader {
  const readEnd = descriptor === undefined ? undefined : opened(descriptor, constants.O_RDONLY);
  if (descriptor !== undefined) closeSync(descriptor);
  return new PipeReader(undefined, { ...pipe, readEnd });
}

/**
 * The reader of a pipe. Node offers neither poll(2) on a pipe nor FIONREAD. On Linux, /proc shows which processes have
 * the pipe open, and lets us open it a second time (proc(5), pipe(7)).
 */
class PipeReader implements Reader {
  readonly maxInFlight = LARGEST_PIPE;
  /** Our own write end; undefined if another process has written, or once it is closed. */
  #fd: number | undefined;
  readonly #target: string | undefined;
  /** The readers whose parents are no readers. Processes that they start may outlive them, with the pipe open. */
  #readers: readonly Descriptor[];
  /** The other processes that could write when last searched for; undefined: not searched for yet. */
  #writers: readonly Descriptor[] | undefined;
  /** Another process watches the reader for jobs that were written before. Only it may take bytes out of the pipe. */
  #isWatched = false;
  /** Our own read end, opened when our write end is closed. */
  #readEnd: number | undefined;
  #left: number | undefined;
  #checking: Promise<Presence> | undefined;
  #searchAt = 0;
  #searchMs: number = SEARCH_MS[0];
  /** The signals that a reader was seen to catch: a program that ends because of one may let go of it before (Python). */
  readonly #caught = new Set<NodeJS.Signals>();

  constructor(
    fd: number | undefined,
    { target, readers, readEnd }: Partial<Omit<Pipe, 'descriptor'>> & { readEnd?: number | undefined } = {},
  ) {
    this.#fd = fd;
    this.#target = fd === undefined ? target : targetOf(fd);
    this.#readers = readers ?? [];
    this.#readEnd = readEnd;
  }

  check(): Promise<Presence> {
    this.#checking ??= this.#check().finally(() => {
      this.#checking = undefined;
      for (const signal of STOPS)
        if (this.#readers.some(({ pid }) => signalState(pid, signal) === 'caught')) this.#caught.add(signal);
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
      // A watcher has seen a reader, and holds the pipe open until it has noticed its end.
      if (this.#isWatched) return 'gone';
      this.#searchAt = performance.now() + this.#searchMs;
      this.#searchMs = Math.min(2 * this.#searchMs, SEARCH_MS[1]);
      return 'unknown';
    }
    if (before.every((reader) => isStillOpen(reader, target))) return 'reads';
    // A reader that closed the pipe but lives may have passed it on to another process. If it died, it has not.
    const lives = before.every(({ pid }) => statOf(pid) !== undefined);
    if (lives && (await this.#search(target))) return 'reads';
    await sleep(RETRY_MS);
    if (lives && (await this.#search(target))) return 'reads';
    return 'gone';
  }

  async #search(target: string): Promise<boolean> {
    const all = await descriptorsOf(target);
    const found = all.filter(({ pid }) => !isWatcher(pid, target));
    this.#isWatched = this.#fd !== undefined && found.length < all.length;
    this.#writers = found.filter(({ writes }) => writes);
    // A child may have ended during the search.
    const readers = found.flatMap((one) => {
      const stat = one.reads ? statOf(one.pid) : undefined;
      return stat ? [{ one, parent: stat.parent }] : [];
    });
    const pids = new Set(readers.map(({ one }) => one.pid));
    // If none is found, keep the last ones: their end is what has to be noticed.
    if (readers.length > 0) this.#readers = readers.filter(({ parent }) => !pids.has(parent)).map(({ one }) => one);
    return readers.length > 0;
  }

  /** Only we can write into the pipe: bytes that we take out and write back stay in order, and closing it ends it. */
  get #isSoleWriter(): boolean {
    return this.#writers?.length === 0 && !this.#isWatched;
  }

  unread(keep = (unread: number) => unread): number | undefined {
    // What we print to stderr would be taken out as well.
    if (!this.#isSoleWriter || (this.#fd !== undefined && targetOf(2) === this.#target)) return undefined;
    const ends: number[] = [];
    const open = (fd: number, flags: number) => {
      ends.push(openSync(`/proc/self/fd/${fd}`, flags | constants.O_NONBLOCK));
      return ends.at(-1) as number;
    };
    try {
      // Open the write end before emptying the pipe: an empty pipe without a writer is the end for its reader.
      const writeEnd = this.#fd ?? open(this.#readEnd as number, constants.O_WRONLY);
      const content = contentOf(this.#readEnd ?? open(this.#fd as number, constants.O_RDONLY));
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
    const target = this.#target;
    if (target === undefined) return false;
    const others = this.#writers;
    if (!others || (others.length > 0 && !others.some((one) => isStillOpen(one, target)))) await this.#search(target);
    if (!this.#isSoleWriter) return false;
    const fd = this.#fd;
    // /proc shows the writers of this user only. If the read end could be opened, this user has made the pipe.
    if (fd === undefined) return this.#readEnd !== undefined;
    this.#readEnd = opened(fd, constants.O_RDONLY);
    if (this.#readEnd === undefined) return false;
    this.#fd = undefined;
    replace(fd);
    if (targetOf(2) === target) replace(2);
    return true;
  }

  hasReadAll(): boolean {
    if (this.#left === undefined && this.#readEnd !== undefined) {
      this.#left = contentOf(this.#readEnd).length;
      // Other writers must see that the pipe has no reader.
      closeSync(this.#readEnd);
    }
    return this.#left === 0;
  }

  async isStoppedBy(signal: NodeJS.Signals): Promise<boolean> {
    const readers = this.#readers;
    if (readers.length === 0 || this.#caught.has(signal)) return true;
    const isStopped = () =>
      readers.some((reader) => {
        // A reader that ignores the signal goes on; a reader that handles it may end because of it.
        const isHere = isStillOpen(reader, this.#target as string);
        return !isHere || signalState(reader.pid, signal) !== 'none';
      });
    const writeEnd = this.#readEnd === undefined ? undefined : opened(this.#readEnd, constants.O_WRONLY);
    try {
      for (const end = performance.now() + DEATH_MS; performance.now() < end; await sleep(DEATH_MS / 10))
        if (isStopped()) return true;
      return isStopped();
    } finally {
      if (writeEnd !== undefined) closeSync(writeEnd);
    }
  }

  handOver(): Pipe | undefined {
    const [target, readers] = [this.#target, this.#readers];
    if (target === undefined) return undefined;
    // If the end of the reader cannot be seen, holding the pipe open would keep other writers waiting for ever.
    return { target, readers, descriptor: this.#readEnd ?? (readers.length > 0 ? this.#fd : undefined) };
  }
}

/** Whether a process watches the reader of a pipe for us (watcher.ts), and is no reader itself. */
function isWatcher(pid: number, target: string): boolean {
  const [command, of] = wordsOf(pid).slice(-2);
  return command === WATCHER && of === target;
}

/** Opens an end of the pipe that `fd` refers to. Undefined if another user has made it. */
const opened = (fd: number, flags: number): number | undefined =>
  attempt(() => openSync(`/proc/self/fd/${fd}`, flags | constants.O_NONBLOCK));

/** Closes a descriptor, but keeps it in use: a new connection would get it, and anything printed would go there. */
function replace(fd: number): void {
  closeSync(fd);
  openSync('/dev/null', 'w');
}

let scratch = Buffer.alloc(0);

/** Reads everything out of a pipe. One read is enough, unless root has made the pipe larger (pipe(7)). */
function contentOf(readEnd: number): Buffer {
  if (scratch.length === 0) scratch = Buffer.allocUnsafe(LARGEST_PIPE);
  let size = 0;
  try {
    for (;;) {
      const read = readSync(readEnd, scratch, size, scratch.length - size, null);
      size += read;
      if (read === 0 || size < scratch.length) break;
      scratch = Buffer.concat([scratch], 2 * size);
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
  }
  return scratch.subarray(0, size);
}

/**
 * The peer of a socket, such as a Node program that has started us. When it closes the socket, we read an end if it has
 * read everything, else an error. A socket that others write to as well counts as read once everything is written, if
 * the peer is still there: nothing else is known.
 */
class SocketReader implements Reader {
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

  hasReadAll(): boolean {
    return this.#readAll;
  }

  async isStoppedBy(): Promise<boolean> {
    return true;
  }

  handOver(): undefined {}

  async close(): Promise<boolean> {
    const target = targetOf(this.#fd);
    const isSoleWriter =
      target !== undefined && targetOf(2) !== target && !(await descriptorsOf(target)).some(({ writes }) => writes);
    // Ending the socket would end it for the others, too, and there is no other way to learn what was read.
    if (!isSoleWriter && !this.#gone) this.#gone = this.#readAll = true;
    if (isSoleWriter) this.#stdout.end();
    return true;
  }
}
