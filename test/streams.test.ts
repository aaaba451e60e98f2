import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { Connection, Queue } from '../src/index.js';
import { afterwards, during } from './support/afterwards.js';
import { beginSh, delayq, linesOf, type Running } from './support/cli.js';
import { path } from './support/handlers.js';
import { upTo } from './support/jobs.js';
import { Server } from './support/server.js';
import { until } from './support/until.js';

const example = (name: string) => fileURLToPath(new URL(`../examples/streams/${name}`, import.meta.url));
const has = (command: string, ...args: string[]) => spawnSync(command, args).status === 0;

const STREAM = 'delayq:{order-close}:stream';

/** The workers in examples/streams/, and what a test puts in the place of their work. */
const workers = [
  {
    name: 'php-redis',
    isThere: has('php', '-r', 'exit(class_exists("Redis") ? 0 : 1);'),
    run: 'php',
    file: example('worker.php'),
    work: /^ {4}echo .*$/m,
    dies: "    exec('kill -9 ' . getmypid());",
    fails: "    if ($job['payload'] === '0') { throw new Exception('no such order'); }\n",
  },
  {
    name: 'redis-py',
    isThere: has('/usr/bin/python3', '-c', 'import redis'),
    run: '/usr/bin/python3',
    file: example('worker.py'),
    work: /^ {4}print\("closed".*$/m,
    dies: '    os.kill(os.getpid(), 9)',
    fails: '    if job[b"payload"] == b"0":\n        raise ValueError("no such order")\n',
  },
];

describe.concurrent.each(workers.filter(({ isThere }) => isThere))('the worker of a stream with $name', (worker) => {
  const setUp = async () => {
    const server = await during(Server.start({ tcp: true }));
    const redis = new Connection(server.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, 'order-close');
    const drain = () =>
      delayq(['drain', '-q', 'order-close', '--to-stream'], { env: { DELAYQ_REDIS_URL: server.url } });
    /** Starts it, with `text` in place of its own. */
    const start = (name: string, { text, idleMs = 200 }: { text?: string; idleMs?: number } = {}) => {
      const file = text === undefined ? worker.file : path();
      if (text !== undefined) writeFileSync(file, text);
      return beginSh(`exec ${worker.run} ${file} '${STREAM}' closers ${name}`, {
        env: { REDIS_URL: server.tcpUrl, IDLE_MS: String(idleMs) },
      });
    };
    return { server, queue, drain, start };
  };
  const text = readFileSync(worker.file, 'utf8');
  const done = (running: readonly Running[]) => running.flatMap(({ stdout }) => linesOf(stdout)).sort();

  it('does each job once, together with others', async () => {
    const { server, queue, drain, start } = await setUp();
    const running = ['a', 'b'].map((name) => start(name, { idleMs: 60_000 }));
    const payloads = upTo(200);
    await queue.enqueue(payloads.map((payload) => ({ payload })));
    expect(await drain()).toMatchObject({ code: 0, stderr: '' });
    const expected = payloads.map((n) => `closed ${n}`).sort();
    await until(() => done(running).length >= 200);
    expect(done(running)).toEqual(expected);
    await until(async () => (await server.admin.xpending(STREAM, 'closers'))[0] === 0);
    expect(await drain()).toMatchObject({ code: 0 });
    expect(await server.admin.xlen(STREAM)).toBe(0);
    for (const { child } of running) child.kill('SIGTERM');
    for (const { stderr } of await Promise.all(running.map(({ ended }) => ended))) expect(stderr).toBe('');
  });

  it('takes over what one that was killed between read and ack has left', async () => {
    const { server, queue, drain, start } = await setUp();
    await queue.enqueue(upTo(3).map((payload) => ({ payload })));
    await drain();
    const dying = start('a', { text: text.replace(worker.work, worker.dies) });
    expect(await dying.ended).toMatchObject({ signal: 'SIGKILL', stdout: '' });
    expect((await server.admin.xpending(STREAM, 'closers'))[0]).toBe(3);
    // A drain leaves what is not acked.
    await drain();
    expect(await server.admin.xlen(STREAM)).toBe(3);
    const running = start('b');
    await until(() => done([running]).length === 3);
    await until(async () => (await server.admin.xpending(STREAM, 'closers'))[0] === 0);
    running.child.kill('SIGTERM');
    expect(done([await running.ended.then(() => running)])).toEqual(['closed 0', 'closed 1', 'closed 2']);
  });

  it('goes on after a job that fails, which comes again', async () => {
    const { server, queue, drain, start } = await setUp();
    await queue.enqueue(upTo(3).map((payload) => ({ payload, id: `order:${payload}` })));
    await drain();
    const running = start('a', { text: text.replace(worker.work, (line) => worker.fails + line) });
    await until(() => running.stderr.split('order:0 failed: no such order\n').length > 2);
    expect(done([running])).toEqual(['closed 1', 'closed 2']);
    expect((await server.admin.xpending(STREAM, 'closers'))[0]).toBe(1);
    running.child.kill('SIGTERM');
    await running.ended;
  });
});
