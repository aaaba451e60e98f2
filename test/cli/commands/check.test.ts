import { describe, expect, it } from 'vitest';
import type { Queue } from '../../../src/index.js';
import { during } from '../../support/afterwards.js';
import { delayq, linesOf } from '../../support/cli.js';
import { admin, freshName, freshQueue, key } from '../../support/redis.js';
import { Server } from '../../support/server.js';

/** The one line of a check: state, words and performance data, with the exit code. */
async function check(...args: string[]) {
  const { code, stdout } = await delayq(['check', ...args]);
  expect(linesOf(stdout)).toHaveLength(1);
  const [, state, words, data = ''] = /^DELAYQ (\w+) - ([^|]*?)(?: \| (.*))?\n$/.exec(stdout) ?? [];
  return {
    code,
    state,
    words,
    data: Object.fromEntries(data.split(' ').map((one) => one.split('=') as [string, string])),
  };
}
const minutesAgo = (n: number) => Date.now() - n * 60_000;

/** A queue, drained `drained` min ago, with jobs that have been due for so many minutes. */
async function queueWith({ due = [] as number[], drained }: { due?: number[]; drained?: number }): Promise<Queue> {
  const queue = freshQueue();
  await queue.enqueue([{ payload: 0, in: '1h' }, ...due.map((n) => ({ payload: n, at: minutesAgo(n) }))]);
  if (drained !== undefined) await admin.hset(key(queue.name, 'stats'), 'drained', minutesAgo(drained));
  return queue;
}
async function withDead(queue: Queue): Promise<Queue> {
  await queue.enqueue({ payload: 1, at: 1_000_000_000_000 });
  await queue.nack((await queue.drain({ limit: 1 })).jobs, { mode: 'dead' });
  return queue;
}

describe('delayq check', () => {
  it('of a queue in order says OK, how it stands, and all figures', async () => {
    const { name } = await queueWith({ drained: 2 });
    expect(await check(name)).toEqual({
      code: 0,
      state: 'OK',
      words: `${name}: 1 pending, 0 due, 0 active, 0 dead`,
      data: {
        lag: '0s;120;300;0',
        pending: '1;;;0',
        due: '0;;;0',
        failing: '0%;50;100;0',
        active: '0;;;0',
        dead: '0;0;;0',
        drain_age: expect.stringMatching(/^12\d(\.\d+)?s;;;0$/),
      },
    });
  });

  it('without limits warns of what is two minutes late and of dead jobs, and is critical at five minutes', async () => {
    expect(await check((await queueWith({ due: [2] })).name)).toMatchObject({ code: 1, state: 'WARNING' });
    expect(await check((await withDead(await queueWith({}))).name)).toMatchObject({
      code: 1,
      words: expect.stringContaining('1 dead (limit 0)'),
    });
    expect(await check((await queueWith({ due: [2, 12] })).name)).toMatchObject({
      code: 2,
      state: 'CRITICAL',
      words: expect.stringMatching(/: the oldest of 2 due jobs is 12m.* late \(limit 5m\)$/),
    });
  });

  it.each([
    [['--max-lag', '13m'], 0],
    [['--max-lag', '11m'], 2],
    [['--max-lag', '13m', '--warn-lag', '11m'], 1],
    [['--max-drain-age', '48m'], 0],
    [['--max-drain-age', '46m'], 2],
    [['--warn-drain-age', '46m'], 1],
    [['--max-pending', '2'], 0],
    [['--max-pending', '1'], 2],
    [['--warn-pending', '1', '--max-pending', '2'], 1],
    [['--max-dead', '0'], 0],
  ])('with %j alone exits %i', async (limits, code) => {
    const { name } = await queueWith({ due: [12], drained: 47 });
    expect(await check(...limits, name)).toMatchObject({ code });
  });

  it('says what is out of its limits, the critical first, and gives the limits with the figures', async () => {
    const queue = await withDead(await queueWith({ due: [12] }));
    await admin.hset(key(queue.name, 'stats'), 'drained', minutesAgo(47));
    const limits = ['--warn-dead', '0', '--max-lag', '2m', '--max-drain-age', '5m', '--max-pending', '100000'];
    const { words, data } = await check(...limits, queue.name);
    expect(words).toMatch(
      /: the oldest of 1 due job is 12m.* late \(limit 2m\), no drain for 47m.* \(limit 5m\), 1 dead \(limit 0\)$/,
    );
    expect(data).toMatchObject({
      lag: expect.stringMatching(/^7\d\d(\.\d+)?s;;120;0$/),
      pending: '2;;100000;0',
      dead: '1;0;;0',
      drain_age: expect.stringMatching(/s;;300;0$/),
    });
  });

  it('counts a drain that found nothing: an idle queue which cron drains is in order', async () => {
    const queue = await queueWith({ drained: 60 });
    expect(await check('--max-drain-age', '5m', queue.name)).toMatchObject({ code: 2 });
    await delayq(['drain', queue.name]);
    expect(await check('--max-drain-age', '5m', queue.name)).toMatchObject({ code: 0 });
  });

  it('of a queue that was never drained says so, when that matters', async () => {
    const { name } = await queueWith({});
    expect(await check('--max-drain-age', '5m', name)).toMatchObject({
      code: 2,
      words: expect.stringContaining('never drained (limit 5m)'),
      data: { drain_age: 'U;;300;0' },
    });
    expect(await check('--max-lag', '5m', name)).toMatchObject({ code: 0 });
  });

  it('counts a drain of a paused queue, and one that holds on to what it has', async () => {
    const paused = await queueWith({ drained: 60 });
    await delayq(['pause', '-q', paused.name]);
    await delayq(['drain', '-q', paused.name]);
    expect(await check('--max-drain-age', '5m', paused.name)).toMatchObject({
      code: 1,
      words: `${paused.name}: paused until resumed`,
    });
    const busy = await queueWith({ due: [12, 12] });
    const { jobs } = await busy.drain({ limit: 1 });
    await admin.hset(key(busy.name, 'stats'), 'drained', minutesAgo(47));
    await busy.renew(jobs);
    expect(await check('--max-drain-age', '5m', busy.name)).toMatchObject({ code: 0 });
  });

  it('takes a last drain that cannot be read for none', async () => {
    const { name } = await queueWith({ due: [12] });
    await admin.hset(key(name, 'stats'), 'drained', 'x');
    expect(await check('--max-drain-age', '5m', name)).toMatchObject({
      words: expect.stringContaining('never drained'),
    });
    expect((await delayq(['metrics', name])).stdout).not.toContain('last_drain');
    expect(JSON.parse((await delayq(['inspect', '--json', name])).stdout).queues).toMatchObject([
      { drained: null, stalled: true },
    ]);
  });

  it('is not kept from telling of the others by a queue that this user may not see', async () => {
    const server = await during(Server.start());
    for (const queue of ['mine', 'theirs']) await delayq(['enqueue', '-q', '--redis', server.url, queue, '1']);
    await server.admin.call('ACL', 'SETUSER', 'app', 'on', '>x', '+@all', '~delayq:{mine}:*', '~delayq:queues');
    const url = server.url.replace('unix://', 'unix://app:x@');
    expect(await check('--redis', url)).toMatchObject({
      code: 3,
      words: expect.stringMatching(/^theirs: .*NOPERM/),
      data: { 'mine.pending': '1;;;0' },
    });
  });

  it('of a paused queue beyond its limits says first that it is paused', async () => {
    const { name } = await queueWith({ drained: 0 });
    await admin.zadd(key(name, 'pending'), Date.now() - 3_600_000, 'late');
    await delayq(['pause', '-q', name]);
    const { code, words } = await check(name);
    expect({ code, words }).toEqual({
      code: 2,
      words: expect.stringMatching(`^${name}: paused until resumed, the oldest`),
    });
  });

  it('warns of a queue that is paused, whatever the limits', async () => {
    const { name } = await queueWith({ drained: 0 });
    await delayq(['pause', name]);
    expect(await check('--max-dead', '5', name)).toMatchObject({ code: 1, words: `${name}: paused until resumed` });
  });

  it('of all queues says which are not in order, the worst first, and the figures of each', async () => {
    const prefix = freshName();
    const at = (n: number) => ['--at', `@${Math.floor(minutesAgo(n) / 1_000)}`];
    const enqueue = (queue: string, ...more: string[]) =>
      delayq(['--prefix', prefix, 'enqueue', '-q', queue, '1', ...more]);
    await enqueue('fine', '--in', '1h');
    expect(await check('--prefix', prefix)).toMatchObject({
      code: 0,
      words: 'fine: 1 pending, 0 due, 0 active, 0 dead',
    });
    await enqueue('sound', '--in', '1h');
    expect(await check('--prefix', prefix)).toMatchObject({ code: 0, words: '2 queues' });
    await enqueue('late', ...at(2));
    await enqueue('later', ...at(12));
    const { code, words, data } = await check('--prefix', prefix);
    expect({ code, words }).toMatchObject({ code: 2, words: expect.stringMatching(/^later: .*; late: [^;]*$/) });
    expect(data).toMatchObject({ 'fine.pending': '1;;;0', 'late.due': '1;;;0' });
    await admin.set(`${prefix}:{fine}:stats`, 'x').catch(() => {});
    await admin.del(`${prefix}:{sound}:stats`);
    await admin.set(`${prefix}:{sound}:stats`, 'x');
    expect(await check('--prefix', prefix, 'fine', 'sound')).toMatchObject({
      code: 3,
      words: expect.stringContaining('WRONGTYPE'),
    });
    expect(await check('--prefix', prefix)).toMatchObject({ code: 2 });
  });

  it('finds queues by their keys if the list of queues is lost, and warns of that', async () => {
    const prefix = freshName();
    await delayq(['enqueue', '--prefix', prefix, 'fine', '1', '--in', '1h']);
    await admin.del(`${prefix}:queues`);
    expect(await check('--prefix', prefix)).toMatchObject({
      code: 1,
      state: 'WARNING',
      words: 'fine: 1 pending, 0 due, 0 active, 0 dead, not in the list of queues: run delayq doctor --fix',
      data: { pending: '1;;;0' },
    });
    await delayq(['doctor', '--fix', '--yes', '--prefix', prefix]);
    expect(await check('--prefix', prefix)).toMatchObject({ code: 0, state: 'OK' });
    await delayq(['enqueue', '--prefix', prefix, 'fine', '1', '--at', '@1000000000']);
    await admin.del(`${prefix}:queues`);
    expect(await check('--prefix', prefix)).toMatchObject({
      code: 2,
      words: expect.stringMatching(/^fine: .* late .*not in the list/),
    });
  });

  it.each([
    ['a queue that is not there', [freshName()], /no queue/],
    ['a namespace without queues', ['--prefix', freshName()], /no queue/],
    ['an unreachable Redis', ['--redis', 'redis://127.0.0.1:1', 'q'], /cannot reach Redis.*ECONNREFUSED/],
    ['an unknown option', ['--max-lga', '1m', 'q'], /unknown option/],
    ['a limit that is none', ['--max-lag', '5', 'q'], /no unit/],
    ['a name that cannot be', ['two words'], /cannot name a queue/],
  ])('is UNKNOWN, exit 3, with %s', async (_, args, words) => {
    expect(await check(...args)).toMatchObject({ code: 3, state: 'UNKNOWN', words: expect.stringMatching(words) });
  });

  it('shows its help with exit 0', async () => {
    expect(await delayq(['check', '--help'])).toMatchObject({ code: 0, stdout: expect.stringMatching(/^Examples:/m) });
  });
});
