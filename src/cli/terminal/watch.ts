import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { type DelayqError, isPassing } from '../../internal.js';
import type { Context } from '../host/context.js';
import { complain, say } from './output.js';
import { Screen } from './screen.js';

/** So often is looked, ms; and no more than a fifth of the time, should it take long. */
const EVERY_MS = 1_000;
const REST = 4;

/** When Redis has answered for the last time, ms by our own clock, and what is the trouble since. */
export interface Trouble {
  readonly since: number;
  readonly error: DelayqError;
}

/** What is looked at again and again, and how it is shown. */
export interface Watched<S> {
  readonly first: S;
  readonly look: (before: S) => Promise<S>;
  /** As lines for a screen, seen `at` ms by our own clock, the last of which belongs to the bottom; undefined: there is none, `text` goes out. */
  readonly lines: ((seen: S, when: { at: number; trouble: Trouble | undefined }) => Promise<string[]>) | undefined;
  readonly text: (seen: S) => Promise<string>;
}

/** Shows what is seen every second until it is stopped. While Redis is in trouble, what was seen last stays. */
export async function watch<S>(context: Context, { first, look, lines, text }: Watched<S>): Promise<void> {
  const quit = new AbortController();
  const stop = AbortSignal.any([context.stopSignal(), quit.signal]);
  let seen = first;
  let trouble: Trouble | undefined;
  // What is shown is as old as this, also while an answer is waited for.
  let at = Date.now();
  const draw = async () => {
    if (screen) await screen.draw((await lines?.(seen, { at, trouble })) ?? []);
    else if (!trouble) await context.write(await text(seen));
  };
  const screen = lines && new Screen(context, { redraw: () => void draw().catch(() => {}), quit: () => quit.abort() });
  const ended = stop.aborted ? Promise.resolve() : once(stop, 'abort');
  let took = 0;
  try {
    for (;;) {
      // What a broken output throws is thrown here, by the next drawing at the latest.
      await draw();
      if (context.outputClosed) return;
      await sleep(Math.max(EVERY_MS - took, REST * took), undefined, { signal: stop }).catch(() => {});
      if (stop.aborted) return;
      const began = performance.now();
      const next = look(seen).then(
        (found) => {
          if (trouble && !screen) say(context, 'Redis is back');
          trouble = undefined;
          at = Date.now();
          seen = found;
        },
        (error) => {
          if (!isPassing(error)) throw error;
          if (!trouble && !screen) complain(context, error);
          trouble = { since: at, error };
        },
      );
      // Whoever wants to leave does not wait for a Redis that does not answer.
      await Promise.race([next, ended]);
      if (stop.aborted) {
        next.catch(() => {});
        return;
      }
      took = performance.now() - began;
    }
  } finally {
    screen?.close();
  }
}
