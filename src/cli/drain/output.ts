import { MAX_PAYLOAD } from '../../internal.js';
import { type Context, cannotWrite, readerGone } from '../host/context.js';

type Channel = 'stdout' | 'stderr';

/** How much of a handler's output waits for its end, bytes, before its whole lines go out ahead of it. */
const MOST_HELD = 1024 * 1024;

/** How long a line without an end may become, bytes, before a part of it goes out: twice the largest payload. */
const MOST_LINE = 2 * MAX_PAYLOAD;

const LF = 10;

/** Passes on what handlers write: as it comes while only one runs, each handler's in one piece when several do. */
export class Relay {
  readonly #context: Context;
  readonly #live: boolean;
  readonly #onStop: () => void;
  readonly #writing = new Set<Promise<void>>();
  /** Why stdout cannot be written. */
  problem: Error | undefined;

  /** `onStop` hears that nobody takes stdout any more. */
  constructor(context: Context, { live, onStop }: { live: boolean; onStop: () => void }) {
    this.#context = context;
    this.#live = live;
    this.#onStop = onStop;
  }

  /** Opens the output of one handler. */
  open(): Output {
    return new Output((channel, bytes) => this.#pass(channel, bytes), this.#live);
  }

  /** When somebody reads too slowly, resolves once there is room again. */
  room(): Promise<unknown> | undefined {
    return this.#context.room(this.#context.stdout) ?? this.#context.room(this.#context.stderr);
  }

  /** Resolves when all is out. */
  async flushed(): Promise<void> {
    await Promise.all(this.#writing);
  }

  /** Resolves when the bytes are out, or nobody wants them any more. */
  #pass(channel: Channel, bytes: Buffer): Promise<void> {
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

/** What one handler writes. */
export class Output {
  readonly #pass: (channel: Channel, bytes: Buffer) => Promise<void>;
  readonly #held: Record<Channel, Buffer[]> = { stdout: [], stderr: [] };
  #live: boolean;
  #size = 0;
  /** From which size on to look for whole lines. */
  #enough = MOST_HELD;

  constructor(pass: (channel: Channel, bytes: Buffer) => Promise<void>, live: boolean) {
    this.#pass = pass;
    this.#live = live;
  }

  /** Takes what was written; when it returns a promise, there is room for more only after that. */
  take(channel: Channel, bytes: Buffer): Promise<unknown> | undefined {
    if (this.#live) return this.#pass(channel, bytes);
    this.#held[channel].push(bytes);
    this.#size += bytes.length;
    return this.#size > this.#enough ? this.#flush(true) : undefined;
  }

  /** Writes what is still held. What others go on writing into its pipes is passed on as it comes. */
  end(): void {
    this.#flush(false);
    this.#live = true;
  }

  #flush(wholeLines: boolean): Promise<unknown> {
    this.#size = 0;
    const written: Promise<void>[] = [];
    for (const channel of ['stdout', 'stderr'] as const) {
      const bytes = Buffer.concat(this.#held[channel]);
      const end = wholeLines ? bytes.lastIndexOf(LF) + 1 : bytes.length;
      // A line without an end would be held for ever.
      const cut = end === 0 && bytes.length > MOST_LINE ? bytes.length : end;
      this.#held[channel] = cut < bytes.length ? [bytes.subarray(cut)] : [];
      this.#size += bytes.length - cut;
      if (cut > 0) written.push(this.#pass(channel, bytes.subarray(0, cut)));
    }
    // What is one long line is not looked through again with every piece of it.
    this.#enough = Math.max(MOST_HELD, 2 * this.#size);
    return Promise.all(written);
  }
}
