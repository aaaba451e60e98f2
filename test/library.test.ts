import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { connect } from '../src/index.js';
import { freshName, redisUrl } from './support/redis.js';

const root = new URL('..', import.meta.url);

describe('the library as it is installed', () => {
  it('does what the README shows, and lets the process end once it is closed', () => {
    const readme = readFileSync(new URL('README.md', root), 'utf8');
    const [, shown = ''] = /```ts\n([\s\S]*?)```/.exec(readme) ?? [];
    const code = shown
      .replace('redis://127.0.0.1:6379', redisUrl)
      .replace("'order-close'", `'${freshName()}'`)
      .replace(
        'redis.close();',
        'console.log(jobs.map(({ payload }) => String(payload)).join(), JSON.stringify(await queue.counts()));\nredis.close();',
      );
    // In the package itself, the name delayq means what "exports" says.
    const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', code], {
      cwd: root,
      encoding: 'utf8',
      timeout: 30_000,
    });
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toContain('{"big":12345678901234567890}');
    expect(stdout).toContain('"active":0');
  });

  it('tells with connect() itself that Redis is not there', async () => {
    await expect(connect('redis://127.0.0.1:1')).rejects.toMatchObject({
      code: 'unreachable',
      message: expect.stringContaining('127.0.0.1:1'),
    });
  });
});
