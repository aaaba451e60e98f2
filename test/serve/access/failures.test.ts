import { expect, it } from 'vitest';
import { Failures } from '../../../src/serve/access/failures.js';
import { ManualClock } from '../../support/manual-clock.js';

/** The failures of one address with so many tokens that were invalid, and their clock. */
function failed(tokens: number, times = 1) {
  const clock = new ManualClock();
  const failures = new Failures(clock);
  for (let i = 0; i < times; i++) for (let token = 0; token < tokens; token++) failures.add('a', `t${token}`);
  return { failures, clock };
}

it('ten different tokens use up the attempts of an address until its minute is over, and then it has ten again', () => {
  const { failures, clock } = failed(9);
  expect(failures.blockedMs('a', 'new')).toBe(0);
  failures.add('a', 'tenth');
  expect(failures.blockedMs('a', 'new')).toBe(60_000);
  expect(failures.blockedMs('another', 'new')).toBe(0);
  clock.pass(59_999);
  expect(failures.blockedMs('a', 'new')).toBe(1);
  clock.pass(1);
  expect(failures.blockedMs('a', 'new')).toBe(0);
  for (let token = 0; token < 9; token++) failures.add('a', `u${token}`);
  expect(failures.blockedMs('a', 'new')).toBe(0);
  failures.add('a', 'u9');
  expect(failures.blockedMs('a', 'new')).toBe(60_000);
});

it('one token that fails again and again is refused, and no other', () => {
  const { failures } = failed(1, 10);
  expect(failures.blockedMs('a', 't0')).toBe(60_000);
  expect(failures.blockedMs('a', 'new')).toBe(0);
});

it('an address without attempts may have ten further tokens looked for in a second', () => {
  const { failures, clock } = failed(10);
  const asked = () => Array.from({ length: 12 }, (_, i) => failures.mayAsk('a', `v${i}`)).filter(Boolean).length;
  expect(asked()).toBe(10);
  expect(failures.mayAsk('a', 't0')).toBe(true);
  clock.pass(1_000);
  expect(asked()).toBe(10);
});
