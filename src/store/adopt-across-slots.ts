import { createHash } from 'node:crypto';
import { isDelayqError } from '../model/errors.js';
import { randomWord } from '../model/id.js';
import type { ForeignJobs } from './foreign.js';
import { forgetTokens, isBrought, restoreInto } from './restore.js';
import type { Store } from './store.js';
import * as moves from './transfer.js';

/*
 * Adopts jobs if the queue has partitions, or, on a cluster, its keys are in several slots: no single script can.
 *
 *   1. claim: remove a job from the sorted set and note it beside it, atomically. No other consumer sees it then.
 *   2. check whether its producer has written the job again meanwhile. If so, drop the claim, or put the job back.
 *   3. put a copy into the queue, with a token that prevents a second copy.
 *   4. remove the value of the job, if it is still the copied one.
 *   5. drop the claim, and then the token, unless another run has taken over the claim.
 *
 * If a run ends in between, its claims remain. The next run takes them over and goes on at 2.
 */

/** Reads the payload out of a value; undefined if it is not valid. */
export type PayloadOf = (value: Buffer) => string | Buffer | undefined;

interface AcrossSlots {
  readonly foreign: ForeignJobs;
  /** The key of the claims: in the slot of the sorted set. */
  readonly claims: string;
  /** Copy jobs in place of others with their ids. */
  readonly replace: boolean;
}

const shaOf = (value: Buffer) => createHash('sha1').update(value).digest('hex');

/** Takes over jobs as they were read. Throws what Connection.call throws; a repeat of the adopt then finishes it. */
export async function adoptAcrossSlots(
  store: Store,
  across: AcrossSlots,
  jobs: readonly moves.Foreign[],
): Promise<moves.Adopted[]> {
  const owner = randomWord(12);
  const wanted = jobs.map(({ id, score, due, value }) => ({
    id,
    token: owner,
    score: String(score),
    due: String(due),
    sha: shaOf(value),
  }));
  const claimed = await moves.claim(store.redis, keysOf(across), wanted, owner);
  const claims = claimed.filter((claim) => claim !== undefined);
  const read = new Map(jobs.map((job) => [job.id, job]));
  const payloadOf = (value: Buffer, id: string) => read.get(id)?.payload ?? value;
  const answers = await endClaims(store, across, claims, owner, payloadOf, read);
  return claimed.map((claim) => (claim === undefined ? 'changed' : (answers.shift() as moves.Adopted)));
}

/** Finishes what runs have left that ended early. */
export async function resumeAcrossSlots(
  store: Store,
  across: AcrossSlots,
  payloadOf: PayloadOf,
): Promise<moves.Adopted[]> {
  const owner = randomWord(12);
  const claims = await moves.takeOver(store.redis, keysOf(across), owner);
  return endClaims(store, across, claims, owner, payloadOf);
}

const keysOf = ({ foreign: { zset }, claims }: AcrossSlots): moves.ClaimKeys => ({ zset, claims });

/** What the answers of a restore mean for an adopt; any other answer: the queue has another job with this id. */
const BECOME: Partial<Record<moves.Replacing, moves.Adopted>> = {
  created: 'adopted',
  replaced: 'replaced',
  kept: 'kept',
};

async function endClaims(
  store: Store,
  across: AcrossSlots,
  claims: readonly moves.Claim[],
  owner: string,
  payloadOf: (value: Buffer, id: string) => string | Buffer | undefined,
  read?: ReadonlyMap<string, moves.Foreign>,
): Promise<moves.Adopted[]> {
  if (claims.length === 0) return [];
  const { redis } = store;
  const { foreign, replace } = across;
  const ids = claims.map(({ id }) => id);
  const [listed, values] = await Promise.all([foreign.areListed(ids), foreign.values(ids)]);
  const answers = new Map<string, moves.Adopted>();
  const ends: { id: string; back: boolean; token: string }[] = [];
  const ready: { claim: moves.Claim; value: Buffer; parcel: moves.Parcel }[] = [];
  for (const [i, claim] of claims.entries()) {
    const { id, token, due } = claim;
    // The consumer that had seen it before the claim has removed the value that it could not claim: the job is ours.
    const value = values[i] ?? read?.get(id)?.value;
    const payload = value && shaOf(value) === claim.sha ? payloadOf(value, id) : undefined;
    if (value && payload !== undefined && !listed[i]) {
      const parcel = { id: Buffer.from(id), state: 'pending', score: due, record: undefined } as const;
      ready.push({ claim, value, parcel: { ...parcel, payload: Buffer.from(payload as string) } });
      continue;
    }
    // Enqueued anew, or cancelled: nothing is left to do. A new value alone belongs to the claimed job, unless that has
    // been copied before. Another consumer may take the job before it is put back: better twice than never.
    const copied = value && !listed[i] && (await isBrought(store, token, id));
    ends.push({ id, token, back: Boolean(value) && !listed[i] && !copied });
    answers.set(id, copied ? 'adopted' : 'changed');
  }
  let restored: moves.Replacing[] = [];
  if (ready.length > 0) {
    const parcels = ready.map(({ parcel, claim: { token } }) => ({ ...parcel, token }));
    try {
      restored = await restoreInto(store, parcels, { counter: 'adopted', replace });
    } catch (error) {
      // Nothing was copied, so put the jobs back, except those that an earlier run may have copied.
      const own = ready.flatMap(({ claim: { id, token } }) => (token === owner ? [{ id, back: true }] : []));
      if (!isDelayqError(error, 'unknown')) await moves.unclaim(redis, keysOf(across), own, owner).catch(() => {});
      throw error;
    }
  }
  const copied: { id: string; value: Buffer }[] = [];
  for (const [i, { claim, value }] of ready.entries()) {
    const { id, token } = claim;
    const become = BECOME[restored[i] as moves.Replacing] ?? 'exists';
    if (become !== 'exists') copied.push({ id, value });
    ends.push({ id, token, back: become === 'exists' });
    answers.set(id, become);
  }
  await foreign.erase(copied);
  const ended = await moves.unclaim(redis, keysOf(across), ends, owner);
  // As in a move: only the run that claimed the job first, and finished it, removes the token. Doctor sweeps the rest.
  const own = ends.filter(({ token }, i) => ended[i] && token === owner);
  await forgetTokens(
    store,
    own.map(({ id, token }) => ({ id: Buffer.from(id), token })),
  );
  return ids.map((id) => answers.get(id) as moves.Adopted);
}
