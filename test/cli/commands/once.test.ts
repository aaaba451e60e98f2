import { describe, expect, it } from 'vitest';
import { Operator, Queue } from '../../../src/index.js';
import { begin, delayq, linesOf, sh } from '../../support/cli.js';
import { connection, freshName, timePasses } from '../../support/redis.js';

const DAY = 86_400_000;
const counts = (name: string) => new Queue(connection, name).counts();

/** A queue in which the job a is done, and its id remembered for a day. */
async function withDone(id = 'a'): Promise<string> {
  const name = freshName();
  expect((await delayq(['enqueue', '--id', id, '--once-for', '1d', name, '1'])).code).toBe(0);
  expect((await delayq(['drain', name, '--', 'true'])).code).toBe(0);
  return name;
}

describe('delayq enqueue --once-for', () => {
  it('makes no second job while the id of the first is remembered, and exits 0', async () => {
    const name = await withDone();
    const again = (...more: string[]) => delayq(['enqueue', '--id', 'a', ...more, name, '2']);
    const { code, stdout, stderr } = await again();
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'a\n' });
    expect(stderr).toContain(`delayq: kept: job a is done in ${name}`);
    expect(await again('--if-exists', 'replace')).toMatchObject({ code: 0 });
    expect(JSON.parse((await again('--json')).stdout)).toMatchObject({ outcome: 'kept-done' });
    expect(await counts(name)).toMatchObject({ pending: 0, stats: { enqueued: 1, kept: 3 } });
    await timePasses(name, DAY);
    expect(JSON.parse((await again('--json')).stdout)).toMatchObject({ outcome: 'created' });
  });

  it('can be in lines of --jobs, and is counted there', async () => {
    const name = await withDone();
    const lines = ['a', 'b'].map((id) => JSON.stringify({ id, payload: 1, onceFor: '1d' })).join('\n');
    const { code, stderr } = await delayq(['enqueue', '--jobs', name, '-'], { input: lines });
    expect({ code, stderr }).toEqual({ code: 0, stderr: 'delayq: kept, because done already: 1 job\n' });
    const { stdout } = await delayq(['enqueue', '--json', '--jobs', name, '-'], { input: lines });
    expect(JSON.parse(stdout)).toMatchObject({ created: 0, kept: 1, keptDone: 1 });
  });

  it.each([
    [['enqueue', '--once-for', '0s', 'q', '1'], 64, 'write it as 30s or 5m'],
    [['config', 'q', 'once-for=0s'], 64, 'write a duration such as once-for=90s'],
  ])('refuses a window of no length, and says what to write: %j', async (args, code, next) => {
    const said = await delayq(args);
    expect(said).toMatchObject({ code, stdout: '' });
    expect(said.stderr).toContain(next);
  });

  it('refuses such a line', async () => {
    const input = '{"id":"a","payload":1,"onceFor":"0s"}\n';
    const { code, stderr } = await delayq(['enqueue', '--jobs', freshName(), '-'], { input });
    expect(code).toBe(1);
    expect(stderr).toContain('line 1: the line is not a job: onceFor must be greater than zero, such as "1d"');
  });

  it('makes one job of the same line in the crontabs of two hosts', async () => {
    const name = freshName();
    // The drain is faster than the slower host.
    const line = `delayq enqueue --quiet --id "report:$(date +%F)" --once-for 2d ${name} '{}' && delayq drain ${name} -- true`;
    const hosts = await Promise.all([sh(line), sh(line), sh(line)]);
    expect(hosts.map(({ code }) => code)).toEqual([0, 0, 0]);
    expect(await counts(name)).toMatchObject({ pending: 0, active: 0, remembered: 1, stats: { acked: 1, kept: 2 } });
  });
});

describe('an id that is remembered', () => {
  it('is told by inspect and show, and freed by cancel', async () => {
    const name = await withDone();
    expect((await delayq(['inspect', name])).stdout).toContain('remembered  1 id of jobs that have ended');
    expect(JSON.parse((await delayq(['inspect', '--json', name])).stdout).queues[0]).toMatchObject({ remembered: 1 });
    const shown = await delayq(['show', name, 'a']);
    expect(shown.code).toBe(3);
    expect(shown.stderr).toMatch(/its job has ended; the id stays taken until 20.*, for (1d|23h)/);
    const cancelled = await delayq(['cancel', name, 'a']);
    expect(cancelled.code).toBe(0);
    expect(linesOf(cancelled.stderr)).toEqual([
      'delayq: a was done, but remembered: its id is free again',
      `delayq: 0 jobs cancelled in ${name}`,
    ]);
    expect(JSON.parse((await delayq(['enqueue', '--json', '--id', 'a', name, '1'])).stdout).outcome).toBe('created');
  });

  it('stays after a purge, and goes with --forget, which says so', async () => {
    const name = await withDone();
    const { stderr } = await delayq(['purge', '--yes', name]);
    expect(stderr).toContain('; 1 remembered id kept (--forget drops them)');
    const asking = begin(['purge', '--forget', name]);
    expect((await asking.ended).stderr).toContain('not a terminal');
    expect((await delayq(['purge', '--forget', '--yes', name])).code).toBe(0);
    expect(await counts(name)).toMatchObject({ remembered: 0 });
  });

  it('is counted after a purge, with those of the jobs that it removes', async () => {
    const name = await withDone();
    await delayq(['enqueue', '--id', 'b', '--once-for', '1d', name, '1']);
    await delayq(['bury', name, 'b']);
    const { stderr } = await delayq(['purge', '--dead', '--yes', name]);
    expect(stderr).toContain('; 2 remembered ids kept (--forget drops them)');
    expect(await counts(name)).toMatchObject({ remembered: 2 });
  });

  it('is not made by an import, which tells how many', async () => {
    const name = await withDone();
    const input =
      '{"id":"a","at":"@1795266000","payload":1}\n{"id":"b","at":"@1795266000","onceFor":"1d","payload":1}\n';
    const imported = await delayq(['import', name], { input });
    expect(imported.code).toBe(0);
    expect(imported.stderr).toContain(`1 job imported into ${name}; 1 job done there, within the window`);
    const { stdout } = await delayq(['export', name]);
    expect(stdout).toBe('{"id":"b","at":"@1795266000.000","onceFor":"86400000ms","payload":1}\n');
    const again = await delayq(['import', '--json', name], { input: stdout });
    expect(JSON.parse(again.stdout)).toMatchObject({ created: 0, kept: 1, keptDone: 0 });
  });
});

describe('delayq cancel --keep-id', () => {
  it('remembers the ids as if the jobs were done', async () => {
    const name = freshName();
    await new Operator(connection).configure(name, { onceFor: DAY });
    await delayq(['enqueue', '--id', 'a', name, '1']);
    expect((await delayq(['cancel', '--keep-id', name, 'a'])).code).toBe(0);
    expect(JSON.parse((await delayq(['enqueue', '--json', '--id', 'a', name, '1'])).stdout).outcome).toBe('kept-done');
  });
  it('says of how many jobs nothing is remembered, as they have no window', async () => {
    const name = freshName();
    await delayq(['enqueue', '--id', 'a', '--once-for', '1d', name, '1']);
    for (const id of ['b', 'c']) await delayq(['enqueue', '--id', id, name, '1']);
    const { code, stderr } = await delayq(['cancel', '--keep-id', name, 'a', 'b', 'c']);
    expect(code).toBe(0);
    expect(stderr).toBe(`delayq: 3 jobs cancelled in ${name}; 2 without a window (--once-for), so not remembered\n`);
    expect(await counts(name)).toMatchObject({ remembered: 1 });
  });
});
