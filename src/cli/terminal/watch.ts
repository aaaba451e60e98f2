import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { type DelayqError, isPassing } from '../../internal.js';
import type { Context } from '../host/context.js';
import { complain, say } from './output.js';
import { Screen } from './screen.js';

/** The interval between looks, ms. If a look takes long, the pause after it is four times as long. */
const INTERVAL_MS = 1_000;
const REST = 4;

/** Redis does not answer: the error, and when it last did (`since`, ms, by the local clock). */
export interface Trouble {
  readonly since: number;
  readonly error: DelayqError;
}

/** What to look at repeatedly, and how to show it. */
export interface Watched<S> {
  readonly first: S;
  readonly look: (before: S) => Promise<S>;
  /** Formats a look made `at` ms (local clock) for the screen. Undefined: there is no screen. */
  readonly lines: ((seen: S, when: { at: number; trouble: Trouble | undefined }) => Promise<string[]>) | undefined;
  /** Prints a look if there is no screen. */
  readonly print: (seen: S) => Promise<void>;
}

/** Looks and shows the result each second until stopped. While Redis does not answer, the last result stays. */
export async function watch<S>(context: Context, { first, look, lines, print }: Watched<S>): Promise<void> {
  const quit = new AbortController();
  const stop = AbortSignal.any([context.stopSignal(), quit.signal]);
  let seen = first;
  let trouble: Trouble | undefined;
  // When `seen` was read. A redraw while the next look is under way must not show it as newer.
  let at = Date.now();
  const draw = async () => {
    if (screen) await screen.draw((await lines?.(seen, { at, trouble })) ?? []);
    else if (!trouble) await print(seen);
  };
  const screen = lines && new Screen(context, { redraw: () => void draw().catch(() => {}), quit: () => quit.abort() });
  const ended = stop.aborted ? Promise.resolve() : once(stop, 'abort');
  let took = 0;
  try {
    for (;;) {
      // Errors of the output are thrown here, even if a redraw in between ran into them first.
      await draw();
      if (context.outputClosed) return;
      await sleep(Math.max(INTERVAL_MS - took, REST * took), undefined, { signal: stop }).catch(() => {});
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
      // Quitting does not wait for a Redis that does not answer.
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
