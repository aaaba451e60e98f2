import type { Held } from '../model/job.js';
import { checkList } from '../model/validate.js';
import type { Partitions } from '../partitions/partitions.js';
import type { QueueKeys } from '../redis/keys.js';
import { MAX_CALL } from '../redis/script.js';

/**
 * Makes calls about leases in chunks, each on the partition where its lease is: its receipt says which. Answers in the
 * order of `jobs`. Throws what `call` throws.
 */
export async function byReceipt<J extends Held, A>(
  parts: Partitions,
  jobs: readonly J[],
  call: (keys: QueueKeys, some: readonly J[]) => Promise<A[]>,
): Promise<A[]> {
  if (checkList(jobs, 'jobs').every(({ receipt }) => !String(receipt).includes('.'))) {
    const answers: A[] = [];
    for (const some of chunks(jobs)) answers.push(...(await parts.at(0, (keys) => call(keys, some))));
    return answers;
  }
  const groups = new Map<number, number[]>();
  for (const [i, { receipt }] of jobs.entries()) {
    const part = Number(/\.(\d{1,4})$/.exec(receipt)?.[1] ?? 0);
    if (part >= parts.count) await parts.look();
    // Made up: partition 0 answers that no such lease is held.
    const known = part < parts.count ? part : 0;
    const group = groups.get(known);
    if (group) group.push(i);
    else groups.set(known, [i]);
  }
  const answers = new Array<A>(jobs.length);
  await Promise.all(
    [...groups].map(async ([part, indexes]) => {
      for (const some of chunks(indexes)) {
        const held = some.map((i) => jobs[i] as J);
        const found = await parts.at(part, (keys) => call(keys, held));
        for (const [n, i] of some.entries()) answers[i] = found[n] as A;
      }
    }),
  );
  return answers;
}

export function* chunks<T>(list: readonly T[]): Generator<readonly T[]> {
  checkList(list, 'jobs');
  for (let i = 0; i < list.length; i += MAX_CALL) yield list.slice(i, i + MAX_CALL);
}
