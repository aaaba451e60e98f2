import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import {
  type Answer,
  type Given,
  type Held,
  type Job,
  MAX_ERROR,
  type NackAnswer,
  type Nacked,
  type Outcome,
  type ReadyJob,
  type StoredJob,
} from './job.js';
import { KEY_ORDER, type QueueKeys } from './keys.js';
import type { Arg, Caller, Connection, Reply } from './redis.js';
import { number, pairs, stored, text, time, words } from './replies.js';

/*
 * One typed function per script. Replies are decoded here and nowhere else.
 */

/** The most jobs that one call of a script takes, so that nobody else's command waits for long. */
export const MAX_CALL = 500;

/** The most payload bytes that one call returns (one job at least). */
const MAX_BYTES = 1024 * 1024;

type Name = 'enqueue' | 'drain' | 'ack' | 'nack' | 'renew' | 'requeue' | 'inspect' | 'list' | 'show' | 'config';

const read = (name: string) => readFileSync(new URL(`../lua/${name}.lua`, import.meta.url), 'utf8');
const sources = new Map<Name, { readonly text: string; readonly sha: string }>();

function source(name: Name) {
  let found = sources.get(name);
  if (!found) {
    const text = ['prelude', 'records', name].map(read).join('\n');
    found = { text, sha: createHash('sha1').update(text).digest('hex') };
    sources.set(name, found);
  }
  return found;
}

async function run(redis: Caller, name: Name, keys: QueueKeys, args: Arg[]): Promise<Reply[]> {
  const { sha, text } = source(name);
  const rest = [KEY_ORDER.length, ...KEY_ORDER.map((key) => keys[key]), ...args];
  try {
    return (await redis.call('EVALSHA', sha, ...rest)) as Reply[];
  } catch (error) {
    // Redis was restarted or its scripts flushed; nothing ran, so sending the text is no repeat.
    if (!(error instanceof Error && /^NOSCRIPT/.test(String((error.cause as Error | undefined)?.message)))) throw error;
    return (await redis.call('EVAL', text, ...rest)) as Reply[];
  }
}

const ANSWERS: Record<string, Answer> = { h: 'held', l: 'lost', s: 'superseded' };
const OUTCOMES: Record<string, Outcome> = { c: 'created', r: 'replaced', k: 'kept', d: 'kept-dead' };
const NACK_ANSWERS: Record<string, NackAnswer> = { p: 'pending', d: 'dead', l: 'lost', s: 'superseded' };

/** Where sleeping watchers hear of jobs that fall due sooner than they would look again, `pollMs` from now. */
export interface Wake {
  readonly channel: string;
  readonly pollMs: number;
}

/**
 * Puts jobs into pending, all or none. At most {@link MAX_CALL}. Not even a counter was `written` when all were kept
 * and Redis takes no writes now.
 */
export async function enqueue(
  redis: Caller,
  keys: QueueKeys,
  jobs: readonly ReadyJob[],
  { ifExists, wake }: { ifExists: 'keep' | 'replace'; wake: Wake },
): Promise<{ now: number; outcomes: Outcome[]; written: boolean }> {
  const args: Arg[] = [ifExists, wake.channel, wake.pollMs];
  for (const job of jobs) {
    const { tries, maxLost, ttl } = job;
    const plain = tries === undefined && maxLost === undefined && ttl === undefined;
    args.push(
      job.id,
      job.at === undefined ? `+${job.in}` : String(job.at),
      job.record ?? (plain ? '' : JSON.stringify({ tries, maxLost, ttl })),
      job.json,
    );
  }
  const [now, letters, written] = await run(redis, 'enqueue', keys, args);
  return { now: number(now), outcomes: words(letters, OUTCOMES), written: number(written) === 1 };
}

/** What one drain call took, and what it says of the queue. */
export interface Drained {
  /** `more`: call again · `idle`: nothing is left to take now · `paused`: nothing may be taken. */
  readonly state: 'more' | 'idle' | 'paused';
  /** Redis's clock, ms. */
  readonly now: number;
  /** The earliest time at which there can be something to take, ms. */
  readonly next: number | undefined;
  readonly jobs: Job[];
  /** Dropped, as they were too late to be worth anything. */
  readonly expired: number;
  /** Ids whose payload was missing, moved to dead. */
  readonly orphaned: number;
  /** Leases that had run out and were taken back. */
  readonly lost: number;
  /** Of those, jobs that are dead now. */
  readonly died: number;
  /** How long the jobs are hidden from other drains, ms. */
  readonly leaseMs: number;
}

/** Takes up to `limit` due jobs under one lease of `leaseMs` (0: removes them; left out: the queue's), due at `cutoff` at the latest. */
export async function drain(
  redis: Connection,
  keys: QueueKeys,
  options: { limit: number; leaseMs: number | undefined; receipt: string; by: string; cutoff: number | undefined },
): Promise<Drained> {
  const { limit, leaseMs, receipt, by, cutoff } = options;
  const reply = await run(redis, 'drain', keys, [limit, leaseMs ?? '', receipt, by, cutoff ?? '', MAX_BYTES]);
  const jobs: Job[] = [];
  const step = leaseMs === 0 ? 5 : 4;
  const queueTries = number(reply[7]);
  for (let i = 9; i < reply.length; i += step) {
    const [attempt = 1, failures = 0, tries = queueTries] = text(reply[i + 2])
      .split(' ')
      .map(Number);
    jobs.push({
      id: text(reply[i]),
      due: time(reply[i + 1]),
      attempt,
      failures,
      tries,
      receipt,
      payload: reply[i + 3] as Buffer,
      ...(leaseMs === 0 ? { record: reply[i + 4] as Buffer } : {}),
    });
  }
  const next = number(reply[2]);
  return {
    state: text(reply[0]) as Drained['state'],
    now: number(reply[1]),
    next: next < 0 ? undefined : next,
    expired: number(reply[3]),
    orphaned: number(reply[4]),
    lost: number(reply[5]),
    died: number(reply[6]),
    leaseMs: number(reply[8]),
    jobs,
  };
}

/** Answers in the order of the jobs, and Redis's clock, ms. */
interface Answered<A> {
  readonly now: number;
  readonly answers: A[];
}

/** Removes jobs whose receipt is current. At most {@link MAX_CALL}. */
export async function ack(redis: Connection, keys: QueueKeys, jobs: readonly Held[]): Promise<Answered<Answer>> {
  const reply = await run(
    redis,
    'ack',
    keys,
    jobs.flatMap(({ id, receipt }) => [id, receipt]),
  );
  return { now: number(reply[0]), answers: words(reply[1], ANSWERS) };
}

/**
 * Gives jobs back: `retry` counts a failure, `dead` ends them, `release` counts nothing. `backoff` as text ('': the
 * queue's); `jitter` from 0 to 1 spreads an exponential one. At most {@link MAX_CALL}.
 */
export async function nack(
  redis: Connection,
  keys: QueueKeys,
  jobs: readonly Given[],
  options: { mode: 'retry' | 'dead' | 'release'; backoff: string; jitter: number; wake: Wake },
): Promise<Answered<Nacked>> {
  const { mode, backoff, jitter, wake } = options;
  const args = jobs.flatMap(({ id, receipt, delayMs, error = '' }) => [
    id,
    receipt,
    delayMs ?? '',
    error.slice(0, MAX_ERROR).toWellFormed(),
  ]);
  const reply = await run(redis, 'nack', keys, [mode, backoff, jitter, wake.channel, wake.pollMs, ...args]);
  const answers = words(reply[1], NACK_ANSWERS);
  return { now: number(reply[0]), answers: answers.map((answer, i) => ({ answer, delayMs: number(reply[i + 2]) })) };
}

/** Extends leases that are still held to `leaseMs` (left out: the queue's) from now. At most {@link MAX_CALL}. */
export async function renew(
  redis: Connection,
  keys: QueueKeys,
  jobs: readonly Held[],
  leaseMs: number | undefined,
): Promise<Answered<Answer>> {
  const reply = await run(redis, 'renew', keys, [leaseMs ?? '', ...jobs.flatMap(({ id, receipt }) => [id, receipt])]);
  return { now: number(reply[0]), answers: words(reply[1], ANSWERS) };
}

/** What requeue did: the job is pending again, was not among the dead, or has no payload and stays dead. */
export type Requeued = 'requeued' | 'missing' | 'orphaned';

const REQUEUED: Record<string, Requeued> = { r: 'requeued', m: 'missing', o: 'orphaned' };

/** Puts dead jobs back into pending, due now, their counts reset. At most {@link MAX_CALL}. */
export async function requeue(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly string[],
  wake: Wake,
): Promise<Answered<Requeued>> {
  const reply = await run(redis, 'requeue', keys, [wake.channel, wake.pollMs, ...ids]);
  return { now: number(reply[0]), answers: words(reply[1], REQUEUED) };
}

/** An id and its score as Redis wrote it, for going on behind it. */
export type Listed = readonly [id: string, score: string];

/** Up to `limit` ids of one state, those whose time comes first first, behind the slice `before`. */
export async function list(
  redis: Connection,
  keys: QueueKeys,
  { state, limit, before }: { state: StoredJob['state']; limit: number; before: readonly Listed[] },
): Promise<Listed[]> {
  return pairs(await run(redis, 'list', keys, [state, limit, ...[...before].reverse().flat()]));
}

/** All that is known of jobs: of the first of `ids`, as many as fit into a reply; undefined for one that is not there. */
export async function show(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly string[],
): Promise<(StoredJob | undefined)[]> {
  const reply = await run(redis, 'show', keys, [MAX_BYTES, ...ids]);
  return Array.from({ length: (reply.length - 1) / 5 }, (_, i) => {
    const [state, score, held, record, payload] = reply.slice(1 + 5 * i, 6 + 5 * i);
    return text(state) === '' ? undefined : stored(ids[i] as string, { state, score, held, record, payload });
  });
}

/** Sets or removes defaults of a queue, name and text (empty: remove) in turn, and returns its whole config. */
export async function config(
  redis: Connection,
  keys: QueueKeys,
  change: readonly string[],
): Promise<Record<string, string>> {
  return Object.fromEntries(pairs(await run(redis, 'config', keys, [...change])));
}

/** Everything that can be counted about a queue at one moment. Times are ms by Redis's clock. */
export interface Snapshot {
  readonly now: number;
  /** Sizes of the structures of the same names. */
  readonly pending: number;
  readonly active: number;
  readonly lease: number;
  readonly dead: number;
  readonly payload: number;
  readonly meta: number;
  /** Pending jobs that are due. */
  readonly due: number;
  /** Leases that have run out and wait to be taken back. */
  readonly runOut: number;
  /** Due time of the pending job that is first in line. */
  readonly oldest: number | undefined;
  /** The next jobs that are not due yet. */
  readonly upcoming: readonly { readonly id: string; readonly due: number }[];
  /** Counters that only grow, and `drained`, the time of the last drain. */
  readonly stats: Readonly<Record<string, number>>;
  readonly config: Readonly<Record<string, string>>;
}

/** Counts everything of a queue, with up to `upcoming` of the next due times. */
export async function inspect(redis: Connection, keys: QueueKeys, upcoming: number): Promise<Snapshot> {
  const reply = await run(redis, 'inspect', keys, [upcoming]);
  const [now, pending, active, lease, dead, payload, meta, due, runOut] = reply.slice(0, 9).map(number) as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  return {
    now,
    pending,
    active,
    lease,
    dead,
    payload,
    meta,
    due,
    runOut,
    oldest: text(reply[9]) === '' ? undefined : time(reply[9]),
    upcoming: pairs(reply[10]).map(([id, at]) => ({ id, due: time(Buffer.from(at)) })),
    stats: Object.fromEntries(pairs(reply[11]).map(([name, value]) => [name, Number(value) || 0])),
    config: Object.fromEntries(pairs(reply[12])),
  };
}
