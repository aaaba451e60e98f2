import { type Answer, MAX_ERROR, type State } from '../model/job.js';
import { checkWord } from '../model/validate.js';
import type { Arg, Caller, Reply } from '../redis/connection.js';
import type { QueueKeys } from './keys.js';
import { number, text } from './replies.js';
import { run, type ScriptName } from './script.js';

/** A script that answers with one letter for each job, in the order of the jobs, and what the letters mean. */
export interface Asked<A> {
  readonly script: ScriptName;
  readonly letters: Readonly<Record<string, A>>;
}

/** Letters that several scripts share. */
export const STATES: Record<string, State> = { p: 'pending', a: 'active', d: 'dead' };
export const LEASES: Record<string, Answer> = { h: 'held', l: 'lost', s: 'superseded' };

/** Answers in the order of the jobs, the time of Redis's clock, ms, and what else the script replies. */
export interface Answered<A> {
  readonly now: number;
  readonly answers: A[];
  readonly rest: readonly Reply[];
}

/** Runs a script that answers with letters. Throws what {@link run} throws. */
export async function ask<A>(
  redis: Caller,
  keys: QueueKeys,
  { script, letters }: Asked<A>,
  args: readonly Arg[],
  foreign?: readonly string[],
): Promise<Answered<A>> {
  return answered(await run<Reply>(redis, script, keys, args, foreign), letters);
}

/** Decodes the reply of a script that answers with letters. */
export function answered<A>(reply: Reply, meaning: Asked<A>['letters']): Answered<A> {
  // Some scripts reply with nothing but letters.
  const [now, letters, ...rest] = Array.isArray(reply) ? reply : [null, reply];
  const answers: A[] = [];
  for (const letter of text(letters)) answers.push(meaning[letter] as A);
  return { now: number(now), answers, rest };
}

/** The error of a job, as scripts take it. */
export const errorText = (error: string): string => error.slice(0, MAX_ERROR).toWellFormed();

/** The letters of `states`, as scripts take them. Throws `usage` if one is no state. */
export function lettersOf(states: readonly State[]): string {
  for (const state of states) checkWord(state, Object.values(STATES), 'a state');
  return Object.keys(STATES)
    .filter((letter) => states.includes(STATES[letter] as State))
    .join('');
}
