import { readdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { begin, binary } from '../../support/cli.js';
import { temporaryDirectory } from '../../support/temporary.js';
import { until } from '../../support/until.js';

describe.concurrent('delayq demo', () => {
  it('does the main job on a Redis of its own, and leaves nothing behind', async () => {
    const TMPDIR = temporaryDirectory();
    const { code, stdout, stderr } = await binary(['demo'], {
      env: { TMPDIR, DELAYQ_REDIS_URL: 'redis://127.0.0.1:1' },
    });
    // On a busy machine, both may be due at the same drain, and done before they are listed.
    const done = /^((delayq: 1 done in \S+\n){2}|delayq: 2 done in \S+\n)(delayq: order-close has no jobs\n)?$/;
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringMatching(done) });
    expect(stdout).toMatch(
      /\$ delayq enqueue --in 4s[\s\S]*closed \{"orderId":41\}[\s\S]*closed \{"orderId":42\}[\s\S]*Both are done:\n[\s\S]*\norder-close +0 /,
    );
    expect(await readdir(TMPDIR)).toEqual([]);
  });

  it('claims nothing that is false on a slow machine', async () => {
    const slow = `${temporaryDirectory()}/slow.cjs`;
    // Two starts of delayq take so long that the first job is due before the first drain looks.
    await writeFile(slow, 'Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 600);');
    const { code, stdout } = await binary(['demo'], { env: { NODE_OPTIONS: `--require ${slow}` } });
    expect(code).toBe(0);
    expect(stdout).toMatch(/If nothing is due, it ends:\n\$ delayq drain .*\nclose-order: closed \{"orderId":41\}/);
    expect(stdout).toMatch(/Both are done:\n\$ delayq inspect\n.*\norder-close +0 /);
  });

  it('cleans up when it is interrupted', async () => {
    const TMPDIR = temporaryDirectory();
    const running = begin(['demo'], { env: { TMPDIR } });
    await until(() => running.stdout.includes('$ sleep 1'));
    running.child.kill('SIGINT');
    expect((await running.ended).code).toBe(130);
    expect(await readdir(TMPDIR)).toEqual([]);
  });

  it('without a directory for its files says so', async () => {
    const { code, stderr } = await binary(['demo'], { env: { TMPDIR: '/nowhere' } });
    expect({ code, stderr }).toEqual({ code: 78, stderr: expect.stringContaining('set TMPDIR') });
  });

  it('without redis-server says how to get it', async () => {
    // A PATH that has nothing but Node.
    const PATH = temporaryDirectory();
    await symlink(process.execPath, join(PATH, 'node'));
    const { code, stderr } = await binary(['demo'], { env: { PATH } });
    expect({ code, stderr }).toEqual({ code: 78, stderr: expect.stringContaining('apt-get install redis-server') });
  });
});
