import { expect, it } from 'vitest';
import { type Handling, Ledger, type Log, type Remains, type Terms } from './ledger.js';

/** Ten jobs, enqueued, handled once each and acked: books that balance. */
function books() {
  const ledger = new Ledger('q');
  const now = Date.now();
  const ids = Array.from({ length: 10 }, () => ledger.sending(0));
  for (const id of ids) ledger.confirmed(id);
  const handlings = ids.map((id, i): Handling => {
    const at = now + 1_000;
    return { id, attempt: 1, due: at, start: at, end: at, receipt: `r${i}`, run: 'q/exec/1' };
  });
  const log: Log = { handlings, corrupt: [], failures: [], settled: [] };
  const stats: Record<string, number> = { enqueued: 10, acked: 10 };
  const remains = { present: new Set<string>(), dead: new Set<string>(), stats, torn: [] as string[] };
  return { ledger, log, remains: remains satisfies Remains, stats, first: handlings[0] as Handling };
}

const violationsOf = ({ ledger, log, remains }: ReturnType<typeof books>, terms?: Terms) =>
  ledger.balance(log, remains, terms).violations;

it('books of jobs that were enqueued, handled and acked balance, in calm and in a storm', () => {
  expect(violationsOf(books())).toEqual([]);
  expect(violationsOf(books(), { calm: true })).toEqual([]);
});

type Change = (all: ReturnType<typeof books>) => void;
/** Handled once more: `with` is what is different. */
const again =
  (change: Partial<Handling>, lost = 0): Change =>
  ({ log, first, stats }) => {
    log.handlings.push({ ...first, receipt: 'other', ...change });
    stats.lost = lost;
  };

it.each<[string, Change, RegExp, Terms?]>([
  ['a job is lost', ({ log }) => log.handlings.pop(), /confirmed and are lost/],
  ['a job is lost at most once, in calm', ({ log }) => log.handlings.pop(), /are lost/, { calm: true, mayLose: true }],
  [
    'more is missing than expired',
    ({ log, ledger }) => [log, ledger.confirmed(ledger.sending(0, true))],
    /than expired/,
  ],
  [
    'a job was handled that nobody sent',
    ({ log, first }) => log.handlings.push({ ...first, id: 'q-99' }),
    /nobody enqueued/,
  ],
  ['a payload was cut', ({ log }) => log.corrupt.push('q-1'), /not whole/],
  ['an id stands in two sets', ({ remains }) => remains.torn.push('q-1'), /torn/],
  ['a job began before it was due', again({ attempt: 2, start: 0 }, 1), /early/],
  ['a job was due before it was to be', again({ attempt: 2, due: 0 }, 1), /early/],
  ['one lease, two handlings', again({ attempt: 2, receipt: 'r0' }, 1), /under one lease/],
  ['again, although nothing explains it', again({}), /no lease had ended/],
  [
    'enqueued anew, although its enqueue went well',
    (all) => again({ due: all.first.due + 1 })(all),
    /enqueue went well/,
  ],
  ['enqueued anew, more than Redis counted', (all) => again({ due: all.first.due + 1 })(all), /more than Redis/],
  ['at most once was twice', again({}), /at most once/, { atMostOnce: true, disturbed: () => true }],
  ['attempts grew more than anything was lost', again({ attempt: 2 }), /attempts grew/],
  ['a lease was lost in calm', again({ attempt: 2 }, 1), /lost 1/, { calm: true }],
  ['failed twice at one attempt', ({ log }) => log.failures.push('q-1 1', 'q-1 1'), /same attempt/],
  ['acked without being handled', ({ stats }) => Object.assign(stats, { enqueued: 11, acked: 12 }), /but handled/],
  ['the counters do not add up', ({ stats }) => Object.assign(stats, { enqueued: 11 }), /add up/],
  ['something is in doubt in calm', ({ ledger }) => ledger.sending(0), /doubt/, { calm: true }],
])('they do not balance when %s', (_, change, said, terms) => {
  const all = books();
  change(all);
  expect(violationsOf(all, terms).join('\n')).toMatch(said);
});

it('a run that was killed explains a repeat, and a Redis that was killed what it forgot', () => {
  const killed = books();
  again({})(killed);
  expect(violationsOf(killed, { disturbed: (run) => run === 'q/exec/1' })).toEqual([]);
  const forgot = books();
  forgot.log.handlings.pop();
  Object.assign(forgot.stats, { enqueued: 9, acked: 9 });
  expect(violationsOf(forgot, { mayForget: () => true })).toEqual([]);
});
