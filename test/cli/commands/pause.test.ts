import { describe, expect, it } from 'vitest';
import { Connection, Inspector, Operator, pausedUntil, Queue } from '../../../src/internal.js';
import { afterwards, during } from '../../support/afterwards.js';
import { begin, beginSh, delayq, linesOf } from '../../support/cli.js';
import { admin, connection, freshName, freshQueue, key, listeners, timePasses } from '../../support/redis.js';
import { Server } from '../../support/server.js';
import { until } from '../../support/until.js';

const inspector = new Inspector(connection);
const operator = new Operator(connection);

/** A queue with a job that is due, on a Redis of its own, where `looks` counts what the one command that runs has asked. */
async function alone() {
  const server = await during(Server.start());
  const redis = new Connection(server.url);
  afterwards(() => redis.close());
  const queue = new Queue(redis, 'q');
  await queue.enqueue({ payload: 1 });
  const looks = async () =>
    Number(/cmdstat_evalsha:calls=(\d+)/.exec(await server.admin.info('commandstats'))?.[1] ?? 0);
  const before = await looks();
  return { server, queue, env: { DELAYQ_REDIS_URL: server.url }, looks: async () => (await looks()) - before };
}

describe('delayq pause', () => {
  it('has drains take nothing, nothing back, and let nothing die; enqueue, ack, nack and renew go on', async () => {
    const queue = freshQueue();
    await queue.enqueue([1, 2, 3].map((n) => ({ payload: n, maxLost: 1 })));
    const { jobs } = await queue.drain({ leaseMs: 1_000 });
    expect(await delayq(['pause', queue.name])).toEqual({
      code: 0,
      signal: null,
      stdout: '',
      stderr: `delayq: ${queue.name} is paused until delayq resume ${queue.name}\n`,
    });
    await queue.enqueue({ payload: 4, ttl: 1 });
    await timePasses(queue.name, 60_000);
    // As cron would run it: nothing to mail, and no success to take for a drain.
    expect(await delayq(['drain', queue.name])).toEqual({ code: 0, signal: null, stdout: '', stderr: '' });
    expect(await delayq(['drain', '--fail-if-empty', queue.name])).toMatchObject({ code: 3, stdout: '' });
    expect(await queue.counts()).toMatchObject({ pending: 1, active: 3, runOut: 3, dead: 0 });
    expect(await queue.renew(jobs)).toEqual(['held', 'held', 'held']);
    expect(await queue.ack(jobs.slice(0, 1))).toEqual(['held']);
    expect(await queue.nack(jobs.slice(1, 2), { mode: 'release' })).toMatchObject([{ answer: 'pending' }]);
    expect(await delayq(['resume', queue.name])).toMatchObject({
      code: 0,
      stderr: `delayq: ${queue.name} is resumed\n`,
    });
    expect(await delayq(['drain', queue.name])).toMatchObject({
      stdout: '2\n',
      stderr: expect.stringContaining('expired'),
    });
  });

  it('for a time ends by itself', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const { stderr } = await delayq(['pause', '--for', '10m', '--tz', 'UTC', queue.name]);
    expect(stderr).toMatch(/ is paused until 20\d\d-.* \+00:00, for 10m\n$/);
    const end = pausedUntil(await inspector.inspect(queue.name)) as number;
    expect(Math.abs(end - (await connection.now()) - 600_000)).toBeLessThan(60_000);
    expect((await delayq(['drain', queue.name])).stdout).toBe('');
    await timePasses(queue.name, 600_000);
    expect(pausedUntil(await inspector.inspect(queue.name))).toBeUndefined();
    expect((await delayq(['drain', queue.name])).stdout).toBe('1\n');
  });

  it('lets a drain that waits go on when its time is over', async () => {
    const queue = freshQueue();
    await operator.pause(queue.name, { forMs: 300 });
    await queue.enqueue({ payload: 1 });
    const running = begin(['drain', '--watch', queue.name]);
    await until(() => running.stdout === '1\n');
    running.child.kill();
    expect((await running.ended).code).toBe(0);
  });

  it('of several queues pauses all or, if one is unknown, none', async () => {
    const [one, two] = [freshQueue(), freshQueue()];
    for (const queue of [one, two]) await queue.enqueue({ payload: 1 });
    const { code, stderr } = await delayq(['pause', one.name, freshName()]);
    expect({ code, stderr }).toEqual({ code: 3, stderr: expect.stringContaining('there is no queue') });
    expect(await admin.exists(key(one.name, 'config'))).toBe(0);
    const { stdout } = await delayq(['pause', '--json', one.name, two.name]);
    const paused = { paused: true, until: 'inf', was: null };
    expect(JSON.parse(stdout)).toEqual({
      schema: 1,
      queues: [
        { queue: one.name, ...paused },
        { queue: two.name, ...paused },
      ],
    });
    expect(JSON.parse((await delayq(['resume', '--json', one.name])).stdout).queues).toEqual([
      { queue: one.name, paused: false, until: null, was: 'inf' },
    ]);
    expect(await delayq(['resume', one.name])).toMatchObject({
      code: 0,
      stderr: `delayq: ${one.name} was not paused\n`,
    });
    expect(pausedUntil(await inspector.inspect(two.name))).toBe(Number.POSITIVE_INFINITY);
  });

  it('with --create pauses a queue before its first job', async () => {
    const queue = freshQueue();
    const refused = await delayq(['pause', queue.name]);
    expect(refused).toMatchObject({ code: 3, stderr: expect.stringContaining('to make it, add --create') });
    const { code, stderr } = await delayq(['resume', queue.name]);
    expect({ code, advice: stderr.includes('--create') }).toEqual({ code: 3, advice: false });
    expect(await delayq(['pause', '--create', queue.name])).toMatchObject({ code: 0 });
    await queue.enqueue({ payload: 1 });
    expect(await delayq(['drain', queue.name])).toMatchObject({ code: 0, stdout: '' });
    expect(await delayq(['resume', queue.name])).toMatchObject({ code: 0 });
    expect(await delayq(['drain', queue.name])).toMatchObject({ code: 0, stdout: '1\n' });
  });

  it('again sets a new end, and leaves the other settings alone', async () => {
    const queue = freshQueue();
    await operator.configure(queue.name, { tries: 3 });
    expect(await operator.pause(queue.name)).toEqual({ was: undefined, until: Number.POSITIVE_INFINITY });
    const { was, until: end } = await operator.pause(queue.name, { forMs: 60_000 });
    expect({ was, end }).toEqual({ was: Number.POSITIVE_INFINITY, end: expect.any(Number) });
    expect(await operator.resume(queue.name)).toEqual({ was: end, until: undefined });
    expect(await admin.hgetall(key(queue.name, 'config'))).toEqual({ layout: '1 0/1 uses settings', tries: '3' });
    await expect(operator.pause(queue.name, { forMs: 0 })).rejects.toMatchObject({ code: 'usage' });
  });

  it('is told by a drain on a terminal, once, and resumed at once', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    await operator.pause(queue.name);
    const line = `script -qec 'delayq drain --watch -n 1 ${queue.name} -- echo done' /dev/null`;
    const running = beginSh(line, { env: { TERM: 'xterm' } });
    await until(() => running.stdout.includes(`${queue.name} is paused: no jobs are taken`));
    await until(async () => (await listeners(queue.wakeChannel)) === 1);
    const messages: string[] = [];
    const listener = connection.listen([queue.wakeChannel], (_, message) => messages.push(message));
    await until(async () => (await listeners(queue.wakeChannel)) === 2);
    await operator.resume(queue.name);
    await until(() => messages.length === 1);
    listener.close();
    const { stdout } = await running.ended;
    expect(stdout).toContain('done');
    expect(stdout.match(/is paused/g)).toHaveLength(1);
  });

  it.each([[['pause']], [['pause', '--for', '0s', 'q']], [['pause', '--for', '10', 'q']], [['resume']]])(
    '%j is refused',
    async (args) => expect(await delayq(args)).toMatchObject({ code: 64, stdout: '' }),
  );
});

describe('delayq wait', () => {
  it('ends at once when nothing is active and nothing due', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, in: '1h' });
    expect(await delayq(['wait', queue.name])).toEqual({ code: 0, signal: null, stdout: '', stderr: '' });
  });

  it('waits for what is due, and for what is active', async () => {
    const { queue, env, looks } = await alone();
    const running = begin(['wait', '--json', 'q'], { env });
    await until(async () => (await looks()) > 2);
    const { jobs } = await queue.drain();
    const asked = await looks();
    await until(async () => (await looks()) > asked + 1);
    expect(running.child.exitCode).toBeNull();
    await queue.ack(jobs);
    const { code, stdout } = await running.ended;
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toEqual({
      schema: 1,
      idle: true,
      waitedMs: expect.any(Number),
      queues: [{ queue: 'q', active: 0, due: 0, leasesRunOut: 0, paused: false, idle: true, growth: null }],
    });
  });

  it('of a paused queue waits for what is active alone, not for leases that ran out', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    await queue.drain({ limit: 1 });
    await operator.pause(queue.name);
    expect(await delayq(['wait', '--timeout', '0s', queue.name])).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(new RegExp(`not idle: ${queue.name} \\(1 active, paused\\)\n$`)),
    });
    await timePasses(queue.name, 120_000);
    expect(await delayq(['wait', '--timeout', '0s', queue.name])).toMatchObject({ code: 0 });
    await operator.resume(queue.name);
    expect(await delayq(['wait', '--timeout', '0s', queue.name])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('(1 active, 1 of them with an expired lease, 1 due)'),
    });
  });

  it('at the timeout says what is left, of all queues, exit 1', async () => {
    const [one, two] = [freshQueue(), freshQueue()];
    await one.enqueue({ payload: 1 });
    await two.enqueue({ payload: 1, in: '1h' });
    const { code, stdout } = await delayq(['wait', '--timeout', '600ms', '--json', one.name, two.name]);
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      idle: false,
      queues: [
        { due: 1, idle: false },
        { due: 0, idle: true },
      ],
    });
    expect(JSON.parse(stdout).waitedMs).toBeGreaterThanOrEqual(600);
  });

  it('is interrupted by SIGINT, exit 130', async () => {
    const { env, looks } = await alone();
    const running = begin(['wait', 'q'], { env });
    await until(async () => (await looks()) > 2);
    running.child.kill('SIGINT');
    expect(await running.ended).toMatchObject({ code: 130, stdout: '', stderr: expect.stringContaining('1 due') });
  });

  it('says on a terminal what it waits for', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const line = `script -qec 'echo pid=$$; exec delayq wait ${queue.name}' /dev/null`;
    const running = beginSh(line, { env: { TERM: 'xterm' } });
    await until(() => running.stdout.includes(`waiting for ${queue.name} (0 active, 1 due)`));
    await queue.drain({ limit: 1 });
    await until(() => running.stdout.includes(`waiting for ${queue.name} (1 active, 0 due)`));
    process.kill(Number(/pid=(\d+)/.exec(running.stdout)?.[1]), 'SIGINT');
    const { code, stdout } = await running.ended;
    expect(code).toBe(130);
    expect(linesOf(stdout).at(-1)).toMatch(/delayq: after .* not idle: /);
  });

  it('waits out a Redis that is away for a while, and says so', async () => {
    const { server, env, looks } = await alone();
    const running = begin(['wait', 'q'], { env });
    await until(async () => (await looks()) > 2);
    await server.end('SIGKILL');
    await until(() => running.stderr.includes('still trying'));
    // Empty, and so idle.
    await server.run();
    expect(await running.ended).toMatchObject({ code: 0, stderr: expect.stringContaining('Redis is back') });
  });

  it('of an unknown queue exits 3', async () => {
    expect(await delayq(['wait', freshName()])).toMatchObject({ code: 3 });
  });
});
