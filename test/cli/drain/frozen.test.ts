import { writeFileSync } from 'node:fs';
import { describe, expect, it, vi } from 'vitest';
import { Connection, Queue, Worker } from '../../../src/index.js';
import { afterwards, during } from '../../support/afterwards.js';
import { begin, type Running } from '../../support/cli.js';
import { path, read, shell } from '../../support/handlers.js';
import { FaultyProxy } from '../../support/proxy.js';
import { freshName, key, redisTargets } from '../../support/redis.js';
import { Server } from '../../support/server.js';
import { until, within } from '../../support/until.js';

const via = (url: string) => ({ env: { DELAYQ_REDIS_URL: url } });

// They wait for time limits, most of the time.
vi.setConfig({ maxConcurrency: 20 });

/** Shorter than the grace of drains that are given none, 30 s, and much longer than the ones here. */
const SOON_MS = 25_000;

describe.concurrent('a drain that is stopped while Redis is frozen ends when grace is over (failures 15)', () => {
  const frozen = async (form: readonly string[], jobs: number, ready: (own: Server) => unknown) => {
    const own = await during(Server.start());
    const redis = new Connection(own.url);
    await new Queue(redis, 'q').enqueue(Array.from({ length: jobs }, (_, n) => ({ payload: n, id: `j${n}` })));
    redis.close();
    const running = begin(['drain', '--watch', '--grace', '1s', ...form], via(own.url));
    await until(async () => Number(await own.admin.publish('delayq:{q}:wake', 'x')) > 0);
    await until(() => ready(own));
    own.signal('SIGSTOP');
    return { own, running };
  };
  const stopped = async ({ running }: { running: Running }) => {
    running.child.kill('SIGTERM');
    const ended = await within(SOON_MS, 'a drain that is stopped', running.ended);
    expect(ended.stderr).not.toContain('already connect');
    return ended;
  };
  /** What a handler does after it has written a line to `log`. */
  const logged = (log: string, then: string) => `echo >> ${log}; ${then}`;
  const runs = (log: string, n: number) => () => read(log).length === n;

  it.each([
    ['handlers that run', (log: string) => ['--kill-after', '1s', 'q', ...shell(logged(log, 'exec sleep 600'))]],
    [
      'handlers that do not hear',
      (log: string) => ['--kill-after', '1s', 'q', ...shell(logged(log, "trap '' TERM; while :; do sleep 1; done"))],
    ],
    ['a batch that runs', (log: string) => ['--pipe', logged(log, 'sleep 600'), 'q']],
  ])('with %s: exit 75, and their jobs come again', async (_, form) => {
    const log = path();
    const setup = await frozen(form(log), 3, runs(log, 1));
    const { code, stderr } = await stopped(setup);
    expect({ code, stderr }).toEqual({
      code: 75,
      stderr: expect.stringMatching(/delivered again when their leases expire/),
    });
    setup.own.signal('SIGCONT');
    expect(await setup.own.admin.hlen(key('q', 'payload'))).toBe(3);
  });

  it('with a handler that ends during grace', async () => {
    const [log, go] = [path(), path()];
    const handler = shell(logged(log, `while [ ! -e ${go} ]; do sleep 0.05; done`));
    const setup = await frozen(['--grace', '5s', 'q', ...handler], 1, runs(log, 1));
    const ended = stopped(setup);
    await until(() => setup.running.stderr.includes('waiting'));
    writeFileSync(go, '');
    const { code, stderr } = await ended;
    expect({ code, stderr }).toEqual({
      code: 75,
      stderr: expect.stringMatching(/delivered again when their leases expire/),
    });
  });

  it('with only a call under way: exit 75, as the call may have taken jobs', async () => {
    const through = await during(FaultyProxy.start(...redisTargets));
    through.fault = { word: 'EVAL', kind: 'silent', times: 1_000 };
    const running = begin(['drain', '--watch', '--grace', '1s', freshName(), '--', 'true'], via(through.url));
    await until(() => through.struck > 0);
    const { code, stderr } = await stopped({ running });
    expect({ code, stderr }).toEqual({
      code: 75,
      stderr: expect.stringMatching(/delivered again when their leases expire/),
    });
  });

  it('if it had already reported that Redis does not answer', async () => {
    const log = path();
    // One more handler could run, so it goes on asking for jobs.
    const setup = await frozen(['-P', '3', 'q', ...shell(logged(log, 'exec sleep 600'))], 2, runs(log, 2));
    await until(() => setup.running.stderr.includes('still trying'));
    const { code } = await stopped(setup);
    expect(code).toBe(75);
  });

  it('to stdout', async () => {
    const setup = await frozen(['q'], 3, async (own) => (await own.admin.zcard(key('q', 'active'))) === 3);
    const { code } = await stopped(setup);
    expect(code).toBe(75);
  });

  it('and a worker of the library', async () => {
    const own = await during(Server.start());
    const redis = new Connection(own.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, 'q');
    await queue.enqueue({ payload: 1 });
    let started = false;
    const worker = new Worker(
      queue,
      (task) => {
        started = true;
        return new Promise((resolve) => task.signal.addEventListener('abort', resolve));
      },
      { graceMs: 500 },
    );
    const running = worker.run();
    await until(() => started);
    own.signal('SIGSTOP');
    worker.stop();
    await expect(within(SOON_MS, 'a worker that is stopped', running)).rejects.toMatchObject({
      code: expect.stringMatching(/temporary|unknown/),
    });
    own.signal('SIGCONT');
  });
});

it.concurrent('each call to a Redis that does not answer says so', async () => {
  const own = await during(Server.start());
  const redis = new Connection(own.url);
  afterwards(() => redis.close());
  own.signal('SIGSTOP');
  for (let i = 0; i < 2; i++) {
    await expect(redis.now()).rejects.toMatchObject({ code: 'unreachable', why: expect.stringContaining('no answer') });
  }
  own.signal('SIGCONT');
  expect(await redis.now()).toBeGreaterThan(0);
});

describe.concurrent('a drain whose time ends while Redis is in trouble says so by its exit status', () => {
  const withJob = async () => {
    const own = await during(Server.start());
    const redis = new Connection(own.url);
    afterwards(() => redis.close());
    await new Queue(redis, 'q').enqueue({ payload: 1 });
    return own;
  };

  it.each([
    ['to stdout', ['q']],
    ['with handlers', ['q', '--', 'true']],
  ])('75 if it refuses writes: %s', async (_, form) => {
    const own = await withJob();
    await own.admin.call('CONFIG', 'SET', 'min-replicas-to-write', '1');
    const { code, stderr } = await begin(['drain', '--for', '500ms', ...form], via(own.url)).ended;
    expect({ code, stderr }).toEqual({ code: 75, stderr: expect.stringContaining('NOREPLICAS') });
  });

  it('69 if it is gone', async () => {
    const own = await withJob();
    const running = begin(['drain', '--for', '10s', 'q'], via(own.url));
    await until(async () => (await own.admin.zcard(key('q', 'pending'))) === 0);
    await until(async () => Number(await own.admin.publish('delayq:{q}:wake', 'x')) > 0);
    await own.end('SIGKILL');
    const { code, stdout, stderr } = await running.ended;
    expect({ code, stdout, stderr }).toEqual({
      code: 69,
      stdout: '1\n',
      stderr: expect.stringContaining('still trying'),
    });
  });

  it('but 0 if it is well again by then, or if the drain was stopped before', async () => {
    const own = await withJob();
    await own.admin.call('CONFIG', 'SET', 'min-replicas-to-write', '1');
    const [timed, stopped] = [['--for', '1m', '-n', '1'], ['--watch']].map((how) =>
      begin(['drain', ...how, 'q'], via(own.url)),
    );
    for (const running of [timed, stopped]) await until(() => running?.stderr.includes('still trying'));
    stopped?.child.kill('SIGTERM');
    expect(await stopped?.ended).toMatchObject({ code: 0 });
    await own.admin.call('CONFIG', 'SET', 'min-replicas-to-write', '0');
    expect(await timed?.ended).toMatchObject({ code: 0, stdout: '1\n' });
  });
});
