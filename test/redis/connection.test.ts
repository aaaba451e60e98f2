import { once } from 'node:events';
import { createServer } from 'node:net';
import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { Connection, connect, Queue } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { begin, beginSh, delayq, linesOf, sh } from '../support/cli.js';
import { FaultyProxy } from '../support/proxy.js';
import { admin, connection, freshName, freshQueue, key, redisUrl, timePasses } from '../support/redis.js';
import { freePort, Server } from '../support/server.js';
import { until } from '../support/until.js';

const server = (options?: Parameters<typeof Server.start>[0]) => during(Server.start(options));

const proxy = () => during(FaultyProxy.start(redisUrl.slice('unix://'.length)));

const via = (url: string) => ({ env: { DELAYQ_REDIS_URL: url } });

/** Every command that talks to Redis, with arguments under which it would. */
const commands = (queue = freshName()) => [
  ['enqueue', queue, '1'],
  ['enqueue', '--at', '12:00', queue, '1'],
  ['drain', queue],
  ['drain', '--watch', queue],
  ['inspect'],
  ['inspect', queue],
  ['drain', queue, '--', 'true'],
  ['drain', '--pipe', 'true', queue],
  ['list', queue],
  ['show', queue, 'a'],
  ['requeue', queue, 'a'],
  ['config', queue],
];
/** Those of them that do not wait until it is better. */
const unwaiting = () => commands().filter((args) => !args.includes('--watch'));

describe('a SIGKILL of enqueue (failures 1)', () => {
  it('at any moment of bulk leaves every job whole or not there at all', async () => {
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

  it('of a single enqueue, too', async () => {
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

describe('a lost reply', () => {
  it('of enqueue is asked for again, and makes one job (failures 2)', async () => {
    const queue = freshQueue();
    const through = await proxy();
    through.fault = { word: 'EVAL', kind: 'cut', times: 1 };
    const { code, stdout, stderr } = await delayq(['enqueue', queue.name, '1'], via(through.url));
    expect({ code, stderr, struck: through.struck }).toEqual({ code: 0, stderr: '', struck: 1 });
    expect(await admin.hgetall(key(queue.name, 'payload'))).toEqual({ [stdout.trim()]: '1' });
  });

  it('of enqueue that never comes exits 75 and names the id; with that id there is one job (failures 2)', async () => {
    const queue = freshQueue();
    const through = await proxy();
    through.fault = { word: 'EVAL', kind: 'cut', times: 100 };
    const { code, stdout, stderr } = await delayq(['enqueue', queue.name, '1'], via(through.url));
    expect({ code, stdout }).toEqual({ code: 75, stdout: '' });
    const id = /repeat with --id (\w+)/.exec(stderr)?.[1] as string;
    expect(await delayq(['enqueue', '--id', id, queue.name, '1'])).toMatchObject({ code: 0, stdout: `${id}\n` });
    expect(await admin.hgetall(key(queue.name, 'payload'))).toEqual({ [id]: '1' });
  });

  it('of single jobs that were enqueued in one go tells each caller of its own job', async () => {
    const through = await proxy();
    const redis = new Connection(through.url);
    const queue = new Queue(redis, freshName());
    through.fault = { word: 'EVAL', kind: 'cut', times: 100 };
    const asked = await Promise.allSettled(['a', 'b'].map((id) => queue.enqueue({ payload: id, id })));
    expect(asked).toMatchObject(['a', 'b'].map((id) => ({ reason: { code: 'unknown', ids: [id] } })));
    through.fault = undefined;
    const again = await Promise.all(['a', 'b'].map((id) => queue.enqueue({ payload: id, id })));
    redis.close();
    expect(again.map(({ outcome }) => outcome)).toEqual(['kept', 'kept']);
  });

  it('of a job that its caller has changed meanwhile is that of the job as it was', async () => {
    const through = await proxy();
    const redis = new Connection(through.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, freshName());
    // Redis knows the script from here on, so the first call carries it out.
    await freshQueue().enqueue({ payload: 1 });
    through.fault = { word: 'EVAL', kind: 'cut', times: 1 };
    const job: { payload: number[]; id?: string } = { payload: [1] };
    const asked = queue.enqueue(job);
    job.id = 'a';
    job.payload.push(2);
    const { id, outcome } = await asked;
    expect({ outcome, struck: through.struck }).toEqual({ outcome: 'created', struck: 1 });
    expect(await admin.hgetall(key(queue.name, 'payload'))).toEqual({ [id]: '[1]' });
  });

  it('of a replacement exits 75 when an older job may be what is there', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 'old', id: 'a' });
    const through = await proxy();
    through.fault = { word: 'EVAL', kind: 'cut', times: 1 };
    const replace = await delayq(
      ['enqueue', '--id', 'a', '--if-exists', 'replace', queue.name, '"new"'],
      via(through.url),
    );
    expect(replace).toMatchObject({ code: 75, stderr: expect.stringContaining('may be the earlier') });
  });

  it('in the middle of bulk is survived, line for line (failures 2)', async () => {
    const queue = freshQueue();
    const through = await proxy();
    const input = Array.from({ length: 6_000 }, (_, i) => `${i}\n`).join('');
    through.fault = { word: '2222', kind: 'cut', times: 1 };
    const { code, stdout, stderr } = await delayq(['enqueue', queue.name, '-'], { input, ...via(through.url) });
    expect({ code, stderr, struck: through.struck }).toEqual({ code: 0, stderr: '', struck: 1 });
    const ids = linesOf(stdout);
    expect(await admin.hmget(key(queue.name, 'payload'), ...ids)).toEqual(
      Array.from({ length: 6_000 }, (_, i) => String(i)),
    );
    expect((await queue.counts()).payload).toBe(6_000);
  });

  it('in bulk that stays lost is told line by line, and whoever repeats those lines has every job once (failures 2)', async () => {
    const queue = freshQueue();
    const through = await proxy();
    const input = Array.from({ length: 6_000 }, (_, i) => `${i}\n`).join('');
    through.fault = { word: 'EVAL', kind: 'cut', times: 100 };
    const { code, stdout, stderr } = await delayq(['enqueue', queue.name, '-'], { input, ...via(through.url) });
    expect(code).toBe(75);
    const unknown = [...stderr.matchAll(/line (\d+): may or may not .* the id (\w+)/g)].map(
      ([, line, id]) => [Number(line), id] as const,
    );
    const rest = Number(/lines after (\d+): not enqueued/.exec(stderr)?.[1] ?? 6_000);
    const missed = [...stderr.matchAll(/lines (\d+) to (\d+): not enqueued/g)].map(
      ([, from, to]) => [Number(from), Number(to)] as const,
    );
    expect(unknown.length).toBeGreaterThan(0);
    expect(stderr).toContain(
      `left in doubt: ${unknown.length.toLocaleString('en')} jobs that may or may not be enqueued\n`,
    );
    const again = [
      ...unknown.map(([line, id]) => ({ payload: line - 1, id })),
      ...missed.flatMap(([from, to]) => Array.from({ length: to - from + 1 }, (_, i) => ({ payload: from + i - 1 }))),
      ...Array.from({ length: 6_000 - rest }, (_, i) => ({ payload: rest + i })),
    ];
    await queue.enqueue(again);
    expect(linesOf(stdout).length + again.length).toBe(6_000);
    const payloads = (await admin.hvals(key(queue.name, 'payload'))).map(Number).sort((a, b) => a - b);
    expect(payloads).toEqual(Array.from({ length: 6_000 }, (_, i) => i));
  });

  it.each(['', '--lease 1m'])(
    'of drain %s loses nothing: the jobs come back after their lease (failures 8)',
    async (form) => {
      const queue = freshQueue();
      await queue.enqueue(Array.from({ length: 2_000 }, (_, n) => ({ payload: n })));
      const through = await proxy();
      // The first call that carries a receipt and is no text of a script: a take.
      through.fault = { word: 'EVALSHA', kind: 'cut', times: 1 };
      const first = await sh(`delayq drain ${form} ${queue.name} --redis ${through.url}`);
      expect(first).toMatchObject({ code: 75, stderr: expect.stringContaining('lost the connection') });
      await timePasses(queue.name, 60_001);
      const second = await delayq(['drain', queue.name]);
      const seen = [...linesOf(first.stdout), ...linesOf(second.stdout)].map((line) =>
        line.startsWith('{') ? JSON.parse(line).payload : Number(line),
      );
      expect(new Set(seen).size).toBe(2_000);
      expect((await queue.counts()).payload).toBe(0);
    },
  );

  it('of an ack is asked for again, and removes the jobs', async () => {
    const through = await proxy();
    const far = new Connection(through.url);
    afterwards(() => far.close());
    const queue = new Queue(far, freshName());
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const { jobs } = await queue.drain();
    through.fault = { word: 'EVAL', kind: 'cut', times: 1 };
    expect(await queue.ack(jobs)).toEqual(['held', 'held']);
    expect(await queue.counts()).toMatchObject({ active: 0, payload: 0 });
  });

  it('of putting back what at most once has taken is not asked for again: it could come twice', async () => {
    const through = await proxy();
    const far = new Connection(through.url);
    afterwards(() => far.close());
    const queue = new Queue(far, freshName());
    await queue.enqueue({ payload: 1, id: 'a' });
    const { jobs } = await queue.drain({ leaseMs: 0 });
    through.fault = { word: 'EVAL', kind: 'cut', times: 1 };
    await expect(queue.putBack(jobs)).rejects.toMatchObject({ code: 'unknown', ids: ['a'] });
    expect((await queue.counts()).stats).toMatchObject({ enqueued: 2 });
    expect((await queue.counts()).stats.kept).toBeUndefined();
  });

  it('of putting back one batch does not keep the others from it', async () => {
    const queue = freshQueue();
    const jobs = Array.from({ length: 2_000 }, (_, i) => ({ payload: 'x'.repeat(2_000), id: `j${i}`, at: i }));
    await queue.enqueue(jobs);
    const through = await proxy();
    const running = begin(['drain', '--at-most-once', '--redis', through.url, queue.name]);
    running.child.stdout?.pause();
    // One batch is on its way out, two are ahead of it.
    await until(async () => (await queue.counts()).pending === 1_250);
    through.fault = { word: 'j260', kind: 'refuse', times: 1 };
    running.child.stdout?.destroy();
    expect(await running.ended).toMatchObject({ code: 75, stderr: expect.stringContaining('250 jobs may or may not') });
    const there = await admin.hkeys(key(queue.name, 'payload'));
    expect(['j240', 'j260', 'j510', 'j740', 'j750'].filter((id) => there.includes(id))).toEqual([
      'j240',
      'j510',
      'j740',
      'j750',
    ]);
  });

  it('while watching is told once and waited out', async () => {
    const queue = freshQueue();
    const through = await proxy();
    const running = begin(['drain', '--watch', queue.name, '--redis', through.url]);
    await until(async () => Number(await admin.publish(queue.wakeChannel, 'x')) > 0);
    through.fault = { word: 'EVALSHA', kind: 'cut', times: 5 };
    await until(() => running.stderr.includes('Redis is back'));
    await queue.enqueue({ payload: 1 });
    await until(() => running.stdout === '1\n');
    running.child.kill('SIGTERM');
    const { code, stderr } = await running.ended;
    expect(code).toBe(0);
    expect(stderr.match(/lost the connection/g)).toHaveLength(through.struck > 5 ? 2 : 1);
  });
});

describe('Redis that is not there', () => {
  it('is told by every command within 6 s, exit 69, with address, cause and what to do (failures 28)', async () => {
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

  it('or accepts and never answers ends every command by its deadline (failures 21)', async () => {
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

  it('falls silent in the middle ends every command by its deadline (failures 21)', async () => {
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

  it('goes away for good while a drain holds jobs lets it end, and the jobs come back (failures 21)', async () => {
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

  it('comes back with everything, and a drain that watches delivers what fell due meanwhile (failures 18)', async () => {
    const own = await server({ args: ['--appendonly', 'yes', '--appendfsync', 'always'] });
    const name = freshName();
    for (const n of [1, 2]) await delayq(['enqueue', '--in', `${n}s`, name, String(n)], via(own.url));
    const running = begin(['drain', '--watch', name], via(own.url));
    await until(async () => Number(await own.admin.publish(`delayq:{${name}}:wake`, 'x')) > 0);
    await own.end('SIGKILL');
    await until(() => running.stderr.includes('still trying'));
    await own.run();
    await until(() => running.stdout === '1\n2\n');
    expect(running.stderr).toContain('Redis is back');
    running.child.kill('SIGTERM');
    expect((await running.ended).code).toBe(0);
    expect(await own.admin.zcard(`delayq:{${name}}:active`)).toBe(0);
  });
});

it.each([
  ['to stdout', '', '| cat'],
  ['with a handler', '--grace 1s', "-- sh -c 'echo begun; sleep 2'"],
])('a run that is to end by itself does so although Redis has gone: %s', async (_, options, rest) => {
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

describe('what Redis answers is told for what it is (failures 20, 28)', () => {
  const expectAll = async (own: { url: string }, list: string[][], code: number, message: RegExp) => {
    for (const args of list) {
      const ended = await delayq(args, via(own.url));
      expect({ args, ...ended }).toMatchObject({ args, code, stdout: '', stderr: expect.stringMatching(message) });
      expect(ended.stderr).toMatch(/\n {2}why: .*\n {2}next: /);
    }
  };

  it('NOAUTH and WRONGPASS: exit 77, and no password is shown (failures 33)', async () => {
    const own = await server({ tcp: true, args: ['--requirepass', 'right'] });
    await expectAll(own, commands(), 77, /NOAUTH|unauthenticated/);
    const wrong = `redis://:s3cret@127.0.0.1:${own.port}`;
    await expectAll({ url: wrong }, commands(), 77, /WRONGPASS/);
    for (const args of commands()) {
      for (const env of [{ DELAYQ_REDIS_URL: wrong }, { DELAYQ_REDIS_URL: '', REDIS_URL: wrong }]) {
        const { stdout, stderr } = await delayq(args, { env });
        expect(stdout + stderr).not.toContain('s3cret');
      }
    }
    const error = await connect(wrong).catch((error) => error);
    expect(error).toMatchObject({ code: 'refused' });
    expect(inspect(error, { depth: 9, showHidden: true })).not.toContain('s3cret');
    const right = via(`redis://:right@127.0.0.1:${own.port}`);
    expect(await delayq(['enqueue', 'q', '1'], right)).toMatchObject({ code: 0 });
    expect((await delayq(['inspect'], right)).stdout).not.toContain('right');
  });

  it('NOPERM: exit 77', async () => {
    const own = await server({ tcp: true });
    await own.admin.call('ACL', 'SETUSER', 'guest', 'on', '>pass', '~other:*', '+@all');
    await expectAll({ url: `redis://guest:pass@127.0.0.1:${own.port}` }, commands(), 77, /NOPERM|permission/i);
  });

  it('a user without rights to the wake channel may still enqueue', async () => {
    const own = await server({ tcp: true });
    await own.admin.call('ACL', 'SETUSER', 'guest', 'on', '>pass', '~delayq:*', 'resetchannels', '+@all');
    const user = via(`redis://guest:pass@127.0.0.1:${own.port}`);
    expect(await delayq(['enqueue', 'q', '1'], user)).toMatchObject({ code: 0, stderr: '' });
    expect(await delayq(['drain', '--for', '100ms', 'q'], user)).toMatchObject({ code: 0, stdout: '1\n', stderr: '' });
  });

  it('READONLY and MASTERDOWN: exit 75', async () => {
    const replica = await server({ tcp: true });
    await delayq(['enqueue', 'q', '1'], via(replica.url));
    await replica.admin.call('REPLICAOF', '127.0.0.1', await freePort());
    await expectAll(
      replica,
      [
        ['enqueue', 'q', '1'],
        ['drain', 'q'],
      ],
      75,
      /READONLY/,
    );
    expect(JSON.parse((await delayq(['inspect', 'q'], via(replica.url))).stdout).queues[0].pending).toBe(1);
    await replica.admin.config('SET', 'replica-serve-stale-data', 'no');
    await expectAll(replica, unwaiting(), 75, /MASTERDOWN/);
  });

  it('OOM: enqueue fails whole with exit 75; drain and inspect go on (failures 4)', async () => {
    const own = await server();
    await delayq(['enqueue', 'q', '-'], { input: '1\n2\n3\n', ...via(own.url) });
    await own.admin.config('SET', 'maxmemory', '1mb');
    await expectAll(own, [['enqueue', 'q', '4']], 75, /OOM/);
    expect(await delayq(['enqueue', 'q', '-'], { input: '4\n5\n', ...via(own.url) })).toMatchObject({
      code: 75,
      stdout: '',
      stderr: expect.stringContaining('lines 1 to 2: not enqueued'),
    });
    expect(JSON.parse((await delayq(['inspect', 'q'], via(own.url))).stdout).queues[0].pending).toBe(3);
    const redis = new Connection(own.url);
    const queue = new Queue(redis, 'q');
    // Samples are taken only behind writes that free memory.
    const unsampled = () => own.admin.hdel('delayq:{q}:stats', 'sampled');
    await unsampled();
    const { jobs } = await queue.drain();
    expect(await own.admin.hexists('delayq:{q}:stats', 'sampled')).toBe(1);
    await unsampled();
    expect(await queue.renew(jobs)).toEqual(['held', 'held', 'held']);
    expect(await queue.nack(jobs.slice(0, 1), { error: 'x'.repeat(500) })).toMatchObject([{ answer: 'pending' }]);
    expect(await queue.nack(jobs.slice(1, 2), { mode: 'release' })).toMatchObject([{ answer: 'pending' }]);
    expect(await queue.ack(jobs.slice(2))).toEqual(['held']);
    for (const args of [
      ['config', 'q', 'tries=3'],
      ['list', 'q'],
      ['drain', '-q', 'q', '--', 'sh', '-c', 'exit 65'],
    ])
      expect(await delayq(args, via(own.url))).toMatchObject({ stderr: expect.not.stringContaining('OOM') });
    expect(await delayq(['requeue', 'q', '--all', '--yes'], via(own.url))).toMatchObject({ code: 0 });
    redis.close();
    expect(await delayq(['drain', 'q'], via(own.url))).toMatchObject({ code: 0, stderr: '' });
    expect(await delayq(['drain', 'q'], via(own.url))).toMatchObject({ code: 0, stdout: '', stderr: '' });
  });

  it('BUSY: exit 75', async () => {
    const own = await server({ args: ['--lua-time-limit', '50'] });
    const busy = own.admin.duplicate();
    busy.eval('while true do end', 0).catch(() => {});
    await until(() =>
      own.admin.ping().then(
        () => false,
        (error) => /BUSY/.test(error),
      ),
    );
    await expectAll(own, unwaiting(), 75, /BUSY/);
    await own.admin.script('KILL');
    busy.disconnect();
  });

  it('LOADING: exit 75', async () => {
    const own = await server();
    await own.admin.eval("for i = 1, 20000 do redis.call('SET', 'k' .. i, string.rep('x', 100)) end", 0);
    await own.admin.save();
    await own.end();
    // Each key takes its time to load, so that Redis is loading for as long as the test looks.
    await own.run({
      wait: false,
      args: ['--key-load-delay', '1000', '--loading-process-events-interval-bytes', '1024'],
    });
    await until(async () => (await delayq(['inspect'], via(own.url))).code === 75);
    await expectAll(own, unwaiting(), 75, /LOADING/);
  });

  it('CLUSTERDOWN: exit 75 · MOVED to a plain client: exit 78', async () => {
    const [one, two] = await Promise.all([0, 1].map(() => server({ tcp: true, args: ['--cluster-enabled', 'yes'] })));
    if (!one || !two) throw new Error('no servers');
    await expectAll(
      one,
      [
        ['enqueue', 'q', '1'],
        ['drain', 'q'],
      ],
      75,
      /CLUSTERDOWN/,
    );
    // All slots belong to the other node.
    await two.admin.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16383);
    await one.admin.call('CLUSTER', 'MEET', '127.0.0.1', two.port);
    await until(async () => /cluster_state:ok/.test(String(await one.admin.call('CLUSTER', 'INFO'))));
    await expectAll(
      one,
      [
        ['enqueue', 'q', '1'],
        ['drain', 'q'],
        ['drain', '--watch', 'q'],
      ],
      78,
      /MOVED/,
    );
    expect(await delayq(['enqueue', 'q', '1'], via(two.url))).toMatchObject({ code: 0 });
    expect(await delayq(['drain', 'q'], via(two.url))).toMatchObject({ code: 0, stdout: '1\n' });
  });

  it('a key of the wrong type: exit 78, and the key is named (failures 26)', async () => {
    const name = freshName();
    await admin.set(key(name, 'dead'), 'x');
    for (const args of [
      ['enqueue', name, '1'],
      ['drain', name],
      ['inspect', name],
    ]) {
      expect(await delayq(args)).toMatchObject({
        code: 78,
        stdout: '',
        stderr: expect.stringContaining(key(name, 'dead')),
      });
    }
  });

  it('a database that is not there: exit 78, and nothing goes to another one', async () => {
    const own = await server();
    expect(await delayq(['enqueue', 'q', '1'], via(`${own.url}?db=99`))).toMatchObject({ code: 78 });
    expect(await own.admin.dbsize()).toBe(0);
  });

  it('while watching, what passes is waited out', async () => {
    const own = await server({ tcp: true });
    await delayq(['enqueue', 'q', '1'], via(own.url));
    await own.admin.call('REPLICAOF', '127.0.0.1', await freePort());
    const running = begin(['drain', '--watch', 'q'], via(own.url));
    await until(() => running.stderr.includes('READONLY'));
    await own.admin.call('REPLICAOF', 'NO', 'ONE');
    await until(() => running.stdout === '1\n');
    running.child.kill('SIGTERM');
    expect((await running.ended).code).toBe(0);
  });
});

it('restarts between any two calls lose nothing that was confirmed (failures 18)', async () => {
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
    // The first call may still meet the old connection; it says so instead of hanging, and the next one works.
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

it('a connection that was closed says so', async () => {
  const redis = new Connection(redisUrl);
  const queue = new Queue(redis, freshName());
  await queue.enqueue({ payload: 1 });
  redis.close();
  await expect(queue.enqueue({ payload: 2 })).rejects.toMatchObject({ code: 'usage' });
  expect((await new Queue(connection, queue.name).counts()).pending).toBe(1);
});
