import { closeSync, constants, fstatSync, openSync, readSync, statSync, writeSync } from 'node:fs';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError } from '../../internal.js';
import type { Context } from '../host/context.js';
import { type Descriptor, descriptorsOf, modeOf, statOf, stillReads, targetOf } from './descriptors.js';

/** Whether somebody reads: `gone` is only said of a reader that was seen before. */
type Presence = 'reads' | 'gone' | 'unknown';

/** Whoever reads our stdout, as far as the system tells. */
export interface Reader {
  /**
   * How many bytes it may have read ahead of the line it is at: a line counts as handled once so many more were read.
   * 0: a line is done when it was written.
   */
  readonly ahead: number;
  /** How many bytes may be on their way to it at most, for when {@link Reader.unread} does not know. */
  readonly most: number;
  /** Whether it is still there. */
  look(): Promise<Presence>;
  /** How many bytes nobody has read yet; undefined: unknown. Not to be called while a write is under way. */
  unread(): number | undefined;
  /** Takes out what nobody has read yet, but for its first bytes, as many as `keep` says. As {@link Reader.unread}. */
  takeOut(keep: (unread: number) => number): number | undefined;
  /** Gives the reader its end. False: others may write to it, too, so it sees none before they end. */
  close(): Promise<boolean>;
}

const KIB = 1024;

/** As large as an unprivileged process can make a pipe, bytes (pipe(7)). */
const LARGEST_PIPE = 1024 * KIB;

/** Streams of Node and asyncio hold 64 KiB in hand, and as much or twice as much in their buffers; most others less. */
const AHEAD = 256 * KIB;

/** A second look follows so much later: a process may have been born and its parent gone during the first, ms. */
const AGAIN_MS = 100;

/** Pauses between searches for a reader that was never seen: another user's, or one in another container, ms. */
const SEARCH_MS = [1_000, 60_000] as const;

/** Who reads our stdout. Throws an `output` error when nobody can, as it is closed. */
export function readerOf({ stdout }: Context): Reader {
  const stat = fstatSync(1);
  if (stat.isFIFO()) return new PipeReader();
  if (stat.isSocket()) return new SocketReader(stdout);
  // Node opens /dev/null for reading and writing where there was no stdout; shells open it for writing.
  if (stat.isCharacterDevice() && stat.rdev === nullDevice() && modeOf(1)?.reads) {
    throw new DelayqError('output', 'there is no stdout to write jobs to', {
      why: 'it is closed, or is /dev/null and was not opened by a shell',
      next: 'give drain a reader, a handler after --, or > /dev/null to throw the jobs away. Nothing was taken',
    });
  }
  const look = async (): Promise<Presence> => 'unknown';
  return { ahead: 0, most: 0, look, unread: () => 0, takeOut: () => 0, close: async () => false };
}

function nullDevice(): number | undefined {
  return statSync('/dev/null', { throwIfNoEntry: false })?.rdev;
}

/**
 * The reader of a pipe. Node has neither poll(2) for a pipe's reader nor FIONREAD; on Linux /proc tells who has the pipe
 * open, and opens it once more for us (proc(5), pipe(7)). Elsewhere nothing is known.
 */
class PipeReader implements Reader {
  readonly ahead = AHEAD;
  readonly most = LARGEST_PIPE;
  readonly #target = targetOf(1);
  /** Those that have no reader as parent: what these start may outlive them, with the pipe open. */
  #readers: readonly Descriptor[] = [];
  /** Nobody else can write into the pipe: what we take out and put back stays in order, and closing it ends it. */
  #alone = false;
  /** The read end, once our write end is closed. */
  #readEnd: number | undefined;
  #looking: Promise<Presence> | undefined;
  #searchAt = 0;
  #searchMs: number = SEARCH_MS[0];

  look(): Promise<Presence> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  async #look(): Promise<Presence> {
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
    // One that has let go of the pipe may have handed it to another; one that has died has not.
    const lives = before.every(({ pid }) => statOf(pid) !== undefined);
    if (lives && (await this.#search(target))) return 'reads';
    await sleep(AGAIN_MS);
    if (lives && (await this.#search(target))) return 'reads';
    return 'gone';
  }

  async #search(target: string): Promise<boolean> {
    const found = await descriptorsOf(target);
    this.#alone = isAlone(found, target);
    const readers = found.filter(({ reads }) => reads);
    const pids = new Set(readers.map(({ pid }) => pid));
    // Those that were seen last are the ones that are missed.
    if (readers.length > 0) this.#readers = readers.filter(({ pid }) => !pids.has(statOf(pid)?.parent ?? 0));
    return readers.length > 0;
  }

  unread(): number | undefined {
    return this.takeOut((unread) => unread);
  }

  takeOut(keep: (unread: number) => number): number | undefined {
    if (!this.#alone) return undefined;
    const ends: number[] = [];
    const open = (fd: number, flags: number) => {
      ends.push(openSync(`/proc/self/fd/${fd}`, flags | constants.O_NONBLOCK));
      return ends.at(-1) as number;
    };
    try {
      // Opened before the pipe is emptied: without a writer its reader would take that for the end.
      const writeEnd = this.#readEnd === undefined ? 1 : open(this.#readEnd, constants.O_WRONLY);
      const content = contentOf(this.#readEnd ?? open(1, constants.O_RDONLY));
      // What was just taken out fits in again.
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
    if (!this.#alone && this.#target !== undefined) await this.#search(this.#target);
    if (!this.#alone) return false;
    try {
      this.#readEnd = openSync('/proc/self/fd/1', constants.O_RDONLY | constants.O_NONBLOCK);
    } catch {
      return false;
    }
    closeSync(1);
    // Else the next connection would be made on 1, where whatever still prints to stdout would write.
    openSync('/dev/null', 'w');
    return true;
  }
}

/** Whether nobody but this process, and it only as stdout, can write to `target`, which others have `found` open. */
function isAlone(found: readonly Descriptor[], target: string): boolean {
  return !found.some(({ writes }) => writes) && targetOf(2) !== target;
}

let scratch: Buffer | undefined;

/** All that is in a pipe, taken out: by one read, unless root has made it larger than others may (pipe(7)). */
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
 * The peer of a socket, such as a program in Node that has started us: it has gone when there is an end to read (an error
 * if it left something unread). What others write to as well counts as read at the end, while the peer is there.
 */
class SocketReader implements Reader {
  readonly ahead = AHEAD;
  // A Unix socket takes up to 208 KiB, and the chunk that goes over it; TCP's buffers grow to 6 and 4 MiB (tcp(7)).
  readonly most: number;
  readonly #stdout: NodeJS.WriteStream;
  #gone = false;
  #readAll = false;

  constructor(stdout: NodeJS.WriteStream) {
    this.#stdout = stdout;
    this.most = (stdout as unknown as Socket).remoteAddress === undefined ? 320 * KIB : 16 * 1024 * KIB;
    const gone = (readAll: boolean) => {
      this.#readAll = readAll && !this.#gone;
      this.#gone = true;
    };
    stdout.once('end', () => gone(true)).once('error', () => gone(false));
    stdout.resume();
  }

  async look(): Promise<Presence> {
    return this.#gone ? 'gone' : 'reads';
  }

  unread(): number | undefined {
    return this.#readAll ? 0 : undefined;
  }

  takeOut(): undefined {}

  async close(): Promise<boolean> {
    const target = targetOf(1);
    const alone = target !== undefined && isAlone(await descriptorsOf(target), target);
    // To end it would end it for others, and nothing else tells what was read.
    if (!alone && !this.#gone) this.#gone = this.#readAll = true;
    if (alone) this.#stdout.end();
    return true;
  }
}
