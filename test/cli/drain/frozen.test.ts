import { describe, expect, it } from 'vitest';
import { Connection, Queue, Worker } from '../../../src/index.js';
import { afterwards, during } from '../../support/afterwards.js';
import { begin, type Running } from '../../support/cli.js';
import { FaultyProxy } from '../../support/proxy.js';
import { freshName, key, redisTargets } from '../../support/redis.js';
import { Server } from '../../support/server.js';
import { until } from '../../support/until.js';

const via = (url: string) => ({ env: { DELAYQ_REDIS_URL: url } });

/** Shorter than two calls in a row that time out after 5 s each. */
const SOON_MS = 8_000;

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
    const started = performance.now();
    running.child.kill('SIGTERM');
    const ended = await running.ended;
    expect(ended.stderr).not.toContain('already connect');
    expect(performance.now() - started).toBeLessThan(SOON_MS);
    return ended;
  };
  const active = (n: number) => async (own: Server) => (await own.admin.zcard(key('q', 'active'))) === n;

  it.each([
    ['handlers that run', ['--kill-after', '1s', 'q', '--', 'sleep', '600'], 2],
    [
      'handlers that do not hear',
      ['--kill-after', '1s', 'q', '--', 'sh', '-c', "trap '' TERM; while :; do sleep 1; done"],
      2,
    ],
    ['a batch that runs', ['--pipe', 'sleep 600', 'q'], 3],
  ])('with %s: exit 75, and their jobs come again', async (_, form, held) => {
    const setup = await frozen(form, 3, active(held));
    const { code, stderr } = await stopped(setup);
    expect({ code, stderr }).toEqual({
      code: 75,
      stderr: expect.stringMatching(/delivered again when their leases expire/),
    });
    setup.own.signal('SIGCONT');
    expect(await setup.own.admin.hlen(key('q', 'payload'))).toBe(3);
  });

  it('with a handler that ends during grace', async () => {
    const setup = await frozen(['--grace', '3s', 'q', '--', 'sleep', '1'], 1, active(1));
    const { code, stderr } = await stopped(setup);
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
    const setup = await frozen(['-P', '2', 'q', '--', 'sleep', '600'], 3, active(3));
    await until(() => setup.running.stderr.includes('still trying'));
    const { code } = await stopped(setup);
    expect(code).toBe(75);
  });

  it('to stdout', async () => {
    const setup = await frozen(['q'], 3, active(3));
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
    const began = performance.now();
    worker.stop();
    await expect(running).rejects.toMatchObject({ code: expect.stringMatching(/temporary|unknown/) });
    expect(performance.now() - began).toBeLessThan(SOON_MS);
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
    const running = begin(['drain', '--for', '2s', 'q'], via(own.url));
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
    const [timed, stopped] = [['--for', '3s'], ['--watch']].map((how) => begin(['drain', ...how, 'q'], via(own.url)));
    for (const running of [timed, stopped]) await until(() => running?.stderr.includes('still trying'));
    stopped?.child.kill('SIGTERM');
    expect(await stopped?.ended).toMatchObject({ code: 0 });
    await own.admin.call('CONFIG', 'SET', 'min-replicas-to-write', '0');
    expect(await timed?.ended).toMatchObject({ code: 0, stdout: '1\n' });
  });
});
