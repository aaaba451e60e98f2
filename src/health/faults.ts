import type { Letter } from '../store/repair.js';

interface Fault {
  /** For programs. */
  readonly check: string;
  readonly level: 'warn' | 'fail';
  /** Follows the number of ids, as in "3 jobs …". */
  readonly what: string;
  readonly why: string;
  /** What mending did to them; follows their number. Undefined: delayq cannot mend it. */
  readonly mended?: string;
  /** What to do, if mending is not the answer. */
  readonly next?: string;
}

/** The faults that lua/lib/faults.lua finds in single ids, the worst first. */
export const FAULTS: Readonly<Record<Letter, Fault>> = {
  o: {
    check: 'no-payload',
    level: 'fail',
    what: 'without a payload',
    why: 'there is nothing to deliver: other software deleted the payload, or never wrote it',
    mended: 'moved to dead (orphaned)',
  },
  f: {
    check: 'no-id',
    level: 'fail',
    what: 'in no state: only their payload exists',
    why: 'they will never be delivered: other software removed their id, or never added it',
    mended: 'moved to dead (found): requeue or cancel them',
  },
  t: {
    check: 'two-sets',
    level: 'fail',
    what: 'in two states at once',
    why: 'the entry that is handled first deletes the payload of the other',
    mended: 'kept only in the state that is handled first',
  },
  n: {
    check: 'never-due',
    level: 'fail',
    what: 'due after the year 9999, or never',
    why: 'they will not be delivered: a producer wrote microseconds, or inf, instead of milliseconds since 1970',
    mended: 'moved to dead (bad due): requeue or cancel them',
  },
  e: {
    check: 'early-due',
    level: 'fail',
    what: 'due before 1973',
    why: 'they are delivered at once, not at the intended time: a producer probably wrote seconds instead of milliseconds',
    mended: 'moved to dead (bad due): requeue or cancel them',
  },
  b: {
    check: 'bad-id',
    level: 'fail',
    what: 'with an id that is not UTF-8, or contains a NUL byte',
    why: 'no handler can receive such an id: the drain that finds them moves them to dead',
    mended: 'moved to dead (bad id): cancel them, or export and import them under another id',
  },
  h: {
    check: 'endless-lease',
    level: 'fail',
    what: 'with a lease that never expires',
    why: 'if their handler dies, no drain will ever take them back',
    mended: 'given an expired lease: the next drain takes them back',
  },
  u: {
    check: 'no-lease',
    level: 'fail',
    what: 'active without a readable lease',
    why: 'nobody can ack them',
    mended: 'moved to pending, due now',
  },
  v: {
    check: 'unfinished-move',
    level: 'warn',
    what: 'held by an unfinished move',
    why: 'no drain can take them until the move is finished',
  },
  l: {
    check: 'stray-lease',
    level: 'warn',
    what: 'with a lease although they are not active',
    why: 'its holder could ack, and so delete, a job that is pending or dead',
    mended: 'lost this lease',
  },
  m: {
    check: 'stray-record',
    level: 'warn',
    what: 'with only a record left',
    why: 'it uses memory, and a new job with the same id would inherit its failures',
    mended: 'removed',
  },
  r: {
    check: 'bad-record',
    level: 'warn',
    what: 'with an unreadable record',
    why: 'their tries, failures and time to live are ignored',
    mended: 'had their record removed',
  },
  s: {
    check: 'old-superseded',
    level: 'warn',
    what: 'replaced or cancelled over a day ago, whose handler never reported back',
    why: 'the note for the handler uses memory',
    mended: 'had this note removed',
  },
  k: {
    check: 'old-move',
    level: 'warn',
    what: 'brought or held over a day ago by a move that was killed',
    why: 'the note for its repeat uses memory',
    mended: 'had this note removed',
  },
  i: {
    check: 'odd-id',
    level: 'warn',
    what: 'with an id that delayq would not accept',
    why: 'they are delivered, but their ids are hard to write in a shell or a list of ids; base64:… works for any id',
    next: 'change their producer: use up to 256 printable ASCII characters without spaces',
  },
};
