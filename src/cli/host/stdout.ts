import { fstatSync, ftruncateSync, writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { Writable } from 'node:stream';
import { DelayqError } from '../../internal.js';
import { attempt } from './attempt.js';

/**
 * The stream for stdout, or `usual()` unless something has to be done about it: Node's own never reads from a socket, so
 * it does not notice when the peer has gone; and when a file takes only a part of a text, it drops the rest.
 */
export function openStdout(fd: number, usual: () => NodeJS.WriteStream): NodeJS.WriteStream {
  // If it is closed, Node's own handles that.
  const stat = attempt(() => fstatSync(fd));
  if (stat?.isSocket()) return new Socket({ fd, allowHalfOpen: true }) as unknown as NodeJS.WriteStream;
  if (!stat?.isFile()) return usual();
  const write = (text: Buffer, _: unknown, done: (error?: Error) => void) => {
    try {
      writeAll(fd, text);
      done();
    } catch (error) {
      done(error as Error);
    }
  };
  return new Writable({ write }) as NodeJS.WriteStream;
}

/** Writes a text to the file that is stdout. Throws if it does not fit, after removing the part that did. */
function writeAll(fd: number, text: Buffer): void {
  let at = 0;
  try {
    while (at < text.length) at += writeSync(fd, text, at);
  } catch (error) {
    if (at > 0) ftruncateSync(fd, fstatSync(fd).size - at);
    throw error;
  }
}

/** Whether an error from a write means that the reader has gone. */
export function readerGone(error: NodeJS.ErrnoException): boolean {
  // ECANCELED: of a write that waited when another failed, since Node 22.
  return error.code === 'EPIPE' || error.code === 'ECONNRESET' || error.code === 'ECANCELED';
}

const ROOM = 'free disk space or write to another place';

/** `done`: what the command has done by then, such as `job x is enqueued`; `next`: what to do about that. */
export function cannotWrite(
  cause: Error,
  done?: string,
  next = `${ROOM}; but do not repeat the command: it has done its work`,
): DelayqError {
  const { message: why } = cause;
  return done === undefined
    ? new DelayqError('output', 'cannot write the output', { why, next: `${ROOM}, then repeat the command`, cause })
    : new DelayqError('output', `${done}, but the output cannot be written`, { why, next, cause });
}
