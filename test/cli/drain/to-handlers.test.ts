import { existsSync, writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { Queue } from '../../../src/index.js';
import { begin, delayq, linesOf } from '../../support/cli.js';
import { alive, path, read, script, shell, upTo } from '../../support/handlers.js';
import { admin, connection, freshName, freshQueue, key, timePasses } from '../../support/redis.js';
import { until } from '../../support/until.js';

describe.concurrent('leases of handlers', () => {
  it.each([
    ['one at a time', (handler: string) => ['--', handler]],
    ['batch by batch', (handler: string) => ['--batch', '10', '--pipe', handler]],
  ])(
    'jobs that wait while handlers take longer than leases, %s: each is handled once (failures 11)',
    async (_, form) => {
      const queue = freshQueue();
      await queue.enqueue(upTo(30).map((n) => ({ payload: n, at: 1_000 + n })));
      const go = path();
      const handler = script(`cat; while [ ! -e ${go} ]; do sleep 0.05; done`);
      const running = begin(['drain', '--lease', '6s', queue.name, ...form(handler)]);
      const ends = async () => {
        const scores = (await admin.zrange(key(queue.name, 'active'), '0', '-1', 'WITHSCORES')).filter((_, i) => i % 2);
        return scores.map(Number);
      };
      // The handler's own; those that wait for it as well, unless they were given back before anybody looked.
      const own = form(handler).length === 2 ? 1 : 10;
      await until(async () => (await ends()).length >= own);
      const first = Math.max(...(await ends()));
      // A lease is renewed when a third of it is over. All have been, twice; or their jobs were given back.
      await until(async () => (await ends()).every((end) => end > first + 2_500));
      writeFileSync(go, '');
      const { code, stdout, stderr } = await running.ended;
      expect(code).toBe(0);
      expect(linesOf(stdout).map(Number)).toEqual(upTo(30));
      expect(stderr).toMatch(/^delayq: 30 done in \S+\n$/);
      const { stats, dead, payload } = await queue.counts();
      expect({ dead, payload, acked: stats.acked, lost: stats.lost }).toEqual({
        dead: 0,
        payload: 0,
        acked: 30,
        lost: undefined,
      });
    },
  );

  it('a drain killed while a handler runs: the job is delivered again after the lease, as attempt 2 (failures 7)', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const log = path();
    const running = begin(['drain', queue.name, ...shell(`echo $DELAYQ_ATTEMPT $$ >> ${log}; exec sleep 600`)]);
    await until(() => read(log).includes('\n'));
    running.child.kill('SIGKILL');
    await running.ended;
    expect(await delayq(['drain', '--fail-if-empty', queue.name, '--', 'true'])).toMatchObject({ code: 3 });
    await timePasses(queue.name, 60_001);
    const ended = await delayq(['drain', queue.name, ...shell('echo $DELAYQ_ATTEMPT')]);
    process.kill(Number(read(log).split(' ')[1]), 'SIGKILL');
    expect(ended).toMatchObject({ code: 0, stdout: '2\n' });
    expect(await queue.counts()).toMatchObject({ payload: 0, stats: { acked: 1, lost: 1 } });
  });

  it('a drain killed between handler and ack: the job is delivered again, as attempt 2 (failures 7)', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const done = path();
    const handler = script(`kill -STOP $PPID; touch ${done}`);
    const running = begin(['drain', queue.name, '--', handler]);
    await until(() => existsSync(done));
    running.child.kill('SIGKILL');
    await running.ended;
    expect((await queue.counts()).active).toBe(1);
    await timePasses(queue.name, 60_001);
    expect(await delayq(['drain', '-q', queue.name, ...shell('echo $DELAYQ_ATTEMPT')])).toMatchObject({
      stdout: '2\n',
    });
  });

  it('a drain frozen past its lease: its late ack is refused, and the job is not delivered a third time (failures 12)', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1, id: 'a' }]);
    const log = path();
    const handler = script(`echo $DELAYQ_ATTEMPT >> ${log}; kill -STOP $PPID`);
    const frozen = begin(['drain', '-v', queue.name, '--', handler]);
    await until(() => read(log) === '1\n');
    await timePasses(queue.name, 60_001);
    expect(await delayq(['drain', '-q', queue.name, ...shell(`echo $DELAYQ_ATTEMPT >> ${log}`)])).toMatchObject({
      code: 0,
    });
    frozen.child.kill('SIGCONT');
    const { code, stderr } = await frozen.ended;
    expect(code).toBe(1);
    expect(stderr).toMatch(/lease lost: /);
    expect(read(log)).toBe('1\n2\n');
    expect(await queue.counts()).toMatchObject({ payload: 0, active: 0, pending: 0, stats: { acked: 1, lost: 1 } });
  });

  it('a handler whose lease was lost is killed', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const log = path();
    const running = begin(['drain', '-n', '1', '--lease', '1s', queue.name, ...shell(`echo $$ >> ${log}; sleep 600`)]);
    await until(() => read(log).includes('\n'));
    // It cannot renew the lease before another drain takes the job.
    running.child.kill('SIGSTOP');
    await until(async () => {
      await timePasses(queue.name, 5_000);
      return (await queue.drain()).jobs.length === 1;
    });
    running.child.kill('SIGCONT');
    const { code, stderr } = await running.ended;
    expect({ code, alive: alive(Number(read(log))) }).toEqual({ code: 1, alive: false });
    expect(stderr).toContain('lease lost: ');
    expect(await queue.counts()).toMatchObject({ active: 1, payload: 1 });
  });

  it('five kills of a drain do not count as failures of jobs that no handler got (failures 14)', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(8).map((n) => ({ payload: n, id: `j${n}`, tries: 2, at: 1_000 + n })));
    for (let i = 0; i < 5; i++) {
      const log = path();
      const running = begin(['drain', '-P', '4', queue.name, ...shell(`echo $$ >> ${log}; exec sleep 600`)]);
      await until(() => linesOf(read(log)).length === 4);
      running.child.kill('SIGKILL');
      await running.ended;
      for (const pid of linesOf(read(log))) process.kill(Number(pid), 'SIGKILL');
      await timePasses(queue.name, 60_001);
    }
    const { stdout } = await delayq(['drain', '-q', queue.name, ...shell('cat')]);
    expect(linesOf(stdout).map(Number)).toEqual(upTo(8));
    const { stats, dead } = await queue.counts();
    expect({ dead, retried: stats.retried, acked: stats.acked }).toEqual({ dead: 0, retried: undefined, acked: 8 });
  });
});

describe.concurrent('a drain with handlers that is stopped (failures 15)', () => {
  const started = async (queue: Queue, handler: string, ...options: string[]) => {
    await queue.enqueue(upTo(10).map((n) => ({ payload: n, at: 1_000 + n })));
    const log = path();
    const running = begin([
      'drain',
      '--watch',
      '-P',
      '2',
      ...options,
      queue.name,
      ...shell(`echo $$ >> ${log}; ${handler}`),
    ]);
    await until(() => linesOf(read(log)).length === 2);
    return { running, pids: linesOf(read(log)).map(Number) };
  };

  it.each(['SIGTERM', 'SIGINT'] as const)(
    'by %s lets running handlers finish, gives the rest back, and exits 0',
    async (signal) => {
      const queue = freshQueue();
      const go = path();
      const { running } = await started(queue, `while [ ! -e ${go} ]; do sleep 0.01; done; echo done`);
      running.child.kill(signal);
      await until(async () => (await queue.counts()).active === 2);
      expect(await queue.counts()).toMatchObject({ pending: 8, due: 8, meta: 0 });
      writeFileSync(go, '');
      expect(await running.ended).toMatchObject({ code: 0, stdout: 'done\ndone\n' });
      expect(await queue.counts()).toMatchObject({ pending: 8, active: 0, meta: 0, stats: { acked: 2 } });
    },
  );

  it('kills handlers at the end of grace, and gives back their jobs without counting a failure', async () => {
    const queue = freshQueue();
    const { running, pids } = await started(
      queue,
      "trap '' TERM; while :; do sleep 1; done",
      '--grace',
      '200ms',
      '--kill-after',
      '200ms',
    );
    running.child.kill('SIGTERM');
    expect((await running.ended).code).toBe(0);
    expect(pids.map(alive)).toEqual([false, false]);
    expect(await queue.counts()).toMatchObject({ pending: 10, active: 0, meta: 0 });
  });

  it('ends within grace even if nobody reads its stderr', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(5).map((n) => ({ payload: n })));
    const running = begin([
      'drain',
      '-P',
      '2',
      '--grace',
      '100ms',
      '--kill-after',
      '100ms',
      queue.name,
      ...shell('yes >&2'),
    ]);
    running.child.stderr?.pause();
    await until(async () => (await queue.counts()).active >= 2);
    running.child.kill('SIGTERM');
    await until(() => running.child.exitCode !== null);
    running.child.stderr?.resume();
    expect((await running.ended).code).toBe(0);
    expect(await queue.counts()).toMatchObject({ pending: 5, active: 0, meta: 0 });
  });

  it('exits 130 at once on a second signal, and leaves no handler behind', async () => {
    const queue = freshQueue();
    const { running, pids } = await started(queue, "trap '' TERM; while :; do sleep 1; done");
    running.child.kill('SIGTERM');
    await until(() => {
      running.child.kill('SIGTERM');
      return running.child.exitCode !== null;
    });
    expect((await running.ended).code).toBe(130);
    await until(() => pids.every((pid) => !alive(pid)));
    // Nobody settled them: they are delivered again after their leases.
    expect((await queue.counts()).active).toBe(2);
  });
});

describe.concurrent('drains with handlers', () => {
  it('ten at once handle each of 300 jobs once (failures 16)', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(300).map((n) => ({ payload: n })));
    const ended = await Promise.all(
      upTo(10).map(() => delayq(['drain', '-q', '--batch', '7', '--pipe', 'cat', queue.name])),
    );
    const seen = ended.flatMap(({ stdout }) => linesOf(stdout).map(Number));
    expect(seen.sort((a, b) => a - b)).toEqual(upTo(300));
  });

  it('start them at the rate given by --rate', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(6).map((n) => ({ payload: n })));
    const from = await connection.now();
    await delayq(['drain', '-q', '-P', '6', '--rate', '4/s', queue.name, '--', 'true']);
    // The first starts at once.
    expect((await connection.now()) - from).toBeGreaterThanOrEqual(1_250);
    expect((await queue.counts()).stats.acked).toBe(6);
  });

  it('high,low drains the first queue first, also with handlers', async () => {
    const [high, low] = [freshQueue(), freshQueue()];
    await low.enqueue([{ payload: 'low' }]);
    await high.enqueue([{ payload: 'high' }]);
    const { stdout } = await delayq(['drain', '-q', `${high.name},${low.name}`, '--', 'cat']);
    expect(stdout).toBe('"high"\n"low"\n');
  });

  it('a job whose id cannot be passed to a process is moved to dead, and the others go on (failures 26)', async () => {
    const name = freshName();
    await admin
      .multi()
      .zadd(key(name, 'pending'), 1, 'a\0b', 2, 'c')
      .hset(key(name, 'payload'), 'a\0b', '1', 'c', '2')
      .exec();
    const { code, stdout } = await delayq(['drain', '-q', name, '--', 'cat']);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '2\n' });
  });
});
