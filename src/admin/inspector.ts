import { type Id, idOf } from '../model/id.js';
import type { StoredJob } from '../model/job.js';
import { readSettings, type Settings } from '../model/settings.js';
import { checkName } from '../model/validate.js';
import type { Connection, Reply } from '../redis/connection.js';
import { DEFAULT_PREFIX, type QueueKeys, queueKeys, queuesKey } from '../redis/keys.js';
import { FURTHEST } from '../redis/replies.js';
import * as looks from '../scripts/inspect.js';
import type { Sample } from '../scripts/samples.js';

/** Ids of one state are asked for in slices of so many: cheap for Redis, and few are out of date when they are used. */
const SLICE = 200;

/** So many leases are looked at to tell who holds them: a ms of Redis's time. */
const HELD = 250;

/** Which jobs of a queue are meant. Of each state in the order of their times: due, lease end, death. */
export interface Filter {
  readonly states: readonly StoredJob['state'][];
  /** Times before and after which a job is left out, ms. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
  /** Text that stands, as it is, in the id, the payload or the last error. */
  readonly text?: string | undefined;
  /** The most jobs. */
  readonly limit?: number | undefined;
}

/** How operators look at queues. What they do is in Operator. */
export class Inspector {
  readonly #redis: Connection;
  readonly #prefix: string;

  /** Throws a `usage` error when `prefix` cannot be one. */
  constructor(redis: Connection, { prefix = DEFAULT_PREFIX }: { prefix?: string } = {}) {
    this.#redis = redis;
    this.#prefix = checkName(prefix, 'prefix');
  }

  /** Names of the queues that delayq has enqueued to, sorted. A queue filled only by other software may be missing. */
  async queues(): Promise<string[]> {
    const names = (await this.#redis.call('SMEMBERS', queuesKey(this.#prefix))) as Reply[];
    return names.map(String).sort();
  }

  /**
   * Everything that can be counted about a queue at one moment, with up to `upcoming` of the next due times, and how many
   * jobs fall due up to each of `ahead` (ms from now, ascending) from the one before on.
   */
  async inspect(queue: string, upcoming = 0, ahead: readonly number[] = []): Promise<looks.Snapshot> {
    return looks.inspect(this.#redis, this.#keys(queue), upcoming, ahead);
  }

  /** Who holds leases, by the first 250 active jobs (`seen` of `active`): those whose lease ends first. */
  async holders(queue: string): Promise<Awaited<ReturnType<typeof looks.holders>>> {
    return looks.holders(this.#redis, this.#keys(queue), HELD);
  }

  #keys(queue: string): QueueKeys {
    return queueKeys(this.#prefix, checkName(queue));
  }

  /** The defaults that are set for a queue. */
  async settings(queue: string): Promise<Partial<Settings>> {
    return readSettings((await this.inspect(queue)).config);
  }

  /**
   * All that is known of some jobs, undefined for each that is not there. All payloads are in memory together: for many
   * jobs there is {@link Inspector.shown}.
   */
  async show(queue: string, ids: readonly Id[]): Promise<(StoredJob | undefined)[]> {
    const found: (StoredJob | undefined)[] = [];
    for await (const some of this.shown(queue, ids)) found.push(...some);
    return found;
  }

  /** The same, one reply of Redis at a time: about 1 MiB of payloads, or a single larger one. */
  async *shown(queue: string, ids: readonly Id[]): AsyncGenerator<(StoredJob | undefined)[]> {
    for (let at = 0; at < ids.length; ) {
      const some = await looks.show(this.#redis, this.#keys(queue), ids.slice(at, at + SLICE));
      at += some.length;
      yield some;
    }
  }

  /** `ids`, each once, in the order in which their jobs stand in line; those that are not pending behind the others. */
  async inOrder(queue: string, ids: readonly Id[]): Promise<Id[]> {
    return looks.inOrder(this.#redis, this.#keys(queue), ids);
  }

  /** Whether there is a payload of this id, be there a job or not. */
  async hasPayload(queue: string, id: Id): Promise<boolean> {
    return looks.hasPayload(this.#redis, this.#keys(queue), id);
  }

  /**
   * The ids of the jobs that are meant, in slices. Jobs that come or go meanwhile may be left out; those of a slice
   * may be gone before the next one is asked for.
   */
  async *ids(queue: string, filter: Filter): AsyncGenerator<Id[]> {
    if (filter.text === undefined) {
      for await (const { ids } of this.#slices(queue, filter, filter.limit)) yield ids;
    } else {
      for await (const jobs of this.#replies(queue, filter)) yield jobs.map(idIn);
    }
  }

  /** How many jobs are meant, at most `limit`; undefined when only listing them tells, as a text is asked for. */
  async count(queue: string, { states, from, to, text, limit = Number.POSITIVE_INFINITY }: Filter) {
    if (text !== undefined) return undefined;
    const keys = this.#keys(queue);
    const count = (state: StoredJob['state']) => this.#redis.call('ZCOUNT', keys[state], from ?? '-inf', to ?? '+inf');
    const counts = (await Promise.all(states.map(count))).map(Number);
    return Math.min(
      limit,
      counts.reduce((all, n) => all + n, 0),
    );
  }

  /** The jobs that are meant, as {@link Inspector.ids} lists them. */
  async *list(queue: string, filter: Filter): AsyncGenerator<StoredJob> {
    for await (const jobs of this.#replies(queue, filter)) yield* jobs;
  }

  /** The jobs that are meant, those of one reply together. */
  async *#replies(queue: string, filter: Filter): AsyncGenerator<StoredJob[]> {
    const { text, limit = Number.POSITIVE_INFINITY } = filter;
    let left = limit;
    // With a text nobody knows how many to ask for.
    for await (const { ids, state } of this.#slices(queue, filter, text === undefined ? limit : undefined)) {
      for await (const some of this.shown(queue, ids)) {
        const meant = (job?: StoredJob) => job?.state === state && (text === undefined || holds(job, text));
        const jobs = some.filter(meant).slice(0, left) as StoredJob[];
        left -= jobs.length;
        if (jobs.length > 0) yield jobs;
        if (left <= 0) return;
      }
    }
  }

  async *#slices(
    queue: string,
    { states, from, to }: Filter,
    limit = Number.POSITIVE_INFINITY,
  ): AsyncGenerator<{ state: StoredJob['state']; ids: Id[] }> {
    let left = limit;
    for (const state of states) {
      let before: readonly Reply[] = [];
      while (left > 0) {
        const most = { limit: Math.min(left, SLICE), before };
        before = await looks.list(this.#redis, this.#keys(queue), state, { from, to }, most);
        if (before.length === 0) break;
        const ids = before.filter((_, i) => i % 2 === 0).map((id) => idOf(id as Buffer));
        left -= ids.length;
        yield { state, ids };
      }
    }
  }
}

/** Whether `text` stands in the id, the payload or the last error of a job. */
export function holds(job: StoredJob, text: string): boolean {
  return [idIn(job), job.payload, job.error].some((part) => part?.includes(text));
}

/** The id of a job as it is stored. */
const idIn = ({ id, idBase64 }: StoredJob): Id => (idBase64 === undefined ? id : idOf(Buffer.from(idBase64, 'base64')));

/** Whether anything of the queue is there at all. */
export function exists(snapshot: looks.Snapshot): boolean {
  const { pending, active, lease, dead, payload, meta, stats, config } = snapshot;
  return pending + active + lease + dead + payload + meta + Object.keys(stats).length + Object.keys(config).length > 0;
}

/**
 * Ids without a payload (`ids`) and payloads without an id (`payloads`), as far as the sizes of the structures tell:
 * only the difference shows, so one of each cancels out.
 */
export function orphans({ pending, active, dead, payload }: looks.Snapshot): { ids: number; payloads: number } {
  const difference = pending + active + dead - payload;
  return { ids: Math.max(0, difference), payloads: Math.max(0, -difference) };
}

/** How long the job first in line has been due, ms; 0 when none is due. */
export function lag({ now, oldest }: looks.Snapshot): number {
  return oldest === undefined ? 0 : Math.max(0, now - oldest);
}

/** Until when drains take nothing, ms by Redis's clock (Infinity: until they are told otherwise); undefined: they take. */
export function pausedUntil({ config, now }: looks.Snapshot): number | undefined {
  const { paused } = config;
  if (paused === undefined) return undefined;
  const until = /^\+?inf(inity)?$/i.test(paused) ? Number.POSITIVE_INFINITY : Number(paused);
  if (!(until > now)) return undefined;
  // Further than any time that can be told.
  return until <= FURTHEST ? until : Number.POSITIVE_INFINITY;
}

/** How the queue stands, in the form of its samples. */
export function standing(snapshot: looks.Snapshot): Sample {
  const { now: at, due, pending, stats } = snapshot;
  const { enqueued = 0, delivered = 0, acked = 0, removed = 0, retried = 0, dead = 0 } = stats;
  return { at, enqueued, delivered, done: acked + removed, retried, dead, due, lag: lag(snapshot), pending };
}

/** A job that has been due, or a queue that has not been drained, for so long is late, ms: cron comes once a minute. */
export const LATE_MS = 120_000;

/** How long ago a drain last asked for jobs or held on to some, ms (Infinity: never, as far as can be read). */
export function drainAge({ stats, now }: looks.Snapshot): number {
  return stats.drained ? Math.max(0, now - stats.drained) : Number.POSITIVE_INFINITY;
}

/**
 * For how long nobody has drained a queue in which jobs have been due for two minutes or leases have run out, ms
 * (Infinity: nobody ever has). Undefined when all is well, or the queue is paused.
 */
export function stalled(snapshot: looks.Snapshot): number | undefined {
  const age = drainAge(snapshot);
  const waits = (lag(snapshot) >= LATE_MS || snapshot.runOut > 0) && pausedUntil(snapshot) === undefined;
  return waits && age >= LATE_MS ? age : undefined;
}
