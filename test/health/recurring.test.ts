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

it.each(['1h', '0 * * * *'])('an occurrence that is too late for %s is found, and set right', async (when) => {
  const name = freshName();
  await recurring.put(name, { id: 'r', when, payload: 1 });
  const [every, occurs] = [key(name, 'every'), key(name, 'occurs')];
  const next = Number(await admin.zscore(occurs, 'r'));
  await admin.zadd(occurs, next + 365 * 86_400_000, 'r');
  expect(found(await auditor.examine(name))).toMatchObject([{ level: 'warn', mendable: true, samples: ['r'] }]);
  expect(found(await auditor.examine(name, { mend: true }))).toMatchObject([{ level: 'ok', mended: 1 }]);
  expect(Number(await admin.zscore(occurs, 'r'))).toBe(next);
  // Its last job was made just now, and then the clock went back a little: that one is not made again.
  const text = String(await admin.hget(every, 'r'));
  await admin.hset(every, 'r', `r@${new Date(next).toISOString().slice(0, 19)}Z${text}`);
  await admin.zadd(occurs, next + 3_600_000, 'r');
  expect(found(await auditor.examine(name))).toEqual([]);
});

it('an interval that was put while the clock was ahead is found, and counts from now', async () => {
  const name = await withJob();
  const [every, occurs] = [key(name, 'every'), key(name, 'occurs')];
  const ahead = Date.now() + 365 * 86_400_000;
  await admin.hset(every, 'r', String(await admin.hget(every, 'r')).replace(/"created":\d+/, `"created":${ahead}`));
  await admin.zadd(occurs, ahead + 3_600_000, 'r');
  expect(found(await auditor.examine(name, { mend: true }))).toMatchObject([{ level: 'ok', mended: 1 }]);
  expect(Number(await admin.zscore(occurs, 'r'))).toBeLessThan(Date.now() + 3_700_000);
  expect(found(await auditor.examine(name))).toEqual([]);
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
