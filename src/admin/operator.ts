import { Spread } from '../model/due-times.js';
import { DelayqError } from '../model/errors.js';
import { type Id, idOf } from '../model/id.js';
import { lifetime, type State, type StoredJob } from '../model/job.js';
import { jsonOf, RawPayload } from '../model/payload.js';
import { packSettings, readSettings, type Settings, type SettingsChange } from '../model/settings.js';
import { checkCount, checkList, checkMs, keysOf } from '../model/validate.js';
import type { Connection } from '../redis/connection.js';
import * as edits from '../store/edit.js';
import { type Growth, grow, type Partitioning, partitioningOf } from '../store/grow.js';
import type { PrefixOption } from '../store/keys.js';
import { Stores } from '../store/store.js';

const checkCancel = keysOf<{ keepId?: boolean | undefined }>('cancel', { keepId: true });
/** New limits of jobs that are requeued. */
interface RequeueOptions {
  readonly ttl?: number | string | undefined;
  readonly deliveries?: number | undefined;
}
const checkRequeue = keysOf<RequeueOptions>('requeue', { ttl: true, deliveries: true });
const checkBury = keysOf<{ reason?: string }>('bury', { reason: true });
const checkPurge = keysOf<{ due?: boolean | undefined }>('purge', { due: true });
const checkPause = keysOf<{ forMs?: number | undefined }>('pause', { forMs: true });

/** Changes queues and their jobs. See {@link Inspector} for reading them. */
export class Operator {
  readonly #stores: Stores;

  /** Throws a `usage` error for an invalid option. */
  constructor(redis: Connection, options: PrefixOption = {}) {
    this.#stores = new Stores(redis, options);
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
  ): Promise<edits.Cancelled[]> {
    const { keepId } = checkCancel(options);
    return edits.cancel(this.#stores.of(queue), checkList(ids, 'ids'), states, keepId);
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
  ): Promise<edits.Requeued[]> {
    const { ttl, deliveries } = checkRequeue(options);
    const limits = { ttl: lifetime(ttl), deliveries: checkCount(deliveries, 'deliveries') };
    return edits.requeue(this.#stores.of(queue), checkList(ids, 'ids'), spread, limits);
  }

  /**
   * Gives a pending or dead job the payload that `change` returns for it (as {@link NewJob.payload}); `undefined` leaves
   * the job as it is. A pending job stays due as it is. A dead one is pending again, as after {@link Operator.requeue}, in
   * the same step. Changes nothing if the job has changed in any way since `change` was given it, however long that takes.
   * Throws `data` for a payload that JSON cannot represent, and what `change` throws.
   */
  async edit(queue: string, id: Id, change: (job: StoredJob) => unknown): Promise<edits.Edited> {
    const store = this.#stores.of(queue);
    const read = await edits.readToEdit(store, id);
    if (!read) return 'missing';
    if (read.job.state === 'active') return 'active';
    if (typeof idOf(Buffer.from(id as string)) !== 'string') return 'bad-id';
    const payload = await change(read.job);
    if (payload === undefined) return 'unchanged';
    return edits.edit(store, id, read.mark, payload instanceof RawPayload ? payload.bytes : jsonOf(payload).text);
  }

  /**
   * Gives pending jobs new due times, in the order in which they fall due now. Active and dead jobs do not change. A time
   * to live starts again at the new due time. Further calls with the same `spread` continue after these jobs.
   */
  async reschedule(queue: string, ids: readonly Id[], spread: Spread): Promise<edits.Rescheduled[]> {
    return edits.reschedule(this.#stores.of(queue), checkList(ids, 'ids'), spread);
  }

  /**
   * Moves pending jobs to the dead set, until they are requeued or cancelled. Stores `reason` as their last error, cut to
   * 2,000 characters. Active jobs do not change.
   */
  async bury(queue: string, ids: readonly Id[], options: { reason?: string } = {}): Promise<edits.Buried[]> {
    const { reason = '' } = checkBury(options);
    return edits.bury(this.#stores.of(queue), checkList(ids, 'ids'), reason);
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
  ): AsyncGenerator<edits.Purged> {
    const { due = false } = checkPurge(options);
    if (due && (states.length !== 1 || states[0] !== 'pending')) {
      const next = "give ['pending'], or leave out due";
      throw new DelayqError('usage', 'only pending jobs are due', { why: 'other states are given', next });
    }
    yield* edits.purge(this.#stores.of(queue), states, due);
  }

  /** Removes counters, settings, remembered ids and the name of a queue. Returns false, and changes nothing, if it has jobs. */
  async forget(queue: string): Promise<boolean> {
    return edits.forget(this.#stores.of(queue));
  }

  /**
   * Stops delivering jobs from a queue for `forMs` by Redis's clock (default: until {@link Operator.resume}). Jobs that are
   * active go on; enqueue, ack, nack and renew work as always. Expired leases are not taken back until the queue resumes.
   * Throws `temporary` while some partitions have not confirmed.
   */
  async pause(queue: string, options: { forMs?: number | undefined } = {}): Promise<edits.Paused> {
    const { forMs = Number.POSITIVE_INFINITY } = checkPause(options);
    const ms = forMs === Number.POSITIVE_INFINITY ? forMs : Math.round(checkMs(forMs, 'forMs', 1));
    return edits.pause(this.#stores.of(queue), ms);
  }

  /** Delivers jobs from a queue again. Waiting drains notice at once. Throws as {@link Operator.pause}. */
  async resume(queue: string): Promise<edits.Paused> {
    return edits.pause(this.#stores.of(queue), undefined);
  }

  /**
   * Grows a queue to `count` partitions while it works, and yields how far it is. If this is interrupted at any moment, a
   * repeat goes on. Throws `usage` if the queue has more, `temporary` if replicas do not follow.
   */
  async *partition(queue: string, count: number): AsyncGenerator<Growth> {
    // As for settings: the queue may have no jobs yet.
    if (count > 1) await this.#stores.of(queue).list();
    yield* grow(this.#stores.of(queue), count);
  }

  /** Returns how many partitions a queue has, and how far its growth is if one is open. Changes nothing. */
  async partitions(queue: string): Promise<Partitioning> {
    return partitioningOf(this.#stores.of(queue));
  }

  /**
   * Changes settings of a queue and returns all that are set. Throws a `usage` error for an invalid value, `config` for a
   * limit of a queue that has partitions, `temporary` while some partitions have not confirmed.
   */
  async configure(queue: string, change: SettingsChange): Promise<Partial<Settings>> {
    return readSettings(await this.configured(queue, change));
  }

  /** Does what configure does, and returns the config as it is stored, with what other software has written. @internal */
  async configured(queue: string, change: SettingsChange): Promise<Record<string, string>> {
    const packed = packSettings(change);
    const config = await edits.configure(this.#stores.of(queue), packed);
    // So that inspect shows a queue that has settings but no jobs yet.
    if (packed.length > 0) await this.#stores.of(queue).list();
    return config;
  }
}
