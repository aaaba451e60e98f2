import { Flood } from '../terminal/flood.js';
import { many } from '../terminal/output.js';

/** How many bad lines are reported one by one. */
const MAX_SHOWN = 20;

/** Reports the lines of an input that were refused. Of many, the first ones show what is wrong. */
export class BadLines {
  readonly #flood: Flood;
  /** How many there were. */
  count = 0;

  constructor(say: (text: string) => void) {
    this.#flood = new Flood(say, MAX_SHOWN, (n) => `… and ${many(n, 'more bad line')}`);
  }

  add(line: number, { what, why }: { readonly what: string; readonly why?: string | undefined }): void {
    this.count += 1;
    this.#flood.add(`line ${line}: ${what}${why ? `: ${why}` : ''}`);
  }

  /** Reports how many more there were. Call it at the end. */
  flush(): void {
    this.#flood.flush();
  }
}
