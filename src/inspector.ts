import { checkName } from './job.js';
import { DEFAULT_PREFIX, queueKeys, queuesKey } from './keys.js';
import type { Connection, Reply } from './redis.js';
import * as scripts from './scripts.js';

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
    return scripts.inspect(this.#redis, queueKeys(this.#prefix, checkName(queue)), upcoming);
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
