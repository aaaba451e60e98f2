import { Spread } from '../model/due-times.js';
import { type Id, idKey } from '../model/id.js';
import type { StoredJob } from '../model/job.js';
import { packSettings, readSettings, type Settings, type SettingsChange } from '../model/settings.js';
import { checkMs, checkName } from '../model/validate.js';
import type { Connection } from '../redis/connection.js';
import { DEFAULT_PREFIX, type QueueKeys, queueKeys, queuesKey, wakeOf } from '../redis/keys.js';
import * as acts from '../scripts/edit.js';
import * as looks from '../scripts/inspect.js';

/** So many ids go into a call: few enough that nobody else's command waits for long. */
const CHUNK = 100;

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
    ids: readonly Id[],
    states: readonly StoredJob['state'][] = ['pending', 'active', 'dead'],
  ): Promise<acts.Cancelled[]> {
    return inChunks(ids, async (some) => (await acts.cancel(this.#redis, this.#keys(queue), some, states)).answers);
  }

  /**
   * Puts dead jobs back into pending, their counts reset; what they were enqueued with stays, and their time to live counts
   * anew. Due now, all at once, or as `spread` says. What could not be handed out stays dead.
   */
  async requeue(queue: string, ids: readonly Id[], spread = new Spread({ stepMs: 0 })): Promise<acts.Requeued[]> {
    const how = { spread, wake: wakeOf(this.#prefix, queue) };
    return inChunks(ids, async (some) => (await acts.requeue(this.#redis, this.#keys(queue), some, how)).answers);
  }

  /**
   * Gives pending jobs new due times, in the order in which they stand in line; active and dead ones are left. A time to
   * live counts anew, from the new due time. Further calls with the same `spread` put theirs behind these.
   */
  async reschedule(queue: string, ids: readonly Id[], spread: Spread): Promise<acts.Rescheduled[]> {
    const keys = this.#keys(queue);
    const how = { spread, wake: wakeOf(this.#prefix, queue) };
    // A call sees to the order of its own.
    const line = ids.length > CHUNK ? await looks.inOrder(this.#redis, keys, ids) : ids;
    const answers = await inChunks(line, async (some) => (await acts.reschedule(this.#redis, keys, some, how)).answers);
    const answerOf = new Map(line.map((id, i) => [idKey(id), answers[i]] as const));
    return ids.map((id) => answerOf.get(idKey(id)) as acts.Rescheduled);
  }

  /**
   * Puts pending jobs among the dead, where they stay until requeued (due now, as all that are) or cancelled. `reason` is
   * kept as their last error, cut to {@link MAX_ERROR} characters. Active jobs are left.
   */
  async bury(queue: string, ids: readonly Id[], { reason = '' } = {}): Promise<acts.Buried[]> {
    return inChunks(ids, async (some) => (await acts.bury(this.#redis, this.#keys(queue), some, reason)).answers);
  }

  /**
   * Removes all jobs of `states` (any, when left out), a chunk for each turn of the loop, and tells how many each removed.
   * Of all states, only active jobs take chunks: the rest goes at once, with what belongs to no id. A handler that runs is
   * not stopped.
   */
  async *purge(
    queue: string,
    states: readonly StoredJob['state'][] = ['pending', 'active', 'dead'],
  ): AsyncGenerator<acts.Purged> {
    for (let more = true; more; ) {
      const purged = await acts.purge(this.#redis, this.#keys(queue), states, CHUNK);
      more = purged.more;
      yield purged;
    }
  }

  /** Removes counters, settings and the name of a queue without jobs. False, and nothing is done, when it has some. */
  async forget(queue: string): Promise<boolean> {
    const keys = this.#keys(queue);
    if (!(await acts.forget(this.#redis, keys))) return false;
    const list = queuesKey(this.#prefix);
    await this.#redis.call('SREM', list, queue);
    // A producer may have made it anew, and listed it, before that.
    const anew = await this.#redis.call('EXISTS', keys.stats, keys.config);
    if (Number(anew) > 0) await this.#redis.call('SADD', list, queue);
    return true;
  }

  /**
   * Has drains take nothing from a queue for `forMs`, by Redis's clock, or until {@link Operator.resume}. What was taken
   * before goes on, and so do enqueue, ack, nack and renew; no lease is taken back.
   */
  async pause(queue: string, { forMs = Number.POSITIVE_INFINITY } = {}): Promise<acts.Paused> {
    const ms = forMs === Number.POSITIVE_INFINITY ? forMs : Math.round(checkMs(forMs, 'forMs', 1));
    return acts.pause(this.#redis, this.#keys(queue), ms, wakeOf(this.#prefix, queue));
  }

  /** Has drains take from a queue again: those that wait, at once. */
  async resume(queue: string): Promise<acts.Paused> {
    return acts.pause(this.#redis, this.#keys(queue), undefined, wakeOf(this.#prefix, queue));
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
