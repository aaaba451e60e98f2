import type { Letter } from '../scripts/repair.js';

/*
 * The faults that lua/lib/faults.lua finds in single ids, and what to say about them.
 */

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

/** All faults, the worst first. */
export const FAULTS: Readonly<Record<Letter, Fault>> = {
  o: {
    check: 'no-payload',
    level: 'fail',
    what: 'without a payload',
    why: 'nothing can be delivered for such an id: its payload was deleted behind the back of delayq, or never written',
    mended: 'moved to dead as orphaned',
  },
  f: {
    check: 'no-id',
    level: 'fail',
    what: 'lost from all sets: only their payload is there',
    why: 'they will never be delivered: their id was removed, or never added, by other software',
    mended: 'moved to dead as found: requeue or cancel them',
  },
  t: {
    check: 'two-sets',
    level: 'fail',
    what: 'in two states at once',
    why: 'whichever is done first deletes the payload of the other',
    mended: 'left where they are handled soonest',
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
    why: 'they are delivered at once, not when they were meant to be: most likely a producer wrote seconds instead of milliseconds',
    mended: 'moved to dead (bad due): requeue or cancel them',
  },
  b: {
    check: 'bad-id',
    level: 'fail',
    what: 'with an id that is not UTF-8, or has a NUL byte',
    why: 'no handler can be given such an id: the drain that would take them moves them to dead',
    mended: 'moved to dead (bad id): cancel them, or export and import them under another id',
  },
  h: {
    check: 'endless-lease',
    level: 'fail',
    what: 'held by a lease without end',
    why: 'should their handler die, no drain will ever take them back',
    mended: 'made to be taken back by the next drain',
  },
  u: {
    check: 'no-lease',
    level: 'fail',
    what: 'active without a lease that can be read',
    why: 'nobody can ack them',
    mended: 'put back into pending, due now',
  },
  v: {
    check: 'unfinished-move',
    level: 'warn',
    what: 'held by a move that was not finished',
    why: 'they are out of reach of every drain until it is',
  },
  l: {
    check: 'stray-lease',
    level: 'warn',
    what: 'with a lease although they are not active',
    why: 'whoever holds it could ack, and so delete, a job that waits or is dead',
    mended: 'lost their lease',
  },
  m: {
    check: 'stray-record',
    level: 'warn',
    what: 'of which only a record is left',
    why: 'it takes memory, and a new job with the same id would inherit its failures',
    mended: 'removed',
  },
  r: {
    check: 'bad-record',
    level: 'warn',
    what: 'with a record that cannot be read',
    why: 'their own tries, failures and time to live count as not there',
    mended: 'had their record removed',
  },
  s: {
    check: 'old-superseded',
    level: 'warn',
    what: 'replaced or cancelled over a day ago, whose handler never came back',
    why: 'the note for it takes memory',
    mended: 'forgotten',
  },
  i: {
    check: 'odd-id',
    level: 'warn',
    what: 'with an id that delayq would not make or take',
    why: 'they are delivered, but hard to name in a shell or in a list of ids; base64:… names any',
    next: 'let their producer use printable ASCII without spaces, up to 256 characters',
  },
};
