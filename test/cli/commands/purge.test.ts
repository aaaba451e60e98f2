import { describe, expect, it } from 'vitest';
import { Operator } from '../../../src/internal.js';
import { delayq, linesOf, onTerminal } from '../../support/cli.js';
import { listed, upTo, withAll } from '../../support/jobs.js';
import { admin, connection, freshName, freshQueue, key, keysLike } from '../../support/redis.js';

const operator = new Operator(connection);

describe('delayq purge', () => {
  const left = async (name: string) => (await keysLike(key(name, '*'))).map((at) => at.replace(/.*:/, '')).sort();

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

  it('asks nothing if there is nothing to remove', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    expect(await delayq(['purge', '--dead', queue.name])).toMatchObject({
      code: 0,
      stderr: `delayq: 0 jobs removed from ${queue.name}\n`,
    });
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
    const again = await delayq(['purge', '--forget', '--yes', name]);
    expect(again).toMatchObject({ code: 3, stderr: expect.stringContaining('nothing is stored for it at') });
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
