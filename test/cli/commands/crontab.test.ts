import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { delayq, type Ended, linesOf, sh } from '../../support/cli.js';
import { freshQueue, redisUrl } from '../../support/redis.js';
import { temporaryDirectory } from '../../support/temporary.js';

/** What cron makes of the command in a line: Vixie's do_command.c, which \% makes % and % the end of the command. */
function commandOf(line: string): string {
  const [, command = ''] = /^\* \* \* \* \* {2}(.*)$/.exec(line) ?? [];
  let made = '';
  let escaped = false;
  for (const char of command) {
    if (escaped && char === '%') made = `${made.slice(0, -1)}%`;
    else if (char === '%') return made;
    else made += char;
    escaped = !escaped && char === '\\';
  }
  return made;
}

/** Runs a command with what cron gives it, and nothing else. */
async function asCron(command: string, more: Record<string, string> = {}): Promise<Ended> {
  const env = { HOME: '/', LOGNAME: 'root', SHELL: '/bin/sh', PATH: '/usr/bin:/bin', DELAYQ_REDIS_URL: undefined };
  return sh(command, { env: { ...env, ...more } });
}

/** A directory whose name needs quotes, with a handler in it that tells where it is and what it was called with. */
function place(): string {
  const directory = join(temporaryDirectory(), "it's 100% \\%d");
  mkdirSync(join(directory, 'bin'), { recursive: true });
  const handler = '#!/bin/sh\npwd -P > told\nprintf "<%s>" "$@" >> told\ncat >> told\ntool >> told\n';
  writeFileSync(join(directory, 'handler'), handler, { mode: 0o755 });
  writeFileSync(join(directory, 'bin', 'tool'), '#!/bin/sh\necho found by PATH\n', { mode: 0o755 });
  return directory;
}

const inPlace = (directory: string, words: string, env = {}) =>
  sh(`cd "$DIRECTORY" && PATH=$PWD/bin:$PATH && ${words}`, { env: { DIRECTORY: directory, ...env } });

describe('delayq crontab', () => {
  it('prints a line that does here under cron what it would do in the shell', async () => {
    const directory = place();
    const queue = freshQueue();
    await queue.enqueue({ payload: { n: 1 } });
    const args = `'50%' 'a\\%b\\\\%' "it's" 'two  words' '$HOME' '"' '\\' '-n' '{id}x' '' 'ä#;&|'`;
    const printed = await inPlace(directory, `delayq crontab ${queue.name} -- ./handler ${args}`);
    expect(printed).toMatchObject({ code: 0, stderr: '' });
    const lines = linesOf(printed.stdout);
    expect(lines.slice(0, -1).every((line) => line.startsWith('# '))).toBe(true);
    expect(lines.join()).toMatch(/Runs may overlap/);
    const command = commandOf(lines.at(-1) ?? '');
    expect(await asCron(command)).toMatchObject({ code: 0, stdout: '', stderr: '' });
    expect(readFileSync(join(directory, 'told'), 'utf8')).toBe(
      `${directory}\n<50%><a\\%b\\\\%><it's><two  words><$HOME><"><\\><-n><{id}x><><ä#;&|>{"n":1}\nfound by PATH\n`,
    );
    expect(await queue.counts()).toMatchObject({ payload: 0, stats: { acked: 1 } });
    // Nothing due, nothing printed.
    expect(await asCron(command)).toMatchObject({ code: 0, stdout: '', stderr: '' });
  });

  const reader = '#!/bin/sh\nwhile read -r line; do printf "<%s>" "$@" "$line" >> told; tool >> told; done\n';

  it.each(['pipe', 'lines'])('prints a line in the form "%s", for handlers that read lines', async (form) => {
    const directory = place();
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    writeFileSync(join(directory, 'handler'), reader, { mode: 0o755 });
    const args = `'50%' 'a\\%b\\\\%' "it's" 'two  words' '$HOME' '"' '\\' '-n' '{id}x' '' 'ä#;&|'`;
    const { code, stdout } = await inPlace(
      directory,
      `delayq crontab --form ${form} ${queue.name} -- ./handler ${args}`,
    );
    expect(code).toBe(0);
    const lines = linesOf(stdout);
    expect(lines.slice(0, -1).every((line) => line.startsWith('# At least once') === (line === lines[1]))).toBe(true);
    expect(stdout.includes('is lost')).toBe(form === 'lines');
    const command = commandOf(lines.at(-1) ?? '');
    expect(await asCron(command)).toMatchObject({ code: 0, stdout: '', stderr: '' });
    const words = `<50%><a\\%b\\\\%><it's><two  words><$HOME><"><\\><-n><{id}x><><ä#;&|>`;
    expect(readFileSync(join(directory, 'told'), 'utf8')).toBe(`${words}<1>found by PATH\n${words}<2>found by PATH\n`);
    expect(await queue.counts()).toMatchObject({ payload: 0 });
    expect(await asCron(command)).toMatchObject({ code: 0, stdout: '', stderr: '' });
  });

  it('gives a handler that reads lines the same environment as the others', async () => {
    const handler = ['sh', '-c', 'cat; echo "$DELAYQ_REDIS_URL $PATH"'];
    const told = await Promise.all(
      ['job', 'pipe', 'lines'].map(async (form) => {
        const queue = freshQueue();
        await queue.enqueue({ payload: 1 });
        const { stdout } = await delayq(['crontab', '--for', '100ms', '--form', form, queue.name, '--', ...handler]);
        return (await asCron(commandOf(linesOf(stdout).at(-1) ?? ''))).stdout;
      }),
    );
    expect(told[0]).toMatch(/^1\n\S+ \S+bin\n$/);
    expect(new Set(told).size).toBe(1);
  });

  it('says of a form that does not exist which there are', async () => {
    expect(await delayq(['crontab', '--form', 'stdin', 'q', '--', 'cat'])).toMatchObject({
      code: 64,
      stdout: '',
      stderr: expect.stringContaining('job, pipe, lines'),
    });
  });

  it('prints a line of which cron mails each job that dies, a run in which all fail, and nothing else of delayq', async () => {
    const directory = place();
    const queue = freshQueue();
    const handler = '#!/bin/sh\necho "no such order" >&2\nexit 1\n';
    writeFileSync(join(directory, 'handler'), handler, { mode: 0o755 });
    const { stdout } = await inPlace(directory, `delayq crontab ${queue.name} -- ./handler`);
    const mail = async () => (await asCron(`{ ${commandOf(linesOf(stdout).at(-1) ?? '')}; } 2>&1`)).stdout;
    // Not even that the queue does not exist yet.
    expect(await mail()).toBe('');
    await delayq(['config', '--create', queue.name, 'backoff=0s']);
    await queue.enqueue({ payload: { orderId: 42 }, id: 'order:42', tries: 2 });
    expect(linesOf(await mail())).toEqual([
      'no such order',
      expect.stringMatching(/^delayq: 1 failed in \S+$/),
      '  why:  exit 1: no such order',
    ]);
    expect(linesOf(await mail())).toEqual([
      'no such order',
      expect.stringMatching(/^delayq: \S+ order:42: attempt 2, \d+ms: dead: failed too often: exit 1: no such order$/),
    ]);
    expect(await mail()).toBe('');
  });

  it('finds the program in PATH, and carries prefix, Redis and --for', async () => {
    const { stdout } = await sh('cd / && delayq crontab --prefix mine --for 59s a,b:c -- cat -', {
      env: { PATH: `${process.env.PATH}:${process.cwd()}/bin` },
    });
    const line = linesOf(stdout).at(-1);
    expect(line).toMatch(
      /^\* \* \* \* \* {2}cd \/ && PATH=\S+ DELAYQ_REDIS_URL=\w+:\S+ \/\S*node \/\S*delayq drain -q /,
    );
    expect(line).toMatch(/ drain -q --prefix mine --for 59s a,b:c -- \/\S*bin\/cat -$/);
  });

  it('carries what is set for TLS and Sentinels: options before parameters of the URL, and those before variables', async () => {
    const DELAYQ_REDIS_URL = 'rediss+sentinel://s1,s2/m/2?ca=/p.pem&sentinel-user=parameter';
    const variables = {
      ...{ DELAYQ_TLS_CA: '/v.pem', DELAYQ_TLS_SERVERNAME: 'variable' },
      ...{ DELAYQ_SENTINEL_USER: 'variable', DELAYQ_SENTINEL_PASSWORD_FILE: '/run/variable' },
    };
    const printed = (args: string[], env: Record<string, string>) =>
      delayq(['crontab', ...args, 'q', '--', 'cat'], { env: { ...variables, ...env } });
    const line = linesOf((await printed(['--sentinel-password-file', '/run/50%'], { DELAYQ_REDIS_URL })).stdout).at(-1);
    const options = `--tls-ca /p.pem --tls-servername variable --sentinel-user parameter --sentinel-password-file`;
    expect(line).toContain(` -q ${options} /run/50\\% q -- `);
    // Where they are not used, they may be meant for another server.
    expect((await printed([], { DELAYQ_REDIS_URL: redisUrl })).stdout).not.toMatch(/--tls|--sentinel/);
    expect(await printed(['--sentinel-user', 'u'], { DELAYQ_REDIS_URL: redisUrl })).toMatchObject({
      code: 64,
      stderr: expect.stringMatching(
        /^delayq: --sentinel-user needs a URL .* redis\+sentinel:\/\/\n.*\n {2}next: .*omit/,
      ),
    });
  });

  it('says nothing of what is as cron and delayq have it anyway', async () => {
    const delayqHere = `${process.execPath} ${process.cwd()}/bin/delayq`;
    const { stdout } = await sh(`cd / && PATH=/usr/bin:/bin ${delayqHere} crontab q -- /bin/true`, {
      env: { DELAYQ_REDIS_URL: undefined },
    });
    expect(linesOf(stdout).at(-1)).toBe(`* * * * *  cd / && ${delayqHere} drain -q q -- /bin/true`);
  });

  it.each(['job', 'pipe', 'lines'])(
    'never prints a password, and makes a line that fails without: %s',
    async (form) => {
      const queue = freshQueue();
      await queue.enqueue({ payload: 1 });
      for (const [args, env] of [
        ['--redis redis://me:s3cret@h/1', {}],
        ['', { DELAYQ_REDIS_URL: 'rediss://:s3cret@h' }],
        ['', { DELAYQ_REDIS_URL: undefined, REDIS_URL: 'redis://u:s3cret@h' }],
      ] as const) {
        const { code, stdout, stderr } = await sh(`delayq crontab --form ${form} ${args} ${queue.name} -- cat`, {
          env,
        });
        expect(code).toBe(0);
        expect(stdout + stderr).not.toContain('s3cret');
        expect(stderr).toContain('add a line DELAYQ_REDIS_URL=… above');
        const command = commandOf(linesOf(stdout).at(-1) ?? '');
        const without = await asCron(command);
        expect(without.code).not.toBe(0);
        expect(without.stderr).toContain('DELAYQ_REDIS_URL');
        await queue.enqueue({ payload: 1, id: 'again' });
        expect(await asCron(command, { DELAYQ_REDIS_URL: redisUrl })).toMatchObject({ code: 0, stderr: '' });
        expect(await queue.counts()).toMatchObject({ payload: 0 });
      }
    },
  );

  it.each([
    [['q', '--', 'no-such-program'], 78, 'it is not in PATH'],
    [['q', '--', './no-such-program'], 78, 'the program does not exist'],
    [['q', '--', '/'], 78, 'it is a directory'],
    [['q', '--', ''], 64, 'the handler is empty'],
    [['q', 'cat'], 64, 'write delayq crontab q -- cat'],
    [['q'], 64, "missing required argument 'command'"],
    [['no queue', '--', 'cat'], 64, 'cannot name a queue'],
    [['q', '--', 'cat', 'a\nb'], 64, 'put the command into a script'],
    [['--redis', 'nonsense', 'q', '--', 'cat'], 64, 'the Redis URL cannot be read'],
  ])('%j exits %i', async (args, code, says) => {
    expect(await delayq(['crontab', ...args])).toMatchObject({
      code,
      stdout: '',
      stderr: expect.stringContaining(says),
    });
  });

  const checks = spawnSync('crontab', ['-n', '-'], { input: '' }).status === 0;
  it.runIf(checks)('prints what crontab takes', async () => {
    const file = join(temporaryDirectory(), 'crontab');
    const forms = ['job', 'pipe', 'lines'].map((form) => `delayq crontab --form ${form} q -- cat '50%'`).join(' && ');
    const { code, stderr } = await sh(`{ ${forms}; } > ${file} && crontab -n ${file}`);
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.not.stringMatching(/error|bad/i) });
  });
});
