import { describe, expect, it } from 'vitest';
import { begin, delayq, linesOf, sh } from '../../support/cli.js';
import { admin, freshName, freshQueue, key, timePasses } from '../../support/redis.js';
import { until } from '../../support/until.js';

/** Runs a line on a terminal of its own, which `script` makes, and returns what it shows. */
async function onTerminal(line: string, env: Record<string, string> = {}): Promise<string> {
  const { stdout } = await sh(`script -qec '${line}' /dev/null`, { env: { TERM: 'xterm-256color', ...env } });
  return stdout.replaceAll('\r\n', '\n');
}

const ESCAPE = '\x1b';

describe('delayq inspect', () => {
  it('explains every column of its table in its help', async () => {
    const { stdout } = await delayq(['inspect', '--help']);
    for (const word of ['due', 'lag', '↑', 'drained', 'in, out', 'empty in', 'next', 'active', 'run out', 'dead'])
      expect(stdout.split('--help  ')[1]).toContain(word);
  });

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
    const [first, head, ...rows] = linesOf(plain).map((line) => line.trim().split(/ {2,}/));
    expect(first).toEqual([expect.stringMatching(/^! order-close: never drained: 1 job is due, the oldest for \d+d/)]);
    expect(head).toEqual(['queue', 'pending', 'due', 'lag', 'drained', 'in', 'out', 'next', 'active', 'dead']);
    expect(rows[0]?.slice(0, 3)).toEqual(['order-close', '1', '1']);
    expect(rows[0]?.[3]).toMatch(/^\d+d$|^\d+d \d+h$/);
    expect(rows[1]).toEqual(['remind', '1', '0', '–', 'never', '–', '–', expect.stringMatching(/^59m/), '0', '0']);
    expect(plain).toContain('! order-close: 1 id without a payload (orphan)');
    expect(plain).not.toContain(ESCAPE);
    expect(await onTerminal(`delayq inspect --prefix ${prefix}`, { TERM: 'dumb' })).not.toContain(ESCAPE);
    const coloured = await onTerminal(`delayq inspect --prefix ${prefix}`);
    expect(coloured).toContain(`${ESCAPE}[31m`);
    expect(linesOf(coloured).find((line) => line.startsWith('remind '))).not.toContain(ESCAPE);
  });

  it('never lets the terminal obey what is stored (failures 30)', async () => {
    const name = freshName();
    await admin.zadd(key(name, 'pending'), Date.now() + 3_600_000, `evil${ESCAPE}[2J\tforged  row\u202e`);
    await admin.hset(key(name, 'config'), `x${ESCAPE}]0;title\x07`, `\u2028${ESCAPE}c`);
    const shown = await onTerminal(`delayq inspect ${name}`, { NO_COLOR: '1' });
    expect(shown).not.toContain(ESCAPE);
    expect(shown).not.toMatch(/\u202e|\u2028|^forged/m);
    expect(shown).toContain('evil\\x1b[2J\\x09forged  row\\u{202e}');
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
    const prefix = freshName();
    const shown = await onTerminal(`delayq inspect --prefix ${prefix}`);
    expect(shown).toContain('delayq enqueue --in 15m');
    // Or where it is that nothing was found, and what else there may be.
    expect(shown).toMatch(new RegExp(`^No queues at unix:.* with the prefix ${prefix} yet`));
    expect(shown).toContain('delayq doctor');
    const { stdout } = await delayq(['inspect', '--prefix', freshName()]);
    expect(JSON.parse(stdout).queues).toEqual([]);
  });

  it('says first, and in red, that nobody has drained what is due for long', async () => {
    const prefix = freshName();
    const stats = `${prefix}:{order-close}:stats`;
    await delayq([
      '--prefix',
      prefix,
      'enqueue',
      'order-close',
      '1',
      '--at',
      `@${Math.floor(Date.now() / 1_000) - 3_600}`,
    ]);
    await admin.hset(stats, 'drained', Date.now() - 47 * 60_000 - 5_000);
    const said = 'no drain for 47m 5s: 1 job is due, the oldest for 1h';
    for (const [args, line] of [
      ['', `! order-close: ${said}`],
      ['order-close', `! ${said}`],
    ] as const) {
      const [first] = linesOf(await onTerminal(`delayq inspect --prefix ${prefix} ${args}`));
      expect(first?.replace(/47m \d+s/, '47m 5s')).toBe(`${ESCAPE}[31m${ESCAPE}[1m${line}${ESCAPE}[22m${ESCAPE}[39m`);
    }
    const [queue] = JSON.parse((await delayq(['inspect', '--prefix', prefix])).stdout).queues;
    expect(queue).toMatchObject({ stalled: true, paused: null });
    // Who has paused a queue wants no drain; what then waits is told with that.
    await admin.hset(`${prefix}:{order-close}:config`, 'paused', 'inf');
    const shown = await onTerminal(`delayq inspect --prefix ${prefix} order-close`, { NO_COLOR: '1' });
    expect(shown).toMatch(/^! paused until resumed: 1 job is due, the oldest for 1h/);
    const paused = JSON.parse((await delayq(['inspect', '--prefix', prefix])).stdout).queues[0];
    expect(paused).toMatchObject({ stalled: false, paused: { until: null } });
    await admin.hset(`${prefix}:{order-close}:config`, 'paused', Date.now() + 600_000);
    expect(await onTerminal(`delayq inspect --prefix ${prefix} order-close`, { NO_COLOR: '1' })).toMatch(
      /^! paused until \d\d:\d\d:\d\d: 1 job/,
    );
    await admin.hset(`${prefix}:{order-close}:config`, 'paused', '1');
    await admin.hset(stats, 'drained', Date.now());
    expect(await onTerminal(`delayq inspect --prefix ${prefix} order-close`, { NO_COLOR: '1' })).toMatch(
      /^order-close\n/,
    );
  });

  it('says so, too, when nothing is due but what a consumer left behind', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    await queue.drain();
    await timePasses(queue.name, 600_000);
    await admin.hset(key(queue.name, 'stats'), 'drained', Date.now() - 600_000);
    const shown = await onTerminal(`delayq inspect ${queue.name}`, { NO_COLOR: '1' });
    expect(shown).toMatch(/^! no drain for 10m: 1 lease has expired/);
  });

  it.each(['never', '-1', String(Date.now() + 3_600_000)])(
    'is not soothed by a last drain that cannot have been: %s',
    async (drained) => {
      const queue = freshQueue();
      await queue.enqueue({ payload: 1, at: Date.now() - 600_000 });
      await admin.hset(key(queue.name, 'stats'), 'drained', drained);
      const shown = await onTerminal(`delayq inspect ${queue.name}`, { NO_COLOR: '1' });
      expect(shown).toMatch(/^! never drained: 1 job is due[\s\S]* last drain +never\n/);
      const { code, stdout } = await delayq(['check', '--max-drain-age', '5m', queue.name]);
      expect({ code, stdout }).toEqual({ code: 2, stdout: expect.stringContaining('never drained') });
    },
  );

  it('tells rates and where the lag goes at the first look, from the samples', async () => {
    const queue = freshQueue();
    const now = Date.now();
    await queue.enqueue([{ payload: 1, at: now - 600_000 }]);
    const stats = key(queue.name, 'stats');
    // at, enqueued, delivered, done, retried, dead, due, oldest due, pending
    const sample = (ago: number, ...rest: number[]) =>
      admin.hset(stats, `at:${Math.floor((now - ago) / 60_000) % 16}`, [now - ago, ...rest].join(' '));
    // Twice each: a minute may turn before the look, and speaks only for itself.
    for (const ago of [300_000, 240_000]) await sample(ago, 0, 0, 0, 0, 0, 901, now - 420_000, 901);
    for (const ago of [60_000, 30_000]) await sample(ago, 0, 700, 700, 0, 0, 201, now - 600_000, 201);
    await admin.hset(stats, { enqueued: 600, acked: 900, delivered: 900, drained: now });
    const [{ trend }] = JSON.parse((await delayq(['inspect', queue.name])).stdout).queues;
    expect(trend.spanMs).toBeGreaterThanOrEqual(300_000);
    expect(trend.spanMs).toBeLessThan(360_000);
    expect(trend.perSecond.in).toBeCloseTo(600 / (trend.spanMs / 1_000), 6);
    expect(trend.perSecond.out).toBeCloseTo(900 / (trend.spanMs / 1_000), 6);
    expect(trend.lagMsPerMinute).toBeGreaterThan(50_000);
    expect(trend.emptyInMs).toBeGreaterThan(0);
    const catching = await onTerminal(`delayq inspect ${queue.name}`, { NO_COLOR: '1' });
    expect(catching).toMatch(/^· catching up: 1 job is due, the oldest for 10m.*; empty in \d+ms$/m);
    for (const ago of [60_000, 30_000]) await sample(ago, 0, 700, 700, 0, 0, 1, now - 600_000, 201);
    const shown = await onTerminal(`delayq inspect ${queue.name}`, { NO_COLOR: '1' });
    expect(shown).toMatch(/^! falling behind: 1 job is due, the oldest for 10m.*, growing by (1m|[56]\d.*s)/);
    expect(shown).toMatch(/rates +in (2|1\.\d)\/s, out (3|2\.\d)\/s over the last 5m/);
  });

  it('of handlers that do nothing but fail says so', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 3 }, () => ({ payload: 1, tries: 2 })));
    const stats = key(queue.name, 'stats');
    const before = Date.now() - 100_000;
    await admin.hset(stats, `at:${Math.floor(before / 60_000) % 16}`, `${before} 0 0 0 0 0 0 - 0`);
    const { jobs } = await queue.drain();
    await queue.nack(jobs, { backoff: [600_000] });
    await admin.hset(stats, 'dead', 1);
    expect(await onTerminal(`delayq inspect ${queue.name}`, { NO_COLOR: '1' })).toMatch(
      /^! handlers are failing: 3 will be retried, 1 dead, none done in 1m 4\ds/,
    );
  });

  it('of one queue tells how many jobs fall due when in the coming hour and day', async () => {
    const queue = freshQueue();
    const minutes = [-1, 1, 4, 7, 58, 90, 23 * 60, 30 * 60];
    await queue.enqueue(minutes.map((m) => ({ payload: m, at: Date.now() + m * 60_000 })));
    const [{ ahead, now }] = JSON.parse((await delayq(['inspect', queue.name])).stdout).queues;
    const counts = (spans: { count: number }[]) => spans.map(({ count }) => count);
    expect(counts(ahead.hour)).toEqual([2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    expect(counts(ahead.day)).toEqual([4, 1, ...Array(20).fill(0), 1, 0]);
    expect(ahead.hour[1]).toEqual({ from: now + 300_000, to: now + 600_000, count: 1 });
    expect(ahead.day[0]).toMatchObject({ from: now, to: now + 3_600_000 });
    expect(ahead.day[23]).toMatchObject({ from: now + 23 * 3_600_000, to: now + 24 * 3_600_000 });
    const shown = await onTerminal(`delayq inspect ${queue.name}`, { NO_COLOR: '1' });
    expect(shown).toContain('due in the next hour: 4 jobs, up to 2 in 5 minutes');
    expect(shown).toMatch(/^ {2}█████ █████ _____ (_____ ){8}█████$/m);
    expect(shown).toContain('due in the next day: 6 jobs, up to 4 in an hour');
    for (const line of linesOf(shown)) expect(line.length).toBeLessThanOrEqual(80);
  });

  it('of one queue tells who holds leases, and since when', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 4 }, (_, i) => ({ payload: i, id: `j${i}` })));
    const { jobs } = await queue.drain({ limit: 3 });
    const since = Date.now() - 120_000;
    await admin.hset(key(queue.name, 'lease'), 'j0', `r 1 ${since} web-1:312`, 'j1', `r 1 ${since} move:other`);
    await admin.zadd(key(queue.name, 'active'), 'inf', 'j1');
    const [found] = JSON.parse((await delayq(['inspect', queue.name])).stdout).queues;
    expect(found.holdersSeen).toBe(jobs.length);
    expect(found.holders).toEqual(
      expect.arrayContaining([{ by: 'web-1:312', jobs: 1, since, ends: expect.any(Number) }]),
    );
    const shown = await onTerminal(`delayq inspect --tz UTC ${queue.name}`, { NO_COLOR: '1' });
    expect(shown).toMatch(/^ +web-1:312: 1 job since .*\(2m( \ds)?\), first lease expires in \d+s$/m);
    expect(shown).toMatch(/^ +moving to other: 1 job since .*, until the move is done$/m);
    await admin.zadd(key(queue.name, 'active'), ...Array.from({ length: 600 }, (_, i) => [i + 1, `x${i}`]).flat());
    expect(await onTerminal(`delayq inspect ${queue.name}`, { NO_COLOR: '1' })).toMatch(
      /^ +unknown consumer: 250 jobs, .*\n +\(among the 250 leases that expire first\)$/m,
    );
  });

  it('of times that are none says so in words, and of a lease without end who will mend it', async () => {
    const queue = freshQueue();
    const [pending, active] = [key(queue.name, 'pending'), key(queue.name, 'active')];
    await admin.zadd(pending, 'inf', 'never', '-inf', 'ever');
    await admin.zadd(active, 'inf', 'kept');
    const shown = await onTerminal(`delayq inspect ${queue.name}`, { NO_COLOR: '1' });
    expect(shown).toMatch(/^ {2}next due +never {2}never$/m);
    expect(shown).toMatch(/^ +unknown consumer: 1 job, a lease never expires: run delayq doctor$/m);
    const story = async (id: string) => onTerminal(`delayq show ${queue.name} ${id}`, { NO_COLOR: '1' });
    expect(await story('ever')).toMatch(/^ {2}due +long ago$/m);
    expect(await story('never')).toMatch(/^ {2}due +never$/m);
    expect(await story('kept')).toMatch(/^ {2}held by +unknown consumer since[\s\S]*lease ends +never$/m);
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
