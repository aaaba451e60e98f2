import { DelayqError } from '../model/errors.js';
import { type Id, idOf } from '../model/id.js';
import { checkWord, keysOf } from '../model/validate.js';
import type { Connection } from '../redis/connection.js';
import { type ExportSlice, exportJobs } from '../store/export.js';
import type { ForeignQueue } from '../store/foreign.js';
import type { PrefixOption } from '../store/keys.js';
import { moveJobs, unfinishedMoves } from '../store/move.js';
import type { Moved } from '../store/move-steps.js';
import { restoreJobs } from '../store/restore.js';
import { Stores } from '../store/store.js';
import type { Parcel, Restored } from '../store/transfer.js';
import { type AdoptedSlice, type AdoptOptions, adoptJobs, foreignRest } from './adopt.js';
import { checkFilter, decide, type Filter, matcherOf } from './inspector.js';

/** Where jobs are moved to, and from which states. */
export interface MoveOptions {
  readonly to: string;
  /** Default: pending and dead. */
  readonly states?: readonly ('pending' | 'dead')[] | undefined;
}

const checkMove = keysOf<MoveOptions>('move', { to: true, states: true });

/** Moves jobs out of Redis and back, to another queue, and in from other software. */
export class Transfer {
  readonly #stores: Stores;

  /** Throws a `usage` error for an invalid option. */
  constructor(redis: Connection, options: PrefixOption = {}) {
    this.#stores = new Stores(redis, options);
  }

  /**
   * Yields the selected jobs, byte for byte, in slices; within a state, in the order of their times (of a queue with
   * partitions, one partition after the other). An active job is exported in the state it was taken from. Jobs that change
   * state meanwhile may be left out or come twice, and so may jobs that a growth of the queue moves.
   */
  async *export(
    queue: string,
    filter: Filter = { states: ['pending', 'active', 'dead'] },
  ): AsyncGenerator<ExportSlice> {
    const store = this.#stores.of(queue);
    const { states, from, to, limit } = checkFilter(filter);
    yield* exportJobs(store, { states, from, to, limit, matches: matcherOf(await decide(store, filter)) });
  }

  /**
   * Puts exported jobs into a queue as they were. Jobs whose ids exist there stay as they are. If the reply to a call is
   * lost, the call is repeated. Throws `temporary` if Redis cannot take the jobs now.
   */
  async restore(queue: string, jobs: readonly Parcel[]): Promise<Restored[]> {
    return restoreJobs(this.#stores.of(queue), jobs);
  }

  /**
   * Moves jobs that are in one of `states` to the queue `to`, where they keep their state and time. If this is
   * interrupted, {@link Transfer.resume}, or moving the same jobs again, finishes it; no job is then in both queues,
   * whatever happened to it meanwhile. Throws a `usage` error if both queues are the same.
   */
  async move(queue: string, ids: readonly Id[], options: MoveOptions): Promise<Moved[]> {
    const { to, states = ['pending', 'dead'] } = checkMove(options);
    for (const state of states) checkWord(state, ['pending', 'dead'], 'a state');
    const [source, destination] = [this.#stores.of(queue), this.#stores.of(to)];
    if (queue === to) {
      const next = 'name another queue';
      throw new DelayqError('usage', `cannot move jobs of ${queue} into the same queue`, { next });
    }
    return moveJobs(source, destination, ids, states);
  }

  /** Yields the ids of jobs that interrupted moves to the queue `to` still hold, in slices. */
  async *unfinished(queue: string, to: string): AsyncGenerator<Buffer[]> {
    yield* unfinishedMoves(this.#stores.of(queue), to);
  }

  /** Finishes interrupted moves to the queue `to`. Yields ids and what became of each, in slices. */
  async *resume(queue: string, to: string): AsyncGenerator<{ ids: Id[]; answers: Moved[] }> {
    for await (const ids of this.unfinished(queue, to)) {
      if (ids.length > 0) yield { ids: ids.map(idOf), answers: await this.move(queue, ids, { to }) };
    }
  }

  /**
   * Takes over the jobs of a sorted set, and a hash or string keys, of other software, earliest first, while their
   * producers write. A job is taken over whole, and only if it is still as it was read; across slots of a cluster it is
   * copied first. Yields what became of the jobs, in slices. Throws a `usage` error, before anything is changed, if a
   * key has the wrong type or most times seem to be in the other unit; `missing` if there is no such sorted set, and the
   * queue has never adopted a job.
   */
  async *adopt(queue: string, options: AdoptOptions): AsyncGenerator<AdoptedSlice> {
    for await (const slice of adoptJobs(this.#stores.of(queue), options)) {
      if (slice.adopted + slice.replaced > 0 && !options.dryRun) this.#stores.of(queue).list();
      yield slice;
    }
  }

  /**
   * Returns what is left of a sorted set and a hash of other software: the number of members and of fields, and some
   * fields that are not members. Of string keys only the members are counted.
   */
  async foreignRest(foreign: ForeignQueue): Promise<{ members: number; fields?: number; strays: string[] }> {
    return foreignRest(this.#stores.redis, foreign);
  }
}
