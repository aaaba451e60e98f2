import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Answer, Held, Job, NackAnswer, Outcome, ReadyJob } from './job.js';
import { KEY_ORDER, type QueueKeys } from './keys.js';
import type { Arg, Connection, Reply } from './redis.js';

/*
 * One typed function per script. Replies are decoded here and nowhere else.
 */

/** The most jobs that one call of a script takes, so that nobody else's command waits for long. */
export const MAX_CALL = 500;

/** The most payload bytes that one drain call returns (one job at least). */
const MAX_DRAIN_BYTES = 1024 * 1024;

type Name = 'enqueue' | 'drain' | 'ack' | 'nack' | 'renew' | 'inspect';

const read = (name: string) => readFileSync(new URL(`../lua/${name}.lua`, import.meta.url), 'utf8');
const sources = new Map<Name, { readonly text: string; readonly sha: string }>();

function source(name: Name) {
  let found = sources.get(name);
  if (!found) {
    const text = `${read('prelude')}\n${read(name)}`;
    found = { text, sha: createHash('sha1').update(text).digest('hex') };
    sources.set(name, found);
  }
  return found;
}

async function run(redis: Connection, name: Name, keys: QueueKeys, args: Arg[]): Promise<Reply[]> {
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

const text = (reply: Reply | undefined) => String(reply ?? '');
const number = (reply: Reply | undefined) => Number(text(reply));

/** Letters of a script's reply as words; an unknown letter would be a script out of step with this file. */
function words<W>(reply: Reply | undefined, meaning: Record<string, W>): W[] {
  return Array.from(text(reply), (letter) => meaning[letter] as W);
}

const ANSWERS: Record<string, Answer> = { h: 'held', l: 'lost', s: 'superseded' };
const OUTCOMES: Record<string, Outcome> = { c: 'created', r: 'replaced', k: 'kept', d: 'kept-dead' };
const NACK_ANSWERS: Record<string, NackAnswer> = { p: 'pending', d: 'dead', l: 'lost', s: 'superseded' };

/** Puts jobs into pending, all or none. At most {@link MAX_CALL}. */
export async function enqueue(
  redis: Connection,
  keys: QueueKeys,
  jobs: readonly ReadyJob[],
  { ifExists, wake, pollMs }: { ifExists: 'keep' | 'replace'; wake: string; pollMs: number },
): Promise<{ now: number; outcomes: Outcome[] }> {
  const args: Arg[] = [ifExists, wake, pollMs];
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
  const [now, letters] = await run(redis, 'enqueue', keys, args);
  return { now: number(now), outcomes: words(letters, OUTCOMES) };
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
}

/** Takes up to `limit` due jobs under one lease of `leaseMs` (0: removes them), due at `cutoff` at the latest. */
export async function drain(
  redis: Connection,
  keys: QueueKeys,
  options: { limit: number; leaseMs: number; receipt: string; by: string; cutoff: number | undefined },
): Promise<Drained> {
  const { limit, leaseMs, receipt, by, cutoff } = options;
  const reply = await run(redis, 'drain', keys, [limit, leaseMs, receipt, by, cutoff ?? '', MAX_DRAIN_BYTES]);
  const jobs: Job[] = [];
  const step = leaseMs === 0 ? 5 : 4;
  for (let i = 7; i < reply.length; i += step) {
    jobs.push({
      id: text(reply[i]),
      // A score that other software wrote may be a fraction or endless.
      due: Math.floor(number(reply[i + 1])) || 0,
      attempt: number(reply[i + 2]),
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

/** Gives jobs back: `retry` counts a failure, `dead` ends them, `release` counts nothing. At most {@link MAX_CALL}. */
export async function nack(
  redis: Connection,
  keys: QueueKeys,
  jobs: readonly (Held & { readonly delayMs?: number })[],
  { mode, error }: { mode: 'retry' | 'dead' | 'release'; error: string },
): Promise<Answered<NackAnswer>> {
  const args = jobs.flatMap(({ id, receipt, delayMs }) => [id, receipt, delayMs ?? 0]);
  const reply = await run(redis, 'nack', keys, [mode, error, ...args]);
  return { now: number(reply[0]), answers: words(reply[1], NACK_ANSWERS) };
}

/** Extends leases that are still held to `leaseMs` from now. At most {@link MAX_CALL}. */
export async function renew(
  redis: Connection,
  keys: QueueKeys,
  jobs: readonly Held[],
  leaseMs: number,
): Promise<Answered<Answer>> {
  const reply = await run(redis, 'renew', keys, [leaseMs, ...jobs.flatMap(({ id, receipt }) => [id, receipt])]);
  return { now: number(reply[0]), answers: words(reply[1], ANSWERS) };
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

function pairs(reply: Reply | undefined): [string, string][] {
  const list = reply as Reply[];
  return Array.from({ length: list.length / 2 }, (_, i) => [text(list[2 * i]), text(list[2 * i + 1])]);
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
  const oldest = text(reply[9]);
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
    oldest: oldest === '' ? undefined : Math.floor(Number(oldest)) || 0,
    upcoming: pairs(reply[10]).map(([id, at]) => ({ id, due: Math.floor(Number(at)) || 0 })),
    stats: Object.fromEntries(pairs(reply[11]).map(([name, value]) => [name, Number(value) || 0])),
    config: Object.fromEntries(pairs(reply[12])),
  };
}
