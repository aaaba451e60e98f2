import { isDelayqError } from '../model/errors.js';
import { type Id, randomWord } from '../model/id.js';
import type { Answer } from '../model/job.js';
import type { Caller } from '../redis/connection.js';
import type { QueueKeys } from './keys.js';
import { SLICE } from './script.js';
import * as moves from './transfer.js';

/*
 * Moving jobs between two queues, or two partitions of one. On a cluster they are in two slots, so no script can do it
 * in one step:
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
 *   dead (`kept-dead`), or holds a job of this id for another unfinished move (`held`); a consumer holds it (`active`);
 *   or it has no payload (`orphaned`).
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

/** Where jobs are moved to. */
export interface Destination {
  /** Who holds jobs for a move to it: `move:` and its name. */
  readonly holder: string;
  restore(jobs: readonly moves.Brought[]): Promise<moves.Restored[]>;
  /** How its tokens begin. */
  readonly mark?: string;
  /** Removes tokens that `restore` has stored. */
  forget(jobs: readonly moves.Brought[]): Promise<void>;
  /** Takes over the ids that the source reserves without jobs. Default: they stay there. */
  remember?(ids: readonly moves.Remembered[]): Promise<void>;
}

/** Where jobs are moved from, and what runs each step there. */
export interface Source {
  readonly keys: QueueKeys;
  readonly step: <T>(write: (caller: Caller) => Promise<T>) => Promise<T>;
}

/** Moves the first of `ids`, as many as fit into a call, and returns what became of them. */
export async function moveSome(
  source: Source,
  to: Destination,
  ids: readonly Id[],
  states: readonly ('pending' | 'dead')[],
): Promise<Moved[]> {
  const receipt = (to.mark ?? '') + randomWord(12);
  const how = { states, receipt, by: to.holder };
  const some = ids.slice(0, SLICE);
  const { holds, remembered } = await source.step((caller) => moves.hold(caller, source.keys, some, how));
  if (remembered.length > 0) await to.remember?.(remembered);
  const held = holds.filter((hold) => typeof hold !== 'string');
  const copied = held.length > 0 ? await copyAndEnd(source, to, held, receipt) : [];
  return holds.map((hold) => (typeof hold === 'string' ? hold : (copied.shift() as Moved)));
}

async function copyAndEnd(
  { keys, step }: Source,
  to: Destination,
  jobs: readonly moves.Brought[],
  receipt: string,
): Promise<Moved[]> {
  const end = (some: readonly moves.Brought[], moved: (i: number) => boolean) => {
    const items = some.map(({ id }, i) => ({ id, moved: moved(i) }));
    return step((caller) => moves.endHolds(caller, keys, items, receipt));
  };
  let restored: moves.Restored[];
  try {
    restored = await to.restore(jobs);
  } catch (error) {
    // Nothing was copied, so put the jobs back, except those that an earlier move may have copied.
    const own = jobs.filter(({ token }) => token === receipt);
    if (!isDelayqError(error, 'unknown') && own.length > 0) await end(own, () => false).catch(() => {});
    throw error;
  }
  const copied = (i: number) => restored[i] === 'created' || restored[i] === 'kept';
  const finished = await end(jobs, copied);
  // A token must outlive the hold: a move that takes over the job looks for it, and so does the first move if it only
  // slept. So only the move that held the job first, and finished it, removes the token; doctor sweeps the rest.
  const own = jobs.filter(({ token }, i) => copied(i) && finished[i] !== 'lost' && token === receipt);
  await to.forget(own);
  return restored.map((outcome, i) => movedOf(outcome, finished[i] as Answer));
}

function movedOf(restored: moves.Restored, finished: Answer): Moved {
  // A move ignores windows.
  const outcome = restored as Exclude<moves.Restored, 'kept-done'>;
  if (outcome !== 'created' && outcome !== 'kept') return outcome;
  if (finished === 'superseded') return 'superseded';
  // `lost`: another move to the same queue took over the job and finishes it.
  return outcome === 'kept' ? 'kept' : 'moved';
}
