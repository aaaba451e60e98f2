import { describe, expect, it } from 'vitest';
import { Inspector } from '../../../src/internal.js';
import { begin, delayq, linesOf, sh } from '../../support/cli.js';
import { apart, idsOf, upTo, withDead } from '../../support/jobs.js';
import { admin, connection, freshQueue, key } from '../../support/redis.js';
import { until } from '../../support/until.js';

const inspector = new Inspector(connection);

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

  it('with --ttl and --deliveries replaces these limits, and keeps others', async () => {
    const queue = await withDead(2);
    await delayq(['requeue', '--ttl', '1h', '--deliveries', '1', queue.name, 'd0']);
    await queue.nack((await queue.drain()).jobs);
    const limits = { deliveries: 1, tries: 7 };
    const dead = { state: 'dead', reason: 'failed', ttl: 3_600_000, ...limits };
    expect(await inspector.show(queue.name, ['d0'])).toMatchObject([dead]);
    await delayq(['requeue', '--ttl', '0s', queue.name, 'd0']);
    expect(await inspector.show(queue.name, ['d0'])).toMatchObject([
      { state: 'pending', ...limits, expires: undefined },
    ]);
    expect(await delayq(['requeue', '--deliveries', '0', queue.name, 'd0'])).toMatchObject({ code: 64 });
  });

  it('takes those that have been dead for longest, or all, or ids from stdin', async () => {
    const queue = await withDead(6);
    await delayq(['requeue', '-qy', '-n', '2', queue.name]);
    expect(idsOf((await delayq(['list', '--json', '--dead', queue.name])).stdout)).toEqual(['d2', 'd3', 'd4', 'd5']);
    await sh(`delayq list --ids --dead -n 1 ${queue.name} | delayq requeue ${queue.name} -`);
    expect(idsOf((await delayq(['list', '--json', '--dead', queue.name])).stdout)).toEqual(['d3', 'd4', 'd5']);
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
      'delayq: ghost has no payload and stays dead: to give it one, delayq edit',
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
    [['requeue', '--rate', '0/s', 'q', 'x'], 'is not a rate'],
    [['requeue', 'q'], 'no job is named'],
    [['requeue', '--all', 'q', 'x'], 'exclude each other'],
    [['requeue', 'q', '-', 'x'], 'exclude each other'],
  ])('%j is refused', async (args, message) => {
    expect(await delayq(args as string[])).toMatchObject({
      code: 64,
      stderr: expect.stringContaining(message as string),
    });
  });

  it('with --rate lets so many fall due from now on, with nothing left running', async () => {
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
