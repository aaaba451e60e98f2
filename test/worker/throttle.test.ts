import { describe, expect, it } from 'vitest';
import { Throttle } from '../../src/worker/throttle.js';
import { ManualClock } from '../support/manual-clock.js';

/** A throttle, how often it said that it is time to ask again, and its clock. */
function throttled(ratePerSecond?: number) {
  const [clock, asks] = [new ManualClock(), { again: 0 }];
  const again = () => {
    asks.again += 1;
  };
  const throttle = new Throttle(ratePerSecond, () => undefined, again, clock);
  // Later than the time at which it was made, as always.
  clock.pass(1_000);
  return { throttle, clock, asks };
}

describe('a throttle', () => {
  it('lets one start in each interval, and says when the next may', () => {
    const { throttle, clock, asks } = throttled(50);
    expect([throttle.mayStart(), throttle.mayStart()]).toEqual([true, false]);
    // The slack of the first.
    clock.pass(9);
    expect(asks.again).toBe(0);
    clock.pass(1);
    expect([asks.again, throttle.mayStart(), throttle.mayStart()]).toEqual([1, true, false]);
    clock.pass(19);
    expect([asks.again, throttle.calls]).toEqual([1, 0]);
    clock.pass(1);
    expect([asks.again, throttle.calls]).toEqual([2, 1]);
  });

  it('allows no more than the rate, however often and late it is asked', () => {
    const { throttle, clock } = throttled(50);
    const starts: number[] = [];
    for (let n = 0; starts.length < 200; n++) {
      if (throttle.mayStart()) starts.push(clock.now());
      // Mostly soon, at times after a pause in which ten could have started.
      else clock.pass(n % 40 === 0 ? 200 : 1 + (n % 7));
    }
    // A start that is late by up to 10 ms does not delay those after it.
    for (const [i, at] of starts.slice(10).entries()) expect(at - (starts[i] as number)).toBeGreaterThanOrEqual(190);
  });

  it('is not slowed down by starts that are a little late', () => {
    const { throttle, clock } = throttled(50);
    const from = clock.now();
    for (let n = 0; n < 100; n++) {
      while (!throttle.mayStart()) clock.pass(1);
      clock.pass(n % 8);
    }
    expect(clock.now() - from).toBeLessThanOrEqual(100 * 20 + 10);
  });

  it('has no limit without a rate', () => {
    const { throttle } = throttled();
    expect([throttle.calls > 1_000_000, throttle.mayStart(), throttle.mayStart()]).toEqual([true, true, true]);
  });

  it('that was closed does not ask again', () => {
    const { throttle, clock, asks } = throttled(1);
    throttle.mayStart();
    expect(throttle.mayStart()).toBe(false);
    throttle.close();
    clock.pass(60_000);
    expect(asks.again).toBe(0);
  });
});
