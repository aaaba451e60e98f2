import { isPassing, partly } from '../model/errors.js';
import type { Held } from '../model/job.js';
import { checkList } from '../model/validate.js';
import { worst } from '../store/by-id.js';
import type { QueueKeys } from '../store/keys.js';
import { groupsOf } from '../store/map.js';
import { MAX_CALL } from '../store/script.js';
import type { Store } from '../store/store.js';

/**
 * Makes calls about leases in chunks, each on the partition where its lease is: its receipt says which. Answers in the
 * order of `jobs`. Throws what `call` throws; if that may pass, and others were answered, `unknown`: a repeat finds
 * their leases gone.
 */
export async function byReceipt<J extends Held, A>(
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
        // Made up: partition 0 answers that no such lease is held.
        const found = await store.at(part < store.count ? part : 0, (keys) => call(keys, held));
        isAnyAnswered = true;
        for (const [n, i] of some.entries()) answers[i] = found[n] as A;
      }
    }),
  );
  const errors = ended.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
  if (errors.length === 0) return answers;
  const error = worst(errors);
  throw isAnyAnswered && isPassing(error) ? partly(error) : error;
}

function partIn(receipt: unknown): number {
  const text = String(receipt);
  return text.includes('.') ? Number(/\.(\d{1,4})$/.exec(text)?.[1] ?? 0) : 0;
}

export function* chunks<T>(list: readonly T[]): Generator<readonly T[]> {
  checkList(list, 'jobs');
  for (let i = 0; i < list.length; i += MAX_CALL) yield list.slice(i, i + MAX_CALL);
}
