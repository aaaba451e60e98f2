import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, inject, it } from 'vitest';
import { sh } from '../support/cli.js';
import { freshName } from '../support/redis.js';

const project = fileURLToPath(new URL('../..', import.meta.url));
const made: string[] = [];

afterEach(() => {
  for (const directory of made.splice(0)) rmSync(directory, { recursive: true, force: true });
});

/** A private installation with a private home and no cache yet. */
function installation() {
  const root = mkdtempSync(join(tmpdir(), 'delayq-start-'));
  made.push(root);
  const [home, dist] = [join(root, 'home'), join(root, 'dist/cli')];
  for (const directory of [home, dist]) mkdirSync(directory, { recursive: true, mode: 0o755 });
  for (const part of ['bin', 'lua', 'package.json', 'dist/cli/main.cjs']) {
    cpSync(join(project, part), join(root, part), { recursive: true });
  }
  const caches = (directory: string) => readdirSync(directory).filter((file) => file.includes('.cache'));
  return {
    home,
    dist,
    run: (args: string, env = {}) => sh(`${root}/bin/delayq ${args}`, { env: { HOME: home, ...env } }),
    kept: () => caches(dist).map((file) => join(dist, file)),
    keptAtHome: () => caches(join(home, '.cache/delayq')),
  };
}

/** The commands whose code a cache holds: the words at its end. */
const commandsIn = (file: string) => readFileSync(file, 'latin1').split('\n').at(-1)?.split(' ').slice(4);

describe('the cache of compiled code', () => {
  it('is written by the first run of a command and used by the next', async () => {
    const { run, kept } = installation();
    const first = await run('--version');
    expect(first).toMatchObject({ code: 0, stderr: '' });
    const [file = ''] = kept();
    const { ino } = statSync(file);
    expect(await run('--version')).toEqual(first);
    expect(kept()).toEqual([file]);
    expect(statSync(file).ino).toBe(ino);
  });

  it('is one file for all commands, to which each adds its code at its first run, but not a run that failed', async () => {
    const { run, kept } = installation();
    const queue = freshName();
    expect((await run(`enqueue ${queue}`)).code).toBe(64);
    expect((await run('enqeue')).code).toBe(64);
    expect(kept()).toEqual([]);
    const sizes: number[] = [];
    for (const _ of [1, 2]) {
      expect(await run(`enqueue --id a ${queue} 1`)).toMatchObject({ code: 0, stdout: 'a\n' });
      sizes.push(statSync(kept()[0] as string).size);
      expect(await run(`drain ${queue}`)).toMatchObject({ code: 0, stdout: '1\n', stderr: '' });
      sizes.push(statSync(kept()[0] as string).size);
    }
    expect(sizes[1]).toBeGreaterThan(sizes[0] as number);
    expect(sizes.slice(2)).toEqual([sizes[1], sizes[1]]);
    // A run that only prints help compiles little of its command, and need not read the code of others.
    const [file = ''] = kept();
    await run('show --help');
    expect(commandsIn(file)).toEqual(['enqueue', 'drain']);
    expect(
      kept()
        .filter((other) => other !== file)
        .map(commandsIn),
    ).toEqual([['help']]);
  });

  it('is replaced when the bundle has changed', async () => {
    const { run, kept, dist } = installation();
    await run('--version');
    await run('help');
    const [file = ''] = kept();
    const { ino } = statSync(file);
    utimesSync(join(dist, 'main.cjs'), 1, 1);
    await run('--version');
    expect(kept()).toEqual([file]);
    expect(statSync(file).ino).not.toBe(ino);
    expect(commandsIn(file)).toEqual(['--version']);
  });

  it('is removed after 30 days, by a run that writes', async () => {
    const { run, kept, dist } = installation();
    const old = join(dist, 'other.cache');
    const recent = join(dist, 'recent.cache');
    for (const file of [old, recent]) writeFileSync(file, '');
    const ago = Date.now() / 1_000 - 31 * 86_400;
    utimesSync(old, ago, ago);
    await run('--version');
    expect(kept()).toHaveLength(2);
    expect(kept()).toContain(recent);
  });

  it('is kept for each set of options of Node, which V8 compiles for', async () => {
    const { run, kept } = installation();
    const runs = [{}, { NODE_OPTIONS: '--max-old-space-size=512' }];
    for (const env of runs) await run('--version', env);
    const inodes = () => kept().map((file) => statSync(file).ino);
    const before = inodes();
    expect(before).toHaveLength(2);
    for (const env of runs) await run('--version', env);
    expect(inodes()).toEqual(before);
  });

  it.each([
    ['cut short', (bytes: Buffer) => bytes.subarray(0, 100_000)],
    ['empty', () => Buffer.alloc(0)],
    ['something else', () => Buffer.from('hello, hello, ')],
    ['something else, twice', () => Buffer.from('hello, hello, '.repeat(100))],
    ['damaged', (bytes: Buffer) => Buffer.from(bytes.map((byte, at) => (at === 50_000 ? byte ^ 0xff : byte)))],
    [
      'made by another V8',
      (bytes: Buffer) => Buffer.from(bytes.map((byte, at) => (at % (bytes.length / 2) === 4 ? byte ^ 0xff : byte))),
    ],
  ])('is written anew when it is %s', async (_, spoil) => {
    const { run, kept } = installation();
    const good = await run('--version');
    const [file = ''] = kept();
    const { size } = statSync(file);
    const spoilt = spoil(readFileSync(file));
    writeFileSync(file, spoilt);
    expect(await run('--version')).toEqual(good);
    const now = readFileSync(file);
    expect(now.equals(spoilt)).toBe(false);
    // Both copies are the same.
    expect(now.length).toBeGreaterThan(size / 2);
    expect(now.subarray(0, now.length / 2).equals(now.subarray(now.length / 2))).toBe(true);
  });

  it('is not used when other users may have written it', async () => {
    const { run, kept } = installation();
    await run('--version');
    const [file = ''] = kept();
    chmodSync(file, 0o666);
    expect((await run('--version')).code).toBe(0);
    expect(statSync(file).mode & 0o777).toBe(0o644);
  });

  it('is kept in the home of the user when others may write to the installation', async () => {
    const { run, kept, keptAtHome, dist } = installation();
    chmodSync(dist, 0o777);
    const first = await run('--version');
    expect(first).toMatchObject({ code: 0, stderr: '' });
    expect(kept()).toEqual([]);
    expect(keptAtHome()).toHaveLength(1);
    expect(await run('--version')).toEqual(first);
  });

  it('is optional: without a place for it, commands still work', async () => {
    const { run, kept, dist, home } = installation();
    chmodSync(dist, 0o777);
    writeFileSync(join(home, '.cache'), 'a file');
    for (const env of [
      {},
      { HOME: undefined },
      { HOME: '' },
      { HOME: '/nowhere/at/all' },
      { XDG_CACHE_HOME: '/dev/null' },
    ]) {
      expect(await run('--version', env)).toMatchObject({ code: 0, stderr: '' });
    }
    expect(kept()).toEqual([]);
  });

  it('is complete when many processes start at once', async () => {
    const { run, kept } = installation();
    const all = await Promise.all(Array.from({ length: 20 }, () => run('--version')));
    for (const ended of all) expect(ended).toEqual(all[0]);
    expect(all[0]).toMatchObject({ code: 0, stderr: '' });
    expect(kept()).toHaveLength(1);
  });
});

describe('the bundle', () => {
  const hasOpenssl = spawnSync('openssl', ['version']).status === 0;

  it.runIf(hasOpenssl)('uses TLS and verifies the certificate of the server', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'delayq-tls-'));
    made.push(directory);
    const [key, cert] = [join(directory, 'key.pem'), join(directory, 'cert.pem')];
    const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost', '-keyout', key, '-out', cert];
    spawnSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', ...subject]);
    const server = createServer({ key: readFileSync(key), cert: readFileSync(cert) }, (socket) => {
      const redis = connect(inject('redisSocket'));
      for (const side of [socket, redis]) side.on('error', () => {});
      socket.pipe(redis).pipe(socket);
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const DELAYQ_REDIS_URL = `rediss://localhost:${(server.address() as AddressInfo).port}`;
      const enqueue = `delayq enqueue --id a ${freshName()} 1`;
      expect(await sh(enqueue, { env: { DELAYQ_REDIS_URL, NODE_EXTRA_CA_CERTS: cert } })).toMatchObject({
        code: 0,
        stdout: 'a\n',
        stderr: '',
      });
      const { code, stderr } = await sh(enqueue, { env: { DELAYQ_REDIS_URL } });
      expect(code).toBe(69);
      expect(stderr).toContain('self-signed certificate');
    } finally {
      server.close();
    }
  });

  it('logs what ioredis does when DEBUG is set', async () => {
    const { code, stdout, stderr } = await sh(`delayq drain ${freshName()}`, { env: { DEBUG: 'ioredis:*' } });
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' });
    expect(stderr).toMatch(/ioredis:redis .*connecting -> connect/);
  });
});
