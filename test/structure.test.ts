import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path/posix';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { COMMANDS } from '../src/cli/registry.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const below = (directory: string, ending: string) =>
  readdirSync(join(root, directory), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith(ending))
    .sort();
const files = below('src', '.ts');
const text = (file: string) => readFileSync(join(root, 'src', file), 'utf8');
/** The files of the project that `file` imports, as paths below src. */
const importsOf = (file: string) =>
  [...text(file).matchAll(/(?:from|import) ?\(?'(\.[^']+)'/g)].map(([, name]) =>
    join(dirname(file), name as string).replace(/\.js$/, '.ts'),
  );

/** The folders of src/, and what each may import besides its own files. '.' is src/ itself: the public API. */
const MAY_IMPORT: Record<string, readonly string[]> = {
  model: [],
  net: ['model'],
  redis: ['net', 'model'],
  store: ['redis', 'net', 'model'],
  recurring: ['store', 'redis', 'net', 'model'],
  queue: ['recurring', 'store', 'redis', 'net', 'model'],
  consume: ['queue', 'store', 'redis', 'net', 'model'],
  worker: ['consume', 'queue', 'store', 'redis', 'net', 'model'],
  admin: ['store', 'redis', 'net', 'model'],
  health: ['admin', 'recurring', 'store', 'redis', 'net', 'model'],
  server: ['health', 'store', 'redis', 'net', 'model'],
  '.': ['worker', 'consume', 'server', 'health', 'admin', 'queue', 'recurring', 'store', 'redis', 'net', 'model'],
  'serve/http': ['.'],
  'serve/queues': ['serve/http', '.', 'consume', 'queue', 'store', 'model'],
  'serve/access': ['consume', 'serve/queues', 'serve/http', '.'],
  'serve/api': ['consume', 'serve/access', 'serve/queues', 'serve/http', '.'],
  'serve/admin': ['serve/access', 'serve/http', '.'],
  serve: ['serve/admin', 'serve/api', 'serve/access', 'serve/queues', 'serve/http', '.'],
  'cli/host': ['.'],
  'cli/lines': ['.'],
  'cli/terminal': ['cli/host', '.'],
  'cli/args': ['cli/terminal', 'cli/host', '.'],
  'cli/views': ['cli/lines', 'cli/terminal', '.'],
  'cli/bulk': ['cli/views', 'cli/args', 'cli/terminal', 'cli/lines', 'cli/host', '.'],
  'cli/drain': ['cli/terminal', 'cli/lines', 'cli/host', '.'],
  'cli/completion': ['.'],
  'cli/commands': [
    ...['cli/bulk', 'cli/drain', 'cli/completion', 'serve', 'serve/access'],
    ...['cli/views', 'cli/args', 'cli/terminal', 'cli/lines', 'cli/host', '.'],
  ],
  cli: ['cli/commands', 'cli/drain', 'cli/args', 'cli/terminal', 'cli/host', '.'],
};

describe('imports run down:', () => {
  it.each(Object.entries(MAY_IMPORT))('%s imports only what it may', (folder, may) => {
    const own = files.filter((file) => dirname(file) === folder);
    expect(own.length).toBeGreaterThan(0);
    const others = own.flatMap((file) =>
      importsOf(file)
        .filter((imported) => dirname(imported) !== folder && !may.includes(dirname(imported)))
        .map((imported) => `${file} imports ${imported}`),
    );
    expect(others).toEqual([]);
  });

  it('every folder has its rule, and none may import one that may import it', () => {
    expect([...new Set(files.map((file) => dirname(file)))].sort()).toEqual(Object.keys(MAY_IMPORT).sort());
    const reached = (folder: string, seen: string[] = []): string[] =>
      (MAY_IMPORT[folder] ?? []).flatMap((next) =>
        seen.includes(next) ? [next] : [next, ...reached(next, [...seen, next])],
      );
    for (const folder of Object.keys(MAY_IMPORT)) expect(reached(folder), folder).not.toContain(folder);
  });

  it('no file imports itself over others', () => {
    const after = new Map<string, Set<string>>();
    const reach = (file: string, path: string[]): Set<string> => {
      if (path.includes(file)) throw new Error(`a cycle: ${[...path, file].join(' → ')}`);
      const known = after.get(file);
      if (known) return known;
      const all = new Set(importsOf(file).flatMap((next) => [next, ...reach(next, [...path, file])]));
      after.set(file, all);
      return all;
    };
    for (const file of files) reach(file, []);
  });

  it('no interface stands in for a class of its folder, which would hide a circle', () => {
    const named = (kind: RegExp) =>
      files.flatMap((file) => [...text(file).matchAll(kind)].map(([, name]) => `${dirname(file)}: ${name}`));
    const classes = named(/^export (?:abstract )?class (\w+)/gm);
    expect(named(/^(?:export )?interface (\w+)/gm).filter((name) => classes.includes(name))).toEqual([]);
  });

  it('only its commands load the server', () => {
    const serving = (file: string) => file.startsWith('serve/');
    const loading = files.filter((file) => !serving(file) && importsOf(file).some(serving));
    expect(loading).toEqual(['cli/commands/serve.ts', 'cli/commands/token.ts']);
  });

  it('no command imports another', () => {
    const commands = files.filter((file) => dirname(file) === 'cli/commands');
    for (const file of commands) for (const other of commands) expect(importsOf(file), file).not.toContain(other);
  });
});

describe('what belongs together stands together:', () => {
  it('each folder of lua/ but lib has its file in store/', () => {
    const folders = new Set(below('lua', '.lua').map((file) => dirname(file)));
    folders.delete('lib');
    const named = files
      .filter((file) => dirname(file) === 'store')
      .map((file) => file.slice('store/'.length, -'.ts'.length));
    expect(named).toEqual(expect.arrayContaining([...folders]));
  });

  it('every test stands in the folder of its subject', () => {
    const folders = new Set(below('test', '.test.ts').map((file) => dirname(file)));
    for (const own of ['.', 'bin', 'serve/clients', 'support']) folders.delete(own);
    expect(Object.keys(MAY_IMPORT)).toEqual(expect.arrayContaining([...folders]));
  });

  it('every command is registered', () => {
    const made = files.flatMap((file) =>
      [...text(file).matchAll(/^export function (\w+)Command\(/gm)].map(([, name]) => name),
    );
    const offered = Object.values(COMMANDS).flatMap((group) => Object.keys(group));
    expect(made.sort()).toEqual(offered.sort());
  });
});

describe('each has one owner:', () => {
  const owners = (pattern: RegExp) =>
    files.filter((file) => pattern.test(text(file).replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, '')));

  it.each([
    ['process.env', /process\.env/, ['cli/host/host.ts']],
    ['process.exit', /process\.exit\(/, ['cli/host/host.ts']],
    ['process signals', /process\.on\(|events: process/, ['cli/host/host.ts']],
    ['chalk', /(?:import|from) ?\(?'chalk'/, ['cli/terminal/output.ts']],
    ['cli-table3', /'cli-table3'/, ['cli/terminal/output.ts']],
    ['ioredis', /'ioredis'/, ['net/client.ts']],
    ['croner', /'croner'/, ['recurring/occurrences.ts']],
    ['reading lua/', /\/lua\//, ['store/script.ts']],
    ['key names', /`\$\{prefix\}:/, ['store/http.ts', 'store/keys.ts']],
    [
      'child processes',
      /'node:child_process'/,
      [
        'cli/commands/demo.ts',
        ...['pipes', 'process', 'watcher'].map((name) => `cli/drain/${name}.ts`),
        'cli/host/editor.ts',
        'cli/host/service.ts',
      ],
    ],
  ])('%s', (_, pattern, expected) => {
    expect(owners(pattern)).toEqual(expected);
  });

  it('keys, partition maps and raw replies: the store; above it are rules', () => {
    const raw =
      /\.call\(|\bQueueKeys\b|\bqueueKeys\b|\bqueuesKey\b|\.keys\(|\(keys\b|\bbyId\b|\bPartitionMap\b|\.map\.|\bReply\b/;
    const objects = /Object\.keys\(/g;
    // What servers say about themselves, which only these two folders ask.
    const servers = /\bReply\b|\.call\('(ACL|CONFIG|INFO|SENTINEL|TIME)'/g;
    const named = files.filter((file) => {
      const [, folder = ''] = /^(admin|health|recurring|server)\//.exec(file) ?? [];
      const own = text(file).replace(objects, '');
      return folder !== '' && raw.test(/health|server/.test(folder) ? own.replace(servers, '') : own);
    });
    // Tries the commands that store/rights.ts gives it.
    expect(named).toEqual(['server/node.ts']);
  });

  it('options of the command line: errors of the library name none that have a method', () => {
    const named = owners(/['"`][^'"`\n]*--[a-z]/).filter((file) => !/^(cli|serve|health|server)\//.test(file));
    // Lines for operators: a move, a repair.
    expect(named).toEqual(['model/text.ts']);
  });
});
