import { DelayqError, isDelayqError } from '../model/errors.js';
import { type Id, newId } from '../model/id.js';
import type { Enqueued, ReadyJob } from '../model/job.js';
import { checkList, keysOf } from '../model/validate.js';
import { repeatIfLost } from '../redis/retry.js';
import { type Asked, ask } from './answers.js';
import { byId } from './by-id.js';
import { sendable, timeOf } from './jobs.js';
import type { QueueKeys } from './keys.js';
import { PartitionMap } from './map.js';
import { number } from './replies.js';
import type { Store } from './store.js';

/** How finish and swap remove jobs. */
export interface FinishOptions {
  /** How the names of these consumers begin. Default: no lease counts as done. */
  readonly by?: string;
  /** How long to repeat the call if its reply is lost, ms. Default: one repeat, however long it takes. */
  readonly repeatMs?: number;
}

const checkFinish = keysOf<FinishOptions>('finish', {
  by: 'consumer holder owner',
  repeatMs: 'retryMs repeat retry',
});

/**
 * What a finish found: a job under a lease of the given consumers, which counts as done (`acked`), another job, which
 * counts as `cancelled`, or none.
 */
export type Finished = 'acked' | 'cancelled' | 'missing';

/** `kept`: the id of the job to put in place of another one is taken, and nothing was done. */
export const REMOVE: Asked<Finished | 'kept'> = {
  script: 'jobs/remove',
  letters: { a: 'acked', c: 'cancelled', m: 'missing', k: 'kept' },
};

/** Removes jobs by their ids, see Queue.finish. */
export async function removeByIds(store: Store, ids: readonly Id[], options: FinishOptions): Promise<Finished[]> {
  const { by = '', repeatMs } = checkFinish(options);
  const remove = (states: 'any' | 'active') => (keys: QueueKeys, some: readonly Id[]) => {
    const send = () => ask(store.redis, keys, REMOVE, [by, states, '', '', '', '', ...some]);
    return repeatIfLost(send, [0], repeatMs).then(({ answers }) => answers as Finished[]);
  };
  return byId<Id, Finished>(store, checkList(ids, 'ids'), { act: remove('any'), onActive: remove('active') });
}

/** Replaces a job by a new one, see Queue.swap. */
export async function swap(store: Store, other: Id, ready: ReadyJob, options: FinishOptions): Promise<Enqueued> {
  const { by = '', repeatMs } = checkFinish(options);
  /** Sends the new job until its id is free. Undefined: with `active`, the other job is not active. */
  const send = async (keys: QueueKeys, states: 'any' | 'active'): Promise<Enqueued | undefined> => {
    const put: ReadyJob = { ...ready, id: idIn(store, keys) };
    const args = [by, states, put.id, sendable(put.json), timeOf(put), put.record, other];
    let repeated = false;
    const attempt = (n: number) => {
      repeated = n > 0;
      return store.listing(async () => {
        const { now, answers, rest } = await ask(store.redis, keys, REMOVE, args);
        return { now, found: answers[0] ?? 'missing', begun: number(rest[0]) === 2 };
      });
    };
    const { now, found } = await repeatIfLost(attempt, [0], repeatMs).catch((error) => {
      throw isDelayqError(error, 'unknown') ? inDoubt(put.id, error) : error;
    });
    // After a repeat, the kept job is that of the first attempt.
    if (found === 'kept' && !repeated) return send(keys, states);
    if (found === 'missing' && states === 'active') return undefined;
    // Other software may have written the old job into partition 0. If this removal fails, both jobs are delivered.
    if (found === 'missing' && store.count > 1) await removeByIds(store, [other], options).catch(() => {});
    return { id: put.id, outcome: 'created', due: put.at ?? now + put.in };
  };
  const [enqueued] = await byId<Id, Enqueued>(store, [other], {
    act: async (keys) => [(await send(keys, 'any')) as Enqueued],
    onActive: async (keys) => [await send(keys, 'active')],
  });
  return enqueued as Enqueued;
}

/** Makes an id that belongs to the partition with these keys. */
function idIn(store: Store, { layout }: QueueKeys): string {
  return store.count === 1 ? newId() : store.map.newIdOf(PartitionMap.indexIn(layout));
}

function inDoubt(id: string, { why, cause }: DelayqError): DelayqError {
  return new DelayqError('unknown', `job ${id} may or may not have replaced the other one`, {
    why,
    next: `look whether ${id} is there before you repeat this: a repeat makes another job`,
    ids: [id],
    cause,
  });
}
