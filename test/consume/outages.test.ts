import { describe, expect, it } from 'vitest';
import { Connection, type Job, Leases, Queue, type TaskResult, Worker } from '../../src/internal.js';
import { afterwards, during } from '../support/afterwards.js';
import { begin, delayq, linesOf, sh } from '../support/cli.js';
import { ManualClock } from '../support/manual-clock.js';
import { FaultyProxy } from '../support/proxy.js';
import { admin, freshQueue, key, redisTargets } from '../support/redis.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

/** Puts something else at a key that the queue does not use yet. */
const breaks = (queue: Queue) => admin.set(key(queue.name, 'config'), 'x');
const mends = (queue: Queue) => admin.del(key(queue.name, 'config'));
const LEASE_MS = 90_000;
const two = () => [freshQueue(), freshQueue()] as const;
const leaseEnd = async ({ name }: Queue) =>
  Number((await admin.zrange(key(name, 'active'), '0', '0', 'WITHSCORES'))[1]);
const stop = (running: ReturnType<typeof begin>) => {
  running.child.kill('SIGTERM');
  return running.ended;
};

describe.concurrent('a queue whose keys are broken (failures 37)', () => {
  it("does not stop the renewal of other queues' leases", async () => {
    const [broken, well] = two();
    for (const queue of [broken, well]) await queue.enqueue({ payload: 1, id: 'a' });
    const names = `${broken.name},${well.name}`;
    const handler = ['--', 'sh', '-c', 'while read line; do while [ -e /proc/$PPID ]; do sleep 0.05; done; done'];
    const running = begin(['drain', '--watch', '-P', '2', '--lease', '900ms', '--grace', '0s', names, ...handler]);
    await until(async () => (await leaseEnd(broken)) > 0 && (await leaseEnd(well)) > 0);
    await breaks(broken);
    const before = await leaseEnd(well);
    await until(async () => (await leaseEnd(well)) > before + 900);
    expect(await well.counts()).toMatchObject({ active: 1, stats: { delivered: 1 } });
    expect(await stop(running)).toMatchObject({
      code: 78,
      stderr: expect.stringContaining(key(broken.name, 'config')),
    });
    expect(await well.counts()).toMatchObject({ pending: 1, active: 0, meta: 0 });
  });

  it.each([
    ['to stdout', []],
    ['with handlers', ['--', 'cat']],
    ['with --pipe', ['--pipe', 'cat']],
  ])('does not keep a drain %s from delivering what others hold; then it exits 78', async (_, form) => {
    const [broken, well] = two();
    await breaks(broken);
    await well.enqueue([1, 2, 3].map((n) => ({ payload: n, at: n })));
    const [command, ...rest] = form;
    const names = `${broken.name},${well.name}`;
    const args = command === '--pipe' ? ['drain', ...form, names] : ['drain', names, ...(command ? form : rest)];
    const { code, stdout, stderr } = await delayq(args);
    expect({ code, stdout }).toEqual({ code: 78, stdout: '1\n2\n3\n' });
    // At once in a line, and at the end as the error.
    expect(linesOf(stderr)[0]).toMatch(new RegExp(`^delayq: going on without ${broken.name}: WRONGTYPE `));
    expect(stderr.match(/refused the call$/gm)).toHaveLength(1);
    if (form.length > 0) expect(stderr).toMatch(/^delayq: 3 done in \S+$/m);
  });

  it.each([
    ['first', true],
    ['second', false],
  ])(
    'is looked at again by a drain that watches, and neither starves nor ends the others: the %s',
    async (_, first) => {
      const [broken, well] = two();
      await broken.enqueue({ payload: 'mended' });
      await breaks(broken);
      const names = (first ? [broken, well] : [well, broken]).map(({ name }) => name).join(',');
      const running = begin(['drain', '--watch', names, '--', 'cat']);
      await until(() => running.stderr.includes(`going on without ${broken.name}`));
      await well.enqueue({ payload: 1 });
      await until(() => running.stdout.includes('1\n'));
      await well.enqueue({ payload: 2 });
      await until(() => running.stdout.includes('2\n'));
      expect(running.stderr.match(/WRONGTYPE/g)).toHaveLength(1);
      await mends(broken);
      await until(() => running.stdout.includes('mended'));
      expect(running.stderr).toContain(`${broken.name} is back after`);
      expect(await stop(running)).toMatchObject({ code: 0 });
    },
  );

  it('ends a drain that watches if no other queue is left', async () => {
    const [one, other] = two();
    await breaks(one);
    expect(await delayq(['drain', '--watch', one.name, '--', 'true'])).toMatchObject({ code: 78 });
    const running = begin(['drain', '--watch', `${one.name},${other.name}`, '--', 'true']);
    await until(() => running.stderr.includes('going on without'));
    await breaks(other);
    expect(await running.ended).toMatchObject({ code: 78 });
  });

  it('does not keep a worker from settling the jobs of other queues', async () => {
    const [broken, well] = two();
    for (const queue of [broken, well]) await queue.enqueue({ payload: 1, id: 'a' });
    const results: TaskResult[] = [];
    let open = () => {};
    const opened = new Promise<void>((resolve) => {
      open = resolve;
    });
    let started = 0;
    const handler = async () => {
      started += 1;
      await opened;
    };
    const troubles: string[] = [];
    const worker = new Worker([broken, well], handler, {
      concurrency: 2,
      leaseMs: 2_000,
      onResult: (result) => results.push(result),
      onTrouble: (error, where) => troubles.push(`${error?.code} ${(where as Queue).name}`),
    });
    const running = worker.run();
    await until(() => started === 2);
    await breaks(broken);
    open();
    await until(() => results.some(({ queue, outcome }) => queue === well && outcome === 'acked'));
    await until(() => troubles.length > 0);
    await well.enqueue({ payload: 2 });
    await until(() => results.filter(({ outcome }) => outcome === 'acked').length === 2);
    await mends(broken);
    // Nobody could be told that it was done: it comes again when its lease has ended.
    await until(() => results.filter(({ outcome }) => outcome === 'acked').length === 3);
    worker.stop();
    await running;
    expect(troubles).toEqual([`config ${broken.name}`, `undefined ${broken.name}`]);
    expect(await broken.counts()).toMatchObject({ payload: 0, stats: { lost: 1, acked: 1 } });
  });

  it('ends a worker if its jobs can be taken but not settled: they would be handled again and again', async () => {
    const own = await during(Server.start());
    await own.admin.call('ACL', 'SETUSER', 'taker', 'on', '>x', '~*', '&*', '+@all', '-zrem');
    const redis = new Connection(`${own.url.replace('unix://', 'unix://taker:x@')}`);
    afterwards(() => redis.close());
    const [one, other] = [new Queue(redis, 'one'), new Queue(redis, 'other')];
    await one.enqueue({ payload: 1 });
    const worker = new Worker([one, other], () => {}, {
      onTrouble: (error) => void (error && one.enqueue({ payload: 2 })),
    });
    await expect(worker.run()).rejects.toMatchObject({ code: 'refused' });
    expect((await one.counts()).payload).toBe(2);
  });

  it('does not delay jobs of other queues whose leases must be renewed first', async () => {
    const [broken, well] = two();
    const clock = new ManualClock();
    const leases = new Leases({ clock });
    const held: Job[] = [];
    for (const queue of [broken, well]) {
      await queue.enqueue({ payload: 1 });
      const { jobs } = await queue.drain({ leaseMs: LEASE_MS });
      leases.hold({ queue, jobs, leaseMs: LEASE_MS, since: clock.now() - LEASE_MS / 2 });
      held.push(...jobs);
    }
    await breaks(broken);
    const [, job] = held;
    expect(await leases.fresh([job as Job])).toEqual([job]);
    leases.close();
  });

  it.each([
    ['in the middle', 2],
    ['first', 1],
  ])('does not keep "delayq ack" from acking the jobs of others: %s', async (_, at) => {
    const [broken, well] = two();
    const lines: string[] = [];
    for (const queue of at === 1 ? [broken, well, well] : [well, broken, well]) {
      await queue.enqueue({ payload: 1 });
      const [job] = (await queue.drain()).jobs;
      lines.push(JSON.stringify({ queue: queue.name, id: job?.id, receipt: job?.receipt }));
    }
    await breaks(broken);
    const input = `(echo '${lines[0]}'; sleep 0.3; echo '${lines[1]}'; sleep 0.3; echo '${lines[2]}') | delayq ack`;
    const { code, stderr } = await sh(input);
    expect({ code, said: linesOf(stderr)[0] }).toEqual({
      code: 78,
      said: `delayq: line ${at}: not settled in ${broken.name}`,
    });
    expect(await well.counts()).toMatchObject({ active: 0, stats: { acked: 2 } });
  });
});

it('a queue whose Redis does not answer delays no renewal of other queues (failures 37)', async () => {
  const proxy = await during(FaultyProxy.start(...redisTargets));
  const far = new Connection(proxy.url);
  afterwards(() => far.close());
  const well = freshQueue();
  const silent = new Queue(far, freshQueue().name);
  const clock = new ManualClock();
  const leases = new Leases({ clock });
  afterwards(() => leases.close());
  const renewals = new Map<Queue, Promise<unknown>[]>();
  for (const queue of [silent, well]) {
    await queue.enqueue({ payload: 1 });
    const { jobs } = await queue.drain({ leaseMs: LEASE_MS });
    leases.hold({ queue, jobs, leaseMs: LEASE_MS, since: clock.now() });
    const calls: Promise<unknown>[] = [];
    renewals.set(queue, calls);
    const renew = queue.renew.bind(queue);
    queue.renew = (...args) => {
      const call = renew(...args);
      calls.push(call.catch(() => {}));
      return call;
    };
  }
  proxy.fault = { word: 'EVAL', kind: 'silent', times: 1_000 };
  for (const n of [1, 2, 3, 4]) {
    clock.pass(LEASE_MS / 3);
    expect(renewals.get(well)).toHaveLength(n);
    expect(await renewals.get(well)?.[n - 1]).toEqual(['held']);
    await new Promise(setImmediate);
  }
  // The call that has no answer is not repeated before it has failed.
  expect(renewals.get(silent)?.length).toBeLessThan(4);
});
