import { setTimeout as sleep } from 'node:timers/promises';
import { isPassing } from '../model/errors.js';
import { EVENT_TYPES, type EventType, type JobEvent } from '../model/event.js';
import { idOf, idWord } from '../model/id.js';
import { checkConsumer, checkInstant, checkList, checkWord, keysOf } from '../model/validate.js';
import type { Arg, Reply } from '../redis/connection.js';
import { type RetryLimits, withRetries } from '../redis/retry.js';
import { worst } from './by-id.js';
import type { QueueKeys } from './keys.js';
import { known, number, rows, text } from './replies.js';
import { run } from './script.js';
import type { Store } from './store.js';

/** Which events to read. */
export interface EventsOptions {
  /** From this time on, ms since 1970. Default: all that are kept. */
  readonly since?: number | undefined;
  /** Wait for further events, until `signal` aborts. */
  readonly follow?: boolean | undefined;
  readonly types?: readonly EventType[] | undefined;
  /** Only events of the job with this id. */
  readonly id?: string | undefined;
  /**
   * Go on where the last reader with this name has stopped: it is a consumer group of each stream. A new one begins at
   * `since`, or now.
   */
  readonly group?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

const checkKeys = keysOf<EventsOptions>('events', {
  ...{ since: true, follow: true, types: true, id: true, group: true, signal: true },
});

/** Returns the options if they are valid. Throws `usage` otherwise. */
export function checkEvents(options: EventsOptions): EventsOptions {
  const { since, types, group } = checkKeys(options);
  checkInstant(since, 'since');
  for (const type of checkList(types ?? [], 'types')) checkWord(type, EVENT_TYPES, 'a type of event');
  if (group !== undefined) checkConsumer(group);
  return options;
}

/** Events that were read together, in the order of their times. */
export interface EventBatch {
  readonly events: JobEvent[];
  /** How many events, of all types, were removed before they could be read; NaN: nobody knows how many. */
  readonly missed: number;
}

/** How events are read besides. */
export interface ReadHow {
  readonly onTrouble?: RetryLimits['onTrouble'];
  /** Yields one event at a time, and moves the position after each. */
  readonly isSingle?: boolean;
}

/** Entries per call: about 1 ms of Redis's time. */
const SLICE = 500;

/** How often to look for new events, ms. */
const FOLLOW_MS = 200;

/** The position before all events. */
const NONE = '0-0';

/** An event, or one that was not asked for, and where it stands. */
interface Entry {
  readonly entry: string;
  /** How many events there were up to it; undefined: unknown. */
  readonly n: number | undefined;
  readonly at: number;
  readonly event: JobEvent | undefined;
}

/** How far the events of one partition are read. */
interface Lane {
  /** The last entry that was read, or from where to begin; as XRANGE takes it. */
  from: string;
  /** How many events there were up to it; undefined: unknown. */
  n: number | undefined;
  /** Read, but not yielded. */
  waiting: Entry[];
  /** There may be more. */
  isFull: boolean;
  missed: number;
}

/** A reply of lua/inspect/events.lua. */
interface Look {
  readonly isKept: boolean;
  /** How many there ever were; undefined before Redis 7. */
  readonly added: number | undefined;
  readonly length: number;
  readonly first: string;
  readonly last: string;
  readonly group: { readonly position: string; readonly n: number | undefined } | undefined;
  readonly entries: readonly (readonly [entry: string, fields: Reply])[];
}

/**
 * Yields the events of a queue, those of all its partitions in the order of their times, each by the clock of its
 * server. With `follow` it yields new ones as they come, and order is kept among those that are read together. The
 * position of a group is moved when the next batch is asked for. Retries errors that pass with `follow` only.
 */
export async function* readEvents(store: Store, options: EventsOptions, how: ReadHow = {}): AsyncGenerator<EventBatch> {
  try {
    yield* readOn(store, options, how);
  } catch (error) {
    // A follower that was stopped has done what it should, also while Redis is away.
    if (!options.signal?.aborted || !isPassing(error)) throw error;
  }
}

async function* readOn(
  store: Store,
  options: EventsOptions,
  { onTrouble, isSingle = false }: ReadHow,
): AsyncGenerator<EventBatch> {
  const { since, follow, group, signal } = options;
  const lanes: (Lane | undefined)[] = [];
  const limits = { until: () => (signal?.aborted || !follow ? 0 : Number.POSITIVE_INFINITY), onTrouble };
  const start = since === undefined ? '-' : String(Math.max(0, Math.floor(since)));
  let isNew = false;
  if (group !== undefined) isNew = await withRetries(() => isUnknown(store, group), limits);
  const open = async (i: number): Promise<Lane> => {
    const lane = { n: undefined, waiting: [], isFull: false, missed: 0 };
    if (group === undefined) return { ...lane, from: start };
    const look = await store.at(i, (keys) => lookIn(store, keys, '-', 1, group));
    if (look.group) return { ...lane, from: `(${look.group.position}`, n: numberOf(look.group.position, look.group.n) };
    if (!isNew) return { ...lane, from: `(${NONE}`, n: 0 };
    // It is there from now on, whatever becomes of what it is given first.
    const begin = since === undefined ? look.last : lastBefore(Math.floor(since));
    const n = numberOf(begin, since === undefined ? look.added : undefined);
    await store.at(i, (keys) => moveTo(store, keys, group, begin, n));
    return { ...lane, from: `(${begin}`, n };
  };
  const read = async (i: number) => {
    const lane = lanes[i] ?? (await open(i));
    lanes[i] = lane;
    const look = await store.at(i, (keys) => lookIn(store, keys, lane.from, SLICE));
    take(lane, look, options, store.count > 1 ? i : undefined);
  };
  const readAll = async () => {
    const done = new Set<number>();
    for (let some = [0]; some.length > 0; some = [...Array(store.count).keys()].filter((i) => !done.has(i))) {
      // All of them end before any is repeated: two calls would read the same events.
      const ended = await Promise.allSettled(some.map((i) => (lanes[i]?.waiting.length ? undefined : read(i))));
      const error = worst(ended);
      if (error !== undefined) throw error;
      for (const i of some) done.add(i);
    }
  };
  for (;;) {
    await withRetries(readAll, limits);
    // Partitions that are added from now on have only events that nobody in the group has read.
    isNew = false;
    const batch = ripe(lanes as Lane[]);
    const missed = lanes.reduce((sum, lane) => sum + (lane?.missed ?? 0), 0);
    for (const lane of lanes as Lane[]) lane.missed = 0;
    const move = async (i: number, to: Entry | undefined) => {
      if (group === undefined || !to) return;
      await withRetries(() => store.at(i, (keys) => moveTo(store, keys, group, to.entry, to.n)), limits);
    };
    const all = [...batch].flatMap(([i, some]) => some.map((one) => ({ i, one })));
    const events = all.sort((a, b) => a.one.at - b.one.at);
    const wanted = events.filter(({ one }) => one.event);
    const eventsOf = (some: typeof wanted) => some.map(({ one }) => one.event as JobEvent);
    if ((wanted.length > 0 && !isSingle) || missed > 0 || Number.isNaN(missed))
      yield { events: isSingle ? [] : eventsOf(wanted), missed };
    for (const one of isSingle ? wanted : []) {
      yield { events: eventsOf([one]), missed: 0 };
      await move(one.i, one.one);
      if (signal?.aborted) return;
    }
    for (const [i, some] of batch) await move(i, some.at(-1));
    if (signal?.aborted) return;
    if (events.length > 0) continue;
    if (!follow) return;
    await sleep(FOLLOW_MS, undefined, { signal }).catch(() => {});
    if (signal?.aborted) return;
  }
}

/** Whether a queue keeps events now, or has any. */
export async function hasEvents(store: Store): Promise<boolean> {
  const looks = await store.each((keys) => lookIn(store, keys, '-', 1));
  return looks.some(({ isKept, length }) => isKept || length > 0);
}

/** Whether no partition knows a group. */
async function isUnknown(store: Store, group: string): Promise<boolean> {
  const looks = await store.each((keys) => lookIn(store, keys, '-', 1, group));
  return looks.every((look) => !look.group);
}

/** Adds the entries of a reply to those that wait. */
function take(lane: Lane, look: Look, { types, id }: EventsOptions, partition: number | undefined): void {
  const { added, length, first, entries } = look;
  const before = added === undefined ? undefined : added - length;
  // A stream that was removed begins anew.
  if (added !== undefined && lane.n !== undefined && lane.n > added) lane.n = undefined;
  if (before !== undefined && lane.n !== undefined) {
    lane.missed += Math.max(0, before - lane.n);
    lane.n = Math.max(lane.n, before);
  } else if (added === undefined && isBehind(lane.from, first)) lane.missed = Number.NaN;
  // Read from the first one on: its number is known.
  if (lane.n === undefined && entries[0]?.[0] === first) lane.n = before;
  for (const [entry, fields] of entries) {
    if (lane.n !== undefined) lane.n += 1;
    const event = eventIn(entry, fields, partition);
    const isWanted = event && (types?.includes(event.type) ?? true) && (id === undefined || event.id === id);
    lane.waiting.push({ entry, n: lane.n, at: timeOf(entry), event: isWanted ? event : undefined });
    lane.from = `(${entry}`;
  }
  lane.isFull = entries.length === SLICE;
  if (!lane.isFull && entries.length > 0) lane.n = added;
}

/** Redis 6 tells no numbers: whether the entry that was read last is gone, so that others may have gone after it. */
const isBehind = (from: string, first: string) =>
  from.startsWith('(') && from !== `(${NONE}` && first !== '' && isBefore(from.slice(1), first);

function isBefore(a: string, b: string): boolean {
  const [ms = 0, seq = 0] = a.split('-').map(Number);
  const [otherMs = 0, otherSeq = 0] = b.split('-').map(Number);
  return ms < otherMs || (ms === otherMs && seq < otherSeq);
}

/** Removes and returns, for each partition, the entries before which no others can come. */
function ripe(lanes: readonly Lane[]): Map<number, Entry[]> {
  const ends = lanes.filter(({ isFull }) => isFull).map(({ waiting }) => waiting.at(-1)?.at ?? 0);
  const end = Math.min(...ends);
  const some = new Map<number, Entry[]>();
  for (const [i, lane] of lanes.entries()) {
    const after = lane.waiting.findIndex(({ at }) => at > end);
    some.set(i, lane.waiting.splice(0, after < 0 ? lane.waiting.length : after));
  }
  return some;
}

/** The last id that an entry can have before a time, ms. */
const lastBefore = (ms: number) => (ms <= 0 ? NONE : `${ms - 1}-18446744073709551615`);

/** How many events there were up to an entry; before the first one none. */
const numberOf = (entry: string, n: number | undefined) => (entry === NONE ? 0 : n);

const timeOf = (entry: string) => Number(entry.split('-')[0]);

/** Decodes an entry; undefined: delayq has not written it. */
function eventIn(entry: string, fields: Reply, partition: number | undefined): JobEvent | undefined {
  const found = new Map(rows(fields, 0, 2).map(([name, value]) => [text(name), value]));
  const word = (name: string) => text(found.get(name)) || undefined;
  const type = word('type') as EventType | undefined;
  if (type === undefined || !EVENT_TYPES.includes(type)) return undefined;
  const id = found.get('id');
  const parts = {
    by: word('by'),
    attempt: known(word('attempt')),
    due: known(word('due')),
    reason: word('reason'),
    error: word('error'),
    partition,
  };
  const given = Object.entries(parts).filter(([, value]) => value !== undefined);
  return {
    type,
    id: Buffer.isBuffer(id) && id.length > 0 ? idWord(idOf(id)) : '',
    at: timeOf(entry),
    ...Object.fromEntries(given),
  };
}

async function lookIn(store: Store, keys: QueueKeys, from: string, count: number, group?: string): Promise<Look> {
  const args: Arg[] = [from, count, ...(group === undefined ? [] : [group])];
  const [, isKept, added, length, first, last, isThere, position, n, entries] = await run(
    store.redis,
    'inspect/events',
    keys,
    args,
  );
  return {
    isKept: isKept === 1,
    added: known(text(added)),
    length: number(length),
    first: text(first),
    last: text(last),
    group: isThere === 1 ? { position: text(position), n: known(text(n)) } : undefined,
    entries: (entries as Reply[][]).map(([id, fields]) => [text(id), fields as Reply]),
  };
}

async function moveTo(store: Store, keys: QueueKeys, group: string, entry: string, n: number | undefined) {
  await run(store.redis, 'edit/position', keys, [group, entry, n ?? '']);
}
