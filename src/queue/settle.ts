import { type Backoff, packBackoff } from '../model/backoff.js';
import { type Answer, afterRepeat, type Given, type Held, type Nacked } from '../model/job.js';
import { checkList, checkMs, checkWord, keysOf } from '../model/validate.js';
import { repeatIfLost } from '../redis/retry.js';
import * as scripts from '../store/jobs.js';
import type { QueueKeys } from '../store/keys.js';
import type { Store } from '../store/store.js';
import { byReceipt } from './by-receipt.js';

/** How jobs are acked. */
export interface AckOptions {
  /** If the reply is lost: for how long the call may be repeated, ms. Default: once, however long that takes. */
  readonly repeatMs?: number;
}

/** How jobs are given back. */
export interface NackOptions extends AckOptions {
  /** `retry` (default): counts a failure; dead when out of tries · `dead`: dead at once · `release`: counts nothing. */
  readonly mode?: 'retry' | 'dead' | 'release';
  /** The last error of jobs that have no `error` of their own. */
  readonly error?: string;
  /** How long failed jobs without a `delayMs` of their own wait. Default: the queue's. */
  readonly backoff?: Backoff | undefined;
}

const REPEAT_WORDS = 'retryMs repeat retry';
const checkAck = keysOf<AckOptions>('ack', { repeatMs: REPEAT_WORDS });
const checkNack = keysOf<NackOptions>('nack', {
  mode: 'dead release retry',
  error: 'reason message',
  backoff: 'delay delayMs in',
  repeatMs: REPEAT_WORDS,
});

/** Removes finished jobs, see Queue.ack. */
export async function ack(store: Store, jobs: readonly Held[], options: AckOptions): Promise<Answer[]> {
  const { repeatMs } = checkAck(options);
  return settle(store, jobs, repeatMs, (keys, some) => scripts.ack(store.redis, keys, some));
}

/** Gives jobs back, see Queue.nack. */
export async function nack(store: Store, jobs: readonly Given[], how: NackOptions): Promise<Nacked[]> {
  const { mode = 'retry', error, backoff, repeatMs } = checkNack(how);
  checkWord(mode, ['retry', 'dead', 'release'], 'mode');
  for (const { delayMs = 0 } of checkList(jobs, 'jobs')) checkMs(delayMs, 'delayMs');
  const options = { mode, backoff: backoff ? packBackoff(backoff) : '', jitter: Math.random() };
  const given = jobs.map((job) => ({ ...job, error: job.error ?? error }));
  return settle(store, given, repeatMs, (keys, some) => scripts.nack(store.redis, keys, some, options));
}

/** Settles jobs in chunks. Repeats a chunk if its reply was lost. */
function settle<J extends Held, A extends Answer | Nacked>(
  store: Store,
  jobs: readonly J[],
  repeatMs: number | undefined,
  send: (keys: QueueKeys, some: readonly J[]) => Promise<{ answers: A[] }>,
): Promise<A[]> {
  const attempt = (keys: QueueKeys, some: readonly J[]) => async (n: number) => {
    const { answers } = await send(keys, some);
    return n > 0 ? answers.map(afterRepeat) : answers;
  };
  return byReceipt(store, jobs, (keys, some) => repeatIfLost(attempt(keys, some), [0], repeatMs));
}
