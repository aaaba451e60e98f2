import { formatDuration } from '../../internal.js';
import type { Context } from '../host/context.js';
import { clip, grouped, many, say, sizeOf, visible } from './output.js';

/** How often the line is redrawn, ms. */
const REDRAW_MS = 200;

/** A status line at the bottom of a terminal that is redrawn in place. */
export class Progress {
  readonly #context: Context;
  readonly wanted: boolean;
  #drawn = performance.now();
  #shown = false;

  /** Silent unless `wanted` and stderr is a terminal. */
  constructor(context: Context, wanted = true) {
    this.#context = context;
    this.wanted = wanted && context.stderr.isTTY;
  }

  /** Shows `text`, unless the line was redrawn a moment ago. */
  tell(text: () => string): void {
    if (this.wanted && performance.now() - this.#drawn >= REDRAW_MS) this.show(text());
  }

  show(text: string): void {
    if (!this.wanted) return;
    this.#drawn = performance.now();
    this.#shown = true;
    const { stderr } = this.#context;
    // In the last column the cursor could wrap.
    stderr.write(`\r${clip(visible(text), sizeOf(this.#context, stderr).width - 1)}\x1b[K`);
  }

  /** Removes the line, so that something else can be printed. */
  clear(): void {
    if (this.#shown) this.#context.stderr.write('\r\x1b[K');
    this.#shown = false;
    this.#drawn = performance.now();
  }

  /** Says `text` in place of the line. */
  say(text: string): void {
    this.clear();
    say(this.#context, text);
  }
}

export class Meter extends Progress {
  readonly #verb: string;
  readonly #started = performance.now();
  #count = 0;

  /** `verb` is the word in "3 jobs exported". Silent unless `wanted` and stderr is a terminal. */
  constructor(context: Context, verb: string, wanted = true) {
    super(context, wanted);
    this.#verb = verb;
  }

  add(n: number): void {
    this.#count += n;
    this.tell(() => {
      const rate = Math.round(this.#count / ((performance.now() - this.#started) / 1000));
      return `${grouped(this.#count)} ${this.#verb}, ${grouped(rate)}/s`;
    });
  }

  end(): void {
    this.clear();
    if (!this.wanted) return;
    const took = formatDuration(performance.now() - this.#started);
    this.say(`${many(this.#count, 'job')} ${this.#verb} in ${took}`);
  }
}
