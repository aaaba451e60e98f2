import { once } from 'node:events';
import { createServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { Connection, Queue } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { begin, beginSh, delayq, linesOf } from '../support/cli.js';
import { commands } from '../support/commands.js';
import { FaultyProxy } from '../support/proxy.js';
import { admin, connection, freshName, freshQueue, key, redisTargets, redisUrl, timePasses } from '../support/redis.js';
import { freePort, Server } from '../support/server.js';
import { until } from '../support/until.js';

const server = (options?: Parameters<typeof Server.start>[0]) => during(Server.start(options));

const proxy = () => during(FaultyProxy.start(...redisTargets));

const via = (url: string) => ({ env: { DELAYQ_REDIS_URL: url } });

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
      message: expect.stringMatching(/did not understand a call$/),
      why: expect.stringContaining('wrong number of arguments'),
      next: expect.stringMatching(/^check the command, if it is your own/),
    });
  });
});

describe.concurrent('Redis that is down', () => {
  it('is reported by every command within 6 s: exit 69, address, cause and what to do (failures 28)', async () => {
    const port = await freePort();
    for (const args of commands()) {
      const started = performance.now();
      const { code, stdout, stderr } = await delayq(args, via(`redis://:secret@127.0.0.1:${port}`));
      expect({ args, code, stdout }).toEqual({ args, code: 69, stdout: '' });
      expect(stderr).toMatch(
        new RegExp(`cannot reach Redis at redis://127.0.0.1:${port}\n  why: .*ECONNREFUSED.*\n  next: start Redis`),
      );
      expect(performance.now() - started).toBeLessThan(6_000);
    }
    expect(await delayq(['drain', 'q'], via('unix:///does/not/exist'))).toMatchObject({ code: 69 });
    expect(await delayq(['drain', 'q'], via('redis://no.such.host.invalid'))).toMatchObject({ code: 69 });
  });

  it('or accepts connections and never answers ends every command within its time limit (failures 21)', async () => {
    const silent = createServer(() => {});
    silent.listen(0, '127.0.0.1');
    await once(silent, 'listening');
    afterwards(() => silent.close());
    const { port } = silent.address() as { port: number };
    const ended = await Promise.all(commands().map((args) => delayq(args, via(`redis://127.0.0.1:${port}`))));
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

  it('or stops answering in between gives each call its whole time limit, whatever was called before', async () => {
    const through = await proxy();
    const redis = new Connection(through.url);
    afterwards(() => redis.close());
    await redis.call('PING');
    // The time between the calls is what this is about. After a second it looks whether this is a cluster.
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    through.fault = { word: 'silence', kind: 'silent', times: 1_000 };
    const started = performance.now();
    const [late, behind] = await Promise.allSettled([redis.call('ECHO', 'silence'), redis.call('ECHO', 'behind')]);
    expect(late).toMatchObject({ reason: { code: 'unknown', why: 'no answer within 5 s' } });
    expect(behind).toMatchObject({ reason: { code: 'unknown' } });
    const took = performance.now() - started;
    expect(took).toBeGreaterThan(4_990);
    expect(took).toBeLessThan(5_500);
    through.fault = undefined;
    expect(await redis.call('ECHO', 'again')).toEqual(Buffer.from('again'));
    // The limit is not only for the first.
    through.fault = { word: 'silence', kind: 'silent', times: 1_000 };
    const second = performance.now();
    await expect(redis.call('ECHO', 'silence')).rejects.toMatchObject({ why: 'no answer within 5 s' });
    expect(performance.now() - second).toBeLessThan(5_500);
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

it.concurrent('a primary that waits for its replicas, as after a failover, is waited for', async () => {
  const primary = await server({ tcp: true });
  const redis = new Connection(primary.tcpUrl);
  afterwards(() => redis.close());
  const queue = new Queue(redis, freshName());
  await queue.enqueue({ payload: 1 });
  await primary.admin.config('SET', 'min-replicas-to-write', '1');
  const calls = [1, 2, 3].map((n) => queue.enqueue([{ payload: n }]));
  const drained = queue.drain();
  await until(async () => /errorstat_NOREPLICAS:count=[4-9]/.test(await primary.admin.info('errorstats')));
  await primary.admin.config('SET', 'min-replicas-to-write', '0');
  await Promise.all(calls);
  expect((await drained).jobs.length).toBeGreaterThan(0);
  await primary.admin.config('SET', 'min-replicas-to-write', '1');
  const started = performance.now();
  await expect(queue.enqueue({ payload: 1 })).rejects.toMatchObject({
    code: 'temporary',
    why: expect.stringMatching(/^NOREPLICAS/),
  });
  expect(performance.now() - started).toBeLessThan(5_000);
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
