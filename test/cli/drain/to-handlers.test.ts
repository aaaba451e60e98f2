import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Inspector, JsonText, type Queue } from '../../../src/index.js';
import { begin, beginSh, cronEnv, delayq, linesOf, sh } from '../../support/cli.js';
import { admin, connection, freshName, freshQueue, key, redisUrl, timePasses } from '../../support/redis.js';
import { temporaryDirectory } from '../../support/temporary.js';
import { until } from '../../support/until.js';

const inspector = new Inspector(connection);
const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);
const show = async (queue: Queue, id: string) => (await inspector.show(queue.name, [id]))[0];

const directory = temporaryDirectory();
let files = 0;
/** A path that no other test has. */
const path = () => join(directory, String(files++));
/** An executable script for /bin/sh. */
function script(text: string): string {
  const file = path();
  writeFileSync(file, `#!/bin/sh\n${text}\n`);
  chmodSync(file, 0o755);
  return file;
}
const read = (file: string) => (existsSync(file) ? readFileSync(file, 'utf8') : '');
const shell = (text: string) => ['--', 'sh', '-c', text];
const alive = (pid: number) => {
  try {
    process.kill(pid, 0);
    // A zombie has ended.
    return !/\) Z /.test(read(`/proc/${pid}/stat`));
  } catch {
    return false;
  }
};

describe('delayq drain -- command', () => {
  it('runs a process a job: payload on stdin, the rest in the environment', async () => {
    const queue = freshQueue();
    const odd = '{"big":12345678901234567890,"s":"it\'s \\"$(touch x)\\" % `id`"}';
    await queue.enqueue({ payload: JsonText.parse(odd), id: 'order:42', at: 1_000, tries: 7 });
    const { code, stdout, stderr } = await delayq(['drain', queue.name, ...shell('cat; env | grep ^DELAYQ_ | sort')]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringMatching(/^delayq: 1 done in \d+ms\n$/) });
    expect(linesOf(stdout)).toEqual([
      odd,
      'DELAYQ_ATTEMPT=1',
      'DELAYQ_DUE=1000',
      'DELAYQ_ID=order:42',
      `DELAYQ_QUEUE=${queue.name}`,
      expect.stringMatching(/^DELAYQ_RECEIPT=\w{12}$/),
      expect.stringMatching(/^DELAYQ_REDIS_URL=unix:/),
      'DELAYQ_TRIES=7',
    ]);
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, payload: 0, meta: 0, stats: { acked: 1 } });
  });

  it('says nothing when nothing was due, and with -q nothing at all', async () => {
    const queue = freshQueue();
    const silent = { code: 0, signal: null, stdout: '', stderr: '' };
    expect(await delayq(['drain', queue.name, '--', 'true'])).toEqual(silent);
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    expect(await delayq(['drain', '-q', queue.name, '--', 'true'])).toEqual(silent);
    expect((await queue.counts()).stats.acked).toBe(2);
  });

  it('says with -v what became of each job', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 0, id: 'a', at: 1 },
      { payload: 1, id: 'b', at: 2 },
      { payload: 65, id: 'c', at: 3 },
    ]);
    const { code, stderr } = await delayq(['drain', '-v', queue.name, ...shell('read x; echo "no $x" >&2; exit $x')]);
    expect(code).toBe(1);
    expect(linesOf(stderr).filter((line) => line.startsWith('delayq'))).toEqual([
      expect.stringMatching(new RegExp(`^delayq: ${queue.name} a: attempt 1, \\d+ms: done$`)),
      expect.stringMatching(
        new RegExp(`^delayq: ${queue.name} b: attempt 1, \\d+ms: failed, retry in 1\\ds: exit 1: no 1$`),
      ),
      expect.stringMatching(new RegExp(`^delayq: ${queue.name} c: attempt 1, \\d+ms: dead: exit 65: no 65$`)),
      expect.stringMatching(/^delayq: 1 done, 1 will be retried, 1 dead in \d+ms$/),
    ]);
  });

  it('passes a handler its arguments and options as they are, and {id} and {queue} where they are whole', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: '$(touch x)', id: '$(touch_x)' });
    const print = script('for arg; do echo "<$arg>"; done');
    const args = ['-v', '--watch', '--', '{id}', '{queue}', 'x{id}', 'a b', '$HOME', ''];
    const { stdout } = await delayq(['drain', queue.name, '--', print, ...args]);
    const seen = ['-v', '--watch', '--', '$(touch_x)', queue.name, 'x{id}', 'a b', '$HOME', ''];
    expect(linesOf(stdout)).toEqual(seen.map((arg) => `<${arg}>`));
  });

  it('lets no shell see a payload or an id as code, in whatever form (failures 32)', async () => {
    const touched = path();
    const code = `$(touch ${touched}) \`touch ${touched}\` '; touch ${touched}; ' "; touch ${touched}; " % \\ \n`;
    const forms = [
      (name: string) => [name, '--', 'cat'],
      (name: string) => [name, '--', 'sh', '-c', 'cat', '{id}'],
      (name: string) => ['--text', name, '--', 'cat'],
      (name: string) => ['--pipe', 'cat', name],
      (name: string) => ['--envelope', '--pipe', 'cat', name],
      (name: string) => ['--text', name],
    ];
    for (const form of forms) {
      const queue = freshQueue();
      await queue.enqueue({ payload: code, id: `$(touch\${IFS}${touched})` });
      const ended = await delayq(['drain', ...form(queue.name)]);
      expect(ended).toMatchObject({ code: 0, stdout: expect.stringContaining('touch') });
      expect(existsSync(touched)).toBe(false);
    }
  });

  it('keeps what opens Redis out of the environment of handlers (failures 33)', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const env = {
      DELAYQ_REDIS_URL: redisUrl,
      REDIS_URL: 'rediss://user:se%63ret@host:6379/1',
      REDISCLI_AUTH: 'secret',
      KEPT: 'yes',
    };
    const { stdout } = await delayq(['drain', queue.name, '--', 'env'], { env });
    expect(stdout).not.toMatch(/se.?cret|REDISCLI_AUTH/);
    expect(linesOf(stdout)).toEqual(
      expect.arrayContaining(['KEPT=yes', 'REDIS_URL=rediss://host:6379/1', `DELAYQ_REDIS_URL=${redisUrl}`]),
    );
  });

  it.each(['redis://:se/cret@host:x', 'redis://host?password=secret', 'sentinel://se%%cret', 'secret'])(
    'keeps REDIS_URL=%s, which it cannot read, to itself (failures 33)',
    async (REDIS_URL) => {
      const queue = freshQueue();
      await queue.enqueue({ payload: 1 });
      const env = { DELAYQ_REDIS_URL: redisUrl, REDIS_URL, DELAYQ_ID: 'secret', DELAYQ_RECEIPT: 'secret' };
      expect((await delayq(['drain', '-q', '--pipe', 'env', queue.name], { env })).stdout).not.toMatch(/cret/);
    },
  );

  it.each([
    [['drain', 'q', './x'], 'a handler stands after --'],
    [['drain', 'q', './x', '--', 'y'], 'a handler stands after --'],
    [['drain', '--', 'q', './x'], 'a handler stands after --'],
    [['drain', '--pipe', 'cat', 'q', '--', './x'], 'two handlers'],
    [['drain', '--at-most-once', 'q', '--', './x'], 'at least once'],
    [['drain', '--batch', '5', 'q', '--', './x'], '--batch is for --pipe'],
    [['drain', '--dead-on', '5', '--pipe', 'cat', 'q'], '--dead-on is for'],
    [['drain', '--dead-on', '0', 'q', '--', './x'], '"0" does not list'],
    [['drain', 'q', '--', ''], 'the handler is empty'],
    [['drain', 'q', '--'], 'the handler is empty'],
    [['drain', '--pipe', ' ', 'q'], 'the handler is empty'],
    [['drain', '-P', '2', 'q'], '-P is for handlers'],
    [['drain', '--timeout', '2s', 'q'], '--timeout is for handlers'],
    [['drain', '--backoff', '5', 'q', '--', 'x'], 'no unit'],
    [['drain', '--rate', '5', 'q', '--', 'x'], '"5" is not a rate'],
    [['drain', '-v', '-q', 'q', '--', 'x'], 'contradict'],
  ])('%j is refused', async (args, message) => {
    expect(await delayq(args as string[])).toMatchObject({
      code: 64,
      stdout: '',
      stderr: expect.stringContaining(message as string),
    });
  });
});

describe('the exit status of a handler', () => {
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
      expect(ended).toMatchObject({ code: 1, stderr: expect.stringContaining(`: dead: exit ${status}: why\n`) });
      expect(job).toMatchObject({ state: 'dead', reason: 'refused', error: `exit ${status}: why`, failures: 1 });
      expect(job?.died).toBeGreaterThan(0);
      expect(await delayq(['requeue', queue.name, 'a'])).toMatchObject({ code: 0 });
      expect(await delayq(['drain', '-q', queue.name, '--', 'cat'])).toMatchObject({ code: 0, stdout: '{"n":1}\n' });
      expect((await queue.counts()).payload).toBe(0);
    },
  );

  it('can be given another meaning', async () => {
    expect((await statusOf('exit 65', '--dead-on', '3,4')).job).toMatchObject({ state: 'pending', failures: 1 });
    expect((await statusOf('exit 4', '--dead-on', '3,4')).job).toMatchObject({ state: 'dead' });
  });

  it.each([
    ['exit 1', 'exit 1: why'],
    ['kill -9 $$', 'killed by SIGKILL: why'],
    ['kill -TERM $$', 'killed by SIGTERM: why'],
  ])('of "%s" is a failure, tried again by the backoff; that is no error of the run', async (status, error) => {
    const { ended, job } = await statusOf(status, '--backoff', '1h');
    expect(ended.code).toBe(0);
    expect(job).toMatchObject({ state: 'pending', failures: 1, error });
    expect((job?.due ?? 0) - (await connection.now())).toBeGreaterThan(3_590_000);
  });

  it('75 twice and then 0: three attempts in one run, by its backoff', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const log = path();
    const handler = script(`date +%s%N >> ${log}; [ $(wc -l < ${log}) -ge 3 ] || exit 75`);
    const { code, stderr } = await delayq(['drain', '--for', '6s', '--backoff', '1s,2s', queue.name, '--', handler]);
    expect(code).toBe(0);
    expect(stderr).toMatch(/1 done, 2 will be retried in 6/);
    const [first = 0, second = 0, third = 0] = linesOf(read(log)).map((line) => Number(line) / 1e6);
    expect(second - first).toBeGreaterThanOrEqual(995);
    expect(third - second).toBeGreaterThanOrEqual(1_995);
    expect(await queue.counts()).toMatchObject({ payload: 0, meta: 0, stats: { acked: 1, retried: 2 } });
  });

  it('255 stops the run, as it does with xargs', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(10).map((n) => ({ payload: n, at: 1_000 + n })));
    const ended = await delayq(['drain', queue.name, ...shell('read x; [ $x = 2 ] && exit 255; exit 0')]);
    expect(ended).toMatchObject({ code: 1, stderr: expect.stringContaining('exited with 255') });
    expect(await queue.counts()).toMatchObject({ pending: 8, active: 0, stats: { acked: 2, retried: 1 } });
  });

  it('of many failures in a row opens the circuit: stop, give back, exit 1', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(30).map((n) => ({ payload: n })));
    const ended = await delayq(['drain', '--max-failures', '3', queue.name, '--', 'false']);
    expect(ended).toMatchObject({ code: 1, stderr: expect.stringContaining('3 failures in a row') });
    expect(await queue.counts()).toMatchObject({ pending: 30, active: 0, meta: 3, stats: { retried: 3 } });
  });

  it('spends the tries, and then the job is dead with all there is to know (failures 13)', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 'poison', id: 'poison', tries: 3, at: 1 },
      { payload: 'fine', id: 'fine', at: 2 },
    ]);
    const handler = shell(
      'read x; [ $x = \'"poison"\' ] || exit 0; echo "attempt $DELAYQ_ATTEMPT of $DELAYQ_TRIES" >&2; exit 1',
    );
    const { code } = await delayq(['drain', '--for', '3s', '--backoff', '100ms', queue.name, ...handler]);
    expect(code).toBe(1);
    expect(await show(queue, 'fine')).toBe(undefined);
    const job = await show(queue, 'poison');
    expect(job).toMatchObject({ state: 'dead', reason: 'failed', error: 'exit 1: attempt 3 of 3', due: 1, losses: 0 });
    expect(job?.payload?.toString()).toBe('"poison"');
    // Nothing takes it any more.
    expect(await delayq(['drain', '--fail-if-empty', queue.name, '--', 'true'])).toMatchObject({ code: 3 });
  });
});

describe('a handler that cannot be run', () => {
  it.each([
    ['missing', ['--', './missing'], 'the program does not exist'],
    ['not executable', ['--', '/etc/passwd'], 'no permission to execute it'],
    ['always 127', shell('exit 127'), 'a command is not found'],
    ['always 126', shell('exit 126'), 'a command is not found'],
    ['missing in the pipe', ['--pipe', 'missing-command'], 'a command is not found'],
  ])('(%s) is said, exit 78, nothing is counted and everything stays (failures 10)', async (_, handler, why) => {
    const queue = freshQueue();
    await queue.enqueue(upTo(5).map((n) => ({ payload: n, at: 1_000 + n })));
    const args = handler[0] === '--pipe' ? ['drain', ...handler, queue.name] : ['drain', queue.name, ...handler];
    expect(await delayq(args)).toMatchObject({ code: 78, stderr: expect.stringContaining(why) });
    expect(await queue.counts()).toMatchObject({ pending: 5, due: 5, active: 0, dead: 0, meta: 0, lease: 0 });
    expect((await queue.counts()).stats.retried).toBe(undefined);
  });

  it('for want of a place for its pipes is said, exit 78, and nothing is counted', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const ended = await delayq(['drain', '-q', queue.name, '--', 'cat'], { env: { TMPDIR: '/nowhere' } });
    expect(ended).toMatchObject({ code: 78, stdout: '', stderr: expect.stringContaining('set TMPDIR') });
    expect(await queue.counts()).toMatchObject({ pending: 2, active: 0, meta: 0 });
    // Nothing due, nothing needed.
    expect((await delayq(['drain', freshName(), '--', 'cat'], { env: { TMPDIR: '/nowhere' } })).code).toBe(0);
  });

  it('for want of pipes, as what makes them was killed, passes: exit 75, and nothing is counted', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const bin = mkdtempSync(join(directory, 'bin-'));
    writeFileSync(join(bin, 'mkfifo'), '#!/bin/sh\nkill -KILL $$\n', { mode: 0o755 });
    const env = { PATH: `${bin}:${cronEnv().PATH}` };
    expect(await delayq(['drain', '-q', queue.name, '--', 'cat'], { env })).toMatchObject({
      code: 75,
      stderr: expect.stringContaining('mkfifo was killed by SIGKILL'),
    });
    expect(await queue.counts()).toMatchObject({ pending: 2, active: 0, meta: 0 });
    expect(await delayq(['drain', '-q', queue.name, '--', 'cat'])).toMatchObject({ code: 0, stdout: '1\n2\n' });
  });

  it('leaves nothing behind in TMPDIR, however its drain ends', async () => {
    const TMPDIR = mkdtempSync(join(directory, 'tmp-'));
    const queue = freshQueue();
    await queue.enqueue(upTo(3).map((n) => ({ payload: n })));
    await delayq(['drain', '-q', '-n', '1', queue.name, '--', 'cat'], { env: { TMPDIR } });
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

  it('for one job only, whose branch meets 127, does not block the others', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(5).map((n) => ({ payload: n, id: `j${n}`, at: 1_000 + n })));
    const handler = shell('read x; [ $x = 0 ] && { missing-command; exit; }; [ $x = 3 ] && exit 126; exit 0');
    // The first one is given the benefit of the doubt and goes behind; 126 after that is a failure like any other.
    expect((await delayq(['drain', queue.name, ...handler])).stderr).toMatch(/4 done|3 done, 1 will be retried/);
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

  it('because it disappears from disk half-way stops the run and costs no job a try (failures 10)', async () => {
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

describe('a handler that behaves badly (failures 10)', () => {
  it('times out although it ignores SIGTERM and leaves a grandchild that holds its pipes: both are killed', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const pids = path();
    const handler = script(
      `trap '' TERM\necho $$ >> ${pids}\n(trap '' TERM; sh -c 'echo $$ >> ${pids}; exec sleep 600') &\nwhile :; do sleep 600; done`,
    );
    const options = ['--timeout', '300ms', '--kill-after', '200ms'];
    const ended = await delayq(['drain', ...options, queue.name, '--', handler]);
    expect(ended.code).toBe(0);
    expect(await show(queue, 'a')).toMatchObject({ state: 'pending', failures: 1, error: 'timed out after 300ms' });
    const [one = 0, two = 0] = linesOf(read(pids)).map(Number);
    await until(() => !alive(one) && !alive(two));
  });

  it('ends, and leaves a process that holds its pipes: the run goes on', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const pids = path();
    const ended = await delayq(['drain', queue.name, ...shell(`echo out; sleep 600 & echo $! >> ${pids}; exit 0`)]);
    for (const pid of linesOf(read(pids))) process.kill(Number(pid), 'SIGKILL');
    expect(ended).toMatchObject({ code: 0, stdout: 'out\nout\n' });
  });

  it('does not read a large payload', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 'x'.repeat(1024 * 1024) });
    expect(await delayq(['drain', '-q', queue.name, ...shell('exec <&-; sleep 0.1')])).toMatchObject({
      code: 0,
      stderr: '',
    });
  });

  it('reads a large payload whole', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 'x'.repeat(1024 * 1024) });
    expect(await delayq(['drain', '-q', queue.name, ...shell('wc -c')])).toMatchObject({
      code: 0,
      stdout: `${1024 * 1024 + 3}\n`,
    });
  });

  it('writes 100 MiB into a slow reader: nothing is lost, and memory stays bounded', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const atExit = "process.on('exit',()=>console.error(process.resourceUsage().maxRSS))";
    const env = { NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(atExit)}` };
    for (const parallel of ['1', '2']) {
      await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
      const write = 'yes 0123456789abcdef | head -c 52428800';
      const line = `delayq drain -q -P ${parallel} ${queue.name} -- sh -c '${write}' | { sleep 0.3; wc -c; }`;
      const { stdout, stderr } = await sh(line, { env });
      expect(Number(stdout) % 52428800).toBe(0);
      expect(Number(stdout)).toBeGreaterThanOrEqual(2 * 52428800);
      expect(Number(stderr) / 1024).toBeLessThan(200);
    }
    expect((await queue.counts()).payload).toBe(0);
  });

  it('fills the disk on which its output is kept: said, exit 74, and no job is lost', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(5).map((n) => ({ payload: n })));
    const { stdout, stderr } = await sh(
      `delayq drain -q ${queue.name} -- sh -c 'echo much; sleep 0.1' > /dev/full; echo "ended with $?"`,
    );
    expect(stdout).toBe('ended with 74\n');
    expect(stderr).toContain('cannot write the output');
    const { pending, active, stats } = await queue.counts();
    expect({ active, all: pending + (stats.acked ?? 0) }).toEqual({ active: 0, all: 5 });
  });

  it('opens /dev/stdin, /dev/stdout and /dev/stderr, as scripts do', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const handler = shell('echo err > /dev/stderr; cat /dev/stdin > /dev/stdout; echo more');
    for (const parallel of ['1', '2'])
      expect(await delayq(['drain', '-q', '-n', '1', '-P', parallel, queue.name, ...handler])).toMatchObject({
        code: 0,
        stdout: `${parallel}\nmore\n`,
        stderr: 'err\n',
      });
  });

  it('had ended in time while its output waits for a slow reader: it has not timed out', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(3).map((n) => ({ payload: n })));
    const log = path();
    const go = path();
    const handler = `head -c 60000 /dev/zero; echo >> ${log}`;
    const running = beginSh(
      `delayq drain -v --timeout 700ms ${queue.name} -- sh -c '${handler}' | { while [ ! -e ${go} ]; do sleep 0.02; done; wc -c; }`,
    );
    // The second one's output does not fit into the pipe any more, but it has ended: it is done, whenever that is read.
    await until(async () => (await queue.counts()).stats.acked === 2);
    writeFileSync(go, '');
    expect((await running.ended).stdout.trim()).toBe('180000');
    expect(read(log)).toBe('\n\n\n');
    expect(await queue.counts()).toMatchObject({ payload: 0, stats: { acked: 3 } });
  });

  it('had ended in time while its drain was suspended: it has not timed out', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const go = path();
    const handler = `touch ${go}; while [ -e ${go} ]; do sleep 0.01; done; touch ${go}.done`;
    const running = begin(['drain', '-q', '--timeout', '600ms', queue.name, ...shell(handler)]);
    await until(() => existsSync(go));
    const started = performance.now();
    running.child.kill('SIGSTOP');
    unlinkSync(go);
    // Its time is up when it goes on.
    await until(() => existsSync(`${go}.done`) && performance.now() > started + 1_000);
    running.child.kill('SIGCONT');
    expect((await running.ended).code).toBe(0);
    expect((await queue.counts()).stats).toMatchObject({ acked: 1 });
  });

  it('are more than there may be files: said, exit 75, and nothing is counted', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(100).map((n) => ({ payload: n })));
    const line = `ulimit -n 128; delayq drain -q -P 64 ${queue.name} -- sleep 0.2; echo "ended with $?"`;
    const { stdout, stderr } = await sh(line);
    expect(stdout).toBe('ended with 75\n');
    expect(stderr).toContain('ulimit -n');
    const { pending, active, meta, stats } = await queue.counts();
    expect({ all: pending + (stats.acked ?? 0), active, meta }).toEqual({ all: 100, active: 0, meta: 0 });
  });

  const namespaces = spawnSync('unshare', ['-Urpf', '--mount-proc', 'true']).status === 0;
  it.runIf(namespaces)(
    'leaves zombies that nobody waits for: the run does not wait for them either',
    async () => {
      const queue = freshQueue();
      await queue.enqueue({ payload: 1 });
      // A process 1 that never waits for its orphans, as in many containers.
      const drain = `delayq drain -q --timeout 200ms --kill-after 30s ${queue.name} -- sh -c "sleep 600; echo"`;
      await sh(`unshare -Urpf --mount-proc ${drain}`);
      expect((await queue.counts()).stats.retried).toBe(1);
    },
    25_000,
  );

  it('keeps only the last lines of its stderr as the error', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    await delayq(['drain', '-q', queue.name, ...shell('seq 100000 >&2; exit 3')]);
    const error = (await show(queue, 'a'))?.error ?? '';
    expect(error).toMatch(/^exit 3: 99991\n[\s\S]*\n100000$/);
    expect(error.length).toBeLessThan(2_000);
  });

  it('writes no text: its error is kept readable, and no terminal obeys it', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const { stderr } = await delayq([
      'drain',
      '-v',
      queue.name,
      ...shell("printf '\\033[31m\\377\\000\\r' >&2; exit 65"),
    ]);
    expect(linesOf(stderr).filter((line) => line.includes(': dead: '))[0]).toMatch(/exit 65: \\x1b\[31m/);
    const { stdout } = await delayq(['show', queue.name, 'a']);
    expect(JSON.parse(stdout).error).toContain('\u001b[31m\ufffd');
  });
});

describe('the output of handlers', () => {
  it('keeps lines whole that are longer than what is held of a handler', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(8).map((n) => ({ payload: { n, pad: 'x'.repeat(2_500_000) } })));
    const { stdout } = await delayq(['drain', '-q', '-P', '8', queue.name, '--', 'cat']);
    expect(
      linesOf(stdout)
        .map((line) => JSON.parse(line).n as number)
        .sort(),
    ).toEqual(upTo(8));
  });

  it("of processes that a handler left behind is in nobody else's error", async () => {
    const queue = freshQueue();
    const go = path();
    await queue.enqueue(['a', 'b'].map((id, i) => ({ payload: 1, id, at: 1_000 + i })));
    const leave = `(while [ ! -e ${go} ]; do sleep 0.01; done; echo secret >&2; touch ${go}.said) & exit 0`;
    const fail = `touch ${go}; while [ ! -e ${go}.said ]; do sleep 0.01; done; echo why >&2; exit 65`;
    const { stderr } = await delayq([
      'drain',
      '-q',
      queue.name,
      ...shell(`if [ $DELAYQ_ID = a ]; then ${leave}; else ${fail}; fi`),
    ]);
    expect(stderr).toContain('secret');
    expect((await show(queue, 'b'))?.error).toBe('exit 65: why');
  });

  it.runIf(process.platform === 'linux')(
    'does not fill memory when one left behind writes on and nobody reads',
    async () => {
      const queue = freshQueue();
      await queue.enqueue({ payload: 1 });
      const pid = path();
      const running = begin([
        'drain',
        '--watch',
        '-q',
        '--grace',
        '0s',
        queue.name,
        ...shell(`yes 0123456789 & echo $! > ${pid}; exit 0`),
      ]);
      running.child.stdout?.pause();
      await until(async () => (await queue.counts()).stats.acked === 1);
      // It writes hundreds of MiB a second if it is let; it must come to a stop.
      const written = () => Number(/wchar: (\d+)/.exec(read(`/proc/${Number(read(pid))}/io`))?.[1]);
      let before = -1;
      let same = 0;
      await until(() => {
        const now = written();
        same = now === before ? same + 1 : 0;
        before = now;
        return same >= 20 || now > 200 * 1024 * 1024;
      });
      expect(before).toBeLessThan(50 * 1024 * 1024);
      process.kill(Number(read(pid)), 'SIGKILL');
      running.child.kill('SIGTERM');
      running.child.stdout?.resume();
      expect((await running.ended).code).toBe(0);
    },
  );

  it('is passed on in one piece a job when several run at once', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(12).map((n) => ({ payload: n })));
    const handler = shell('read x; for i in 1 2 3 4 5; do echo "$x $i"; sleep 0.01; done');
    const { stdout } = await delayq(['drain', '-q', '-P', '4', queue.name, ...handler]);
    const lines = linesOf(stdout);
    expect(lines).toHaveLength(60);
    for (let i = 0; i < 60; i += 5) {
      const [job] = (lines[i] as string).split(' ');
      expect(lines.slice(i, i + 5)).toEqual([1, 2, 3, 4, 5].map((n) => `${job} ${n}`));
    }
  });

  it('comes as it is written when one runs at a time', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const go = path();
    const running = begin([
      'drain',
      '-q',
      queue.name,
      ...shell(`echo early; while [ ! -e ${go} ]; do sleep 0.01; done; echo late`),
    ]);
    await until(() => running.stdout === 'early\n');
    writeFileSync(go, '');
    expect((await running.ended).stdout).toBe('early\nlate\n');
  });

  it('that nobody reads any more ends the run: the rest is given back, exit 0', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(200).map((n) => ({ payload: n })));
    const { stdout, stderr } = await sh(
      `{ delayq drain -q ${queue.name} -- cat; echo "ended with $?" >&2; } | head -1`,
    );
    expect({ lines: linesOf(stdout).length, stderr }).toEqual({ lines: 1, stderr: 'ended with 0\n' });
    const { pending, active, stats } = await queue.counts();
    expect({ active, all: pending + (stats.acked ?? 0) }).toEqual({ active: 0, all: 200 });
    expect(pending).toBeGreaterThan(0);
  });
});

describe('leases of handlers', () => {
  it('300 jobs, 100 ms each, one at a time, a lease of 1 s: 300 handled once each (failures 11)', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(300).map((n) => ({ payload: n, at: 1_000 + n })));
    const { code, stdout, stderr } = await delayq(['drain', '--lease', '1s', queue.name, ...shell('cat; sleep 0.1')]);
    expect(code).toBe(0);
    expect(linesOf(stdout).map(Number)).toEqual(upTo(300));
    expect(stderr).toMatch(/^delayq: 300 done in \d+s\n$/);
    const { stats, dead, payload } = await queue.counts();
    expect({ dead, payload, acked: stats.acked, lost: stats.lost }).toEqual({
      dead: 0,
      payload: 0,
      acked: 300,
      lost: undefined,
    });
  });

  it('a drain that is killed in mid-handler: the job comes again after the lease, as attempt 2 (failures 7)', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const log = path();
    const running = begin(['drain', queue.name, ...shell(`echo $DELAYQ_ATTEMPT $$ >> ${log}; sleep 600`)]);
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

  it('a drain that is killed after the handler and before the ack: again as attempt 2 (failures 7)', async () => {
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

  it('a drain frozen past its lease: its late ack is refused, the job neither lost nor doubled again (failures 12)', async () => {
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
    await timePasses(queue.name, 5_000);
    await until(async () => (await queue.drain()).jobs.length === 1 || Promise.reject(new Error('renewed in between')));
    const { code, stderr } = await running.ended;
    expect({ code, alive: alive(Number(read(log))) }).toEqual({ code: 1, alive: false });
    expect(stderr).toContain('lease lost: ');
    expect(await queue.counts()).toMatchObject({ active: 1, payload: 1 });
  });

  it('five kills of a drain cost jobs that no handler saw none of their tries (failures 14)', async () => {
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

describe('a drain with handlers that is stopped (failures 15)', () => {
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

  it('kills handlers at the end of grace, and their jobs go back without a failure', async () => {
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

  it('ends within grace although nobody reads its stderr', async () => {
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
    await until(() => running.child.exitCode !== null, 10_000);
    running.child.stderr?.resume();
    expect((await running.ended).code).toBe(0);
    expect(await queue.counts()).toMatchObject({ pending: 5, active: 0, meta: 0 });
  });

  it('by a second signal exits 130 at once, and leaves no handler behind', async () => {
    const queue = freshQueue();
    const { running, pids } = await started(queue, "trap '' TERM; while :; do sleep 1; done");
    running.child.kill('SIGTERM');
    await until(() => {
      running.child.kill('SIGTERM');
      return running.child.exitCode !== null;
    });
    expect((await running.ended).code).toBe(130);
    await until(() => pids.every((pid) => !alive(pid)));
    // Nobody answered for them: they come back with the end of their leases.
    expect((await queue.counts()).active).toBe(2);
  });
});

describe('a stop that reaches the handlers as well (failures 42)', () => {
  /** Starts handlers, two unless it is told how many, that write their pids and wait. */
  const started = async (queue: Queue, handler: (log: string) => string[], n = 2) => {
    await queue.enqueue(upTo(n).map((n) => ({ payload: n, id: `j${n}` })));
    const log = path();
    const running = begin(['drain', '--watch', '-P', String(n), '-v', queue.name, ...handler(log)]);
    await until(() => linesOf(read(log)).length === n);
    return { running, pids: linesOf(read(log)).map(Number) };
  };
  const waits = (log: string, trap = '') => shell(`${trap} echo $$ >> ${log}; while :; do sleep 0.05; done`);
  const untouched = { pending: 2, due: 2, active: 0, meta: 0 };

  it.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)(
    'by %s, before it reaches delayq, counts nothing',
    async (signal) => {
      const queue = freshQueue();
      const { running, pids } = await started(queue, waits);
      for (const pid of pids) process.kill(pid, signal);
      await until(() => !pids.some(alive));
      running.child.kill(signal);
      expect(await running.ended).toMatchObject({ code: 0, stderr: expect.stringContaining('given back') });
      expect(await queue.counts()).toMatchObject(untouched);
    },
  );

  it('counts nothing for handlers that end as a shell says it: 128 + n', async () => {
    const queue = freshQueue();
    const { running, pids } = await started(queue, (log) => waits(log, "trap 'exit 143' TERM;"), 20);
    for (const pid of pids) process.kill(pid, 'SIGTERM');
    await until(() => !pids.some(alive));
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0, stderr: expect.not.stringContaining('Warning') });
    expect(await queue.counts()).toMatchObject({ ...untouched, pending: 20, due: 20 });
  });

  it('counts nothing for the batch of --pipe', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(2).map((n) => ({ payload: n })));
    const log = path();
    const running = begin(['drain', '--pipe', `echo $$ >> ${log}; sleep 600`, queue.name]);
    await until(() => read(log).includes('\n'));
    process.kill(-Number(read(log)), 'SIGTERM');
    await until(() => !alive(Number(read(log))));
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
    expect(await queue.counts()).toMatchObject(untouched);
  });

  it('is not what ended a handler when none comes: it has failed', async () => {
    const queue = freshQueue();
    const { running, pids } = await started(queue, waits);
    for (const pid of pids) process.kill(pid, 'SIGTERM');
    await until(() => linesOf(running.stderr).filter((line) => line.includes('killed by SIGTERM')).length === 2);
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
    expect(await queue.counts()).toMatchObject({ pending: 2, due: 0, stats: { retried: 2 } });
  });

  it('leaves a failure of another kind what it is', async () => {
    const queue = freshQueue();
    const { running, pids } = await started(queue, (log) => waits(log, "trap 'exit 1' TERM;"));
    running.child.kill('SIGTERM');
    for (const pid of pids) process.kill(pid, 'SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
    expect(await queue.counts()).toMatchObject({ stats: { retried: 2 } });
  });
});

it('ten drains with handlers hand out 1,000 jobs once each (failures 16)', async () => {
  const queue = freshQueue();
  await queue.enqueue(upTo(1_000).map((n) => ({ payload: n })));
  const ended = await Promise.all(
    upTo(10).map(() => delayq(['drain', '-q', '--batch', '7', '--pipe', 'cat', queue.name])),
  );
  const seen = ended.flatMap(({ stdout }) => linesOf(stdout).map(Number));
  expect(seen.sort((a, b) => a - b)).toEqual(upTo(1_000));
});

describe('delayq drain --pipe', () => {
  it('hands a batch to a shell command, one job a line, and removes it when that exits 0', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(250).map((n) => ({ payload: { n }, at: 1_000 + n })));
    const command = 'cat; echo "$DELAYQ_QUEUE end"';
    const { code, stdout, stderr } = await delayq(['drain', '--batch', '100', '--pipe', command, queue.name]);
    const end = `${queue.name} end`;
    const lines = upTo(250).map((n) => `{"n":${n}}`);
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining('250 done') });
    expect(linesOf(stdout)).toEqual([
      ...lines.slice(0, 100),
      end,
      ...lines.slice(100, 200),
      end,
      ...lines.slice(200),
      end,
    ]);
    expect((await queue.counts()).payload).toBe(0);
  });

  it('gives the whole batch back by the backoff when it exits with anything else', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(20).map((n) => ({ payload: n, id: `j${n}` })));
    const options = ['--batch', '10', '--backoff', '7s', '--pipe', 'grep -q 15 && exit 65; exit 0'];
    const { code } = await delayq(['drain', ...options, queue.name]);
    expect(code).toBe(0);
    const { pending, dead, stats } = await queue.counts();
    expect({ pending, dead, stats }).toMatchObject({ pending: 10, dead: 0, stats: { acked: 10, retried: 10 } });
    expect(await show(queue, 'j15')).toMatchObject({ failures: 1, error: 'exit 65' });
  });

  it('writes envelopes or texts when asked', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 'a text', id: 'a' });
    await delayq(['drain', '-q', '--envelope', '--pipe', 'cat; exit 1', '--backoff', '0s', queue.name]).then(
      ({ stdout }) =>
        expect(JSON.parse(stdout)).toMatchObject({ queue: queue.name, id: 'a', attempt: 1, payload: 'a text' }),
    );
    expect((await delayq(['drain', '-q', '--text', '--pipe', 'cat', queue.name])).stdout).toBe('a text\n');
  });

  it('of a killed drain brings the batch back after the lease (failures 7)', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(30).map((n) => ({ payload: n })));
    const log = path();
    const running = begin(['drain', '--pipe', `echo $$ > ${log}; exec sleep 600`, queue.name]);
    await until(() => read(log).includes('\n'));
    running.child.kill('SIGKILL');
    await running.ended;
    process.kill(Number(read(log)), 'SIGKILL');
    await timePasses(queue.name, 60_001);
    expect(linesOf((await delayq(['drain', '-q', '--pipe', 'cat', queue.name])).stdout)).toHaveLength(30);
  });
});

it('a queue is drained by handlers at the rate asked for', async () => {
  const queue = freshQueue();
  await queue.enqueue(upTo(6).map((n) => ({ payload: n })));
  const log = path();
  await delayq(['drain', '-q', '-P', '6', '--rate', '10/s', queue.name, ...shell(`date +%s%N >> ${log}`)]);
  const times = linesOf(read(log)).map((line) => Number(line) / 1e6);
  expect((times.at(-1) ?? 0) - (times[0] ?? 0)).toBeGreaterThan(400);
});

it('high,low serves the first queue first, also with handlers', async () => {
  const [high, low] = [freshQueue(), freshQueue()];
  await low.enqueue([{ payload: 'low' }]);
  await high.enqueue([{ payload: 'high' }]);
  const { stdout } = await delayq(['drain', '-q', `${high.name},${low.name}`, '--', 'cat']);
  expect(stdout).toBe('"high"\n"low"\n');
});

it('a job whose id no process could be given dies instead of holding the others up (failures 26)', async () => {
  const name = freshName();
  await admin
    .multi()
    .zadd(key(name, 'pending'), 1, 'a\0b', 2, 'c')
    .hset(key(name, 'payload'), 'a\0b', '1', 'c', '2')
    .exec();
  const { code, stdout } = await delayq(['drain', '-q', name, '--', 'cat']);
  expect({ code, stdout }).toEqual({ code: 1, stdout: '2\n' });
});
