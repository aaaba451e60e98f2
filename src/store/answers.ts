import { type Answer, MAX_ERROR, type State } from '../model/job.js';
import { checkWord } from '../model/validate.js';
import type { Reply } from '../redis/connection.js';
import { number, text } from './replies.js';

// Scripts answer with one letter for each job, in the order of the jobs. The letters that several scripts share:
export const STATES: Record<string, State> = { p: 'pending', a: 'active', d: 'dead' };
export const LEASES: Record<string, Answer> = { h: 'held', l: 'lost', s: 'superseded' };

/** Answers in the order of the jobs, and the time of Redis's clock, ms. */
export interface Answered<A> {
  readonly now: number;
  readonly answers: A[];
}

/** Decodes a reply that begins with the time and the letters. */
export function answered<A>([now, letters]: readonly Reply[], meaning: Record<string, A>): Answered<A> {
  return { now: number(now), answers: words(letters, meaning) };
}

export function words<A>(letters: Reply | undefined, meaning: Record<string, A>): A[] {
  const answers: A[] = [];
  for (const letter of text(letters)) answers.push(meaning[letter] as A);
  return answers;
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

/** Maps `missing` to undefined, as `onActive` of {@link ById} wants it. */
export const unlessMissing = <A extends string>(answer: A): A | undefined =>
  answer === 'missing' ? undefined : answer;
