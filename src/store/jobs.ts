import { NO_ATTRIBUTES } from '../model/attributes.js';
import type { DelayqError } from '../model/errors.js';
import { type Id, idOf } from '../model/id.js';
import type { Given, Held, Job, NackAnswer, Nacked, Outcome, ReadyJob } from '../model/job.js';
import type { Bytes } from '../model/payload.js';
import type { Arg, Caller, Connection, Reply } from '../redis/connection.js';
import { type Answered, answered, errorText, LEASES, words } from './answers.js';
import { type DueOccurrence, dueOccurrences } from './every.js';
import type { QueueKeys } from './keys.js';
import { number, rows, text, time } from './replies.js';
import { MAX_BYTES, MAX_CALL, run } from './script.js';
import type { Store } from './store.js';
import { countsOf, ownOf, parseRecord } from './stored.js';

/** What became of each job of an {@link enqueue}, and when. */
export interface EnqueueReply {
  readonly now: number;
  readonly outcomes: Outcome[];
  /** False if Redis wrote nothing, not even a counter. */
  readonly written: boolean;
  /** The queue may be new, so its name must be listed. */
  readonly begun: boolean;
}

const OUTCOMES: Record<string, Outcome> = {
  c: 'created',
  r: 'replaced',
  k: 'kept',
  d: 'kept-dead',
  e: 'kept-done',
};

/**
 * What to do with a job whose id exists. `new`: as `keep`, for one whose id was just made at random, so that the script
 * need not look for it everywhere. `back`: as `keep`, but ignores remembered ids: the job was not done.
 */
export type IfExists = 'keep' | 'new' | 'replace' | 'back';

/**
 * Returns a function that is true once in `ms` for each queue: for calls whose short way leaves out what need not be
 * done each time.
 */
function onceIn(ms: number): (keys: QueueKeys) => boolean {
  const last = new WeakMap<QueueKeys, number>();
  return (keys) => {
    const period = Math.floor(Date.now() / ms);
    if (last.get(keys) === period) return false;
    last.set(keys, period);
    return true;
  };
}

const isSampleDue = onceIn(60_000);
const isNoteDue = onceIn(1_000);

/** Puts jobs into pending, all or none. At most {@link MAX_CALL}. */
export async function enqueue(
  redis: Caller,
  keys: QueueKeys,
  jobs: readonly ReadyJob[],
  how: IfExists,
): Promise<EnqueueReply> {
  const [first] = jobs;
  if (first && jobs.length === 1 && (how === 'new' || how === 'keep') && !isSampleDue(keys)) {
    const args = [how, first.id, sendable(first.json), timeOf(first)];
    if (first.record) args.push(first.record);
    return outcomesOf(await run<Reply>(redis, 'jobs/enqueue', keys, args));
  }
  return outcomesOf(await run<Reply>(redis, 'jobs/enqueue', keys, batchOf(jobs, how)));
}

/**
 * Replaces those jobs of a partition that are active, unless a growth is moving them. Leaves the others alone: their
 * outcome is undefined. At most {@link MAX_CALL}.
 */
export async function replaceActive(redis: Caller, keys: QueueKeys, jobs: readonly ReadyJob[]) {
  const [now, letters] = await run(redis, 'jobs/enqueue', keys, batchOf(jobs, 'active'));
  return { now: number(now), outcomes: words<Outcome | undefined>(letters, { ...OUTCOMES, m: undefined }) };
}

/** The arguments of several jobs. Most batches share a due time and have no records. */
function batchOf(jobs: readonly ReadyJob[], how: IfExists | 'active'): Arg[] {
  const [first] = jobs;
  const mode = how === 'new' ? 'keep' : how;
  const times = jobs.every(({ at, in: delay }) => at === first?.at && delay === first?.in) ? 1 : jobs.length;
  const records = jobs.some(({ record }) => record !== first?.record) ? jobs.length : first?.record ? 1 : 0;
  const args: Arg[] = [`${mode} ${jobs.length} ${times} ${records}`];
  for (const { id } of jobs) args.push(id);
  for (const { json } of jobs) args.push(sendable(json));
  for (const job of jobs.slice(0, times)) args.push(timeOf(job));
  for (const { record } of jobs.slice(0, records)) args.push(record);
  return args;
}

const timeOf = ({ at, in: delay }: ReadyJob) => at ?? `+${delay}`;

/** A time alone stands for one job that was created. */
function outcomesOf(reply: Reply): EnqueueReply {
  if (!Array.isArray(reply)) return { now: number(reply), outcomes: ['created'], written: true, begun: false };
  const [now, letters, written] = reply;
  return {
    now: number(now),
    outcomes: words<Outcome>(letters, OUTCOMES),
    written: number(written) > 0,
    begun: number(written) === 2,
  };
}

/** Longer texts are sent as bytes: as text they would be copied twice, once to up to three times their size. */
const LONG = 64 * 1024;

const sendable = (json: string | Buffer) => (typeof json === 'string' && json.length > LONG ? Buffer.from(json) : json);

/** The jobs that one call of drain took, and the state of the queue. */
export interface Drained {
  /**
   * `more`: call again at once · `idle`: nothing is left to take now · `paused`: the queue is paused · `limited`: more
   * jobs are due, but the rate of the queue allows none before `next` · `full`: more are due, but as many are active as
   * its max-active allows: call again at `next`, or when one has ended.
   */
  readonly state: 'more' | 'idle' | 'paused' | 'limited' | 'full';
  /** The time of Redis's clock, ms. */
  readonly now: number;
  /** The earliest time at which there may be something to take, ms. */
  readonly next: number | undefined;
  readonly jobs: Job[];
  /** Jobs dropped because their time to live had passed. */
  readonly expired: number;
  /** Expired leases that were taken back. */
  readonly lost: number;
  /**
   * Jobs that this call moved to dead. `lost`: their leases expired too often (they are counted in `lost`, too).
   * `orphaned`: they have no payload. `bad id`: no handler could receive their id, which is not UTF-8 or contains NUL.
   */
  readonly died: readonly { readonly id: Id; readonly reason: 'lost' | 'orphaned' | 'bad id' }[];
  /** For how long the jobs are hidden from other drains, ms. */
  readonly leaseMs: number;
  /** The queue has a rate or max-active: take no jobs before they can start. */
  readonly hasLimits: boolean;
  /** The queue has the setting `text`. Only set with jobs. */
  readonly texts: boolean;
  /** Why due recurring jobs could not be created. A later drain creates them. */
  readonly notMade?: DelayqError;
}

/**
 * How many jobs a caller can start now: a queue with limits gives no more. A function is called before each call to a
 * queue that may have limits. `-`: the caller holds jobs that it has not begun, so max-active gives none.
 */
export type Start = (() => number) | number | '-';

/** Recurring jobs are due: create their jobs before the call takes anything. */
export interface Due extends Omit<Drained, 'state'> {
  readonly state: 'occurs';
  readonly occurrences: readonly DueOccurrence[];
}

const NOTHING = {
  state: 'occurs',
  next: undefined,
  expired: 0,
  lost: 0,
  died: [],
  leaseMs: 0,
  hasLimits: false,
  texts: false,
} as const;

interface DrainArgs {
  readonly limit: number;
  readonly leaseMs: number | undefined;
  readonly receipt: string;
  readonly by: string;
  readonly cutoff: number | undefined;
  /** Default: all that it takes. */
  readonly start?: Start | undefined;
  /** Whether the caller creates due recurring jobs; default: true. */
  readonly occurs?: boolean | undefined;
}

/**
 * Takes up to `limit` due jobs under a lease of `leaseMs` (0: removes them; undefined: the queue's), only those due by
 * `cutoff`, ms, if it is given. Takes nothing if recurring jobs are due by then, unless `occurs` is false.
 */
export async function drain(redis: Connection, keys: QueueKeys, options: DrainArgs): Promise<Drained | Due> {
  const { limit, leaseMs, receipt, by, cutoff, start, occurs = true } = options;
  const startable = typeof start === 'function' ? start() : (start ?? '');
  const args = [
    limit,
    receipt,
    by,
    MAX_BYTES,
    leaseMs ?? '',
    cutoff ?? '',
    startable,
    occurs ? '' : 0,
    isNoteDue(keys) ? 1 : '',
  ];
  // Each argument costs the server something.
  while (args.at(-1) === '') args.pop();
  const reply = await run(redis, 'jobs/drain', keys, args);
  if (typeof reply[0] === 'number') return onlyOne(reply, receipt);
  if (text(reply[0]) === 'occurs')
    return { ...NOTHING, jobs: [], now: number(reply[1]), occurrences: dueOccurrences(reply) };
  const jobs: Job[] = [];
  const tries = number(reply[6]);
  // Not by rows(): this loop runs more than 100,000 times a second.
  for (let i = 9; i < reply.length; i += 4) jobs.push(jobAt(reply, i, { receipt, tries, isRemoved: leaseMs === 0 }));
  const next = number(reply[2]);
  return {
    state: text(reply[0]) as Drained['state'],
    now: number(reply[1]),
    next: next < 0 ? undefined : next,
    expired: number(reply[3]),
    lost: number(reply[4]),
    died: rows(reply[5], 0, 2).map(([id, reason]) => ({
      id: idOf(id as Buffer),
      reason: text(reason) as Drained['died'][number]['reason'],
    })),
    leaseMs: number(reply[7]),
    ...traitsOf(reply[8]),
    jobs,
  };
}

/** The job at index `i` of a reply. `tries`: the queue's. `isRemoved`: it was taken without a lease. */
function jobAt(
  reply: readonly Reply[],
  i: number,
  { receipt, tries, isRemoved }: { receipt: string; tries: number; isRemoved: boolean },
): Job {
  const [id, due, payload] = [text(reply[i]), time(reply[i + 1]), reply[i + 3] as Bytes];
  const job: Job = { id, due, attempt: 1, failures: 0, tries, receipt, payload, attributes: NO_ATTRIBUTES };
  const record = reply[i + 2];
  if (!Buffer.isBuffer(record)) return job;
  const rec = parseRecord(text(record));
  // Without a lease the job is no longer in Redis, and its record is all there is to put it back with. Object.assign:
  // spreading takes 20 times as long.
  return Object.assign(job, ownOf(rec, due), countsOf(rec, tries), isRemoved && { record });
}

/** Takes from partition `i`, as {@link drain}. Calls `args` before each call. See {@link carryOn} for open growths. */
export async function take(store: Store, i: number, args: () => DrainArgs): Promise<Drained | Due> {
  if (store.growsFrom !== undefined) await (await import('./carry-on.js')).carryOn(store);
  return store.at(i, (keys) => drain(store.redis, keys, args()));
}

/** Takes back the expired leases of all partitions; no jobs, as none was due by `cutoff`. Returns their clocks, ms. */
export function takeBack(store: Store, cutoff: number): Promise<number[]> {
  const args = { limit: MAX_CALL, leaseMs: undefined, cutoff, receipt: '-', by: '', occurs: false };
  return store.each(async (keys) => {
    for (;;) {
      const { state, now } = await drain(store.redis, keys, args);
      if (state !== 'more') return now;
    }
  });
}

/** The short reply of drain, for one job and nothing else. */
function onlyOne(reply: readonly Reply[], receipt: string): Drained {
  const [now = 0, next = 0, tries = 0, leaseMs = 0] = reply.slice(0, 4).map(number);
  return {
    state: next > now ? 'idle' : 'more',
    now,
    next,
    jobs: [jobAt(reply, 5, { receipt, tries, isRemoved: false })],
    expired: 0,
    lost: 0,
    died: [],
    leaseMs,
    ...traitsOf(reply[4]),
  };
}

function traitsOf(reply: Reply | undefined) {
  const traits = number(reply);
  return { hasLimits: traits % 2 === 1, texts: traits >= 2 };
}

const receiptsOf = (jobs: readonly Held[]) => jobs.flatMap(({ id, receipt }) => [id, receipt]);

/** Removes jobs whose lease is still held. At most {@link MAX_CALL}. */
export async function ack(redis: Connection, keys: QueueKeys, jobs: readonly Held[]) {
  const letters = await run<Reply>(redis, 'jobs/ack', keys, receiptsOf(jobs));
  return { answers: words(letters, LEASES) };
}

/**
 * Gives jobs back whose lease is still held: `retry` counts a failure, `dead` ends them, `release` counts nothing.
 * `backoff` as text ('': the queue's); `jitter`, 0 to 1, varies an exponential one. At most {@link MAX_CALL}.
 */
export async function nack(
  redis: Connection,
  keys: QueueKeys,
  jobs: readonly Given[],
  options: { mode: 'retry' | 'dead' | 'release'; backoff: string; jitter: number },
): Promise<Answered<Nacked>> {
  const { mode, backoff, jitter } = options;
  const args = jobs.flatMap(({ id, receipt, delayMs = '', error = '' }) => [id, receipt, delayMs, errorText(error)]);
  const reply = await run(redis, 'jobs/nack', keys, [mode, backoff, jitter, ...args]);
  const { now, answers } = answered<NackAnswer>(reply, { p: 'pending', d: 'dead', l: 'lost', s: 'superseded' });
  return { now, answers: answers.map((answer, i) => ({ answer, delayMs: number(reply[i + 2]) })) };
}

/** Extends leases that are still held to `leaseMs` from now (undefined: the queue's). At most {@link MAX_CALL}. */
export async function renew(redis: Connection, keys: QueueKeys, jobs: readonly Held[], leaseMs: number | undefined) {
  const reply = await run(redis, 'jobs/renew', keys, [leaseMs ?? '', ...receiptsOf(jobs)]);
  return answered(reply, LEASES);
}

/**
 * What a finish found: a job under a lease of the given consumers, which counts as done (`acked`), another job, which
 * counts as `cancelled`, or none.
 */
export type Finished = 'acked' | 'cancelled' | 'missing';

const FINISHED: Record<string, Finished> = { a: 'acked', c: 'cancelled', m: 'missing' };

/** `by`: how the names of consumers begin whose leases count as done ('': none). `states`: which jobs to remove. */
export interface FinishArgs {
  readonly by: string;
  readonly states: 'any' | 'active';
}

/** Removes jobs without receipts. At most {@link MAX_CALL}. */
export async function removeByIds(redis: Connection, keys: QueueKeys, ids: readonly Id[], { by, states }: FinishArgs) {
  const [, letters] = await run(redis, 'jobs/remove', keys, [by, states, '', '', '', '', ...ids]);
  return words(letters, FINISHED);
}

/** What became of the other job. With `active`, nothing is done if the job is not active. */
export interface Swapped extends Pick<EnqueueReply, 'now' | 'begun'> {
  readonly other: Finished | 'kept';
}

/** Puts a job into pending in place of another one. `kept`: the id of the new job is taken, and nothing was done. */
export async function swap(
  redis: Connection,
  keys: QueueKeys,
  other: Id,
  job: ReadyJob,
  { by, states }: FinishArgs,
): Promise<Swapped> {
  const args = [by, states, job.id, sendable(job.json), timeOf(job), job.record, other];
  const [now, letter, written] = await run(redis, 'jobs/remove', keys, args);
  const meaning = { ...FINISHED, k: 'kept' } as const;
  const [found = 'missing'] = words<Swapped['other']>(letter, meaning);
  return { now: number(now), other: found, begun: number(written) === 2 };
}
