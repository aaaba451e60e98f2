import type { Context } from '../host/context.js';
import { visible } from './output.js';

/** How often progress is told of, ms. */
const PROGRESS_MS = 200;

/** A line at the bottom of a terminal that tells how far something has got. */
export class Progress {
  readonly #context: Context;
  /** Whether anything is shown at all. */
  readonly wanted: boolean;
  #told = performance.now();
  #shown = false;

  /** Silent unless `wanted`, and on anything but a terminal. */
  constructor(context: Context, wanted = true) {
    this.#context = context;
    this.wanted = wanted && context.stderr.isTTY;
  }

  /** Now and then puts `text` in place of what is shown. */
  tell(text: () => string): void {
    if (this.wanted && performance.now() - this.#told >= PROGRESS_MS) this.show(text());
  }

  /** Puts `text` in place of what is shown. */
  show(text: string): void {
    if (!this.wanted) return;
    this.#told = performance.now();
    this.#shown = true;
    this.#context.stderr.write(`\r${visible(text)}\x1b[K`);
  }

  /** Takes the line away, for something else to be said. */
  clear(): void {
    if (this.#shown) this.#context.stderr.write('\r\x1b[K');
    this.#shown = false;
    this.#told = performance.now();
  }
}
