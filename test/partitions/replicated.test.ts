import { expect, it } from 'vitest';
import { replicated } from '../../src/partitions/replicated.js';
import { Connection } from '../../src/redis/connection.js';
import { afterwards } from '../support/afterwards.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

it('a server that becomes a replica after a write is told as trouble that passes', async () => {
  const primary = await Server.start({ tcp: true });
  afterwards(() => primary.stop());
  const replica = await Server.start({ args: ['--replicaof', '127.0.0.1', String(primary.port)] });
  afterwards(() => replica.stop());
  await until(async () => /state=online/.test(await primary.admin.info('replication')));
  const redis = new Connection(primary.url);
  afterwards(() => redis.close());
  const write = (value: string) => replicated(redis, 'x', true, (caller) => caller.call('SET', 'x', value));
  await write('1');
  expect(await replica.admin.get('x')).toBe('1');
  const ended = replicated(redis, 'x', true, async (caller) => {
    await caller.call('SET', 'x', '2');
    await caller.call('REPLICAOF', '127.0.0.1', '1');
  });
  await expect(ended).rejects.toMatchObject({ code: 'temporary', next: 'repeat the command' });
});
