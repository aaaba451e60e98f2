import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { Leftovers } from './leftovers.js';
import { until } from './until.js';

it('a run of tests that leaves a process or a folder behind is told which, and both end', async () => {
  const env = { ...process.env };
  const leftovers = new Leftovers(env);
  const folder = join(env.TMPDIR as string, 'folder');
  mkdirSync(folder);
  // One whose parent has ended.
  const parent = spawn('sh', ['-c', 'sleep 1000 & echo $!'], { env, detached: true });
  const pid = Number((await once(parent.stdout, 'data'))[0]);
  await once(parent, 'exit');
  await until(() => readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith('sleep'));
  expect(await leftovers.end()).toEqual([`process ${pid} (sleep 1000)`, folder]);
  await once(parent, 'close');
  expect(existsSync(env.TMPDIR as string)).toBe(false);
});

it('a run that leaves nothing behind is told nothing', async () => {
  const env = { ...process.env };
  const leftovers = new Leftovers(env);
  const folder = join(env.TMPDIR as string, 'folder');
  mkdirSync(folder);
  rmdirSync(folder);
  expect(await leftovers.end()).toEqual([]);
});
