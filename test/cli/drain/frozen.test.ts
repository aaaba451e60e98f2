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

describe('a drain that is stopped while Redis is frozen ends when grace is over (failures 15)', () => {
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

it('each call to a Redis that does not answer says so', async () => {
  const own = await during(Server.start());
  const redis = new Connection(own.url);
  afterwards(() => redis.close());
  own.signal('SIGSTOP');
  for (let i = 0; i < 2; i++) {
    await expect(redis.now()).rejects.toMatchObject({ code: 'unreachable', why: expect.stringContaining('no answer') });
  }
  own.signal('SIGCONT');
  expect(await redis.now()).toBeGreaterThan(0);
}, 30_000);
