import { type Id, idKey, idOf, idWord } from '../model/id.js';
import type { StoredJob } from '../model/job.js';
import type { Arg, Connection, Reply } from '../redis/connection.js';
import type { QueueKeys } from '../redis/keys.js';
import { known, number, pairs, stored, text, time } from '../redis/replies.js';
import { MAX_BYTES, MAX_CALL, run } from '../redis/script.js';
import { readSamples, type Sample } from './samples.js';

/*
 * How operators look at a queue: one typed function per script, none of which writes.
 */

/**
 * Up to `limit` ids of one state, `from` one time `to` another (ms), those whose time comes first first, behind the slice
 * `before`: each and its score, in bytes, for an id that is no text must be found again, too.
 */
export async function list(
  redis: Connection,
  keys: QueueKeys,
  state: StoredJob['state'],
  { from = '-inf', to = '+inf' }: { from?: number | string | undefined; to?: number | string | undefined },
  { limit, before }: { limit: number; before: readonly Reply[] },
): Promise<Reply[]> {
  const backwards: Arg[] = [];
  for (let i = before.length - 2; i >= 0; i -= 2) backwards.push(before[i] as Buffer, before[i + 1] as Buffer);
  return run(redis, 'inspect/list', keys, [state, limit, from, to, ...backwards]);
}

/** All that is known of jobs: of the first of `ids`, as many as fit into a reply; undefined for one that is not there. */
export async function show(redis: Connection, keys: QueueKeys, ids: readonly Id[]): Promise<(StoredJob | undefined)[]> {
  const reply = await run(redis, 'inspect/show', keys, [MAX_BYTES, ...ids]);
  return Array.from({ length: (reply.length - 1) / 5 }, (_, i) => {
    const [state, score, held, record, payload] = reply.slice(1 + 5 * i, 6 + 5 * i);
    return text(state) === '' ? undefined : stored(ids[i] as Id, { state, score, held, record, payload });
  });
}

/** The ids, each once, in the order in which their jobs stand in line; those that are not pending behind the others. */
export async function inOrder(redis: Connection, keys: QueueKeys, ids: readonly Id[]): Promise<Id[]> {
  const found: { id: Id; due: number; bytes: Buffer }[] = [];
  const once = [...new Map(ids.map((id) => [idKey(id), id])).values()];
  for (let i = 0; i < once.length; i += MAX_CALL) {
    const some = once.slice(i, i + MAX_CALL);
    const dues = (await redis.call('ZMSCORE', keys.pending, ...some)) as Reply[];
    for (const [j, id] of some.entries()) {
      const due = dues[j] === null ? Number.POSITIVE_INFINITY : number(dues[j]);
      found.push({ id, due: Number.isNaN(due) ? Number.POSITIVE_INFINITY : due, bytes: Buffer.from(id as string) });
    }
  }
  // Not by difference: two that never fall due differ by no number.
  const order = (a: number, b: number) => (a < b ? -1 : a > b ? 1 : 0);
  return found.sort((a, b) => order(a.due, b.due) || Buffer.compare(a.bytes, b.bytes)).map(({ id }) => id);
}

/** Whether there is a payload of this id, be there a job or not. */
export async function hasPayload(redis: Connection, keys: QueueKeys, id: Id): Promise<boolean> {
  return (await run(redis, 'inspect/show', keys, [MAX_BYTES, id]))[5] !== null;
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
  /** Counters that only grow, and `drained`, the time of the last drain, unless that cannot be one. */
  readonly stats: Readonly<Record<string, number>>;
  /** How the queue stood, about once in each of the last minutes in which it was used, the oldest first. */
  readonly samples: readonly Sample[];
  readonly lateness: Lateness;
  /** Pending jobs that fall due between the times that were asked for, the first from now on. */
  readonly ahead: readonly Span[];
  readonly config: Readonly<Record<string, string>>;
}

/** How many jobs fall due after `from` and up to `to`, ms. */
export interface Span {
  readonly from: number;
  readonly to: number;
  readonly count: number;
}

/** Deliveries by how late they were. */
interface Lateness {
  /** All that were up to `upTo` ms late and later than the bucket before; the last bucket has no end (Infinity). */
  readonly buckets: readonly { readonly upTo: number; readonly count: number }[];
  /** The lateness of all of them together, ms. */
  readonly sum: number;
}

/** So far a clock may go back without anybody minding, ms. */
const SKEW_MS = 60_000;

const LATENESS = [5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 60_000, 600_000, 3_600_000, Number.POSITIVE_INFINITY];

/** The field of a bucket in stats. */
const bucketName = (upTo: number) => `late:${upTo === Number.POSITIVE_INFINITY ? 'inf' : upTo}`;

/** Counts everything of a queue, with up to `upcoming` of the next due times, and what falls due up to each of `ahead`, ms from now, ascending. */
export async function inspect(
  redis: Connection,
  keys: QueueKeys,
  upcoming: number,
  ahead: readonly number[] = [],
): Promise<Snapshot> {
  const reply = await run(redis, 'inspect/inspect', keys, [upcoming, ...ahead]);
  const soon = reply[10] as Reply[];
  const dueBy = (reply[13] as Reply[]).map(number);
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
  const stats = new Map(pairs(reply[11]));
  // Of a clock that went back, or of other software: it would hide that nobody drains.
  const drained = known(stats.get('drained')) ?? 0;
  if (drained <= 0 || drained > now + SKEW_MS) stats.delete('drained');
  const counter = (name: string) => known(stats.get(name)) ?? 0;
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
    upcoming: Array.from({ length: soon.length / 2 }, (_, i) => ({
      id: idWord(idOf(soon[2 * i] as Buffer)),
      due: time(soon[2 * i + 1]),
    })),
    stats: Object.fromEntries(
      [...stats.keys()]
        .filter((name) => !/^(at|late):|^sampled$/.test(name))
        .map((name) => [name, counter(name)] as const)
        // A time that cannot be read is none.
        .filter(([name, value]) => name !== 'drained' || value > 0),
    ),
    samples: readSamples(stats),
    lateness: {
      buckets: LATENESS.map((upTo) => ({ upTo, count: counter(bucketName(upTo)) })),
      sum: counter('late:sum'),
    },
    ahead: ahead.map((ms, i) => ({
      from: now + (ahead[i - 1] ?? 0),
      to: now + ms,
      count: (dueBy[i] ?? 0) - (dueBy[i - 1] ?? due),
    })),
    config: Object.fromEntries(pairs(reply[12])),
  };
}

/** Who holds leases: one consumer, or one `move`. Times are ms. */
export interface Holder {
  /** host:pid of a drain, or `move:` and where to; empty: not known. */
  readonly by: string;
  readonly jobs: number;
  /** Since when it has held the oldest of its jobs. */
  readonly since: number | undefined;
  /** When the first of its leases ends. */
  readonly ends: number;
}

/** Who holds the first `limit` active jobs, those whose lease ends first; how many jobs were looked at, and are active. */
export async function holders(
  redis: Connection,
  keys: QueueKeys,
  limit: number,
): Promise<{ now: number; active: number; seen: number; holders: Holder[] }> {
  const reply = await run(redis, 'inspect/holders', keys, [limit]);
  const [now, active, seen] = reply.slice(0, 3).map(number) as [number, number, number];
  const found: Holder[] = [];
  for (let i = 3; i < reply.length; i += 4) {
    const since = text(reply[i + 2]);
    found.push({
      by: text(reply[i]),
      jobs: number(reply[i + 1]),
      since: since === '' ? undefined : time(reply[i + 2]),
      ends: time(reply[i + 3]),
    });
  }
  return { now, active, seen, holders: found };
}
