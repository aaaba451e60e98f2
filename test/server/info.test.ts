import { describe, expect, it } from 'vitest';
import { eviction, memory, parseInfo, persistence, replicas, role } from '../../src/server/info.js';
import { during } from '../support/afterwards.js';
import { binary, delayq, sh } from '../support/cli.js';
import { canSetClocks, clockOff } from '../support/clock.js';
import { doctor, serverWith } from '../support/doctor.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

it('the AOF is to be kept by CONFIG REWRITE where there is a configuration file', () => {
  const how = { save: '', fsync: undefined, address: 'redis://127.0.0.1:6379' };
  const [found] = persistence({ aof_enabled: '0', config_file: '/etc/redis/redis.conf' }, how);
  expect(found?.next).toBe('redis-cli config set appendonly yes && redis-cli config rewrite');
});

describe.concurrent('a server on which queues are safe', () => {
  it('is reported as such, and doctor exits 0', async () => {
    const server = await serverWith('--maxmemory', '100mb');
    const { code, told } = await doctor(server.url);
    expect(Object.values(told).filter(({ level }) => level !== 'ok')).toEqual([]);
    expect(code).toBe(0);
    expect(Object.keys(told)).toEqual([
      'version',
      'role',
      'eviction',
      'memory',
      'aof',
      'replicas',
      'round-trip',
      'clock',
      'slow-log',
      'rights',
    ]);
    expect(told.memory?.what).toMatch(/^[\d.]+ MiB of 100\.0 MiB \(maxmemory\) used$/);
    const { stdout } = await delayq(['doctor', '--quiet', '--redis', server.url]);
    expect(stdout.replace(/^warn {2}redis +a round trip takes .*\n( {6}.*\n)*/, '')).toBe('');
  });
});

describe.concurrent('eviction', () => {
  it('of any key is a failure, with the command that stops it', async () => {
    const server = await serverWith('--maxmemory-policy', 'allkeys-lru', '--maxmemory', '100mb');
    const { code, told } = await doctor(server.url);
    expect({ code, eviction: told.eviction }).toMatchObject({
      code: 2,
      eviction: { level: 'fail', why: expect.stringContaining('deletes whole queues') },
    });
    const mend = await sh(String(told.eviction?.next), { env: { DELAYQ_REDIS_URL: server.url } });
    expect(mend).toMatchObject({ code: 0, stderr: expect.stringContaining('maxmemory-policy is now noeviction') });
    expect(await doctor(server.url)).toMatchObject({ code: 0, told: { eviction: { level: 'ok' } } });
  });

  it('of expiring keys is a warning, because keys of queues never expire', async () => {
    const server = await serverWith('--maxmemory-policy', 'volatile-lru');
    expect(await doctor(server.url)).toMatchObject({ code: 1, told: { eviction: { level: 'warn' } } });
  });
});

describe.concurrent('memory', () => {
  it('that is nearly used up is a failure', async () => {
    const server = await serverWith('--maxmemory', '100mb');
    await server.admin.config(
      'SET',
      'maxmemory',
      String(Math.ceil(Number(parseInfo(await server.admin.info()).used_memory) * 1.01)),
    );
    expect(await doctor(server.url)).toMatchObject({ code: 2, told: { memory: { level: 'fail' } } });
  });

  it('that is full does not prevent repairs', async () => {
    const server = await serverWith();
    await delayq(['enqueue', '-q', '--redis', server.url, 'q', '1', '--in', '1h']);
    await server.admin.zadd('delayq:{q}:pending', Date.now() + 3_600_000, 'ghost');
    await server.admin.hset('delayq:{q}:payload', 'lost', '1');
    await server.admin.srem('delayq:queues', 'q');
    await server.admin.config('SET', 'maxmemory', '1mb');
    const { code, stdout } = await delayq(['doctor', '--redis', server.url, '--fix', '--yes']);
    expect(code).toBe(2);
    expect(stdout).toContain('1 job without a payload: moved to dead');
    expect(stdout).toContain('moved to dead (found)');
    expect(stdout).toMatch(/^warn {2}q +is not in the list of queues$/m);
    expect(await server.admin.zrange('delayq:{q}:dead', '0', '-1')).toEqual(['ghost', 'lost']);
  });

  it('without a limit is that of the machine', () => {
    const info = parseInfo('used_memory:900\r\nmaxmemory:0\r\ntotal_system_memory:1000\r\n');
    expect(memory(info, 'redis://x')).toMatchObject({
      level: 'warn',
      what: expect.stringContaining('of the machine (no maxmemory) used'),
    });
  });
});

describe.concurrent('what a crash would lose', () => {
  it('is everything without AOF and RDB, until the suggested command was run', async () => {
    const server = await during(Server.start());
    const { code, told } = await doctor(server.url);
    expect({ code, told }).toMatchObject({
      code: 1,
      told: { persistence: { level: 'warn', what: 'neither AOF nor RDB' } },
    });
    // It was started without a configuration file, so that CONFIG REWRITE fails.
    expect(told.persistence?.next).toMatch(
      /config set appendonly yes {2}# .*add --appendonly yes where it is started$/,
    );
    expect((await sh(String(told.persistence?.next))).stdout).toBe('OK\n');
    expect(await doctor(server.url)).toMatchObject({ code: 0, told: { aof: { level: 'ok' } } });
  });

  it('is everything since the last snapshot with RDB alone', async () => {
    const server = await during(Server.start({ args: ['--save', '3600', '1000'] }));
    await server.admin.set('a', 1);
    const { told } = await doctor(server.url);
    expect(told.persistence).toMatchObject({ level: 'warn', what: expect.stringMatching(/RDB.*1 change since/) });
  });

  it('is up to 30 s with appendfsync no', async () => {
    const server = await serverWith('--appendfsync', 'no');
    expect((await doctor(server.url)).told.aof).toMatchObject({
      level: 'warn',
      next: expect.stringContaining('everysec'),
    });
  });

  it('is unknown if CONFIG and the like are not allowed, which is not a fault', async () => {
    const renamed = ['config', 'slowlog', 'acl', 'info'].flatMap((name) => ['--rename-command', name, '']);
    const server = await serverWith(...renamed);
    const { code, told } = await doctor(server.url);
    const skipped = Object.values(told).filter(({ level }) => level === 'skip');
    expect(skipped.map(({ check }) => check)).toEqual([
      'version',
      'role',
      'eviction',
      'memory',
      'persistence',
      'replicas',
      'slow-log',
    ]);
    expect({ code, rights: told.rights?.level }).toEqual({ code: 0, rights: 'ok' });
    expect((await delayq(['doctor', '--redis', server.url])).stdout).toMatch(/^skip {2}redis +cannot tell: /m);
    expect(await delayq(['doctor', '--set-noeviction', '--redis', server.url])).toMatchObject({
      code: 78,
      stderr: expect.stringMatching(/cannot set maxmemory-policy\n.*CONFIG.*\n.*configuration file of Redis/),
    });
  });

  it('is not attributed to snapshots if only CONFIG could tell', () => {
    const how = { save: undefined, fsync: undefined, address: 'redis://x' };
    expect(persistence(parseInfo('aof_enabled:0\n'), how)).toMatchObject([
      { what: expect.stringMatching(/^no AOF, and at most snapshots/) },
    ]);
  });

  it.each([
    ['aof_enabled:1\naof_last_write_status:err\n', 'aof', 'fail'],
    ['aof_enabled:1\naof_last_write_status:ok\naof_last_bgrewrite_status:err\n', 'aof-rewrite', 'warn'],
    ['aof_enabled:1\naof_last_write_status:ok\nrdb_last_bgsave_status:err\n', 'rdb', 'fail'],
    ['aof_enabled:1\naof_last_write_status:ok\nlatest_fork_usec:900000\n', 'fork', 'warn'],
  ])('is said of %j', (info, check, level) => {
    const found = persistence(parseInfo(info), { save: '', fsync: 'everysec', address: 'redis://x' });
    expect(found.filter((finding) => finding.level !== 'ok')).toMatchObject([
      { check, level, why: expect.any(String) },
    ]);
  });
});

describe.concurrent('a replica', () => {
  it('is a failure, and its primary shows whether it keeps up', async () => {
    const primary = await during(Server.start({ tcp: true, args: ['--appendonly', 'yes'] }));
    const replica = await serverWith('--replicaof', '127.0.0.1', String(primary.port));
    await until(async () => /state=online/.test(await primary.admin.info('replication')));
    const { code, told } = await doctor(replica.url);
    expect({ code, role: told.role }).toMatchObject({
      code: 2,
      role: { level: 'fail', next: expect.stringContaining(`redis://127.0.0.1:${primary.port}`) },
    });
    await until(async () => (await doctor(primary.tcpUrl)).told.replicas?.what.startsWith('1 replica connected'));
  });

  it('shows faults, although nothing can be repaired there', async () => {
    const primary = await during(Server.start({ tcp: true }));
    await primary.admin.zadd('delayq:{q}:pending', Date.now() + 3_600_000, 'ghost');
    const replica = await serverWith('--replicaof', '127.0.0.1', String(primary.port));
    await until(async () => (await replica.admin.exists('delayq:{q}:pending')) === 1);
    const { code, stdout, stderr } = await delayq(['doctor', '--redis', replica.url, '--fix', '--yes', 'q']);
    expect({ code, stderr }).toEqual({ code: 2, stderr: '' });
    expect(stdout).toMatch(/^fail {2}q +1 job without a payload$/m);
    expect(stdout).toMatch(/^warn {2}q +cannot be repaired: READONLY /m);
  });

  it.each([
    ['slave0:ip=1,port=2,state=online,offset=5,lag=1', 'ok'],
    ['slave0:ip=1,port=2,state=online,offset=5,lag=11', 'warn'],
    ['slave0:ip=1,port=2,state=wait_bgsave,offset=0,lag=0', 'warn'],
  ])('that is told as %s is %s', (line, level) => {
    expect(replicas(parseInfo(`connected_slaves:1\r\n${line}\r\n`))).toMatchObject({ level });
  });
});

describe('calls of delayq in the slow log', () => {
  it('are reported, those of other software are not', async () => {
    const server = await serverWith('--slowlog-log-slower-than', '100000');
    const busy = `local n = 0 repeat n = n + 1 until n > ${2e7} return n`;
    await server.admin.eval(busy, 1, 'other:key');
    expect((await doctor(server.url)).told['slow-log']?.level).toBe('ok');
    await server.admin.eval(busy, 1, 'delayq:{q}:pending');
    expect((await doctor(server.url)).told['slow-log']).toMatchObject({
      level: 'warn',
      what: expect.stringMatching(/^1 slow call in the last day, the slowest .* \(eval\)$/),
    });
  });
});

describe('the clock of this machine', () => {
  it.runIf(canSetClocks)('is compared with that of Redis', async () => {
    const server = await serverWith();
    const { stdout } = await binary(['doctor', '--redis', server.url], { env: clockOff('+3600s') });
    expect(stdout).toMatch(/^warn {2}redis +the clock of this machine is (59m 59s|1h) ahead of that of Redis$/m);
  });
});

describe('a server that loads its data', () => {
  it('is reported, and nothing else is checked', async () => {
    const server = await during(Server.start());
    await server.admin.eval("for i = 1, 20000 do redis.call('SET', 'k' .. i, string.rep('x', 100)) end", 0);
    await server.admin.save();
    await server.end();
    // Each key takes its time to load, so that Redis is loading for as long as the test looks.
    const args = ['--key-load-delay', '1000', '--loading-process-events-interval-bytes', '1024'];
    await server.run({ wait: false, args });
    await until(async () => (await delayq(['doctor', '--redis', server.url])).code !== 69);
    const { code, told } = await doctor(server.url);
    expect({ code, checks: Object.keys(told) }).toEqual({ code: 2, checks: ['loading'] });
  });
});

it('what INFO does not show is not judged', () => {
  const info = parseInfo('');
  const found = [role(info), eviction(info), memory(info, ''), replicas(info)];
  expect(found.map(({ level }) => level)).toEqual(['skip', 'skip', 'skip', 'skip']);
});
