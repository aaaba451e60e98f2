import { existsSync, readdirSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ExitPolicy } from '../../../src/cli/drain/exit-status.js';
import { GivenBack, Operator, type Queue } from '../../../src/internal.js';
import { begin, binary, cronEnv, delayq, linesOf, type Running, sh } from '../../support/cli.js';
import { alive, path, read, script, shell, show, upTo } from '../../support/handlers.js';
import { connection, freshName, freshQueue } from '../../support/redis.js';
import { temporaryDirectory } from '../../support/temporary.js';
import { until } from '../../support/until.js';

describe.concurrent('the exit status of a handler', () => {
  const statusOf = async (status: string, ...options: string[]) => {
    const queue = freshQueue();
    await queue.enqueue({ payload: { n: 1 }, id: 'a' });
    const ended = await delayq(['drain', ...options, queue.name, ...shell(`echo why >&2; ${status}`)]);
    return { ended, queue, job: await show(queue, 'a') };
  };

  it('0 removes the job', async () => {
    const { ended, job } = await statusOf('exit 0');
    expect({ code: ended.code, job }).toEqual({ code: 0, job: undefined });
  });

  it.each(['65', '100'])(
    '%s makes it dead at once, with its stderr as last error; requeue brings it back',
    async (status) => {
      const { ended, queue, job } = await statusOf(`exit ${status}`);
      expect(ended).toMatchObject({
        code: 1,
        stderr: expect.stringContaining(`: dead: refused by its handler: exit ${status}: why\n`),
      });
      expect(job).toMatchObject({ state: 'dead', reason: 'refused', error: `exit ${status}: why`, failures: 1 });
      expect(job?.died).toBeGreaterThan(0);
      expect(await delayq(['requeue', queue.name, 'a'])).toMatchObject({ code: 0 });
      expect(await delayq(['drain', '-q', queue.name, '--', 'cat'])).toMatchObject({ code: 0, stdout: '{"n":1}\n' });
      expect((await queue.counts()).payload).toBe(0);
    },
  );

  it('can be given another meaning with --dead-on', async () => {
    expect((await statusOf('exit 65', '--dead-on', '3,4')).job).toMatchObject({ state: 'pending', failures: 1 });
    expect((await statusOf('exit 4', '--dead-on', '3,4')).job).toMatchObject({ state: 'dead' });
    expect((await statusOf('exit 255', '--dead-on', '255')).job).toMatchObject({ state: 'dead' });
  });

  it.each([
    ['exit 1', 'exit 1: why'],
    ['kill -9 $$', 'killed by SIGKILL: why'],
    ['kill -TERM $$', 'killed by SIGTERM: why'],
  ])('of "%s" is a failure that is retried after the backoff', async (status, error) => {
    const { ended, job } = await statusOf(status, '--backoff', '1h');
    expect(ended.code).toBe(1);
    expect(job).toMatchObject({ state: 'pending', failures: 1, error });
    expect((job?.due ?? 0) - (job?.failed ?? 0)).toBe(3_600_000);
  });

  it('75 twice, then 0: three attempts in one run, spaced by the backoff', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const log = path();
    const handler = script(`date +%s%N >> ${log}; [ $(wc -l < ${log}) -ge 3 ] || exit 75`);
    const { code, stderr } = await delayq([
      'drain',
      '--watch',
      '-n',
      '3',
      '--backoff',
      '500ms,1s',
      queue.name,
      '--',
      handler,
    ]);
    expect(code).toBe(0);
    expect(stderr).toContain('1 done, 2 failed in ');
    const [first = 0, second = 0, third = 0] = linesOf(read(log)).map((line) => Number(line) / 1e6);
    expect(second - first).toBeGreaterThanOrEqual(495);
    expect(third - second).toBeGreaterThanOrEqual(995);
    expect(await queue.counts()).toMatchObject({ payload: 0, meta: 0, stats: { acked: 1, retried: 2 } });
  });

  it('255 is a failure as any other: PHP gives it after an exception, ssh after a lost connection', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(10).map((n) => ({ payload: n, at: 1_000 + n })));
    const ended = await delayq(['drain', queue.name, ...shell('read x; [ $x = 2 ] && exit 255; exit 0')]);
    expect(ended).toMatchObject({ code: 0, stderr: expect.stringContaining('9 done, 1 failed') });
    expect(await queue.counts()).toMatchObject({ pending: 1, active: 0, stats: { acked: 9, retried: 1 } });
  });

  it('of --max-failures failures in a row stops the run: the rest is given back, exit 1', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(30).map((n) => ({ payload: n })));
    const ended = await delayq(['drain', '--max-failures', '3', queue.name, '--', 'false']);
    expect(ended).toMatchObject({ code: 1, stderr: expect.stringContaining('3 failures in a row') });
    expect(await queue.counts()).toMatchObject({ pending: 30, active: 0, meta: 3, stats: { retried: 3 } });
  });

  it('of so many failures in a row makes a drain that watches try one job at a time, until one succeeds', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(30).map((n) => ({ payload: n })));
    const mended = path();
    const handler = script(`[ -e ${mended} ]`);
    const running = begin(['drain', '--watch', '-P', '4', '--max-failures', '3', queue.name, '--', handler]);
    const told = '3 failures in a row: one job at a time is tried until one succeeds\n  why:  exit 1\n';
    await until(() => running.stderr.includes(told));
    await until(async () => (await queue.counts()).active === 0);
    expect((await queue.counts()).stats.retried).toBeLessThanOrEqual(3 + 3);
    writeFileSync(mended, '');
    await until(() => running.stderr.includes('handlers work again after '));
    await until(async () => (await queue.counts()).due === 0);
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
  });

  it('of the last try makes the job dead, with its reason and error (failures 13)', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 'poison', id: 'poison', tries: 3, at: 1 },
      { payload: 'fine', id: 'fine', at: 2 },
    ]);
    const handler = shell(
      'read x; [ $x = \'"poison"\' ] || exit 0; echo "attempt $DELAYQ_ATTEMPT of $DELAYQ_TRIES" >&2; exit 1',
    );
    const { code } = await delayq(['drain', '--watch', '-n', '4', '--backoff', '100ms', queue.name, ...handler]);
    expect(code).toBe(1);
    expect(await show(queue, 'fine')).toBe(undefined);
    const job = await show(queue, 'poison');
    expect(job).toMatchObject({ state: 'dead', reason: 'failed', error: 'exit 1: attempt 3 of 3', due: 1, losses: 0 });
    expect(job?.payload?.toString()).toBe('"poison"');
    // No drain takes it any more.
    expect(await delayq(['drain', '--fail-if-empty', queue.name, '--', 'true'])).toMatchObject({ code: 3 });
  });
});

describe.concurrent('a run in which all handlers fail', () => {
  it.each([
    ['-- command', (name: string) => [name, '--', 'false']],
    ['-P', (name: string) => ['-P', '3', name, '--', 'false']],
    ['--pipe', (name: string) => ['--pipe', 'false', name]],
    ['several queues', (name: string) => [`${freshName()},${name}`, '--', 'false']],
    ['--for', (name: string) => ['--for', '500ms', name, '--', 'false']],
    ['--watch -n', (name: string) => ['--watch', '-n', '3', name, '--', 'false']],
  ])('exits 1, and 0 if one of them succeeds, or nothing was due: %s', async (_, args) => {
    const queue = freshQueue();
    await queue.enqueue(upTo(3).map((n) => ({ payload: n })));
    const once = (handler: string) =>
      delayq(['drain', ...args(queue.name).map((arg) => (arg === 'false' ? handler : arg))]);
    expect(await once('false')).toMatchObject({ code: 1, stderr: expect.stringMatching(/3 failed in.*\n {2}why: /) });
    if (args('').includes('-n')) return;
    expect((await once('false')).code).toBe(0);
    await queue.enqueue({ payload: 4 });
    expect(await once('true')).toMatchObject({ code: 0, stderr: expect.stringContaining('1 done') });
  });

  it.each([['is retried'], ['dies']])(
    'and which a signal then stops exits 0: its service has not failed (the job %s)',
    async (fate) => {
      const queue = freshQueue();
      await queue.enqueue({ payload: 1, tries: fate === 'dies' ? 1 : 5 });
      const running = begin(['drain', '--watch', queue.name, '--', 'false']);
      await until(async () => (await queue.counts()).stats[fate === 'dies' ? 'dead' : 'retried'] === 1);
      await until(async () => (await queue.counts()).active === 0);
      running.child.kill('SIGTERM');
      expect(await running.ended).toMatchObject({
        code: 0,
        stderr: expect.stringContaining(fate === 'dies' ? '1 dead in' : '1 failed in'),
      });
    },
  );
});

describe.concurrent('a handler that cannot be run', () => {
  /** An executable file. */
  const file = (text: string) => {
    const name = path();
    writeFileSync(name, text, { mode: 0o755 });
    return name;
  };

  it.each([
    ['missing', ['--', './missing'], 'the program does not exist'],
    ['not executable', ['--', '/etc/passwd'], 'no permission to execute it'],
    ['always 127', shell('exit 127'), 'a command is not found'],
    ['always 126', shell('exit 126'), 'a command is not found'],
    ['missing in the pipe', ['--pipe', 'missing-command'], 'a command is not found'],
  ])('(%s) is reported, exit 78, and no job is counted as failed or lost (failures 10)', async (_, handler, why) => {
    const queue = freshQueue();
    await queue.enqueue(upTo(5).map((n) => ({ payload: n, at: 1_000 + n })));
    const args = handler[0] === '--pipe' ? ['drain', ...handler, queue.name] : ['drain', queue.name, ...handler];
    expect(await delayq(args)).toMatchObject({ code: 78, stderr: expect.stringContaining(why) });
    expect(await queue.counts()).toMatchObject({ pending: 5, due: 5, active: 0, dead: 0, meta: 0, lease: 0 });
    expect((await queue.counts()).stats.retried).toBe(undefined);
  });

  it.each([
    ['missing', () => './missing', 'the program does not exist'],
    ['not in PATH', () => 'missing-program', 'it is not in PATH'],
    ['not executable', () => '/etc/passwd', /permission.*\n {2}next: make it executable: chmod \+x \/etc\/passwd/],
    ['a directory', () => '/', 'it is a directory'],
    ['without its interpreter', () => file('#!/no/interpreter -x\n'), 'its interpreter /no/interpreter does not exist'],
    ['written on Windows', () => file('#!/bin/sh\r\nexit 0\r\n'), /CRLF.*\n {2}next: .*sed -i 's\/\\r\$\/\/' \//],
    ['written on Windows, with env', () => file('#!/usr/bin/env sh\r\nexit 0\r\n'), /CRLF.*\n {2}next: .*sed -i/],
    ['a command line', () => 'cat | cat', "start a shell for it: -- sh -c 'cat | cat'"],
  ])('(%s) is told at the start, exit 78, before a job is taken', async (_, handler, why) => {
    const ended = await delayq(['drain', freshName(), '--', handler()]);
    expect(ended).toMatchObject({ code: 78, stdout: '', stderr: expect.stringMatching(why) });
    expect(ended.stderr).toMatch(/^delayq: cannot start /);
  });

  it('is none that execvp(3) finds, past what is there by its name but cannot be executed', async () => {
    const [first, second] = [temporaryDirectory(), temporaryDirectory()];
    writeFileSync(join(first, 'tool'), '');
    writeFileSync(join(second, 'tool'), 'echo found\n', { mode: 0o755 });
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const env = { PATH: `${first}:${second}:${cronEnv().PATH}` };
    expect(await delayq(['drain', queue.name, '--', 'tool'], { env })).toMatchObject({ code: 0, stdout: 'found\n' });
  });

  it('because TMPDIR cannot hold its pipes is reported, exit 78, and no job is counted as failed', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const ended = await binary(['drain', '-q', queue.name, '--', 'cat'], { env: { TMPDIR: '/nowhere' } });
    expect(ended).toMatchObject({ code: 78, stdout: '', stderr: expect.stringContaining('set TMPDIR') });
    expect(await queue.counts()).toMatchObject({ pending: 2, active: 0, meta: 0 });
    // Without due jobs no pipes are needed.
    expect((await binary(['drain', freshName(), '--', 'cat'], { env: { TMPDIR: '/nowhere' } })).code).toBe(0);
  });

  it('because mkfifo was killed is a temporary error: exit 75, and no job is counted as failed', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const bin = temporaryDirectory();
    writeFileSync(join(bin, 'mkfifo'), '#!/bin/sh\nkill -KILL $$\n', { mode: 0o755 });
    const env = { PATH: `${bin}:${cronEnv().PATH}` };
    expect(await binary(['drain', '-q', queue.name, '--', 'cat'], { env })).toMatchObject({
      code: 75,
      stderr: expect.stringContaining('mkfifo was killed by SIGKILL'),
    });
    expect(await queue.counts()).toMatchObject({ pending: 2, active: 0, meta: 0 });
    expect(await delayq(['drain', '-q', queue.name, '--', 'cat'])).toMatchObject({ code: 0, stdout: '1\n2\n' });
  });

  it.runIf(process.getuid?.() === 0)('because TMPDIR is full is a temporary error, too', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const TMPDIR = temporaryDirectory();
    // Room for the directory of the pipes, but not for them.
    const line = `mount -t tmpfs -o nr_inodes=2 none ${TMPDIR} && exec delayq drain -q ${queue.name} -- cat`;
    const ended = await sh(`exec unshare -m sh -c '${line}'`, { env: { TMPDIR } });
    expect(ended).toMatchObject({ code: 75, stderr: expect.stringContaining(`free space in ${TMPDIR}`) });
    expect(await queue.counts()).toMatchObject({ pending: 2, active: 0, meta: 0 });
  });

  it('leaves no files in TMPDIR, however its drain ends', async () => {
    const TMPDIR = temporaryDirectory();
    const queue = freshQueue();
    await queue.enqueue(upTo(3).map((n) => ({ payload: n })));
    await binary(['drain', '-q', '-n', '1', queue.name, '--', 'cat'], { env: { TMPDIR } });
    const log = path();
    const running = begin(['drain', '-q', queue.name, ...shell(`echo > ${log}; sleep 600`)], { env: { TMPDIR } });
    await until(() => read(log) !== '');
    running.child.kill('SIGTERM');
    await until(() => {
      running.child.kill('SIGTERM');
      return running.child.exitCode !== null;
    });
    await running.ended;
    expect(readdirSync(TMPDIR)).toEqual([]);
  });

  it('for one job only does not block the other jobs', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(5).map((n) => ({ payload: n, id: `j${n}`, at: 1_000 + n })));
    const handler = shell('read x; [ $x = 0 ] && { missing-command; exit; }; [ $x = 3 ] && exit 126; exit 0');
    // The first such job is put behind the others and not counted. Later, 126 is an ordinary failure.
    expect((await delayq(['drain', queue.name, ...handler])).stderr).toMatch(/4 done|3 done, 1 failed/);
    expect(await show(queue, 'j3')).toMatchObject({ state: 'pending', failures: 1 });
    expect(await show(queue, 'j0')).toMatchObject({ state: 'pending', failures: 0 });
    await queue.enqueue({ payload: 5, at: 1 });
    expect((await delayq(['drain', queue.name, ...handler])).code).toBe(0);
    expect(await show(queue, 'j0')).toMatchObject({
      state: 'pending',
      failures: 1,
      error: expect.stringMatching(/^exit 127: .*missing-command/),
    });
  });

  it('for one job only does not block the other jobs where one is taken at a time', async () => {
    const queue = freshQueue();
    await new Operator(connection).configure(queue.name, { maxActive: 1 });
    await queue.enqueue(upTo(3).map((n) => ({ payload: n, id: `j${n}`, at: 1_000 + n })));
    const ended = await delayq(['drain', '-n', '3', queue.name, ...shell('read x; [ $x = 0 ] && exit 127; exit 0')]);
    expect(ended).toMatchObject({ code: 0, stderr: expect.stringContaining('2 done, 1 given back') });
    expect(await show(queue, 'j0')).toMatchObject({ state: 'pending', failures: 0, releases: 0 });
  });

  it('because it was deleted during the run stops the run, and no job is counted as failed (failures 10)', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(6).map((n) => ({ payload: n, at: 1_000 + n })));
    const go = path();
    const handler = script(`read x; [ $x = 2 ] || exit 0; touch ${go}; while [ -e ${go} ]; do sleep 0.01; done`);
    const running = begin(['drain', queue.name, '--', handler]);
    await until(() => existsSync(go));
    unlinkSync(handler);
    unlinkSync(go);
    expect(await running.ended).toMatchObject({
      code: 78,
      stderr: expect.stringContaining('the program does not exist'),
    });
    expect(await queue.counts()).toMatchObject({ pending: 3, active: 0, meta: 0, stats: { acked: 3 } });
  });
});

describe.concurrent('a stop that reaches the handlers as well (failures 42)', () => {
  /** Starts `n` handlers that write their pids and wait. */
  const started = async (queue: Queue, handler: (log: string) => string[], n = 2) => {
    await queue.enqueue(upTo(n).map((n) => ({ payload: n, id: `j${n}` })));
    const log = path();
    const running = begin(['drain', '--watch', '-P', String(n), '-v', queue.name, ...handler(log)]);
    await until(() => linesOf(read(log)).length === n);
    return { running, pids: linesOf(read(log)).map(Number) };
  };
  const waits = (log: string, trap = '') => shell(`${trap} echo $$ >> ${log}; while :; do sleep 0.05; done`);
  /** Ends handlers, and then their drain. It learns of both when it goes on, however busy the machine is. */
  const stopAll = async ({ child }: Running, pids: number[], signal: NodeJS.Signals) => {
    child.kill('SIGSTOP');
    for (const pid of pids) process.kill(pid, signal);
    await until(() => !pids.some((pid) => alive(Math.abs(pid))));
    child.kill(signal);
    child.kill('SIGCONT');
  };
  const untouched = { pending: 2, due: 2, active: 0, meta: 0 };

  it.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)('by %s counts nothing', async (signal) => {
    const queue = freshQueue();
    const { running, pids } = await started(queue, waits);
    await stopAll(running, pids, signal);
    expect(await running.ended).toMatchObject({ code: 0, stderr: expect.stringContaining('given back') });
    expect(await queue.counts()).toMatchObject(untouched);
  });

  it('does not count handlers that exit with 128 + signal, as shells do', async () => {
    const queue = freshQueue();
    const { running, pids } = await started(queue, (log) => waits(log, "trap 'exit 143' TERM;"), 20);
    await stopAll(running, pids, 'SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0, stderr: expect.not.stringContaining('Warning') });
    expect(await queue.counts()).toMatchObject({ ...untouched, pending: 20, due: 20 });
  });

  it('does not count the batch of --pipe', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(2).map((n) => ({ payload: n })));
    const log = path();
    const running = begin(['drain', '--pipe', `echo $$ >> ${log}; sleep 600`, queue.name]);
    await until(() => read(log).includes('\n'));
    await stopAll(running, [-Number(read(log))], 'SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
    expect(await queue.counts()).toMatchObject(untouched);
  });

  it('and reaches delayq after the exit of a handler counts nothing', async () => {
    const stop = new AbortController();
    const statuses = new Set<number>();
    const report = { noAnswer: () => {} };
    const policy = new ExitPolicy(
      'handler',
      { parallel: 1, deadOn: statuses, releaseOn: statuses },
      stop.signal,
      report,
    );
    const none = new AbortController().signal;
    const checked = policy.check({ status: 143, signal: 'SIGTERM', aborted: false, tail: '' }, none);
    stop.abort();
    await expect(checked).rejects.toBeInstanceOf(GivenBack);
  });

  it('that does not come: a handler that was ended by SIGTERM has failed', async () => {
    const queue = freshQueue();
    const { running, pids } = await started(queue, waits);
    for (const pid of pids) process.kill(pid, 'SIGTERM');
    await until(() => linesOf(running.stderr).filter((line) => line.includes('killed by SIGTERM')).length === 2);
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
    expect(await queue.counts()).toMatchObject({ pending: 2, due: 0, stats: { retried: 2 } });
  });

  it('does not hide other failures', async () => {
    const queue = freshQueue();
    const { running, pids } = await started(queue, (log) => waits(log, "trap 'exit 1' TERM;"));
    running.child.kill('SIGTERM');
    for (const pid of pids) process.kill(pid, 'SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
    expect(await queue.counts()).toMatchObject({ stats: { retried: 2 } });
  });
});
