import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError, isDelayqError, isPassing } from '../model/errors.js';

/**
 * Calls `send` with the number of the attempt, from 0, and again after each of `pausesMs` (default: once, at once)
 * while its reply is lost, but not once `mostMs` have passed. Only for calls that are safe to repeat. Other errors of the
 * first attempt are thrown as they are. After a repeat the first attempt stays in doubt, whatever Redis answers: throws
 * its `unknown`, with the last error as the cause.
 */
export async function repeatIfLost<T>(
  send: (attempt: number) => Promise<T>,
  pausesMs = [0],
  mostMs = Number.POSITIVE_INFINITY,
): Promise<T> {
  const until = performance.now() + mostMs;
  let first: DelayqError | undefined;
  for (let attempt = 0; ; attempt++) {
    try {
      return await send(attempt);
    } catch (error) {
      if (!first && !isDelayqError(error, 'unknown')) throw error;
      first ??= error as DelayqError;
      const pause = pausesMs[attempt];
      if (pause === undefined || performance.now() > until || !isPassing(error)) {
        throw new DelayqError('unknown', first.what, { why: first.why, next: first.next, cause: error });
      }
      if (pause > 0) await sleep(pause);
    }
  }
}

/** Pauses between attempts while Redis is in trouble, ms. The last one repeats. */
const RETRY_MS = [50, 200, 500, 1_000];

/** A first failure is not reported if the attempt took less than this, ms. */
const SILENT_MS = 1_000;

/** The shortest time to wait for a reply, ms, and how often to check after that whether to give up. */
const LEAST_MS = 1_000;
const CHECK_MS = 50;

/** How long to retry, and who is informed. */
export interface RetryLimits {
  /** When to give up, ms by the monotonic clock. Called before each attempt, because it may change. */
  readonly until: () => number;
  /** When to stop waiting even for a reply, ms by the monotonic clock; but each call gets at least a second. */
  readonly giveUpAt?: () => number;
  /** Called when Redis is in trouble, and with undefined when it is back. */
  readonly onTrouble?: ((error: DelayqError | undefined) => void) | undefined;
}

/**
 * Repeats `call` while its errors may pass. Throws other errors at once, and the last error at the limit. `lost`: how
 * many replies were lost so far.
 */
export async function withRetries<T>(
  call: (lost: number) => Promise<T>,
  { until, giveUpAt, onTrouble }: RetryLimits,
): Promise<T> {
  const started = performance.now();
  let lost = 0;
  for (let attempt = 0; ; attempt++) {
    try {
      const result = await (giveUpAt ? answerBy(giveUpAt, call(lost)) : call(lost));
      if (attempt > 0) onTrouble?.(undefined);
      return result;
    } catch (error) {
      if (isDelayqError(error, 'unknown')) lost++;
      const now = performance.now();
      const pause = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)] as number;
      if (!isPassing(error) || now + pause > until()) throw error;
      // A short problem that the next attempt solves is not worth a message.
      if (attempt > 0 || now - started > SILENT_MS) onTrouble?.(error);
      await sleep(pause);
      // The limit may have changed during the pause.
      if (performance.now() > until()) throw error;
    }
  }
}

/**
 * Returns the result of `call`. Throws `unknown` if there is none by `giveUpAt` (which may change while waiting), but
 * waits for at least a second. The call itself is not cancelled.
 */
export async function answerBy<T>(giveUpAt: () => number, call: Promise<T>): Promise<T> {
  const least = performance.now() + LEAST_MS;
  const why = 'no reply arrived before the time to stop was over';
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const check = () => {
      if (performance.now() < Math.max(least, giveUpAt())) timer = setTimeout(check, CHECK_MS);
      else reject(new DelayqError('unknown', 'gave up waiting for Redis', { why, next: 'check that Redis is up' }));
    };
    timer = setTimeout(check, LEAST_MS);
  });
  try {
    return await Promise.race([call, late]);
  } finally {
    clearTimeout(timer);
  }
}
