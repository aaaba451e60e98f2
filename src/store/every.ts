import type { Id } from '../model/id.js';
import type { Reply } from '../redis/connection.js';
import { number, rows, text } from './replies.js';
import { MAX_BYTES, run, SLICE } from './script.js';
import type { Store } from './store.js';

// Recurring jobs are defined in partition 0.

/** An occurrence that is due. */
export interface DueOccurrence {
  /** The bytes of the id of the recurring job. */
  readonly id: Buffer;
  /** As it is stored. */
  readonly occurrence: string;
  readonly header: string;
}

/** The due occurrences in a reply of drain, from index 2 on. */
export const dueOccurrences = (reply: readonly Reply[]): DueOccurrence[] =>
  rows(reply as Reply[], 2, 3).map(([id, occurrence, header]) => {
    return { id: id as Buffer, occurrence: text(occurrence), header: text(header) };
  });

/** What becomes of one due occurrence. Times are ms; `next` Infinity: there is none. */
export interface Firing extends Omit<DueOccurrence, 'header'> {
  /** Undefined: any. */
  readonly rev: string | undefined;
  readonly next: number;
  readonly overlap: 'allow' | 'skip';
  readonly record: string;
  /** How many occurrences are skipped. */
  readonly skipped: number;
  readonly jobs: readonly { readonly due: number; readonly id: string }[];
}

/** A next occurrence as it is stored, in ms; Infinity: there is none. */
export const msOf = (score: string) => Number(score.replace('inf', 'Infinity'));

const scoreOf = (ms: number) => (Number.isFinite(ms) ? ms : 'inf');

/**
 * Makes the jobs of due occurrences in partition `i`, all or none. Returns for how many occurrences: another drain has
 * handled the others.
 */
export async function fire(store: Store, i: number, all: readonly Firing[]): Promise<number> {
  const args = all.flatMap(({ id, rev, occurrence, next, overlap, record, skipped, jobs }) => {
    const pairs = jobs.flatMap((job) => [job.due, job.id]);
    return [id, rev ?? '', occurrence, scoreOf(next), overlap, record, skipped, jobs.length, ...pairs];
  });
  const reply = await store.at(i, (keys) => run(store.redis, 'every/fire', keys, args));
  return reply.filter((made) => number(made) >= 0).length;
}

/** A definition to put. */
interface Putting {
  readonly id: Id;
  /** The rev of the stored definition; '': there is none. */
  readonly was: string;
  readonly header: string;
  readonly payload: Buffer;
  /** The next occurrence, ms; Infinity: paused; undefined: unchanged. */
  readonly next: number | undefined;
}

/** Puts a definition. Returns false, and does nothing, if the stored one has another rev than `was`. */
export async function put(store: Store, { id, was, header, payload, next }: Putting): Promise<boolean> {
  const at = next === undefined ? '' : scoreOf(next);
  const [done] = await store.at(0, (keys) => run(store.redis, 'every/put', keys, [id, was, header, payload, at]));
  return number(done) === 1;
}

/** What is stored about a recurring job, at the time `now`, ms. */
export interface Stored<I extends Id = Id> {
  readonly id: I;
  readonly now: number;
  readonly text: Buffer | undefined;
  /** Its next occurrence as it is stored; undefined: not there. */
  readonly occurrence: string | undefined;
  /** The same in ms; Infinity: it is paused, or never comes again. */
  readonly next: number | undefined;
}

/** Returns what is stored about the first of `ids`, as many as fit into one reply. */
async function showSome<I extends Id>(store: Store, ids: readonly I[]): Promise<Stored<I>[]> {
  const args = [MAX_BYTES, ...ids];
  const [now, ...rest] = await store.at(0, (keys) => run(store.redis, 'every/show', keys, args));
  return rows(rest, 0, 2).map(([body, score], i) => {
    const occurrence = score === null ? undefined : text(score);
    const next = occurrence === undefined ? undefined : msOf(occurrence);
    return { id: ids[i] as I, now: number(now), text: (body as Buffer | null) ?? undefined, occurrence, next };
  });
}

/** Returns what is stored about one recurring job. */
export async function show(store: Store, id: Id): Promise<Stored> {
  const [found] = await showSome(store, [id]);
  return found as Stored;
}

/** Yields what is stored about all recurring jobs, including occurrences without a definition. */
export async function* definitions(store: Store): AsyncGenerator<Stored<Buffer>> {
  const { redis } = store;
  const { every, occurs } = store.keys(0);
  const calls = [redis.call('HKEYS', every), redis.call('ZRANGE', occurs, 0, -1)];
  const found = ((await Promise.all(calls)) as Buffer[][]).flat();
  const ids = [...new Map(found.map((id) => [id.toString('latin1'), id])).values()];
  for (let at = 0; at < ids.length; ) {
    const some = await showSome(store, ids.slice(at, at + SLICE));
    yield* some;
    at += some.length;
  }
}

/** Removes recurring jobs. Returns which of them were there. */
export async function remove(store: Store, ids: readonly Id[]): Promise<boolean[]> {
  return (await store.at(0, (keys) => run(store.redis, 'every/remove', keys, ids))).map((one) => number(one) === 1);
}
