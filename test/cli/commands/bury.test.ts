import { describe, expect, it } from 'vitest';
import { Operator } from '../../../src/internal.js';
import { delayq, linesOf, onTerminal } from '../../support/cli.js';
import { listed, show, withAll } from '../../support/jobs.js';
import { connection, freshQueue } from '../../support/redis.js';

const operator = new Operator(connection);

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
