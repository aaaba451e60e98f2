import type { Spread } from '../model/due-times.js';
import { type Id, idKey } from '../model/id.js';
import type { Arg, Reply } from '../redis/connection.js';
import { type Asked, ask } from './answers.js';
import { byId } from './by-id.js';
import type { QueueKeys } from './keys.js';
import { number, text } from './replies.js';
import { LATEST_DUE } from './script.js';
import type { Store } from './store.js';

/** Returns the score of each id in one of the sets; null where it is not in the set, or its score cannot be read. */
async function scoresOf(store: Store, set: 'pending' | 'dead', ids: readonly Id[]): Promise<(number | null)[]> {
  return byId<Id, number | null>(store, ids, {
    reads: true,
    act: async (keys, some) => {
      const found = (await store.redis.call('ZMSCORE', keys[set], ...some)) as Reply[];
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
  return rows.sort((a, b) => place(a) - place(b) || Buffer.compare(a.bytes, b.bytes));
}

/** A script that gives jobs due times, one after another. */
interface Spreading<A extends string> {
  readonly asked: Asked<A>;
  /** Its arguments between the times and the ids. */
  readonly args: readonly Arg[];
  /** The set that the jobs are in. */
  readonly set: 'pending' | 'dead';
  /** Keep the order of their times; otherwise, the given order. */
  readonly byTime: boolean;
  /** The answer for a job that is active where it belonged before a growth. */
  readonly ifActive: A;
}

/** Gives few jobs due times one after another, and continues `spread` behind them. Answers in the order of `ids`. */
export async function spreadOver<A extends string>(
  store: Store,
  ids: readonly Id[],
  spread: Spread,
  { asked, args, set, byTime, ifActive }: Spreading<A>,
): Promise<A[]> {
  const send = (keys: QueueKeys, some: readonly Id[], next: string, stepMs = 0) =>
    ask(store.redis, keys, asked, [next, stepMs, ...args, ...some]);
  if (store.count === 1) {
    const { map } = store;
    try {
      const { answers, rest } = await send(store.keys(), ids, spread.next, spread.stepMs);
      spread.advance(text(rest[0]));
      return answers;
    } catch (error) {
      await store.learnFrom(map, error, 1);
    }
  }
  // Neighbours may be in different partitions, so each gets its own due time.
  const start = Number(spread.next) + (spread.next.startsWith('+') ? await store.redis.now() : 0);
  const inOrder = spread.stepMs === 0 ? undefined : await ranked(store, set, ids);
  const scores = new Map(inOrder?.map(({ id, score }) => [idKey(id), score]));
  const line = (byTime && inOrder?.map(({ id }) => id)) || ids;
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
    act: async (keys, some) => {
      const dues = some.map((id) => dueAt.get(idKey(id)) as string);
      const end = dues.findIndex((one) => one !== dues[0]);
      return (await send(keys, end < 0 ? some : some.slice(0, end), dues[0] as string)).answers;
    },
    ifActive,
  });
}
