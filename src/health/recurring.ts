import { idOf, idWord } from '../model/id.js';
import { fixLine, many, queueWord, shellWord } from '../model/text.js';
import { nextOf, packHeader, startedBy, unpack } from '../recurring/definition.js';
import { definitions, fire, put, type Stored } from '../store/every.js';
import type { Store } from '../store/store.js';
import { bad, type Finding } from './finding.js';
import type { Mender } from './mender.js';

/** How many ids a finding names. */
const SAMPLES = 5;

/** Each fault in words: what it is, why it matters, what the repair did. */
const WORDS = {
  unreadable: ['that cannot be read', 'a newer delayq, or other software, wrote this: no jobs are made here', ''],
  never: ['whose expression never comes again', 'no date matches it any more', ''],
  lost: ['without a next occurrence', 'no jobs are made', 'given the next occurrence'],
  late: [
    'with a next occurrence that is too late',
    "Redis's clock was ahead: no jobs are made until then",
    'given the next occurrence',
  ],
  undefined: ['with an occurrence, but no definition', 'no jobs can be made', 'without a definition removed'],
} as const;

/** A recurring job with a fault. `mend`: repairs it, if it is still as it was; undefined: only its owner can. */
interface Faulty {
  readonly id: string;
  readonly fault: keyof typeof WORDS;
  readonly mend: (() => Promise<unknown>) | undefined;
}

/** Finds faults of the recurring jobs of a queue, and repairs what it may. */
export async function checkRecurring(store: Store, mender: Mender): Promise<Finding[]> {
  const all: Faulty[] = [];
  for await (const one of definitions(store)) all.push(...(await faultOf(store, one)));
  const found: Finding[] = [];
  for (const [fault, [what, why, did]] of Object.entries(WORDS)) {
    const some = all.filter((one) => one.fault === fault);
    if (some.length === 0) continue;
    const samples = some.slice(0, SAMPLES).map(({ id }) => id);
    const list = `${samples.join(', ')}${some.length > SAMPLES ? ' …' : ''}`;
    const jobs = some.length === 1 ? 'a recurring job' : many(some.length, 'recurring job');
    const remove = `delayq every --remove ${queueWord(store.queue)} ${samples.map(shellWord).join(' ')}`;
    const again = `or put ${some.length === 1 ? 'it' : 'them'} again`;
    const next = did ? fixLine(store.queue) : `${remove}, ${again}`;
    const finding = { ...bad('warn', 'recurring', `${jobs} ${what}: ${list}`, why, next), count: some.length, samples };
    const repair = () => Promise.all(some.map(({ mend }) => mend?.()));
    found.push(...(did ? await mender.mend(finding, some.length, `${jobs} ${did}: ${list}`, repair) : [finding]));
  }
  return found;
}

async function faultOf(store: Store, { id, now, text, occurrence, next }: Stored<Buffer>): Promise<Faulty[]> {
  const one = (fault: Faulty['fault'], mend?: Faulty['mend']) => [{ id: idWord(idOf(id)), fault, mend }];
  if (text === undefined) {
    // Removed in between.
    if (occurrence === undefined) return [];
    const none = { next: Number.POSITIVE_INFINITY, overlap: 'allow', record: '', skipped: 0, jobs: [] } as const;
    return one('undefined', () => fire(store, 0, [{ ...none, id, occurrence, rev: undefined }]));
  }
  const found = unpack(text);
  const definition = found && startedBy(found, now);
  const first = definition && (await nextOf(definition, now).catch(() => undefined));
  if (!definition || first === undefined) return one('unreadable');
  const isNever = next === Number.POSITIVE_INFINITY;
  if (next === undefined || next > first) {
    const { rev: was, payload } = definition;
    const change = { id, was, header: packHeader(definition), payload, next: first };
    return one(next === undefined || isNever ? 'lost' : 'late', () => put(store, change));
  }
  return isNever && !definition.paused ? one('never') : [];
}
