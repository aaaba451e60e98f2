import { describe, expect, it } from 'vitest';
import { columns } from '../../../src/cli/terminal/output.js';
import { Worker } from '../../../src/index.js';
import { begin, delayq, linesOf, onTerminal as onTerminalOf, sh } from '../../support/cli.js';
import { admin, freshName, freshQueue, key, timePasses } from '../../support/redis.js';
import { until } from '../../support/until.js';

/** Runs a line on a terminal of its own, which `script` makes, and returns what it shows. */
async function onTerminal(line: string, env: Record<string, string> = {}): Promise<string> {
  const { stdout } = await sh(`script -qec '${line}' /dev/null`, { env: { TERM: 'xterm-256color', ...env } });
  return stdout.replaceAll('\r\n', '\n');
}

const ESCAPE = '\x1b';

/** A namespace with 30 queues of 40 characters, some of which nobody drains, one without a payload, one unreadable. */
async function troubled(): Promise<{ prefix: string; names: string[] }> {
  const prefix = freshName();
  const names = Array.from({ length: 30 }, (_, i) => `payments-webhook-delivery-eu-west-no-${100 + i}`);
  await admin.sadd(`${prefix}:queues`, 'broken', ...names);
  await admin.set(`${prefix}:{broken}:pending`, 'x');
  for (const [i, name] of names.entries()) {
    await admin.hset(`${prefix}:{${name}}:payload`, 'a', '1');
    await admin.zadd(`${prefix}:{${name}}:pending`, Date.now() + (i < 12 ? -3_600_000 : 3_600_000), 'a');
  }
  await admin.zadd(`${prefix}:{${names[20]}}:dead`, Date.now(), 'ghost');
  return { prefix, names };
}

describe('delayq inspect at 80 by 24', () => {
  const small = { columns: 80, rows: 24 };
  const wrong = ['! broken: cannot be read', '! payments-webhook-delivery-eu-west-no-100: never drained'];

  it('begins with what is wrong, keeps its columns beside long names, and leaves room for the prompt', async () => {
    const { prefix } = await troubled();
    const lines = linesOf(await onTerminalOf(`delayq inspect --prefix ${prefix}`, small));
    expect(lines.length).toBeLessThanOrEqual(22);
    for (const line of lines) expect(columns(line)).toBeLessThanOrEqual(80);
    const [first, , third] = lines;
    expect([first, third]).toEqual(wrong.map((line) => expect.stringContaining(line)));
    expect(lines.some((line) => /^… and \d+ more warnings: delayq inspect \| less$/.test(line))).toBe(true);
    const head = 'queue pending due lag drained in done next active dead';
    expect(lines.map((line) => line.replace(/ +/g, ' '))).toContain(head);
    expect(lines.some((line) => /^payments-.*….*-no-100 +1 +1 /.test(line))).toBe(true);
    expect(lines.at(-1)).toMatch(/^… and \d+ more queues: delayq inspect \| less$/);
  });

  it('shows everything in a pipe: each queue and problem on a line, in plain text', async () => {
    const { prefix, names } = await troubled();
    const { code, stdout } = await sh(`delayq inspect --prefix ${prefix} | cat`);
    expect({ code, plain: !stdout.includes(ESCAPE) }).toEqual({ code: 0, plain: true });
    const lines = linesOf(stdout);
    expect(lines).toHaveLength(1 + 12 + 1 + 1 + 30);
    for (const [i, line] of wrong.entries()) expect(lines[i]).toContain(line);
    expect(lines).toContainEqual(`! ${names[20]}: 1 id without a payload (orphan), perhaps among the dead`);
    for (const name of names) expect(lines.filter((line) => line.startsWith(`${name} `))).toHaveLength(1);
    expect(stdout).not.toContain('…');
  });

  it('of one queue fits, with its title and all that is wrong', async () => {
    const queue = freshQueue();
    const stats = key(queue.name, 'stats');
    await queue.enqueue(Array.from({ length: 300 }, (_, i) => ({ payload: i, at: Date.now() + (i - 100) * 60_000 })));
    const { jobs } = await queue.drain({ limit: 50 });
    for (const [i, { id }] of jobs.entries())
      await admin.hset(key(queue.name, 'lease'), id, `r 1 ${Date.now() - i} web-${i}.example.com:31${i}`);
    await admin.hset(stats, { cancelled: 1, purged: 2, expired: 3, moved: 4, lost: 5, retried: 6, dead: 7 });
    await timePasses(queue.name, 600_000);
    await admin.hset(stats, 'drained', Date.now() - 600_000);
    await admin.zadd(key(queue.name, 'pending'), Date.now() + 600_000, 'ghost');
    await delayq(['config', queue.name, 'tries=4', 'backoff=30s,1m,10m', 'lease=2m', 'ttl=2d', 'maxLost=7']);
    for (const rows of [12, 24, 40]) {
      const shown = await onTerminalOf(`delayq inspect ${queue.name}`, { columns: 80, rows });
      const lines = linesOf(shown);
      expect(lines.length).toBeLessThanOrEqual(rows - 2);
      for (const line of lines) expect(columns(line)).toBeLessThanOrEqual(80);
      expect(lines[0]).toMatch(/^! no drain for 10m( \d+s)?: \d+ jobs are due/);
      expect(shown).toMatch(new RegExp(`^! 1 id without a payload[\\s\\S]*^${queue.name}$`, 'm'));
      const wanted = rows < 20 ? ['pending', `… delayq inspect ${queue.name} | less`] : ['dead', 'config', 'totals'];
      for (const word of wanted) expect(shown).toContain(word);
    }
  });

  it('tells the end of a pause as a time, and a pause that is over as such', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    await delayq(['pause', '-q', queue.name]);
    const config = async () => /^ {2}config +(.*)$/m.exec((await delayq(['inspect', queue.name])).stdout)?.[1];
    expect(await config()).toBe('paused until resumed');
    await delayq(['pause', '-q', '--for', '10m', queue.name]);
    expect(await config()).toMatch(/^paused until (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d$/);
    await admin.hset(key(queue.name, 'config'), 'layout', '1 0/1 uses settings', 'paused', '5');
    expect(await config()).toBe('paused no longer');
  });

  it('in a pipe charts are as wide as COLUMNS says', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, in: '1h' });
    const widest = async (COLUMNS?: string) => {
      const { stdout } = await delayq(['inspect', queue.name], { env: { COLUMNS } });
      return Math.max(...linesOf(stdout).map(columns));
    };
    expect(await widest()).toBeLessThanOrEqual(80);
    expect(await widest('200')).toBeGreaterThan(120);
    expect(await widest('none')).toBeLessThanOrEqual(80);
  });
});

describe('delayq inspect', () => {
  it('explains every column of its table in its help', async () => {
    const { stdout } = await delayq(['inspect', '--help']);
    for (const word of [
      'due',
      'lag',
      '↑',
      'drained',
      'in, done',
      'failed',
      'empty in',
      'next',
      'active',
      'run out',
      'dead',
    ])
      expect(stdout.split('--help  ')[1]).toContain(word);
  });

  it('with --json writes one document', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, at: 1_000 },
      { payload: 2, in: '1h', id: 'later' },
    ]);
    await admin.zadd(key(queue.name, 'pending'), 2_000, 'ghost');
    const document = JSON.parse((await delayq(['inspect', '--json', queue.name])).stdout);
    expect(document).toMatchObject({ schema: 1, prefix: 'delayq', redis: expect.stringMatching(/^(unix|redis):/) });
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
    const { code, stdout } = await delayq(['inspect', '--json', '--prefix', prefix]);
    expect({ code, ...JSON.parse(stdout) }).toMatchObject({
      code: 1,
      queues: [{ queue: 'good' }],
      unreadable: [{ queue: 'bad', error: expect.stringContaining(`${prefix}:{bad}:stats`) }],
    });
    expect(await onTerminal(`delayq inspect --prefix ${prefix}`, { NO_COLOR: '1' })).toMatch(
      /^! bad: cannot be read: .*\{bad\}:stats[\s\S]*^good /m,
    );
  });

  it.each(['', 'my queue', 'zürich', '\x1b[31mred'])(
    'shows the others when the list has %j, which names no queue',
    async (bad) => {
      const prefix = freshName();
      await delayq(['--prefix', prefix, 'enqueue', 'good', '1']);
      await admin.sadd(`${prefix}:queues`, bad);
      const { code, stdout, stderr } = await delayq(['inspect', '--prefix', prefix]);
      expect({ code, stderr }).toEqual({ code: 1, stderr: '' });
      expect(stdout).toMatch(/^! .*: cannot be read: .*begins with a letter, a digit[\s\S]*^good /m);
      expect(stdout).not.toContain('\x1b');
    },
  );

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
    const [first, second, head, ...rows] = linesOf(plain).map((line) => line.trim().split(/ {2,}/));
    expect(first).toEqual([expect.stringMatching(/^! order-close: never drained: 1 job is due, the oldest for \d+d/)]);
    expect(head).toEqual(['queue', 'pending', 'due', 'lag', 'drained', 'in', 'done', 'next', 'active', 'dead']);
    expect(rows[0]?.slice(0, 3)).toEqual(['order-close', '1', '1']);
    expect(rows[0]?.[3]).toMatch(/^\d+d$|^\d+d \d+h$/);
    expect(rows[1]).toEqual(['remind', '1', '0', '–', 'never', '–', '–', expect.stringMatching(/^59m/), '0', '0']);
    expect(second).toEqual(['! order-close: 1 id without a payload (orphan), perhaps among the dead']);
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
    const shown = await onTerminal(`delayq inspect ${name}`, { NO_COLOR: '1', COLUMNS: '120' });
    expect(shown).not.toContain(ESCAPE);
    expect(shown).not.toMatch(/\u202e|\u2028|^forged/m);
    expect(shown).toContain('evil\\x1b[2J\\x09forged  row\\u{202e}');
  });

  it('of one queue shows the counts, the totals, and the next due times', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2, in: '1h', id: 'later' }]);
    await queue.drain();
    const shown = await onTerminal(`delayq inspect --tz Europe/Berlin ${queue.name}`, { NO_COLOR: '1' });
    expect(shown).toMatch(/pending +1, none due/);
    expect(shown).toMatch(/active +1\n/);
    expect(shown).toMatch(/totals +delivered 1, enqueued 2/);
    expect(shown).toMatch(/next due +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0[12]:00 +in 59m \d+s +later/);
  });

  it('on an empty server says how to begin', async () => {
    const prefix = freshName();
    const shown = (await delayq(['inspect', '--prefix', prefix])).stdout;
    expect(shown).toContain('delayq enqueue --in 15m');
    // Or where it is that nothing was found, and what else there may be.
    expect(shown).toMatch(new RegExp(`^No queues at (unix|redis):.* with the prefix ${prefix} yet`));
    expect(shown).toContain('delayq doctor');
    const { stdout } = await delayq(['inspect', '--json', '--prefix', freshName()]);
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
    const [queue] = JSON.parse((await delayq(['inspect', '--json', '--prefix', prefix])).stdout).queues;
    expect(queue).toMatchObject({ stalled: true, paused: null });
    // Who has paused a queue wants no drain; what then waits is told with that.
    await admin.hset(`${prefix}:{order-close}:config`, 'layout', '1 0/1 uses settings', 'paused', 'inf');
    const shown = await onTerminal(`delayq inspect --prefix ${prefix} order-close`, { NO_COLOR: '1' });
    expect(shown).toMatch(/^! paused until resumed: 1 job is due, the oldest for 1h/);
    const paused = JSON.parse((await delayq(['inspect', '--json', '--prefix', prefix])).stdout).queues[0];
    expect(paused).toMatchObject({ stalled: false, paused: { until: null } });
    await admin.hset(`${prefix}:{order-close}:config`, 'layout', '1 0/1 uses settings', 'paused', Date.now() + 600_000);
    expect(await onTerminal(`delayq inspect --prefix ${prefix} order-close`, { NO_COLOR: '1' })).toMatch(
      /^! paused until \d\d:\d\d:\d\d: 1 job/,
    );
    await admin.hset(`${prefix}:{order-close}:config`, 'layout', '1 0/1 uses settings', 'paused', '1');
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
    expect(shown).toMatch(/^! no drain for 10m( \d+s)?: 1 lease has expired/);
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
    const [{ trend }] = JSON.parse((await delayq(['inspect', '--json', queue.name])).stdout).queues;
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
    expect(shown).toMatch(/rates +in (2|1\.\d)\/s, done (3|2\.\d)\/s over the last 5m/);
  });

  it('of handlers that do nothing but fail says so at once, with their errors', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 12 }, (_, i) => ({ payload: i, tries: 2 })));
    const { jobs } = await queue.drain();
    const errorOf = (i: number) => (i < 9 ? `exit status 1: connect ECONNREFUSED 10.0.0.${i}:80` : 'timeout');
    await queue.nack(
      jobs.map((job, i) => ({ ...job, error: errorOf(i) })),
      { backoff: [600_000] },
    );
    await timePasses(queue.name, 1_000);
    const { stdout } = await delayq(['inspect', queue.name]);
    expect(stdout).toMatch(
      /^! 12 failed, none done for 1\S*: exit status 1: connect ECONNREFUSED … \(9\), timeout \(3\)$/m,
    );
    expect(stdout).toMatch(/^ {2}last error +.* ago, [^ ]+: timeout$/m);
    expect((await delayq(['inspect'])).stdout).toContain(`! ${queue.name}: 12 failed, none done for`);
    const [found] = JSON.parse((await delayq(['inspect', '--json', queue.name])).stdout).queues;
    expect(found.failures).toMatchObject({ inARow: 12, error: 'timeout', kinds: [{ count: 9 }, { count: 3 }] });
  });

  it('tells how long handlers take, in programs and in processes', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 20 }, (_, i) => ({ payload: i })));
    expect((await delayq(['inspect', queue.name])).stdout).not.toMatch(/p50/);
    await new Worker(queue, () => {}, { watch: false }).run();
    await queue.enqueue({ payload: 0 });
    await delayq(['drain', queue.name, '--', 'sleep', '0.3']);
    const { stdout } = await delayq(['inspect', queue.name]);
    expect(stdout).toMatch(/^ {2}handlers +p50 \dms, p99 (2|3|4|5)\d\dms$/m);
    const [{ durations }] = JSON.parse((await delayq(['inspect', '--json', queue.name])).stdout).queues;
    expect(durations.buckets.reduce((total: number, { count }: { count: number }) => total + count, 0)).toBe(21);
    expect((await delayq(['metrics', queue.name])).stdout).toMatch(
      /^delayq_handler_duration_seconds_bucket\{.*le="\+Inf"\} 21$/m,
    );
  });

  it('of one queue tells how many jobs fall due when in the coming hour and day', async () => {
    const queue = freshQueue();
    const minutes = [-1, 1, 4, 7, 58, 90, 23 * 60, 30 * 60];
    await queue.enqueue(minutes.map((m) => ({ payload: m, at: Date.now() + m * 60_000 })));
    const [{ ahead, now }] = JSON.parse((await delayq(['inspect', '--json', queue.name])).stdout).queues;
    const counts = (spans: { count: number }[]) => spans.map(({ count }) => count);
    expect(counts(ahead.hour)).toEqual([2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    expect(counts(ahead.day)).toEqual([4, 1, ...Array(20).fill(0), 1, 0]);
    expect(ahead.hour[1]).toEqual({ from: now + 300_000, to: now + 600_000, count: 1 });
    expect(ahead.day[0]).toMatchObject({ from: now, to: now + 3_600_000 });
    expect(ahead.day[23]).toMatchObject({ from: now + 23 * 3_600_000, to: now + 24 * 3_600_000 });
    const shown = await onTerminal(`delayq inspect ${queue.name}`, { NO_COLOR: '1' });
    expect(shown).toContain('due in the next hour: 4 jobs, up to 2 in 5 minutes');
    expect(shown).toMatch(/^ {2}█████ ▄▄▄▄▄ _____ (_____ ){8}▄▄▄▄▄$/m);
    expect(shown).toContain('due in the next day: 6 jobs, up to 4 in an hour');
    for (const line of linesOf(shown)) expect(line.length).toBeLessThanOrEqual(80);
  });

  it('of one queue counts what is stored for its jobs, as --json does', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2, tries: 3 }, { payload: 3 }]);
    await queue.drain({ limit: 1 });
    expect((await delayq(['inspect', queue.name])).stdout).toMatch(/^ {2}stored +3 payloads, 1 lease, 1 record$/m);
  });

  it('of one queue tells who holds leases, and since when', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 4 }, (_, i) => ({ payload: i, id: `j${i}` })));
    const { jobs } = await queue.drain({ limit: 3 });
    const since = Date.now() - 120_000;
    await admin.hset(key(queue.name, 'lease'), 'j0', `r 1 ${since} web-1:312`, 'j1', `r 1 ${since} move:other`);
    await admin.zadd(key(queue.name, 'active'), 'inf', 'j1');
    const [found] = JSON.parse((await delayq(['inspect', '--json', queue.name])).stdout).queues;
    expect(found.holdersSeen).toBe(jobs.length);
    expect(found.holders).toEqual(
      expect.arrayContaining([{ by: 'web-1:312', jobs: 1, since, ends: expect.any(Number) }]),
    );
    const shown = await onTerminal(`delayq inspect --tz UTC ${queue.name}`, { NO_COLOR: '1' });
    expect(shown).toMatch(/^ +web-1:312: 1 job since .*\(\dm( \d+s)?\), first lease expires in\s+\d+s$/m);
    expect(shown).toMatch(/^ +moving to other: 1 job since .*, until the move is\s+done$/m);
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

  it('with --watch prints a look each second into a pipe, each with its time', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const running = begin(['inspect', '--watch', queue.name]);
    await until(() => (running.stdout.match(/^\d\d:\d\d:\d\d {2}(unix|redis):/gm) ?? []).length >= 2);
    running.child.kill('SIGINT');
    const { stdout } = await running.ended;
    expect(stdout.match(new RegExp(`^${queue.name}$`, 'gm'))?.length).toBeGreaterThanOrEqual(2);
    expect(stdout).not.toContain(ESCAPE);
  });

  it('with --watch goes on, with rates, until it is stopped', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const running = begin(['inspect', '--json', '--watch', queue.name]);
    await until(() => linesOf(running.stdout).length >= 2);
    running.child.kill('SIGINT');
    const { code, stdout, stderr } = await running.ended;
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const [first, second] = linesOf(stdout).map((line) => JSON.parse(line).queues[0].ratePerSecond);
    expect(first).toBe(null);
    expect(second).toEqual({ in: 0, out: 0 });
  });
});
