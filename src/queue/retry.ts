import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError, isDelayqError, isPassing } from '../model/errors.js';
import { type Answer, afterRepeat, type Nacked } from '../model/job.js';

/** Pauses between attempts while Redis is in trouble, ms; the last repeats. */
const RETRY_MS = [50, 200, 500, 1_000];

/** A first attempt that fails sooner than this is not told of, ms. */
const SILENT_MS = 1_000;

/** How long an answer is waited for at least, ms, and how often is looked whether it takes too long after that. */
const LEAST_MS = 1_000;
const LOOK_MS = 50;

/** How long to try, and who hears of it. */
export interface RetryLimits {
  /** When to give up, ms by the monotonic clock; asked before each attempt, as it may change. */
  readonly until: () => number;
  /** From when on not even the answer to a call under way is waited for; it has a second at least. */
  readonly giveUpAt?: () => number;
  /** Hears that Redis is in trouble, and, with undefined, that it is back. */
  readonly onTrouble?: ((error: DelayqError | undefined) => void) | undefined;
}

/** Calls `call` again while it fails with errors that pass. Throws the last of them when time is up, others at once. */
export async function withRetries<T>(call: () => Promise<T>, { until, giveUpAt, onTrouble }: RetryLimits): Promise<T> {
  const started = performance.now();
  for (let attempt = 0; ; attempt++) {
    try {
      const result = await (giveUpAt ? answerBy(giveUpAt, call()) : call());
      if (attempt > 0) onTrouble?.(undefined);
      return result;
    } catch (error) {
      const now = performance.now();
      const pause = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)] as number;
      if (!isPassing(error) || now + pause > until()) throw error;
      // A hiccup that the next attempt mends is not worth a word.
      if (attempt > 0 || now - started > SILENT_MS) onTrouble?.(error);
      await sleep(pause);
      // The end may have come meanwhile.
      if (performance.now() > until()) throw error;
    }
  }
}

/**
 * What `call` answers. Throws `unknown` when there is no answer by `giveUpAt`, which may change meanwhile, nor within a
 * second: the call itself goes on.
 */
export async function answerBy<T>(giveUpAt: () => number, call: Promise<T>): Promise<T> {
  const least = performance.now() + LEAST_MS;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const look = () => {
      if (performance.now() < Math.max(least, giveUpAt())) timer = setTimeout(look, LOOK_MS);
      else
        reject(
          new DelayqError('unknown', 'gave up waiting for Redis', {
            why: 'it had not answered when the time to stop was over',
            next: 'check that Redis is up',
          }),
        );
    };
    timer = setTimeout(look, LEAST_MS);
  });
  try {
    return await Promise.race([call, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Settles jobs as {@link withRetries}, and knows what answers mean after a reply that was lost. */
export async function settleWithRetries<A extends Answer | Nacked>(
  settle: () => Promise<A[]>,
  limits: RetryLimits,
): Promise<A[]> {
  let inDoubt = false;
  const answers = await withRetries(
    () =>
      settle().catch((error: unknown) => {
        inDoubt ||= isDelayqError(error, 'unknown');
        throw error;
      }),
    limits,
  );
  return inDoubt ? answers.map(afterRepeat) : answers;
}
