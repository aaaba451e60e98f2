import { describe, expect, it } from 'vitest';
import { type Id, Inspector, type Queue } from '../../../src/index.js';
import { begin, delayq, linesOf, onTerminal, sh } from '../../support/cli.js';
import { admin, connection, freshName, freshQueue, key } from '../../support/redis.js';
import { until } from '../../support/until.js';

const inspector = new Inspector(connection);
const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);

/** Lets jobs die, one after another, so that their order is known. */
async function withDead(n: number, queue: Queue = freshQueue()): Promise<Queue> {
  await queue.enqueue(upTo(n).map((i) => ({ payload: { n: i }, id: `d${i}`, at: 1_000 + i, tries: 7 })));
  for (const _ of upTo(n)) {
    await queue.nack((await queue.drain({ limit: 1 })).jobs, { mode: 'dead', error: 'exit 65: no such order\nreally' });
  }
  for (const i of upTo(n)) await admin.zadd(key(queue.name, 'dead'), 10_000 + i, `d${i}`);
  return queue;
}
const idsOf = (stdout: string) => linesOf(stdout).map((line) => JSON.parse(line).id as string);

describe('delayq list', () => {
  it('writes a JSON line for each job into a pipe, dead ones first, payloads byte for byte', async () => {
    const queue = await withDead(2);
    await queue.enqueue({ payload: 'held', id: 'a' });
    await queue.drain({ limit: 1 });
    await admin
      .multi()
      .hset(key(queue.name, 'payload'), 'p', '{"big":12345678901234567890, "x":1}')
      .zadd(key(queue.name, 'pending'), 5, 'p')
      .exec();
    const { code, stdout, stderr } = await delayq(['list', queue.name]);
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
      error: 'exit 65: no such order\nreally',
      failed: expect.any(Number),
      tries: 7,
      maxLost: null,
      ttl: null,
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
    expect(idsOf((await delayq(['list', '--dead', '-n', '2', queue.name])).stdout)).toEqual(['d0', 'd1']);
    expect(idsOf((await delayq(['list', '--pending', queue.name])).stdout)).toEqual(['p']);
    expect(idsOf((await delayq(['list', '--active', queue.name])).stdout)).toEqual([]);
    expect(idsOf((await delayq(['list', '-n', '4', queue.name])).stdout)).toEqual(['d0', 'd1', 'd2', 'p']);
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

  it('of a queue without such jobs says so on a terminal and nothing into a pipe', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    expect(await delayq(['list', '--dead', queue.name])).toEqual({ code: 0, signal: null, stdout: '', stderr: '' });
    expect(await onTerminal(`delayq list --dead ${queue.name}`)).toContain('has no dead jobs');
  });

  it('of 20,000 jobs with one due time lists each once, and ends when nobody reads on', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(20_000).map((n) => ({ payload: n, at: 4_000_000_000_000 })));
    const { stdout } = await delayq(['list', queue.name]);
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
    expect(new Set(idsOf((await delayq(['list', name])).stdout))).toEqual(
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
});

describe('delayq show', () => {
  it('writes all there is to know of a job as JSON into a pipe', async () => {
    const queue = await withDead(1);
    const { stdout } = await delayq(['show', queue.name, 'd0']);
    expect(JSON.parse(stdout)).toMatchObject({
      schema: 1,
      queue: queue.name,
      id: 'd0',
      state: 'dead',
      reason: 'refused',
      payload: { n: 0 },
    });
  });

  it('shows it in words on a terminal', async () => {
    const queue = await withDead(1);
    await queue.enqueue([
      { payload: 'waits', id: 'p', in: '1h' },
      { payload: 'held', id: 'a' },
    ]);
    await queue.drain();
    const dead = await onTerminal(`delayq show --tz UTC ${queue.name} d0`);
    expect(dead).toMatch(new RegExp(`^${queue.name} d0  dead\n`));
    expect(dead).toMatch(/died +1970-01-01 00:00:10 \+00:00 +\S+.* ago +refused by its handler\n/);
    expect(dead).toMatch(/attempts +1: 1 failure of 7, 0 losses of 20\n/);
    expect(dead).toMatch(/error +exit 65: no such order\n +really\n/);
    expect(dead).toMatch(/payload +7 bytes\n\{"n":0\}\n$/);
    expect(await onTerminal(`delayq show ${queue.name} p`)).toMatch(/pending\n +due .* in (1h|59m)/);
    expect(await onTerminal(`delayq show ${queue.name} a`)).toMatch(
      /active\n[\s\S]*held by +\S+:\d+ since [\s\S]*lease ends .* in (5\ds|1m)\n/,
    );
  });

  it('of a job that is not there exits 3', async () => {
    const queue = await withDead(1);
    expect(await delayq(['show', queue.name, 'x'])).toMatchObject({
      code: 3,
      stdout: '',
      stderr: expect.stringContaining('there is no job "x"'),
    });
  });

  it('of jobs whose record or lease other software has spoilt shows what can be read', async () => {
    const name = freshName();
    await admin
      .multi()
      .hset(key(name, 'payload'), 'a', 'no json', 'b', '1')
      .zadd(key(name, 'dead'), 'inf', 'a', 1.5, 'b', 3, 'ghost')
      .hset(key(name, 'meta'), 'a', 'no json', 'b', '{"failures":"2","losses":null,"error":7,"tries":[]}')
      .exec();
    const lines = linesOf((await delayq(['list', name])).stdout).map((line) => JSON.parse(line));
    expect(lines).toMatchObject([
      { id: 'b', died: 1, failures: 2, losses: 0, error: null, tries: null, payload: 1 },
      { id: 'ghost', payload: null },
      { id: 'a', died: expect.any(Number), payload: 'no json' },
    ]);
  });
});

describe('delayq requeue', () => {
  it('puts dead jobs back, due now, as if they had never been tried, with what they were enqueued with', async () => {
    const queue = await withDead(3);
    expect(await delayq(['requeue', queue.name, 'd0', 'd2'])).toMatchObject({
      code: 0,
      stdout: '',
      stderr: `delayq: 2 jobs requeued in ${queue.name}\n`,
    });
    const [job] = await inspector.show(queue.name, ['d0']);
    const now = await connection.now();
    expect(job).toMatchObject({ state: 'pending', failures: 0, tries: 7, error: undefined, reason: undefined });
    expect(now - (job?.due ?? 0)).toBeLessThan(60_000);
    expect(await queue.counts()).toMatchObject({ pending: 2, dead: 1, stats: { requeued: 2 } });
    const { jobs } = await queue.drain();
    expect(jobs).toMatchObject([{ attempt: 1 }, { attempt: 1 }]);
  });

  it('takes those that have been dead for longest, or all, or ids from stdin', async () => {
    const queue = await withDead(6);
    await delayq(['requeue', '-qy', '-n', '2', queue.name]);
    expect(idsOf((await delayq(['list', '--dead', queue.name])).stdout)).toEqual(['d2', 'd3', 'd4', 'd5']);
    await sh(
      `delayq list --dead -n 1 ${queue.name} | sed 's/.*"id":"\\([^"]*\\)".*/\\1/' | delayq requeue ${queue.name} -`,
    );
    expect(idsOf((await delayq(['list', '--dead', queue.name])).stdout)).toEqual(['d3', 'd4', 'd5']);
    const { stdout } = await delayq(['requeue', '--all', '--yes', '--json', queue.name]);
    expect(JSON.parse(stdout)).toEqual({
      schema: 1,
      queue: queue.name,
      requeued: 3,
      missing: 0,
      orphaned: 0,
      'bad-id': 0,
    });
    expect(await queue.counts()).toMatchObject({ pending: 6, dead: 0 });
  });

  it('requeues more than a call can take', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(1_100).map((n) => ({ payload: n })));
    for (let jobs = (await queue.drain()).jobs; jobs.length > 0; jobs = (await queue.drain()).jobs)
      await queue.nack(jobs, { mode: 'dead' });
    expect(await delayq(['requeue', '--all', '--yes', queue.name])).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('1,100 jobs'),
    });
    expect(await queue.counts()).toMatchObject({ pending: 1_100, dead: 0, meta: 0 });
  });

  it('says which ids are not among the dead, or have no payload, exit 1, and leaves them', async () => {
    const queue = await withDead(1);
    await admin.zadd(key(queue.name, 'dead'), 1, 'ghost');
    await queue.enqueue({ payload: 1, id: 'p', in: '1h' });
    const { code, stderr } = await delayq(['requeue', queue.name, 'p', 'ghost', 'd0']);
    expect(code).toBe(1);
    expect(linesOf(stderr)).toEqual([
      `delayq: p is not in the dead set of ${queue.name}`,
      'delayq: ghost has no payload and stays dead',
      `delayq: 1 job requeued in ${queue.name}`,
    ]);
    expect(await queue.counts()).toMatchObject({ pending: 2, dead: 1 });
    // One that stays does not keep --all from ending.
    expect(await delayq(['requeue', '--all', '--yes', queue.name])).toMatchObject({ code: 1 });
  });

  it('from stdin is ended by a signal, and goes past a line that is no text', async () => {
    const queue = await withDead(2);
    const { code, stderr } = await delayq(['requeue', queue.name, '-'], {
      input: Buffer.from('d0\n\xff\nd1\n', 'latin1'),
    });
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(/line 2: .*not valid UTF-8/) });
    expect(stderr).toContain('2 jobs requeued');
    const running = begin(['requeue', queue.name, '-']);
    running.child.stdin?.write('d0\n');
    await until(() => running.stderr.includes('d0 is not in the dead set'));
    running.child.kill('SIGINT');
    expect((await running.ended).code).toBe(130);
  });

  it.each([
    [['requeue', 'q'], 'no job is named'],
    [['requeue', '--all', 'q', 'x'], 'in two ways'],
    [['requeue', 'q', '-', 'x'], 'exclude each other'],
  ])('%j is refused', async (args, message) => {
    expect(await delayq(args as string[])).toMatchObject({
      code: 64,
      stderr: expect.stringContaining(message as string),
    });
  });
});

describe('delayq config', () => {
  it('sets defaults that hold for jobs and commands that say nothing else', async () => {
    const queue = freshQueue();
    const set = ['tries=2', 'backoff=0s,1h', 'lease=5m', 'maxLost=3', 'ttl=2d'];
    expect(await delayq(['config', queue.name, ...set])).toEqual({ code: 0, signal: null, stdout: '', stderr: '' });
    expect(await admin.hgetall(key(queue.name, 'config'))).toEqual({
      tries: '2',
      backoff: '0 3600000',
      lease: '300000',
      maxLost: '3',
      ttl: '172800000',
    });
    await queue.enqueue({ payload: 1, id: 'a' });
    const handler = ['--', 'sh', '-c', 'echo $DELAYQ_TRIES; exit 1'];
    expect(await delayq(['drain', '-q', queue.name, ...handler])).toMatchObject({ code: 0, stdout: '2\n' });
    expect((await queue.counts()).due).toBe(1);
    expect(await delayq(['drain', '-q', queue.name, ...handler])).toMatchObject({ code: 1 });
    expect((await queue.counts()).dead).toBe(1);
  });

  it('shows them: a document in a pipe, words on a terminal; name= removes one', async () => {
    const queue = freshQueue();
    await delayq(['config', queue.name, 'backoff=30s,1m30s', 'ttl=1h']);
    const { stdout } = await delayq(['config', queue.name]);
    const defaults = { schema: 1, queue: queue.name, tries: 5, maxLost: 20, lease: 60_000 };
    expect(JSON.parse(stdout)).toEqual({
      ...defaults,
      backoff: [30_000, 90_000],
      ttl: 3_600_000,
      set: ['backoff', 'ttl'],
    });
    const text = await onTerminal(`delayq config ${queue.name} ttl=`);
    expect(text).toMatch(/tries +5 +default/);
    expect(text).toMatch(/backoff +30s,1m30s +wait/);
    expect(text).toMatch(/ttl +none +default/);
    expect((await delayq(['inspect', '--json', queue.name])).code).toBe(0);
  });

  it('changes nothing when one of the settings is wrong', async () => {
    const queue = freshQueue();
    for (const bad of ['tries=0', 'speed=9', 'tries', 'lease=90', '=5'])
      expect(await delayq(['config', queue.name, 'tries=3', bad])).toMatchObject({ code: 64, stdout: '' });
    expect(await admin.exists(key(queue.name, 'config'))).toBe(0);
  });

  it('leaves other fields of the config alone', async () => {
    const queue = freshQueue();
    await admin.hset(key(queue.name, 'config'), 'paused', 'inf', 'layout', '1');
    await delayq(['config', queue.name, 'tries=3']);
    expect(await admin.hgetall(key(queue.name, 'config'))).toEqual({ paused: 'inf', layout: '1', tries: '3' });
  });
});
