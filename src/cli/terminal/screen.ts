import type { Context } from '../host/context.js';
import { clip, columns, sizeOf } from './output.js';

/** The other screen, no cursor, and no wrapping: a line that was measured wrongly must not push the others down. */
const ENTER = '\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J';
const LEAVE = '\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l';

/** A terminal that is drawn on as a whole, and is as it was before when the process ends, however it does. */
export class Screen {
  readonly #context: Context;
  readonly #redraw: () => void;
  readonly #quit: () => void;
  #leave: (() => void) | undefined;

  /** `redraw` is called when the size has changed, or what was drawn has gone; `quit` when q or Ctrl-C is pressed. */
  constructor(context: Context, { redraw, quit }: { redraw: () => void; quit: () => void }) {
    this.#context = context;
    this.#redraw = redraw;
    this.#quit = quit;
    context.atExit(() => this.close());
    this.#enter();
  }

  #enter(): void {
    const { stdout } = this.#context;
    const unhear = this.#context.keys((key) => {
      if (key === 'q' || key === 'Q' || key === '\x03') this.#quit();
      if (key === '\x1a') void this.#suspend();
    });
    const stay = this.#context.suspended(() => void this.#suspend());
    stdout.on('resize', this.#redraw);
    stdout.write(ENTER);
    this.#leave = () => {
      unhear();
      stay();
      stdout.off('resize', this.#redraw);
      stdout.write(LEAVE);
    };
  }

  async #suspend(): Promise<void> {
    if (!this.#leave) return;
    this.close();
    await this.#context.suspend();
    this.#enter();
    this.#redraw();
  }

  /** Draws lines over those before, from the top, cut to the terminal; what they leave free is cleared. */
  async draw(lines: readonly string[]): Promise<void> {
    if (!this.#leave) return;
    const { width, height } = sizeOf(this.#context.stdout);
    const shown = lines.slice(0, height).map((line) => {
      // Behind a full line the cursor stands on its last character, which clearing would take away.
      const clear = columns(line) < width ? '\x1b[K' : '';
      return `${clip(line, width)}\x1b[0m${clear}`;
    });
    await this.#context.write(`\x1b[H${shown.join('\r\n')}${lines.length < height ? '\r\n\x1b[J' : ''}`);
  }

  /** Gives the terminal back as it was. */
  close(): void {
    this.#leave?.();
    this.#leave = undefined;
  }
}
