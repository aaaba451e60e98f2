import { EventEmitter } from 'node:events';
import { describe, expect, it } from 'vitest';
import { Inspector, Operator } from '../../../src/internal.js';
import { begin, delayq, linesOf, onTerminal } from '../../support/cli.js';
import { listed, upTo, withShops } from '../../support/jobs.js';
import { admin, connection, freshName, freshQueue, key } from '../../support/redis.js';
import { until } from '../../support/until.js';

const inspector = new Inspector(connection);

describe('delayq cancel', () => {
  it('removes jobs whatever state they are in, whole, and says what still runs', async () => {
    const { name } = await withShops();
    const { code, stdout, stderr } = await delayq(['cancel', name, 'd', 'a', 'p1']);
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' });
    expect(linesOf(stderr)).toEqual([
      'delayq: a was active: its handler keeps running',
      `delayq: 3 jobs cancelled in ${name}`,
    ]);
    const counts = await inspector.inspect(name);
    expect(counts).toMatchObject({ pending: 2, active: 0, dead: 0, payload: 2, meta: 0, stats: { cancelled: 3 } });
    // Only what tells the holder of the lease.
    expect(Object.keys(await admin.hgetall(key(name, 'lease')))).toEqual([expect.stringMatching(/^\S+ a$/)]);
  });

  it('says which ids are not there, exit 1, and cancels the others', async () => {
    const { name } = await withShops();
    const { code, stderr } = await delayq(['cancel', name, 'x', 'p0', 'p0']);
    expect(code).toBe(1);
    expect(linesOf(stderr)).toEqual([
      `delayq: x is not in ${name}: it is done, or never existed`,
      `delayq: 1 job cancelled in ${name}`,
    ]);
  });

  it.each([
    [['--pending'], ['d', 'a']],
    [['--active'], ['d', 'p0', 'p1', 'p2']],
    [
      ['--dead', '--active'],
      ['p0', 'p1', 'p2'],
    ],
    [['--overdue'], ['d', 'a', 'p1', 'p2']],
    [
      ['--pending', '--from', '+30m'],
      ['d', 'a', 'p0'],
    ],
    [
      ['--grep', '"shop":7'],
      ['d', 'a', 'p1'],
    ],
    [
      ['--pending', '-n', '2'],
      ['d', 'a', 'p2'],
    ],
    [['--all'], []],
  ])('by %j leaves %j', async (filter, left) => {
    const { name } = await withShops();
    expect(await delayq(['cancel', ...filter, '--yes', name])).toMatchObject({ code: 0, stdout: '' });
    expect(await listed(name)).toEqual(left);
  });

  it('by a filter says how many were being handled, not which', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(3).map((n) => ({ payload: n })));
    await queue.drain();
    const { code, stderr } = await delayq(['cancel', '--active', '--yes', queue.name]);
    expect(code).toBe(0);
    expect(linesOf(stderr)).toEqual([
      `delayq: 3 jobs cancelled in ${queue.name}`,
      'delayq: 3 of them were active: their handlers keep running',
    ]);
  });

  it('a handler that runs while its job is cancelled ends as if nothing had happened, and so does the drain', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, id: 'a' },
      { payload: 2, id: 'b' },
    ]);
    const handler = `test $DELAYQ_ID = b || delayq cancel -q ${queue.name} a; echo $DELAYQ_ID`;
    const { code, stdout, stderr } = await delayq(['drain', '-v', queue.name, '--', 'sh', '-c', handler]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'a\nb\n' });
    expect(stderr).toContain('was replaced or cancelled meanwhile');
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, dead: 0, lease: 0, payload: 0 });
    expect((await queue.counts()).stats).toMatchObject({ cancelled: 1, acked: 1 });
  });

  it('takes ids from stdin while they come', async () => {
    const { name } = await withShops();
    const running = begin(['cancel', '--json', name, '-']);
    running.child.stdin?.write('p0\n\np1');
    await until(async () => !(await listed(name)).includes('p0'));
    running.child.stdin?.end();
    const { code, stdout } = await running.ended;
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toEqual({
      schema: 1,
      queue: name,
      pending: 2,
      active: 0,
      dead: 0,
      freed: 0,
      missing: 0,
    });
  });

  it('asks on a terminal, shows three of them, and takes anything but yes for no', async () => {
    const { name } = await withShops();
    const no = await onTerminal(`delayq cancel --all ${name}; echo "ended with $?"`, { typed: '\n' });
    expect(no).toMatch(/\nd +dead[\s\S]*\na +active[\s\S]*\np0 +pending[\s\S]*… and 2 more\n/);
    expect(no).toMatch(new RegExp(`cancel 5 jobs of ${name}\\? \\[y/N\\][\\s\\S]*nothing cancelled\nended with 1`));
    expect(await listed(name)).toHaveLength(5);
    const yes = await onTerminal(`delayq cancel --pending -n 2 ${name}; echo "ended with $?"`, { typed: 'y\n' });
    expect(yes).toContain(`2 jobs cancelled in ${name}\nended with 0`);
    expect(await listed(name)).toEqual(['d', 'a', 'p2']);
  });

  it('an id that is named twice is one job, with and without --dry-run', async () => {
    const { name } = await withShops();
    const dry = await delayq(['cancel', '--dry-run', name, 'p0', 'p0']);
    expect(dry).toMatchObject({ code: 0, stderr: `delayq: 1 job would be cancelled in ${name}\n` });
    const input = 'p0\np0\nnone\n';
    const json = await delayq(['cancel', '--dry-run', '--json', name, '-'], { input });
    expect({ code: json.code, jobs: JSON.parse(json.stdout).jobs }).toEqual({ code: 1, jobs: 1 });
    const { code, stderr } = await delayq(['cancel', name, 'p0', 'p0']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: `delayq: 1 job cancelled in ${name}\n` });
  });

  it('where nobody can be asked does nothing without --yes', async () => {
    const { name } = await withShops();
    const { code, stderr } = await delayq(['cancel', '--all', name]);
    expect(code).toBe(64);
    expect(stderr).toMatch(/cannot ask whether to cancel 5 jobs[\s\S]*--dry-run[\s\S]*--yes/);
    expect(await listed(name)).toHaveLength(5);
  });

  it('a dry run says what would be done and does nothing', async () => {
    const { name } = await withShops();
    const filtered = await delayq(['cancel', '--dry-run', '--pending', name]);
    expect(filtered).toMatchObject({ code: 0, stdout: '' });
    expect(filtered.stderr).toMatch(new RegExp(`^delayq: 3 jobs would be cancelled in ${name}\nid .*\np0 `));
    expect(JSON.parse((await delayq(['cancel', '--dry-run', '--json', '--dead', name])).stdout)).toEqual({
      schema: 1,
      queue: name,
      dryRun: true,
      jobs: 1,
      samples: ['d'],
    });
    expect(await delayq(['cancel', '--dry-run', name, 'a', 'x'])).toMatchObject({
      code: 1,
      stderr: `delayq: x is not in ${name}\ndelayq: 1 job would be cancelled in ${name}\n`,
    });
    expect(await delayq(['cancel', '--dry-run', '--all', freshName()])).toMatchObject({ code: 3 });
    expect(await listed(name)).toHaveLength(5);
  });

  it('interrupted, exits 130 with what is done, and a repeat does the rest', async () => {
    const queue = freshQueue();
    const n = 10_000;
    await queue.enqueue(upTo(n).map((i) => ({ payload: i, in: '1h' })));
    const signals = new EventEmitter();
    const running = delayq(['cancel', '--all', '--yes', queue.name], { signals });
    // It runs in this process, so it cannot end before it is told to.
    while ((await queue.counts()).pending === n);
    signals.emit('SIGINT');
    const { code, stderr } = await running;
    expect(code).toBe(130);
    expect(stderr).toMatch(/jobs cancelled in .*; stopped: repeat the command to cancel the rest/);
    const { pending, payload, stats } = await queue.counts();
    expect(pending).toBeGreaterThan(0);
    expect(payload).toBe(pending);
    expect(pending + (stats.cancelled ?? 0)).toBe(n);
    expect(await delayq(['cancel', '--all', '--yes', queue.name])).toMatchObject({ code: 0 });
    expect(await queue.counts()).toMatchObject({ pending: 0, payload: 0, stats: { cancelled: n } });
  });

  it('shows on a terminal how far it has got, and leaves nothing of that', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(30_000).map((i) => ({ payload: i, in: '1h' })));
    const text = await onTerminal(`delayq cancel --all --yes ${queue.name}`, { progress: true });
    expect(text).toMatch(/cancelled [\d,]+ of 30,000/);
    expect(linesOf(text).at(-1)).toContain(`delayq: 30,000 jobs cancelled in ${queue.name}`);
  });

  it('says what was done before Redis refused', async () => {
    const { name } = await withShops();
    const running = begin(['cancel', name, '-']);
    running.child.stdin?.write('p0\n');
    await until(async () => !(await listed(name)).includes('p0'));
    await admin.del(key(name, 'meta'));
    await admin.set(key(name, 'meta'), 'something else');
    running.child.stdin?.end('p1\n');
    const { stderr } = await running.ended;
    expect(stderr).toMatch(/1 job cancelled in .* before this:\ndelayq: /);
  });

  it('of the library answers with the state that each was in, in the states asked for', async () => {
    const { name } = await withShops();
    const operator = new Operator(connection);
    expect(await operator.cancel(name, ['d', 'a', 'p0', 'x'], ['dead', 'pending'])).toEqual([
      'dead',
      'missing',
      'pending',
      'missing',
    ]);
    expect(await operator.cancel(name, ['a', 'p1'])).toEqual(['active', 'pending']);
  });
});
