import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError } from '../model/errors.js';
import { type DoneJob, duration } from '../model/job.js';
import { printable, queueWord } from '../model/text.js';
import { keysOf } from '../model/validate.js';
import type { Death, Look } from '../store/finished.js';

/** How to wait for the result of a job. */
export interface ResultOptions {
  /** How long to wait, ms or text such as `30s`. Default: not at all. */
  readonly timeout?: number | string | undefined;
  /** Aborting this ends the wait. */
  readonly signal?: AbortSignal | undefined;
}

/** How a job has ended, or its state if it has not. Times are ms. */
export type JobResult =
  | ({ readonly state: 'done' } & DoneJob)
  | ({ readonly state: 'dead'; readonly id: string } & Death)
  | { readonly state: 'pending' | 'active'; readonly id: string }
  /** There is no such job, nor is it known to be done: it never existed, was cancelled, expired, or is done for long. */
  | { readonly state: 'missing'; readonly id: string };

const checkOptions = keysOf<ResultOptions>('result', { timeout: true, signal: true });

/** How often to look, ms: at first, and at most. Each look in vain takes half as long again. */
const LOOK_MS = [10, 250] as const;

/** See Queue.result. `lookAt` may share calls. */
export async function resultOf(
  queue: string,
  id: string,
  options: ResultOptions,
  lookAt: (id: string) => Promise<Look>,
): Promise<JobResult> {
  const { timeout = 0, signal } = checkOptions(options);
  const end = performance.now() + (duration(timeout) ?? 0);
  let pause: number = LOOK_MS[0];
  for (let misses = 0; ; ) {
    const { isKept, isWhole, state, done, death } = await lookAt(id);
    if (!isKept) throw nothingKept(queue);
    if (state === 'dead') return { state, id, ...(death as Death) };
    if (state === undefined && done) return { state: 'done', ...done };
    const left = end - performance.now();
    if (state !== undefined && (left <= 0 || signal?.aborted)) return { state, id };
    // While a growth moves it, a job may be seen in none of its partitions once.
    misses = state === undefined ? misses + 1 : 0;
    if (misses > 1 || (misses > 0 && isWhole)) return { state: 'missing', id };
    await sleep(Math.min(pause, Math.max(left, LOOK_MS[0])), undefined, { signal }).catch(() => {});
    pause = Math.min(pause * 1.5, LOOK_MS[1]);
  }
}

/** The error for a queue that keeps no jobs that are done. */
export function nothingKept(queue: string): DelayqError {
  return new DelayqError('missing', `${printable(queue).slice(1, -1)} keeps no jobs that are done`, {
    why: 'keep-done is not set for this queue',
    next: `delayq config ${queueWord(queue)} keep-done=24h; then what its jobs bring from now on is kept`,
  });
}
