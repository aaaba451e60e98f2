import type { Id } from '../model/id.js';
import { checkList, keysOf } from '../model/validate.js';
import { repeatIfLost } from '../redis/retry.js';
import { unlessMissing } from '../store/answers.js';
import { byId } from '../store/by-id.js';
import * as scripts from '../store/jobs.js';
import type { QueueKeys } from '../store/keys.js';
import { MAX_CALL } from '../store/script.js';
import type { Store } from '../store/store.js';

/** How finish and swap remove jobs. */
export interface FinishOptions {
  /** How the names of these consumers begin. Default: no lease counts as done. */
  readonly by?: string;
  /** If the reply is lost: for how long the call may be repeated, ms. Default: once, however long that takes. */
  readonly repeatMs?: number;
}

export const checkFinish = keysOf<FinishOptions>('finish', {
  by: 'consumer holder owner',
  repeatMs: 'retryMs repeat retry',
});

/** Removes jobs by their ids, see Queue.finish. */
export async function finish(store: Store, ids: readonly Id[], options: FinishOptions): Promise<scripts.Finished[]> {
  const { by = '', repeatMs } = checkFinish(options);
  const send = (states: 'any' | 'active') => (keys: QueueKeys, some: readonly Id[]) =>
    repeatIfLost(() => scripts.finish(store.redis, keys, some.slice(0, MAX_CALL), { by, states }), [0], repeatMs);
  return byId<Id, scripts.Finished>(store, checkList(ids, 'ids'), {
    idOf: (id) => id,
    act: send('any'),
    isMissing: (answer) => answer === 'missing',
    onActive: async (keys, some) => (await send('active')(keys, some)).map(unlessMissing),
  });
}
