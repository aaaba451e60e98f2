import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { programOf } from '../../src/cli/program.js';
import { during } from '../support/afterwards.js';
import { binary, delayq, linesOf } from '../support/cli.js';
import { freshName, key } from '../support/redis.js';
import { Server } from '../support/server.js';

/** Whether every command meets every password (DELAYQ_TEST_LONG=1), or samples of both that cover each kind. */
const isLong = process.env.DELAYQ_TEST_LONG === '1';

/** Between all characters of a password, so that no two of them are printed without it. Nothing else prints it. */
const MARK = '~!';

/** As it is typed: a % is escaped, and no argument holds a NUL. */
const typed = (characters: string) =>
  `${MARK}${[...characters.replaceAll('\0', '')].join(MARK)}${MARK}`.replaceAll('%', '%25');

/** Passwords of all characters: those that mean something to a URL, a shell, JSON or a list, and any others. */
const passwords = [
  ...['/', '?', '#', '@', ':', ',', '=', ' ', '"', "'", '\\', '\n', '|', '%', 'é漢🙂', '://', '@/', '\x1b', '$`*'],
  ...fc.sample(fc.string({ unit: 'binary', minLength: 1, maxLength: 40 }), { numRuns: isLong ? 10 : 2, seed: 1 }),
].map(typed);

/** Commands that read their words differently: names, ids, payloads, settings, a handler, a file, an address. */
const SAMPLE = ['enqueue', 'drain', 'inspect', 'cancel', 'config', 'crontab', 'import', 'serve', 'check'];

/** Every so-manieth. */
const sampled = <T>(items: readonly T[], nth: number) => (isLong ? items : items.filter((_, i) => i % nth === 0));

// In the bundle, the build defines it.
vi.stubGlobal('DELAYQ_VERSION', '0.0.0');
const { commands } = await programOf({} as never).all();
const all = commands
  .map((command) => [command.name(), command] as const)
  .filter(([name]) => name !== 'help' && name !== 'demo' && (isLong || SAMPLE.includes(name)));

type Run = readonly [args: readonly string[], env?: Record<string, string>];

/** Runs all, three at a time, and fails for those that print a part of a password. */
async function expectNone(runs: readonly Run[]): Promise<void> {
  const left = runs.entries();
  const run = async () => {
    for (const [, [args, env]] of left) {
      const { code, stdout, stderr } = await delayq([...args], { env });
      expect.soft(stdout + stderr, JSON.stringify({ args, env, code })).not.toContain(MARK);
    }
  };
  await Promise.all([run(), run(), run()]);
}

describe('a password of any characters is never printed (failures 33, 38)', () => {
  let last = 0;
  const url = (scheme = 'redis') => `${scheme}://me:${passwords[last++ % passwords.length]}@127.0.0.1:1/3`;
  /** URLs of several servers, and mistakes in them: a login before each, a name that is missing. */
  const lists = [
    () => `${url()},h2:2/1`.replace('1/3,', '1,'),
    () => url('redis+cluster'),
    () => url('rediss+sentinel'),
    () => url('redis+sentinel').replace('/3', ',[::1]:2/mymaster/3'),
    () => `${url('redis-sentinel')}?sentinelMasterId=m`,
    () => `${url('redis+sentinel')}#m`,
    () => `${url().replace('/3', '')},${url().slice('redis://'.length)}`,
    () => `${url('redis+cluster').replace('/3', '')},${url('redis+cluster')}`,
  ];

  it('whatever its URL was typed for: a queue, an id, a command', async () => {
    const places = [
      ...all.flatMap(([name]) => [
        [name, url()],
        [name, 'q', url(), `x,${url()},${url()}`],
      ]),
      ...[[url()], ['help', url()], ['--reddis', url(), 'list', 'q'], [`--redsi=${url()}`, 'inspect'], [`-q${url()}`]],
      ...[
        ['enqueue', 'q', `@${url()}`],
        ['config', 'q', `${url()}=1`],
        ['config', 'q', `tries=${url()}`],
        ['config', 'q', `backoff=1s ${url()}`],
        ['drain', 'q', '--', url()],
        ['crontab', 'q', '--', url()],
        ['crontab', 'q', '--', 'cat', url()],
        ['crontab', 'q', 'cat', url()],
        ['completion', '--words', '--', 'drain', `${url()},`],
        ['completion', '--words', '--', 'import', 'q', url()],
      ],
    ];
    await expectNone(places.map((args) => [args]));
  });

  it('or for an option, be it misspelled', async () => {
    const options = all.flatMap(([name, { options }]) =>
      options.filter((option) => option.long !== '--redis' && !option.isBoolean()).map(({ long }) => [name, long]),
    );
    const cases = [
      ...options.map(([name = '', long = '']) => [[name, long, url(), 'q', 'x']] as const),
      ...all.map(([name]) => [[name, `--redsi=${url()}`, 'q', 'x']] as const),
    ];
    // Most are read by the same few functions.
    await expectNone(sampled(cases, 4));
  });

  it('and when it is where it belongs, and cannot be reached, by any command', async () => {
    await expectNone([
      ...all.map(([name], i): Run => {
        const args = name === 'crontab' ? [name, 'q', '--', 'cat'] : [name, 'q', 'x'];
        const none = { DELAYQ_REDIS_URL: '', REDIS_URL: '' };
        const place = ['DELAYQ_REDIS_URL', 'REDIS_URL'][i % 3];
        return place === undefined ? [[...args, '--redis', url('rediss')]] : [args, { ...none, [place]: url() }];
      }),
      ...sampled(passwords, 3).map(() => [['crontab', '--redis', url(), 'q', '--', 'cat']] as const),
      ...lists.flatMap((list): Run[] => [
        [['inspect', '--redis', list()]],
        [['crontab', '--redis', list(), 'q', '--', 'cat']],
      ]),
      ...sampled(lists, 3).flatMap((list): Run[] => [
        [['inspect'], { DELAYQ_REDIS_URL: list() }],
        [['enqueue', list(), 'x']],
        [['doctor', '--reddis', list()]],
      ]),
    ]);
  });

  it('nor when it is a parameter, a path or a name for TLS', async () => {
    const tls = ['ca', 'cert', 'key', 'servername'];
    await expectNone([
      ...tls.map((name): Run => [['inspect', `--tls-${name}`, url(), '--redis', 'rediss://127.0.0.1:1']]),
      ...tls.map((name): Run => [['inspect', `--tls-${name}`, url('rediss'), '--redis', url()]]),
      ...tls.map(
        (name): Run => [['inspect'], { [`DELAYQ_TLS_${name.toUpperCase()}`]: url(), DELAYQ_REDIS_URL: 'rediss://h' }],
      ),
      ...['user', 'password-file'].flatMap((name): Run[] => {
        const variable = `DELAYQ_SENTINEL_${name.toUpperCase().replace('-', '_')}`;
        const sentinels = 'redis+sentinel://127.0.0.1:1/m';
        return [
          [['inspect', `--sentinel-${name}`, url(), '--redis', sentinels]],
          [['inspect', `--sentinel-${name}`, url(), '--redis', url()]],
          [['inspect'], { [variable]: url(), DELAYQ_REDIS_URL: sentinels }],
          // The password itself instead of a path.
          ...sampled(passwords, 3)
            .filter((password) => name !== 'user' && !password.includes('\n'))
            .map((password): Run => [['inspect'], { [variable]: password, DELAYQ_REDIS_URL: sentinels }]),
        ];
      }),
      // What stands after an @ is the host.
      ...passwords
        .filter((password) => !password.includes('@'))
        .map((password, i): Run => [['inspect', '--redis', `rediss://h?${password}${i % 2 ? '=1' : ''}`]]),
    ]);
  });

  it('nor without an @, on the command line and in lines of --jobs', async () => {
    expect((await delayq(['list', 'redis://me:s3cret'])).stderr).toContain('redis://…');
    const job = JSON.stringify({ payload: 1, at: 'redis://me:s3cret and@h' });
    const { stderr } = await delayq(['enqueue', '--jobs', 'q', '-'], { input: `${job}\n` });
    expect(stderr).toContain('redis://…@h');
  });

  it('nor when it opens Redis, to those who ask for a log, nor told to a handler', async () => {
    const server = await during(Server.start({ tcp: true }));
    for (const password of sampled(passwords, 3)) {
      const name = freshName();
      await server.admin.call(
        'ACL',
        'SETUSER',
        'me',
        'reset',
        `>${decodeURIComponent(password)}`,
        'on',
        '+@all',
        '~*',
        '&*',
      );
      const [scheme, place] = [
        ['redis', `127.0.0.1:${server.port}`],
        ['unix', server.socket],
        ['redis', `127.0.0.1:${server.port},localhost:${server.port}`],
      ][password.length % 3] as [string, string];
      const env = { DELAYQ_REDIS_URL: `${scheme}://me:${password}@${place}`, DEBUG: 'ioredis:*' };
      await server.admin.zadd(key(name, 'pending'), 1, 'a');
      await server.admin.hset(key(name, 'payload'), 'a', '1');
      const { code, stdout, stderr } = await binary(['drain', name, '--', 'env'], { env });
      expect(code, JSON.stringify(password)).toBe(0);
      expect(stderr).toContain('-> auth(');
      expect(stdout + stderr, JSON.stringify(password)).not.toContain(MARK);
      expect(linesOf(stdout)).toContain(`DELAYQ_REDIS_URL=${scheme}://${place}`);
    }
  });
});
