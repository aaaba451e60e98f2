import { DelayqError, isDelayqError } from '../model/errors.js';
import { type DueOccurrence, type Firing, fire } from '../store/every.js';
import type { Drained, Due } from '../store/jobs.js';
import { MAX_CALL, MAX_OCCURRENCES } from '../store/script.js';
import type { Store } from '../store/store.js';
import { type Header, jobIdOf, occurrencesIn, unpackHeader } from './definition.js';
import type { Occurrences } from './occurrences.js';

/** The most jobs of missed occurrences of one recurring job. */
const MAX_MISSED = 1_000;

/** With `missed: skip`, older occurrences make no job, ms. */
const MISSED_MS = 60_000;

/** How often a drain creates due recurring jobs before it takes: more may fall due meanwhile. */
const MAX_TURNS = 20;

/**
 * Creates due recurring jobs of partition `i`, then drains again. If more occurrences are due than fit into the reply,
 * takes existing jobs first, with the state `more`: the first job need not wait for the last to be made. If it cannot
 * create jobs, it still takes existing ones. `drain` is the call; with false, its reply has no occurrences.
 */
export async function fireFirst(
  store: Store,
  i: number,
  due: Due,
  drain: (occurs: boolean) => Promise<Drained | Due>,
): Promise<Drained> {
  let drained: Drained | Due = due;
  let notMade: DelayqError | undefined;
  for (let turn = 1; drained.state === 'occurs'; turn++) {
    const isPart = drained.occurrences.length >= MAX_OCCURRENCES;
    const done = await fireAll(store, i, drained).catch((error: unknown) => {
      notMade = isDelayqError(error) ? error : new DelayqError('internal', String(error), { cause: error });
      return 0;
    });
    drained = await drain(!notMade && !isPart && turn < MAX_TURNS);
    // Not if none was made: the caller would ask again and again.
    if (isPart && done > 0 && drained.state === 'idle') return { ...drained, state: 'more', next: drained.now };
  }
  return notMade ? { ...drained, notMade } : drained;
}

/** Makes the jobs of due occurrences, in calls of about {@link MAX_CALL} jobs. Returns for how many occurrences. */
async function fireAll(store: Store, i: number, { now, occurrences }: Due): Promise<number> {
  let some: Firing[] = [];
  let done = 0;
  for (const [n, one] of occurrences.entries()) {
    some.push(await plan(one, now));
    const jobs = some.reduce((sum, { jobs }) => sum + jobs.length, 0);
    if (n < occurrences.length - 1 && jobs < MAX_CALL) continue;
    done += await fire(store, i, some);
    some = [];
  }
  return done;
}

/** Decides what to do for an occurrence. Postpones one that this version cannot read: doctor reports it. */
async function plan({ id, occurrence, header }: DueOccurrence, now: number): Promise<Firing> {
  const found = unpackHeader(header);
  const off = { id, occurrence, rev: undefined, next: Number.POSITIVE_INFINITY, overlap: 'allow' as const, record: '' };
  try {
    if (!found || found.paused) return { ...off, skipped: 0, jobs: [] };
    const times = await occurrencesIn(found);
    const { making, skipped } = dueOnes(found, times, Number(occurrence), now);
    const { rev, overlap, record } = found;
    const jobs = making.map((due) => ({ due, id: jobIdOf(id.toString(), due) }));
    return { id, occurrence, rev, next: times.after(now) ?? Number.POSITIVE_INFINITY, overlap, record, skipped, jobs };
  } catch (error) {
    // Another version, or another machine, may be able to.
    if (!isDelayqError(error, 'usage')) throw error;
    return { ...off, skipped: 0, jobs: [] };
  }
}

/** Which occurrences from `first` to `now` make jobs, oldest first, and how many do not, counted up to 1,000. */
function dueOnes(
  { missed }: Pick<Header, 'missed'>,
  times: Occurrences,
  first: number,
  now: number,
): { making: number[]; skipped: number } {
  let all = [first];
  let next = times.after(first);
  while (next !== undefined && next <= now && all.length <= MAX_MISSED) {
    all.push(next);
    next = times.after(next);
  }
  if (all.length > MAX_MISSED) {
    all = latest(times, missed === 'all' ? MAX_MISSED : 1, now);
    return { making: select(missed, all, now), skipped: MAX_MISSED };
  }
  const making = select(missed, all, now);
  return { making, skipped: all.length - making.length };
}

function select(missed: Header['missed'], all: readonly number[], now: number): number[] {
  if (missed === 'all') return all.slice(-MAX_MISSED);
  return all.slice(-1).filter((due) => missed === 'once' || now - due <= MISSED_MS);
}

/** The latest `n` occurrences up to `now`, oldest first; there must be as many. */
function latest(times: Occurrences, n: number, now: number): number[] {
  const last = lastBefore(times, now + 1);
  // A search for each would take ten times as long as going through them.
  for (let span = 1_000 * n; ; span *= 2) {
    const all: number[] = [];
    for (let at = times.after(last - span); at !== undefined && at <= last; at = times.after(at)) all.push(at);
    if (all.length >= n) return all.slice(-n);
  }
}

/** The last occurrence before `ms`; there must be one. */
function lastBefore(times: Occurrences, ms: number): number {
  const isBefore = (at: number) => (times.after(at) ?? Number.POSITIVE_INFINITY) < ms;
  let span = 1_000;
  while (!isBefore(ms - span)) span *= 2;
  let [low, high] = [ms - span, ms];
  while (high - low > 1_000) {
    const middle = Math.floor((low + high) / 2);
    if (isBefore(middle)) low = middle;
    else high = middle;
  }
  return times.after(low) as number;
}
