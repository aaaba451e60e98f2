import { addAbortSignal, type Readable } from 'node:stream';
import { type InputLine, lines } from '../lines/reader.js';

/** The lines of `input`, as {@link lines} yields them. They end early when `stop` aborts, which destroys `input`. */
export async function* linesUntil(stop: AbortSignal, input: Readable, longest?: number): AsyncGenerator<InputLine[]> {
  try {
    yield* lines(addAbortSignal(stop, input), longest);
  } catch (error) {
    if (!stop.aborted) throw error;
  }
}
