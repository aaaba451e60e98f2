import { isDelayqError, unknownOutcome } from '../model/errors.js';
import type { Enqueued, ReadyJob } from '../model/job.js';
import { byId } from '../store/by-id.js';
import type { QueueKeys } from '../store/keys.js';
import { MAX_CALL } from '../store/script.js';
import type { Store } from '../store/store.js';

/** How jobs are put into one partition, at most {@link MAX_CALL}. */
interface Puts {
  readonly put: (keys: QueueKeys, some: readonly ReadyJob[]) => Promise<Enqueued[]>;
  /** The same for those that are active where they belonged before a growth. */
  readonly onActive: (keys: QueueKeys, some: readonly ReadyJob[]) => Promise<(Enqueued | undefined)[]>;
}

/**
 * Enqueues jobs into the partitions of their ids: `put` those of one. Throws its error if nothing was stored, or if it is
 * about all jobs. Otherwise throws `unknown` with the ids of all jobs that are not surely stored: a repeat with the same
 * ids is safe.
 */
export async function putApart(store: Store, jobs: readonly ReadyJob[], { put, onActive }: Puts): Promise<Enqueued[]> {
  const stored = new Set<ReadyJob>();
  const noting = <A extends Enqueued | undefined>(
    act: (keys: QueueKeys, some: readonly ReadyJob[]) => Promise<A[]>,
  ) => {
    return async (keys: QueueKeys, all: readonly ReadyJob[]) => {
      const some = all.slice(0, MAX_CALL);
      const results = await act(keys, some);
      for (const [i, job] of some.entries()) if (results[i]) stored.add(job);
      return results;
    };
  };
  try {
    return await byId<ReadyJob, Enqueued>(store, jobs, {
      idOf: ({ id }) => id,
      act: noting(put),
      isNew: ({ ours }) => ours,
      onActive: noting(onActive),
    });
  } catch (error) {
    if (!isDelayqError(error)) throw error;
    const isForAll = error.code === 'unknown' ? error.ids.length === jobs.length : stored.size === 0;
    if (isForAll) throw error;
    const rest = jobs.filter((job) => !stored.has(job)).map(({ id }) => id);
    throw unknownOutcome(rest, `jobs of the same call are in several partitions: ${error.why ?? error.what}`);
  }
}
