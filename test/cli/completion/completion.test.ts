import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Queue, Recurring } from '../../../src/index.js';
import { beginSh, delayq, linesOf, sh } from '../../support/cli.js';
import { admin, connection, freshName } from '../../support/redis.js';
import { temporaryDirectory } from '../../support/temporary.js';
import { until } from '../../support/until.js';

const has = (shell: string) => spawnSync(shell, ['--version']).status === 0;

/** A namespace with the queues a:b.c and xy, as an environment, and a directory with two files and an executable. */
async function place() {
  const prefix = freshName();
  for (const name of ['a:b.c', 'xy']) await new Queue(connection, name, { prefix }).enqueue({ payload: 1 });
  await admin.sadd(`${prefix}:queues`, '$(touch pwned)', 'a b', '`x`');
  const directory = temporaryDirectory();
  writeFileSync(join(directory, 'job one.json'), '');
  mkdirSync(join(directory, 'deep'));
  writeFileSync(join(directory, 'deep', 'metrics.prom'), '');
  writeFileSync(join(directory, 'close-order'), '#!/bin/sh\n', { mode: 0o755 });
  return { directory, env: { DELAYQ_PREFIX: prefix, HOME: directory, TERM: 'dumb' } };
}

/** The answer of delayq to the scripts. */
async function answer(words: string[], env: Record<string, string> = {}): Promise<string[]> {
  const { code, stdout, stderr } = await delayq(['completion', '--words', '--', ...words], { env });
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return linesOf(stdout).map((line) => line.replace(/\t.*/, ''));
}

describe('completion offers', () => {
  it('every command that the help lists, and no other', async () => {
    const { stdout } = await delayq(['--help']);
    const listed = [...stdout.matchAll(/^ {2}([a-z]+) {2,}\S/gm)].map(([, name]) => name);
    expect(listed.length).toBeGreaterThan(10);
    expect(await answer([''])).toEqual(['words', ...listed]);
    expect(await answer(['help', 'enq'])).toEqual(['words', 'enqueue']);
    expect(await answer(['--prefix', 'drain', 'enq'])).toEqual(['words', 'enqueue']);
    expect(await answer(['no-such-command', ''])).toEqual(['words']);
  });

  it('every option that the help of a command lists', async () => {
    for (const command of (await answer([''])).slice(1).filter((name) => name !== 'help')) {
      const { stdout } = await delayq([command, '--help']);
      const [options] = /^Options:\n(?: .*\n)*/m.exec(stdout) ?? [''];
      const listed = [...options.matchAll(/^ {2}(?:-\w, )?(--[a-z-]+)/gm)].map(([, name]) => name);
      expect(listed).toContain('--help');
      expect(await answer([command, '-']), command).toEqual(['words', ...listed]);
    }
  });

  it.each([
    [
      ['enqueue', '--if-exists', ''],
      ['keep', 'replace'],
    ],
    [['enqueue', '--if-exists=r'], ['--if-exists=replace']],
    [['enqueue', '-q', '--if-exists', 'k'], ['keep']],
    [['list', 'q', '--tz', 'Europe/Berl'], ['Europe/Berlin']],
    [
      ['config', 'q', 't'],
      ['tries=', 'ttl=', 'text='],
    ],
    [['config', 'q', 'tries=4', 'back'], ['backoff=']],
    [
      ['completion', ''],
      ['bash', 'zsh', 'fish'],
    ],
    [['drain', '-qn', ''], []],
    [['drain', '-P', 'x'], []],
    [['show', 'q', ''], []],
    [['drain', '--no-such-option', '--at-m'], ['--at-most-once']],
  ])('%j: %j', async (words, expected) => {
    expect(await answer(words)).toEqual(['words', ...expected]);
  });

  it.each([
    [['enqueue', 'q', '@'], 'files @'],
    [['metrics', '--out', ''], 'files '],
    [['metrics', '--out=x'], 'files --out='],
    [['drain', 'q', '--', ''], 'command 3'],
    [['drain', '-P', '2', 'q', '--', 'nice', '-n'], 'command 5'],
  ])('%j: %j', async (words, expected) => {
    expect(await answer(words)).toEqual([expected]);
  });

  it('queues of the given Redis and prefix, but no names that a shell could run', async () => {
    const { env } = await place();
    expect(await answer(['drain', ''], env)).toEqual(['words', 'a:b.c', 'xy']);
    expect(await answer(['drain', 'xy,'], env)).toEqual(['words', 'xy,a:b.c', 'xy,xy']);
    expect(await answer(['drain', '-P', '4', '--verbose', 'a'], env)).toEqual(['words', 'a:b.c']);
    expect(await answer(['metrics', 'xy', 'a'], env)).toEqual(['words', 'a:b.c']);
    expect(await answer(['drain', ''], { DELAYQ_PREFIX: freshName() })).toEqual(['words']);
    const prefix = env.DELAYQ_PREFIX;
    for (const words of [
      ['drain', '--prefix', prefix],
      ['--prefix', prefix, 'drain'],
      ['drain', `--prefix=${prefix}`],
    ])
      expect(await answer([...words, ''])).toEqual(['words', 'a:b.c', 'xy']);
  });

  it('what every takes: queues, and the ids of recurring jobs that a shell cannot run', async () => {
    const { env } = await place();
    const recurring = new Recurring(connection, { prefix: env.DELAYQ_PREFIX });
    for (const id of ['daily', 'poll', '$(pwned)']) await recurring.put('xy', { id, when: '1h', payload: 1 });
    for (const act of ['--remove', '--pause', '--resume']) {
      expect(await answer(['every', act, 'x'], env)).toEqual(['words', 'xy']);
      expect(await answer(['every', act, 'xy', ''], env)).toEqual(['words', 'daily', 'poll']);
      expect(await answer(['every', act, 'xy', 'daily', 'po'], env)).toEqual(['words', 'poll']);
      expect(await answer(['every', act, 'a:b.c', ''], env)).toEqual(['words']);
    }
    expect(await answer(['every', '--list', 'xy', ''], env)).toEqual(['words', 'a:b.c', 'xy']);
    expect(await answer(['every', '--id', 'x', ''], env)).toEqual(['words']);
    expect(await answer(['every', '--id', 'x', '15m', ''], env)).toEqual(['words', 'a:b.c', 'xy']);
    expect(await answer(['every', '15m', 'xy', '@'], env)).toEqual(['files @']);
  });

  it('no queues if Redis cannot be reached or does not answer', async () => {
    expect(await answer(['drain', '--redis', 'unix:///no/such.sock', ''])).toEqual(['words']);
    expect(await answer(['drain', '--redis', 'nonsense', ''])).toEqual(['words']);
    expect(await answer(['drain', ''], { DELAYQ_REDIS_URL: 'nonsense' })).toEqual(['words']);
    const silent = createServer(() => {});
    const socket = join(temporaryDirectory(), 'silent.sock');
    await new Promise<void>((resolve) => silent.listen(socket, resolve));
    expect(await answer(['drain', ''], { DELAYQ_REDIS_URL: `unix://${socket}` })).toEqual(['words']);
    silent.close();
  });
});

it('prints scripts only for known shells', async () => {
  for (const shell of ['bash', 'zsh', 'fish']) {
    expect(await delayq(['completion', shell])).toMatchObject({ code: 0, stdout: expect.stringContaining('delayq') });
  }
  for (const args of [['tcsh'], ['toString'], ['bash', 'zsh']]) {
    expect(await delayq(['completion', ...args])).toMatchObject({ code: 64, stdout: '' });
  }
});

/**
 * Types lines into an interactive shell on a terminal, each followed by the tab key, and returns what they became. `rules`
 * make the script known.
 */
async function typed(shell: string, rules: string, lines: string[]): Promise<string[]> {
  const { directory, env } = await place();
  const running = beginSh(`cd ${directory} && exec script -qec '${shell}' /dev/null`, { env, input: undefined });
  const write = (text: string) => running.child.stdin?.write(text);
  await until(() => running.stdout !== '');
  write(`${rules}; echo READ""Y\r`);
  await until(() => running.stdout.includes('READY'));
  const became: string[] = [];
  for (const [i, line] of lines.entries()) {
    // Goes to the start of the line, so that the line is shown rather than run.
    write(`${line}\t\x01echo G${i}'T '\r`);
    const shown = new RegExp(`^G${i}T (.*?)\\r?$`, 'm');
    await until(() => shown.test(running.stdout));
    became.push(shown.exec(running.stdout)?.[1] ?? '');
  }
  write('exit\r');
  await running.ended;
  return became;
}

const LINES: Readonly<Record<string, string>> = {
  'delayq dr': 'delayq drain',
  'delayq drain a': 'delayq drain a:b.c',
  'delayq drain a:': 'delayq drain a:b.c',
  'delayq drain a:b.': 'delayq drain a:b.c',
  'delayq drain xy,a:': 'delayq drain xy,a:b.c',
  'delayq enqueue --if-exists=k': 'delayq enqueue --if-exists=keep',
  'delayq drain --par': 'delayq drain --parallel',
  'delayq metrics --out deep/m': 'delayq metrics --out deep/metrics.prom',
  'delayq metrics --out=deep/m': 'delayq metrics --out=deep/metrics.prom',
  'delayq drain xy -- ./cl': 'delayq drain xy -- ./close-order',
  'delayq drain a:b.c -- cat deep/m': 'delayq drain a:b.c -- cat deep/metrics.prom',
  'delayq config xy tr': 'delayq config xy tries=',
  'delayq no-such-command x': 'delayq no-such-command x',
};

describe.each([
  ['bash', 'bash --norc --noprofile -i', 'source <(delayq completion bash)'],
  ['zsh', 'zsh -f -i', 'bindkey -e; autoload -Uz compinit; compinit -u -D; source <(delayq completion zsh)'],
])('in %s the tab key', (shell, start, rules) => {
  it.runIf(has(shell))('completes', async () => {
    const became = await typed(start, rules, Object.keys(LINES));
    expect(became).toEqual(Object.values(LINES));
  });

  it.runIf(has(shell))('completes file names that need quotes', async () => {
    const [became] = await typed(start, rules, ['delayq enqueue xy @job']);
    expect(became).toBe('delayq enqueue xy @job one.json');
  });
});

describe('in fish the tab key', () => {
  it.runIf(has('fish'))('completes', async () => {
    const { directory, env } = await place();
    const complete = Object.keys(LINES).map(
      (line) => `echo "= "(complete -C '${line}' | string replace -r '\\t.*' '')`,
    );
    const { stdout, stderr } = await sh(`cd ${directory} && fish --no-config -c "$RULES"`, {
      env: { ...env, RULES: ['delayq completion fish | source', ...complete].join('\n') },
    });
    expect(stderr).toBe('');
    // Fish answers with the last word only.
    expect(linesOf(stdout).slice(0, -1)).toEqual(
      Object.values(LINES)
        .slice(0, -1)
        .map((line) => `= ${line.replace(/^.* /, '')}`),
    );
  });
});
