import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError, isPassing } from '../model/errors.js';
import { type DoneJob, duration, type State } from '../model/job.js';
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

/** Follows a job by looks at it, one after the other, until it ends. */
export class Watch {
  readonly queue: string;
  readonly id: string;
  /** Its last known state; undefined: no look has seen it. */
  state: Exclude<State, 'dead'> | undefined;
  /** The last look saw no job, but another one may. */
  isInDoubt = false;
  /** When an earlier job of its id was done. */
  #earlier: number | undefined;

  constructor(queue: string, id: string) {
    this.queue = queue;
    this.id = id;
  }

  /** Returns how the job has ended; undefined: it has not, or is in doubt. Throws `missing` if the queue keeps nothing. */
  see({ isKept, isWhole, state, done, death }: Look): JobResult | undefined {
    const { id } = this;
    if (!isKept) throw nothingKept(this.queue);
    if (state === 'dead') return { state, id, ...(death as Death) };
    const wasInDoubt = this.isInDoubt;
    this.isInDoubt = state === undefined;
    if (state !== undefined) {
      this.state = state;
      this.#earlier = done?.done;
      return undefined;
    }
    // A job that was cancelled has not the result of an earlier one.
    if (done && done.done !== this.#earlier) return { state: 'done', ...done };
    // While a growth moves it, a job may be seen in none of its partitions once.
    return wasInDoubt || isWhole ? { state: 'missing', id } : undefined;
  }

  /** Its last known state, for those who wait no longer. */
  get last(): JobResult {
    return { state: this.state ?? 'missing', id: this.id };
  }
}

/** See Queue.result. `lookAt` looks at the job. */
export async function resultOf(watch: Watch, options: ResultOptions, lookAt: () => Promise<Look>): Promise<JobResult> {
  const { timeout = 0, signal } = checkOptions(options);
  const end = performance.now() + (duration(timeout) ?? 0);
  let pause: number = LOOK_MS[0];
  for (;;) {
    const look = await lookAt().catch((error: unknown) => {
      // Redis may be back while there is time.
      if (!isPassing(error) || performance.now() >= end || signal?.aborted) throw error;
    });
    const found = look && watch.see(look);
    if (found) return found;
    const left = end - performance.now();
    if (look && !watch.isInDoubt && (left <= 0 || signal?.aborted)) return watch.last;
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
