import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { binary, delayq, sh } from '../support/cli.js';
import { freshName } from '../support/redis.js';
import { until } from '../support/until.js';

describe('the command line', () => {
  it('tells its version', async () => {
    const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
    expect(await binary(['--version'])).toMatchObject({ code: 0, stdout: `${version}\n`, stderr: '' });
  });

  it('without arguments shows help and exits 64', async () => {
    expect(await delayq([])).toMatchObject({ code: 64, stdout: '', stderr: expect.stringContaining('Usage: delayq') });
  });

  it('does not take jobs off a queue to show them on a terminal', async () => {
    const { stdout } = await sh(`script -qec 'delayq drain ${freshName()}; echo "ended with $?"' /dev/null`);
    expect(stdout).toMatch(/stdout is a terminal[\s\S]*delayq inspect[\s\S]*ended with 64/);
  });

  it('refuses an argument that is not UTF-8, as its bytes would be others, but takes U+FFFD itself', async () => {
    const name = freshName();
    const bad = await sh(`delayq enqueue ${name} "$(printf '"a\\377b"')"`);
    expect(bad).toMatchObject({
      code: 65,
      stdout: '',
      stderr: expect.stringContaining('an argument is not valid UTF-8'),
    });
    expect(await delayq(['enqueue', name, '"\ufffd"'])).toMatchObject({ code: 0 });
    expect((await delayq(['drain', name])).stdout).toBe('"\ufffd"\n');
  });

  it('reports output that cannot be written, exit 74, and keeps the jobs', async () => {
    const name = freshName();
    await delayq(['enqueue', name, '1']);
    const { stdout, stderr } = await sh(`delayq drain ${name} > /dev/full; echo "ended with $?"`);
    expect(stdout).toBe('ended with 74\n');
    expect(stderr).toContain('cannot write the output');
    expect((await delayq(['drain', name])).stdout).toBe('1\n');
  });
});

describe('a command whose output cannot be written', () => {
  it.each([
    ['cancel --json --all --yes', '1 job cancelled in QUEUE'],
    ['requeue --json --all --yes', '0 jobs requeued in QUEUE'],
    ['purge --json --yes', '1 job (1 pending) removed from QUEUE'],
  ])('%s says what it has done, and not to repeat it', async (command, done) => {
    const name = freshName();
    await delayq(['enqueue', name, '1']);
    const { stdout, stderr } = await sh(`delayq ${command} ${name} > /dev/full; echo $?`);
    expect(stdout).toBe('74\n');
    expect(stderr).toContain(`delayq: ${done.replace('QUEUE', name)}, but the output cannot be written\n`);
    expect(stderr).toContain('do not repeat the command');
  });

  it.each(['ack', 'nack'])('%s --json says how many jobs are settled', async (command) => {
    const name = freshName();
    await delayq(['enqueue', name, '1']);
    const line = `delayq drain --lease 1m ${name} | delayq ${command} --json > /dev/full; echo $?`;
    const { stdout, stderr } = await sh(line);
    expect(stdout).toBe('74\n');
    expect(stderr).toContain('delayq: 1 job settled, but the output cannot be written\n');
  });

  it('import --json says how many jobs are imported', async () => {
    const name = freshName();
    const line = `echo '{"id":"a","at":"@1795266000","payload":1}' | delayq import --json ${name} > /dev/full; echo $?`;
    const { stdout, stderr } = await sh(line);
    expect(stdout).toBe('74\n');
    expect(stderr).toContain(`delayq: 1 job imported into ${name}, but the output cannot be written\n`);
  });
});

/** The listeners and handles of this process: how many there are of each kind. */
function heldNow(): Map<string, number> {
  const emitters = { process, stdin: process.stdin, stdout: process.stdout, stderr: process.stderr };
  const held = new Map<string, number>();
  for (const [name, one] of Object.entries(emitters)) {
    for (const event of one.eventNames()) held.set(`${name} on ${String(event)}`, one.listenerCount(event));
  }
  for (const kind of process.getActiveResourcesInfo()) held.set(kind, (held.get(kind) ?? 0) + 1);
  return held;
}

describe('a run in process', () => {
  const runs = (name: string): [string[], string?][] => [
    [['enqueue', name, '-'], '1\n2\n3\n'],
    [['inspect', name]],
    [['drain', '-q', '-P', '2', '-n', '2', name, '--', 'cat']],
    [['drain', name]],
    [['list', '--json', name]],
    [['check', name]],
    [['export', name]],
    [['wait', '--timeout', '0s', name]],
    [['enqueue', name, '{']],
    [['help', 'drain']],
    [['nothing']],
    [[]],
  ];

  it('leaves no listener and no handle in its process', async () => {
    const name = freshName();
    // The first opens what stays: the clients that all tests share.
    for (const [args, input] of runs(name)) await delayq(args, { input });
    const before = heldNow();
    for (const [args, input] of runs(name)) await delayq(args, { input });
    await until(() => [...heldNow()].every(([kind, count]) => count <= (before.get(kind) ?? 0)));
    expect(process.exitCode).toBeUndefined();
  });

  it('answers as the binary does', async () => {
    const [here, there] = [freshName(), freshName()];
    for (const [args, input] of runs('NAME')) {
      const [one, other] = await Promise.all([
        delayq(
          args.map((word) => word.replace('NAME', here)),
          { input },
        ),
        binary(
          args.map((word) => word.replace('NAME', there)),
          { input },
        ),
      ]);
      // Ids and times differ.
      const plain = ({ stdout, stderr, ...rest }: typeof one) => ({
        ...rest,
        text: (stdout + stderr)
          .replaceAll(here, there)
          .replace(/"id":"[^"]*"|^[\w-]{12,}$/gm, 'ID')
          .replace(/\d+(\.\d+)?(ms|s)\b/g, 'SPAN')
          .replace(/\d+/g, 'N'),
      });
      expect(plain(one), args.join(' ')).toEqual(plain(other));
    }
  });
});
