import { NO_ATTRIBUTES } from '../model/attributes.js';
import type { DelayqError } from '../model/errors.js';
import { type Id, idOf } from '../model/id.js';
import type { Job, Outcome, ReadyJob } from '../model/job.js';
import type { Bytes } from '../model/payload.js';
import type { Arg, Caller, Connection, Reply } from '../redis/connection.js';
import { answered } from './answers.js';
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

/** `m`, only of {@link replaceActive}: not active. */
const OUTCOMES: Record<string, Outcome | undefined> = {
  ...{ c: 'created', r: 'replaced', k: 'kept', d: 'kept-dead', e: 'kept-done', m: undefined },
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
  const isShort = jobs.length === 1 && (how === 'new' || how === 'keep') && !isSampleDue(keys);
  const args = first && isShort ? alone(first, how) : batchOf(jobs, how);
  const reply = await run<Reply>(redis, 'jobs/enqueue', keys, args);
  // A time alone stands for one job that was created.
  if (typeof reply === 'number') return { now: reply, outcomes: ['created'], written: true, begun: false };
  const { now, answers, rest } = answered(reply, OUTCOMES);
  const written = number(rest[0]);
  return { now, outcomes: answers as Outcome[], written: written > 0, begun: written === 2 };
}

/** The arguments of one job, which goes the short way. */
function alone(job: ReadyJob, how: IfExists): Arg[] {
  const args = [how, job.id, sendable(job.json), timeOf(job)];
  return job.record ? [...args, job.record] : args;
}

/**
 * Replaces those jobs of a partition that are active, unless a growth is moving them. Leaves the others alone: their
 * outcome is undefined. At most {@link MAX_CALL}.
 */
export async function replaceActive(redis: Caller, keys: QueueKeys, jobs: readonly ReadyJob[]) {
  const reply = await run(redis, 'jobs/enqueue', keys, batchOf(jobs, 'active'));
  const { now, answers: outcomes } = answered(reply, OUTCOMES);
  return { now, outcomes };
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

export const timeOf = ({ at, in: delay }: ReadyJob) => at ?? `+${delay}`;

/** Longer texts are sent as bytes: as text they would be copied twice, once to up to three times their size. */
const LONG = 64 * 1024;

export const sendable = (json: string | Buffer) =>
  typeof json === 'string' && json.length > LONG ? Buffer.from(json) : json;

/** The jobs that one call of drain took, and the state of the queue. */
export interface Drained {
  /**
   * `more`: call again at once · `idle`: nothing is left to take now · `paused`: the queue is paused · `limited`: more
   * jobs are due, but the rate of the queue allows none before `next` · `full`: more are due, but as many are active as
   * its max-active allows: call again at `next`, or when one has ended · `unacked`: more are due, but the groups of the
   * stream have not acked enough: call again after a while.
   */
  readonly state: 'more' | 'idle' | 'paused' | 'limited' | 'full' | 'unacked';
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
  /** Whether anything of the queue is stored where this call looked. @internal */
  readonly exists: boolean;
  /** What went to a stream, in place of `jobs`. @internal */
  readonly handedOver?: HandedOver;
  /** Why due recurring jobs could not be created. A later drain creates them. */
  readonly notMade?: DelayqError;
}

/** A stream that gets the jobs of a queue. */
export interface StreamTarget {
  /** In the slot of the queue. */
  readonly key: string;
  /** As long as a group of the stream has so many entries that are not acked, jobs stay pending. */
  readonly maxUnacked: number;
}

/** What a call moved into a stream. */
export interface HandedOver {
  readonly count: number;
  /** How many entries the slowest group has not acked, or, if Redis does not tell, how long the stream is. */
  readonly unacked: number;
  /** The name of that group; empty: the stream has no group. */
  readonly slowest: string;
}

/** How many jobs a call took. */
export const countOf = (drained: Drained): number => drained.handedOver?.count ?? drained.jobs.length;

/**
 * How many jobs a caller can start now: a queue with limits gives no more. A function is called before each call to a
 * queue that may have limits. `-`: the caller holds jobs that it has not begun, so max-active gives none.
 */
export type Start = (() => number) | number | '-';

/** Recurring jobs are due: create their jobs before the call takes anything. */
export interface Due extends Pick<Drained, 'now'> {
  readonly state: 'occurs';
  readonly occurrences: readonly DueOccurrence[];
}

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
  /** Moves the jobs into a stream, without a lease. Such a call may be repeated. */
  readonly stream?: StreamTarget | undefined;
}

/**
 * Takes up to `limit` due jobs under a lease of `leaseMs` (0: removes them; undefined: the queue's), only those due by
 * `cutoff`, ms, if it is given. Takes nothing if recurring jobs are due by then, unless `occurs` is false.
 */
export async function drain(redis: Connection, keys: QueueKeys, options: DrainArgs): Promise<Drained | Due> {
  const { limit, receipt, by, cutoff, start, occurs = true, stream } = options;
  const leaseMs = stream ? 0 : options.leaseMs;
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
    // Each call that moves jobs into a stream trims it, and only the long way does.
    isNoteDue(keys) || stream ? 1 : '',
    stream?.maxUnacked ?? '',
  ];
  // Each argument costs the server something.
  while (args.at(-1) === '') args.pop();
  const reply = await run(redis, 'jobs/drain', keys, args, stream && [stream.key]);
  if (typeof reply[0] === 'number') return onlyOne(reply, receipt);
  if (text(reply[0]) === 'occurs')
    return { state: 'occurs', now: number(reply[1]), occurrences: dueOccurrences(reply) };
  const jobs: Job[] = [];
  const tries = number(reply[6]);
  const ofAll = { receipt, tries, isRemoved: leaseMs === 0 };
  // Not by rows(): this loop runs more than 100,000 times a second.
  for (let i = 9; !stream && i < reply.length; i += 4) jobs.push(jobAt(reply, i, ofAll));
  if (keepsResults(reply[8])) for (const job of jobs) Object.assign(job, KEEPS);
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
    ...(stream && { handedOver: handedOver(reply.slice(9)) }),
  };
}

/** If nothing was to be done, the reply ends before. */
function handedOver([count = 0, unacked = 0, slowest]: readonly Reply[]): HandedOver {
  return { count: number(count), unacked: number(unacked), slowest: text(slowest) };
}

/** The job at index `i` of a reply. `tries`: the queue's. `isRemoved`: it was taken without a lease. */
function jobAt(
  reply: readonly Reply[],
  i: number,
  { receipt, tries, isRemoved }: { receipt: string; tries: number; isRemoved: boolean },
): Job {
  const id = text(reply[i]);
  const due = time(reply[i + 1]);
  const payload = reply[i + 3] as Bytes;
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

/** A cutoff before the due times of all jobs, ms: a drain takes nothing, and says when the next job is due. */
export const LONG_AGO = -9e15;

/** Takes back the expired leases of all partitions, and takes no jobs. Returns their clocks, ms. */
export function takeBack(store: Store): Promise<number[]> {
  const args = { limit: MAX_CALL, leaseMs: undefined, cutoff: LONG_AGO, receipt: '-', by: '', occurs: false };
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
  const jobs = [jobAt(reply, 5, { receipt, tries, isRemoved: false })];
  if (keepsResults(reply[4])) Object.assign(jobs[0] as Job, KEEPS);
  const state = next > now ? 'idle' : 'more';
  return { state, now, next, jobs, expired: 0, lost: 0, died: [], leaseMs, ...traitsOf(reply[4]) };
}

const KEEPS = { keepsResult: true } as const;
const keepsResults = (traits: Reply | undefined) => (number(traits) & 8) > 0;

function traitsOf(reply: Reply | undefined) {
  const traits = number(reply);
  return { hasLimits: (traits & 1) > 0, texts: (traits & 2) > 0, exists: (traits & 4) === 0 };
}
