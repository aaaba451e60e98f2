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
} from '../model/job.js';
import type { Caller, Connection } from '../redis/connection.js';
import type { QueueKeys } from '../redis/keys.js';
import { number, text, time, words } from '../redis/replies.js';
import { type Answered, MAX_BYTES, run, type Wake } from '../redis/script.js';

/*
 * The life of a job: one typed function for each script. Only the files of this folder decode the replies of scripts.
 */

const ANSWERS: Record<string, Answer> = { h: 'held', l: 'lost', s: 'superseded' };
const OUTCOMES: Record<string, Outcome> = { c: 'created', r: 'replaced', k: 'kept', d: 'kept-dead' };
const NACK_ANSWERS: Record<string, NackAnswer> = { p: 'pending', d: 'dead', l: 'lost', s: 'superseded' };

/**
 * Puts jobs into pending, all or none. At most {@link MAX_CALL}. Not even a counter was `written` when all were kept
 * and Redis takes no writes now. The queue has `begun` when this may have made its first key.
 */
export async function enqueue(
  redis: Caller,
  keys: QueueKeys,
  jobs: readonly ReadyJob[],
  { ifExists, wake }: { ifExists: 'keep' | 'replace'; wake: Wake },
): Promise<{ now: number; outcomes: Outcome[]; written: boolean; begun: boolean }> {
  const times = unlessAlike(jobs, 'at', 'in').map(({ at, in: delay }) => (at === undefined ? `+${delay}` : at));
  const records = unlessAlike(jobs, 'record', 'tries', 'maxLost', 'ttl').map(recordOf);
  const head = [ifExists, wake.channel, wake.pollMs, jobs.length, times.length, records.length];
  const args = [...head, ...jobs.map(({ id }) => id), ...jobs.map(({ json }) => sendable(json)), ...times, ...records];
  const [now, letters, written] = await run(redis, 'jobs/enqueue', keys, args);
  return {
    now: number(now),
    outcomes: words(letters, OUTCOMES),
    written: number(written) > 0,
    begun: number(written) === 2,
  };
}

/** Longer texts are sent as bytes: of a text ioredis and Node make two more copies, one of them up to three times as large. */
const LONG = 64 * 1024;

const sendable = (json: string | Buffer) => (typeof json === 'string' && json.length > LONG ? Buffer.from(json) : json);

/** The jobs, or only the first when all are alike in these: most batches share a time, and have no records. */
function unlessAlike(jobs: readonly ReadyJob[], ...names: (keyof ReadyJob)[]): readonly ReadyJob[] {
  const alike = jobs.every((job) => names.every((name) => job[name] === jobs[0]?.[name]));
  return alike ? jobs.slice(0, 1) : jobs;
}

function recordOf({ record, tries, maxLost, ttl }: ReadyJob): string | Buffer {
  const plain = tries === undefined && maxLost === undefined && ttl === undefined;
  return record ?? (plain ? '' : JSON.stringify({ tries, maxLost, ttl }));
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
  /** Jobs with an id that is not UTF-8, or has a NUL byte, so that no handler could be given it: moved to dead. */
  readonly badIds: number;
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
  const reply = await run(redis, 'jobs/drain', keys, [limit, leaseMs ?? '', receipt, by, cutoff ?? '', MAX_BYTES]);
  const jobs: Job[] = [];
  const step = leaseMs === 0 ? 5 : 4;
  const queueTries = number(reply[8]);
  for (let i = 10; i < reply.length; i += step) {
    const counts = reply[i + 2];
    const [attempt = 1, failures = 0, tries = queueTries] = counts === 1 ? [] : text(counts).split(' ').map(Number);
    const id = text(reply[i]);
    const due = time(reply[i + 1]);
    const payload = reply[i + 3] as Buffer;
    const job = { id, due, attempt, failures, tries, receipt, payload };
    jobs.push(leaseMs === 0 ? { ...job, record: reply[i + 4] as Buffer } : job);
  }
  const next = number(reply[2]);
  return {
    state: text(reply[0]) as Drained['state'],
    now: number(reply[1]),
    next: next < 0 ? undefined : next,
    expired: number(reply[3]),
    orphaned: number(reply[4]),
    badIds: number(reply[5]),
    lost: number(reply[6]),
    died: number(reply[7]),
    leaseMs: number(reply[9]),
    jobs,
  };
}

/** Removes jobs whose receipt is current. At most {@link MAX_CALL}. */
export async function ack(redis: Connection, keys: QueueKeys, jobs: readonly Held[]): Promise<Answered<Answer>> {
  const reply = await run(
    redis,
    'jobs/ack',
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
  const reply = await run(redis, 'jobs/nack', keys, [mode, backoff, jitter, wake.channel, wake.pollMs, ...args]);
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
  const reply = await run(redis, 'jobs/renew', keys, [
    leaseMs ?? '',
    ...jobs.flatMap(({ id, receipt }) => [id, receipt]),
  ]);
  return { now: number(reply[0]), answers: words(reply[1], ANSWERS) };
}
