import type { Id } from '../model/id.js';
import { checkList, keysOf } from '../model/validate.js';
import { byId } from '../partitions/by-id.js';
import type { Partitions } from '../partitions/partitions.js';
import type { QueueKeys } from '../redis/keys.js';
import { repeatIfLost } from '../redis/retry.js';
import { MAX_CALL } from '../redis/script.js';
import { unlessMissing } from '../scripts/answers.js';
import * as scripts from '../scripts/jobs.js';

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
export async function finish(
  parts: Partitions,
  ids: readonly Id[],
  options: FinishOptions,
): Promise<scripts.Finished[]> {
  const { by = '', repeatMs } = checkFinish(options);
  const send = (states: 'any' | 'active') => (keys: QueueKeys, some: readonly Id[]) =>
    repeatIfLost(() => scripts.finish(parts.redis, keys, some.slice(0, MAX_CALL), { by, states }), [0], repeatMs);
  return byId<Id, scripts.Finished>(parts, checkList(ids, 'ids'), {
    idOf: (id) => id,
    act: send('any'),
    isMissing: (answer) => answer === 'missing',
    onActive: async (keys, some) => (await send('active')(keys, some)).map(unlessMissing),
  });
}
