import { queueWord } from '../../internal.js';
import type { Context } from '../host/context.js';
import { many, say } from './output.js';

/** Why a job is dead, in words. */
export const REASONS: Readonly<Record<string, string>> = {
  failed: 'failed too often',
  refused: 'refused by its handler',
  lost: 'lease expired too often',
  buried: 'buried by an operator',
  orphaned: 'has no payload',
  'bad id': 'has an invalid id',
  found: 'payload found without an id',
  'bad due': 'has an invalid due time',
};

/** How many jobs are reported one by one within {@link SPAN_MS}: so many that a flood of them fills no log or mail. */
const MOST = 20;
const SPAN_MS = 60_000;

/** Reports jobs that die, a line each. Of a flood it reports the first ones, and how many more there were. */
export class Deaths {
  readonly #context: Context;
  #reported = 0;
  /** How many were not reported, by queue. */
  readonly #others = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(context: Context) {
    this.#context = context;
  }

  add(queue: string, text: string): void {
    this.#timer ??= setTimeout(() => this.flush(), SPAN_MS).unref();
    if (++this.#reported <= MOST) say(this.#context, text);
    else this.#others.set(queue, (this.#others.get(queue) ?? 0) + 1);
  }

  /** Reports how many more died than were reported one by one. Call it at the end. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#reported = 0;
    for (const [queue, n] of this.#others)
      say(this.#context, `${queue}: ${many(n, 'more job')} died; list them: delayq list --dead ${queueWord(queue)}`);
    this.#others.clear();
  }
}
