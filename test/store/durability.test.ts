import { describe, expect, it } from 'vitest';
import { Connection, Queue } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { begin, delayq, linesOf } from '../support/cli.js';
import { FaultyProxy } from '../support/proxy.js';
import { key } from '../support/redis.js';
import { knowsWaitaof, Server } from '../support/server.js';
import { until } from '../support/until.js';

const server = (options?: Parameters<typeof Server.start>[0]) => during(Server.start(options));

const via = (url: string) => ({ env: { DELAYQ_REDIS_URL: url } });
const payloads = async (own: Server, queue = 'q') => own.admin.hgetall(key(queue, 'payload'));
const numbers = (n: number) => Array.from({ length: n }, (_, i) => `${i}\n`).join('');

function queueAt(url: string): Queue {
  const redis = new Connection(url);
  afterwards(() => redis.close());
  return new Queue(redis, 'q');
}

/** How often a command was called. */
async function calls(own: Server, command: string): Promise<number> {
  return Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(await own.admin.info('commandstats'))?.[1] ?? 0);
}

/** A primary, and a replica that has all that the primary has. */
async function pair(binary = 'redis-server', ...args: string[]): Promise<{ primary: Server; replica: Server }> {
  const quick = ['--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '3600'];
  const primary = await server({ tcp: true, binary, args: [...quick, ...args] });
  const replica = await server({ binary, args: ['--replicaof', '127.0.0.1', String(primary.port)] });
  await until(async () => upToDate(primary));
  return { primary, replica };
}

async function upToDate(primary: Server): Promise<boolean> {
  const info = await primary.admin.info('replication');
  const offset = /master_repl_offset:(\d+)/.exec(info)?.[1];
  return new RegExp(`state=online,offset=${offset},`).test(info);
}

describe.runIf(!knowsWaitaof('redis-server'))('a server without WAITAOF', () => {
  it('is rejected before anything is written: exit 78', async () => {
    const own = await server();
    for (const args of [
      ['enqueue', '--durable', 'q', '1'],
      ['enqueue', '--durable', 'q', '-'],
    ]) {
      const { code, stdout, stderr } = await delayq(args, { input: '1\n', ...via(own.url) });
      expect({ code, stdout }).toEqual({ code: 78, stdout: '' });
      expect(stderr).toMatch(/cannot confirm that a job is on its disk\n {2}why: .*Redis 7\.2.*\n {2}next: upgrade it/);
    }
    expect(await own.admin.dbsize()).toBe(0);
    await expect(queueAt(own.url).enqueue({ payload: 1 }, { durable: true })).rejects.toMatchObject({ code: 'config' });
    expect(await own.admin.dbsize()).toBe(0);
  });
});

const binary = ['redis-server', 'valkey-server'].find(knowsWaitaof);

describe.runIf(binary)('--durable', () => {
  const durable = (...args: string[]) => server({ binary: binary as string, args });

  it('is rejected if the AOF is off, before anything is written: exit 78', async () => {
    const own = await durable();
    expect(await delayq(['enqueue', '--durable', 'q', '1'], via(own.url))).toMatchObject({
      code: 78,
      stdout: '',
      stderr: expect.stringMatching(/cannot confirm .*\n.*AOF.*\n {2}next: turn it on/),
    });
    expect(await own.admin.dbsize()).toBe(0);
  });

  it('confirms jobs that are on disk, and they survive a SIGKILL of Redis', async () => {
    const own = await durable('--appendonly', 'yes');
    const { code, stdout } = await delayq(['enqueue', '--durable', '--json', '--id', 'a', 'q', '1'], via(own.url));
    expect({ code, ...JSON.parse(stdout) }).toMatchObject({ code: 0, id: 'a', confirmed: { disk: true } });
    expect(await delayq(['enqueue', '--durable', '--id', 'b', 'q', '2'], via(own.url))).toMatchObject({
      code: 0,
      stdout: 'b\n',
      stderr: '',
    });
    const queue = queueAt(own.url);
    expect(await queue.enqueue({ payload: 3, id: 'c' }, { durable: true })).toMatchObject({
      outcome: 'created',
      confirmed: { disk: true },
    });
    expect(await queue.enqueue([{ payload: 4, id: 'a' }], { durable: true })).toMatchObject([
      { outcome: 'kept', confirmed: { disk: true } },
    ]);
    await own.end('SIGKILL');
    await own.run();
    expect(await payloads(own)).toEqual({ a: '1', b: '2', c: '3' });
  });

  it('accepts many lines and prints every id', async () => {
    const own = await durable('--appendonly', 'yes');
    const input = numbers(20_000);
    const { code, stdout, stderr } = await delayq(['enqueue', '--durable', 'q', '-'], { input, ...via(own.url) });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const stored = await own.admin.hmget(key('q', 'payload'), ...linesOf(stdout));
    expect(stored).toEqual(Array.from({ length: 20_000 }, (_, i) => String(i)));
    const summary = await delayq(['enqueue', '--durable', '--json', 'r', '-'], { input: '1\n2\n', ...via(own.url) });
    expect(JSON.parse(summary.stdout)).toMatchObject({ created: 2, confirmed: { disk: true } });
  });

  it('says that the job is enqueued if Redis does not confirm it: exit 75', async () => {
    const own = await durable('--appendonly', 'yes', '--appendfsync', 'no');
    expect(await delayq(['enqueue', '--durable', '--id', 'a', 'q', '1'], via(own.url))).toMatchObject({
      code: 75,
      stdout: '',
      stderr: expect.stringMatching(/job a is enqueued, .*\n.*within 4 s that the job is on its disk\n.*with the id a/),
    });
    await own.admin.config('SET', 'appendfsync', 'always');
    expect(await delayq(['enqueue', '--durable', '--id', 'a', 'q', '1'], via(own.url))).toMatchObject({ code: 0 });
    expect(await payloads(own)).toEqual({ a: '1' });
  });

  it('says that the job is enqueued, and what to do, if the AOF was turned off in between', async () => {
    const own = await durable('--appendonly', 'yes');
    const queue = queueAt(own.url);
    await queue.enqueue({ payload: 0 }, { durable: true });
    await own.admin.config('SET', 'appendonly', 'no');
    const error = await queue.enqueue({ payload: 1, id: 'a' }, { durable: true }).catch((error) => error);
    expect(error).toMatchObject({
      code: 'unknown',
      what: 'job a is enqueued, but its durability is unknown',
      why: expect.stringMatching(/^Redis at .* has no AOF/),
      next: expect.stringMatching(/^turn it on .*; then repeat with the id a until it is confirmed/),
      ids: ['a'],
      stored: true,
    });
    expect(await payloads(own)).toMatchObject({ a: '1' });
  });

  it('with --replicas never confirms what was written between the two waits of other jobs', async () => {
    const { primary, replica } = await pair(binary, '--appendonly', 'yes', '--appendfsync', 'always');
    const queue = queueAt(primary.url);
    const asked = { durable: true, replicas: 1 };
    await queue.enqueue({ payload: 0 }, asked);
    const monitor = await primary.admin.monitor();
    afterwards(() => monitor.disconnect());
    const seen: string[] = [];
    monitor.on('monitor', (_time: string, [command = '']: string[], source: string) => {
      if (source !== 'lua' && /^(eval.*|wait.*|echo)$/i.test(command)) seen.push(command.toLowerCase());
    });
    const client = async () => /^.* name=delayq .*$/m.exec(String(await primary.admin.client('LIST')))?.[0] ?? '';
    replica.signal('SIGSTOP');
    const first = queue.enqueue({ payload: 1 }, asked);
    await until(async () => / flags=b/.test(await client()));
    // Redis has received it, and runs it after the WAIT before it.
    const second = queue.enqueue({ payload: 2 }, asked);
    await until(async () => / flags=b.* qbuf=[1-9]/.test(await client()));
    replica.signal('SIGCONT');
    expect(await Promise.all([first, second])).toMatchObject(
      Array.from({ length: 2 }, () => ({ confirmed: { disk: true, replicas: 1 } })),
    );
    await primary.admin.echo('that was all');
    await until(() => seen.includes('echo'));
    expect(seen).toEqual(['evalsha', 'wait', 'evalsha', 'waitaof', 'wait', 'waitaof', 'echo']);
  });
});

describe.concurrent('--replicas', () => {
  it('confirms what replicas have, and says how many', async () => {
    const { primary, replica } = await pair();
    const { code, stdout } = await delayq(['enqueue', '--replicas', '1', '--json', 'q', '1'], via(primary.url));
    expect({ code, ...JSON.parse(stdout) }).toMatchObject({ code: 0, confirmed: { replicas: 1 } });
    expect(Object.values(await payloads(replica))).toEqual(['1']);
    const input = numbers(2_000);
    const bulk = await delayq(['enqueue', '--replicas', '1', '--json', 'q', '-'], { input, ...via(primary.url) });
    expect(JSON.parse(bulk.stdout)).toMatchObject({ created: 2_000, confirmed: { replicas: 1 } });
    const results: unknown[] = [];
    async function* jobs() {
      yield { payload: 1, id: 'a' };
      yield { payload: 1, id: 'a' };
    }
    for await (const { outcome, confirmed } of queueAt(primary.url).enqueue(jobs(), { replicas: 1 }))
      results.push({ outcome, confirmed });
    expect(results).toEqual([
      { outcome: 'created', confirmed: { replicas: 1 } },
      { outcome: 'kept', confirmed: { replicas: 1 } },
    ]);
  });

  it('is rejected if fewer answer, before anything is written: exit 75', async () => {
    const own = await server();
    expect(await delayq(['enqueue', '--replicas', '1', 'q', '1'], via(own.url))).toMatchObject({
      code: 75,
      stdout: '',
      stderr: expect.stringMatching(/too few replicas\n {2}why: .*0 of 1 .*\n {2}next: .*no job is sent/),
    });
    expect(await own.admin.dbsize()).toBe(0);
  });

  it('is rejected by a replica, exit 75, and without permission for WAIT, exit 77', async () => {
    const { primary, replica } = await pair();
    expect(await delayq(['enqueue', '--replicas', '1', 'q', '1'], via(replica.url))).toMatchObject({
      code: 75,
      stderr: expect.stringContaining('connect to the primary'),
    });
    await primary.admin.call('ACL', 'SETUSER', 'guest', 'on', '>pass', '~*', '&*', '+@all', '-wait');
    const guest = `redis://guest:pass@127.0.0.1:${primary.port}`;
    expect(await delayq(['enqueue', '--replicas', '1', 'q', '1'], via(guest))).toMatchObject({ code: 77 });
    expect(await primary.admin.dbsize()).toBe(0);
  });

  it('names the job if too few confirm it, exit 75; repeating with its id makes no second job', async () => {
    const { primary, replica } = await pair();
    replica.signal('SIGSTOP');
    const first = await delayq(['enqueue', '--replicas', '1', 'q', '1'], via(primary.url));
    expect(first).toMatchObject({ code: 75, stdout: '' });
    const [, id = ''] =
      /job (\w+) is enqueued, but its durability is unknown\n.*0 of 1 replicas/.exec(first.stderr) ?? [];
    expect(first.stderr).toContain(`repeat with the id ${id} until it is confirmed`);
    expect(await payloads(primary)).toEqual({ [id]: '1' });
    replica.signal('SIGCONT');
    const again = await delayq(['enqueue', '--replicas', '1', '--json', '--id', id, 'q', '1'], via(primary.url));
    expect({ code: again.code, ...JSON.parse(again.stdout) }).toMatchObject({
      code: 0,
      outcome: 'kept',
      confirmed: { replicas: 1 },
    });
    expect(await payloads(replica)).toEqual({ [id]: '1' });
  });

  it('in bulk reports such lines one by one, and does not print their ids', async () => {
    const { primary, replica } = await pair();
    replica.signal('SIGSTOP');
    const { code, stdout, stderr } = await delayq(['enqueue', '--replicas', '1', 'q', '-'], {
      input: '1\n2\n',
      ...via(primary.url),
    });
    expect({ code, stdout }).toEqual({ code: 75, stdout: '' });
    const told = [...stderr.matchAll(/line (\d): enqueued, but perhaps not durable; .* the id (\w+)/g)];
    expect(Object.fromEntries(told.map(([, line, id]) => [id, line]))).toEqual(await payloads(primary));
    expect(told).toHaveLength(2);
  });

  it('in bulk counts all unconfirmed lines, and mentions further lines only if there may be some', async () => {
    // A server for each: otherwise the second would find that the replica lags before it sends anything.
    const frozen = async () => {
      const { primary, replica } = await pair();
      replica.signal('SIGSTOP');
      return via(primary.url);
    };
    const [here, there, elsewhere] = await Promise.all([frozen(), frozen(), frozen()]);
    const args = ['enqueue', '--replicas', '1', '--json', 'q', '-'];
    const input = Array.from({ length: 1_200 }, (_, n) => `{"payload":${n},"id":"${n}"}\n`).join('');
    const open = begin(args, elsewhere);
    open.child.stdin?.write('1\n2\n');
    const [made, given, more] = await Promise.all([
      delayq(args, { input: numbers(1_200), ...here }),
      delayq([...args, '--jobs'], { input, ...there }),
      open.ended,
    ]);
    for (const { code, stdout, stderr } of [made, given]) {
      expect({ code, ...JSON.parse(stdout) }).toMatchObject({ code: 75, created: 0, unconfirmed: 1_200, unknown: 0 });
      expect(stderr).toMatch(/in doubt: 1,200 jobs enqueued, but perhaps not durable\n.*\n.*repeat with the same ids/);
      expect(stderr).not.toContain('lines after');
    }
    expect(made.stderr.match(/line \d+: enqueued, .* the id \w+/g)).toHaveLength(1_200);
    // A caller who gave the ids only needs to know the lines.
    const ranges = [...given.stderr.matchAll(/lines (\d+) to (\d+): each enqueued, .* with the same ids/g)];
    expect(ranges.reduce((sum, [, from, to]) => sum + Number(to) - Number(from) + 1, 0)).toBe(1_200);
    expect(linesOf(given.stderr).length).toBeLessThan(10);
    expect(more.stderr).toContain('lines after 2: not enqueued');
  });

  it('does not confirm a kept job if nothing was written, and says why that may be', async () => {
    const { primary } = await pair();
    await delayq(['enqueue', '--id', 'a', 'q', '1'], via(primary.url));
    await primary.admin.config('SET', 'maxmemory', '1mb');
    expect(await delayq(['enqueue', '--id', 'a', 'q', '1'], via(primary.url))).toMatchObject({ code: 0 });
    const again = ['enqueue', '--replicas', '1', '--id', 'a', 'q', '1'];
    const inDoubt = {
      code: 75,
      stdout: '',
      stderr: expect.stringMatching(
        /job a is enqueued, but its durability is unknown\n.*accepts no writes.* counter kept .*\n {2}next: .*HGET delayq:\{q\}:stats kept/,
      ),
    };
    expect(await delayq(again, via(primary.url))).toMatchObject(inDoubt);
    await primary.admin.config('SET', 'maxmemory', '0');
    expect(await delayq(again, via(primary.url))).toMatchObject({ code: 0 });
    // Nor while its counter is not a number, which no repeat changes.
    await primary.admin.hset(key('q', 'stats'), 'kept', 'many');
    expect(await delayq(again, via(primary.url))).toMatchObject(inDoubt);
    await primary.admin.hdel(key('q', 'stats'), 'kept');
    expect(await delayq(again, via(primary.url))).toMatchObject({ code: 0 });
  });

  it('after a connection lost in the wait repeats, and waits for a write of the new connection', async () => {
    const { primary } = await pair();
    const through = await during(FaultyProxy.start(primary.socket));
    const monitor = await primary.admin.monitor();
    afterwards(() => monitor.disconnect());
    const seen: string[] = [];
    monitor.on('monitor', (_time: string, [command = '', ...args]: string[], source: string) => {
      const name = command.toLowerCase();
      if (source !== 'lua' && /^(client|sadd|eval|evalsha|wait)$/.test(name))
        seen.push(name === 'wait' ? `wait ${args[1]}` : name);
    });
    through.fault = { word: 'WAIT\r\n$1\r\n1\r\n$4\r\n4000', kind: 'cut', times: 1 };
    const args = ['enqueue', '--replicas', '1', '--json', '--id', 'a', 'q', '1'];
    const { code, stdout, stderr } = await delayq(args, via(through.url));
    expect({ code, stderr, struck: through.struck }).toEqual({ code: 0, stderr: '', struck: 1 });
    expect(JSON.parse(stdout)).toMatchObject({ outcome: 'created', confirmed: { replicas: 1 } });
    expect(await payloads(primary)).toEqual({ a: '1' });
    const connection = (...script: string[]) => ['client', 'wait 1000', ...script, 'wait 4000'];
    await until(() => seen.filter((call) => call === 'wait 4000').length === 2);
    // The queue is listed before its first job, and again after each script whose counter begins.
    expect(seen).toEqual([...connection('sadd', 'evalsha', 'eval', 'sadd'), ...connection('evalsha', 'sadd')]);
  });

  it('that lost a wait, and cannot repeat, says that the job is enqueued, because Redis has said so', async () => {
    const { primary, replica } = await pair();
    const through = await during(FaultyProxy.start(primary.socket));
    const queue = queueAt(through.url);
    await queue.enqueue({ payload: 0 }, { replicas: 1 });
    // Since Redis 7.2 a frozen replica answers the WAIT of a new connection, which has written nothing.
    await replica.end('SIGKILL');
    through.fault = { word: 'WAIT\r\n$1\r\n1\r\n$4\r\n4000', kind: 'refuse', times: 1 };
    const error = await queue.enqueue({ payload: 1, id: 'a' }, { replicas: 1 }).catch((error) => error);
    expect(through.struck).toBe(1);
    expect(error).toMatchObject({
      code: 'unknown',
      what: 'job a is enqueued, but its durability is unknown',
      why: "Redis's reply was lost, and the repeat failed: 0 of 1 replicas answered within 1 s",
      next: expect.stringMatching(/^repeat with the id a until it is confirmed/),
      ids: ['a'],
      stored: true,
    });
    expect(await payloads(primary)).toMatchObject({ a: '1' });
  });

  it('that lost the wait for a replacement does not take the earlier job for it', async () => {
    const { primary } = await pair();
    const through = await during(FaultyProxy.start(primary.socket));
    const queue = queueAt(through.url);
    await queue.enqueue({ payload: 'old', id: 'a' });
    // After a failover the job could be the old one.
    through.fault = { word: 'WAIT\r\n$1\r\n1\r\n$4\r\n4000', kind: 'cut', times: 1 };
    await expect(
      queue.enqueue({ payload: 'new', id: 'a' }, { replicas: 1, ifExists: 'replace' }),
    ).rejects.toMatchObject({ why: expect.stringContaining('may be the earlier'), ids: ['a'], stored: true });
    expect(await payloads(primary)).toEqual({ a: '"new"' });
  });

  it('in bulk waits once for many batches', async () => {
    const { primary, replica } = await pair();
    const queue = queueAt(primary.url);
    await queue.enqueue({ payload: 0 }, { replicas: 1 });
    const before = await calls(primary, 'wait');
    replica.signal('SIGSTOP');
    const many = queue.enqueue(
      Array.from({ length: 16_000 }, (_, n) => ({ payload: n })),
      { replicas: 1 },
    );
    await until(async () => /blocked_clients:1/.test(await primary.admin.info('clients')));
    replica.signal('SIGCONT');
    expect((await many).every(({ confirmed }) => confirmed?.replicas === 1)).toBe(true);
    // Of 32 batches.
    expect((await calls(primary, 'wait')) - before).toBeLessThan(8);
    expect((await queue.counts()).pending).toBe(16_001);
  });

  it('keeps few large payloads in flight, and many small ones', async () => {
    const { primary, replica } = await pair();
    replica.signal('SIGSTOP');
    let taken = 0;
    async function* jobs() {
      for (const payload = 'x'.repeat(1024 * 1024); taken < 64; taken++) yield [{ payload }];
    }
    // Until the first of them gives up, nothing is confirmed.
    for await (const result of queueAt(primary.url).enqueueBatches(jobs(), { replicas: 1 })) {
      expect(result).toMatchObject({ error: { code: 'unknown', stored: true } });
      // Four in flight, one to be sent next, one ready in the source.
      expect(taken).toBeLessThanOrEqual(6);
      // The others need not fail, too.
      replica.signal('SIGCONT');
      break;
    }
  });

  it.each(['0', '-1', 'one', '1.5'])('rejects %s as a count: exit 64', async (n) => {
    expect(await delayq(['enqueue', `--replicas=${n}`, 'q', '1'])).toMatchObject({ code: 64, stdout: '' });
  });

  it('is checked by the library, too', async () => {
    const own = await server();
    await expect(queueAt(own.url).enqueue({ payload: 1 }, { replicas: 0 })).rejects.toMatchObject({ code: 'usage' });
  });
});

it.concurrent('a pinned connection fails after a loss, although the next call makes a new one', async () => {
  const own = await server();
  const redis = new Connection(own.url);
  afterwards(() => redis.close());
  const pin = () => redis.pinned('key', async (caller) => caller);
  const line = await pin();
  expect(await pin()).toBe(line);
  expect(String(await line.call('PING'))).toBe('PONG');
  await own.admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  await expect(line.call('PING')).rejects.toMatchObject({ code: expect.stringMatching(/^(unreachable|unknown)$/) });
  expect(String(await redis.call('PING'))).toBe('PONG');
  await expect(line.call('PING')).rejects.toMatchObject({ code: 'unreachable' });
  // Its failure does not affect the new connection.
  expect(await pin()).not.toBe(line);
  expect(String(await redis.call('PING'))).toBe('PONG');
});

it.concurrent('many calls that find the connection dead cause no warning of Node on stderr', async () => {
  const own = await server();
  const redis = new Connection(own.url);
  afterwards(() => redis.close());
  const warnings: Error[] = [];
  const warned = (warning: Error) => warnings.push(warning);
  process.on('warning', warned);
  afterwards(() => process.off('warning', warned));
  const pings = () => Promise.allSettled(Array.from({ length: 30 }, () => redis.call('PING')));
  await redis.connect();
  own.signal('SIGSTOP');
  expect((await pings()).every(({ status }) => status === 'rejected')).toBe(true);
  // These wait for the end of the old connection, then share a new one.
  const later = pings();
  own.signal('SIGCONT');
  expect((await later).every(({ status }) => status === 'fulfilled')).toBe(true);
  expect(warnings).toEqual([]);
});
