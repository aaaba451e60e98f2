import { type Id, idOf, idWord } from '../model/id.js';
import type { StoredJob } from '../model/job.js';
import { sizeText } from '../model/text.js';
import type { Connection, Reply } from '../redis/connection.js';
import { byId } from './by-id.js';
import { msOf } from './every.js';
import { FEATURES, layoutIn, type QueueKeys } from './keys.js';
import { LISTED } from './list.js';
import { PartitionMap } from './map.js';
import { known, number, pairs, rows, text, time } from './replies.js';
import { readSamples, type Sample } from './samples.js';
import { MAX_BYTES, run } from './script.js';
import type { Store } from './store.js';
import { type Raw, raw, stored } from './stored.js';

/**
 * Yields everything stored about jobs, undefined for a missing one, as much as one reply of Redis at a time: about 1 MiB of
 * payloads, or one larger payload (of each partition).
 */
export async function* show(store: Store, ids: readonly Id[]): AsyncGenerator<(StoredJob | undefined)[]> {
  let max = LISTED;
  for (let at = 0; at < ids.length; ) {
    const rows = await byId<Id, StoredJob | null | typeof LATER>(store, ids.slice(at, at + max), {
      reads: { isMoving: (job) => typeof job === 'object' && job?.moving?.to.includes('/') === true },
      act: async (keys, some) => {
        const found = await showIn(store.redis, keys, some, Math.ceil(MAX_BYTES / store.count));
        return some.map((_, i) => (i < found.length ? (found[i] ?? null) : LATER));
      },
      isMissing: (job) => job === null,
    });
    // Each partition answers for the first of its ids. The next turn asks again for those in between.
    const end = rows.indexOf(LATER);
    const some = rows.slice(0, end < 0 ? rows.length : end) as (StoredJob | null)[];
    at += some.length;
    // At least one: the first may have come after others, where a growth has moved it.
    max = store.count === 1 ? LISTED : Math.min(LISTED, Math.max(1, 2 * some.length));
    if (some.length > 0) yield some.map((job) => job ?? undefined);
  }
}

/** In place of a job that is not in this reply: others before it fill it. */
const LATER = Symbol('later');

/**
 * Returns everything stored in one partition about the first of `ids`: as many as fit into one reply of `bytes` (default:
 * 1 MiB) of payloads; undefined for a missing job.
 */
export async function showIn(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly Id[],
  bytes?: number,
): Promise<(StoredJob | undefined)[]> {
  const found = await raw(redis, keys, ids, bytes);
  return found.map((job, i) => (text(job.state) === '' ? undefined : stored(ids[i] as Id, job)));
}

/** Returns everything stored about a job in partition `i`; undefined: it is not there. */
export async function showAt(store: Store, i: number, id: Id): Promise<StoredJob | undefined> {
  const [found] = await store.at(i, (keys) => showIn(store.redis, keys, [id]));
  return found;
}

/**
 * Until when this id stays taken although its job has ended, ms by Redis's clock; undefined if it does not. A job of this
 * id may exist.
 */
export async function rememberedUntil(store: Store, id: Id): Promise<number | undefined> {
  const until = await readById(store, id, (row) =>
    text(row?.state) === '' && text(row?.score) !== '' ? time(row?.score) : 0,
  );
  return until > (await store.redis.now()) ? until : undefined;
}

/** Whether this id has a payload, even if it is not a job. */
export function hasPayload(store: Store, id: Id): Promise<boolean> {
  return readById(store, id, (row) => row?.payload !== null);
}

/** Applies `read` to the stored form of an id. If it returns nothing (`0`, `false`), looks in other partitions. */
async function readById<T extends number | boolean>(
  store: Store,
  id: Id,
  read: (row: Raw | undefined) => T,
): Promise<T> {
  const [found] = await byId<Id, T>(store, [id], {
    reads: true,
    act: async (keys, some) => [read((await raw(store.redis, keys, some))[0])],
    isMissing: (answer) => !answer,
  });
  return found as T;
}

/** The counts of a queue at one moment. Times are ms by Redis's clock. */
export interface Snapshot {
  readonly now: number;
  /** Sizes of the keys with these names. */
  readonly pending: number;
  readonly active: number;
  readonly lease: number;
  readonly dead: number;
  readonly payload: number;
  readonly meta: number;
  /** Pending jobs that are due. */
  readonly due: number;
  /** Expired leases that no drain has taken back yet. */
  readonly runOut: number;
  /** Due time of the first pending job. */
  readonly oldest: number | undefined;
  /** The next jobs that are not due yet. */
  readonly upcoming: readonly { readonly id: string; readonly due: number }[];
  /** Counters that only grow, and `drained`, the time of the last drain (left out if it is not a valid time). */
  readonly stats: Readonly<Record<string, number>>;
  /** Why the server refuses new jobs, in words; undefined: it does not, or INFO is not allowed. */
  readonly refusal: string | undefined;
  /** The last failures; undefined: none yet. */
  readonly failures: Failures | undefined;
  /** How many handlers of drains and workers took less than `upTo` ms to succeed, and are not in an earlier bucket. */
  readonly durations: readonly { readonly upTo: number; readonly count: number }[];
  /** Who holds active jobs: up to 250 of each partition, those whose leases expire first. */
  readonly held: {
    /** How many active jobs were looked at. */
    readonly seen: number;
    /** First those whose leases expire first. */
    readonly holders: readonly Holder[];
  };
  /** Earlier states of the queue, about one for each of the last minutes in which it was used, oldest first. */
  readonly samples: readonly Sample[];
  readonly lateness: {
    /** Deliveries up to `upTo` ms late that are not in an earlier bucket. The last bucket has no limit (Infinity). */
    readonly buckets: readonly { readonly upTo: number; readonly count: number }[];
    /** The sum of all latenesses, ms. */
    readonly sum: number;
  };
  /** How many pending jobs fall due in the requested intervals; the first begins now. */
  readonly ahead: readonly Span[];
  readonly config: Readonly<Record<string, string>>;
  /** Of a queue with a rate: how many tokens it had at a time, ms. */
  readonly bucket: { readonly tokens: number; readonly at: number } | undefined;
  /** How many recurring jobs it has, and the first occurrence of one; undefined: none. */
  readonly recurring?: { readonly count: number; readonly next: number | undefined } | undefined;
  /** How many ids stay taken because their jobs have ended within their windows. */
  readonly remembered: number;
  /** How many events are kept, and how many jobs that are done. */
  readonly events: number;
  readonly finished: number;
}

/** What failed last, and how often since a job was last done. Times are ms. */
export interface Failures {
  /** How many attempts have failed since a job was last done. */
  readonly inARow: number;
  /** When the first of these failed. */
  readonly since: number;
  /** When the last one failed. */
  readonly at: number;
  /** When the last of these jobs is tried again; 0: none is. */
  readonly again: number;
  /** Its error; undefined: its handler gave none. */
  readonly error: string | undefined;
  /** Who had run it: `host:pid`; empty if unknown. */
  readonly by: string;
  /** How many of each kind (see {@link errorKind}), the most frequent first. `*`: all further kinds. */
  readonly kinds: readonly { readonly kind: string; readonly count: number }[];
}

/** A consumer, or a move, that holds leases. Times are ms. */
export interface Holder {
  /** host:pid of a drain, or `move:` and the destination queue; empty if unknown. */
  readonly by: string;
  readonly jobs: number;
  /** Since when it has held the oldest of its jobs. */
  readonly since: number | undefined;
  /** When the first of its leases expires. */
  readonly ends: number;
}

/** What a snapshot counts. */
export const COUNTS = [
  ...(['pending', 'active', 'lease', 'dead', 'payload', 'meta', 'due', 'runOut'] as const),
  ...(['remembered', 'events', 'finished'] as const),
] as const;

/** How many jobs fall due after `from` and until `to`, ms. */
export interface Span {
  readonly from: number;
  readonly to: number;
  readonly count: number;
}

/** Tolerated clock skew, ms. */
const SKEW_MS = 60_000;

const LATENESS = [5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 60_000, 600_000, 3_600_000, Number.POSITIVE_INFINITY];

function recurringIn(count: Reply | undefined, next: Reply | undefined): Snapshot['recurring'] {
  if (count === undefined || (number(count) === 0 && text(next) === '')) return undefined;
  const at = msOf(text(next) || 'inf');
  return { count: number(count), next: Number.isFinite(at) ? at : undefined };
}

/**
 * Returns the counts of one partition, up to `upcoming` of the next due times, and how many jobs fall due until each of
 * `ahead`, ms from now, ascending.
 */
export async function inspectIn(
  redis: Connection,
  keys: QueueKeys,
  upcoming: number,
  ahead: readonly number[] = [],
): Promise<Snapshot> {
  const reply = await run(redis, 'inspect/inspect', keys, [upcoming, ...ahead]);
  const dueBy = (reply[13] as Reply[]).map(number);
  const counts = reply.slice(0, 9).map(number) as number[] & Record<0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8, number>;
  const [now, pending, active, lease, dead, payload, meta, due, runOut] = counts;
  const sizes = { pending, active, lease, dead, payload, meta };
  const stats = new Map(pairs(reply[11]));
  // A time from other software, or in the future, would hide that nobody drains.
  const drained = known(stats.get('drained')) ?? 0;
  if (drained <= 0 || drained > now + SKEW_MS) stats.delete('drained');
  const counter = (name: string) => known(stats.get(name)) ?? 0;
  return {
    now,
    ...sizes,
    due,
    runOut,
    oldest: text(reply[9]) === '' ? undefined : time(reply[9]),
    upcoming: rows(reply[10], 0, 2).map(([id, due]) => ({ id: idWord(idOf(id as Buffer)), due: time(due) })),
    stats: Object.fromEntries(
      [...stats.keys()]
        .filter((name) => !/^(at|late|took):|^(sampled|configured|bucket|failures)$/.test(name))
        .map((name) => [name, counter(name)]),
    ),
    failures: failuresIn(stats.get('failures'), counter('acked') + counter('removed')),
    durations: DURATIONS.map((k) => ({ upTo: 2 ** k, count: counter(`took:${k}`) })),
    held: { seen: number(reply[17]), holders: rows(reply[18], 0, 4).map(holderIn) },
    refusal: refusalIn(reply.slice(19, 25).map(text)),
    samples: readSamples(stats),
    lateness: {
      buckets: LATENESS.map((upTo) => ({ upTo, count: counter(`late:${Number.isFinite(upTo) ? upTo : 'inf'}`) })),
      sum: counter('late:sum'),
    },
    ahead: ahead.map((ms, i) => ({
      from: now + (ahead[i - 1] ?? 0),
      to: now + ms,
      count: (dueBy[i] ?? 0) - (dueBy[i - 1] ?? due),
    })),
    config: Object.fromEntries(pairs(reply[12])),
    bucket: bucketIn(stats.get('bucket')),
    recurring: recurringIn(reply[14], reply[15]),
    remembered: number(reply[16]),
    events: number(reply[25]),
    finished: number(reply[26]),
  };
}

/** The exponents of the buckets of durations: from 1 ms to 12 days. */
const DURATIONS = Array.from({ length: 31 }, (_, k) => k);

/** Reads the field `failures` of stats. `done`: how many jobs are done now. */
function failuresIn(written: string | undefined, done: number): Failures | undefined {
  let row: Record<string, unknown>;
  try {
    row = JSON.parse(written ?? '') ?? {};
  } catch {
    return undefined;
  }
  const [n, since, at] = [row.n, row.since, row.at].map(Number) as [number, number, number];
  if (![n, since, at].every((value) => Number.isSafeInteger(value) && value >= 0)) return undefined;
  const kinds = Object.entries(row.kinds ?? {}).flatMap(([kind, count]) => (count > 0 ? { kind, count } : []));
  return {
    inARow: row.done === done ? n : 0,
    since,
    at,
    again: known(row.again) ?? 0,
    error: typeof row.error === 'string' ? row.error : undefined,
    by: typeof row.by === 'string' ? row.by : '',
    kinds: kinds.sort((a, b) => b.count - a.count),
  };
}

/** Why a server refuses jobs, by fields of its INFO. */
function refusalIn([used, uncounted, max, policy = '', aof, rdb]: readonly string[]): string | undefined {
  const [bytes, most] = [Number(used) - Number(uncounted), Number(max)];
  // Others delete keys in place of refusing jobs.
  if (most > 0 && bytes > most && /^(noeviction|volatile)/.test(policy))
    return `Redis is full and refuses new jobs: ${sizeText(bytes)} of ${sizeText(most)} (maxmemory) used`;
  if (aof === 'err') return 'Redis refuses new jobs: its last write to the AOF failed';
  return rdb === 'err' ? 'Redis may refuse new jobs: its last snapshot (RDB) failed' : undefined;
}

function bucketIn(written = ''): Snapshot['bucket'] {
  const [tokens = Number.NaN, at = Number.NaN] = written.split(' ').map(Number);
  return tokens >= 0 && at >= 0 ? { tokens, at } : undefined;
}

function holderIn([by, jobs, since, ends]: readonly Reply[]): Holder {
  return { by: text(by), jobs: number(jobs), since: text(since) === '' ? undefined : time(since), ends: time(ends) };
}

/**
 * The features that a partition uses although its layout does not say so, as when other software has written a setting:
 * no script looks at them. As noteUses in lua/lib/uses.lua.
 */
export function unsaidUses({ config, recurring, remembered }: Snapshot): string[] {
  const { uses } = layoutIn(config.layout);
  const isSet = (name: string) => (name === 'text' ? config.text === '1' : config[name] !== undefined);
  return Object.entries(FEATURES).flatMap(([word, settings]) => {
    const isThere = word === 'recurring' ? recurring !== undefined : word === 'windows' && remembered > 0;
    return (isThere || settings.some(isSet)) && !uses.includes(word) ? [word] : [];
  });
}

/** The features in the layout of a partition that this version does not know. */
export const unknownUses = ({ config }: Snapshot): string[] =>
  layoutIn(config.layout).uses.filter((word) => !Object.hasOwn(FEATURES, word));

/** How long the oldest due job has been due, ms; 0: none is due. Recurring jobs that no drain has made yet count. */
export function lag(snapshot: Snapshot): number {
  return Math.max(
    jobLag(snapshot),
    snapshot.recurring?.next === undefined ? 0 : snapshot.now - snapshot.recurring.next,
  );
}

const jobLag = ({ now, oldest }: Snapshot) => (oldest === undefined ? 0 : Math.max(0, now - oldest));

/** Returns a snapshot in the form of a sample. */
export function sampleOf(snapshot: Snapshot): Sample {
  const { now: at, due, pending, stats } = snapshot;
  const { enqueued = 0, delivered = 0, acked = 0, removed = 0, retried = 0, dead = 0 } = stats;
  return { at, enqueued, delivered, done: acked + removed, retried, dead, due, lag: jobLag(snapshot), pending };
}

/** How many partitions a queue has, and, while that grows, how many it had before (`from`). */
export function partitionsOf({ config }: Snapshot): { readonly count: number; readonly from: number | undefined } {
  const { count, from } =
    PartitionMap.parse(layoutIn(config.layout).layout, config.partitions ?? '') ?? PartitionMap.ONE;
  return { count, from };
}
