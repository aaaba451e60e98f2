import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { Connection, connect, Queue } from '../../src/index.js';
import { errorFromReply, LIBRARY_NAMES, withoutLogin } from '../../src/net/errors.js';
import { afterwards, during } from '../support/afterwards.js';
import { begin, delayq } from '../support/cli.js';
import { commands, unwaiting } from '../support/commands.js';
import { admin, freshName, key } from '../support/redis.js';
import { freePort, Server } from '../support/server.js';
import { temporaryDirectory } from '../support/temporary.js';
import { until } from '../support/until.js';

const server = (options?: Parameters<typeof Server.start>[0]) => during(Server.start(options));

const via = (url: string) => ({ env: { DELAYQ_REDIS_URL: url } });

describe.concurrent('an error of Redis is reported as what it is (failures 20, 28)', () => {
  const expectAll = async (own: { url: string }, list: string[][], code: number, message: RegExp) => {
    for (const args of list) {
      const ended = await delayq(args, via(own.url));
      expect({ args, ...ended }).toMatchObject({ args, code, stdout: '', stderr: expect.stringMatching(message) });
      expect(ended.stderr).toMatch(/\n {2}why: .*\n {2}next: /);
      expect(ended.stderr).not.toContain('s3cret');
    }
  };

  it('NOAUTH and WRONGPASS: exit 77, and no password is shown (failures 33)', async () => {
    const own = await server({ tcp: true, args: ['--requirepass', 'right'] });
    await expectAll(own, commands(), 77, /NOAUTH|unauthenticated/);
    const asked = await delayq(['inspect'], via(own.tcpUrl));
    expect(asked.stderr).toMatch(
      /it requires a password: .*\n {2}next: put :PASSWORD@ before the host .*DELAYQ_REDIS_URL/,
    );
    await expect(connect(own.tcpUrl)).rejects.toMatchObject({
      code: 'refused',
      next: 'give connect() a password',
    });
    const wrong = `redis://:s3cret@127.0.0.1:${own.port}`;
    await expectAll({ url: wrong }, commands(), 77, /WRONGPASS/);
    // One place reads the variables, for all commands.
    const byOther = await delayq(['inspect'], { env: { DELAYQ_REDIS_URL: '', REDIS_URL: wrong } });
    expect(byOther).toMatchObject({ code: 77, stdout: '', stderr: expect.not.stringContaining('s3cret') });
    const error = await connect(wrong).catch((error) => error);
    expect(error).toMatchObject({ code: 'refused' });
    expect(inspect(error, { depth: 9, showHidden: true })).not.toContain('s3cret');
    const right = via(`redis://:right@127.0.0.1:${own.port}`);
    expect(await delayq(['enqueue', 'q', '1'], right)).toMatchObject({ code: 0 });
    expect((await delayq(['inspect'], right)).stdout).not.toContain('right');
  });

  it('no AUTH, which Redis says by quoting the login: exit 78, and the login is not shown (failures 33)', async () => {
    const own = await server({ tcp: true, args: ['--rename-command', 'AUTH', ''] });
    const url = `redis://s3cretUser:s3cretWord@127.0.0.1:${own.port}`;
    const { code, stderr } = await delayq(['inspect'], via(url));
    expect({ code, stderr }).toEqual({ code: expect.any(Number), stderr: expect.stringContaining('unknown command') });
    expect(code).toBeGreaterThan(64);
    const error = await connect(url).catch((error) => error);
    expect(stderr + inspect(error, { depth: 9, showHidden: true })).not.toContain('s3cret');
  });

  it('no free place for a client: exit 75', async () => {
    const own = await server({ tcp: true, args: ['--requirepass', 'right'] });
    const first = await connect(`redis://:right@127.0.0.1:${own.port}`);
    try {
      await first.call('CONFIG', 'SET', 'maxclients', '1');
      const second = via(`redis://:right@127.0.0.1:${own.port}`);
      const { code, stderr } = await delayq(['enqueue', 'q', '1'], second);
      expect({ code, stderr }).toEqual({ code: 75, stderr: expect.stringContaining('max number of clients') });
    } finally {
      first.close();
    }
  });

  it('NOPERM: exit 77', async () => {
    const own = await server({ tcp: true });
    await own.admin.call('ACL', 'SETUSER', 'guest', 'on', '>pass', '~other:*', '+@all');
    await expectAll({ url: `redis://guest:pass@127.0.0.1:${own.port}` }, commands(), 77, /NOPERM|permission/i);
  });

  it('a user without permission for the wake channel may still enqueue', async () => {
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
    // So that a script is sent a second time while other calls are refused.
    await replica.admin.script('FLUSH');
    await expectAll(
      replica,
      [
        ['enqueue', 'q', '1'],
        ['drain', 'q'],
      ],
      75,
      // Not that a reply was lost.
      /refused the call\n {2}why: {2}READONLY.*\n {2}next: this is a replica/,
    );
    expect(JSON.parse((await delayq(['inspect', '--json', 'q'], via(replica.url))).stdout).queues[0].pending).toBe(1);
    await replica.admin.config('SET', 'replica-serve-stale-data', 'no');
    await expectAll(replica, unwaiting(), 75, /MASTERDOWN/);
  });

  it('OOM: enqueue fails whole with exit 75; drain and inspect go on (failures 4)', async () => {
    const own = await server();
    await delayq(['enqueue', 'q', '-'], { input: '1\n2\n3\n', ...via(own.url) });
    await own.admin.config('SET', 'maxmemory', '1mb');
    // Lines of other batches may have been enqueued.
    const full = await delayq(['enqueue', 'q', '-'], { input: '4\n', ...via(own.url) });
    expect(full.stderr).toContain('next: Redis is out of memory: drain or cancel jobs, or raise maxmemory\n');
    await expectAll(own, [['enqueue', 'q', '4']], 75, /OOM/);
    expect(await delayq(['enqueue', 'q', '-'], { input: '4\n5\n', ...via(own.url) })).toMatchObject({
      code: 75,
      stdout: '',
      stderr: expect.stringContaining('lines 1 to 2: not enqueued'),
    });
    expect(JSON.parse((await delayq(['inspect', '--json', 'q'], via(own.url))).stdout).queues[0].pending).toBe(3);
    const redis = new Connection(own.url);
    const queue = new Queue(redis, 'q');
    // Samples are taken only after writes that free memory.
    const unsampled = () => own.admin.hdel('delayq:{q}:stats', 'sampled');
    await unsampled();
    const { jobs } = await queue.drain();
    expect(await own.admin.hexists('delayq:{q}:stats', 'sampled')).toBe(1);
    await unsampled();
    expect(await queue.renew(jobs)).toEqual(['held', 'held', 'held']);
    expect(await queue.nack(jobs.slice(0, 1), { error: 'x'.repeat(500) })).toMatchObject([{ answer: 'pending' }]);
    expect(await queue.nack(jobs.slice(1, 2), { mode: 'release' })).toMatchObject([{ answer: 'pending' }]);
    expect(await queue.ack(jobs.slice(2))).toEqual(['held']);
    // Both ways of the script: once a second it also notes that the queue has a drain.
    for (let n = 0; n < 3; n++) {
      const alone = await queue.drain({ limit: 1 });
      expect(await queue.nack(alone.jobs, { mode: 'release' })).toMatchObject([{ answer: 'pending' }]);
    }
    await unsampled();
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

  // Alone, as the server loads for a limited time.
  it.sequential('LOADING: exit 75', async () => {
    const own = await server();
    await own.admin.eval("for i = 1, 20000 do redis.call('SET', 'k' .. i, string.rep('x', 100)) end", 0);
    await own.admin.save();
    await own.end();
    // Each key takes time to load, so that Redis is still loading during the test.
    await own.run({
      wait: false,
      args: ['--key-load-delay', '1000', '--loading-process-events-interval-bytes', '1024'],
    });
    await until(async () => (await delayq(['inspect'], via(own.url))).code === 75);
    await expectAll(own, unwaiting(), 75, /LOADING/);
  });

  it('CLUSTERDOWN: exit 75 · a database of a cluster other than 0: exit 78', async () => {
    const own = await server({ tcp: true, args: ['--cluster-enabled', 'yes'] });
    await expectAll(
      own,
      [
        ['enqueue', 'q', '1'],
        ['drain', 'q'],
      ],
      75,
      /CLUSTERDOWN/,
    );
    await expectAll(
      { url: `${own.tcpUrl}/1` },
      commands(),
      78,
      /has only database 0: .*\n {2}next: .*such as \/1.*prefix/,
    );
  });

  it('the port of a Sentinel: exit 78, and how Sentinels are named', async () => {
    const port = await freePort();
    const config = join(temporaryDirectory(), 'sentinel.conf');
    writeFileSync(config, `port ${port}\nbind 127.0.0.1\n`);
    const sentinel = spawn('redis-server', [config, '--sentinel'], { stdio: 'ignore' });
    afterwards(() => sentinel.kill('SIGKILL'));
    await until(async () => (await delayq(['inspect'], via(`redis://127.0.0.1:${port}`))).code !== 69);
    for (const url of [`redis://127.0.0.1:${port}`, `redis://127.0.0.1:${port}/1`])
      await expectAll({ url }, unwaiting(), 78, /unknown command.*\n {2}next: .* redis\+sentinel:\/\/host:26379\/NAME/);
  });

  it('a user whose name is a part of the names of keys sees them whole', () => {
    const reply = new Error('WRONGTYPE delayq:{q}:dead is a string, not a zset');
    const { message } = withoutLogin(reply, { username: 'delayq', password: 'secret' });
    expect(message).toBe('WRONGTYPE delayq:{q}:dead is a string, not a zset');
  });

  it('an unknown command is known by its words, whatever letters the login has', () => {
    const reply = new Error("ERR unknown command 'select', with args beginning with: 'm' 'u'");
    const { message } = withoutLogin(reply, { username: 'm', password: 'u' });
    expect(message).toBe("ERR unknown command 'select', with args beginning with: '…' '…'");
    expect(errorFromReply(new Error(message), 'redis://h:1', LIBRARY_NAMES)).toMatchObject({ code: 'config' });
  });

  it.each([
    ['MOVED 866 127.0.0.1:7001', 'temporary', 'moving slots'],
    ['ASK 866 127.0.0.1:7001', 'temporary', 'moving slots'],
    ['TRYAGAIN Multiple keys request during rehashing of slot', 'temporary', 'moving slots'],
    ["READONLY You can't write against a read only replica.", 'temporary', 'redis+sentinel://host:26379/NAME'],
    ["CROSSSLOT Keys in request don't hash to the same slot", 'config', '{tag}'],
  ])('%s of a cluster is %s', (reply, code, next) => {
    const error = errorFromReply(new Error(reply), 'redis://h:1', LIBRARY_NAMES);
    expect(error).toMatchObject({ code, why: reply, next: expect.stringContaining(next) });
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

  it('a database that does not exist: exit 78, and nothing is written to another one', async () => {
    const own = await server();
    expect(await delayq(['enqueue', 'q', '1'], via(`${own.url}?db=99`))).toMatchObject({ code: 78 });
    expect(await own.admin.dbsize()).toBe(0);
  });

  it('a watching drain waits until a temporary error is over', async () => {
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
