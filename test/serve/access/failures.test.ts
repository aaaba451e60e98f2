import { expect, it } from 'vitest';
import { Failures } from '../../../src/serve/access/failures.js';
import { ManualClock } from '../../support/manual-clock.js';

/** The failures of one address that has sent so many invalid tokens, and their clock. */
function failed(times: number) {
  const clock = new ManualClock();
  const failures = new Failures(clock);
  for (let i = 0; i < times; i++) failures.add('a');
  return { failures, clock };
}

it('ten invalid tokens use up the attempts of an address until its minute is over, and then it has ten again', () => {
  const { failures, clock } = failed(9);
  expect(failures.blockedMs('a')).toBe(0);
  failures.add('a');
  expect(failures.blockedMs('a')).toBe(60_000);
  expect(failures.blockedMs('another')).toBe(0);
  clock.pass(59_999);
  expect(failures.blockedMs('a')).toBe(1);
  clock.pass(1);
  expect(failures.blockedMs('a')).toBe(0);
  for (let i = 0; i < 9; i++) failures.add('a');
  expect(failures.blockedMs('a')).toBe(0);
  failures.add('a');
  expect(failures.blockedMs('a')).toBe(60_000);
});

it('an address without attempts may have ten tokens looked up in a second', () => {
  const { failures, clock } = failed(10);
  const asked = () => Array.from({ length: 12 }, () => failures.mayAsk('a')).filter(Boolean).length;
  expect(asked()).toBe(10);
  clock.pass(1_000);
  expect(asked()).toBe(10);
});
