import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError } from '../model/errors.js';
import { type DoneJob, duration } from '../model/job.js';
import { printable, queueWord } from '../model/text.js';
import { LONGEST_TIMER_MS } from '../model/time.js';
import { keysOf } from '../model/validate.js';
import { lookUp } from '../store/finished.js';
import { show } from '../store/inspect.js';
import type { Store } from '../store/store.js';

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
  | {
      readonly state: 'dead';
      readonly id: string;
      /** Why it is dead, as in StoredJob, and its last error. */
      readonly reason: string | undefined;
      readonly error: string | undefined;
      readonly attempts: number;
    }
  | { readonly state: 'pending' | 'active'; readonly id: string }
  /** There is no such job, nor is it known to be done: it never existed, was cancelled, expired, or is done for long. */
  | { readonly state: 'missing'; readonly id: string };

const checkOptions = keysOf<ResultOptions>('result', { timeout: true, signal: true });

/** How often to look, ms: at first, and at most. Each look in vain takes half as long again. */
const LOOK_MS = [10, 250] as const;

/** See Queue.result. */
export async function resultOf(store: Store, id: string, options: ResultOptions): Promise<JobResult> {
  const { timeout = 0, signal } = checkOptions(options);
  const end = performance.now() + (duration(timeout) ?? 0);
  let pause: number = LOOK_MS[0];
  let misses = 0;
  for (;;) {
    const state = await look(store, id);
    misses = state.state === 'missing' ? misses + 1 : 0;
    // While a growth moves it, a job may be seen in none of its partitions once.
    const isOver =
      state.state === 'missing' ? misses > 1 || store.count === 1 : !/^(pending|active)$/.test(state.state);
    const left = end - performance.now();
    if (isOver || (misses === 0 && left <= 0) || signal?.aborted) return state;
    await sleep(Math.min(pause, Math.max(left, LOOK_MS[0]), LONGEST_TIMER_MS), undefined, { signal }).catch(() => {});
    pause = Math.min(pause * 1.5, LOOK_MS[1]);
  }
}

async function look(store: Store, id: string): Promise<JobResult> {
  const { isKept, found } = await lookUp(store, [id]);
  if (!isKept) throw nothingKept(store.queue);
  const { state, done } = found[0] ?? {};
  if (state === 'dead') {
    for await (const [job] of show(store, [id]))
      if (job?.state === state) {
        const { reason, error, attempts } = job;
        return { state, id, reason, error, attempts };
      }
    // It was requeued just now.
    return { state: 'pending', id };
  }
  if (state !== undefined) return { state, id };
  return done ? { state: 'done', ...done } : { state: 'missing', id };
}

/** The error for a queue that keeps no jobs that are done. */
export function nothingKept(queue: string): DelayqError {
  return new DelayqError('missing', `${printable(queue).slice(1, -1)} keeps no jobs that are done`, {
    why: 'keep-done is not set for this queue',
    next: `delayq config ${queueWord(queue)} keep-done=24h; then what its jobs bring from now on is kept`,
  });
}
