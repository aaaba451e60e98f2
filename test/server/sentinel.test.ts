import { expect, it } from 'vitest';
import { sentinelFindings } from '../../src/server/sentinel.js';
import { during } from '../support/afterwards.js';
import { delayq, sh } from '../support/cli.js';
import { doctor } from '../support/doctor.js';
import { Sentinels } from '../support/sentinel.js';
import { until } from '../support/until.js';

// What a busy machine makes slow is no fault here.
const SOUND = ['--appendonly', 'yes', '--slowlog-log-slower-than', '60000000'];

it.concurrent('a failover that may lose jobs is a failure, until Redis waits for a replica', async () => {
  const group = await during(Sentinels.start({ replicas: 2, args: SOUND }));
  const { code, told } = await doctor(group.url);
  expect(code).toBe(2);
  expect(told.failover).toMatchObject({
    level: 'fail',
    what: 'min-replicas-to-write is 0',
    why: expect.stringMatching(/at worst 8,646 in 11 s.*--replicas 2, which is all replicas, none$/),
  });
  expect(await sh(String(told.failover?.next).replace(/;.*/, ''))).toMatchObject({ stdout: 'OK\n' });
  const after = await doctor(group.url);
  expect(Object.values(after.told).filter(({ level }) => level !== 'ok')).toEqual([]);
  expect(after.code).toBe(0);
  expect(after.told.primary?.what).toMatch(
    /^3 Sentinels asked: delayq is 127\.0\.0\.1:\d+; it is replaced when silent/,
  );
  expect(after.told.quorum?.what).toBe('3 Sentinels, and 2 of them must find the primary down');
  expect(after.told.candidates?.what).toBe('2 of 2 replicas can take over');
});

it.concurrent('commands for redis-cli name the primary, not the Sentinels', async () => {
  const group = await during(Sentinels.start({ args: SOUND }));
  await delayq(['enqueue', '-q', '--in', '1h', 'q', '1', '--redis', group.url]);
  await group.servers[0]?.admin.expire('delayq:{q}:payload', 1_000);
  const next = (await doctor(group.url)).told['expiring-key']?.next;
  expect(await sh(String(next))).toMatchObject({ stdout: '1\n' });
});

it.concurrent('too few Sentinels for a failover, and no replica for it, are told', async () => {
  const group = await during(Sentinels.start({ args: [...SOUND, '--min-replicas-to-write', '1'] }));
  const [, two, three] = group.sentinels;
  await two?.end('SIGKILL');
  await three?.end('SIGKILL');
  await group.servers[1]?.end('SIGKILL');
  await until(async () => (await doctor(group.url)).told.candidates?.level === 'fail');
  await until(async () => (await doctor(group.url)).told.quorum?.level === 'fail');
  const { told } = await doctor(group.url);
  expect(told.quorum?.what).toMatch(/^no failover can be decided: NOQUORUM/);
  expect(told.candidates?.what).toBe('0 of 1 replica can take over');
  expect(told.sentinel).toMatchObject({ level: 'warn', what: expect.stringContaining('cannot be asked') });
});

it.concurrent('one Sentinel is too few', async () => {
  const group = await during(Sentinels.start({ sentinels: 1, args: SOUND }));
  expect((await doctor(group.url)).told.sentinels).toMatchObject({
    level: 'warn',
    what: 'only 1 Sentinel watches delayq',
  });
});

it('Sentinels that disagree are named with what they say', () => {
  const saying = (address: string, port: string) => ({
    address,
    primary: { ip: '10.0.0.1', port, quorum: '1', 'num-other-sentinels': '2' },
    replicas: [],
  });
  const found = sentinelFindings('orders', [saying('s1:26379', '6379'), saying('s2:26379', '6380')]);
  expect(found.find(({ check }) => check === 'primary')).toMatchObject({
    level: 'fail',
    what: 'the Sentinels disagree where orders is: 10.0.0.1:6379 (s1:26379); 10.0.0.1:6380 (s2:26379)',
  });
});

it('a Sentinel that does not know the primary, for example because it was restarted empty, is told apart from one that is down', () => {
  const none = { primary: {}, replicas: [] };
  const found = sentinelFindings('orders', [
    { address: 's1:26379', ...none, trouble: 'ERR No such master with that name' },
    { address: 's2:26379', ...none, trouble: 'nothing listens there (ECONNREFUSED)' },
  ]);
  expect(found.filter(({ level }) => level === 'warn').map(({ what, next }) => `${what}: ${next}`)).toEqual([
    'the Sentinel at s1:26379 does not watch orders: let it watch the primary (SENTINEL MONITOR), or take it out of the URL',
    'the Sentinel at s2:26379 cannot be asked: nothing listens there (ECONNREFUSED): start it again, or take it out of the URL',
  ]);
});

it('an IPv6 address is shown in brackets', () => {
  const primary = { ip: '::1', port: '6379', quorum: '1', 'num-other-sentinels': '2' };
  const found = sentinelFindings('orders', [{ address: 's1:26379', primary, replicas: [] }]);
  expect(found.find(({ check }) => check === 'primary')?.what).toBe('1 Sentinel asked: orders is [::1]:6379');
});
