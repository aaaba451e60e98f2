import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { hashOf } from '../../../src/serve/access/tokens.js';
import { afterFile, afterwards, during } from '../../support/afterwards.js';
import { delayq, linesOf, onTerminal, sh } from '../../support/cli.js';
import { Server } from '../../support/server.js';

/** `delayq token` on a Redis of its own. */
const alone = async () => on(await during(Server.start()));

function on(server: Server) {
  const env = { DELAYQ_REDIS_URL: server.url };
  const token = (...args: string[]) => delayq(['token', ...args], { env });
  const stored = () => server.admin.hgetall('delayq:http:tokens');
  return { server, env, token, stored };
}

async function fileOf(text: string) {
  const directory = await mkdtemp(join(tmpdir(), 'delayq-test-'));
  afterwards(() => rm(directory, { recursive: true }));
  await writeFile(join(directory, 'token'), text);
  return join(directory, 'token');
}

const fingerprintOf = (text: string) => hashOf(text).slice(0, 12);

describe('delayq token add', () => {
  /** What those share that store nothing. */
  let used: ReturnType<typeof on>;
  beforeAll(async () => {
    const server = await Server.start();
    afterFile(() => server.stop());
    used = on(server);
  });

  it('tells how to remove a token that it could not print', async () => {
    const { env, stored } = await alone();
    const { stdout, stderr } = await sh('delayq token add shop > /dev/full; echo $?', { env });
    const [hash = ''] = Object.keys(await stored());
    expect(stdout).toBe('74\n');
    expect(stderr).toContain(`delayq: token ${hash.slice(0, 12)} is added, but the output cannot be written\n`);
    expect(stderr).toContain(`delayq token remove shop ${hash.slice(0, 12)}; then add another\n`);
  });

  it('prints the token alone; Redis keeps its hash', async () => {
    const { token, stored } = await alone();
    const { code, stdout, stderr } = await token('add', 'shop', '--description', 'order service');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^[A-Za-z0-9_-]{43}\n$/);
    const record = JSON.parse((await stored())[hashOf(stdout.trim())] ?? '');
    expect(record).toMatchObject({ ns: 'shop', description: 'order service', rights: ['publish', 'consume'] });
    expect(JSON.stringify(await stored())).not.toContain(stdout.trim());
  });

  it('takes rights and limits', async () => {
    const { token, stored } = await alone();
    const limits = ['--limit-read', '5', '--limit-write', '100', '--interval', '1m'];
    expect(await token('add', 'shop', '--rights', 'publish, operate', ...limits)).toMatchObject({ code: 0 });
    expect(await token('add', '*', '--limit-write', '7', '--rights', 'publish')).toMatchObject({ code: 0 });
    const records = Object.values(await stored()).map((text) => JSON.parse(text));
    expect(records).toContainEqual(
      expect.objectContaining({
        ns: 'shop',
        rights: ['publish', 'operate'],
        limits: { read: 5, write: 100, interval: 60 },
      }),
    );
    expect(records).toContainEqual(expect.objectContaining({ ns: '*', limits: { read: 0, write: 7, interval: 1 } }));
  });

  it('takes the text of a token from a file or stdin, as clients of lmstfy have it, once', async () => {
    const { token, env, stored } = await alone();
    const old = '01HVZ7Q6K1M4R8T2W5X9';
    expect(await token('add', 'shop', '--token-file', await fileOf(`${old}\n`))).toMatchObject({
      code: 0,
      stdout: `${old}\n`,
    });
    const again = await sh(`printf %s ${old} | delayq token add other --token-file -`, { env });
    expect(again).toMatchObject({ code: 64, stdout: '' });
    expect(again.stderr).toMatch(/^delayq: the token exists already\n {2}why: .*\n {2}next: .*\n$/);
    expect(Object.keys(await stored())).toEqual([hashOf(old)]);
    const piped = await sh(`echo another-${old} | delayq token add other --token-file -`, { env });
    expect(piped).toMatchObject({ code: 0, stdout: `another-${old}\n` });
  });

  it.each<[string, string[], RegExp]>([
    ['no namespace', ['add'], /token add needs a namespace/],
    ['a namespace with a dot', ['add', 'a.b'], /cannot be a namespace/],
    ['a token on the command line', ['add', 'shop', 'SECRET-SECRET-SECRET'], /--token-file: ps would show it/],
    ['an unknown right', ['add', 'shop', '--rights', 'root'], /not rights of a token/],
    ['an interval without a limit', ['add', 'shop', '--interval', '1s'], /--interval needs a limit/],
    [
      'an interval of less than a second',
      ['add', 'shop', '--limit-read', '1', '--interval', '1500ms'],
      /whole seconds/,
    ],
    ['a limit of 0', ['add', 'shop', '--limit-read', '0'], /not a count/],
    ['a word that it does not know', ['make', 'shop'], /cannot "make"/],
    ['no word', [], /add, list or remove/],
    ['options of a new token to list', ['list', '--rights', 'publish'], /takes no options of a new token/],
    ['no fingerprint', ['remove', 'shop'], /needs a fingerprint/],
  ])('refuses %s with exit code 64, and stores nothing', async (_, args, said) => {
    const { token, stored } = used;
    const { code, stdout, stderr } = await token(...args);
    expect({ code, stdout }).toEqual({ code: 64, stdout: '' });
    expect(stderr).toMatch(said);
    expect(stderr).toMatch(/\n {2}next: /);
    expect(stderr).not.toContain('SECRET');
    expect(await stored()).toEqual({});
  });

  it('refuses a short token from a file, and does not repeat it', async () => {
    const { token, stored } = await alone();
    const { code, stdout, stderr } = await token('add', 'shop', '--token-file', await fileOf('too-short\n'));
    expect({ code, stdout }).toEqual({ code: 64, stdout: '' });
    expect(stderr).toMatch(/20 to 512 printable/);
    expect(stderr).not.toContain('too-short');
    expect(await stored()).toEqual({});
    expect(await token('add', 'shop', '--token-file', '/nowhere')).toMatchObject({
      code: 66,
      stderr: expect.stringMatching(
        /cannot read "\/nowhere"(.|\n)*next: write the path of a file that you can read, or -/,
      ),
    });
  });
});

describe('delayq token list', () => {
  it('shows all tokens, or those of a namespace, the oldest first, and no text of one', async () => {
    const { token } = await alone();
    const [one = '', two = ''] = [
      (await token('add', 'shop', '--description', 'order service', '--limit-read', '10')).stdout.trim(),
      (await token('add', 'mail', '--rights', 'publish', '--limit-write', '5', '--interval', '1m')).stdout.trim(),
    ];
    const { stdout, stderr } = await token('list');
    expect(stderr).toBe('');
    const today = new Date().toISOString().slice(0, 10);
    expect(linesOf(stdout).map((line) => line.split(/ {2,}/))).toEqual([
      ['fingerprint', 'namespace', 'rights', 'limits', 'description', 'made'],
      [fingerprintOf(one), 'shop', 'publish,consume', 'r 10/s', 'order service', today],
      [fingerprintOf(two), 'mail', 'publish', 'w 5/1m', today],
    ]);
    expect(stdout).not.toContain(one);
    expect(linesOf((await token('list', 'mail')).stdout)).toHaveLength(2);
    const json = JSON.parse((await token('list', 'shop', '--json')).stdout);
    expect(json).toEqual({
      schema: 1,
      tokens: [
        {
          fingerprint: fingerprintOf(one),
          namespace: 'shop',
          description: 'order service',
          rights: ['publish', 'consume'],
          limits: { read: 10, write: 0, interval: 1 },
          created: expect.any(Number),
        },
      ],
    });
  });

  it('fits a terminal of 80 columns, and cannot control it', async () => {
    const { token, env } = await alone();
    const limits = ['--limit-read', '1000', '--limit-write', '1000', '--interval', '1m'];
    await token('add', 'shop', '--description', `evil \x1b[31mred\nline ${'long '.repeat(20)}`, ...limits);
    const screen = await onTerminal('delayq token list', { env, columns: 80 });
    expect(screen).not.toContain('\x1b');
    expect(linesOf(screen)).toHaveLength(2);
    expect((await token('list')).stdout).toContain('long long \n'.trimEnd());
    for (const line of linesOf(screen)) expect(line.length).toBeLessThanOrEqual(80);
  });

  it('says on stderr that there are none', async () => {
    const { token } = await alone();
    expect(await token('list')).toMatchObject({ code: 0, stdout: '', stderr: 'delayq: no tokens\n' });
    expect(await token('list', 'shop')).toMatchObject({ code: 0, stdout: '', stderr: 'delayq: no tokens of shop\n' });
  });
});

describe('delayq token remove', () => {
  it('removes the token with this fingerprint, in its own namespace alone', async () => {
    const { token, stored, server } = await alone();
    const one = (await token('add', 'shop')).stdout.trim();
    await token('add', 'shop');
    await server.admin.hset('delayq:http:used', `${hashOf(one)}:read`, '1 2');
    expect(await token('remove', 'mail', fingerprintOf(one))).toMatchObject({ code: 3, stdout: '' });
    expect(await token('remove', 'shop', '000000000000')).toMatchObject({ code: 3 });
    expect(Object.keys(await stored())).toHaveLength(2);
    const removed = await token('remove', 'shop', fingerprintOf(one));
    expect(removed).toMatchObject({ code: 0, stdout: '' });
    expect(removed.stderr).toBe(`delayq: removed: ${fingerprintOf(one)} of shop; servers refuse it within 10 s\n`);
    expect(Object.keys(await stored())).toHaveLength(1);
    expect(await server.admin.exists('delayq:http:used')).toBe(0);
    const [other = ''] = Object.keys(await stored());
    const json = await token('remove', 'shop', other.slice(0, 12), '--json');
    expect(JSON.parse(json.stdout)).toMatchObject({ schema: 1, removed: { fingerprint: other.slice(0, 12) } });
  });
});

describe('the keys of tokens', () => {
  it('are taken for no queue', async () => {
    const { token, env, server } = await alone();
    const one = (await token('add', 'shop')).stdout.trim();
    await server.admin.hset('delayq:http:used', `${hashOf(one)}:read`, '1 2');
    expect(await delayq(['inspect', '--json'], { env })).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('"queues":[]'),
    });
    const doctor = await delayq(['doctor', '--json'], { env });
    expect(doctor.stdout).not.toMatch(/http/);
    expect(await delayq(['metrics'], { env })).toMatchObject({ code: 0, stderr: '' });
  });

  it('may be used by a user with what doctor --acl prints', async () => {
    const { server, env } = await alone();
    const { stdout } = await delayq(['doctor', '--acl', '--redis-version', '7.0'], { env });
    const [, ...words] = stdout.trim().replace(/#\S+/, '>secret').split(' ');
    await server.admin.call('ACL', ...words);
    const limited = { DELAYQ_REDIS_URL: server.url.replace('://', '://app:secret@') };
    const added = await delayq(['token', 'add', 'shop'], { env: limited });
    expect(added).toMatchObject({ code: 0, stderr: '' });
    const fingerprint = fingerprintOf(added.stdout.trim());
    expect(await delayq(['token', 'list'], { env: limited })).toMatchObject({
      code: 0,
      stdout: expect.stringContaining(fingerprint),
    });
    expect(await delayq(['token', 'remove', 'shop', fingerprint], { env: limited })).toMatchObject({ code: 0 });
  });
});
