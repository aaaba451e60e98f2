import { DelayqError } from './errors.js';
import { checkMs } from './validate.js';

/** Near enough to fall due together, far enough apart to keep an order, ms: exact in Redis's scores until the year 2248. */
const NEXT_MS = 2 ** -10;

/** Longest time from one job to the next, ms: ten years. */
const LONGEST_STEP_MS = 10 * 365 * 86_400_000;

/**
 * New due times for jobs that are put in line one after another, over as many calls as that takes: each call goes on
 * where the one before ended.
 */
export class Spread {
  /** From each job to the next, ms. */
  readonly stepMs: number;
  #next: string;

  /**
   * The first one falls due after `in` ms (0, when neither is given) or `at` ms since 1970, by Redis's clock at the first
   * call; each of the others `stepMs` after the one before. Left out, they fall due together, in their order. Throws a
   * `usage` error for what cannot be.
   */
  constructor({ in: inMs, at, stepMs = NEXT_MS }: { in?: number; at?: number; stepMs?: number } = {}) {
    if (inMs !== undefined && at !== undefined)
      throw new DelayqError('usage', 'jobs have one due time', {
        why: 'both in and at are given',
        next: 'leave one out',
      });
    if (at !== undefined && !(Math.abs(at) <= 8.64e15))
      throw new DelayqError('usage', 'at is not a time', { next: 'give ms since 1970' });
    this.stepMs = checkMs(Math.min(stepMs, LONGEST_STEP_MS), 'stepMs');
    this.#next = at === undefined ? `+${checkMs(inMs ?? 0, 'in')}` : String(at);
  }

  /** When the next job falls due, as the scripts take it: `+ms` from their now, or ms since 1970. */
  get next(): string {
    return this.#next;
  }

  /** Goes on at the time that a script told. */
  goOn(next: string): void {
    this.#next = next;
  }
}
