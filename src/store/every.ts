import type { Id } from '../model/id.js';
import type { Caller, Reply } from '../redis/connection.js';
import type { QueueKeys } from './keys.js';
import { number, rows, text } from './replies.js';
import { MAX_BYTES, run } from './script.js';

/** An occurrence that is due, as a drain is told of it. */
export interface Told {
  /** The bytes of the id of the recurring job. */
  readonly id: Buffer;
  /** As it is stored. */
  readonly occurrence: string;
  readonly header: string;
}

/** What is told of due occurrences in a reply of drain, from index 2 on. */
export const toldIn = (reply: readonly Reply[]): Told[] =>
  rows(reply as Reply[], 2, 3).map(([id, occurrence, header]) => {
    return { id: id as Buffer, occurrence: text(occurrence), header: text(header) };
  });

/** What becomes of one due occurrence. Times are ms; `next` Infinity: there is none. */
export interface Firing extends Omit<Told, 'header'> {
  /** Undefined: whatever it is. */
  readonly rev: string | undefined;
  readonly next: number;
  readonly overlap: 'allow' | 'skip';
  readonly record: string;
  /** How many occurrences make no job. */
  readonly skipped: number;
  readonly jobs: readonly { readonly due: number; readonly id: string }[];
}

/** A next occurrence as it is stored, in ms; Infinity: there is none. */
export const msOf = (score: string) => Number(score.replace('inf', 'Infinity'));

const scoreOf = (ms: number) => (Number.isFinite(ms) ? ms : 'inf');

/** Makes the jobs of due occurrences, all or none. Returns of how many: of the others somebody else has made them. */
export async function fire(redis: Caller, keys: QueueKeys, all: readonly Firing[]): Promise<number> {
  const args = all.flatMap(({ id, rev, occurrence, next, overlap, record, skipped, jobs }) => {
    const pairs = jobs.flatMap((job) => [job.due, job.id]);
    return [id, rev ?? '', occurrence, scoreOf(next), overlap, record, skipped, jobs.length, ...pairs];
  });
  return (await run(redis, 'every/fire', keys, args)).filter((made) => number(made) >= 0).length;
}

/**
 * Puts a definition, if the one that is there has the rev `was` ('': there is none). `next`: its next occurrence, ms;
 * Infinity: it is paused; undefined: as it is. Returns false, and does nothing, if it has another rev.
 */
export async function put(
  redis: Caller,
  keys: QueueKeys,
  {
    id,
    was,
    header,
    payload,
    next,
  }: { id: Id; was: string; header: string; payload: Buffer; next: number | undefined },
): Promise<boolean> {
  const at = next === undefined ? '' : scoreOf(next);
  const [done] = await run(redis, 'every/put', keys, [id, was, header, payload, at]);
  return number(done) === 1;
}

/** What is stored about a recurring job: its definition, and its next occurrence as text. Undefined: not there. */
export interface Stored {
  readonly text: Buffer | undefined;
  readonly next: string | undefined;
}

/** Returns what is stored about the first of `ids`, as many as fit into one reply, and the time, ms. */
export async function show(
  redis: Caller,
  keys: QueueKeys,
  ids: readonly Id[],
): Promise<{ now: number; found: Stored[] }> {
  const [now, ...rest] = await run(redis, 'every/show', keys, [MAX_BYTES, ...ids]);
  const found = rows(rest, 0, 2).map(([body, next]) => {
    return { text: (body as Buffer | null) ?? undefined, next: next === null ? undefined : text(next) };
  });
  return { now: number(now), found };
}

/** Removes recurring jobs. Returns which of them were there. */
export async function remove(redis: Caller, keys: QueueKeys, ids: readonly Id[]): Promise<boolean[]> {
  return (await run(redis, 'every/remove', keys, ids)).map((one) => number(one) === 1);
}
