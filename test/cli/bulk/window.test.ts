import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { Window } from '../../../src/cli/bulk/window.js';

describe('a window of calls', () => {
  it('keeps at most so many in flight, and takes results in the order of the calls', async () => {
    const window = new Window({ calls: 3 });
    let inFlight = 0;
    let most = 0;
    const taken: number[] = [];
    const call = async (i: number) => {
      most = Math.max(most, ++inFlight);
      await sleep(i % 3 === 0 ? 8 : 1);
      inFlight -= 1;
      return i;
    };
    for (let i = 0; i < 12; i++) await window.add(call(i), (result) => taken.push(result));
    await window.end();
    expect(most).toBe(3);
    expect(taken).toEqual(Array.from({ length: 12 }, (_, i) => i));
  });

  it('takes a result at once, without waiting for another call', async () => {
    const window = new Window({ calls: 3 });
    const taken = await new Promise((resolve) => window.add(Promise.resolve('result'), resolve));
    expect(taken).toBe('result');
  });

  it('is full when the calls in flight are large together', async () => {
    const window = new Window({ calls: 10, size: 100 });
    let ended = false;
    const call = sleep(5).then(() => {
      ended = true;
    });
    await window.add(call, () => {}, 99);
    expect(ended).toBe(false);
    await window.add(Promise.resolve(), () => {}, 1);
    expect(ended).toBe(true);
  });

  it('throws the error of the first call that failed, and takes no later result', async () => {
    const window = new Window({ calls: 4 });
    const taken: number[] = [];
    const take = (i: number) => taken.push(i);
    await window.add(
      sleep(5).then(() => 1),
      take,
    );
    await window.add(Promise.reject(new Error('refused')), take);
    await window.add(Promise.resolve(3), take);
    await expect(window.end()).rejects.toThrow('refused');
    expect(taken).toEqual([1]);
  });
});
