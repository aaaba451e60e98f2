import { describe, expect, it } from 'vitest';
import { begin, delayq, linesOf, sh } from '../support/cli.js';
import { admin, freshName, freshQueue, key } from '../support/redis.js';
import { until } from '../support/until.js';

/** Runs a line on a terminal of its own, which `script` makes, and returns what it shows. */
async function onTerminal(line: string, env: Record<string, string> = {}): Promise<string> {
  const { stdout } = await sh(`script -qec '${line}' /dev/null`, { env: { TERM: 'xterm-256color', ...env } });
  return stdout.replaceAll('\r\n', '\n');
}

const ESCAPE = '\x1b';

describe('delayq inspect', () => {
  it('writes one JSON document into a pipe', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, at: 1_000 },
      { payload: 2, in: '1h', id: 'later' },
    ]);
    await admin.zadd(key(queue.name, 'pending'), 2_000, 'ghost');
    const document = JSON.parse((await delayq(['inspect', queue.name])).stdout);
    expect(document).toMatchObject({ schema: 1, prefix: 'delayq', redis: expect.stringMatching(/^unix:/) });
    expect(document.queues).toHaveLength(1);
    expect(document.queues[0]).toMatchObject({
      queue: queue.name,
      pending: 3,
      due: 2,
      oldestDue: 1_000,
      active: 0,
      leasesRunOut: 0,
      dead: 0,
      orphans: { ids: 1, payloads: 0 },
      upcoming: [{ id: 'later' }],
      structures: { pending: 3, active: 0, lease: 0, dead: 0, payload: 2, meta: 0 },
      stats: { enqueued: 2 },
      config: {},
    });
    expect(document.queues[0].lagMs).toBe(document.queues[0].now - 1_000);
  });

  it('lists all queues that were enqueued to', async () => {
    const [one, two] = [freshQueue(), freshQueue()];
    await one.enqueue({ payload: 1 });
    await two.enqueue({ payload: 1 });
    const names = JSON.parse((await delayq(['inspect', '--json'])).stdout).queues.map(
      ({ queue }: { queue: string }) => queue,
    );
    expect(names).toEqual(expect.arrayContaining([one.name, two.name]));
  });

  it('shows the others when one queue cannot be read, says which, and exits 1', async () => {
    const prefix = freshName();
    await delayq(['--prefix', prefix, 'enqueue', 'good', '1']);
    await delayq(['--prefix', prefix, 'enqueue', 'bad', '1']);
    await admin.del(`${prefix}:{bad}:stats`);
    await admin.set(`${prefix}:{bad}:stats`, 'x');
    const { code, stdout } = await delayq(['inspect', '--prefix', prefix]);
    expect({ code, ...JSON.parse(stdout) }).toMatchObject({
      code: 1,
      queues: [{ queue: 'good' }],
      unreadable: [{ queue: 'bad', error: expect.stringContaining(`${prefix}:{bad}:stats`) }],
    });
    expect(await onTerminal(`delayq inspect --prefix ${prefix}`, { NO_COLOR: '1' })).toMatch(
      /^good [\s\S]*! bad: cannot be read: .*\{bad\}:stats/m,
    );
  });

  it('of an unknown queue exits 3 and names one that is close', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const { code, stdout, stderr } = await delayq(['inspect', `${queue.name}s`]);
    expect({ code, stdout }).toEqual({ code: 3, stdout: '' });
    expect(stderr).toContain(`did you mean ${queue.name}?`);
  });

  it('shows a table on a terminal, with what is wrong in colour', async () => {
    const prefix = freshName();
    for (const args of [
      ['order-close', '1', '--at', '@1000'],
      ['remind', '2', '--in', '1h'],
    ]) {
      await delayq(['--prefix', prefix, 'enqueue', ...args]);
    }
    await admin.zadd(`${prefix}:{order-close}:dead`, 1, 'ghost');
    const plain = await onTerminal(`delayq inspect --prefix ${prefix}`, { NO_COLOR: '1' });
    const [head, ...rows] = linesOf(plain).map((line) => line.trim().split(/ {2,}/));
    expect(head).toEqual(['queue', 'pending', 'due', 'oldest', 'next', 'active', 'run out', 'dead']);
    expect(rows[0]?.slice(0, 3)).toEqual(['order-close', '1', '1']);
    expect(rows[0]?.[3]).toMatch(/^\d+d late$|^\d+d \d+h late$/);
    expect(rows[1]).toEqual(['remind', '1', '0', '–', expect.stringMatching(/^59m/), '0', '0', '0']);
    expect(plain).toContain('! order-close: 1 ids without a payload (orphans)');
    expect(plain).not.toContain(ESCAPE);
    expect(await onTerminal(`delayq inspect --prefix ${prefix}`, { TERM: 'dumb' })).not.toContain(ESCAPE);
    const coloured = await onTerminal(`delayq inspect --prefix ${prefix}`);
    expect(coloured).toContain(`${ESCAPE}[31m`);
    expect(linesOf(coloured).find((line) => line.startsWith('remind'))).not.toContain(ESCAPE);
  });

  it('never lets the terminal obey what is stored (failures 30)', async () => {
    const name = freshName();
    await admin.zadd(key(name, 'pending'), Date.now() + 3_600_000, `evil${ESCAPE}[2J\nforged  row\u202e`);
    await admin.hset(key(name, 'config'), `x${ESCAPE}]0;title\x07`, `\u2028${ESCAPE}c`);
    const shown = await onTerminal(`delayq inspect ${name}`, { NO_COLOR: '1' });
    expect(shown).not.toContain(ESCAPE);
    expect(shown).not.toMatch(/\u202e|\u2028|^forged/m);
    expect(shown).toContain('evil\\x1b[2J\\x0aforged  row\\u{202e}');
  });

  it('of one queue shows every structure, the totals, and the next due times', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2, in: '1h', id: 'later' }]);
    await queue.drain();
    const shown = await onTerminal(`delayq inspect --tz Europe/Berlin ${queue.name}`, { NO_COLOR: '1' });
    expect(shown).toMatch(/pending +1, none due/);
    expect(shown).toMatch(/active +1\n/);
    expect(shown).toMatch(/stored +payload 2, lease 1, meta 0/);
    expect(shown).toMatch(/totals +delivered 1, enqueued 2/);
    expect(shown).toMatch(/next due +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0[12]:00 +in 59m \d+s +later/);
  });

  it('on an empty server says how to begin', async () => {
    expect(await onTerminal(`delayq inspect --prefix ${freshName()}`)).toContain('delayq enqueue --in 15m');
    const { stdout } = await delayq(['inspect', '--prefix', freshName()]);
    expect(JSON.parse(stdout).queues).toEqual([]);
  });

  it('with --watch goes on, with rates, until it is stopped', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const running = begin(['inspect', '--watch', queue.name]);
    await until(() => linesOf(running.stdout).length >= 2);
    running.child.kill('SIGINT');
    const { code, stdout, stderr } = await running.ended;
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const [first, second] = linesOf(stdout).map((line) => JSON.parse(line).queues[0].ratePerSecond);
    expect(first).toBe(null);
    expect(second).toEqual({ in: 0, out: 0 });
  });
});
