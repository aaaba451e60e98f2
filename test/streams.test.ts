import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { aclLine } from '../src/internal.js';
import { afterwards, during } from './support/afterwards.js';
import { delayq } from './support/cli.js';
import { read } from './support/handlers.js';
import { FaultyProxy } from './support/proxy.js';
import { admin, freshQueue, key, redisTargets } from './support/redis.js';
import { Server } from './support/server.js';
import { temporaryDirectory } from './support/temporary.js';
import { until } from './support/until.js';

const path = (name: string) => fileURLToPath(new URL(`../examples/streams/${name}`, import.meta.url));
const has = (command: string, ...args: string[]) => spawnSync(command, args).status === 0;

/** The consumers in examples/streams/, and what each needs. */
const CONSUMERS: readonly (readonly [name: string, isThere: boolean, command: string, file: string])[] = [
  ['phpredis', has('php', '-r', 'exit(class_exists("Redis") ? 0 : 1);'), 'php', 'worker.php'],
  ['redis-py', has('/usr/bin/python3', '-c', 'import redis'), '/usr/bin/python3', 'worker.py'],
];

describe.concurrent('the consumer of a stream with', () => {
  for (const [name, isThere, command, file] of CONSUMERS)
    it.runIf(isThere)(`${name} handles what was handed over, and what a killed one had`, async () => {
      const queue = freshQueue();
      const stream = key(queue.name, 'stream');
      const proxy = await during(FaultyProxy.start(...redisTargets));
      const dir = temporaryDirectory();
      const env = { ...process.env, REDIS: `127.0.0.1:${proxy.port}`, STREAM: stream, ORDERS: dir, IDLE_MS: '300' };
      const begin = () => {
        const child = spawn(command, [path(file)], { env, stdio: ['ignore', 'ignore', 'pipe'] });
        let stderr = '';
        child.stderr.on('data', (data) => {
          stderr += data;
        });
        const ended = once(child, 'exit');
        const end = async () => {
          child.kill('SIGKILL');
          await ended;
        };
        afterwards(end);
        return { end, errors: () => stderr };
      };
      const pending = async () => (await admin.xpending(stream, 'orders').catch(() => [0]))[0] as number;
      await queue.enqueue([
        { payload: { orderId: 1 }, id: 'a', at: 1 },
        { payload: 'no order', id: 'odd', at: 2 },
        { payload: { orderId: 2 }, id: 'b', at: 3 },
      ]);
      expect(await delayq(['drain', queue.name, '--to-stream'])).toMatchObject({ code: 0 });
      // Nobody reads from this pipe: the consumer stops in the middle of a job.
      expect(spawnSync('mkfifo', [join(dir, 'closed')]).status).toBe(0);
      const killed = begin();
      await until(async () => (await pending()) === 3);
      await killed.end();
      spawnSync('rm', [join(dir, 'closed')]);
      const other = begin();
      await until(async () => (await pending()) === 1);
      expect(read(join(dir, 'closed'))).toBe('1\n2\n');
      await until(() => (other.errors().match(/odd/g)?.length ?? 0) >= 2);
      await queue.enqueue({ payload: { orderId: 3 } });
      await delayq(['drain', queue.name, '--to-stream']);
      await until(() => read(join(dir, 'closed')) === '1\n2\n3\n');
      await other.end();
    });
});

it('needs the permissions that its page names, and without them moves no job', async () => {
  const server = await during(Server.start({ tcp: true }));
  const line = aclLine([], { version: '7.0' }).replace(/#\S+/, '>secret').split(' ').slice(1);
  await server.admin.call('ACL', ...line);
  const url = server.url.replace('//', '//app:secret@');
  const env = { DELAYQ_REDIS_URL: url };
  expect(await delayq(['enqueue', 'q', '1'], { env })).toMatchObject({ code: 0 });
  // A group that has read, and not acked.
  const stream = key('q', 'stream');
  await server.admin.xadd(stream, '*', 'id', 'old');
  await server.admin.xgroup('CREATE', stream, 'g', '0');
  await server.admin.xreadgroup('GROUP', 'g', 'me', 'STREAMS', stream, '>');
  const drain = () => delayq(['drain', 'q', '--to-stream'], { env });
  const [, rights = ''] =
    /`(\+xadd [^`]*)`/.exec(read(fileURLToPath(new URL('../docs/guide/streams.md', import.meta.url)))) ?? [];
  for (const right of rights.split(/\s+/)) {
    expect(await drain()).toMatchObject({ code: 77 });
    expect(await server.admin.zcard(key('q', 'pending'))).toBe(1);
    await server.admin.call('ACL', 'SETUSER', 'app', right);
  }
  expect(await drain()).toMatchObject({ code: 0 });
  expect(await server.admin.xlen(stream)).toBe(2);
});
