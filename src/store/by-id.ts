import { DelayqError, isDelayqError, isPassing, partly } from '../model/errors.js';
import { type Id, idKey } from '../model/id.js';
import { checkList } from '../model/validate.js';
import { wordOf } from '../net/errors.js';
import type { QueueKeys } from './keys.js';
import { groupsOf, type PartitionMap } from './map.js';
import { MAX_CALL } from './script.js';
import { MAX_TURNS, type Store } from './store.js';

/** How a call by id is made. `T`: what it is about, `A`: its answer. */
export interface ById<T, A> {
  /** Default: the item itself. */
  readonly idOf?: (item: T) => Id;
  /** One call about some items on one partition. May answer only the first ones: byId calls again for the rest. */
  readonly act: Act<T, A>;
  /** The most items of one call. Default: {@link MAX_CALL}. */
  readonly most?: number;
  /**
   * Whether an answer says that the job is not there; default: if it is `missing`. Then partition 0 is asked too:
   * foreign producers know no other.
   */
  readonly isMissing?: (answer: A) => boolean;
  /** Whether the job cannot exist yet. */
  readonly isNew?: (item: T) => boolean;
  /** While a growth is open: the answer for a job that is active where it belonged before. */
  readonly ifActive?: A;
  /**
   * In place of `ifActive`: acts there, only on active jobs that no growth is moving. Missing or `undefined`: the job is
   * none.
   */
  readonly onActive?: Act<T, A | undefined>;
  /** Looks for the mark that a call which is done has left where the id belonged before; `undefined`: there is none, so go on. */
  readonly marked?: Act<T, A | undefined>;
  /** `act` only reads: look where an id belonged before, too. Move the job only if `isMoving` is true of its answer. */
  readonly reads?: true | { readonly isMoving: (answer: A) => boolean };
  /**
   * Returns what to throw if a call fails with `error`. Default: `unknown` if the error may pass and others were answered.
   */
  readonly inDoubt?: (error: unknown, answers: readonly (A | undefined)[]) => unknown;
}

type Act<T, A> = (keys: QueueKeys, some: readonly T[]) => Promise<A[]>;

/** A partition has revealed another layout: work out again where the ids belong. */
const AGAIN = Symbol('again');

/** Makes calls about ids, each on the partition of its id. Returns the answers in the order of `items`. */
export async function byId<T, A>(store: Store, items: readonly T[], given: ById<T, A>): Promise<A[]> {
  const how = {
    idOf: (item: T) => item as Id,
    most: MAX_CALL,
    isMissing: (answer: A) => answer === 'missing',
    inDoubt: (error: unknown, answers: readonly (A | undefined)[]) =>
      !given.reads && isPassing(error) && answers.some((answer) => answer !== undefined) ? partly(error) : error,
    ...given,
  };
  const answers = new Array<A | undefined>(items.length);
  let rest = items.map((_, i) => i);
  for (let turn = 1; rest.length > 0; turn++) {
    const map = store.map;
    const call: Call = async (i, act) => {
      try {
        return await act(store.keys(i, map));
      } catch (error) {
        if (wordOf(error) !== 'LAYOUT') throw error;
        await store.learnFrom(map, error, turn);
        throw AGAIN;
      }
    };
    const groups = groupsOf(rest, (i) => map.ownerOf(how.idOf(items[i] as T)));
    const ended = await Promise.allSettled(
      [...groups].map(([owner, some]) => answerGroup(store, map, call, owner, { items, some, answers }, how)),
    );
    const failed = worst(ended.filter((one) => one.status === 'fulfilled' || one.reason !== AGAIN));
    if (failed !== undefined) throw how.inDoubt(failed, answers);
    rest = rest.filter((i) => answers[i] === undefined);
    if (turn > MAX_TURNS && rest.length > 0) {
      const what = `the partitions of ${store.queue} are changing`;
      throw how.inDoubt(new DelayqError('temporary', what, { next: 'try again' }), answers);
    }
  }
  return answers as A[];
}

type Call = <R>(i: number, act: (keys: QueueKeys) => Promise<R>) => Promise<R>;

/** Some of the items, by their indexes, and where their answers go. */
interface Some<T, A> {
  readonly items: readonly T[];
  readonly some: readonly number[];
  readonly answers: (A | undefined)[];
}

/** Answers the items of one owner, as far as possible; byId tries the others again. */
async function answerGroup<T, A>(
  store: Store,
  map: PartitionMap,
  call: Call,
  owner: number,
  { items, some, answers }: Some<T, A>,
  how: ById<T, A> & Required<Pick<ById<T, A>, 'idOf' | 'most' | 'isMissing'>>,
): Promise<void> {
  const itemsOf = (indexes: readonly number[]) => indexes.map((i) => items[i] as T);
  /** Calls `act` until all these items are answered. Returns those whose answer is that the job is missing. */
  const ask = async (at: number, indexes: readonly number[], act: Act<T, A | undefined> = how.act) => {
    const missing: [i: number, answer: A][] = [];
    for (let done = 0; done < indexes.length; ) {
      const found = await call(at, (keys) => act(keys, itemsOf(indexes.slice(done, done + how.most))));
      for (const [n, answer] of found.entries()) {
        const i = indexes[done + n] as number;
        if (answer !== undefined && how.isMissing(answer)) missing.push([i, answer]);
        else answers[i] = answer;
      }
      done += found.length;
    }
    return missing;
  };
  const movers = groupsOf(some, (i) => {
    const item = items[i] as T;
    return map.from === undefined || how.isNew?.(item) ? owner : map.formerOf(how.idOf(item));
  });
  const here = movers.get(owner) ?? [];
  movers.delete(owner);
  for (const [former, indexes] of movers) {
    const { reads } = how;
    if (reads) here.push(...(await ask(former, indexes)).map(([i]) => i));
    const left = reads
      ? indexes.filter((i) => reads !== true && answers[i] !== undefined && reads.isMoving(answers[i] as A))
      : indexes;
    if (left.length === 0) continue;
    for (const i of left) answers[i] = undefined;
    const { relocate } = await import('./relocate.js');
    const way = { store, map, from: former, to: owner };
    // Each id once: a transfer answers only the first of two equal ids.
    const ids = new Map(itemsOf(left).map((item) => [idKey(how.idOf(item)), how.idOf(item)]));
    const moved = await call(former, () => relocate(way, [...ids.values()]));
    // Only now has the partition surely the new layout, so no call by id acts there any more.
    if (how.marked) await ask(former, left, how.marked);
    const stays = new Set([...ids.keys()].filter((_, n) => moved[n] === 'active'));
    const isActive = (i: number) => stays.has(idKey(how.idOf(items[i] as T)));
    const open = left.filter((i) => answers[i] === undefined);
    const active = open.filter(isActive);
    here.push(...open.filter((i) => !isActive(i)));
    if (how.onActive) await ask(former, active, how.onActive);
    else for (const i of active) answers[i] = how.ifActive;
  }
  const missing = await ask(owner, here);
  // A job that leaves partition 0 in this growth may still be held there, and be done already.
  const isLeft = (i: number) => owner === 0 || (map.from !== undefined && map.formerOf(how.idOf(items[i] as T)) === 0);
  for (const [i, answer] of missing) if (isLeft(i)) answers[i] = answer;
  const strays = missing.filter(([i]) => !isLeft(i)).map(([i]) => i);
  for (const [i, answer] of await ask(0, strays)) answers[i] = answer;
}

/** The error to report of calls that have ended, if any: first one with an unknown outcome; last one about the layout. */
export function worst(ended: readonly PromiseSettledResult<unknown>[]): unknown {
  const errors = ended.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
  const doubt = errors.find((error) => isDelayqError(error, 'unknown'));
  return doubt ?? errors.find((error) => wordOf(error) !== 'LAYOUT') ?? errors[0];
}

/** Slices of a list, each for one call. */
export function* chunks<T>(list: readonly T[]): Generator<readonly T[]> {
  checkList(list, 'jobs');
  for (let i = 0; i < list.length; i += MAX_CALL) yield list.slice(i, i + MAX_CALL);
}
