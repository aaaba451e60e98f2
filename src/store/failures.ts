import { errorKind, isCutFrom, isOfKind } from '../model/error-kind.js';
import { type Id, idOfKey } from '../model/id.js';
import type { State } from '../model/job.js';
import { msOf } from './every.js';
import { LISTED } from './list.js';
import { known, rows, text } from './replies.js';
import { scan } from './scan.js';
import type { Store } from './store.js';
import { parseRecord } from './stored.js';

/** About how many records one reply has: less than 1 ms of Redis's time. */
const SCANNED = 250;

/** What is known of the failures of a job. */
interface Failed {
  readonly failures: number;
  readonly losses: number;
  /** Its last error. */
  readonly error: string | undefined;
  /** When it failed last, ms. */
  readonly failed: number | undefined;
}

/** Tells whether a last error is meant. */
export type ErrorTest = (error: string) => boolean;

/** Which of them to list. */
interface FailureFilter {
  readonly states: readonly State[];
  /** With a failure or a loss. */
  readonly failed?: boolean | undefined;
  /** With a last error of which this is true. */
  readonly error?: ErrorTest | undefined;
  /** By their scores, ms. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
}

/** Whether a job has failed as a filter says. */
export function isMeant(job: Omit<Failed, 'failed'>, filter: Pick<FailureFilter, 'failed' | 'error'>): boolean {
  if (filter.failed && !isTried(job)) return false;
  return filter.error === undefined || (job.error !== undefined && filter.error(job.error));
}

/** Whether a job has a failure or a loss. */
export const isTried = ({ failures, losses }: Pick<Failed, 'failures' | 'losses'>) => failures + losses > 0;

/** A job that has failed, and its score in the set of its state. */
export interface FailedJob extends Failed {
  /** As of `idKey`: a Buffer would keep the whole reply in memory. */
  readonly key: string;
  readonly state: State;
  readonly score: number;
}

/**
 * Yields the jobs in one of `states` whose records `isWanted`, each once, in no order. Goes through the records: most
 * jobs never fail and have none. Jobs that change meanwhile may be left out.
 */
export async function* failedJobs(
  store: Store,
  states: readonly State[],
  isWanted: (job: Failed) => boolean,
): AsyncGenerator<FailedJob[]> {
  const seen = new Set<string>();
  await store.look();
  // A growth moves jobs from the former partitions to the new ones, which come last.
  for (let i = 0; i < store.count; i++) {
    const keys = store.keys(i);
    for await (const replied of scan(store.redis, ['HSCAN', keys.meta], 'COUNT', SCANNED)) {
      const ids: Buffer[] = [];
      const jobs: (Failed & { readonly key: string })[] = [];
      for (const [id, record] of rows(replied, 0, 2) as [Buffer, Buffer][]) {
        const [key, job] = [id.toString('latin1'), failedIn(text(record))];
        if (!isWanted(job)) continue;
        ids.push(id);
        jobs.push({ key, ...job });
      }
      if (jobs.length === 0) continue;
      const scores = await Promise.all(states.map((state) => store.redis.call('ZMSCORE', keys[state], ...ids)));
      yield jobs.flatMap((job, n) => {
        const at = scores.findIndex((all) => (all as (Buffer | null)[])[n] !== null);
        // A scan may return an id twice.
        if (at < 0 || seen.has(job.key)) return [];
        seen.add(job.key);
        return [{ ...job, state: states[at] as State, score: msOf(text((scores[at] as Buffer[])[n])) }];
      });
    }
    await store.look();
  }
}

function failedIn(json: string): Failed {
  const { failures, losses, error, failed } = parseRecord(json);
  return {
    failures: known(failures) ?? 0,
    losses: known(losses) ?? 0,
    error: typeof error === 'string' ? error : undefined,
    failed: known(failed),
  };
}

/** Yields the jobs that a filter finds, as {@link failedJobs} does. */
async function* found(store: Store, filter: FailureFilter): AsyncGenerator<FailedJob[]> {
  const { states, from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY } = filter;
  for await (const jobs of failedJobs(store, states, (job) => isMeant(job, filter)))
    yield jobs.filter(({ score }) => score >= from && score <= to);
}

/**
 * Which errors `text` means among the jobs that a filter finds: those of the kind that it is; or else of the only kind that
 * it was cut from; or else all that have it.
 */
export async function errorTest(store: Store, filter: FailureFilter, text: string): Promise<ErrorTest> {
  const hasText: ErrorTest = (error) => isOfKind(error, text);
  const kinds = new Set<string>();
  for await (const jobs of found(store, { ...filter, error: hasText })) {
    for (const { error = '' } of jobs) {
      const kind = errorKind(error);
      if (kind === text) return (other) => errorKind(other) === text;
      // Two are as good as many.
      if (kinds.size < 2 && isCutFrom(kind, text)) kinds.add(kind);
    }
  }
  const [only] = kinds;
  return kinds.size === 1 ? (error) => errorKind(error) === only : hasText;
}

/** Where a job stands in a list. */
interface Place {
  readonly key: string;
  readonly at: number;
}

/**
 * Yields the ids of jobs that a filter finds, at most `limit`, in slices: of each state in the order of their times, or,
 * with `failed`, those that failed last first. Keeps their ids and times in memory.
 */
export async function* listFailed(
  store: Store,
  filter: FailureFilter,
  limit: number,
): AsyncGenerator<{ state: State; ids: Id[] }> {
  const lists = new Map(filter.states.map((state) => [state, [] as Place[]]));
  const cut = (list: Place[]) => list.sort((a, b) => a.at - b.at || (a.key < b.key ? -1 : 1)).splice(limit);
  for await (const jobs of found(store, filter)) {
    for (const { key, state, score, failed = 0 } of jobs)
      lists.get(state)?.push({ key, at: filter.failed ? -failed : score });
    for (const list of lists.values()) if (list.length > 2 * limit + SCANNED) cut(list);
  }
  let left = limit;
  for (const [state, list] of lists) {
    cut(list);
    for (let at = 0; at < list.length && left > 0; at += LISTED) {
      const ids = list.slice(at, at + Math.min(LISTED, left)).map(({ key }) => idOfKey(key));
      left -= ids.length;
      yield { state, ids };
    }
  }
}
