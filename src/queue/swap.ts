import { DelayqError, isDelayqError } from '../model/errors.js';
import { type Id, newId } from '../model/id.js';
import type { Enqueued, NewJob, ReadyJob } from '../model/job.js';
import { repeatIfLost } from '../redis/retry.js';
import { byId } from '../store/by-id.js';
import * as scripts from '../store/jobs.js';
import type { QueueKeys } from '../store/keys.js';
import { PartitionMap } from '../store/map.js';
import type { Store } from '../store/store.js';
import type { Enqueuer } from './enqueuer.js';
import { checkFinish, type FinishOptions, finish } from './finish.js';

/** Replaces a job by a new one, see Queue.swap. */
export async function swap(
  store: Store,
  enqueuer: Enqueuer,
  other: Id,
  job: Omit<NewJob, 'id'>,
  options: FinishOptions,
): Promise<Enqueued> {
  const { by = '', repeatMs } = checkFinish(options);
  if ('id' in job && job.id !== undefined) {
    throw new DelayqError('usage', 'swap makes the id of the new job', {
      why: 'an id of the caller may belong to another partition than that of the old job',
      next: 'leave out id, or enqueue with the id of the old job and ifExists: replace',
    });
  }
  const ready = enqueuer.ready(job);
  /** Sends it until its id is not that of another job. Undefined: with `active`, the other job is not. */
  const send = async (keys: QueueKeys, states: 'any' | 'active'): Promise<Enqueued | undefined> => {
    const put: ReadyJob = { ...ready, id: idIn(store, keys) };
    let repeated = false;
    const attempt = (n: number) => {
      repeated = n > 0;
      return enqueuer.listing(() => scripts.swap(store.redis, keys, other, put, { by, states }));
    };
    const swapped = await repeatIfLost(attempt, [0], repeatMs).catch((error) => {
      throw isDelayqError(error, 'unknown') ? inDoubt(put.id, error) : error;
    });
    // After a repeat, it is the job of the first attempt.
    if (swapped.other === 'kept' && !repeated) return send(keys, states);
    if (swapped.other === 'missing' && states === 'active') return undefined;
    // Other software may have written it into partition 0. If that is not done, both are delivered.
    if (swapped.other === 'missing' && store.count > 1) await finish(store, [other], options).catch(() => {});
    return { id: put.id, outcome: 'created', due: put.at ?? swapped.now + put.in };
  };
  const [enqueued] = await byId<Id, Enqueued>(store, [other], {
    idOf: (id) => id,
    act: async (keys) => [(await send(keys, 'any')) as Enqueued],
    onActive: async (keys) => [await send(keys, 'active')],
  });
  return enqueued as Enqueued;
}

/** Makes an id that belongs to the partition with these keys. */
function idIn({ map }: Store, { layout = '1' }: QueueKeys): string {
  return map.count === 1 ? newId() : map.newIdOf(PartitionMap.indexIn(layout));
}

function inDoubt(id: string, { why, cause }: DelayqError): DelayqError {
  return new DelayqError('unknown', `job ${id} may or may not have replaced the other one`, {
    why,
    next: `look whether ${id} is there before you repeat this: a repeat makes another job`,
    ids: [id],
    cause,
  });
}
