import { expect, it } from 'vitest';
import { type Act, judge, type Operation, type Unseen } from './history.js';

type Call = [act: Act, from: number, to: number, answer?: string | undefined, more?: Partial<Operation>];
const UNTIL = Number.POSITIVE_INFINITY;
const ALL = { states: ['pending', 'active', 'dead'] };
const WAITING = { states: ['pending', 'dead'] };

const judged = (calls: readonly Call[], unseen?: readonly Unseen[]) =>
  judge(
    calls.map(([act, from, to, answer, more]) => ({ act, from, to, answer, ...more })),
    unseen,
  );

const MADE: Call = ['keep', 0, 10, 'created', { version: 1 }];
const TAKEN: Call = ['take', 20, 30, 'taken', { version: 1, receipt: 'a', leaseMs: 1_000 }];
const ACKED: Call = ['ack', 40, 50, 'held', { receipt: 'a' }];
const again = (from: number): Call => ['take', from, from + 10, 'taken', { version: 1, receipt: 'b', leaseMs: 1_000 }];

it.each<[string, Call[], Unseen[]?]>([
  ['a job that is enqueued, taken and acked', [MADE, TAKEN, ACKED, ['show', 60, 70, 'missing']]],
  ['two enqueues at once, of which one keeps the other', [MADE, ['keep', 0, 10, 'kept', { version: 2 }]]],
  ['a call that began before another, and was done after it', [['show', 0, 90, 'missing'], MADE]],
  ['a job that comes again when its lease is over', [MADE, TAKEN, again(1_030)]],
  [
    'a job that comes again when it was given back',
    [MADE, TAKEN, ['release', 40, 50, 'pending', { receipt: 'a' }], again(60)],
  ],
  [
    'a lease that was renewed, and is over',
    [MADE, TAKEN, ['renew', 900, 910, 'held', { receipt: 'a', leaseMs: 1_000 }], again(1_920)],
  ],
  [
    'a holder whose job was replaced',
    [MADE, TAKEN, ['replace', 32, 38, 'replaced', { version: 2 }], ['ack', 40, 50, 'superseded', { receipt: 'a' }]],
  ],
  ['a cancel of what waits, while the job is active', [MADE, TAKEN, ['cancel', 40, 50, 'missing', WAITING]]],
  ['an enqueue of unknown outcome that happened', [['keep', 0, UNTIL, undefined, { version: 1 }], TAKEN]],
  [
    'one that never happened',
    [
      ['keep', 0, UNTIL, undefined, { version: 1 }],
      ['show', 20, 30, 'missing'],
    ],
  ],
  [
    'one that was done, and came again by its repeat',
    [['keep', 0, UNTIL, undefined, { version: 1 }], TAKEN, ACKED, again(60)],
  ],
  [
    'an ack of unknown outcome',
    [MADE, TAKEN, ['ack', 40, UNTIL, undefined, { receipt: 'a' }], ['show', 60, 70, 'missing']],
  ],
  [
    'a replace that only took the job from its holder',
    [MADE, TAKEN, ['replace', 32, UNTIL, undefined, { version: 2 }], again(60)],
  ],
  ['a dead job that is requeued', [MADE, ['bury', 12, 14, 'buried'], ['requeue', 15, 16, 'requeued'], TAKEN]],
  ['a job that somebody unseen holds', [MADE, ['bury', 20, 30, 'active']], [{ from: 5, leaseMs: 1_000 }]],
  [
    'an ack that Redis forgot',
    [
      MADE,
      TAKEN,
      ['ack', 40, 50, 'held', { receipt: 'a', forgettable: true }],
      ['show', 60, 70, 'active', { version: 1 }],
    ],
  ],
  [
    'a replace that was done before its repeat, as was its job',
    [
      ['replace', 0, 400, 'created', { version: 1, repeated: true }],
      ['take', 20, 30, 'taken', { version: 1, receipt: 'a', leaseMs: 1_000, forgettable: true }],
      ACKED,
      ['show', 410, 420, 'pending', { version: 1 }],
    ],
  ],
  [
    'a repeated enqueue that kept what it had made',
    [
      ['keep', 0, 200, 'kept', { version: 1, repeated: true }],
      ['show', 210, 220, 'pending', { version: 1 }],
    ],
  ],
])('%s is explained', (_, calls, unseen) => {
  expect(judged(calls, unseen)).toBeUndefined();
});

it.each<[string, Call[], Unseen[]?]>([
  ['a confirmed job that is not found', [MADE, ['show', 20, 30, 'missing']]],
  ['a confirmed job that is made again', [MADE, ['keep', 20, 30, 'created', { version: 2 }]]],
  ['two that both say that they made it', [MADE, ['keep', 0, 10, 'created', { version: 2 }]]],
  ['an acked job that is there again', [MADE, TAKEN, ACKED, ['show', 60, 70, 'active', { version: 1 }]]],
  ['an acked job that is delivered again', [MADE, TAKEN, ACKED, again(60)]],
  ['a cancelled job that is delivered', [MADE, ['cancel', 12, 18, 'pending', ALL], TAKEN]],
  ['a job that comes again before its lease is over', [MADE, TAKEN, again(900)]],
  [
    'the same, although the lease was renewed',
    [MADE, TAKEN, ['renew', 900, 910, 'held', { receipt: 'a', leaseMs: 1_000 }], again(1_500)],
  ],
  ['an old payload after a replace', [MADE, ['replace', 12, 18, 'replaced', { version: 2 }], TAKEN]],
  [
    'two payloads seen in turn',
    [
      MADE,
      ['replace', 0, 10, 'replaced', { version: 2 }],
      ['show', 20, 30, 'pending', { version: 1 }],
      ['show', 40, 50, 'pending', { version: 2 }],
    ],
  ],
  ['an ack of a job that was replaced', [MADE, TAKEN, ['replace', 32, 38, 'replaced', { version: 2 }], ACKED]],
  ['a job that is said to be active, and nobody holds it', [MADE, ['bury', 20, 30, 'active']]],
  ['a cancel that finds nothing', [MADE, ['cancel', 20, 30, 'missing', ALL]]],
  [
    'a cancel that finds what another cancelled',
    [MADE, ['cancel', 12, 14, 'pending', ALL], ['cancel', 15, 16, 'pending', ALL]],
  ],
  ['a buried job that is delivered', [MADE, ['bury', 12, 14, 'buried'], TAKEN]],
  [
    'a job that was requeued by two',
    [MADE, ['bury', 12, 14, 'buried'], ['requeue', 15, 17, 'requeued'], ['requeue', 15, 17, 'requeued']],
  ],
  ['a lease that nobody superseded', [MADE, TAKEN, ['ack', 40, 50, 'superseded', { receipt: 'a' }]]],
  ['a lease that is lost at once', [MADE, TAKEN, ['ack', 40, 50, 'lost', { receipt: 'a' }]]],
  [
    'two deliveries under one receipt',
    [MADE, TAKEN, ['take', 1_900, 1_910, 'taken', { version: 1, receipt: 'a', leaseMs: 1 }]],
  ],
  ['a delivery of what was never sent', [TAKEN]],
  ['a delivery before the enqueue was sent', [TAKEN, ['keep', 40, 50, 'created', { version: 1 }]]],
  [
    'a confirmed enqueue of unknown course that left nothing',
    [
      ['keep', 0, 200, 'kept', { version: 1, repeated: true }],
      ['show', 210, 220, 'missing'],
    ],
  ],
  [
    'a lease taken from its holder, when no replace or cancel failed',
    [MADE, TAKEN, ['reschedule', 32, 38, 'rescheduled']],
  ],
  [
    'one that somebody unseen cannot have let go yet',
    [MADE, ['bury', 12, 18, 'active'], TAKEN],
    [{ from: 5, leaseMs: 1_000 }],
  ],
])('%s is found wrong', (_, calls, unseen) => {
  expect(judged(calls, unseen)).toMatch(/\w/);
});

it('a long history of many callers is judged within a second of CPU time', () => {
  const calls: Call[] = [];
  // Rounds of a job, each with six that look on at the same time, and two that nobody heard of again.
  for (let at = 0; at < 2_000; at += 100) {
    const version = at + 1;
    const receipt = `r${at}`;
    calls.push(['keep', at, at + 10, 'created', { version }]);
    calls.push(['take', at + 20, at + 30, 'taken', { version, receipt, leaseMs: 1_000 }]);
    calls.push(['ack', at + 40, at + 50, 'held', { receipt }]);
    calls.push(...Array.from({ length: 6 }, (): Call => ['show', at, at + 60, 'active', { version }]));
    if (at % 500 === 0) calls.push(['replace', at + 55, UNTIL, undefined, { version: -version }]);
    if (at % 500 === 0) calls.push(['cancel', at + 55, UNTIL, undefined, ALL]);
  }
  const begin = process.cpuUsage();
  const spentMs = () => {
    const { user, system } = process.cpuUsage(begin);
    return (user + system) / 1_000;
  };
  expect(judged(calls)).toBeUndefined();
  expect(spentMs()).toBeLessThan(1_000);
  const wrong = calls.map(
    (call): Call =>
      call[4]?.receipt === 'r1900' && call[0] === 'ack' ? ['show', 1_940, 1_950, 'active', { version: 7 }] : call,
  );
  expect(judged(wrong)).toMatch('no order');
  expect(spentMs()).toBeLessThan(5_000);
});
