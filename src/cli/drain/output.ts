import { MAX_PAYLOAD } from '../../internal.js';
import type { Context } from '../host/context.js';

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

/** How much of the last output to stderr is kept for error messages, bytes: a stack, and the error above it. */
const TAIL = 4_000;

const LF = 10;

/** Writes what handlers print to our stdout and stderr. */
export class OutputRelay {
  readonly #context: Context;
  readonly #onStop: () => void;
  /** Pass output on at once. */
  readonly live: boolean;
  /** The last write to each; earlier ones end before it. */
  readonly #written: Record<Channel, Promise<void>> = { stdout: Promise.resolve(), stderr: Promise.resolve() };
  problem: Error | undefined;

  /** `onStop` is called when stdout cannot be written any more. */
  constructor(context: Context, { live, onStop }: { live: boolean; onStop: () => void }) {
    this.#context = context;
    this.live = live;
    this.#onStop = onStop;
  }

  /** If stdout or stderr is full: resolves once there is room again. */
  room(): Promise<unknown> | undefined {
    return this.#context.room(this.#context.stdout) ?? this.#context.room(this.#context.stderr);
  }

  async flushed(): Promise<void> {
    await Promise.all(Object.values(this.#written));
  }

  /** Resolves when the bytes are written, or their reader has gone. */
  write(channel: Channel, bytes: Buffer): Promise<void> {
    this.#written[channel] = channel === 'stdout' ? this.#writeOut(bytes) : this.#writeError(bytes);
    return this.#written[channel];
  }

  async #writeOut(bytes: Buffer): Promise<void> {
    await this.#context.write(bytes).catch((error: Error) => {
      this.problem ??= error;
    });
    if (this.problem || this.#context.outputClosed) this.#onStop();
  }

  async #writeError(bytes: Buffer): Promise<void> {
    const { stderr } = this.#context;
    if (!stderr.destroyed) await new Promise<void>((resolve) => stderr.write(bytes, () => resolve()));
  }
}

/** What one handler prints. */
export class HandlerOutput {
  readonly #relay: OutputRelay;
  readonly #buffered: Record<Channel, Buffer[]> = { stdout: [], stderr: [] };
  #live: boolean;
  #size = 0;
  /** The buffer is searched for whole lines when it is larger than this, bytes. */
  #flushAt = MAX_BUFFERED;
  #tail = Buffer.alloc(0);

  constructor(relay: OutputRelay) {
    this.#relay = relay;
    this.#live = relay.live;
  }

  /** Takes output. If it returns a promise, wait for it before giving more. */
  take(channel: Channel, bytes: Buffer): Promise<unknown> | undefined {
    if (channel === 'stderr') this.#tail = Buffer.concat([this.#tail, bytes.subarray(-TAIL)]).subarray(-TAIL);
    if (this.#live) return this.#relay.write(channel, bytes);
    this.#buffered[channel].push(bytes);
    this.#size += bytes.length;
    return this.#size > this.#flushAt ? this.#flush(true) : undefined;
  }

  /** The last lines on stderr, without a line that was cut. */
  get lastLines(): string {
    const text = this.#tail.toString('utf8').trimEnd();
    const cut = this.#tail.length >= TAIL ? text.indexOf('\n') + 1 : 0;
    return text.slice(cut).trim();
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
      if (cut > 0) written.push(this.#relay.write(channel, bytes.subarray(0, cut)));
    }
    // The rest of a long line is not searched again with each piece of it.
    this.#flushAt = Math.max(MAX_BUFFERED, 2 * this.#size);
    return Promise.all(written);
  }
}
