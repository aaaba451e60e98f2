import { checkName, type StoredJob } from './job.js';
import { DEFAULT_PREFIX, type QueueKeys, queueKeys, queuesKey, wakeOf } from './keys.js';
import type { Connection, Reply } from './redis.js';
import * as scripts from './scripts.js';
import { packSettings, readSettings, type Settings, type SettingsChange } from './settings.js';

/** Ids of one state are asked for in slices of so many: cheap for Redis, and few are out of date when they are used. */
const SLICE = 200;

/** What operators ask of queues. */
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

  /** Everything that can be counted about a queue at one moment, with up to `upcoming` of the next due times. */
  async inspect(queue: string, upcoming = 0): Promise<scripts.Snapshot> {
    return scripts.inspect(this.#redis, this.#keys(queue), upcoming);
  }

  #keys(queue: string): QueueKeys {
    return queueKeys(this.#prefix, checkName(queue));
  }

  /** All that is known of some jobs, undefined for each that is not there. */
  async show(queue: string, ids: readonly string[]): Promise<(StoredJob | undefined)[]> {
    const found: (StoredJob | undefined)[] = [];
    while (found.length < ids.length) {
      const some = ids.slice(found.length, found.length + SLICE);
      found.push(...(await scripts.show(this.#redis, this.#keys(queue), some)));
    }
    return found;
  }

  /**
   * The ids of jobs of one state, those whose time comes first first, in slices, up to `limit` of them. Jobs that come
   * or go meanwhile may be left out.
   */
  async *ids(queue: string, state: StoredJob['state'], limit = Number.POSITIVE_INFINITY): AsyncGenerator<string[]> {
    let before: readonly scripts.Listed[] = [];
    for (let left = limit; left > 0; left -= before.length) {
      const range = { state, limit: Math.min(left, SLICE), before };
      const slice = await scripts.list(this.#redis, this.#keys(queue), range);
      // The same again: ids that are no text, by which nothing can be found.
      if (slice.length === 0 || String(slice) === String(before)) return;
      before = slice;
      yield before.map(([id]) => id);
    }
  }

  /** The jobs of one state, as {@link Inspector.ids} lists them, up to `limit`. */
  async *list(queue: string, state: StoredJob['state'], limit?: number): AsyncGenerator<StoredJob> {
    for await (const ids of this.ids(queue, state, limit)) {
      for (const job of await this.show(queue, ids)) if (job?.state === state) yield job;
    }
  }

  /** Puts dead jobs back into pending, due now, their counts reset; what they were enqueued with stays. */
  async requeue(queue: string, ids: readonly string[]): Promise<scripts.Requeued[]> {
    const answers: scripts.Requeued[] = [];
    for (let i = 0; i < ids.length; i += SLICE) {
      const some = ids.slice(i, i + SLICE);
      const wake = wakeOf(this.#prefix, queue);
      answers.push(...(await scripts.requeue(this.#redis, this.#keys(queue), some, wake)).answers);
    }
    return answers;
  }

  /** Changes defaults of a queue and returns those that are set. Throws a `usage` error for a value that cannot be. */
  async configure(queue: string, change: SettingsChange = {}): Promise<Partial<Settings>> {
    const packed = packSettings(change);
    const config = await scripts.config(this.#redis, this.#keys(queue), packed);
    // For inspect: a queue may be set up before its first job. Only a hint, so it may fail.
    if (packed.length > 0) await this.#redis.call('SADD', queuesKey(this.#prefix), queue).catch(() => {});
    return readSettings(config);
  }
}

/** Whether anything of the queue is there at all. */
export function exists(snapshot: scripts.Snapshot): boolean {
  const { pending, active, lease, dead, payload, meta, stats, config } = snapshot;
  return pending + active + lease + dead + payload + meta + Object.keys(stats).length + Object.keys(config).length > 0;
}

/**
 * Ids without a payload (`ids`) and payloads without an id (`payloads`), as far as the sizes of the structures tell:
 * only the difference shows, so one of each cancels out.
 */
export function orphans({ pending, active, dead, payload }: scripts.Snapshot): { ids: number; payloads: number } {
  const difference = pending + active + dead - payload;
  return { ids: Math.max(0, difference), payloads: Math.max(0, -difference) };
}

/** How long the job first in line has been due, ms; 0 when none is due. */
export function lag({ now, oldest }: scripts.Snapshot): number {
  return oldest === undefined ? 0 : Math.max(0, now - oldest);
}
