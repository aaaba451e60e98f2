import { fstatSync, ftruncateSync, type Stats, writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { Writable } from 'node:stream';
import { DelayqError } from '../../internal.js';

/**
 * process.stdout, or a replacement for it. Node's own never reads from a socket, so it does not notice when the peer has
 * gone; and when a file takes only a part of a text, it drops the rest.
 */
export function openStdout(): typeof process.stdout {
  let stat: Stats | undefined;
  try {
    stat = fstatSync(1);
  } catch {
    // It is closed; Node's own handles that.
  }
  const replace = (value: Writable) => Object.defineProperty(process, 'stdout', { value });
  if (stat?.isSocket()) replace(new Socket({ fd: 1, allowHalfOpen: true }));
  if (stat?.isFile()) {
    const write = (text: Buffer, _: unknown, done: (error?: Error) => void) => {
      try {
        writeAll(text);
        done();
      } catch (error) {
        done(error as Error);
      }
    };
    replace(new Writable({ write }));
  }
  return process.stdout;
}

/** Writes a text to the file that is stdout. Throws if it does not fit, after removing the part that did. */
function writeAll(text: Buffer): void {
  let at = 0;
  try {
    while (at < text.length) at += writeSync(1, text, at);
  } catch (error) {
    if (at > 0) ftruncateSync(1, fstatSync(1).size - at);
    throw error;
  }
}

/** Whether an error from a write means that nobody reads any more. */
export function readerGone(error: NodeJS.ErrnoException): boolean {
  return error.code === 'EPIPE' || error.code === 'ECONNRESET';
}

export function cannotWrite(cause: Error): DelayqError {
  return new DelayqError('output', 'cannot write the output', {
    why: cause.message,
    next: 'free disk space or write to another place, then repeat the command',
    cause,
  });
}
