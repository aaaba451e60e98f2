import { describe, expect, it } from 'vitest';
import { Connection, Inspector, type Job, Operator, pausedUntil, Queue, Spread } from '../../../src/internal.js';
import { afterwards, during } from '../../support/afterwards.js';
import { delayq, linesOf, onTerminal, sh } from '../../support/cli.js';
import { admin, connection, freshName, freshQueue, key, timePasses } from '../../support/redis.js';
import { Server } from '../../support/server.js';
import { until } from '../../support/until.js';

const inspector = new Inspector(connection);
const operator = new Operator(connection);
const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);
const idsOf = (stdout: string) => linesOf(stdout).map((line) => JSON.parse(line).id as string);
const listed = async (...args: string[]) => idsOf((await delayq(['list', ...args])).stdout);
const show = async (queue: Queue, id: string) => (await inspector.show(queue.name, [id]))[0];
/** Due times of the pending jobs, first in line first, as they are stored, less that of the first. */
const apart = async (queue: Queue) => {
  const scores = (await admin.zrange(key(queue.name, 'pending'), '0', '-1', 'WITHSCORES')).filter((_, i) => i % 2);
  return scores.map((score) => Number(score) - Number(scores[0]));
};

/** A queue with the dead job d, the active job a, and the pending jobs c, b and e, due in this order in 1 to 3 h. */
async function withAll(): Promise<Queue> {
  const queue = freshQueue();
  await queue.enqueue({ payload: 'dead', id: 'd' });
  await queue.nack((await queue.drain()).jobs, { mode: 'dead', error: 'no such order' });
  await queue.enqueue({ payload: 'held', id: 'a' });
  await queue.drain();
  await queue.enqueue([
    { payload: 1, id: 'c', in: '1h' },
    { payload: 2, id: 'b', in: '2h' },
    { payload: 3, id: 'e', in: '3h' },
  ]);
  return queue;
}

describe('delayq reschedule', () => {
  it('gives jobs another due time, several in the order in which they stand in line', async () => {
    const queue = await withAll();
    const { code, stdout, stderr } = await delayq(['reschedule', '--in', '5h', queue.name, 'e', 'b', 'c']);
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' });
    expect(stderr).toMatch(new RegExp(`^delayq: 3 jobs rescheduled in ${queue.name}: due .*, in 5h\n$`));
    expect(await listed('--pending', queue.name)).toEqual(['c', 'b', 'e']);
    const left = ((await show(queue, 'c'))?.due ?? 0) - (await connection.now());
    expect(left).toBeGreaterThan(4.9 * 3_600_000);
    expect(left).toBeLessThanOrEqual(5 * 3_600_000);
    expect(await operator.reschedule(queue.name, ['e', 'c', 'b'], new Spread({ in: 5 * 3_600_000 }))).toHaveLength(3);
    expect(await listed('--pending', queue.name)).toEqual(['c', 'b', 'e']);
    // The same ms, to whoever looks.
    expect((await show(queue, 'e'))?.due).toBe((await show(queue, 'c'))?.due);
    await timePasses(queue.name, 5 * 3_600_000 + 1);
    expect((await delayq(['drain', queue.name])).stdout).toBe('"held"\n1\n2\n3\n');
  });

  it('keeps the order of more than a call takes, by a filter and from stdin, whatever order stdin has', async () => {
    const queue = freshQueue();
    const n = 1_100;
    // In line the other way round than their ids would be.
    await queue.enqueue(upTo(n).map((i) => ({ payload: i, id: `j${10_000 - i}`, in: 60_000 + i })));
    const before = await listed(queue.name);
    await delayq(['reschedule', '--all', '--yes', '--in', '1h', queue.name]);
    expect(await listed(queue.name)).toEqual(before);
    expect(await apart(queue)).toEqual(upTo(n).map((i) => i / 1024));
    const input = [...before].sort().join('\n');
    expect(await delayq(['reschedule', '--in', '2h', queue.name, '-'], { input })).toMatchObject({ code: 0 });
    expect(await listed(queue.name)).toEqual(before);
    await delayq(['reschedule', '--in', '3h', queue.name, ...[...before].sort()]);
    expect(await listed(queue.name)).toEqual(before);
    expect(await operator.reschedule(queue.name, [...before, 'x'].sort(), new Spread({ in: 5 }))).toHaveLength(n + 1);
    expect(await listed(queue.name)).toEqual(before);
  });

  it('reads all of stdin before it begins, so that a list of the same jobs comes to its end', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(5_000).map((i) => ({ payload: i, at: 1_000 + i })));
    const ids = `delayq list --pending ${queue.name} | sed 's/.*"id":"\\([^"]*\\)".*/\\1/'`;
    const { stderr } = await sh(`${ids} | delayq reschedule --in 1h ${queue.name} -`);
    expect(stderr).toContain('5,000 jobs rescheduled');
  });

  it('keeps fractions of a ms through a lease, a release, a loss and a nack', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(4).map((i) => ({ payload: i, id: `j${i}`, in: i })));
    await operator.reschedule(queue.name, ['j0', 'j1', 'j2', 'j3'], new Spread({ in: 10 }));
    const score = async () => Number(await admin.zscore(key(queue.name, 'pending'), 'j3'));
    const before = await score();
    expect(before % 1).toBe(3 / 1024);
    await until(async () => (await queue.counts()).due === 4);
    const { jobs } = await queue.drain({ leaseMs: 1_000 });
    expect(jobs.map(({ id }) => id)).toEqual(['j0', 'j1', 'j2', 'j3']);
    expect(jobs.every(({ due }) => Number.isInteger(due))).toBe(true);
    await queue.nack(jobs, { mode: 'release' });
    expect(await score()).toBe(before);
    await queue.drain({ leaseMs: 1 });
    await until(async () => (await queue.counts()).runOut === 4);
    const again = await queue.drain();
    expect(again.jobs.map(({ id, attempt }) => `${id} ${attempt}`)).toEqual(['j0 2', 'j1 2', 'j2 2', 'j3 2']);
    expect(await queue.nack(again.jobs.slice(0, 1), { mode: 'dead' })).toMatchObject([{ answer: 'dead' }]);
    expect(await queue.ack(again.jobs.slice(1))).toEqual(['held', 'held', 'held']);
  });

  it('with --rate lets so many fall due from then on, over as many calls as it takes', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(450).map((i) => ({ payload: i, at: 1_000 + i })));
    const { stderr } = await delayq(['reschedule', '--overdue', '--rate', '20/s', '--yes', queue.name]);
    expect(stderr).toContain('450 jobs rescheduled');
    expect(stderr).toContain(': the first due now, the last 22s later');
    expect(await apart(queue)).toEqual(upTo(450).map((i) => i * 50));
    expect(Math.abs(((await inspector.inspect(queue.name)).oldest ?? 0) - (await connection.now()))).toBeLessThan(
      60_000,
    );
  });

  it('says which jobs it leaves, exit 1: active, dead, not there', async () => {
    const queue = await withAll();
    const { code, stderr } = await delayq(['reschedule', '--in', '1h', queue.name, 'a', 'd', 'x', 'c', 'c']);
    expect(code).toBe(1);
    expect(new Set(linesOf(stderr).slice(0, -1))).toEqual(
      new Set([
        'delayq: a is active, and was left as it is',
        'delayq: d is dead, and was left as it is: to retry it, delayq requeue',
        `delayq: x is not in ${queue.name}: it is done, or never existed`,
      ]),
    );
    expect(stderr).toContain(`1 job rescheduled in ${queue.name}: due `);
    expect(await show(queue, 'a')).toMatchObject({ state: 'active' });
    expect(await show(queue, 'd')).toMatchObject({ state: 'dead', error: 'no such order' });
  });

  it('lets a time to live count anew, from the new due time, and failures go on', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, id: 'a', ttl: '1m' },
      { payload: 2, id: 'b' },
    ]);
    const now = async (jobs: readonly Job[]) => queue.nack(jobs.map((job) => ({ ...job, delayMs: 0, error: 'no' })));
    await now((await queue.drain()).jobs);
    await operator.reschedule(queue.name, ['a', 'b'], new Spread({ in: 3_600_000 }));
    // Nothing but what it has of its own is left in the record.
    expect(await show(queue, 'a')).toMatchObject({ failures: 1, error: 'no', ttl: 60_000 });
    await timePasses(queue.name, 3_600_000 + 30_000);
    const { jobs, expired } = await queue.drain();
    expect({ ids: jobs.map(({ id, attempt }) => `${id} ${attempt}`), expired }).toEqual({
      ids: ['a 2', 'b 2'],
      expired: 0,
    });
    await now(jobs);
    await timePasses(queue.name, 30_001);
    expect((await queue.drain()).expired).toBe(1);
  });

  it('at a time, read in a zone; a past one is due now, with a warning', async () => {
    const queue = await withAll();
    const at = ['--at', '2100-01-01 00:00', '--tz', 'Asia/Tokyo'];
    const { stderr } = await delayq(['reschedule', ...at, queue.name, 'c']);
    expect(stderr).toContain('due 2100-01-01 00:00:00 +09:00');
    expect((await show(queue, 'c'))?.due).toBe(Date.parse('2099-12-31T15:00:00Z'));
    const past = await delayq(['reschedule', '--at', '2020-01-01T00:00:00Z', queue.name, 'c']);
    expect(past.stderr).toMatch(/was .* ago: due now\n.*1 job rescheduled in .*: due now\n$/);
    expect((await delayq(['drain', queue.name])).stdout).toBe('1\n');
  });

  it('says in a dry run and in its question when they would be due', async () => {
    const { name } = await withAll();
    const dry = await delayq(['reschedule', '--all', '--in', '1h', '--dry-run', name]);
    expect(dry.stderr).toMatch(new RegExp(`3 jobs would be rescheduled in ${name}: due .*, in 1h\n`));
    const text = await onTerminal(`delayq reschedule --all --in 2h ${name}`, { typed: 'no\n' });
    expect(text).toMatch(new RegExp(`reschedule 3 jobs of ${name}: due .*, in 2h\\? \\[y/N\\]`));
    expect(text).toContain('nothing rescheduled');
  });

  it.each([
    [['reschedule', 'q', 'x'], 'no due time is given'],
    [['reschedule', '--in', '1h', '--at', '14:00', 'q', 'x'], 'exclude each other'],
    [['reschedule', '--in', '90', 'q', 'x'], 'no unit'],
    [['reschedule', '--rate', '5', 'q', 'x'], 'is not a rate'],
    [['reschedule', '--in', '1h', 'q'], 'no job is named'],
    [['requeue', '--rate', '0/s', 'q', 'x'], 'is not a rate'],
  ])('%j is refused', async (args, message) => {
    expect(await delayq(args as string[])).toMatchObject({
      code: 64,
      stderr: expect.stringContaining(message as string),
    });
  });

  it('wakes a drain that waits for a job that is due sooner now', async () => {
    const queue = freshQueue();
    const messages: string[] = [];
    const listener = connection.listen([queue.wakeChannel], (message) => messages.push(message));
    await until(async () => ((await admin.pubsub('NUMSUB', queue.wakeChannel)) as unknown[])[1] === 1);
    await queue.enqueue({ payload: 1, id: 'a', in: '1h' });
    await operator.reschedule(queue.name, ['a'], new Spread());
    await until(() => messages.length === 1);
    listener.close();
  });
});

describe('delayq requeue --rate', () => {
  it('lets so many fall due from now on, with nothing left running', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(250).map((i) => ({ payload: i })));
    await queue.nack((await queue.drain()).jobs, { mode: 'dead' });
    const { code, stderr } = await delayq(['requeue', '--all', '--rate', '2/s', '--yes', queue.name]);
    expect(code).toBe(0);
    expect(stderr).toContain(': due from now on, the last in 2m 4s');
    expect(await apart(queue)).toEqual(upTo(250).map((i) => i * 500));
    expect((await queue.drain()).jobs.length).toBeLessThan(250);
  });
});

describe('delayq bury', () => {
  it('puts pending jobs among the dead, with a reason, and requeue brings them back, due now', async () => {
    const queue = await withAll();
    const due = (await show(queue, 'c'))?.due;
    expect(await delayq(['bury', '--reason', 'until the patch ships', queue.name, 'c', 'b'])).toMatchObject({
      code: 0,
      stdout: '',
      stderr: `delayq: 2 jobs buried in ${queue.name}\n`,
    });
    expect(await show(queue, 'c')).toMatchObject({
      state: 'dead',
      reason: 'buried',
      error: 'until the patch ships',
      due,
      failures: 0,
    });
    expect(await onTerminal(`delayq show ${queue.name} c`)).toMatch(/ago {2}buried by an operator\n/);
    expect(await queue.counts()).toMatchObject({ pending: 1, dead: 3, stats: { buried: 2, dead: 1 } });
    await delayq(['requeue', '--grep', 'patch', '--yes', queue.name]);
    expect((await delayq(['drain', queue.name])).stdout.split('\n').sort()).toEqual(['', '1', '2']);
  });

  it('keeps the failures and the last error of a job when no reason is given', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a', at: 5_000 });
    await queue.nack((await queue.drain()).jobs, { error: 'exit 1' });
    await operator.bury(queue.name, ['a']);
    expect(await show(queue, 'a')).toMatchObject({ reason: 'buried', error: 'exit 1', failures: 1, due: 5_000 });
  });

  it('leaves active jobs, exit 1, and by a filter goes through all that are pending', async () => {
    const queue = await withAll();
    const { code, stderr } = await delayq(['bury', queue.name, 'a', 'd', 'x']);
    expect(code).toBe(1);
    expect(linesOf(stderr)).toEqual([
      'delayq: a is active, and was left as it is',
      'delayq: d is dead already',
      `delayq: x is not in ${queue.name}: it is done, or never existed`,
      `delayq: 0 jobs buried in ${queue.name}`,
    ]);
    expect(await delayq(['bury', '--all', '--yes', queue.name])).toMatchObject({ code: 0 });
    expect(await listed('--dead', queue.name)).toHaveLength(4);
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 1 });
  });
});

describe('delayq purge', () => {
  const left = async (name: string) => (await admin.keys(key(name, '*'))).map((at) => at.replace(/.*:/, '')).sort();

  it('removes all jobs, and what belongs to none', async () => {
    const queue = await withAll();
    await admin.hset(key(queue.name, 'payload'), 'nobody', '1');
    await admin.hset(key(queue.name, 'meta'), 'nobody', '{}');
    await admin.hset(key(queue.name, 'lease'), 'nobody', 'r 1 2 me:1');
    const { code, stdout, stderr } = await delayq(['purge', '--yes', queue.name]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' });
    expect(linesOf(stderr)).toEqual([
      `delayq: 5 jobs (3 pending, 1 active, 1 dead) removed from ${queue.name}`,
      'delayq: handlers of active jobs keep running; their acks will change nothing',
    ]);
    // Counters, and who must still be told.
    expect(await left(queue.name)).toEqual(['lease', 'stats']);
    expect(Object.keys(await admin.hgetall(key(queue.name, 'lease')))).toEqual([expect.stringMatching(/^\S+ a$/)]);
    expect((await queue.counts()).stats.purged).toBe(5);
  });

  it.each([
    [['--dead'], ['a', 'c', 'b', 'e']],
    [['--active'], ['d', 'c', 'b', 'e']],
    [['--pending'], ['d', 'a']],
    [['--pending', '--dead'], ['a']],
  ])('with %j leaves %j, each with its payload', async (states, ids) => {
    const queue = await withAll();
    expect(await delayq(['purge', ...states, '--yes', queue.name])).toMatchObject({ code: 0 });
    expect(await listed(queue.name)).toEqual(ids);
    expect((await queue.counts()).payload).toBe(ids.length);
  });

  it('a handler that runs meanwhile ends as if nothing had happened, and so does the drain', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const handler = ['--', 'sh', '-c', `delayq purge -qy ${queue.name}`];
    expect(await delayq(['drain', '-q', queue.name, ...handler])).toMatchObject({ code: 0, stderr: '' });
    expect(await left(queue.name)).toEqual(['stats']);
  });

  it('takes several chunks of active jobs, and of single states', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(1_000).map((i) => ({ payload: i })));
    for (const _ of upTo(2)) await queue.drain();
    const json = async (...args: string[]) => JSON.parse((await delayq(['purge', '--yes', '--json', ...args])).stdout);
    expect(await json('--pending', queue.name)).toEqual({
      schema: 1,
      queue: queue.name,
      pending: 500,
      forgotten: false,
    });
    await queue.enqueue(upTo(700).map((i) => ({ payload: i })));
    expect(await json(queue.name)).toMatchObject({ pending: 700, active: 500, dead: 0 });
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, payload: 0, lease: 500 });
  });

  it("asks on a terminal for the queue's name, and takes anything else for no", async () => {
    const { name } = await withAll();
    const no = await onTerminal(`delayq purge ${name}; echo "ended with $?"`, { typed: 'yes\n' });
    expect(no).toContain(`this removes 5 jobs (3 pending, 1 active, 1 dead) of ${name}, for good\n`);
    expect(no).toMatch(/type the name of the queue to go on: [\s\S]*nothing removed\nended with 1/);
    expect(await listed(name)).toHaveLength(5);
    const yes = await onTerminal(`delayq purge ${name}; echo "ended with $?"`, { typed: `${name}\n` });
    expect(yes).toMatch(/5 jobs .* removed[\s\S]*ended with 0/);
    expect(await listed(name)).toEqual([]);
  });

  it('where nobody can be asked, or in a dry run, removes nothing', async () => {
    const { name } = await withAll();
    expect(await delayq(['purge', name])).toMatchObject({
      code: 64,
      stderr: expect.stringMatching(/cannot ask whether to remove[\s\S]*--yes/),
    });
    expect(await delayq(['purge', '--dry-run', '--yes', name])).toMatchObject({
      code: 0,
      stderr: `delayq: 5 jobs (3 pending, 1 active, 1 dead) would be removed from ${name}\n`,
    });
    const { stdout } = await delayq(['purge', '--dry-run', '--json', '--dead', name]);
    expect(JSON.parse(stdout)).toEqual({ schema: 1, queue: name, dryRun: true, dead: 1 });
    expect(await listed(name)).toHaveLength(5);
  });

  it('with --forget leaves nothing at all, also of a queue of which only the name is left', async () => {
    const { name } = await withAll();
    await delayq(['config', name, 'tries=3']);
    // Without a holder nobody must be told.
    await admin.del(key(name, 'lease'));
    expect(await delayq(['purge', '--forget', '--yes', name])).toMatchObject({
      code: 0,
      stderr: expect.stringContaining(`removed from ${name}, and forgotten`),
    });
    expect(await left(name)).toEqual([]);
    expect(await admin.sismember('delayq:queues', name)).toBe(0);
    expect(await delayq(['purge', '--forget', '--yes', name])).toMatchObject({ code: 3 });
    await admin.sadd('delayq:queues', name);
    expect(await delayq(['purge', '--forget', '--yes', name])).toMatchObject({ code: 0 });
    expect(await admin.sismember('delayq:queues', name)).toBe(0);
    expect(await delayq(['purge', '--forget', '--dead', name])).toMatchObject({ code: 64 });
    expect(await delayq(['purge', '--yes', freshName()])).toMatchObject({ code: 3 });
  });

  it('with --forget leaves a handler that runs to its end, and then nothing', async () => {
    const queue = freshQueue();
    const { name } = queue;
    await queue.enqueue({ payload: 1, id: 'a' });
    const { jobs } = await queue.drain();
    expect(await delayq(['purge', '--forget', '--yes', name])).toMatchObject({ code: 0 });
    expect(await queue.renew(jobs)).toEqual(['superseded']);
    expect(await queue.ack(jobs)).toEqual(['superseded']);
    expect(await left(name)).toEqual([]);
  });

  it('forgets no queue with jobs', async () => {
    const { name } = await withAll();
    expect(await operator.forget(name)).toBe(false);
    expect(await listed(name)).toHaveLength(5);
  });
});

describe('acts', () => {
  it('work on a server that is full (failures 4)', async () => {
    const server = await during(Server.start());
    const redis = new Connection(server.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, 'q');
    await queue.enqueue(['a', 'b', 'c', 'd', 'e'].map((id) => ({ payload: id, id, in: id === 'a' ? 0 : '1h' })));
    await queue.drain();
    await server.admin.config('SET', 'maxmemory', '1mb');
    const env = { DELAYQ_REDIS_URL: server.url };
    await expect(queue.enqueue({ payload: 1 })).rejects.toMatchObject({ code: 'temporary' });
    for (const args of [
      ['pause', '--for', '1h', 'q'],
      ['reschedule', '--in', '2h', 'q', 'b', 'c'],
      ['bury', '--reason', 'x'.repeat(1_000), 'q', 'd', 'e'],
      ['requeue', '--rate', '1/s', 'q', 'd'],
      ['cancel', 'q', 'a', 'b'],
      ['resume', 'q'],
      ['purge', '--yes', 'q'],
      ['purge', '--forget', '--yes', 'q'],
    ])
      expect({ args, ...(await delayq(args, { env })) }).toMatchObject({ args, code: 0 });
    // Whoever holds a has still to be told.
    expect(await server.admin.keys('*')).toEqual(['delayq:{q}:lease']);
  });

  it('on a queue that other software has spoilt go through', async () => {
    const name = freshName();
    await admin
      .multi()
      .hset(key(name, 'payload'), 'a', 'no json', 'b', '2', 'c', '3')
      .zadd(key(name, 'pending'), 'inf', 'a', '-inf', 'b', 1.5, 'ghost')
      .zadd(key(name, 'active'), 5, 'c')
      .hset(key(name, 'meta'), 'a', 'no json', 'b', '{"first":"x","tries":[]}')
      .hset(key(name, 'lease'), 'c', '')
      .hset(key(name, 'stats'), 'buried', 'many', 'rescheduled', 'x')
      .hset(key(name, 'config'), 'paused', 'perhaps')
      .exec();
    expect(pausedUntil(await inspector.inspect(name))).toBeUndefined();
    expect(await delayq(['reschedule', '--all', '--yes', '--in', '1h', name])).toMatchObject({ code: 0 });
    expect(await listed('--pending', name)).toEqual(['b', 'ghost', 'a']);
    expect(await delayq(['bury', '--all', '--yes', name])).toMatchObject({ code: 0 });
    expect(await delayq(['pause', name])).toMatchObject({ code: 0 });
    expect(await delayq(['resume', name])).toMatchObject({ code: 0 });
    expect(await delayq(['requeue', '--all', '--yes', name])).toMatchObject({ code: 1 });
    expect(await delayq(['cancel', name, 'c'])).toMatchObject({ code: 0 });
    expect(await delayq(['purge', '--yes', name])).toMatchObject({ code: 0 });
  });

  it.each(['reschedule', 'bury', 'purge', 'pause', 'resume', 'cancel', 'wait'])(
    '(%s) of an unknown queue exits 3',
    async (command) => {
      const more = { reschedule: ['--in', '1s', '--all'], bury: ['--all'], cancel: ['--all'], wait: ['--idle'] };
      const args = more[command as keyof typeof more] ?? [];
      expect(await delayq([command, ...args, freshName()])).toMatchObject({ code: 3, stdout: '' });
    },
  );

  it.each(['cancel', 'reschedule', 'requeue', 'bury', 'purge', 'pause', 'resume', 'wait'])(
    '(%s) begin their help with examples',
    async (command) => {
      const { stdout } = await delayq([command, '--help']);
      expect(stdout).toMatch(new RegExp(`^Examples:\n  delayq ${command} `));
      expect(stdout.split('\n').filter((line) => line.length > 120)).toEqual([]);
    },
  );
});
