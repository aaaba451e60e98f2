import { expect, it } from 'vitest';
import { Connection } from '../../src/redis/connection.js';
import { replicated } from '../../src/store/durability.js';
import { afterwards } from '../support/afterwards.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

it.each([
  ['is told as trouble that passes, if all replicas must follow', true],
  ['counts as one whose replicas follow otherwise: a failover on purpose loses nothing', false],
])('a server that becomes a replica after a write %s', async (_, must) => {
  const primary = await Server.start({ tcp: true });
  afterwards(() => primary.stop());
  const replica = await Server.start({ args: ['--replicaof', '127.0.0.1', String(primary.port)] });
  afterwards(() => replica.stop());
  await until(async () => /state=online/.test(await primary.admin.info('replication')));
  const redis = new Connection(primary.url);
  afterwards(() => redis.close());
  const write = (value: string) => replicated(redis, 'x', must, (caller) => caller.call('SET', 'x', value));
  await write('1');
  const there = async () => (await replica.admin.get('x')) === '1';
  // Who need not wait for replicas waits a moment only.
  if (must) expect(await there()).toBe(true);
  else await until(there);
  const ended = replicated(redis, 'x', must, async (caller) => {
    await caller.call('SET', 'x', '2');
    await caller.call('REPLICAOF', '127.0.0.1', '1');
  });
  if (must) await expect(ended).rejects.toMatchObject({ code: 'temporary', next: 'try again' });
  else await ended;
});
