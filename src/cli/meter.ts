import { formatDuration } from '../index.js';
import type { Context } from './context.js';
import { grouped, many, say } from './output.js';

/** How often it is told how far something has got, ms. */
const TELL_MS = 200;

/** Counts jobs as they go by, and tells of it on a terminal. */
export class Meter {
  readonly #context: Context;
  readonly #done: string;
  readonly #watched: boolean;
  readonly #started = performance.now();
  #told = this.#started;
  #count = 0;

  /** `done` is what becomes of the jobs, as in "3 jobs exported". Silent unless `wanted`. */
  constructor(context: Context, done: string, wanted = true) {
    this.#context = context;
    this.#done = done;
    this.#watched = wanted && context.stderr.isTTY;
  }

  add(n: number): void {
    this.#count += n;
    const now = performance.now();
    if (!this.#watched || now - this.#told < TELL_MS) return;
    this.#told = now;
    const rate = Math.round(this.#count / ((now - this.#started) / 1000));
    this.#context.stderr.write(`\r${grouped(this.#count)} ${this.#done}, ${grouped(rate)}/s\x1b[K`);
  }

  /** Makes room for another line. */
  clear(): void {
    if (this.#watched) this.#context.stderr.write('\r\x1b[K');
  }

  /** Says how many there were, and how long it took. */
  end(): void {
    this.clear();
    if (!this.#watched) return;
    say(
      this.#context,
      `${many(this.#count, 'job')} ${this.#done} in ${formatDuration(performance.now() - this.#started)}`,
    );
  }
}
