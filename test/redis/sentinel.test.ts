import { beforeAll, describe, expect, it, vi } from 'vitest';
import { Connection, Queue } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { begin, delayq } from '../support/cli.js';
import { doctor } from '../support/doctor.js';
import { Load } from '../support/load.js';
import { freshName, key } from '../support/redis.js';
import { Sentinels } from '../support/sentinel.js';
import { freePort, Server } from '../support/server.js';
import { until } from '../support/until.js';

const REPLICAS = 2;

const connect = (url: string) => {
  const redis = new Connection(url);
  afterwards(() => redis.close());
  return redis;
};

const load = (...args: ConstructorParameters<typeof Load>) => during(new Load(...args));

describe.concurrent('a primary with two replicas and three Sentinels', () => {
  let group: Sentinels;
  beforeAll(async () => {
    group = await Sentinels.start({ replicas: REPLICAS });
    return () => group.stop();
  });

  it.sequential('is used like one server', async () => {
    const env = { DELAYQ_REDIS_URL: group.url };
    const name = freshName();
    expect(await delayq(['enqueue', '--replicas', '2', name, '1'], { env })).toMatchObject({ code: 0, stderr: '' });
    expect(await delayq(['inspect', name], { env })).toMatchObject({ code: 0, stderr: '' });
    expect(await delayq(['drain', name], { env })).toMatchObject({ code: 0, stdout: '1\n', stderr: '' });
  });

  it.sequential('a primary that Sentinels name, but that is none (yet), gets no call', async () => {
    const [replica] = await group.replicas();
    // A Sentinel with an old view, after a partition.
    const config = `sentinel monitor delayq 127.0.0.1 ${replica?.port} 1\n`;
    const wrong = await during(Server.start({ tcp: true, config, args: ['--sentinel'] }));
    const queue = new Queue(connect(`redis+sentinel://127.0.0.1:${wrong.port}/delayq`), freshName());
    const error = await queue.enqueue({ payload: 1 }).then(
      () => undefined,
      (thrown) => thrown,
    );
    // It may find out by itself which server is the primary.
    if (error === undefined) return;
    expect(error).toMatchObject({
      code: 'temporary',
      what: expect.stringMatching(/is no primary$/),
      why: expect.stringContaining('slave'),
    });
  });

  it.sequential('a SENTINEL FAILOVER under load, without --replicas: what is lost was confirmed around it, and doctor warns before', async () => {
    const { code, told } = await doctor(group.url);
    expect({
      code,
      said: Object.values(told)
        .map((finding) => `${finding.level} ${finding.what} ${finding.why}`)
        .join('\n'),
    }).toEqual({
      code: 2,
      said: expect.stringMatching(/fail .*min-replicas-to-write/),
    });
    const working = await load(connect(group.url), freshName());
    await working.goesOn();
    const before = await group.primary();
    // So that it takes itself for a primary for good: only who hears of the switch leaves it.
    await before.admin.call('ACL', 'SETUSER', 'default', '-slaveof', '-replicaof');
    const early = await working.copied(before, REPLICAS);
    const after = await group.failover();
    const enqueued = async () => Number(await after.admin.hget(key(working.queue.name, 'stats'), 'enqueued'));
    const copied = await enqueued();
    await until(async () => (await enqueued()) > copied);
    const around = new Set(working.confirmed);
    await working.goesOn(100);
    const lost = await working.end();
    expect(lost.filter((id) => early.has(id) || !around.has(id))).toEqual([]);
    expect(await before.admin.info('replication')).toMatch(/^role:master/m);
  });
});

describe.concurrent('a primary with two replicas and three Sentinels that replace it', () => {
  // One for each test: after a failover it takes Sentinels ten seconds to agree again.
  const start = () => during(Sentinels.start({ replicas: REPLICAS }));

  it('a SENTINEL FAILOVER under load: with --replicas of all nothing is lost; a watching drain follows', async () => {
    const group = await start();
    const [safe, watched] = [freshName(), freshName()];
    const running = begin(['drain', '--watch', watched], { env: { DELAYQ_REDIS_URL: group.url } });
    const redis = connect(group.url);
    const working = await load(redis, safe, { replicas: REPLICAS });
    await working.goesOn();
    expect(working.confirmed.size).toBeGreaterThan(0);
    const before = await group.primary();
    const after = await group.failover();
    // Until the old primary follows, one replica is missing.
    await until(() => working.producer.reasons.length > 0);
    // As Sentinels do it after eight seconds.
    await before.admin.call('REPLICAOF', after.host, after.port);
    await working.goesOn();
    expect(await working.end()).toEqual([]);
    for (const code of [...Object.keys(working.producer.errors), ...Object.keys(working.consumer.errors)])
      expect(['unknown', 'temporary', 'unreachable']).toContain(code);
    await new Queue(redis, watched).enqueue({ payload: 'after' });
    await until(() => running.stdout.includes('"after"'));
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
  });

  it.each(['SIGKILL', 'SIGSTOP'] as const)(
    'a %s of the primary under load: it is left when the Sentinels replace it',
    async (signal) => {
      const group = await start();
      const working = await load(connect(group.url), freshName());
      await working.goesOn();
      const primary = await group.primary();
      const early = await working.copied(primary, REPLICAS);
      if (signal === 'SIGKILL') await primary.end('SIGKILL');
      else primary.signal('SIGSTOP');
      await until(async () => (await group.primary().catch(() => primary)) !== primary);
      await working.goesOn();
      expect((await working.end()).filter((id) => early.has(id))).toEqual([]);
    },
  );
});

describe.concurrent('Sentinels', () => {
  it.each([
    ['that do not know the name', 78, /knows no primary called "other"\n {2}why: {2}it knows "delayq"\n {2}next: /],
    ['that ask for another password', 77, /\n {2}why: {2}.*\n {2}next: .*sentinel-password-file/],
  ])('%s are told in three parts', async (what, code, said) => {
    const login = what.includes('password') ? { password: 'right' } : undefined;
    const group = await during(Sentinels.start({ replicas: 0, sentinels: 1, ...(login && { login }) }));
    const url = login ? group.url : group.url.replace(/delayq$/, 'other');
    const ended = await delayq(['enqueue', 'q', '1'], { env: { DELAYQ_REDIS_URL: url } });
    expect(ended).toMatchObject({ code, stdout: '', stderr: expect.stringMatching(said) });
  });

  it('that watch nothing, because they were restarted empty, are told with what to do', async () => {
    const empty = await during(Server.start({ tcp: true, config: '', args: ['--sentinel'] }));
    const env = { DELAYQ_REDIS_URL: `redis+sentinel://127.0.0.1:${empty.port}/delayq` };
    expect(await delayq(['enqueue', 'q', '1'], { env })).toMatchObject({
      code: 78,
      stderr: expect.stringMatching(
        /knows no primary called "delayq"\n {2}why: .*knows none\n {2}next: .*SENTINEL MONITOR/,
      ),
    });
  });

  it('that are no Sentinels, or of which none answers, are told', async () => {
    const server = await during(Server.start({ tcp: true }));
    const [one, two] = [await freePort(), await freePort()];
    const ask = (places: string) =>
      delayq(['enqueue', 'q', '1'], { env: { DELAYQ_REDIS_URL: `redis+sentinel://${places}/delayq` } });
    expect(await ask(`127.0.0.1:${server.port}`)).toMatchObject({
      code: 78,
      stderr: expect.stringMatching(/is not a Sentinel\n {2}why: .*\n {2}next: /),
    });
    expect(await ask(`127.0.0.1:${one},127.0.0.1:${two}`)).toMatchObject({
      code: 69,
      stderr: expect.stringMatching(
        new RegExp(`cannot reach any of 2 Sentinels\\n {2}why: .*${one}.*${two}.*ECONNREFUSED.*\\n {2}next: `),
      ),
    });
  });

  it('with one that is frozen are asked all the same', async () => {
    const group = await during(Sentinels.start({ replicas: 0, sentinels: 3 }));
    const [frozen] = group.sentinels as [Server];
    frozen.signal('SIGSTOP');
    // A call to it alone lasts until its time limit. Whoever waits for all of them ends after that.
    const alone = connect(frozen.tcpUrl)
      .call('PING')
      .catch(({ code }) => code);
    const enqueued = new Queue(connect(group.url), 'q').enqueue({ payload: 1 }).then(({ outcome }) => outcome);
    expect(await Promise.race([alone, enqueued])).toBe('created');
  });
});

it('of Sentinels that disagree, the one with the highest epoch is believed, not the first', async () => {
  const server = () => during(Server.start({ tcp: true }));
  const [old, primary] = [await server(), await server()];
  const sentinel = (at: Server, epoch: number) => {
    const config = `sentinel monitor delayq 127.0.0.1 ${at.port} 1\nsentinel config-epoch delayq ${epoch}\n`;
    return during(Server.start({ tcp: true, config, args: ['--sentinel'] }));
  };
  const ports = [await sentinel(old, 1), await sentinel(primary, 7)].map(({ port }) => `127.0.0.1:${port}`);
  const redis = connect(`redis+sentinel://${ports.join(',')}/delayq`);
  // The others are waited for as long as the clock stands still.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  afterwards(() => vi.useRealTimers());
  await new Queue(redis, 'q').enqueue({ payload: 1 });
  vi.useRealTimers();
  expect([await old.admin.dbsize(), (await primary.admin.dbsize()) > 0]).toEqual([0, true]);
});
