import { describe, expect, it } from 'vitest';
import { columns } from '../../../src/cli/terminal/output.js';
import { type Id, Inspector } from '../../../src/internal.js';
import { delayq, linesOf, onTerminal, sh } from '../../support/cli.js';
import { idsOf, listed, upTo, withDead, withShops } from '../../support/jobs.js';
import { admin, connection, freshName, freshQueue, key } from '../../support/redis.js';

const inspector = new Inspector(connection);

/** What a terminal of 80 columns shows. */
const onNarrow = (line: string) => onTerminal(line, { columns: 80 });

describe('delayq list', () => {
  it('with --json writes a line for each job, dead ones first, payloads byte for byte', async () => {
    const queue = await withDead(2);
    await queue.enqueue({ payload: 'held', id: 'a' });
    await queue.drain({ limit: 1 });
    await admin
      .multi()
      .hset(key(queue.name, 'payload'), 'p', '{"big":12345678901234567890, "x":1}')
      .zadd(key(queue.name, 'pending'), 5, 'p')
      .exec();
    const { code, stdout, stderr } = await delayq(['list', '--json', queue.name]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const lines = linesOf(stdout);
    expect(idsOf(stdout)).toEqual(['d0', 'd1', 'a', 'p']);
    expect(lines[3]).toContain('"payload":{"big":12345678901234567890, "x":1}}');
    expect(JSON.parse(lines[0] ?? '')).toEqual({
      queue: queue.name,
      id: 'd0',
      state: 'dead',
      due: 1_000,
      died: 10_000,
      reason: 'refused',
      attempts: 1,
      failures: 1,
      losses: 0,
      releases: 0,
      error: 'exit 65: no such order\nreally',
      failed: expect.any(Number),
      tries: 7,
      maxLost: null,
      deliveries: null,
      ttl: null,
      onceFor: null,
      expires: null,
      created: null,
      leasedBy: null,
      leasedAt: null,
      leaseEnds: null,
      payload: { n: 0 },
    });
    expect(JSON.parse(lines[2] ?? '')).toMatchObject({
      state: 'active',
      attempts: 1,
      leasedBy: expect.stringMatching(/:\d+$/),
    });
  });

  it('lists the states asked for, at most -n jobs', async () => {
    const queue = await withDead(3);
    await queue.enqueue({ payload: 1, id: 'p' });
    expect(idsOf((await delayq(['list', '--json', '--dead', '-n', '2', queue.name])).stdout)).toEqual(['d0', 'd1']);
    expect(idsOf((await delayq(['list', '--json', '--pending', queue.name])).stdout)).toEqual(['p']);
    expect(idsOf((await delayq(['list', '--json', '--active', queue.name])).stdout)).toEqual([]);
    expect(idsOf((await delayq(['list', '--json', '-n', '4', queue.name])).stdout)).toEqual(['d0', 'd1', 'd2', 'p']);
  });

  it('shows a table on a terminal, long payloads and errors cut, nothing obeyed (failures 30)', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: `\u001b[31m${'x'.repeat(300)}\u202e`, id: 'a', tries: 1 });
    await queue.nack((await queue.drain()).jobs, { error: '\u001b]0;title\u0007 second\nline' });
    const text = await onTerminal(`delayq list ${queue.name}`);
    for (const obeyed of ['\u001b', '\u0007', '\u202e']) expect(text).not.toContain(obeyed);
    const [head, row, ...rest] = linesOf(text);
    expect(rest).toEqual([]);
    expect(head).toMatch(/^id +state +since or due +attempts +why +payload$/);
    expect(row).toMatch(/^a +dead +.* ago +1 +\\x1b\]0;title\\x07 second +"\\u001b\[31mx+…$/);
    expect(await onTerminal(`delayq list --full ${queue.name}`)).toContain('x'.repeat(100));
  });

  it('of a queue without such jobs says so, but not to a program', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const ended = { code: 0, signal: null, stdout: '' };
    const stderr = `delayq: ${queue.name} has no dead jobs\n`;
    expect(await delayq(['list', '--dead', queue.name])).toEqual({ ...ended, stderr });
    for (const form of ['--json', '--ids'])
      expect(await delayq(['list', form, '--dead', queue.name])).toEqual({ ...ended, stderr: '' });
  });

  it('prints in a pipe what a terminal shows, but all rows, whole ids and no colour', async () => {
    const queue = await withDead(1);
    const long = `long-${'y'.repeat(200)}`;
    await queue.enqueue([
      { payload: 'x'.repeat(300), id: 'a' },
      { payload: 1, id: long, in: '1h' },
      ...upTo(300).map((n) => ({ payload: n, in: '2h' })),
    ]);
    const { stdout, stderr } = await sh(`delayq list ${queue.name} | cat`);
    const lines = linesOf(stdout);
    expect({ lines: lines.length, stderr }).toEqual({ lines: 1 + 303, stderr: '' });
    expect(stdout).not.toContain('\x1b');
    const [head, dead, , whole] = lines;
    expect(head).toMatch(/^id +state +since or due +attempts +why +payload$/);
    expect(dead).toMatch(/^d0 +dead +.* ago +1 +exit 65: no.* +\{"n":0\}$/);
    expect(whole?.split(' ')[0]).toBe(long);
    for (const line of lines.filter((line) => line !== whole)) expect(columns(line)).toBeLessThanOrEqual(130);
    expect((await delayq(['list', '--full', queue.name])).stdout).toContain('x'.repeat(300));
    // The same size as the terminal: the same rows.
    const shown = linesOf(await onTerminal(`delayq list -n 2 ${queue.name}`, { columns: 90 }));
    const piped = linesOf((await delayq(['list', '-n', '2', queue.name], { env: { COLUMNS: '90' } })).stdout);
    const still = (line: string) => line.replace(/ *[\d.]+m?[dhms].* (ago|late)/, 'a while');
    expect(piped.map(still)).toEqual(shown.map(still));
  });

  it('with --ids prints ids alone, for another command', async () => {
    const queue = await withDead(3);
    await queue.enqueue({ payload: 1, id: 'p' });
    await admin.zadd(key(queue.name, 'pending'), Date.now() + 1_000, Buffer.from([0xff, 0xfe]));
    const { stdout, stderr } = await delayq(['list', '--ids', queue.name]);
    expect({ ids: linesOf(stdout), stderr }).toEqual({ ids: ['d0', 'd1', 'd2', 'p', 'base64://4='], stderr: '' });
    expect(linesOf((await delayq(['list', '--ids', '--grep', 'd1', queue.name])).stdout)).toEqual(['d1']);
    expect(linesOf((await delayq(['list', '--ids', '-n', '2', queue.name])).stdout)).toEqual(['d0', 'd1']);
    const line = `delayq list --ids --dead ${queue.name} | delayq cancel ${queue.name} -`;
    expect((await sh(line)).stderr).toContain('3 jobs cancelled');
    expect(await delayq(['list', '--ids', '--json', queue.name])).toMatchObject({ code: 64, stdout: '' });
  });

  it('of 20,000 jobs with one due time lists each once, and ends when nobody reads on', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(20_000).map((n) => ({ payload: n, at: 4_000_000_000_000 })));
    const { stdout } = await delayq(['list', '--json', queue.name]);
    expect(new Set(idsOf(stdout)).size).toBe(20_000);
    const { stdout: first, stderr } = await sh(`{ delayq list ${queue.name}; echo "ended with $?" >&2; } | head -1`);
    expect({ lines: linesOf(first).length, stderr }).toEqual({ lines: 1, stderr: 'ended with 0\n' });
  });

  it('misses nothing that stays while the jobs before it go', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(1_000).map((n) => ({ payload: n, id: `j${n}`, at: 1_000 + Math.floor(n / 400) })));
    const seen: Id[] = [];
    for await (const ids of inspector.ids(queue.name, { states: ['pending'] })) {
      seen.push(...ids);
      await admin.zrem(key(queue.name, 'pending'), ...(ids as string[]));
    }
    expect(new Set(seen).size).toBe(1_000);
    expect(seen).toHaveLength(1_000);
  });

  it('of ids that are no text, and of times without end, comes to its end', async () => {
    const name = freshName();
    const ids = [
      ['1', Buffer.from([0xff, 0xfe])],
      ['inf', 'never'],
      ['1e300', 'late'],
      ['-inf', 'early'],
    ] as const;
    for (const [score, id] of ids) await admin.zadd(key(name, 'pending'), score, id as string);
    await admin.hset(key(name, 'payload'), 'never', '1', 'late', '2', 'early', '3');
    expect(new Set(idsOf((await delayq(['list', '--json', name])).stdout))).toEqual(
      new Set(['never', 'late', 'early', 'base64://4=']),
    );
    const text = await onTerminal(`delayq list ${name}; delayq show ${name} never; delayq show ${name} late`);
    expect(text).toMatch(/never +pending +never[\s\S]*never +pending/);
    expect(text).not.toContain('delayq itself failed');
  });

  it('of an id that is no text, between others of the same time, comes to its end, and so does an act', async () => {
    const name = freshName();
    const odd = Buffer.from([0xff, 0xfe]);
    for (const id of ['a', odd, 'ü']) {
      await admin.zadd(key(name, 'pending'), 5, id as string);
      await admin.hset(key(name, 'payload'), new Map([[id, '1']]) as never);
    }
    const seen: Id[] = [];
    for await (const ids of inspector.ids(name, { states: ['pending'] })) {
      seen.push(...ids);
      if (seen.length > 3) break;
    }
    expect(seen).toEqual(['a', 'ü', odd]);
    const { code, stderr } = await delayq(['reschedule', '--in', '1h', '--all', '--yes', name]);
    expect({ code, stderr }).toMatchObject({ code: 0, stderr: expect.stringContaining('3 jobs rescheduled') });
  });

  it('obeys nothing on a terminal as JSON either, and says the same (failures 30)', async () => {
    const queue = freshQueue();
    const payload = '\u009b31mred\u202e\u{e0001}\u2028';
    await queue.enqueue({ payload, id: 'a' });
    for (const command of [`list --json ${queue.name}`, `show --json ${queue.name} a`]) {
      const text = await onTerminal(`delayq ${command}`);
      for (const obeyed of ['\u009b', '\u202e', '\u{e0001}', '\u2028']) expect(text).not.toContain(obeyed);
      expect(JSON.parse(text).payload).toBe(payload);
    }
  });

  it.each(['list', 'show', 'requeue'])('(%s) of an unknown queue exits 3', async (command) => {
    const args = { list: [], show: ['x'], requeue: ['x'] }[command] as string[];
    expect(await delayq([command, freshName(), ...args])).toMatchObject({
      code: 3,
      stdout: '',
      stderr: expect.stringContaining('there is no queue'),
    });
  });

  it('lists what is overdue, or due from one time to another', async () => {
    const { name } = await withShops();
    expect(await listed('--overdue', name)).toEqual(['p0']);
    expect(await listed('--pending', '--from', '+15m', '--to', '+90m', name)).toEqual(['p1']);
    expect(await listed('--pending', '--from', '-2h', '--to', 'now', name)).toEqual(['p0']);
    expect(await listed('--from', '+90m', name)).toEqual(['p2']);
    // Overdue ends at now, whatever --to says.
    expect(await listed('--overdue', '--to', '+3h', name)).toEqual(['p0']);
    expect(await listed('--overdue', '--to', '-1h', name)).toEqual([]);
  });

  it("takes a time of day for today's in the zone", async () => {
    const queue = freshQueue();
    // Half past midnight and half past twelve of today in a zone far from here.
    const zone = 'Pacific/Auckland';
    const today = new Intl.DateTimeFormat('sv-SE', { timeZone: zone }).format(await connection.now());
    for (const [id, at] of [['night', '00:30'] as const, ['noon', '12:30'] as const])
      await delayq(['enqueue', '--tz', zone, '--at', `${today} ${at}`, '--id', id, queue.name, '1']);
    expect(await listed('--tz', zone, '--from', '0:15', '--to', '00:45', queue.name)).toEqual(['night']);
    expect(await listed('--tz', zone, '--from', '12:00', '--to', '13:00', queue.name)).toEqual(['noon']);
  });

  it('finds text as it is in id, payload and last error', async () => {
    const { name } = await withShops();
    expect(await listed('--grep', '"shop":7', name)).toEqual(['p0', 'p2']);
    expect(await listed('--grep', 'no such', name)).toEqual(['d']);
    expect(await listed('--grep', 'p1', name)).toEqual(['p1']);
    expect(await listed('--grep', '"shop":.', name)).toEqual([]);
    expect(await listed('--grep', '"shop":7', '-n', '1', name)).toEqual(['p0']);
  });

  it.each([
    [['--from', '+2h', '--to', '+1h'], 'swap them'],
    [['--grep', ''], '--grep needs a text'],
    [['--error', ''], '--error needs a text'],
    [['--from', '2h'], 'not a time'],
    [['--from', '-2'], 'no unit'],
    [['-n', '0'], 'not a count'],
  ])('with %j is refused', async (args, message) => {
    const { name } = await withShops();
    expect(await delayq(['list', ...(args as string[]), name])).toMatchObject({
      code: 64,
      stdout: '',
      stderr: expect.stringContaining(message as string),
    });
  });
});

describe('delayq list on a terminal', () => {
  it('shows as many jobs as fit, says how many it left out, and shows as many as -n says', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(500).map((n) => ({ payload: n, in: '1h' })));
    const rowsOf = (text: string) => linesOf(text).filter((line) => / pending /.test(line)).length;
    const shown = await onTerminal(`delayq list ${queue.name}`, { columns: 80, rows: 24 });
    expect(rowsOf(shown)).toBe(20);
    expect(linesOf(shown).at(-1)).toBe('delayq: not shown: 480 more jobs; use -n N, or pipe the list to less');
    expect(await onTerminal(`delayq list --grep 1 ${queue.name}`)).toContain('not shown: more jobs;');
    const more = await onTerminal(`delayq list -n 30 ${queue.name}`);
    expect(rowsOf(more)).toBe(30);
    expect(more).not.toContain('not shown');
    for (const form of ['--json', '--ids'])
      expect(linesOf(await onTerminal(`delayq list ${form} ${queue.name}`))).toHaveLength(500);
  });

  it('keeps to its columns, however wide the characters are (failures 30)', async () => {
    const queue = freshQueue();
    const payloads = [
      '注文'.repeat(60),
      '🫠'.repeat(90),
      'e\u0301'.repeat(200),
      `\x1b[2J\u202e${'x'.repeat(99)}`,
      'short',
    ];
    await queue.enqueue([
      ...payloads.map((payload, i) => ({ payload, id: `job-${i}`, at: Date.now() + 1_000 * i })),
      { payload: 1, id: `long-${'y'.repeat(200)}`, in: '1h' },
    ]);
    await admin.zadd(key(queue.name, 'dead'), Date.now(), 'コンビニ');
    const shown = await onNarrow(`delayq list ${queue.name}`);
    const lines = linesOf(shown);
    expect(lines).toHaveLength(8);
    for (const line of lines) expect(columns(line)).toBeLessThanOrEqual(80);
    expect(shown).toMatch(/"注文(注文)*注?…$/m);
    expect(shown).toMatch(/"(🫠)+…$/mu);
    expect(shown).toMatch(/^long-y+… /m);
    for (const raw of ['\x1b', '\u202e']) expect(shown).not.toContain(raw);
    // Payloads begin at the same column in every row.
    const places = lines.filter((line) => /"/.test(line)).map((line) => columns(line.slice(0, line.indexOf('"'))));
    expect(new Set(places).size).toBe(1);
    expect(await onNarrow(`delayq list --full ${queue.name}`)).toContain(`long-${'y'.repeat(200)}`);
  });
});

describe('delayq list of failed jobs', () => {
  /** A queue with 30 jobs that wait for another try, three dead ones and one new one; two kinds of errors. */
  async function failedQueue(): Promise<string> {
    const queue = freshQueue();
    await queue.enqueue(upTo(33).map((n) => ({ payload: n, id: `j${n}` })));
    const { jobs } = await queue.drain({ limit: 33 });
    const failed = jobs.map((job, n) => ({
      ...job,
      delayMs: 3_600_000,
      error: n % 3 === 0 ? `no such order: ${n}\x1b[2J` : `connect ECONNREFUSED 10.0.0.${n}:5432`,
    }));
    await queue.nack(failed.slice(3));
    await queue.nack(failed.slice(0, 3), { mode: 'dead' });
    await queue.enqueue({ payload: 'new', id: 'new' });
    return queue.name;
  }

  it('with --failed shows those that wait for another try, when they failed, and how many tries are left', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, id: 'a' },
      { payload: 2, id: 'b', tries: 3 },
      { payload: 3, id: 'c', deliveries: 2 },
      { payload: 4, id: 'new', in: '1h' },
    ]);
    await admin.hset(key(queue.name, 'meta'), 'a', '{"failures":2,"losses":1,"failed":1000,"error":"no\\nstack"}');
    await queue.nack((await queue.drain()).jobs.map((job) => ({ ...job, delayMs: 3_600_000, error: 'timeout' })));
    const { stdout, stderr } = await delayq(['list', '--failed', queue.name]);
    const [head, ...rows] = linesOf(stdout);
    expect({ head, stderr }).toEqual({
      head: expect.stringMatching(/^id +when +failed +tries +why +payload$/),
      stderr: '',
    });
    expect(rows.sort()).toEqual([
      expect.stringMatching(/^a +in .* ago +3 of 5, 1 lost +timeout +1$/),
      expect.stringMatching(/^b +in .* ago +1 of 3 +timeout +2$/),
      expect.stringMatching(/^c +in .* ago +1 of 2 +timeout +3$/),
    ]);
    await delayq(['config', queue.name, 'tries=9']);
    const json = linesOf((await delayq(['list', '--failed', '--json', queue.name])).stdout).map((line) =>
      JSON.parse(line),
    );
    expect(Object.fromEntries(json.map(({ id, triesLeft }) => [id, triesLeft]))).toEqual({ a: 6, b: 2, c: 1 });
    expect(linesOf((await delayq(['list', '--failed', '--ids', '-n', '1', queue.name])).stdout)).toHaveLength(1);
  });

  it('with --failed of a queue whose jobs never failed says so', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const ended = { code: 0, signal: null, stdout: '' };
    expect(await delayq(['list', '--failed', queue.name])).toEqual({
      ...ended,
      stderr: `delayq: ${queue.name} has no such jobs\n`,
    });
    expect(await delayq(['list', '--errors', queue.name])).toEqual({
      ...ended,
      stderr: `delayq: ${queue.name} has no pending or dead job that failed\n`,
    });
    expect(await delayq(['list', '--errors', '--json', queue.name])).toEqual({ ...ended, stderr: '' });
  });

  it('with --errors counts jobs by the kinds of their errors, on 80 columns, nothing obeyed (failures 30)', async () => {
    const name = await failedQueue();
    const text = await onNarrow(`delayq list --errors ${name}`);
    for (const line of linesOf(text)) expect(columns(line)).toBeLessThanOrEqual(80);
    expect(text).not.toContain('\x1b');
    const [head, first, ids, second] = linesOf(text);
    expect(head).toMatch(/^waiting +dead +first +last +error$/);
    expect(first).toMatch(/^ +20 +2 .* ago .* ago +connect ECONNREFUSED …$/);
    expect(ids).toMatch(/^ +j\d+ j\d+ j\d+$/);
    expect(second).toMatch(/^ +10 +1 .* ago +no such order: … \[…J$/);
    const { stdout } = await delayq(['list', '--errors', '--json', name]);
    expect(linesOf(stdout).map((line) => JSON.parse(line))).toEqual([
      {
        queue: name,
        kind: 'connect ECONNREFUSED …',
        waiting: 20,
        dead: 2,
        first: expect.any(Number),
        last: expect.any(Number),
        samples: [expect.any(String), expect.any(String), expect.any(String)],
      },
      expect.objectContaining({ kind: 'no such order: … […J', waiting: 10, dead: 1 }),
    ]);
    expect(linesOf((await delayq(['list', '--errors', '--json', '-n', '1', name])).stdout)).toHaveLength(1);
  });

  it('with --errors shows as many as fit on a terminal, and finds each by its error, cut or whole', async () => {
    const queue = freshQueue();
    const words = ['alpha', 'beta', 'gamma', 'delta', 'epsilon'];
    await queue.enqueue(words.map((payload) => ({ payload, id: payload })));
    const failed = (await queue.drain({ limit: 9 })).jobs.map((job) => {
      const word = JSON.parse(job.payload.toString());
      return { ...job, delayMs: 3_600_000, error: `${word}\u202e "7 of 8": ${'long text '.repeat(100)}` };
    });
    await queue.nack(failed);
    const text = await onTerminal(`delayq list --errors ${queue.name}`, { columns: 80, rows: 10 });
    expect(linesOf(text).at(-1)).toBe('delayq: not shown: 2 more errors; use -n N, or pipe the list to less');
    for (const width of ['80', '200']) {
      const { stdout } = await delayq(['list', '--errors', queue.name], { env: { COLUMNS: width } });
      const shown = linesOf(stdout).flatMap((line) => /ago +\S+ ago +(.*)/.exec(line)?.[1] ?? []);
      expect(shown).toHaveLength(words.length);
      for (const error of shown) {
        const ids = await listed('--error', error, queue.name);
        expect(ids).toEqual([error.split(' ')[0]]);
      }
    }
  });

  it.each([
    [['--errors', '--dead'], 'cannot be used with'],
    [['--errors', '--failed'], 'cannot be used with'],
    [['--errors', '--grep', 'x'], 'cannot be used with'],
    [['--errors', '--ids'], 'cannot be used with'],
  ])('with %j is refused', async (args, message) => {
    expect(await delayq(['list', ...(args as string[]), 'q'])).toMatchObject({
      code: 64,
      stdout: '',
      stderr: expect.stringContaining(message as string),
    });
  });

  it.each([1, 4])('cancels the jobs of one error, as previewed, of a queue with %i partitions', async (parts) => {
    const queue = freshQueue();
    await queue.enqueue(upTo(14).map((n) => ({ payload: n, id: `j${n}` })));
    const errorOf = (n: number) => (n < 9 ? 'exit 12' : n < 12 ? 'exit 1' : 'exit 1: no such order');
    const { jobs } = await queue.drain({ limit: 14 });
    const failed = jobs.map((job) => ({ ...job, error: errorOf(Number(job.payload)) }));
    await queue.nack(failed, { mode: 'dead' });
    const { name } = queue;
    if (parts > 1) await delayq(['config', name, `partitions=${parts}`]);
    const words = ['cancel', '--dead', '--error', 'exit 1', name];
    const dry = await delayq([...words, '--dry-run']);
    expect(dry.stderr).toContain(`3 jobs would be cancelled in ${name}`);
    for (const shown of dry.stderr.match(/\bj\d+\b/g) ?? []) expect(['j9', 'j10', 'j11']).toContain(shown);
    expect((await delayq([...words, '--yes'])).stderr).toBe(`delayq: 3 jobs cancelled in ${name}\n`);
    expect(await listed('--dead', name)).toHaveLength(11);
    expect(await listed('--dead', '--error', 'exit 12', name)).toHaveLength(9);
    expect(await listed('--error', 'no such', name)).toHaveLength(2);
    expect(linesOf((await delayq(['export', '--error', 'exit 1: no…', name])).stdout)).toHaveLength(2);
  });

  it('lets a kind of errors be requeued, and the failed jobs rescheduled', async () => {
    const name = await failedQueue();
    const dry = await delayq(['requeue', '--error', 'connect ECONNREFUSED …', '--rate', '5/s', '--dry-run', name]);
    expect(dry.stderr).toContain(`2 jobs would be requeued in ${name}: due from now on, the last in 200ms`);
    const { stderr } = await delayq(['requeue', '--error', 'connect ECONNREFUSED …', '--yes', name]);
    expect(stderr).toBe(`delayq: 2 jobs requeued in ${name}\n`);
    expect(await listed('--dead', name)).toEqual(['j0']);
    const few = await delayq(['cancel', '--failed', '--error', 'ECONNREFUSED', '-n', '5', '--yes', name]);
    expect(few.stderr).toBe(`delayq: 5 jobs cancelled in ${name}\n`);
    // 20 waited, 5 are cancelled; the 2 that were requeued begin anew.
    expect(await listed('--failed', '--error', 'ECONNREFUSED', name)).toHaveLength(15);
    const into = freshName();
    await delayq(['move', '--error', 'no such order', '--into', into, '--yes', name]);
    expect(await listed(into)).toHaveLength(11);
    expect(linesOf((await delayq(['export', '--error', 'no such order', into])).stdout)).toHaveLength(11);
    expect(linesOf((await delayq(['export', '--failed', into])).stdout)).toHaveLength(10);
  });
});
