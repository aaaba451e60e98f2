import { once } from 'node:events';
import { DelayqError } from '../../internal.js';
import type { Context } from '../host/context.js';
import { say } from '../terminal/output.js';

/** Throws `usage` unless there is a terminal on which to ask whether to do `what`. */
export function requireTerminal(context: Context, what: string, next: string): void {
  if (context.stdin.isTTY && context.stderr.isTTY) return;
  throw new DelayqError('usage', `cannot ask whether to ${what}`, {
    why: 'stdin or stderr is not a terminal',
    next,
  });
}

/** Asks on the terminal. Resolves with the answer; with '' when `stop` aborts, or at the end of stdin. */
export async function ask(context: Context, question: string, stop: AbortSignal): Promise<string> {
  const { createInterface } = await import('node:readline');
  // Not as a terminal: it then edits the line itself, and Ctrl-C stays a signal.
  const reader = createInterface({ input: context.stdin, terminal: false });
  context.stderr.write(question);
  try {
    const events = ['line', 'close'].map((event) => once(reader, event, { signal: stop }));
    const [answer = ''] = await Promise.race(events);
    return String(answer).trim();
  } catch {
    return '';
  } finally {
    reader.close();
  }
}

/** Asks a question that y or yes answers with yes. */
export async function isAgreed(context: Context, question: string, stop: AbortSignal): Promise<boolean> {
  return /^y(es)?$/i.test(await ask(context, `${question}? [y/N] `, stop));
}

/** Reports that nothing was done, because the answer was no, or because the command was stopped. */
export function decline(context: Context, nothingDone: string, stop: AbortSignal): void {
  say(context, nothingDone);
  context.outcomes.add(stop.aborted ? 'interrupted' : 'incomplete');
}
