import { isDelayqError } from '../model/errors.js';
import { type Id, randomWord } from '../model/id.js';
import type { Answer } from '../model/job.js';
import type { Connection, Reply } from '../redis/connection.js';
import type { QueueKeys } from '../redis/keys.js';
import { text } from '../redis/replies.js';
import * as looks from '../scripts/inspect.js';
import * as moves from '../scripts/transfer.js';
import { SLICE } from './inspector.js';

/*
 * Moving jobs between two queues. On a cluster they are in two slots, so no script can do it in one step:
 * 1. hold: at the source, the jobs become active with a lease that never ends, so no drain takes them
 * 2. restore: at the destination, copies are made, each with a token that says which move brought it
 * 3. finish: at the source, the jobs are removed, or put back if they could not be copied
 * 4. forget: at the destination, the tokens are removed
 * A move that was interrupted is repeated from step 1. The token keeps step 2 from making a second copy.
 */

/**
 * What became of a job that was to be moved.
 * - It is in the other queue: `moved`, or `kept` if a job with the same id and payload was there already.
 * - It stays: the other queue has another payload or other attributes under its id (`differs`), has the job among its
 *   dead (`kept-dead`), or
 *   holds a job of this id for another unfinished move (`held`); a consumer holds it (`active`); or it has no payload
 *   (`orphaned`).
 * - It does not exist: `missing`.
 * - It was cancelled or replaced while it was moved, and its copy stays: `superseded`.
 */
export type Moved =
  | 'moved'
  | 'kept'
  | 'kept-dead'
  | 'differs'
  | 'held'
  | 'active'
  | 'missing'
  | 'orphaned'
  | 'superseded';

/** One side of a move. */
export interface MoveEnd {
  readonly queue: string;
  readonly keys: QueueKeys;
}

type HeldJob = Exclude<moves.Hold, string>;

const holderOf = (to: string) => `move:${to}`;

/** Moves the first of `ids`, as many as fit into a call, and returns what became of them. */
export async function moveSome(
  redis: Connection,
  from: MoveEnd,
  to: MoveEnd,
  ids: readonly Id[],
  states: readonly ('pending' | 'dead')[],
): Promise<Moved[]> {
  const receipt = randomWord(12);
  const how = { states, receipt, by: holderOf(to.queue) };
  const holds = await moves.hold(redis, from.keys, ids.slice(0, SLICE), how);
  const held = holds.filter((hold) => typeof hold !== 'string');
  const copied = held.length > 0 ? await copyAndFinish(redis, from, to, held, receipt) : [];
  return holds.map((hold) => (typeof hold === 'string' ? hold : (copied.shift() as Moved)));
}

async function copyAndFinish(
  redis: Connection,
  from: MoveEnd,
  to: MoveEnd,
  jobs: readonly HeldJob[],
  receipt: string,
): Promise<Moved[]> {
  const finish = (some: readonly HeldJob[], moved: (i: number) => boolean) => {
    const items = some.map(({ parcel: { id } }, i) => ({ id, moved: moved(i) }));
    return moves.finish(redis, from.keys, items, receipt);
  };
  const parcels = jobs.map(({ parcel }) => parcel);
  const tokens = jobs.map(({ token }) => token);
  let restored: moves.Restored[];
  try {
    restored = await moves.restore(redis, to.keys, parcels, tokens);
  } catch (error) {
    // Nothing was copied, so put the jobs back, except those that an earlier move may have copied.
    const own = jobs.filter(({ token }) => token === receipt);
    if (!isDelayqError(error, 'unknown') && own.length > 0) await finish(own, () => false).catch(() => {});
    throw error;
  }
  const copied = (i: number) => restored[i] === 'created' || restored[i] === 'kept';
  const finished = await finish(jobs, copied);
  // A token must outlive the hold: another move that takes over the job looks for it, and so does the first move if it
  // only slept. So the token is removed only by the move that held the job first and finished it; doctor sweeps the rest.
  const own = jobs.filter(({ token }, i) => copied(i) && finished[i] !== 'lost' && token === receipt);
  await moves.forgetTokens(redis, to.keys, own);
  return restored.map((outcome, i) => movedOf(outcome, finished[i] as Answer));
}

function movedOf(outcome: moves.Restored, finished: Answer): Moved {
  if (outcome !== 'created' && outcome !== 'kept') return outcome;
  if (finished === 'superseded') return 'superseded';
  // `lost`: another move to the same queue took over the job and finishes it.
  return outcome === 'kept' ? 'kept' : 'moved';
}

/** Yields the ids of jobs that interrupted moves to the queue `to` still hold, in slices. */
export async function* unfinishedMoves(redis: Connection, keys: QueueKeys, to: string): AsyncGenerator<Buffer[]> {
  const marker = ` ${holderOf(to)} `;
  let before: readonly Reply[] = [];
  for (;;) {
    before = await looks.list(redis, keys, 'active', { from: 'inf' }, { limit: SLICE, before });
    if (before.length === 0) return;
    const ids = before.filter((_, i) => i % 2 === 0) as Buffer[];
    const leases = (await redis.call('HMGET', keys.lease, ...ids)) as Reply[];
    yield ids.filter((_, i) => text(leases[i]).includes(marker));
  }
}
