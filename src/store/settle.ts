import { type Backoff, packBackoff } from '../model/backoff.js';
import { errorKind } from '../model/error-kind.js';
import { DelayqError, isPassing, partly } from '../model/errors.js';
import {
  type Answer,
  afterRepeat,
  type Finishing,
  type Given,
  type Held,
  type NackAnswer,
  type Nacked,
} from '../model/job.js';
import { cutBytes } from '../model/text.js';
import { checkCount, checkList, checkMs, checkWord, keysOf } from '../model/validate.js';
import type { Arg } from '../redis/connection.js';
import { type RetryLimits, repeatIfLost, withRetries } from '../redis/retry.js';
import { type Asked, ask, errorText, LEASES } from './answers.js';
import { chunks, worst } from './by-id.js';
import type { QueueKeys } from './keys.js';
import { groupsOf } from './map.js';
import { number } from './replies.js';
import { MAX_CALL } from './script.js';
import type { Store } from './store.js';

/** How jobs are acked. */
export interface AckOptions {
  /** How long to repeat the call if its reply is lost, ms. Default: one repeat, however long it takes. */
  readonly repeatMs?: number;
}

/** How jobs are given back. */
export interface NackOptions extends AckOptions {
  /**
   * `retry` (default): counts a failure; dead when out of tries · `dead`: dead at once · `release`: no failure; counts a
   * release · `back`: counts nothing, as if the job had not been taken.
   */
  readonly mode?: 'retry' | 'dead' | 'release' | 'back';
  /** The last error of jobs that have no `error` of their own. */
  readonly error?: string;
  /** How long failed jobs without a `delayMs` of their own wait. Default: the queue's. */
  readonly backoff?: Backoff | undefined;
  /** With `release`: a job that was released more often than this is dead. Default: 1,000. */
  readonly maxReleases?: number | undefined;
}

/** So that no job circles for ever unseen. */
const MAX_RELEASES = 1_000;

const checkAck = keysOf<AckOptions>('ack', { repeatMs: true });
const checkNack = keysOf<NackOptions>('nack', {
  ...{ mode: true, error: true, backoff: true, maxReleases: true, repeatMs: true },
});

export const ACK: Asked<Answer> = { script: 'jobs/ack', letters: LEASES };
export const RENEW: Asked<Answer> = { script: 'jobs/renew', letters: LEASES };
export const NACK: Asked<NackAnswer> = {
  script: 'jobs/nack',
  letters: { p: 'pending', d: 'dead', l: 'lost', s: 'superseded' },
};

const receiptsOf = (jobs: readonly Held[]) => jobs.flatMap(({ id, receipt }) => [id, receipt]);

/** The longest result that is stored with a job that is done, bytes. */
const MAX_RESULT = 4096;

/** The arguments of lua/jobs/ack.lua. Only a handler knows how long it ran, and only queues that keep results are told. */
function doneOf(jobs: readonly Finishing[]): Arg[] {
  if (jobs.every(({ result, tookMs }) => result === undefined && tookMs === undefined)) return receiptsOf(jobs);
  const of = ({ id, receipt, tookMs, result }: Finishing) => [
    ...[id, receipt, tookMs === undefined ? '' : Math.round(checkMs(tookMs, 'tookMs'))],
    result === undefined ? '' : cutBytes(checkResult(result), MAX_RESULT),
  ];
  return ['', ...jobs.flatMap(of)];
}

function checkResult(result: unknown): string {
  if (typeof result === 'string') return result.toWellFormed();
  throw new DelayqError('usage', 'a result is not a text', { next: 'give a string, such as JSON.stringify(value)' });
}

/** Removes finished jobs, see Queue.ack. */
export async function ack(
  store: Store,
  jobs: readonly Finishing[],
  options: AckOptions,
  limits?: RetryLimits,
): Promise<Answer[]> {
  const repeat = limits ?? checkAck(options).repeatMs;
  return settle(store, jobs, repeat, async (keys, some) => (await ask(store.redis, keys, ACK, doneOf(some))).answers);
}

/** Gives jobs back, see Queue.nack. */
export async function nack(
  store: Store,
  jobs: readonly Given[],
  how: NackOptions,
  limits?: RetryLimits,
): Promise<Nacked[]> {
  const { mode = 'retry', error: ofAll = '', backoff, maxReleases = MAX_RELEASES, repeatMs } = checkNack(how);
  checkWord(mode, ['retry', 'dead', 'release', 'back'], 'mode');
  checkCount(maxReleases, 'maxReleases');
  for (const { delayMs = 0 } of checkList(jobs, 'jobs')) checkMs(delayMs, 'delayMs');
  // The jitter varies an exponential backoff.
  const limit = mode === 'release' ? maxReleases : backoff ? packBackoff(backoff) : '';
  const options = [mode, limit, Math.random()];
  return settle(store, jobs, limits ?? repeatMs, async (keys, some) => {
    const args = some.flatMap(({ id, receipt, delayMs = '', error = ofAll }) => {
      const kind = mode === 'release' || mode === 'back' ? '' : errorKind(error);
      return [id, receipt, delayMs, errorText(error), kind === error ? '' : kind];
    });
    const { answers, rest } = await ask(store.redis, keys, NACK, [...options, ...args]);
    return answers.map((answer, i) => ({ answer, delayMs: number(rest[i]) }));
  });
}

/** Adds to how many handlers took less than 2^k ms, and at least half of that, by k. */
export async function countDurations(store: Store, counts: ReadonlyMap<number, number>): Promise<void> {
  const { stats } = store.keys(0);
  await Promise.all([...counts].map(([k, n]) => store.redis.call('HINCRBY', stats, `took:${k}`, n)));
}

/** Extends leases, see Queue.renew. */
export function renew(store: Store, jobs: readonly Held[], leaseMs: number | undefined): Promise<Answer[]> {
  if (leaseMs !== undefined) checkMs(leaseMs, 'leaseMs', 1);
  return byReceipt(store, jobs, async (keys, some) => {
    return (await ask(store.redis, keys, RENEW, [leaseMs ?? '', ...receiptsOf(some)])).answers;
  });
}

/** Settles jobs in chunks. Repeats a chunk whose reply was lost: once, for some ms, or within the limits. */
function settle<J extends Held, A extends Answer | Nacked>(
  store: Store,
  jobs: readonly J[],
  repeat: number | RetryLimits | undefined,
  send: (keys: QueueKeys, some: readonly J[]) => Promise<A[]>,
): Promise<A[]> {
  return byReceipt(store, jobs, (keys, some) => {
    const attempt = async (lost: number) => {
      const answers = await send(keys, some);
      return lost > 0 ? answers.map(afterRepeat) : answers;
    };
    return typeof repeat === 'object' ? withRetries(attempt, repeat) : repeatIfLost(attempt, [0], repeat);
  });
}

/**
 * Makes calls about leases in chunks, each on the partition in its receipt. Answers in the order of `jobs`. Throws what
 * `call` throws; but `unknown` if the error may pass and others were answered: a repeat finds their leases gone.
 */
async function byReceipt<J extends Held, A>(
  store: Store,
  jobs: readonly J[],
  call: (keys: QueueKeys, some: readonly J[]) => Promise<A[]>,
): Promise<A[]> {
  // The most frequent case, and the fastest.
  if (
    checkList(jobs, 'jobs').length <= MAX_CALL &&
    jobs.length > 0 &&
    jobs.every(({ receipt }) => partIn(receipt) === 0)
  )
    return store.at(0, (keys) => call(keys, jobs));
  const groups = groupsOf(jobs.keys(), (i) => partIn((jobs[i] as J).receipt));
  if (Math.max(0, ...groups.keys()) >= store.count) await store.look();
  const answers = new Array<A>(jobs.length);
  let isAnyAnswered = false;
  const ended = await Promise.allSettled(
    [...groups].map(async ([part, indexes]) => {
      for (const some of chunks(indexes)) {
        const held = some.map((i) => jobs[i] as J);
        // If the receipt is made up, partition 0 answers that no such lease is held.
        const found = await store.at(part < store.count ? part : 0, (keys) => call(keys, held));
        isAnyAnswered = true;
        for (const [n, i] of some.entries()) answers[i] = found[n] as A;
      }
    }),
  );
  const error = worst(ended);
  if (error === undefined) return answers;
  throw isAnyAnswered && isPassing(error) ? partly(error) : error;
}

function partIn(receipt: unknown): number {
  const text = String(receipt);
  return text.includes('.') ? Number(/\.(\d{1,4})$/.exec(text)?.[1] ?? 0) : 0;
}
