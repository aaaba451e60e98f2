import { type SpawnSyncOptions, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pack, QUIET, unpack } from './support/package.js';
import { Server } from './support/server.js';
import { temporaryDirectory } from './support/temporary.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const isRoot = process.getuid?.() === 0;
const NOBODY = 65_534;

function run(command: string, args: string[], options: SpawnSyncOptions = {}) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: root, timeout: 200_000, ...options });
  return { status, stdout: String(stdout), stderr: String(stderr) };
}

const directory = temporaryDirectory();
/** What was packed, unpacked. */
const contents = join(directory, 'package');
const prefix = join(directory, 'prefix');
const installed = join(prefix, 'lib/node_modules/delayq');
let files: string[] = [];

beforeAll(() => {
  chmodSync(directory, 0o755);
  // A cache that an earlier run may have left must not be published.
  writeFileSync(join(root, 'dist/cli/0000000000000000-test.cache'), '');
  unpack(directory);
  rmSync(join(root, 'dist/cli/0000000000000000-test.cache'));
  files = readdirSync(contents, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name).slice(contents.length + 1))
    .sort();
  // What it depends on is in the bundle of the command line already, and would come from the network.
  const { dependencies: _, ...manifest } = JSON.parse(readFileSync(join(contents, 'package.json'), 'utf8'));
  writeFileSync(join(contents, 'package.json'), JSON.stringify(manifest));
  mkdirSync(prefix);
  const install = ['install', '-g', ...QUIET, '--prefix', prefix, pack(contents, directory)];
  expect(run('npm', install)).toMatchObject({ status: 0 });
}, 240_000);

describe('the package', () => {
  it('holds what runs, its manual, documents and examples, and nothing else', () => {
    const parts = new Set(files.map((file) => file.split('/')[0]));
    expect([...parts].sort()).toEqual([
      'CHANGELOG.md',
      'LICENSE',
      'README.md',
      'bin',
      'dist',
      'docs',
      'examples',
      'lua',
      'man',
      'package.json',
    ]);
    expect(files).toContain('dist/cli/main.cjs');
    expect(
      files.filter((file) => /\.(cache|map|tsbuildinfo)\b|\.test\.|\.ts$/.test(file) && !/\.d\.c?ts$/.test(file)),
    ).toEqual([]);
  });

  it('has every file that its documents link to', () => {
    const links = files
      .filter((file) => file.endsWith('.md'))
      .flatMap((file) =>
        [...readFileSync(join(contents, file), 'utf8').matchAll(/\]\(([^)#\s]+)(#[^)]*)?\)/g)]
          .filter(([, link = '']) => !/^https?:/.test(link))
          .map(([, link = '']) => join(dirname(file), link)),
      );
    expect(links.length).toBeGreaterThan(50);
    expect(links.filter((link) => !existsSync(join(contents, link)))).toEqual([]);
  });

  it('has the manual pages that its manifest names', () => {
    const { man } = JSON.parse(readFileSync(join(contents, 'package.json'), 'utf8'));
    expect(readdirSync(join(contents, 'man')).map((page) => `man/${page}`)).toEqual(man.toSorted());
  });
});

describe('an installation of the package', () => {
  let server: Server;

  beforeAll(async () => {
    server = await Server.start({ tcp: true });
  });

  afterAll(async () => {
    await server.stop();
  });

  /** Runs the installed binary with nothing in its environment but PATH and the URL of Redis. */
  const delayq = (args: string[], options: SpawnSyncOptions = {}) =>
    run(join(prefix, 'bin/delayq'), args, {
      cwd: '/',
      env: { PATH: `${dirname(process.execPath)}:/usr/bin:/bin`, DELAYQ_REDIS_URL: server.tcpUrl },
      ...options,
    });

  const works = (options: SpawnSyncOptions, queue: string) => {
    const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
    expect(delayq(['--version'], options)).toEqual({ status: 0, stdout: `${version}\n`, stderr: '' });
    const enqueued = delayq(['enqueue', '--id', 'order:42', queue, '{"orderId":42}'], options);
    expect(enqueued).toMatchObject({ status: 0, stdout: 'order:42\n' });
    const drained = delayq(['drain', '-q', queue, '--', 'cat'], options);
    expect(drained).toEqual({ status: 0, stdout: '{"orderId":42}\n', stderr: '' });
    expect(delayq(['inspect', '--json', queue], options)).toMatchObject({ status: 0, stderr: '' });
  };

  it('works for its owner without HOME, and keeps compiled code beside the bundle', () => {
    works({}, 'owner');
    expect(readdirSync(join(installed, 'dist/cli')).filter((file) => file.includes('.cache'))).toHaveLength(2);
  });

  it('works read-only for another user, without HOME', () => {
    expect(run('chmod', ['-R', 'a-w', prefix]).status).toBe(0);
    const before = readdirSync(join(installed, 'dist/cli')).sort();
    works(isRoot ? { uid: NOBODY, gid: NOBODY } : {}, 'other');
    expect(readdirSync(join(installed, 'dist/cli')).sort()).toEqual(before);
    expect(run('chmod', ['-R', 'u+w', prefix]).status).toBe(0);
  });

  it('has manual pages that man finds', () => {
    const pages = join(prefix, 'share/man');
    expect(readdirSync(join(pages, 'man1')).sort()).toEqual(readdirSync(join(root, 'man')).sort());
    // Where there is no man, its pages are in the place in which it looks.
    if (run('man', ['--version']).status !== 0) return;
    for (const page of ['delayq', 'delayq-drain']) {
      const shown = run('man', ['-P', 'cat', page], { env: { ...process.env, MANPATH: pages, MANWIDTH: '80' } });
      expect(shown).toMatchObject({ status: 0, stdout: expect.stringContaining(`NAME\n       ${page} - `) });
    }
  });
});
