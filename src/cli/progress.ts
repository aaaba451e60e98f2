import type { Context } from './context.js';
import { grouped, visible } from './output.js';

/** How often progress is told of, ms. */
const PROGRESS_MS = 200;

/** A line at the bottom of a terminal that tells how far it has got. */
export class Progress {
  readonly #context: Context;
  readonly #total: number | undefined;
  readonly #done: string;
  #told = performance.now();
  #shown = false;

  constructor(context: Context, total: number | undefined, done: string) {
    this.#context = context;
    this.#total = context.stderr.isTTY ? total : undefined;
    this.#done = done;
  }

  /** Tells, now and then, that `n` are done. */
  tell(n: number): void {
    if (this.#total === undefined || performance.now() - this.#told < PROGRESS_MS) return;
    this.show(`${this.#done} ${grouped(n)} of ${grouped(this.#total)}`);
  }

  /** Puts `text` in place of what is shown. */
  show(text: string): void {
    if (this.#total === undefined) return;
    this.#told = performance.now();
    this.#shown = true;
    this.#context.stderr.write(`\r${visible(text)}\x1b[K`);
  }

  /** Takes the line away, for something else to be said. */
  clear(): void {
    if (this.#shown) this.#context.stderr.write('\r\x1b[K');
    this.#shown = false;
  }
}
