import { DelayqError } from '../../internal.js';
import type { Context } from '../host/context.js';
import { say } from '../terminal/output.js';

/** Throws `usage` unless somebody at a terminal can be asked whether to do `what`. */
export function requireTerminal(context: Context, what: string, next: string): void {
  if (context.canAsk) return;
  throw new DelayqError('usage', `cannot ask whether to ${what}`, {
    why: 'stdin or stderr is not a terminal',
    next,
  });
}

/** Asks a question that y or yes answers with yes. */
export async function isAgreed(context: Context, question: string, stop: AbortSignal): Promise<boolean> {
  return /^y(es)?$/i.test((await context.ask(`${question}? [y/N] `, stop)).trim());
}

/** Reports that nothing was done, because the answer was no, or because the command was stopped. */
export function decline(context: Context, nothingDone: string, stop: AbortSignal): void {
  say(context, nothingDone);
  context.outcomes.add(stop.aborted ? 'interrupted' : 'incomplete');
}
