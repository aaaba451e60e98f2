import { Spread } from '../model/due-times.js';
import { DelayqError } from '../model/errors.js';
import { type Id, idKey } from '../model/id.js';
import { lifetime, type State } from '../model/job.js';
import { needsLayout2, packSettings, readSettings, type Settings, type SettingsChange } from '../model/settings.js';
import { checkCount, checkList, checkMs, checkName, keysOf } from '../model/validate.js';
import type { Connection } from '../redis/connection.js';
import { unlessMissing } from '../store/answers.js';
import { byId } from '../store/by-id.js';
import * as acts from '../store/edit.js';
import { type PrefixOption, prefixOf, type QueueKeys } from '../store/keys.js';
import { untilStill } from '../store/movement.js';
import { ranked, spreadOver } from '../store/order.js';
import { addQueue, removeQueue, tryAddQueue } from '../store/queues.js';
import { SLICE } from '../store/script.js';
import { changeEverywhere, forgetAll } from '../store/settings.js';
import { Store } from '../store/store.js';
import { type Growth, grow, type Partitioning, partitioningOf } from './grow.js';

const checkCancel = keysOf<{ keepId?: boolean | undefined }>('cancel', { keepId: 'keep remember' });
/** New limits of jobs that are requeued. */
interface RequeueOptions {
  readonly ttl?: number | string | undefined;
  readonly deliveries?: number | undefined;
}
const checkRequeue = keysOf<RequeueOptions>('requeue', {
  ttl: 'expires expiresIn expire expiry',
  deliveries: 'tries attempts maxDeliveries',
});
const checkBury = keysOf<{ reason?: string }>('bury', { reason: 'error message why' });
const checkPurge = keysOf<{ due?: boolean | undefined }>('purge', { due: 'ready now' });
const checkPause = keysOf<{ forMs?: number | undefined }>('pause', { forMs: 'duration ms time' });

/** Changes queues and their jobs. See {@link Inspector} for reading them. */
export class Operator {
  readonly #redis: Connection;
  readonly #prefix: string;

  /** Throws a `usage` error for an invalid option. */
  constructor(redis: Connection, options: PrefixOption = {}) {
    this.#redis = redis;
    this.#prefix = prefixOf(redis, options);
  }

  #store(queue: string): Store {
    return Store.of(this.#redis, this.#prefix, checkName(queue));
  }

  /**
   * Removes jobs that are in one of `states` (default: any). Returns, for each, the state it was in. Running handlers are
   * not stopped. The ids are free again, also those that are only remembered (`freed`); with `keepId`, windows begin as
   * if the jobs were done. Throws `temporary` for an id that is remembered while the queue grows.
   */
  async cancel(
    queue: string,
    ids: readonly Id[],
    states: readonly State[] = ['pending', 'active', 'dead'],
    options: { keepId?: boolean | undefined } = {},
  ): Promise<acts.Cancelled[]> {
    const { keepId } = checkCancel(options);
    const cancel = async (keys: QueueKeys, some: readonly Id[], from: readonly State[]) =>
      (await acts.cancel(this.#redis, keys, some.slice(0, SLICE), from, keepId)).answers;
    return byId<Id, acts.Cancelled>(this.#store(queue), checkList(ids, 'ids'), {
      idOf: (id) => id,
      act: (keys, some) => cancel(keys, some, states),
      isMissing: (answer) => answer === 'missing',
      ...(states.includes('active')
        ? { onActive: async (keys, some) => (await cancel(keys, some, ['active'])).map(unlessMissing) }
        : { ifActive: () => 'missing' }),
    });
  }

  /**
   * Makes dead jobs pending again, with their failures and losses reset. Their own limits stay, and their time to live
   * starts again. They are due now, or as `spread` says. Jobs that no handler can be given stay dead.
   *
   * `options.ttl` (ms, or text such as `1d`) and `options.deliveries` replace these limits of theirs. With a ttl of 0 they
   * never expire, whatever the queue says. Throws `usage` for an invalid option.
   */
  async requeue(
    queue: string,
    ids: readonly Id[],
    spread = new Spread({ stepMs: 0 }),
    options: RequeueOptions = {},
  ): Promise<acts.Requeued[]> {
    const { ttl, deliveries } = checkRequeue(options);
    const limits = { ttl: lifetime(ttl), deliveries: checkCount(deliveries, 'deliveries') };
    const act: typeof acts.requeue = (redis, keys, some, spread) => acts.requeue(redis, keys, some, spread, limits);
    const store = this.#store(queue);
    const how = { set: 'dead', byTime: false, act, ifActive: 'missing' } as const;
    return inSlices(ids, (some) => spreadOver<acts.Requeued>(store, some, spread, how));
  }

  /**
   * Gives pending jobs new due times, in the order in which they fall due now. Active and dead jobs do not change. A time
   * to live starts again at the new due time. Further calls with the same `spread` continue after these jobs.
   */
  async reschedule(queue: string, ids: readonly Id[], spread: Spread): Promise<acts.Rescheduled[]> {
    const store = this.#store(queue);
    const how = { set: 'pending', byTime: true, act: acts.reschedule, ifActive: 'active' } as const;
    // Within one call, the script sorts.
    const isLong = checkList(ids, 'ids').length > SLICE;
    const sorted = isLong ? (await ranked(store, 'pending', ids)).map(({ id }) => id) : ids;
    const answers = await inSlices(sorted, (some) => spreadOver<acts.Rescheduled>(store, some, spread, how));
    const answerOf = new Map(sorted.map((id, i) => [idKey(id), answers[i]] as const));
    return ids.map((id) => answerOf.get(idKey(id)) as acts.Rescheduled);
  }

  /**
   * Moves pending jobs to the dead set, until they are requeued or cancelled. Stores `reason` as their last error, cut to
   * 2,000 characters. Active jobs do not change.
   */
  async bury(queue: string, ids: readonly Id[], options: { reason?: string } = {}): Promise<acts.Buried[]> {
    const { reason = '' } = checkBury(options);
    return byId<Id, acts.Buried>(this.#store(queue), checkList(ids, 'ids'), {
      idOf: (id) => id,
      act: async (keys, some) => (await acts.bury(this.#redis, keys, some.slice(0, SLICE), reason)).answers,
      isMissing: (answer) => answer === 'missing',
      ifActive: () => 'active',
    });
  }

  /**
   * Removes all jobs of `states` (default: any), and yields how many each call removed. If all states are purged, active
   * jobs are removed in slices, and everything else at once when none is left. Running handlers are not stopped. With `due`
   * removes only pending jobs that are due by Redis's clock: throws `usage` for other states.
   */
  async *purge(
    queue: string,
    states: readonly State[] = ['pending', 'active', 'dead'],
    options: { due?: boolean | undefined } = {},
  ): AsyncGenerator<acts.Purged> {
    const { due = false } = checkPurge(options);
    if (due && (states.length !== 1 || states[0] !== 'pending')) {
      const next = "give ['pending'], or leave out due";
      throw new DelayqError('usage', 'only pending jobs are due', { why: 'other states are given', next });
    }
    const store = this.#store(queue);
    const redis = this.#redis;
    const each = async function* () {
      for (let i = 0; i < store.count; i++) {
        for (let more = true; more; ) {
          const purged = await store.at(i, (keys) => acts.purge(redis, keys, states, SLICE, due));
          more = purged.more;
          yield { ...purged, more: more || i + 1 < store.count };
        }
      }
    };
    if (store.count === 1) yield* each();
    // A growth that has begun is known by now: the calls were refused.
    if (store.count > 1) yield* untilStill(store, each);
  }

  /** Removes counters, settings, remembered ids and the name of a queue. Returns false, and changes nothing, if it has jobs. */
  async forget(queue: string): Promise<boolean> {
    const store = this.#store(queue);
    if (!(await forgetAll(store))) return false;
    await removeQueue(this.#redis, this.#prefix, queue);
    // A producer may have created it again, and listed it, before that. The layout of partitions remains.
    const { stats, config } = store.keys();
    const again = await this.#redis.call('EXISTS', stats, ...(store.count === 1 ? [config] : []));
    if (Number(again) > 0) await addQueue(this.#redis, this.#prefix, queue);
    return true;
  }

  /**
   * Stops delivering jobs from a queue for `forMs` by Redis's clock (default: until {@link Operator.resume}). Jobs that are
   * active go on; enqueue, ack, nack and renew work as always. Expired leases are not taken back until the queue resumes.
   * Throws `temporary` while some partitions have not confirmed.
   */
  async pause(queue: string, options: { forMs?: number | undefined } = {}): Promise<acts.Paused> {
    const { forMs = Number.POSITIVE_INFINITY } = checkPause(options);
    const ms = forMs === Number.POSITIVE_INFINITY ? forMs : Math.round(checkMs(forMs, 'forMs', 1));
    return changeEverywhere(this.#store(queue), (keys) => acts.pause(this.#redis, keys, ms));
  }

  /** Delivers jobs from a queue again. Waiting drains notice at once. Throws as {@link Operator.pause}. */
  async resume(queue: string): Promise<acts.Paused> {
    return changeEverywhere(this.#store(queue), (keys) => acts.pause(this.#redis, keys, undefined));
  }

  /**
   * Grows a queue to `count` partitions while it works, and yields how far it is. If this is interrupted at any moment, a
   * repeat goes on. Throws `usage` if the queue has more, `temporary` if replicas do not follow.
   */
  async *partition(queue: string, count: number): AsyncGenerator<Growth> {
    // As for settings: the queue may have no jobs yet.
    if (count > 1) await tryAddQueue(this.#redis, this.#prefix, checkName(queue));
    yield* grow(this.#store(queue), count);
  }

  /** Returns how many partitions a queue has, and how far its growth is if one is open. Changes nothing. */
  async partitions(queue: string): Promise<Partitioning> {
    return partitioningOf(this.#store(queue));
  }

  /**
   * Changes settings of a queue and returns all that are set. Throws a `usage` error for an invalid value, `config` for a
   * limit of a queue that has partitions, `temporary` while some partitions have not confirmed.
   */
  async configure(queue: string, change: SettingsChange): Promise<Partial<Settings>> {
    const packed = packSettings(change);
    const store = this.#store(queue);
    if (needsLayout2(change)) await store.toLayout2();
    const set = (keys: QueueKeys) => acts.config(this.#redis, keys, packed);
    const config = await (packed.length > 0 ? changeEverywhere(store, set) : store.at(0, set));
    // So that inspect shows a queue that has settings but no jobs yet.
    if (packed.length > 0) await tryAddQueue(this.#redis, this.#prefix, queue);
    return readSettings(config);
  }
}

async function inSlices<A>(ids: readonly Id[], act: (some: readonly Id[]) => Promise<A[]>): Promise<A[]> {
  const answers: A[] = [];
  checkList(ids, 'ids');
  for (let i = 0; i < ids.length; i += SLICE) answers.push(...(await act(ids.slice(i, i + SLICE))));
  return answers;
}
