import { MAX_PAYLOAD } from '../../internal.js';
import type { Context } from '../host/context.js';
import { cannotWrite, readerGone } from '../host/stdout.js';

/*
 * Passes the output of handlers on to our stdout and stderr.
 *
 * One handler at a time: output is passed on as it comes. Several: each handler's output is buffered until it ends, so
 * that the outputs do not mix; if it is too much for memory, its whole lines are passed on earlier.
 */

export type Channel = 'stdout' | 'stderr';

/** How much output of a handler is buffered before its whole lines are passed on, bytes. */
const MAX_BUFFERED = 1024 * 1024;

/**
 * How much of a line without an end is buffered before a part of it is passed on, bytes: two of the largest payloads.
 */
const MAX_LINE = 2 * MAX_PAYLOAD;

const LF = 10;

export class OutputRelay {
  readonly #context: Context;
  readonly #live: boolean;
  readonly #onStop: () => void;
  readonly #writing = new Set<Promise<void>>();
  problem: Error | undefined;

  /** `live`: pass output on at once. `onStop` is called when stdout cannot be written any more. */
  constructor(context: Context, { live, onStop }: { live: boolean; onStop: () => void }) {
    this.#context = context;
    this.#live = live;
    this.#onStop = onStop;
  }

  open(): HandlerOutput {
    return new HandlerOutput((channel, bytes) => this.#write(channel, bytes), this.#live);
  }

  /** If stdout or stderr is full: resolves once there is room again. */
  room(): Promise<unknown> | undefined {
    return this.#context.room(this.#context.stdout) ?? this.#context.room(this.#context.stderr);
  }

  async flushed(): Promise<void> {
    await Promise.all(this.#writing);
  }

  /** Resolves when the bytes are written, or nobody reads them any more. */
  #write(channel: Channel, bytes: Buffer): Promise<void> {
    const stream = this.#context[channel];
    if (stream.destroyed || (channel === 'stdout' && this.#context.outputClosed)) return Promise.resolve();
    const written = new Promise<void>((resolve) => {
      stream.write(bytes, (error) => {
        if (error && channel === 'stdout') {
          if (!readerGone(error)) this.problem ??= cannotWrite(error);
          this.#onStop();
        }
        this.#writing.delete(written);
        resolve();
      });
    });
    this.#writing.add(written);
    return written;
  }
}

export class HandlerOutput {
  readonly #write: (channel: Channel, bytes: Buffer) => Promise<void>;
  readonly #buffered: Record<Channel, Buffer[]> = { stdout: [], stderr: [] };
  #live: boolean;
  #size = 0;
  /** The buffer is searched for whole lines when it is larger than this, bytes. */
  #flushAt = MAX_BUFFERED;

  constructor(write: (channel: Channel, bytes: Buffer) => Promise<void>, live: boolean) {
    this.#write = write;
    this.#live = live;
  }

  /** Takes output. If it returns a promise, wait for it before giving more. */
  take(channel: Channel, bytes: Buffer): Promise<unknown> | undefined {
    if (this.#live) return this.#write(channel, bytes);
    this.#buffered[channel].push(bytes);
    this.#size += bytes.length;
    return this.#size > this.#flushAt ? this.#flush(true) : undefined;
  }

  /** The handler has ended: writes the buffer. Later output, of processes it left behind, is passed on as it comes. */
  end(): void {
    this.#flush(false);
    this.#live = true;
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
      if (cut > 0) written.push(this.#write(channel, bytes.subarray(0, cut)));
    }
    // The rest of a long line is not searched again with each piece of it.
    this.#flushAt = Math.max(MAX_BUFFERED, 2 * this.#size);
    return Promise.all(written);
  }
}
