import { addAbortSignal, type Readable } from 'node:stream';
import { Flood, isDelayqError } from '../../internal.js';
import type { Context } from '../host/context.js';
import { lines } from '../lines/reader.js';
import { many, say } from '../terminal/output.js';

/** How many bad lines are reported one by one. */
const MAX_SHOWN = 20;

/** Reads what stands on the lines of an input, and reports bad lines. Of many, the first ones show what is wrong. */
export class LineInput {
  readonly #context: Context;
  readonly #flood: Flood;
  /** How many bad lines there were. */
  bad = 0;

  constructor(context: Context, report = (text: string) => say(context, text)) {
    this.#context = context;
    this.#flood = new Flood(report, MAX_SHOWN, (n) => `… and ${many(n, 'more bad line')}`);
  }

  /**
   * Yields what `parse` returns for the lines that end in a chunk of `stream`; it throws `usage` or `data` for a bad line.
   * Ends early when `stop` aborts, which destroys the stream. `longest`: of a line, bytes.
   */
  async *read<T>(
    stream: Readable,
    stop: AbortSignal,
    parse: (text: string, line: number) => T,
    longest?: number,
  ): AsyncGenerator<T[]> {
    try {
      for await (const some of lines(addAbortSignal(stop, stream), longest)) {
        const found: T[] = [];
        for (const { number, text, error } of some) {
          try {
            if (error) throw error;
            found.push(parse(text, number));
          } catch (problem) {
            this.refuse(number, problem);
          }
        }
        // Otherwise, many messages would fill the memory.
        await this.#context.room(this.#context.stderr);
        yield found;
        if (stop.aborted) return;
      }
    } catch (error) {
      if (!stop.aborted) throw error;
    } finally {
      this.#flood.flush();
    }
  }

  /** Reports a bad line. Throws any error that is not about the line. */
  refuse(line: number, error: unknown): void {
    if (!isDelayqError(error, 'usage', 'data')) throw error;
    this.bad += 1;
    this.#context.outcomes.add('incomplete');
    this.#flood.add(`line ${line}: ${error.what}${error.why ? `: ${error.why}` : ''}`);
  }
}
