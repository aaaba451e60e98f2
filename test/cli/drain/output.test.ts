import { writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { begin, delayq, linesOf, sh } from '../../support/cli.js';
import { path, read, shell, show, upTo } from '../../support/handlers.js';
import { freshQueue } from '../../support/redis.js';
import { until } from '../../support/until.js';

describe.concurrent('the output of handlers', () => {
  it('keeps lines whole that are longer than the buffer', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(8).map((n) => ({ payload: { n, pad: 'x'.repeat(2_500_000) } })));
    const { stdout } = await delayq(['drain', '-q', '-P', '8', queue.name, '--', 'cat']);
    expect(
      linesOf(stdout)
        .map((line) => JSON.parse(line).n as number)
        .sort(),
    ).toEqual(upTo(8));
  });

  it("of a process that a handler left behind is not in another job's error", async () => {
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
      // Without back-pressure it would write hundreds of MiB a second.
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

  it('is passed on in one piece for each job if several run at once', async () => {
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

  it('is passed on at once if one runs at a time', async () => {
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

  it('ends the run when nobody reads it any more, says so, and gives the rest back, exit 1', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(200).map((n) => ({ payload: n })));
    const { stdout, stderr } = await sh(
      `{ delayq drain -q ${queue.name} -- cat; echo "ended with $?" >&2; } | head -1`,
    );
    expect({ lines: linesOf(stdout).length, stderr }).toEqual({
      lines: 1,
      stderr: 'delayq: stdout was closed by its reader: stopped and gave back the remaining jobs\nended with 1\n',
    });
    const { pending, active, stats } = await queue.counts();
    expect({ active, all: pending + (stats.acked ?? 0) }).toEqual({ active: 0, all: 200 });
    expect(pending).toBeGreaterThan(0);
  });
});
