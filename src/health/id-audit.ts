import { setTimeout as sleep } from 'node:timers/promises';
import { type Id, idOf, idWord } from '../model/id.js';
import { fixLine, many, moveLine, shellWord } from '../model/text.js';
import { keysOf } from '../model/validate.js';
import { showAt } from '../store/inspect.js';
import { audit, type Letter, mend, PLACES, type Place, recheck, type Suspect } from '../store/repair.js';
import { SLICE } from '../store/script.js';
import type { Store } from '../store/store.js';
import { FAULTS } from './faults.js';
import { bad, type Finding } from './finding.js';
import { type Mender, mendedFinding } from './mender.js';
import { growthLine } from './problems.js';

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

/** How many ids have a fault, how many of them were repaired, and some of them. */
interface Tally {
  count: number;
  mended: number;
  readonly samples: Id[];
}

/**
 * Checks all ids in the structures of partition `i`, and repairs those that have a fault. Calls `progress` with the
 * number of further entries examined. Returns a finding for each kind of fault, the worst first.
 */
export async function auditIds(
  store: Store,
  i: number,
  mender: Mender,
  { graceMs = GRACE_MS, signal }: AuditOptions,
  progress: (looked: number) => unknown,
): Promise<Finding[]> {
  const tallies = new Map<Letter, Tally>();
  /** HSCAN can leave out the values, as far as is known. */
  let lean = true;
  for (const place of PLACES) {
    // By the bytes of the id, because a cursor may return an id twice.
    let suspects = new Map<string, Suspect>();
    let cursor: string | undefined = '0';
    while (cursor !== undefined && !signal?.aborted) {
      const slice: Awaited<ReturnType<typeof audit>> = await audit(store, i, { place, cursor, count: SLICE, lean });
      if (slice.refused) lean = false;
      for (const suspect of slice.suspects) suspects.set(suspect.id.toString('latin1'), suspect);
      cursor = slice.next;
      await progress(slice.looked);
      if (suspects.size < (cursor === undefined ? 1 : MAX_SUSPECTS)) continue;
      await sleep(graceMs);
      await settle(store, i, place, [...suspects.values()], mender, tallies);
      suspects = new Map();
    }
  }
  const found: Finding[] = [];
  for (const letter of Object.keys(FAULTS) as Letter[]) {
    const tally = tallies.get(letter);
    if (!tally) continue;
    const { check, level, what, why, mended: did } = FAULTS[letter];
    const { count, mended, samples } = tally;
    const which = `${many(count, 'job')} ${what}`;
    const fault = bad(level, check, which, why, await nextOf(store, i, letter, samples));
    const finding = { ...fault, count, samples: samples.map(idWord), mendable: did !== undefined };
    found.push(did && mended === count ? mendedFinding(finding, mended, `${which}: ${did}`) : finding);
  }
  return found;
}

/** Looks a second time at suspects, counts those that still have a fault, and repairs them if allowed. */
async function settle(
  store: Store,
  i: number,
  place: Place,
  suspects: readonly Suspect[],
  mender: Mender,
  tallies: Map<Letter, Tally>,
): Promise<void> {
  for (let n = 0; n < suspects.length; n += SLICE) {
    const ids = suspects.slice(n, n + SLICE).map(({ id }) => id);
    const suspicious = await recheck(store, i, place, ids);
    // While a growth is open, the marks of transfers are needed, however old they are.
    const faulty = suspicious.filter(({ letter }) => letter !== 's' || store.growsFrom === undefined);
    for (const { id, letter } of faulty) {
      const tally = tallies.get(letter) ?? { count: 0, mended: 0, samples: [] };
      tallies.set(letter, tally);
      tally.count += 1;
      if (tally.samples.length < SAMPLES) tally.samples.push(idOf(id));
    }
    if (faulty.length === 0) continue;
    const repair = faulty.map(({ id }) => id);
    const answers = await mender.try(() => mend(store, i, place, repair));
    if (answers === undefined) continue;
    // An id that is in order by now counts, too: another process has repaired it.
    for (const [n, { letter }] of faulty.entries())
      if (answers[n] !== undefined || FAULTS[letter].mended) (tallies.get(letter) as Tally).mended += 1;
  }
}

/** What to do about a kind of fault. */
async function nextOf(store: Store, i: number, letter: Letter, samples: readonly Id[]): Promise<string> {
  const { queue } = store;
  const fix = fixLine(queue);
  if (letter !== 'v') return FAULTS[letter].next ?? fix;
  const job = await showAt(store, i, samples[0] as Id);
  const to = /^move:(\S+)/.exec(job?.lease?.by ?? '')?.[1] ?? '…';
  // From one partition to another.
  if (to.startsWith(`${queue}/`)) return store.growsFrom === undefined ? fix : growthLine(queue, store.count);
  return moveLine(queue, shellWord(to));
}
