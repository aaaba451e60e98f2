import { expect, it } from 'vitest';
import { Auditor, type Finding, Recurring } from '../../src/internal.js';
import { admin, connection, freshName, key } from '../support/redis.js';

const recurring = new Recurring(connection);
const auditor = new Auditor(connection);
const found = (all: readonly Finding[]) => all.filter(({ check }) => check === 'recurring');

async function withJob(name = freshName()): Promise<string> {
  await recurring.put(name, { id: 'r', when: '1h', payload: 1 });
  return name;
}

it('a healthy recurring job has no fault, nor has a paused one', async () => {
  const name = await withJob();
  expect(found(await auditor.examine(name))).toEqual([]);
  await recurring.pause(name, 'r');
  expect(found(await auditor.examine(name))).toEqual([]);
});

it('a definition without an occurrence is found, and gets its next one', async () => {
  const name = await withJob();
  const next = await admin.zscore(key(name, 'occurs'), 'r');
  for (const spoil of [() => admin.zrem(key(name, 'occurs'), 'r'), () => admin.zadd(key(name, 'occurs'), 'inf', 'r')]) {
    await spoil();
    expect(found(await auditor.examine(name))).toMatchObject([{ level: 'warn', mendable: true, samples: ['r'] }]);
    expect(found(await auditor.examine(name, { mend: true }))).toMatchObject([{ level: 'ok', mended: 1 }]);
    expect(await admin.zscore(key(name, 'occurs'), 'r')).toBe(next);
  }
});

it('an occurrence without a definition is found, and removed', async () => {
  const name = await withJob();
  await admin.hdel(key(name, 'every'), 'r');
  expect(found(await auditor.examine(name))).toMatchObject([{ what: expect.stringContaining('no definition') }]);
  await auditor.examine(name, { mend: true });
  expect(await admin.exists(key(name, 'occurs'))).toBe(0);
});

it('one that cannot be read is told, and left as it is', async () => {
  const name = await withJob();
  await admin.hset(key(name, 'every'), 'r', '\n{"rev":"x","later":1}\n1');
  expect(found(await auditor.examine(name, { mend: true }))).toMatchObject([
    { level: 'warn', what: expect.stringContaining('cannot be read') },
  ]);
  expect(await admin.hget(key(name, 'every'), 'r')).toBe('\n{"rev":"x","later":1}\n1');
});

it('one that never comes again is told', async () => {
  const name = freshName();
  await recurring.put(name, { id: 'r', when: '0 0 29 2 *', payload: 1 });
  const text = await admin.hget(key(name, 'every'), 'r');
  await admin.hset(key(name, 'every'), 'r', String(text).replace('0 0 29 2 *', '0 0 30 2 *'));
  await admin.zadd(key(name, 'occurs'), 'inf', 'r');
  expect(found(await auditor.examine(name))).toMatchObject([{ what: expect.stringContaining('never comes again') }]);
});
