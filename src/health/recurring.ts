import { fixLine, many, queueWord, shellWord } from '../model/text.js';
import { type Fault, type Faulty, faultsOf } from '../recurring/definition-faults.js';
import type { Store } from '../store/store.js';
import { bad, type Finding } from './finding.js';
import type { Mender } from './mender.js';

/** The most ids that a finding names. */
const SAMPLES = 5;

/** Each fault in words: what it is, why it matters, what the repair did. */
const WORDS: Readonly<Record<Fault, readonly [what: string, why: string, did: string]>> = {
  unreadable: ['that cannot be read', 'a newer delayq, or other software, wrote this: no jobs are made here', ''],
  never: ['whose expression never comes again', 'no date matches it any more', ''],
  lost: ['without a next occurrence', 'no jobs are made', 'given the next occurrence'],
  late: [
    'with a next occurrence that is too late',
    "Redis's clock was ahead: no jobs are made until then",
    'given the next occurrence',
  ],
  undefined: ['with an occurrence, but no definition', 'no jobs can be made', 'without a definition removed'],
};

/** Finds faults of the recurring jobs of a queue, and repairs what it may. */
export async function checkRecurring(store: Store, mender: Mender): Promise<Finding[]> {
  const all = await faultsOf(store);
  const found: Finding[] = [];
  for (const [fault, [what, why, did]] of Object.entries(WORDS)) {
    const some = all.filter((one) => one.fault === fault);
    const [first] = some as [Faulty?];
    if (!first) continue;
    const samples = some.slice(0, SAMPLES).map(({ id }) => id);
    const list = `${samples.join(', ')}${some.length > SAMPLES ? ' …' : ''}`;
    const jobs = some.length === 1 ? 'a recurring job' : many(some.length, 'recurring job');
    const next = first.mend
      ? fixLine(store.queue)
      : `delayq every --remove ${queueWord(store.queue)} ${samples.map(shellWord).join(' ')}, or put ${some.length === 1 ? 'it' : 'them'} again`;
    const finding = { ...bad('warn', 'recurring', `${jobs} ${what}: ${list}`, why, next), count: some.length, samples };
    if (!first.mend) found.push(finding);
    else
      found.push(
        ...(await mender.mend(finding, some.length, `${jobs} ${did}: ${list}`, () =>
          Promise.all(some.map(({ mend }) => mend?.())),
        )),
      );
  }
  return found;
}
