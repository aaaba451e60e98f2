import { type Id, idOf } from '../model/id.js';
import type { DoneJob, State, StoredJob } from '../model/job.js';
import { readSettings, type Settings } from '../model/settings.js';
import { checkList, keysOf } from '../model/validate.js';
import type { Connection } from '../redis/connection.js';
import { lettersOf } from '../store/answers.js';
import {
  checkEvents,
  type EventBatch,
  type EventsOptions,
  hasEvents,
  type ReadHow,
  readEvents,
} from '../store/events.js';
import { type ErrorTest, errorTest, isMeant, listFailed } from '../store/failures.js';
import { listDone, lookUp } from '../store/finished.js';
import * as looks from '../store/inspect.js';
import type { PrefixOption } from '../store/keys.js';
import { countAll, listAll } from '../store/list.js';
import { movementOf, type Still, untilStill } from '../store/movement.js';
import { ranked } from '../store/order.js';
import { listQueues } from '../store/queues.js';
import { type Store, Stores } from '../store/store.js';
import { inspectAll, inspectEach, type Part } from '../store/sum.js';
import { type ErrorGroup, errorGroups } from './error-groups.js';

/** Selects jobs of a queue. Within a state, jobs are in the order of their times: due, end of the lease, or death. */
export interface Filter {
  /** States to select from, in the order in which jobs are listed. */
  readonly states: readonly State[];
  /** Earliest and latest time, both included, ms since 1970. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
  /** Literal text that the id, the payload or the last error contains. */
  readonly text?: string | undefined;
  /**
   * The kind of the last error, see {@link Inspector.errors}. If no selected job has an error of just this kind: literal
   * text that the last error or its kind contains; `…` in it is any text. A function is called with each last error.
   */
  readonly error?: string | ((error: string) => boolean) | undefined;
  /** Only jobs with a failure or an expired lease. Within a state, those that failed last come first. */
  readonly failed?: boolean | undefined;
  /** The most jobs. */
  readonly limit?: number | undefined;
}

const checkKeys = keysOf<Filter>('a filter', {
  states: true,
  from: true,
  to: true,
  text: true,
  error: true,
  failed: true,
  limit: true,
});

/** Which jobs that are done to list. */
export interface DoneFilter {
  readonly from?: number | undefined;
  readonly to?: number | undefined;
  readonly limit?: number | undefined;
}

const checkRange = keysOf<DoneFilter>('done', { from: true, to: true, limit: true });

/** Returns `filter` if its keys and states are valid. Throws `usage` otherwise. */
export function checkFilter(filter: Filter): Filter {
  lettersOf(checkList(checkKeys(filter).states, 'states'));
  return filter;
}

/** Reads queues and their jobs. Changes nothing; see {@link Operator} for that. */
export class Inspector {
  readonly #stores: Stores;

  /** Throws a `usage` error for an invalid option. */
  constructor(redis: Connection, options: PrefixOption = {}) {
    this.#stores = new Stores(redis, options);
  }

  /** Returns the sorted names of all queues that delayq has enqueued to. Queues filled only by other software may be missing. */
  async queues(): Promise<string[]> {
    return (await listQueues(this.#stores.redis, this.#stores.prefix)).sort();
  }

  /**
   * Returns all counts of a queue, at one moment unless it has partitions, with up to `upcoming` of the next due times.
   * `ahead` is a list of times, ms from now and ascending: for each, the jobs that fall due between the time before it
   * and this one are counted.
   */
  async inspect(queue: string, upcoming = 0, ahead: readonly number[] = []): Promise<looks.Snapshot> {
    return inspectAll(this.#stores.of(queue), upcoming, ahead);
  }

  /**
   * Returns the same for each partition, or why it cannot be read, within `limitMs`. Throws if the first cannot be read and
   * nothing is known of others.
   */
  async partitions(queue: string, upcoming = 0, ahead: readonly number[] = [], limitMs?: number): Promise<Part[]> {
    return inspectEach(this.#stores.of(queue), upcoming, ahead, limitMs);
  }

  /** Returns the settings that are set for a queue. */
  async settings(queue: string): Promise<Partial<Settings>> {
    return readSettings((await this.inspect(queue)).config);
  }

  /**
   * Returns the jobs with these ids, undefined for each that does not exist. All payloads are in memory at the same time;
   * use {@link Inspector.shown} for many jobs.
   */
  async show(queue: string, ids: readonly Id[]): Promise<(StoredJob | undefined)[]> {
    const found: (StoredJob | undefined)[] = [];
    for await (const some of this.shown(queue, ids)) found.push(...some);
    return found;
  }

  /**
   * Like {@link Inspector.show}, but yields as much as one reply of Redis at a time: about 1 MiB of payloads, or one larger
   * payload (of each partition).
   */
  async *shown(queue: string, ids: readonly Id[]): AsyncGenerator<(StoredJob | undefined)[]> {
    yield* looks.show(this.#stores.of(queue), checkList(ids, 'ids'));
  }

  /** Returns `ids` without duplicates: pending jobs in the order in which they fall due, then all others. @internal */
  async inOrder(queue: string, ids: readonly Id[]): Promise<Id[]> {
    return (await ranked(this.#stores.of(queue), 'pending', ids)).map(({ id }) => id);
  }

  /**
   * Until when this id stays taken although its job has ended, ms by Redis's clock; undefined if it does not. A job of this
   * id may exist.
   *
   * @internal
   */
  async rememberedUntil(queue: string, id: Id): Promise<number | undefined> {
    return looks.rememberedUntil(this.#stores.of(queue), id);
  }

  /** Whether a payload is stored under this id, with or without a job. @internal */
  async hasPayload(queue: string, id: Id): Promise<boolean> {
    return looks.hasPayload(this.#stores.of(queue), id);
  }

  /**
   * Yields the ids of the selected jobs in slices. Jobs that are added or removed meanwhile may be left out, and jobs of a
   * slice may be gone before the next slice is read.
   */
  async *ids(queue: string, filter: Filter): AsyncGenerator<Id[]> {
    checkFilter(filter);
    if (filter.text === undefined) {
      for await (const { ids } of this.#slices(queue, filter, filter.limit)) yield ids;
    } else {
      for await (const jobs of this.#replies(queue, filter)) yield jobs.map(idIn);
    }
  }

  /**
   * Returns `filter` with what its `error` means now, so that it selects by the same rule however often it is used.
   *
   * @internal
   */
  async decided(queue: string, filter: Filter): Promise<DecidedFilter> {
    return decide(this.#stores.of(queue), checkFilter(filter));
  }

  /** See {@link untilStill}. @internal */
  again<T>(queue: string, list: () => AsyncIterable<T>, how: Still): AsyncGenerator<T> {
    return untilStill(this.#stores.of(queue), list, how);
  }

  /** See {@link movementOf}. @internal */
  movement(queue: string): Promise<string | null> {
    return movementOf(this.#stores.of(queue));
  }

  /** Counts the selected jobs, at most `limit`. Undefined if the filter has a `text`: only listing the jobs can tell. */
  async count(queue: string, filter: Filter) {
    const { states, from, to, text, limit = Number.POSITIVE_INFINITY } = checkFilter(filter);
    if (text !== undefined) return undefined;
    if (isOfRecords(filter)) {
      let count = 0;
      for await (const { ids } of this.#slices(queue, filter, limit)) count += ids.length;
      return count;
    }
    return Math.min(limit, await countAll(this.#stores.of(queue), states, { from, to }));
  }

  /** Returns the pending and dead jobs that have failed, in groups by their errors, the most frequent first. */
  async errors(queue: string): Promise<ErrorGroup[]> {
    return errorGroups(this.#stores.of(queue));
  }

  /** Yields the selected jobs. Changes made meanwhile have the same effect as for {@link Inspector.ids}. */
  async *list(queue: string, filter: Filter): AsyncGenerator<StoredJob> {
    for await (const jobs of this.#replies(queue, checkFilter(filter))) yield* jobs;
  }

  /**
   * Yields the jobs that were done between `from` and `to`, ms, and are kept (the setting `keepDone`), in the order of
   * these times, at most `limit`.
   */
  async *done(queue: string, range: DoneFilter = {}): AsyncGenerator<DoneJob> {
    const { limit, ...times } = checkRange(range);
    yield* listDone(this.#stores.of(queue), times, limit);
  }

  /** What is kept of each job that is done; undefined: nothing, or it is not done. @internal */
  async doneJobs(queue: string, ids: readonly Id[]): Promise<(DoneJob | undefined)[]> {
    return (await lookUp(this.#stores.of(queue), ids)).map(({ done }) => done);
  }

  /**
   * Yields what happened to jobs, as far as it is kept (the setting `events`), in the order of the times. With `follow`
   * also what happens from now on, until `signal` aborts; those of several partitions then come in the order in which
   * they are read. With `group` it goes on where the last reader of this name has stopped: behind the last event after
   * which that asked for another. Throws `usage` for an invalid option, and what Connection.call throws; with `follow`
   * it repeats what may pass.
   */
  async *events(queue: string, options: EventsOptions & { onMissed?: (count: number) => void } = {}) {
    const { onMissed, ...rest } = options;
    for await (const { events, missed } of this.eventBatches(queue, rest)) {
      if (missed !== 0) onMissed?.(missed);
      yield* events;
    }
  }

  /** As {@link Inspector.events}, with those that are read together. @internal */
  eventBatches(queue: string, options: EventsOptions, how?: ReadHow): AsyncGenerator<EventBatch> {
    return readEvents(this.#stores.of(queue), checkEvents(options), how);
  }

  /** Whether a queue keeps events, or has some. @internal */
  async hasEvents(queue: string): Promise<boolean> {
    return hasEvents(this.#stores.of(queue));
  }

  async *#replies(queue: string, asked: Filter): AsyncGenerator<StoredJob[]> {
    const filter = await this.decided(queue, asked);
    const { text, limit = Number.POSITIVE_INFINITY } = filter;
    const matches = matcherOf(filter);
    let left = limit;
    // With a text, the number of ids that it takes is unknown.
    for await (const { ids, state } of this.#slices(queue, filter, text === undefined ? limit : undefined)) {
      for await (const some of this.shown(queue, ids)) {
        const selected = (job?: StoredJob) => job?.state === state && matches?.(job) !== false;
        const jobs = some.filter(selected).slice(0, left) as StoredJob[];
        left -= jobs.length;
        if (jobs.length > 0) yield jobs;
        if (left <= 0) return;
      }
    }
  }

  async *#slices(
    queue: string,
    filter: Filter,
    limit = Number.POSITIVE_INFINITY,
  ): AsyncGenerator<{ state: State; ids: Id[] }> {
    const { states, from, to } = filter;
    if (isOfRecords(filter)) return yield* listFailed(this.#stores.of(queue), await this.decided(queue, filter), limit);
    let left = limit;
    for (const state of states) {
      for await (const found of listAll(this.#stores.of(queue), state, { from, to }, left)) {
        left -= found.length;
        yield { state, ids: found.map(idOf) };
      }
    }
  }
}

/** Whether a filter can select only jobs that have records. */
const isOfRecords = ({ failed, error }: Filter) => failed || error !== undefined;

/** A filter of which is known whether its `error` is a kind or a text. */
interface DecidedFilter extends Filter {
  readonly error?: ErrorTest | undefined;
}

/** See {@link Inspector.decided}. */
export async function decide(store: Store, { error, ...filter }: Filter): Promise<DecidedFilter> {
  return { ...filter, error: typeof error === 'string' ? await errorTest(store, filter, error) : error };
}

/** Tells whether a job is one that a filter selects, whatever its state and its times; undefined: each is. */
export function matcherOf(filter: DecidedFilter): ((job: StoredJob) => boolean) | undefined {
  const { text } = filter;
  if (text === undefined) return isOfRecords(filter) ? (job) => isMeant(job, filter) : undefined;
  const hasText = (job: StoredJob) => [idIn(job), job.payload, job.error].some((part) => part?.includes(text));
  return (job) => hasText(job) && isMeant(job, filter);
}

/** The id of a job as it is stored. */
const idIn = ({ id, idBase64 }: StoredJob): Id => (idBase64 === undefined ? id : idOf(Buffer.from(idBase64, 'base64')));
