import type { Id } from '../model/id.js';
import type { Reply } from '../redis/connection.js';
import { byId } from './by-id.js';
import type { QueueKeys } from './keys.js';
import { listIn } from './list.js';
import { type Destination, type Moved, moveSome } from './move-steps.js';
import { text } from './replies.js';
import { forgetTokens, restoreInto } from './restore.js';
import { SLICE } from './script.js';
import type { Store } from './store.js';

/** Moves jobs that are in one of `states` to another queue. A repeat finishes what was interrupted. */
export async function moveJobs(
  store: Store,
  to: Store,
  ids: readonly Id[],
  states: readonly ('pending' | 'dead')[],
): Promise<Moved[]> {
  const { redis } = store;
  const destination: Destination = {
    holder: `move:${to.queue}`,
    restore: (jobs) => restoreInto(to, jobs),
    forget: (jobs) => forgetTokens(to, jobs),
  };
  const moveFrom = (keys: QueueKeys, some: readonly Id[], from: typeof states) => {
    // With every slice: Redis may have lost its data meanwhile.
    to.list();
    return moveSome({ keys, step: (write) => write(redis) }, destination, some, from);
  };
  return byId<Id, Moved>(store, ids, {
    act: (keys, some) => moveFrom(keys, some, states),
    // Finish jobs that an earlier move to the same queue holds where they are.
    onActive: (keys, some) => moveFrom(keys, some, []),
  });
}

/** Yields the ids of jobs that interrupted moves to the queue `to` still hold, in slices. */
export async function* unfinishedMoves(store: Store, to: string): AsyncGenerator<Buffer[]> {
  const { redis } = store;
  const marker = ` move:${to} `;
  for (let i = 0; i < store.count; i++) {
    let before: readonly Reply[] = [];
    for (;;) {
      const how = { limit: SLICE, before };
      before = await store.at(i, (keys) => listIn(redis, keys, 'active', { from: 'inf' }, how));
      if (before.length === 0) break;
      const ids = before.filter((_, n) => n % 2 === 0) as Buffer[];
      const leases = (await redis.call('HMGET', store.keys(i).lease, ...ids)) as Reply[];
      yield ids.filter((_, n) => text(leases[n]).includes(marker));
    }
  }
}
