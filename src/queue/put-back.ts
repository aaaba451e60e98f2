import { isDelayqError, unknownOutcome } from '../model/errors.js';
import type { Job, ReadyJob } from '../model/job.js';
import { byId } from '../store/by-id.js';
import type { QueueKeys } from '../store/keys.js';
import type { Store } from '../store/store.js';
import { chunks } from './by-receipt.js';
import type { Enqueuer } from './enqueuer.js';

/** Puts back jobs that a drain has removed, see Queue.putBack. */
export async function putBack(store: Store, enqueuer: Enqueuer, jobs: readonly Job[]): Promise<void> {
  for (const some of chunks(jobs)) {
    const ready = some.map(({ id, payload, due, record = '' }) => {
      return { id, ours: false, json: payload, in: 0, at: due, record };
    });
    const put = {
      idOf: ({ id }: ReadyJob) => id,
      act: (keys: QueueKeys, jobs: readonly ReadyJob[]) =>
        enqueuer.send(keys, jobs, 'back').then(({ outcomes }) => outcomes),
      ifActive: () => 'kept' as const,
    };
    await byId(store, ready, put).catch((error) => {
      const ids = some.map(({ id }) => id);
      throw isDelayqError(error, 'unknown') ? unknownOutcome(ids, `Redis's reply was lost: ${error.why}`) : error;
    });
  }
}
