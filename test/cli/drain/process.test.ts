import { spawnSync } from 'node:child_process';
import { existsSync, unlinkSync, writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { begin, beginSh, delayq, linesOf, sh } from '../../support/cli.js';
import { alive, path, read, script, shell, show, upTo } from '../../support/handlers.js';
import { freshQueue } from '../../support/redis.js';
import { until } from '../../support/until.js';

describe.concurrent('a handler that behaves badly (failures 10)', () => {
  it('times out, ignores SIGTERM and has a grandchild that keeps its pipes open: both are killed', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const pids = path();
    const handler = script(
      `trap '' TERM\necho $$ >> ${pids}\n(trap '' TERM; sh -c 'echo $$ >> ${pids}; exec sleep 600') &\nwhile :; do sleep 600; done`,
    );
    const options = ['--timeout', '3s', '--kill-after', '200ms'];
    const ended = await delayq(['drain', ...options, queue.name, '--', handler]);
    expect(ended.code).toBe(1);
    expect(await show(queue, 'a')).toMatchObject({ state: 'pending', failures: 1, error: 'timed out after 3s' });
    const [one = 0, two = 0] = linesOf(read(pids)).map(Number);
    await until(() => !alive(one) && !alive(two));
  });

  it('ends, but leaves a process that keeps its pipes open: the run goes on', async () => {
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

  it('reads all of a large payload', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 'x'.repeat(1024 * 1024) });
    expect(await delayq(['drain', '-q', queue.name, ...shell('wc -c')])).toMatchObject({
      code: 0,
      stdout: `${1024 * 1024 + 3}\n`,
    });
  });

  it('writes 100 MiB into a slow reader: nothing is lost, and memory stays bounded', async () => {
    const queue = freshQueue();
    const atExit = "process.on('exit',()=>console.error(process.resourceUsage().maxRSS))";
    const env = { NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(atExit)}` };
    for (const parallel of ['1', '2']) {
      await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
      const write = 'yes 0123456789abcdef | head -c 52428800';
      const line = `delayq drain -q -P ${parallel} ${queue.name} -- sh -c '${write}' | { sleep 0.3; wc -c; }`;
      const { stdout, stderr } = await sh(line, { env });
      expect(Number(stdout)).toBe(2 * 52428800);
      expect(Number(stderr) / 1024).toBeLessThan(200);
    }
    expect((await queue.counts()).payload).toBe(0);
  });

  it('fills the disk with its output: reported, exit 74, and no job is lost', async () => {
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

  it('ends in time, but its output waits for a slow reader: no timeout', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(3).map((n) => ({ payload: n })));
    const log = path();
    const go = path();
    const handler = `head -c 60000 /dev/zero; echo >> ${log}`;
    const running = beginSh(
      `delayq drain -v --timeout 10s ${queue.name} -- sh -c '${handler}' | { while [ ! -e ${go} ]; do sleep 0.02; done; wc -c; }`,
    );
    // The output of the second one does not fit into the pipe, but it has ended, so it is done. From Node 22 on, whose
    // buffers are larger, so is the third.
    await until(async () => ((await queue.counts()).stats.acked ?? 0) >= 2);
    writeFileSync(go, '');
    expect((await running.ended).stdout.trim()).toBe('180000');
    expect(read(log)).toBe('\n\n\n');
    expect(await queue.counts()).toMatchObject({ payload: 0, stats: { acked: 3 } });
  });

  it('ends in time while its drain is suspended: no timeout', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const go = path();
    const handler = `touch ${go}; while [ -e ${go} ]; do sleep 0.01; done; touch ${go}.done`;
    const running = begin(['drain', '-q', '--timeout', '4s', queue.name, ...shell(handler)]);
    await until(() => existsSync(go));
    const started = performance.now();
    running.child.kill('SIGSTOP');
    unlinkSync(go);
    // Its time is over when the drain goes on.
    await until(() => existsSync(`${go}.done`) && performance.now() > started + 4_500);
    running.child.kill('SIGCONT');
    expect((await running.ended).code).toBe(0);
    expect((await queue.counts()).stats).toMatchObject({ acked: 1 });
  });

  it('needs more open files than allowed: reported, exit 75, and no job is counted as failed', async () => {
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
  it.runIf(namespaces)('leaves zombies that nobody reaps: the run does not wait for them', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    // A process 1 that never waits for its orphans, as in many containers.
    const drain = `delayq drain -q --timeout 200ms --kill-after 10m ${queue.name} -- sh -c "sleep 600; echo"`;
    await sh(`unshare -Urpf --mount-proc ${drain}`);
    expect((await queue.counts()).stats.retried).toBe(1);
  });

  it('keeps only the last lines of its stderr as the error', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    await delayq(['drain', '-q', queue.name, ...shell('seq 100000 >&2; exit 3')]);
    const error = (await show(queue, 'a'))?.error ?? '';
    expect(error).toMatch(/^exit 3: 100000\n99991\n[\s\S]*\n100000$/);
    expect(error.length).toBeLessThan(2_000);
  });

  it('writes binary data to stderr: its error is shown escaped', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const { stderr } = await delayq([
      'drain',
      '-v',
      queue.name,
      ...shell("printf '\\033[31m\\377\\000\\r' >&2; exit 65"),
    ]);
    expect(linesOf(stderr).filter((line) => line.includes(': dead: '))[0]).toMatch(/exit 65: \\x1b\[31m/);
    const { stdout } = await delayq(['show', '--json', queue.name, 'a']);
    expect(JSON.parse(stdout).error).toContain('\u001b[31m\ufffd');
  });
});
