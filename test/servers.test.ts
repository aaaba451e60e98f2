import { chmodSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { sh } from './support/cli.js';
import { temporaryDirectory } from './support/temporary.js';

const SCRIPT = fileURLToPath(new URL('../scripts/servers.sh', import.meta.url));

const run = (args: string, env: Record<string, string> = {}) => sh(`bash ${SCRIPT} ${args}`, { env });

/** Writes a program. */
function program(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `#!/bin/sh\n${text}\n`);
  chmodSync(path, 0o755);
}

/** A PATH with these programs of the system, and with others that are written for the test. */
function path(system: string[], own: Record<string, string> = {}): string {
  const directory = temporaryDirectory();
  for (const name of system) symlinkSync(`/usr/bin/${name}`, join(directory, name));
  for (const [name, text] of Object.entries(own)) program(join(directory, name), text);
  return directory;
}

const TOOLS = ['awk', 'bash', 'cat', 'find', 'mkdir', 'mktemp', 'rm'];

describe('scripts/servers.sh', () => {
  it('prints the programs that are there, the server first, and needs no network', async () => {
    const into = temporaryDirectory();
    for (const name of ['server', 'check-aof', 'cli']) program(join(into, `redis-8/bin/redis-${name}`), 'exit 1');
    const expected = {
      code: 0,
      stderr: '',
      stdout: ['server', 'cli', 'check-aof'].map((name) => `${into}/redis-8/bin/redis-${name}\n`).join(''),
    };
    const PATH = path(['bash']);
    expect(await run(`--into ${into} redis-8`, { PATH })).toMatchObject(expected);
    expect(await run('redis-8', { PATH, DELAYQ_SERVERS: into })).toMatchObject(expected);
  });

  it.each([
    ['', 'which server?'],
    ['redis-9', 'what is redis-9?'],
    ['--into', 'what is --into?'],
  ])('refuses %j', async (args, what) => {
    const { code, stdout, stderr } = await run(args);
    expect({ code, stdout }).toEqual({ code: 64, stdout: '' });
    expect(stderr).toMatch(/^servers: .*\n {2}why: .*\n {2}next: see scripts\/servers.sh --help\n$/);
    expect(stderr).toContain(what);
  });

  it('installs nothing where it does not know a place: not in /tmp, where others could put programs', async () => {
    const ended = await run('redis-8', { HOME: '' });
    expect(ended).toMatchObject({ code: 64, stdout: '', stderr: expect.stringContaining('HOME is not set') });
  });

  it('says what is missing where there is no apt-get', async () => {
    const into = temporaryDirectory();
    const { code, stderr } = await run(`--into ${into} redis-8`, { PATH: path(TOOLS) });
    expect({ code, stderr }).toEqual({ code: 69, stderr: expect.stringMatching(/no apt-get\n {2}next: .*SERVER\n$/) });
    expect(readdirSync(into)).toEqual([]);
  });

  it.each([
    ['fails', 'exit 100', 69],
    ['is interrupted', 'kill -TERM $PPID; exit 100', 130],
  ])('leaves nothing behind when a download %s', async (_, text, status) => {
    const into = temporaryDirectory();
    const env = { PATH: path(TOOLS, { 'apt-get': text, 'dpkg-deb': 'exit 1' }) };
    const { code, stdout } = await run(`--into ${into} --mirror http://127.0.0.1:1/ --keyring /dev/null valkey-8`, env);
    expect({ code, stdout }).toEqual({ code: status, stdout: '' });
    expect(readdirSync(into)).toEqual([]);
  });

  it('knows no mirror where apt has none of Debian', async () => {
    const into = temporaryDirectory();
    const env = { PATH: path(TOOLS, { 'apt-get': 'echo Ubuntu main http://x/ noble', 'dpkg-deb': 'exit 1' }) };
    const { code, stderr } = await run(`--into ${into} redis-8`, env);
    expect({ code, stderr }).toEqual({ code: 78, stderr: expect.stringContaining('--mirror') });
    expect(readdirSync(into)).toEqual([]);
  });
});
