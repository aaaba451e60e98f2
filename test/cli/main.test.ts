import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { delayq, sh } from '../support/cli.js';
import { freshName } from '../support/redis.js';

describe('the command line', () => {
  it('tells its version', async () => {
    const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
    expect(await delayq(['--version'])).toMatchObject({ code: 0, stdout: `${version}\n`, stderr: '' });
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
