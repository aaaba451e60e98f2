import { errorKind } from '../model/error-kind.js';
import { type Id, idOfKey } from '../model/id.js';
import { failedJobs, isTried } from '../store/failures.js';
import { known } from '../store/replies.js';
import type { Store } from '../store/store.js';

/** The jobs whose last errors are of one kind. Times are ms by Redis's clock. */
export interface ErrorGroup {
  /** The first line of the error, without numbers, hosts and ids (`…`); undefined: none is stored, as of lost jobs. */
  readonly kind: string | undefined;
  /** Jobs that wait for another try. */
  readonly waiting: number;
  readonly dead: number;
  /** When the first and the last of these jobs failed last; undefined: unknown. */
  readonly first: number | undefined;
  readonly last: number | undefined;
  /** Up to three of them, those that failed last first. */
  readonly samples: readonly Id[];
}

/** The most kinds that are kept apart: errors that are all different must not fill the memory. */
const MAX_KINDS = 10_000;

/** In place of all further kinds. */
const OTHER = '…';

const SAMPLES = 3;

/** A group that is being counted. */
interface Tally {
  readonly kind: string | undefined;
  waiting: number;
  dead: number;
  first?: number;
  last?: number;
  readonly some: { readonly key: string; readonly at: number }[];
}

/** Groups the pending and dead jobs that have failed by the kinds of their last errors, the most frequent first. */
export async function errorGroups(store: Store): Promise<ErrorGroup[]> {
  const tallies = new Map<string | undefined, Tally>();
  const tallyOf = (error: string | undefined) => {
    const full = error === undefined ? undefined : errorKind(error);
    const kind = tallies.has(full) || tallies.size < MAX_KINDS ? full : OTHER;
    const tally = tallies.get(kind) ?? { kind, waiting: 0, dead: 0, some: [] };
    tallies.set(kind, tally);
    return tally;
  };
  // A job that was buried has an error without a failure.
  for await (const jobs of failedJobs(store, ['pending', 'dead'], (job) => isTried(job) || job.error !== undefined)) {
    for (const { key, state, error, score, failed } of jobs) {
      const tally = tallyOf(error);
      const isDead = state === 'dead';
      tally[isDead ? 'dead' : 'waiting'] += 1;
      const at = failed ?? (isDead ? known(score) : undefined);
      if (at !== undefined) {
        tally.first = Math.min(tally.first ?? at, at);
        tally.last = Math.max(tally.last ?? at, at);
      }
      tally.some.push({ key, at: at ?? 0 });
      if (tally.some.length > SAMPLES) tally.some.sort((a, b) => b.at - a.at).pop();
    }
  }
  return [...tallies.values()]
    .sort((a, b) => b.waiting + b.dead - a.waiting - a.dead || (b.last ?? 0) - (a.last ?? 0))
    .map(({ kind, waiting, dead, first, last, some }) => {
      const samples = some.sort((a, b) => b.at - a.at).map(({ key }) => idOfKey(key));
      return { kind, waiting, dead, first, last, samples };
    });
}
