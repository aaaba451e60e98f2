import { setTimeout as sleep } from 'node:timers/promises';
import { type Id, idOf, idWord } from '../model/id.js';
import { many } from '../model/text.js';
import { keysOf } from '../model/validate.js';
import { audit, type Letter, mend, PLACES, type Place, recheck, type Suspect } from '../store/repair.js';
import { SLICE } from '../store/script.js';
import type { Store } from '../store/store.js';
import { FAULTS } from './faults.js';
import { bad, type Finding } from './finding.js';
import { type Mender, mendedFinding } from './mender.js';

/** How {@link Auditor.examine} works. */
export interface AuditOptions {
  /** Repair what can be repaired. */
  readonly mend?: boolean;
  /** Delay before the second look at what seems wrong, ms; default 100. */
  readonly graceMs?: number;
  /** Called with the number of entries examined so far, and of all, about. A promise it returns is waited for. */
  readonly progress?: (looked: number, total: number) => unknown;
  /** Ends the examination with what was found so far. */
  readonly signal?: AbortSignal | undefined;
}

export const checkOptions = keysOf<AuditOptions>('examine', {
  mend: 'fix repair',
  graceMs: '',
  progress: 'onProgress',
  signal: '',
});

/** The most suspects to collect before the second look: a pipeline may write this many payloads before their ids. */
const MAX_SUSPECTS = 10_000;

/** The longest that a producer takes between the two commands that write a job, ms. */
const GRACE_MS = 100;

/** The most ids reported of a kind of fault. */
export const SAMPLES = 3;

export interface Tally {
  count: number;
  mended: number;
  readonly samples: Id[];
}

/**
 * Goes through all ids in the structures of a queue, or of one of its partitions, and repairs those that have a fault.
 */
export class IdAudit {
  readonly #store: Store;
  readonly #i: number;
  readonly #mender: Mender;
  readonly tallies = new Map<Letter, Tally>();

  constructor(store: Store, i: number, mender: Mender) {
    this.#store = store;
    this.#i = i;
    this.#mender = mender;
  }

  /**
   * Checks all ids. `looked` of about `total` ids of the queue were checked before; returns how many are afterwards.
   */
  async run(
    { looked, total }: { looked: number; total: number },
    { graceMs = GRACE_MS, progress, signal }: AuditOptions,
  ): Promise<number> {
    /** HSCAN can leave out the values, as far as is known. */
    let lean = true;
    for (const place of PLACES) {
      // By the bytes of the id, because a cursor may return an id twice.
      let suspects = new Map<string, Suspect>();
      let cursor: string | undefined = '0';
      while (cursor !== undefined && !signal?.aborted) {
        const from = { place, cursor, count: SLICE, lean };
        const slice: Awaited<ReturnType<typeof audit>> = await audit(this.#store, this.#i, from);
        if (slice.refused) lean = false;
        for (const suspect of slice.suspects) suspects.set(suspect.id.toString('latin1'), suspect);
        cursor = slice.next;
        looked += slice.looked;
        await progress?.(Math.min(looked, total), total);
        if (suspects.size < (cursor === undefined ? 1 : MAX_SUSPECTS)) continue;
        await sleep(graceMs);
        await this.#settle(place, [...suspects.values()]);
        suspects = new Map();
      }
    }
    return looked;
  }

  /** Looks a second time at suspects, counts those that still have a fault, and repairs them if allowed. */
  async #settle(place: Place, suspects: readonly Suspect[]): Promise<void> {
    for (let i = 0; i < suspects.length; i += SLICE) {
      const ids = suspects.slice(i, i + SLICE).map(({ id }) => id);
      const suspicious = await recheck(this.#store, this.#i, place, ids);
      // While a growth is open, the marks of transfers are needed, however old they are.
      const faulty = suspicious.filter(({ letter }) => letter !== 's' || this.#store.growsFrom === undefined);
      for (const { id, letter } of faulty) {
        const tally = this.tallies.get(letter) ?? { count: 0, mended: 0, samples: [] };
        this.tallies.set(letter, tally);
        tally.count += 1;
        if (tally.samples.length < SAMPLES) tally.samples.push(idOf(id));
      }
      if (faulty.length === 0) continue;
      const repair = faulty.map(({ id }) => id);
      const answers = await this.#mender.try(() => mend(this.#store, this.#i, place, repair));
      if (answers === undefined) continue;
      // An id that is in order by now counts, too: another process has repaired it.
      for (const [n, { letter }] of faulty.entries())
        if (answers[n] !== undefined || FAULTS[letter].mended) (this.tallies.get(letter) as Tally).mended += 1;
    }
  }

  /** The findings, the worst first; `next` says what to do about a kind of fault. */
  async findings(next: (letter: Letter, tally: Tally) => Promise<string>): Promise<Finding[]> {
    const found: Finding[] = [];
    for (const letter of Object.keys(FAULTS) as Letter[]) {
      const tally = this.tallies.get(letter);
      if (!tally) continue;
      const { check, level, what, why, mended: did } = FAULTS[letter];
      const { count, mended, samples } = tally;
      const which = `${many(count, 'job')} ${what}`;
      const fault = bad(level, check, which, why, await next(letter, tally));
      const finding = { ...fault, count, samples: samples.map(idWord), mendable: did !== undefined };
      found.push(did && mended === count ? mendedFinding(finding, mended, `${which}: ${did}`) : finding);
    }
    return found;
  }
}
