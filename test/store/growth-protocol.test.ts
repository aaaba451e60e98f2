import { describe, expect, it } from 'vitest';
import { LONG, SEED } from '../support/property.js';
import type { Op } from './one-id.js';
import { bury, cancel, hold, keep, moved, putBack, replace, requeue, restore, show } from './operations.js';
import { type Instance, Search } from './search.js';
import type { Guard } from './world.js';

/*
 * docs/internals/partitions.md, searched: every order of the steps of clients, consumers and growers, each of which may
 * sleep or die before any step. All is compared with a queue without partitions (linearizability).
 */

type Small = Omit<Instance, 'apart'> & { apart?: boolean };

const cancelActive: Op = { do: 'cancel', states: ['active'] };

/** Where the id is when the growth begins; undefined: nowhere. */
const STATES = [undefined, 'pending', 'dead', 'active', 'moving'] as const;
const FAILOVER: Small = { clients: [], begins: 'pending', takes: 1, failovers: 1 };

/** `large`: larger instances as well, in the long run some of them. `show`: prints the counterexamples. */
const SEARCH = process.env.DELAYQ_TEST_SEARCH;
const LARGE = SEARCH === 'large';

/** How often a consumer takes in instances that are large already. */
const MORE = LONG || LARGE ? 1 : 0;

function found(instance: Small): string {
  const finding = new Search({ apart: false, ...instance }).run(LARGE || LONG ? 10_000_000 : 200_000);
  return finding ? [finding.problem, ...finding.trace].join('\n') : 'nothing';
}

describe('growth', () => {
  it('gives each operation by id the answer of a queue without partitions, whatever state the job is in', () => {
    for (const begins of STATES) {
      for (const op of [keep, replace, cancel, cancelActive, requeue, bury, show, restore]) {
        expect(found({ clients: [[op]], begins }), `${begins} ${JSON.stringify(op)}`).toBe('nothing');
      }
    }
  });

  it('gives two clients at once the answers of a queue without partitions', () => {
    for (const clients of [
      [[replace], [cancel]],
      [[keep], [show]],
    ]) {
      expect(found({ clients, begins: 'pending' })).toBe('nothing');
    }
    expect(found({ clients: [[keep], [cancel]], apart: true })).toBe('nothing');
  });

  it('takes each job once, and once more only if its lease ended', () => {
    expect(found({ clients: [], begins: 'pending', takes: 2, expiries: 1 })).toBe('nothing');
    expect(found({ clients: [[replace]], begins: 'active', takes: MORE })).toBe('nothing');
  });

  it('survives the death of a grower after any step, and two growers at once', () => {
    expect(found({ clients: [], begins: 'pending', takes: MORE, growers: 2 })).toBe('nothing');
    expect(found({ clients: [], begins: 'active', growers: 2 })).toBe('nothing');
  });

  it('waits for a job that a move to another queue holds, and lets that move go on', () => {
    expect(found({ clients: [[hold, moved]], begins: 'moving' })).toBe('nothing');
    expect(found({ clients: [[hold, putBack]], begins: 'pending' })).toBe('nothing');
  });

  it('brings a job that another queue moves here once, also if the move is repeated', () => {
    expect(found({ clients: [[restore], [restore]], takes: MORE })).toBe('nothing');
    expect(found({ clients: [[restore]], begins: 'brought' })).toBe('nothing');
    expect(found({ clients: [[restore, restore]], begins: 'active' })).toBe('nothing');
  });

  it('remembers what is done before it, while it is open, and what is freed after it', () => {
    for (const op of LONG ? [keep, replace, cancel, requeue, show] : [keep, requeue]) {
      expect(found({ clients: [[op]], begins: 'done' }), op.do).toBe('nothing');
      expect(found({ clients: [[op]], begins: 'active', windows: true }), op.do).toBe('nothing');
    }
    expect(found({ clients: [[keep], [cancel, keep]], begins: 'done' })).toBe('nothing');
    expect(found({ clients: [[keep]], begins: 'pending', takes: 1, windows: true })).toBe('nothing');
    expect(found({ clients: [[keep]], begins: 'done', growers: 2 })).toBe('nothing');
    expect(found({ clients: [[keep]], begins: 'done', failovers: 1 })).toBe('nothing');
  });

  it('loses and repeats nothing that replicas have, if one partition fails over', () => {
    expect(found(FAILOVER)).toBe('nothing');
    expect(found({ clients: [[keep]], begins: 'pending', failovers: 1 })).toBe('nothing');
  });
});

/** Pairs of operations with a consumer, and failovers during each. */
const LARGER: readonly Small[] = [
  ...STATES.flatMap((begins) =>
    [keep, replace, cancel, requeue, bury, show, hold].flatMap((one) =>
      [keep, replace, cancel].map((other): Small => ({ clients: [[one], [other]], begins, takes: 1 })),
    ),
  ),
  ...(
    [
      [keep, 'pending'],
      [replace, 'active'],
      [cancel, 'active'],
      // No show: it may tell of an ack that the failover then undoes, as in any queue.
      [restore, undefined],
    ] as const
  ).map(([op, begins]): Small => ({ clients: [[op]], begins, takes: 1, failovers: 1 })),
];
/** Other ones for each seed: so many are searched in some minutes. */
const SOME = LARGER.filter((_, i) => (i + SEED) % 8 === 0);

describe.runIf(LARGE || LONG)('growth, in larger instances', () => {
  it.each(LARGE ? LARGER : SOME)('%j', (instance) => expect(found(instance)).toBe('nothing'), 3_600_000);
});

/** Against failovers, p is looked through twice. In small instances that also finds what other guards are for. */
const ONE_LOOK: readonly Guard[] = ['p is looked through again after that'];

/** The smallest instances in which a guard is missed. */
const MISSED: Record<Guard, Small> = {
  'old maps are refused': { clients: [[keep]], begins: 'pending' },
  'hold compares the layout': { clients: [[keep], [keep]], apart: true },
  'restore compares the layout': { clients: [[keep]], begins: 'pending', takes: 1 },
  'the grower advances p before it looks': { clients: [[keep]], apart: true },
  'p is clean before partition 0 is advanced': { clients: [], begins: 'active' },
  'what nack and expired leases return is counted': { clients: [], begins: 'active', takes: 1 },
  'what is put back is counted': { clients: [[hold, putBack]], begins: 'pending', without: ONE_LOOK },
  'what replace returns is counted': { clients: [[replace]], begins: 'active', without: ONE_LOOK },
  'active jobs are looked at': { clients: [[keep]], begins: 'active' },
  'a takeover keeps the token': { clients: [[keep]], begins: 'pending' },
  'only who made a token removes it': { clients: [[replace], [cancel]], begins: 'pending' },
  'only who finished removes a token': { clients: [[keep]], begins: 'pending' },
  'marks are copied': { clients: [[restore], [restore]], takes: 1 },
  'restore asks p for the token': { clients: [[restore], [restore]], takes: 1 },
  'restore asks p for the token after its transfer': { clients: [[restore], [restore]], takes: 1, apart: true },
  'a restore that keeps an active job marks it': { clients: [[restore, restore]], begins: 'active' },
  'a call by id transfers first': { clients: [[keep]], begins: 'pending' },
  'replace and cancel of an active job are done in place': { clients: [[cancelActive]], begins: 'active' },
  'a call in place is done only if the id is still active': { clients: [[replace]], begins: 'active' },
  'a call in place leaves holds of transfers alone': { clients: [[replace]], begins: 'active' },
  'show asks p first': { clients: [[show]], begins: 'pending' },
  'show transfers what a transfer holds': { clients: [[show]], begins: 'pending', takes: 1 },
  'a move takes over its hold at p': { clients: [[hold, moved]], begins: 'moving' },
  'a call by id takes along what is remembered': { clients: [[keep]], begins: 'done' },
  'the grower takes along what is remembered': { clients: [[keep]], begins: 'done' },
  'what is remembered is looked at last': { clients: [[keep]], begins: 'active', windows: true, without: ONE_LOOK },
  'remember compares the layout': { clients: [[keep], [cancel, keep]], begins: 'done' },
  'no id is freed while a growth is open': { clients: [[keep], [cancel, keep]], begins: 'done' },
  'replicas have the marks before p is clean': { clients: [[restore]], begins: 'brought', failovers: 1 },
  'replicas have what is remembered before the call goes on': { clients: [[keep]], begins: 'done', failovers: 1 },
  'replicas have what is remembered before it is removed': { clients: [[keep]], begins: 'done', failovers: 1 },
  'replicas have what p lacks before q is asked': { ...FAILOVER, clients: [[keep]] },
  'replicas have the hold before restore': FAILOVER,
  'replicas have the copy before finish': FAILOVER,
  'replicas have the end before the token is removed': FAILOVER,
  'replicas have the clean p before partition 0 is advanced': FAILOVER,
  'p is looked through again after that': FAILOVER,
  'left tokens are removed after the end of the growth': { clients: [[keep]], begins: 'pending', takes: 1 },
  'what has left partition 0 is not sought there': { clients: [[show]], begins: 'pending', takes: 1 },
};

// Of the model, not of the code: it changes with the protocol only.
describe.runIf(LARGE || LONG)('the search finds a job lost, doubled or misreported', () => {
  for (const [guard, instance] of Object.entries(MISSED)) {
    it(`unless ${guard}`, () => {
      const finding = found({ ...instance, without: [guard as Guard, ...(instance.without ?? [])] });
      if (SEARCH === 'show') console.log(`${guard}\n${finding}`);
      expect(finding).not.toBe('nothing');
    });
  }
});
