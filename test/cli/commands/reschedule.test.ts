import { describe, expect, it } from 'vitest';
import { Inspector, type Job, Operator, Spread } from '../../../src/internal.js';
import { delayq, linesOf, onTerminal, sh } from '../../support/cli.js';
import { apart, listed, show, upTo, withAll } from '../../support/jobs.js';
import { admin, connection, freshQueue, key, listeners, timePasses } from '../../support/redis.js';
import { until } from '../../support/until.js';

const inspector = new Inspector(connection);
const operator = new Operator(connection);

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
    const ids = `delayq list --ids --pending ${queue.name}`;
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

  it('with --failed lets those that wait for another try fall due at a rate, in their order, tries still counted', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(240).map((i) => ({ payload: i, id: `j${i}`, at: 1_000 + i })));
    const { jobs } = await queue.drain({ limit: 240 });
    // They failed in another order than that in which they are due.
    const failed = jobs.map((job, i) => ({ ...job, delayMs: 3_600_000 + i * 1_000, error: 'no' }));
    for (let i = 0; i < 240; i += 80) await queue.nack(failed.slice(240 - i - 80, 240 - i));
    await queue.enqueue({ payload: 'new', id: 'new', in: '2h' });
    const before = (await listed(queue.name)).filter((id) => id !== 'new');
    const command = ['reschedule', '--failed', '--in', '0s', '--rate', '10/s'];
    const dry = await delayq([...command, '--dry-run', queue.name]);
    expect(dry.stderr).toContain('240 jobs would be rescheduled');
    const { stderr } = await delayq([...command, '--yes', queue.name]);
    expect(stderr).toContain(`240 jobs rescheduled in ${queue.name}: the first due now, the last 23s later`);
    expect(await listed(queue.name)).toEqual([...before, 'new']);
    expect((await apart(queue)).slice(0, -1)).toEqual(upTo(240).map((i) => i * 100));
    expect(await show(queue, 'j7')).toMatchObject({ failures: 1, error: 'no' });
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
    expect(stderr).toContain('due Friday, 2100-01-01 00:00:00 +09:00');
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
    [['reschedule', '--in', '1h', '--at', '14:00', 'q', 'x'], 'cannot be used with'],
    [['reschedule', '--in', '90', 'q', 'x'], 'no unit'],
    [['reschedule', '--rate', '5', 'q', 'x'], 'is not a rate'],
    [['reschedule', '--in', '1h', 'q'], 'no job is named'],
  ])('%j is refused', async (args, message) => {
    expect(await delayq(args as string[])).toMatchObject({
      code: 64,
      stderr: expect.stringContaining(message as string),
    });
  });

  it('wakes a drain that waits for a job that is due sooner now', async () => {
    const queue = freshQueue();
    const messages: string[] = [];
    const listener = connection.listen([queue.wakeChannel], (_, message) => messages.push(message));
    await until(async () => (await listeners(queue.wakeChannel)) === 1);
    await queue.enqueue({ payload: 1, id: 'a', in: '1h' });
    await operator.reschedule(queue.name, ['a'], new Spread());
    await until(() => messages.length === 1);
    listener.close();
  });
});
