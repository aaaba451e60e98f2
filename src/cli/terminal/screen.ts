import type { Context } from '../host/context.js';
import { clip, columns, sizeOf } from './output.js';

/** The alternate screen, no cursor, and no wrapping: a line that is wider than measured must not push others down. */
const ENTER = '\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J';
const LEAVE = '\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l';

/** The whole terminal as a drawing area. It is restored however the process ends, but for SIGKILL. */
export class Screen {
  readonly #context: Context;
  readonly #redraw: () => void;
  readonly #quit: () => void;
  #leave: (() => void) | undefined;

  /** Calls `redraw` after the size changed or the process was suspended, `quit` when q or Ctrl-C is pressed. */
  constructor(context: Context, { redraw, quit }: { redraw: () => void; quit: () => void }) {
    this.#context = context;
    this.#redraw = redraw;
    this.#quit = quit;
    context.atExit(() => this.close());
    this.#enter();
  }

  #enter(): void {
    const { stdout } = this.#context;
    const stopKeys = this.#context.keys((key) => {
      if (key === 'q' || key === 'Q' || key === '\x03') this.#quit();
      if (key === '\x1a') void this.#suspend();
    });
    const stopSuspend = this.#context.suspended(() => void this.#suspend());
    stdout.on('resize', this.#redraw);
    stdout.write(ENTER);
    this.#leave = () => {
      stopKeys();
      stopSuspend();
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

  /** Draws lines from the top, cut to the size of the terminal, and clears the rest. */
  async draw(lines: readonly string[]): Promise<void> {
    if (!this.#leave) return;
    const { width, height } = sizeOf(this.#context, this.#context.stdout);
    const shown = lines.slice(0, height).map((line) => {
      // After a full line the cursor stays on its last character: clearing would erase it.
      const clear = columns(line) < width ? '\x1b[K' : '';
      return `${clip(line, width)}\x1b[0m${clear}`;
    });
    await this.#context.write(`\x1b[H${shown.join('\r\n')}${lines.length < height ? '\r\n\x1b[J' : ''}`);
  }

  close(): void {
    this.#leave?.();
    this.#leave = undefined;
  }
}
