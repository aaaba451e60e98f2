import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { afterwards, during } from '../../support/afterwards.js';
import { begin, binary, cronEnv, sh } from '../../support/cli.js';
import { read, shell } from '../../support/handlers.js';
import { freshQueue } from '../../support/redis.js';
import { Server } from '../../support/server.js';
import { temporaryDirectory } from '../../support/temporary.js';
import { until } from '../../support/until.js';

/** What the command delayq runs with Node. */
const START = fileURLToPath(new URL('../../../bin/start.js', import.meta.url));

const via = (url: string) => ({ env: { DELAYQ_REDIS_URL: url } });
/** A Redis that was there once, and may come back. */
const away = async () => {
  const server = await during(Server.start());
  await server.end('SIGKILL');
  return server;
};

describe.concurrent('a drain that starts before Redis', () => {
  it.each([['--watch'], ['--for', '1m']])('waits for it, and says so once: %s %s', async (...how) => {
    const server = await away();
    const running = begin(['drain', ...how, '-n', '1', 'q', '--', 'cat'], via(server.url));
    await until(() => running.stderr.includes('still trying'));
    await server.run();
    expect(await binary(['enqueue', '-q', 'q', '1'], via(server.url))).toMatchObject({ code: 0 });
    const { code, stdout, stderr } = await running.ended;
    expect({ code, stdout }).toEqual({ code: 0, stdout: '1\n' });
    expect(stderr).toMatch(
      /^delayq: cannot reach .*\n {2}why: .*\n {2}next: .*\ndelayq: still trying\ndelayq: Redis is back after .*\n/,
    );
  });

  it('ends with 69 if it does not come in time, and at once without --watch', async () => {
    const { url } = await away();
    const ended = (...how: string[]) => binary(['drain', ...how, 'q', '--', 'cat'], via(url));
    expect(await ended('--watch', '--wait-for-redis', '3s')).toMatchObject({
      code: 69,
      stderr: expect.stringContaining('still trying'),
    });
    expect(await ended('--for', '500ms')).toMatchObject({ code: 69 });
    for (const how of [[], ['--watch', '--wait-for-redis', '0s']]) {
      expect(await ended(...how)).toMatchObject({ code: 69, stderr: expect.not.stringContaining('still trying') });
    }
  });

  it('does not wait if the password is wrong', async () => {
    const server = await during(Server.start({ password: 'secret' }));
    const { code, stderr } = await binary(['drain', '--watch', 'q', '--', 'cat'], {
      env: { DELAYQ_REDIS_URL: server.url.replace('unix://', 'unix://:wrong@') },
    });
    expect({ code, stderr }).toEqual({ code: 77, stderr: expect.not.stringContaining('still trying') });
  });

  it('ends with 0 when it is stopped meanwhile', async () => {
    const { url } = await away();
    const running = begin(['drain', '--watch', 'q', '--', 'cat'], via(url));
    await until(() => running.stderr.includes('still trying'));
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
  });
});

describe.concurrent('a service with Type=notify', () => {
  /** A stand-in for systemd-notify: it notes its arguments and the socket, where systemd-notify(1) sends READY=1. */
  const standIn = () => {
    const directory = temporaryDirectory();
    const log = join(directory, 'log');
    const text = `#!/bin/sh\necho "$NOTIFY_SOCKET $*" >> ${log}\n`;
    writeFileSync(join(directory, 'systemd-notify'), text, { mode: 0o755 });
    return { log, env: { PATH: `${directory}:${cronEnv().PATH}`, NOTIFY_SOCKET: '/run/notify' } };
  };

  it('is ready once it is connected to Redis, and says so once', async () => {
    const { log, env } = standIn();
    const server = await away();
    const running = begin(['drain', '--watch', 'q', '--', 'cat'], { env: { ...env, ...via(server.url).env } });
    await until(() => running.stderr.includes('still trying'));
    expect(existsSync(log)).toBe(false);
    await server.run();
    await until(() => read(log).endsWith('\n'));
    await binary(['enqueue', '-q', 'q', '1'], via(server.url));
    await until(() => running.stdout === '1\n');
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
    expect(read(log)).toBe('/run/notify --ready\n');
  });

  it.each(['--', '--pipe'])('keeps its handlers from saying so: %s', async (form) => {
    const { env } = standIn();
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const print = 'echo "[$NOTIFY_SOCKET]"';
    const handler = form === '--' ? [queue.name, ...shell(print)] : [queue.name, '--pipe', print];
    expect(await binary(['drain', '--watch', '-n', '1', ...handler], { env })).toMatchObject({ stdout: '[]\n' });
  });

  it('runs without systemd-notify, and a drain that ends by itself does not call it', async () => {
    const { log, env } = standIn();
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const how = ['drain', '-q', '-n', '1', queue.name, '--', 'cat'];
    expect(await binary(how, { env })).toMatchObject({ code: 0, stdout: '1\n' });
    expect(existsSync(log)).toBe(false);
    const bin = temporaryDirectory();
    for (const name of ['cat', 'mkfifo']) symlinkSync(`/usr/bin/${name}`, join(bin, name));
    const drain = `exec ${process.execPath} ${START} drain --watch -n 1 ${queue.name} -- cat`;
    expect(await sh(drain, { env: { ...env, PATH: bin } })).toMatchObject({ code: 0, stdout: '2\n' });
  });

  const python = '/usr/bin/python3';
  const hasAll = [
    [python, '-V'],
    ['systemd-notify', '--version'],
  ].every(([command = '', ...args]) => spawnSync(command, args).status === 0);

  it.runIf(hasAll).each([
    ['drain --watch', () => ['drain', '--watch', freshQueue().name, '--', 'cat']],
    ['serve', () => ['serve', '--listen', '127.0.0.1:0', '--admin-listen', '127.0.0.1:0']],
  ])('reaches the socket of the service manager by systemd-notify itself: %s', async (_, args) => {
    const NOTIFY_SOCKET = join(temporaryDirectory(), 'notify');
    const listen = `import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind(sys.argv[1]); print("bound", flush=True)
while True: print(s.recv(4096).decode(), flush=True)`;
    const manager = spawn(python, ['-c', listen, NOTIFY_SOCKET], { stdio: ['ignore', 'pipe', 'inherit'] });
    afterwards(async () => {
      manager.kill();
      await once(manager, 'exit');
    });
    let heard = '';
    manager.stdout.on('data', (data: Buffer) => {
      heard += data;
    });
    await until(() => heard.includes('bound'));
    const running = begin(args(), { env: { NOTIFY_SOCKET } });
    await until(() => heard.includes('READY=1'));
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
  });
});
