import { once } from 'node:events';
import { createServer } from 'node:net';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { Connection, Queue } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { begin, beginSh, delayq, linesOf } from '../support/cli.js';
import { unwaiting } from '../support/commands.js';
import { FaultyProxy } from '../support/proxy.js';
import { admin, connection, freshName, freshQueue, key, redisTargets, redisUrl, timePasses } from '../support/redis.js';
import { freePort, Server } from '../support/server.js';
import { until } from '../support/until.js';

const server = (options?: Parameters<typeof Server.start>[0]) => during(Server.start(options));

const proxy = () => during(FaultyProxy.start(...redisTargets));

const via = (url: string) => ({ env: { DELAYQ_REDIS_URL: url } });

/** The address of a server that accepts connections and never answers. */
async function silent(): Promise<string> {
  const server = createServer((socket) => afterwards(() => socket.destroy())).listen(0, '127.0.0.1');
  await once(server, 'listening');
  afterwards(() => server.close());
  return `127.0.0.1:${(server.address() as { port: number }).port}`;
}

describe('the time limit', () => {
  // The clock stands still but for `pass`: how busy the machine is does not matter.
  const stopClock = () =>
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] });
  afterEach(() => {
    vi.useRealTimers();
  });

  /** Moves the clock, ms, and lets what came over the network before and after be dealt with. */
  const pass = async (ms: number) => {
    const turns = async () => {
      for (let n = 0; n < 20; n++) await new Promise(setImmediate);
    };
    await turns();
    vi.advanceTimersByTime(ms);
    await turns();
  };

  const begun = (url: string) => {
    const redis = new Connection(url);
    afterwards(() => redis.close());
    return redis;
  };

  it('of each call is its own, whatever was called before', async () => {
    const through = await proxy();
    stopClock();
    const redis = begun(through.url);
    await redis.call('PING');
    // After a second it looks whether this is a cluster.
    await pass(1_500);
    await redis.call('PING');
    for (const _ of ['the first time', 'and again']) {
      through.fault = { word: 'silence', kind: 'silent', times: 1_000 };
      const ended: unknown[] = [];
      const late = redis.call('ECHO', 'silence').catch((error) => ended.push(error));
      await pass(2_000);
      const behind = redis.call('ECHO', 'behind').catch((error) => ended.push(error));
      await pass(2_999);
      expect(ended).toEqual([]);
      await pass(1);
      await Promise.all([late, behind]);
      // The reply to the second can no longer be told from that to the first.
      expect(ended).toMatchObject([{ code: 'unknown', why: 'no answer within 5 s' }, { code: 'unknown' }]);
      through.fault = undefined;
      expect(await redis.call('ECHO', 'again')).toEqual(Buffer.from('again'));
    }
  });

  it.each([
    ['one server', (all: string[]) => `redis://${all[0]}`, /^no answer within 5 s$/, /the address of Redis/],
    [
      'a server with TLS',
      (all: string[]) => `rediss://${all[0]}`,
      /^no answer within 5 s to the TLS handshake$/,
      /redis:\/\//,
    ],
    ['several servers', (all: string[]) => `redis://${all}`, /: no answer in time$/, /the address of Redis/],
    [
      'the nodes of a cluster',
      (all: string[]) => `redis+cluster://${all}`,
      /: no answer in time$/,
      /the address of Redis/,
    ],
    ['Sentinels', (all: string[]) => `redis+sentinel://${all}/name`, / in time$/, /./],
  ])('of a connection to %s that say nothing is five seconds in all', async (_, urlOf, why, next) => {
    const all = [await silent(), await silent()];
    // Loads what it needs.
    await begun(urlOf([`127.0.0.1:${await freePort()}`]))
      .call('PING')
      .catch(() => {});
    stopClock();
    let error: unknown;
    begun(urlOf(all))
      .call('PING')
      .catch((thrown) => {
        error = thrown;
      });
    let ms = 0;
    for (; error === undefined && ms < 10_000; ms += 100) await pass(100);
    expect(error).toMatchObject({
      code: 'unreachable',
      why: expect.stringMatching(why),
      next: expect.stringMatching(next),
    });
    expect(ms).toBe(5_000);
  });

  it('of a call lasts while a primary waits for its replicas, as after a failover, but two seconds only', async () => {
    const primary = await server({ tcp: true });
    // Only the clock stands still: attempts go on.
    vi.useFakeTimers({ toFake: ['performance'] });
    const queue = new Queue(begun(primary.tcpUrl), freshName());
    await queue.enqueue({ payload: 1 });
    const refusals = async () =>
      Number(/errorstat_NOREPLICAS:count=(\d+)/.exec(await primary.admin.info('errorstats'))?.[1] ?? 0);
    await primary.admin.config('SET', 'min-replicas-to-write', '1');
    const calls = [1, 2, 3].map((n) => queue.enqueue([{ payload: n }]));
    const drained = queue.drain();
    await until(async () => (await refusals()) > 20);
    await primary.admin.config('SET', 'min-replicas-to-write', '0');
    await Promise.all(calls);
    expect((await drained).jobs.length).toBeGreaterThan(0);

    await primary.admin.config('SET', 'min-replicas-to-write', '1');
    const before = await refusals();
    const refused = queue.enqueue({ payload: 1 }).catch((error) => error);
    await until(async () => (await refusals()) > before + 5);
    vi.advanceTimersByTime(2_000);
    expect(await refused).toMatchObject({ code: 'temporary', why: expect.stringMatching(/^NOREPLICAS/) });
  });
});

describe('a SIGKILL of enqueue (failures 1)', () => {
  it('at any moment of a bulk enqueue leaves each job complete or not there at all', async () => {
    for (const moment of [1, 500, 2_000, 7_500]) {
      const queue = freshQueue();
      const running = begin(['enqueue', '--in', '1h', queue.name, '-']);
      const lines = Array.from({ length: 20_000 }, (_, i) => `{"n":${i}}\n`).join('');
      running.child.stdin?.write(lines);
      await until(async () => (await queue.counts()).pending >= moment);
      running.child.kill('SIGKILL');
      const { stdout } = await running.ended;
      const { pending, payload, active, dead } = await queue.counts();
      expect({ payload, active, dead }).toEqual({ payload: pending, active: 0, dead: 0 });
      const ids = linesOf(stdout.slice(0, stdout.lastIndexOf('\n') + 1));
      const stored = ids.length > 0 ? await admin.hmget(key(queue.name, 'payload'), ...ids) : [];
      expect(stored).toEqual(ids.map((_, i) => `{"n":${i}}`));
    }
  });

  it('at any moment of a single enqueue does so, too', async () => {
    const queue = freshQueue();
    const through = await proxy();
    for (const word of ['SETNAME', 'SADD', 'EVALSHA', 'EVAL ', 'nothing']) {
      const running = begin(['enqueue', '--redis', through.url, queue.name, '{"n":1}']);
      through.fault = { word, kind: 'silent', times: 1 };
      const struck = through.struck;
      if (word !== 'nothing') await until(() => through.struck > struck || running.child.exitCode !== null);
      running.child.kill('SIGKILL');
      await running.ended;
      const { pending, payload } = await queue.counts();
      expect(payload).toBe(pending);
    }
  });
});

describe('a call that Redis does not understand', () => {
  it('is not called a bug of delayq if the caller may have written it', async () => {
    await expect(connection.call('GET')).rejects.toMatchObject({
      what: expect.stringMatching(/did not understand a call$/),
      why: expect.stringContaining('wrong number of arguments'),
      next: expect.stringMatching(/^check the command, if it is your own/),
    });
  });
});

describe.concurrent('Redis that is down', () => {
  it('is reported by every command: exit 69, address, cause and what to do (failures 28)', async () => {
    const port = await freePort();
    for (const args of unwaiting()) {
      const { code, stdout, stderr } = await delayq(args, via(`redis://:secret@127.0.0.1:${port}`));
      expect({ args, code, stdout }).toEqual({ args, code: 69, stdout: '' });
      expect(stderr).toMatch(
        new RegExp(`cannot reach Redis at redis://127.0.0.1:${port}\n  why: .*ECONNREFUSED.*\n  next: start Redis`),
      );
    }
    expect(await delayq(['drain', 'q'], via('unix:///does/not/exist'))).toMatchObject({ code: 69 });
    expect(await delayq(['drain', 'q'], via('redis://no.such.host.invalid'))).toMatchObject({ code: 69 });
  });

  it('or accepts connections and never answers ends every command within its time limit (failures 21)', async () => {
    const url = `redis://${await silent()}`;
    const ended = await Promise.all(unwaiting().map((args) => delayq(args, via(url))));
    for (const { code, stderr } of ended) {
      expect({ code, stderr }).toEqual({ code: 69, stderr: expect.stringContaining('no answer within 5 s') });
    }
  });

  it('or stops answering in between ends every command within its time limit (failures 21)', async () => {
    const through = await proxy();
    through.fault = { word: 'EVAL', kind: 'silent', times: 1_000 };
    const [enqueue, drain, inspect] = await Promise.all(
      [
        ['enqueue', freshName(), '1'],
        ['drain', freshName()],
        ['inspect', freshName()],
      ].map((args) => delayq(args, via(through.url))),
    );
    expect(enqueue).toMatchObject({ code: 75, stderr: expect.stringContaining('may or may not be enqueued') });
    expect(drain).toMatchObject({ code: 75, stdout: '', stderr: expect.stringContaining('no answer within 5 s') });
    expect(inspect).toMatchObject({ code: 75, stdout: '' });
  });

  it('for good while a drain holds jobs lets the drain end, and the jobs come back (failures 21)', async () => {
    const own = await server({ args: ['--appendonly', 'yes', '--appendfsync', 'always'] });
    const lines = Array.from({ length: 5_000 }, (_, n) => JSON.stringify({ n, pad: 'x'.repeat(100) }));
    await delayq(['enqueue', 'q', '-'], { input: lines.join('\n'), ...via(own.url) });
    const running = begin(['drain', 'q'], via(own.url));
    running.child.stdout?.pause();
    await until(async () => (await own.admin.zcard(key('q', 'active'))) >= 500);
    await own.end('SIGKILL');
    running.child.stdout?.resume();
    const { code, stdout, stderr } = await running.ended;
    expect([69, 75]).toContain(code);
    expect(stderr).toMatch(/could not settle|cannot reach|lost the connection/);
    await own.run();
    await timePasses('q', 60_001, own.admin);
    const seen = [...linesOf(stdout), ...linesOf((await delayq(['drain', 'q'], via(own.url))).stdout)];
    expect(new Set(seen)).toEqual(new Set(lines));
  });

  it('and comes back with its data: a watching drain delivers what fell due in between (failures 18)', async () => {
    const own = await server({ args: ['--appendonly', 'yes', '--appendfsync', 'always'] });
    const name = freshName();
    for (const n of [1, 2]) await delayq(['enqueue', '--in', `${n}s`, name, String(n)], via(own.url));
    const running = begin(['drain', '--watch', name], via(own.url));
    await until(async () => Number(await own.admin.publish(`delayq:{${name}}:wake`, 'x')) > 0);
    await own.end('SIGKILL');
    await until(() => running.stderr.includes('still trying'));
    await own.run();
    await until(() => running.stdout === '1\n2\n');
    await until(() => running.stderr.includes('Redis is back'));
    running.child.kill('SIGTERM');
    expect((await running.ended).code).toBe(0);
    expect(await own.admin.zcard(`delayq:{${name}}:active`)).toBe(0);
  });
});

describe.concurrent('a fixed address that leads to another server by now, while the connection to the old one is open', () => {
  it.each([
    ['follows it', 'READONLY', ['REPLICAOF', '127.0.0.1', '1']],
    ['has lost its replicas to it', 'NOREPLICAS', ['CONFIG', 'SET', 'min-replicas-to-write', '1']],
  ])('is connected to again as soon as the old one %s', async (_, word, [command = '', ...args]) => {
    const [old, next] = [await during(Server.start({ tcp: true })), await during(Server.start({ tcp: true }))];
    const proxy = await during(FaultyProxy.start(old.port));
    const name = freshName();
    const redis = new Connection(proxy.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, name);
    const running = begin(['drain', '--watch', name], { env: { DELAYQ_REDIS_URL: proxy.url } });
    await queue.enqueue({ payload: 'before' });
    await until(() => running.stdout.includes('before'));
    proxy.retarget(next.port, { keep: true });
    await old.admin.call(command, ...args);
    await expect(old.admin.set('key', 'value')).rejects.toThrow(word);
    await queue.enqueue({ payload: 'single' });
    await queue.enqueue([{ payload: 'bulk' }]);
    await until(() => ['single', 'bulk'].every((text) => running.stdout.includes(text)));
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
  });
});

it.concurrent.each([
  ['to stdout', '', '| cat'],
  ['with a handler', '--grace 1s', "-- sh -c 'echo begun; sleep 2'"],
])('a run with a time limit ends although Redis is down: %s', async (_, options, rest) => {
  const own = await server();
  const name = freshName();
  await delayq(['enqueue', name, '1'], via(own.url));
  const running = beginSh(`delayq drain --for 2s ${options} ${name} ${rest}`, via(own.url));
  await until(() => running.stdout !== '');
  await own.end('SIGKILL');
  expect((await running.ended).stderr).toMatch(
    /delivered again when their leases expire|cannot reach|lost the connection/,
  );
});

it.concurrent('restarts between any two calls lose nothing that was confirmed (failures 18)', async () => {
  const own = await server({ args: ['--appendonly', 'yes', '--appendfsync', 'always'] });
  const redis = new Connection(own.url);
  afterwards(() => redis.close());
  const queue = new Queue(redis, 'q');
  const restart = async () => {
    await own.end('SIGKILL');
    await own.run();
  };
  const survives = async <T>(call: () => Promise<T>): Promise<T> => {
    await restart();
    // The first call may still use the old connection: it fails instead of hanging, and the next one works.
    return call().catch(() => call());
  };
  await survives(() =>
    queue.enqueue([
      { payload: 1, id: 'a' },
      { payload: 2, id: 'b' },
      { payload: 3, id: 'c' },
    ]),
  );
  const { jobs } = await survives(() => queue.drain());
  expect(jobs.map(({ id }) => id)).toEqual(['a', 'b', 'c']);
  expect(await survives(() => queue.renew(jobs))).toEqual(['held', 'held', 'held']);
  expect(await survives(() => queue.ack(jobs.slice(0, 1)))).toEqual(['held']);
  expect(await survives(() => queue.nack(jobs.slice(1, 2)))).toMatchObject([{ answer: 'pending' }]);
  expect(await survives(() => queue.counts())).toMatchObject({ pending: 1, active: 1, payload: 2 });
});

it.concurrent('a closed connection says so', async () => {
  const redis = new Connection(redisUrl);
  const queue = new Queue(redis, freshName());
  await queue.enqueue({ payload: 1 });
  redis.close();
  await expect(queue.enqueue({ payload: 2 })).rejects.toMatchObject({ code: 'usage' });
  expect((await new Queue(connection, queue.name).counts()).pending).toBe(1);
});

it.concurrent.each(['call', 'pinned'] as const)(
  'a list of servers is tried to the primary at its end: %s',
  async (how) => {
    const primary = await server({ tcp: true });
    const args = ['--replicaof', '127.0.0.1', String(primary.port)];
    const others = await Promise.all([0, 1].map(() => server({ tcp: true, args })));
    for (const { admin } of others)
      await until(async () => /master_link_status:up/.test(await admin.info('replication')));
    const redis = new Connection(`redis://${[...others, primary].map(({ port }) => `127.0.0.1:${port}`).join(',')}`);
    afterwards(() => redis.close());
    const set = () =>
      how === 'call' ? redis.call('SET', 'foo', 1) : redis.pinned('foo', (pinned) => pinned.call('SET', 'foo', 1));
    expect(String(await set())).toBe('OK');
    expect(await primary.admin.get('foo')).toBe('1');
  },
);
