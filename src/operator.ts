import * as acts from './acts.js';
import { checkName, type StoredJob } from './job.js';
import { DEFAULT_PREFIX, type QueueKeys, queueKeys, queuesKey, wakeOf } from './keys.js';
import type { Connection } from './redis.js';
import { packSettings, readSettings, type Settings, type SettingsChange } from './settings.js';

/** So many ids go into a call: few enough that nobody else's command waits for long. */
const CHUNK = 200;

/** What operators do to queues. How they look is in Inspector. */
export class Operator {
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
   * Removes jobs that are in one of `states` (any, when left out), and answers with the state that each was in. A handler
   * that runs is not stopped.
   */
  async cancel(
    queue: string,
    ids: readonly string[],
    states: readonly StoredJob['state'][] = ['pending', 'active', 'dead'],
  ): Promise<acts.Cancelled[]> {
    return inChunks(ids, async (some) => (await acts.cancel(this.#redis, this.#keys(queue), some, states)).answers);
  }

  /** Puts dead jobs back into pending, due now, their counts reset; what they were enqueued with stays. */
  async requeue(queue: string, ids: readonly string[]): Promise<acts.Requeued[]> {
    const wake = wakeOf(this.#prefix, queue);
    return inChunks(ids, async (some) => (await acts.requeue(this.#redis, this.#keys(queue), some, wake)).answers);
  }

  /** Changes defaults of a queue and returns those that are set. Throws a `usage` error for a value that cannot be. */
  async configure(queue: string, change: SettingsChange): Promise<Partial<Settings>> {
    const packed = packSettings(change);
    const config = await acts.config(this.#redis, this.#keys(queue), packed);
    // For inspect: a queue may be set up before its first job. Only a hint, so it may fail.
    if (packed.length > 0) await this.#redis.call('SADD', queuesKey(this.#prefix), queue).catch(() => {});
    return readSettings(config);
  }
}

/** What `act` answers for all of `list`, some of which it is given at a time. */
async function inChunks<T, A>(list: readonly T[], act: (some: readonly T[]) => Promise<A[]>): Promise<A[]> {
  const answers: A[] = [];
  for (let i = 0; i < list.length; i += CHUNK) answers.push(...(await act(list.slice(i, i + CHUNK))));
  return answers;
}
