import { expect, it } from 'vitest';
import { Batcher } from '../../src/consume/batcher.js';
import { until } from '../support/until.js';

it('items of one turn share a call, and those that come while two are in flight share the next', async () => {
  const calls: number[][] = [];
  const open: (() => void)[] = [];
  const batcher = Batcher.of<number, number>(async (items) => {
    calls.push([...items]);
    await new Promise<void>((resolve) => open.push(resolve));
    return items.map((item) => item * 2);
  });
  const turn = () => new Promise(setImmediate);
  const results = [batcher.add(1), batcher.add(2)];
  await turn();
  results.push(batcher.add(3));
  await turn();
  results.push(batcher.add(4));
  await turn();
  results.push(batcher.add(5));
  await turn();
  expect(calls).toEqual([[1, 2], [3]]);
  open[0]?.();
  await results[0];
  await until(() => calls.length === 3);
  expect(calls[2]).toEqual([4, 5]);
  for (const end of open) end();
  expect(await Promise.all(results)).toEqual([2, 4, 6, 8, 10]);
  await until(() => batcher.isIdle);
});

it('calls that fail leave room for the next', async () => {
  let fails = true;
  const batcher = Batcher.of<number, number>(async (items) => {
    if (fails) throw new Error(`not ${items}`);
    return items;
  });
  for (let i = 0; i < 3; i++) await expect(batcher.add(i)).rejects.toThrow(`not ${i}`);
  fails = false;
  expect(await batcher.add(4)).toBe(4);
});
