import { isDelayqError } from '../model/errors.js';
import { slotOfKey } from '../redis/slots.js';
import { type Asked, ask, lettersOf } from './answers.js';
import { byId } from './by-id.js';
import { CANCEL, cancel } from './edit.js';
import type { ForeignJob, ForeignJobs } from './foreign.js';
import type { QueueKeys } from './keys.js';
import { text } from './replies.js';
import type { Store } from './store.js';
import { raw } from './stored.js';
import { restore } from './transfer.js';

/**
 * The result of an adopt. The job was moved here: `adopted`, or `replaced` another with its id. It was not: an equal
 * job was here (`kept`), another job has its id (`exists`), or it has `changed` since it was read.
 */
export type Adopted = 'adopted' | 'replaced' | 'kept' | 'exists' | 'changed';

const ADOPT: Asked<Adopted> = {
  script: 'transfer/adopt',
  letters: { c: 'adopted', r: 'replaced', k: 'kept', e: 'exists', x: 'changed' },
};

/** Takes jobs of other software into a queue. */
export class Adoption {
  readonly #store: Store;
  readonly #foreign: ForeignJobs;
  /** In place of other jobs with their ids, also if they are active. */
  readonly #replace: boolean;
  /** Whether keys are in several slots of a cluster, so that no script can reach all. */
  #isSharded: Promise<boolean> | undefined;

  constructor(store: Store, foreign: ForeignJobs, replace: boolean) {
    this.#store = store;
    this.#foreign = foreign;
    this.#replace = replace;
  }

  /** Whether the queue has ever adopted a job. */
  async hasAdopted(): Promise<boolean> {
    const { redis, all } = this.#store;
    return (await Promise.all(all.map(({ stats }) => redis.call('HEXISTS', stats, 'adopted')))).some(Number);
  }

  /** Takes over jobs that are still as they were read: with one script, or, if none can reach all keys, as copies. */
  async take(jobs: readonly ForeignJob[]): Promise<Adopted[]> {
    const store = this.#store;
    if (jobs.length === 0) return [];
    this.#isSharded ??= this.#looksSharded();
    const isSharded = await this.#isSharded;
    const isReachable = (keys: QueueKeys) => !isSharded || this.#isReachable(keys);
    // The script looks for other jobs only in one partition, and a copy needs to know them before.
    const likely = store.count === 1 && isReachable(store.keys()) ? undefined : await this.predict(jobs);
    const chosen = jobs.filter((_, i) => likely?.[i] !== 'exists');
    const copied = ({ id }: ForeignJob) => !isReachable(store.keys(store.map.ownerOf(id)));
    const others = jobs.filter((job, i) => likely?.[i] === 'replaced' && copied(job)).map(({ id }) => id);
    if (others.length > 0) await cancel(store, others, ['pending', 'active', 'dead']);
    const answers = await byId<ForeignJob, Adopted>(store, chosen, {
      idOf: ({ id }) => id,
      act: (keys, some) => (isReachable(keys) ? this.#adopt(keys, some) : this.#copy(keys, some)),
      ifActive: 'exists',
    });
    for (const [i, { id }] of chosen.entries())
      if (others.includes(id) && answers[i] === 'adopted') answers[i] = 'replaced';
    return jobs.map((_, i) => (likely?.[i] === 'exists' ? 'exists' : (answers.shift() as Adopted)));
  }

  /** Asks for all keys at once, because a node says that it is one of a cluster only when it cannot do that. */
  async #looksSharded(): Promise<boolean> {
    const { redis, all } = this.#store;
    const { zset, hash, keyOf } = this.#foreign;
    const values = hash === undefined ? [keyOf('0'), keyOf('1')] : [hash];
    try {
      await redis.call('EXISTS', zset, ...values, ...all.map(({ pending }) => pending));
      return false;
    } catch (error) {
      if (isDelayqError(error, 'config') && /CROSSSLOT/.test(error.why ?? '')) return true;
      throw error;
    }
  }

  /** Whether one script can reach the keys of the queue and of the jobs on a cluster. String keys are in many slots. */
  #isReachable({ pending }: QueueKeys): boolean {
    const { zset, hash } = this.#foreign;
    return hash !== undefined && new Set([pending, zset, hash].map(slotOfKey)).size === 1;
  }

  async #adopt(keys: QueueKeys, jobs: readonly ForeignJob[]): Promise<Adopted[]> {
    const { zset, hash } = this.#foreign;
    const values = hash === undefined ? jobs.map(({ id }) => this.#foreign.keyOf(id)) : [hash];
    const args = jobs.flatMap(({ id, score, value, due, payload = '' }) => [id, score, value, String(due), payload]);
    const how = [hash === undefined ? 'strings' : 'hash', this.#replace ? 'replace' : 'keep'];
    return (await ask(this.#store.redis, keys, ADOPT, [...args, ...how], [zset, ...values])).answers;
  }

  /**
   * Copies jobs, and then removes them from the keys of the other software, so that none is lost if this is killed. A
   * job that has changed meanwhile, or that another consumer has taken, stays there, and its copy is cancelled.
   */
  async #copy(keys: QueueKeys, jobs: readonly ForeignJob[]): Promise<Adopted[]> {
    const { redis } = this.#store;
    const parcels = jobs.map(({ id, due, value, payload = value }) => {
      const body = Buffer.from(payload as string);
      return {
        id: Buffer.from(id),
        state: 'pending',
        score: String(due),
        record: undefined,
        payload: body,
        token: '',
      } as const;
    });
    const restored = await restore(redis, keys, parcels, 'adopted');
    const isHere = restored.map((answer) => answer === 'created' || answer === 'kept');
    const removed = await this.#foreign.remove(jobs.filter((_, i) => isHere[i]));
    const answers = isHere.map((here, i): Adopted => {
      if (!here) return 'exists';
      return !removed.shift() ? 'changed' : restored[i] === 'created' ? 'adopted' : 'kept';
    });
    const undone = jobs.filter((_, i) => answers[i] === 'changed' && restored[i] === 'created').map(({ id }) => id);
    if (undone.length > 0) await ask(redis, keys, CANCEL, [lettersOf(['pending']), ...undone]);
    return answers;
  }

  /** What {@link take} would do now. */
  predict(jobs: readonly ForeignJob[]): Promise<Adopted[]> {
    const other = this.#replace ? 'replaced' : 'exists';
    return byId<ForeignJob, Adopted>(this.#store, jobs, {
      idOf: ({ id }) => id,
      reads: true,
      act: async (keys, some) => {
        const ids = some.map(({ id }) => id);
        return (await raw(this.#store.redis, keys, ids)).map((row, i) => {
          const { due, value, payload = value } = some[i] as ForeignJob;
          const same = text(row.state) === 'p' && Number(text(row.score)) === due;
          const equal = same && Buffer.from(payload as string).equals((row.payload as Buffer | null) ?? Buffer.of());
          return text(row.state) === '' ? 'adopted' : equal ? 'kept' : other;
        });
      },
      isMissing: (answer) => answer === 'adopted',
    });
  }
}
