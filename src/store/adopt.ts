import { DelayqError, isDelayqError } from '../model/errors.js';
import { printable } from '../model/text.js';
import { slotOfKey } from '../redis/slots.js';
import { adoptAcrossSlots, type PayloadOf, resumeAcrossSlots } from './adopt-across-slots.js';
import { byId } from './by-id.js';
import type { ForeignJobs } from './foreign.js';
import { claimsKey } from './keys.js';
import { PartitionMap } from './map.js';
import { text } from './replies.js';
import type { Store } from './store.js';
import { raw } from './stored.js';
import * as moves from './transfer.js';

/** Takes jobs of other software into a queue. */
export class Adoption {
  readonly #store: Store;
  readonly #foreign: ForeignJobs;
  /** In place of other jobs with their ids, also if they are active. */
  readonly #replace: boolean;
  /** The key of the claims; undefined: no such key can be in the slot of the sorted set. */
  readonly #claims: string | undefined;
  readonly #isOneSlot: boolean;
  /** No script can reach all keys. */
  #isAcrossSlots: boolean;

  constructor(store: Store, foreign: ForeignJobs, replace: boolean) {
    this.#store = store;
    this.#foreign = foreign;
    this.#replace = replace;
    const { zset, hash } = foreign;
    this.#claims = claimsKey(store.prefix, store.queue, zset);
    this.#isOneSlot = hash !== undefined && new Set([store.keys().pending, zset, hash].map(slotOfKey)).size === 1;
    this.#isAcrossSlots = hash === undefined || (store.redis.sharded && !this.#isOneSlot);
  }

  /** Whether the queue has ever adopted a job. */
  async hasAdopted(): Promise<boolean> {
    const { redis, all } = this.#store;
    return (await Promise.all(all.map(({ stats }) => redis.call('HEXISTS', stats, 'adopted')))).some(Number);
  }

  /** Finishes what earlier runs have left. */
  async resume(payloadOf: PayloadOf): Promise<moves.Adopted[]> {
    if ((this.#isOneSlot && this.#store.count === 1) || this.#claims === undefined) return [];
    if (!(await this.#store.redis.call('EXISTS', this.#claims))) return [];
    return resumeAcrossSlots(this.#store, this.#across(), payloadOf);
  }

  /**
   * Takes over jobs that are still as they were read: with one script; in several steps if the values are in string
   * keys, if the queue has partitions, or, on a cluster, if the keys are in several slots.
   */
  async take(jobs: readonly moves.Foreign[]): Promise<moves.Adopted[]> {
    const [store, { zset, hash }] = [this.#store, this.#foreign];
    if (jobs.length === 0) return [];
    if (!this.#isAcrossSlots && hash !== undefined && store.count === 1) {
      try {
        return await moves.adopt(store.redis, store.keys(), { zset, hash }, jobs, this.#replace);
      } catch (error) {
        // Only now does a cluster node say that the keys are in several slots. Nothing was changed.
        if (isDelayqError(error, 'config') && /CROSSSLOT/.test(error.why ?? '')) this.#isAcrossSlots = true;
        else await store.learnFrom(PartitionMap.ONE, error, 1);
      }
    }
    const across = this.#across();
    const likely = await this.predict(jobs);
    const chosen = jobs.filter((_, i) => likely[i] !== 'exists');
    const answers = chosen.length > 0 ? await adoptAcrossSlots(store, across, chosen) : [];
    return likely.map((answer) => (answer === 'exists' ? answer : (answers.shift() as moves.Adopted)));
  }

  #across() {
    if (this.#claims === undefined) throw unclaimable(this.#foreign.zset);
    return { foreign: this.#foreign, claims: this.#claims, replace: this.#replace };
  }

  /** What {@link take} would do now. */
  predict(jobs: readonly moves.Foreign[]): Promise<moves.Adopted[]> {
    const other = this.#replace ? 'replaced' : 'exists';
    return byId<moves.Foreign, moves.Adopted>(this.#store, jobs, {
      idOf: ({ id }) => id,
      reads: true,
      act: async (keys, some) => {
        const ids = some.map(({ id }) => id);
        return (await raw(this.#store.redis, keys, ids)).map((row, i) => {
          const { due, value, payload = value } = some[i] as moves.Foreign;
          const same = text(row.state) === 'p' && Number(text(row.score)) === due;
          const equal = same && Buffer.from(payload as string).equals((row.payload as Buffer | null) ?? Buffer.of());
          return text(row.state) === '' ? 'adopted' : equal ? 'kept' : other;
        });
      },
      isMissing: (answer) => answer === 'adopted',
    });
  }
}

/** The error for a sorted set beside which nothing can be stored. */
function unclaimable(zset: string): DelayqError {
  return new DelayqError('config', `no other key can be in the slot of ${printable(zset)}`, {
    why: 'its name contains }, and the queue and the hash are in other slots',
    next: 'nothing was changed; rename it while its producers are stopped',
  });
}
