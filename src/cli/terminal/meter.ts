import { formatDuration } from '../../internal.js';
import type { Context } from '../host/context.js';
import { grouped, many, say } from './output.js';
import { Progress } from './progress.js';

/** Counts jobs as they go by, and tells on a terminal how many there are, and how many a second. */
export class Meter extends Progress {
  readonly #context: Context;
  readonly #done: string;
  readonly #started = performance.now();
  #count = 0;

  /** `done` is what becomes of the jobs, as in "3 jobs exported". Silent unless `wanted`. */
  constructor(context: Context, done: string, wanted = true) {
    super(context, wanted);
    this.#context = context;
    this.#done = done;
  }

  add(n: number): void {
    this.#count += n;
    this.tell(() => {
      const rate = Math.round(this.#count / ((performance.now() - this.#started) / 1000));
      return `${grouped(this.#count)} ${this.#done}, ${grouped(rate)}/s`;
    });
  }

  /** Says how many there were, and how long it took. */
  end(): void {
    this.clear();
    if (!this.wanted) return;
    const took = formatDuration(performance.now() - this.#started);
    say(this.#context, `${many(this.#count, 'job')} ${this.#done} in ${took}`);
  }
}
