import { expect, it } from 'vitest';
import { Auditor, Operator, Queue, Recurring } from '../../src/internal.js';
import { Store } from '../../src/store/store.js';
import { admin, connection, freshName, freshQueue, key } from '../support/redis.js';

const auditor = new Auditor(connection);
const examine = async (name: string, mend = false) =>
  (await auditor.examine(name, { mend, graceMs: 0 })).filter(({ check }) => check === 'uses');
const layout = (name: string) => admin.hget(key(name, 'config'), 'layout');

it.each([
  ['settings', 'settings', (name: string) => admin.hset(key(name, 'config'), 'tries', '3')],
  ['a pause', 'settings', (name: string) => admin.hset(key(name, 'config'), 'paused', 'inf')],
  ['a rate', 'rate', (name: string) => admin.hset(key(name, 'config'), 'rate', '10/1000')],
  ['a limit', 'maxActive', (name: string) => admin.hset(key(name, 'config'), 'maxActive', '2')],
  ['a window', 'windows', (name: string) => admin.hset(key(name, 'config'), 'onceFor', '60000')],
  ['remembered ids', 'windows', (name: string) => admin.zadd(key(name, 'done'), Date.now() + 60_000, 'o:1')],
  ['events', 'events', (name: string) => admin.hset(key(name, 'config'), 'events', '10')],
  ['jobs that are done to be kept', 'results', (name: string) => admin.hset(key(name, 'config'), 'keepDone', '1000')],
  ['text', 'texts', (name: string) => admin.hset(key(name, 'config'), 'text', '1')],
])('finds %s that other software has written, and mends the layout', async (_, word, write) => {
  const queue = freshQueue();
  await queue.enqueue({ payload: 1, in: '1h' });
  expect(await examine(queue.name)).toEqual([]);
  await write(queue.name);
  expect(await examine(queue.name)).toMatchObject([
    { level: 'fail', what: `it uses ${word}, but its layout does not say so`, mendable: true },
  ]);
  expect(await layout(queue.name)).toBe(null);
  expect(await examine(queue.name, true)).toMatchObject([{ level: 'ok', mended: 1 }]);
  expect(await layout(queue.name)).toBe(`1 0/1 uses ${word}`);
  expect(await examine(queue.name)).toEqual([]);
});

it('finds recurring jobs whose layout was lost, and drains make their jobs again', async () => {
  const queue = freshQueue();
  await new Recurring(connection).put(queue.name, { id: 'r', when: '1s', payload: 1, from: 0 });
  await admin.hdel(key(queue.name, 'config'), 'layout');
  await admin.zadd(key(queue.name, 'occurs'), Math.floor(Date.now() / 1_000) * 1_000 - 1_000, 'r');
  expect((await queue.drain()).jobs).toEqual([]);
  expect(await examine(queue.name, true)).toMatchObject([{ mended: 1 }]);
  // Two, if a second has passed.
  expect((await queue.drain()).jobs.length).toBeGreaterThan(0);
});

it('looks at each partition', async () => {
  const name = freshName();
  for await (const _ of new Operator(connection).partition(name, 2));
  const { map } = Store.of(connection, 'delayq', name);
  const second = key(map.tags[1] as string, 'config');
  const [id] = Array.from({ length: 100 }, (_, n) => `o:${n}`).filter((one) => map.ownerOf(one) === 1);
  await new Queue(connection, name).enqueue({ payload: 1, in: '1h' });
  await admin.zadd(key(map.tags[1] as string, 'done'), Date.now() + 60_000, id as string);
  expect(await examine(name)).toMatchObject([{ what: 'it uses windows, but its layout does not say so' }]);
  await examine(name, true);
  expect(await admin.hget(second, 'layout')).toBe('1 1/2 uses windows');
  expect(await examine(name)).toEqual([]);
});

it('keeps words of newer versions, and warns of them', async () => {
  const queue = freshQueue();
  await admin.hset(key(queue.name, 'config'), 'layout', '1 0/1 uses settings newer');
  await queue.enqueue({ payload: 1 });
  await new Operator(connection).configure(queue.name, { maxActive: 2 });
  expect(await layout(queue.name)).toBe('1 0/1 uses maxActive newer');
  expect(await examine(queue.name)).toMatchObject([
    { level: 'warn', what: 'its layout has words that this version does not know: newer' },
  ]);
  expect((await queue.drain()).jobs).toHaveLength(1);
});

it('finds limits of a queue with partitions, and says how to remove them', async () => {
  const name = freshName();
  for await (const _ of new Operator(connection).partition(name, 2));
  await admin.hset(key(name, 'config'), 'rate', '5 1000');
  await new Queue(connection, name).enqueue({ payload: 1, in: '1h' });
  expect(await examine(name)).toMatchObject([
    { level: 'fail', what: 'it has partitions and limits (rate)', next: `delayq config ${name} rate=` },
  ]);
  await new Operator(connection).configure(name, { rate: null });
  expect(await examine(name)).toEqual([]);
});
