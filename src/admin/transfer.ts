import { DelayqError, isDelayqError } from '../model/errors.js';
import { type Id, idOf, randomWord } from '../model/id.js';
import type { Answer } from '../model/job.js';
import { checkName } from '../model/validate.js';
import type { Connection, Reply } from '../redis/connection.js';
import { DEFAULT_PREFIX, type QueueKeys, queueKeys, queuesKey, wakeOf } from '../redis/keys.js';
import { text } from '../redis/replies.js';
import { repeatIfLost } from '../redis/retry.js';
import { MAX_BYTES } from '../redis/script.js';
import * as looks from '../scripts/inspect.js';
import { type Raw, raw, stored } from '../scripts/stored.js';
import * as moves from '../scripts/transfer.js';
import { type AdoptedSlice, type AdoptOptions, adoption, type ForeignQueue, foreignRest } from './adopt.js';
import { type Filter, holds } from './inspector.js';

/** So many jobs go into a call: few enough that nobody else's command waits for long. */
const CHUNK = 100;

/** A job on its way out. */
export interface Exported extends moves.Parcel {
  /** Who held it: it then is told as it stood before. */
  readonly held: 'consumer' | 'move' | undefined;
}

/** Some jobs of a queue, and the ids of those that have no payload and so cannot go. */
export interface ExportSlice {
  readonly jobs: readonly Exported[];
  readonly orphans: readonly Id[];
}

/**
 * What move did: the job is in the other queue, where it was `kept` if one with the same id and payload was there
 * already; or it stays, as another payload is there under its id (`differs`), it is dead there (`kept-dead`), a move
 * that has not ended holds one of its id there (`held`), a consumer holds it here (`active`) or it has no payload
 * (`orphaned`); it is not there (`missing`); or it was cancelled or replaced while its copy stays (`superseded`).
 */
export type Moved =
  | 'moved'
  | 'kept'
  | 'kept-dead'
  | 'differs'
  | 'held'
  | 'active'
  | 'missing'
  | 'orphaned'
  | 'superseded';

const MOVABLE = ['pending', 'dead'] as const;

/** How jobs go from one place to another: out of Redis and back, to another queue, in from other software. */
export class Transfer {
  readonly #redis: Connection;
  readonly #prefix: string;

  /** Throws a `usage` error when `prefix` cannot be one. */
  constructor(redis: Connection, { prefix = DEFAULT_PREFIX }: { prefix?: string } = {}) {
    this.#redis = redis;
    this.#prefix = checkName(prefix, 'prefix');
  }

  #keys(queue: string): QueueKeys {
    return queueKeys(this.#prefix, checkName(queue));
  }

  /**
   * Lists a queue for `inspect`. In a call of its own, as the list lives in another slot; only a hint, so it may fail. With
   * every slice of jobs, as Redis may have come back empty since the last one.
   */
  #list(queue: string): void {
    this.#redis.call('SADD', queuesKey(this.#prefix), queue).catch(() => {});
  }

  /**
   * The jobs that are meant, byte for byte, in slices; of each state in the order of their times. A job that somebody
   * holds is told as it stood before. Jobs that change their state meanwhile may be left out or come twice.
   */
  async *export(
    queue: string,
    filter: Filter = { states: ['pending', 'active', 'dead'] },
  ): AsyncGenerator<ExportSlice> {
    const keys = this.#keys(queue);
    const now = await this.#redis.now();
    let left = filter.limit ?? Number.POSITIVE_INFINITY;
    for (const state of filter.states) {
      const slice = (before: readonly Reply[]) => {
        const asked = looks.list(this.#redis, keys, state, filter, { limit: CHUNK, before });
        asked.catch(() => {});
        return asked;
      };
      let next = slice([]);
      for (let found = await next; found.length > 0 && left > 0; found = await next) {
        // Asked for while this one is read and written.
        next = slice(found);
        const ids = found.filter((_, i) => i % 2 === 0);
        for (let at = 0; at < ids.length && left > 0; ) {
          const rows = await raw(this.#redis, keys, ids.slice(at));
          const jobs: Exported[] = [];
          const orphans: Id[] = [];
          for (const [i, row] of rows.entries()) {
            const id = ids[at + i] as Buffer;
            const there = state.startsWith(text(row.state)) && text(row.state) !== '';
            const asked = filter.text === undefined || (there && holds(stored(idOf(id), row), filter.text));
            if (!there || !asked || left <= 0) continue;
            left -= 1;
            if (row.payload) jobs.push(exported(id, state, row, now));
            else orphans.push(idOf(id));
          }
          at += rows.length;
          yield { jobs, orphans };
        }
      }
    }
  }

  /**
   * Puts jobs into a queue as they are, in batches; ids that are there stay as they are. When a reply is lost the batch
   * is sent again. Throws `temporary` when Redis cannot take them now.
   */
  async restore(queue: string, jobs: readonly moves.Parcel[]): Promise<moves.Restored[]> {
    const keys = this.#keys(queue);
    const how = { wake: wakeOf(this.#prefix, queue) };
    const restored: moves.Restored[] = [];
    for (const some of batches(jobs)) {
      this.#list(queue);
      restored.push(...(await repeatIfLost(() => moves.restore(this.#redis, keys, some, how))));
    }
    return restored;
  }

  /**
   * Moves jobs that are in one of `states` to another queue, where they stand as they stood. Each step of it can be the
   * last: what was begun is ended by {@link Transfer.resume}, or by moving the same jobs to the same queue again, and
   * then no job is there twice, whatever became of it meanwhile. Throws a `usage` error when both are the same queue.
   */
  async move(
    queue: string,
    ids: readonly Id[],
    { to, states = MOVABLE }: { to: string; states?: readonly ('pending' | 'dead')[] },
  ): Promise<Moved[]> {
    const from = { keys: this.#keys(queue), wake: wakeOf(this.#prefix, queue) };
    const dest = { keys: this.#keys(to), wake: wakeOf(this.#prefix, to) };
    if (queue === to) {
      throw new DelayqError('usage', `${queue} is the queue that the jobs are in`, { next: 'name another one' });
    }
    const answers: Moved[] = [];
    while (answers.length < ids.length) {
      this.#list(to);
      const some = ids.slice(answers.length, answers.length + CHUNK);
      const receipt = randomWord(12);
      const held = await moves.hold(this.#redis, from.keys, some, { states, receipt, by: byOf(to) });
      const jobs = held.filter((hold) => typeof hold !== 'string');
      const done = jobs.length > 0 ? await this.#carry(jobs, { from, dest, receipt }) : [];
      answers.push(...held.map((hold) => (typeof hold === 'string' ? hold : (done.shift() as Moved))));
    }
    return answers;
  }

  /** Copies jobs that are held, and lets go of them. */
  async #carry(
    jobs: readonly { readonly parcel: moves.Parcel; readonly token: string }[],
    { from, dest, receipt }: { from: Place; dest: Place; receipt: string },
  ): Promise<Moved[]> {
    const tokens = jobs.map(({ token }) => token);
    const end = (some: typeof jobs, moved: (i: number) => boolean) =>
      moves.finish(
        this.#redis,
        from.keys,
        some.map(({ parcel: { id } }, i) => ({ id, moved: moved(i) })),
        { receipt, wake: from.wake },
      );
    let restored: moves.Restored[];
    try {
      const parcels = jobs.map(({ parcel }) => parcel);
      restored = await moves.restore(this.#redis, dest.keys, parcels, { wake: dest.wake, tokens });
    } catch (error) {
      // Nothing was copied, so they go back; but for those of which an earlier move may have made a copy.
      const fresh = jobs.filter(({ token }) => token === receipt);
      if (!isDelayqError(error, 'unknown') && fresh.length > 0) await end(fresh, () => false).catch(() => {});
      throw error;
    }
    const gone = (i: number) => restored[i] === 'created' || restored[i] === 'kept';
    const ended = await end(jobs, gone);
    // A token must outlive the hold: whoever takes over a job asks for it, and so does, if it only slept, the move that
    // was taken over. So only who held a job first and let go of it forgets its token; what else is left, doctor sweeps.
    await moves.forgetTokens(
      this.#redis,
      dest.keys,
      jobs.filter(({ token }, i) => gone(i) && ended[i] !== 'lost' && token === receipt),
    );
    return restored.map((outcome, i) => movedOf(outcome, ended[i] as Answer));
  }

  /** The ids of the jobs that moves to the queue `to` have held and not let go of, because they were interrupted. */
  async *unfinished(queue: string, to: string): AsyncGenerator<Buffer[]> {
    const keys = this.#keys(queue);
    const ending = ` ${byOf(to)} `;
    let before: readonly Reply[] = [];
    for (;;) {
      before = await looks.list(this.#redis, keys, 'active', { from: 'inf' }, { limit: CHUNK, before });
      if (before.length === 0) return;
      const ids = before.filter((_, i) => i % 2 === 0) as Buffer[];
      const leases = (await this.#redis.call('HMGET', keys.lease, ...ids)) as Reply[];
      yield ids.filter((_, i) => text(leases[i]).includes(ending));
    }
  }

  /** Ends what moves to the queue `to` have begun, in slices: the ids, and what became of each. */
  async *resume(queue: string, to: string): AsyncGenerator<{ ids: Id[]; answers: Moved[] }> {
    for await (const ids of this.unfinished(queue, to)) {
      if (ids.length > 0) yield { ids: ids.map(idOf), answers: await this.move(queue, ids, { to }) };
    }
  }

  /** Takes over the jobs of a sorted set and a hash of other software, in slices: see {@link adoption}. */
  async *adopt(queue: string, options: AdoptOptions): AsyncGenerator<AdoptedSlice> {
    const keys = this.#keys(queue);
    for await (const slice of adoption(this.#redis, keys, options, wakeOf(this.#prefix, queue))) {
      if (slice.adopted > 0 && !options.dryRun) this.#list(queue);
      yield slice;
    }
  }

  /** What is left of a sorted set and a hash: how many members and fields, and some fields that are no members. */
  async foreignRest(foreign: ForeignQueue): Promise<{ members: number; fields: number; strays: string[] }> {
    return foreignRest(this.#redis, foreign);
  }
}

type Place = { readonly keys: QueueKeys; readonly wake: { readonly channel: string; readonly pollMs: number } };

/** A score as Redis writes it. */
export const SCORE = /^-?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf)$/;

/** By whom jobs are held that are on their way to a queue. */
const byOf = (to: string) => `move:${to}`;

function movedOf(outcome: moves.Restored, ended: Answer): Moved {
  if (outcome !== 'created' && outcome !== 'kept') return outcome;
  if (ended === 'superseded') return 'superseded';
  // Lost: another move to the same queue took it over, and ends it.
  return outcome === 'kept' ? 'kept' : 'moved';
}

/** A job as it stands, or stood before somebody held it. */
function exported(id: Buffer, state: string, row: Raw, now: number): Exported {
  const record = (row.record as Buffer | null) ?? undefined;
  const payload = row.payload as Buffer;
  if (state !== 'active') {
    return { id, state: state as 'pending' | 'dead', score: text(row.score), record, payload, held: undefined };
  }
  const { moving } = stored('', row);
  const due = text(row.held).split(' ')[1] ?? '';
  // What cannot be a time is due now, as it is for whoever takes a lease back.
  const score = SCORE.test(due) ? due : String(now);
  return { id, state: moving?.from ?? 'pending', score, record, payload, held: moving ? 'move' : 'consumer' };
}

/** Cuts jobs into batches of few enough jobs and bytes. */
function* batches(jobs: readonly moves.Parcel[]): Generator<readonly moves.Parcel[]> {
  let start = 0;
  let size = 0;
  for (const [i, { payload }] of jobs.entries()) {
    if (i > start && (i - start >= CHUNK || size + payload.length > MAX_BYTES)) {
      yield jobs.slice(start, i);
      start = i;
      size = 0;
    }
    size += payload.length;
  }
  if (start < jobs.length) yield jobs.slice(start);
}
