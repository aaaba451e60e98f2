import type { Context } from '../host/context.js';

export type Channel = 'stdout' | 'stderr';

/** Writes what handlers print to our stdout and stderr. */
export class OutputRelay {
  readonly #context: Context;
  readonly #onStop: (() => void) | undefined;
  /** Pass output on at once. */
  readonly live: boolean;
  /** The last write to each; earlier ones end before it. */
  readonly #written: Record<Channel, Promise<void>> = { stdout: Promise.resolve(), stderr: Promise.resolve() };
  problem: Error | undefined;

  /**
   * `onStop` is called when stdout cannot be written any more. Without it, all output goes to our stderr: our stdout is
   * for others.
   */
  constructor(context: Context, { live, onStop }: { live: boolean; onStop?: () => void }) {
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
    const isData = channel === 'stdout' && this.#onStop;
    this.#written[channel] = isData ? this.#writeOut(bytes) : this.#writeError(bytes);
    return this.#written[channel];
  }

  async #writeOut(bytes: Buffer): Promise<void> {
    await this.#context.write(bytes).catch((error: Error) => {
      this.problem ??= error;
    });
    if (this.problem || this.#context.outputClosed) this.#onStop?.();
  }

  async #writeError(bytes: Buffer): Promise<void> {
    const { stderr } = this.#context;
    if (!stderr.destroyed) await new Promise<void>((resolve) => stderr.write(bytes, () => resolve()));
  }
}
