import { Spread } from '../model/due-times.js';
import { type Id, idKey } from '../model/id.js';
import { wordOf } from '../net/errors.js';
import type { Connection, Reply } from '../redis/connection.js';
import { byId, worst } from './by-id.js';
import type { QueueKeys } from './keys.js';
import { number } from './replies.js';
import { LATEST_DUE, MAX_CALL } from './script.js';
import type { Store } from './store.js';

/** Returns the score of each id in one of the sets; null where it is not in the set, or its score cannot be read. */
async function scoresOf(store: Store, set: 'pending' | 'dead', ids: readonly Id[]): Promise<(number | null)[]> {
  return byId<Id, number | null>(store, ids, {
    idOf: (id) => id,
    reads: true,
    act: async (keys, some) => {
      const found = (await store.redis.call('ZMSCORE', keys[set], ...some.slice(0, MAX_CALL))) as Reply[];
      return found.map((score) => (score === null || Number.isNaN(number(score)) ? null : number(score)));
    },
    isMissing: (score) => score === null,
  });
}

/**
 * Returns the ids, each once, in the order of their times in a set, with these times. Those that are not in it come
 * last, with null.
 */
export async function ranked(
  store: Store,
  set: 'pending' | 'dead',
  ids: readonly Id[],
): Promise<{ id: Id; score: number | null }[]> {
  const once = [...new Map(ids.map((id) => [idKey(id), id])).values()];
  const scores = await store.steady(() => scoresOf(store, set, once));
  const rows = once.map((id, i) => ({ id, score: scores[i] ?? null, bytes: Buffer.from(id as string) }));
  const place = ({ score }: { score: number | null }) => score ?? Number.POSITIVE_INFINITY;
  // Not by subtraction: Infinity - Infinity is NaN.
  const order = (a: number, b: number) => (a < b ? -1 : a > b ? 1 : 0);
  return rows.sort((a, b) => order(place(a), place(b)) || Buffer.compare(a.bytes, b.bytes));
}

/** A script that gives jobs due times, one after another. */
interface Spreading<A extends string> {
  /** The set that the jobs are in. */
  readonly set: 'pending' | 'dead';
  /** Keep the order of their times; otherwise, the given order. */
  readonly byTime: boolean;
  readonly act: (redis: Connection, keys: QueueKeys, ids: readonly Id[], spread: Spread) => Promise<{ answers: A[] }>;
  /** The answer for a job that is active where it belonged before a growth. */
  readonly ifActive: A;
}

/** Gives few jobs due times one after another, and continues `spread` behind them. Answers in the order of `ids`. */
export async function spreadOver<A extends string>(
  store: Store,
  ids: readonly Id[],
  spread: Spread,
  how: Spreading<A>,
): Promise<A[]> {
  const { redis } = store;
  if (store.count === 1) {
    const { map } = store;
    try {
      return (await how.act(redis, store.keys(), ids, spread)).answers;
    } catch (error) {
      await store.learnFrom(map, error, 1);
    }
  }
  // Neighbours may be in different partitions, so each gets its own due time.
  const start = Number(spread.next) + (spread.next.startsWith('+') ? await redis.now() : 0);
  const inOrder = spread.stepMs === 0 ? undefined : await ranked(store, how.set, ids);
  const scores = new Map(inOrder?.map(({ id, score }) => [idKey(id), score]));
  const line = (how.byTime && inOrder?.map(({ id }) => id)) || ids;
  const dueAt = new Map<string, string>();
  let n = 0;
  const due = () => String(Math.min(start + n * spread.stepMs, LATEST_DUE));
  for (const key of line.map(idKey)) {
    if (dueAt.has(key)) continue;
    dueAt.set(key, due());
    if (scores.get(key) !== null) n++;
  }
  spread.advance(due());
  return byId<Id, A>(store, ids, {
    idOf: (id) => id,
    act: async (keys, some) => {
      const calls: Promise<{ answers: A[] }>[] = [];
      for (let at = 0; at < some.length; ) {
        const next = dueAt.get(idKey(some[at] as Id)) as string;
        const end = some.findIndex((id, i) => i > at && dueAt.get(idKey(id)) !== next);
        const together = some.slice(at, end < 0 ? some.length : end);
        const when = new Spread({ stepMs: 0 });
        when.advance(next);
        calls.push(how.act(redis, keys, together, when));
        at += together.length;
      }
      const ended = await Promise.allSettled(calls);
      const errors = ended.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
      const done = ended.flatMap((one) => (one.status === 'fulfilled' ? one.value.answers : []));
      // After a change of the layout, only refused jobs are tried again.
      if (errors.length > 0 && (done.length === 0 || errors.some((error) => wordOf(error) !== 'LAYOUT')))
        throw worst(errors);
      return done;
    },
    isMissing: (answer) => answer === 'missing',
    ifActive: () => how.ifActive,
  });
}
