import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const src = fileURLToPath(new URL('../src', import.meta.url));
const files = readdirSync(src, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));
const text = (file: string) => readFileSync(join(src, file), 'utf8');
const importsOf = (file: string) =>
  [...text(file).matchAll(/(?:from|import) ?\(?'([^']+)'/g)].map(([, name]) => name as string);
/** The files of the project that `file` imports, as paths below src without their ending. */
const ownImports = (file: string) =>
  importsOf(file)
    .filter((name) => name.startsWith('.'))
    .map((name) => relative(src, join(src, file, '..', name)).replace(/\.js$/, ''));

/** Each may import only what stands before it. */
const LIBRARY = [
  ...['errors', 'numbers', 'time', 'backoff', 'ids', 'payload', 'job', 'settings', 'keys', 'url', 'redis', 'replies'],
  ...[
    'script',
    'trend',
    'spread',
    'scripts',
    'looks',
    'acts',
    'moves',
    'adoption',
    'finding',
    'faults',
    'batches',
    'gather',
    'durability',
    'enqueuer',
    'queue',
    'inspector',
    'operator',
    'metrics',
    'transfer',
    'conditions',
    'audit',
    'server',
    'rights',
    'doctor',
    'check',
    'patience',
    'outages',
    'leases',
    'loop',
    'line',
    'pace',
    'task',
    'settler',
    'worker',
    'index',
  ],
];

describe('imports run one way', () => {
  it('through the library', () => {
    const library = files.filter((file) => !file.startsWith('cli/')).map((file) => file.replace(/\.ts$/, ''));
    expect([...library].sort()).toEqual([...LIBRARY].sort());
    for (const [place, name] of LIBRARY.entries()) {
      for (const imported of ownImports(`${name}.ts`)) {
        expect(LIBRARY.slice(0, place), `${name} imports ${imported}`).toContain(imported);
      }
    }
  });

  it('past each other for queue, inspector and operator', () => {
    const three = ['queue', 'inspector', 'operator'];
    for (const one of three) for (const other of three) expect(ownImports(`${one}.ts`)).not.toContain(other);
  });

  it('from the command line into the library only through index', () => {
    for (const file of files.filter((file) => file.startsWith('cli/'))) {
      for (const imported of ownImports(file).filter((name) => !name.startsWith('cli/'))) {
        expect(imported, `${file} imports ${imported}`).toBe('index');
      }
    }
  });

  it('never from one command to another', () => {
    const commands = files
      .filter((file) => /export function \w+Command\(/.test(text(file)))
      .map((file) => file.replace(/\.ts$/, ''));
    expect(commands.length).toBeGreaterThan(3);
    for (const file of files.filter((file) => !['cli/main.ts', 'cli/commands.ts'].includes(file))) {
      for (const command of commands) expect(ownImports(file), `${file} imports ${command}`).not.toContain(command);
    }
  });
});

describe('each has one owner:', () => {
  const owners = (pattern: RegExp) =>
    files.filter((file) => pattern.test(text(file).replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, ''))).sort();

  it.each([
    ['process.env', /process\.env/, ['cli/context.ts']],
    ['process.exit', /process\.exit\(/, ['cli/main.ts']],
    ['process signals', /process\.on\(/, ['cli/context.ts']],
    ['chalk', /(?:import|from) ?\(?'chalk'/, ['cli/output.ts']],
    ['cli-table3', /'cli-table3'/, ['cli/output.ts']],
    ['ioredis', /'ioredis'/, ['redis.ts']],
    ['reading lua/', /\/lua\//, ['script.ts']],
    ['key names', /`\$\{prefix\}:/, ['keys.ts']],
    ['child processes', /'node:child_process'/, ['cli/demo.ts', 'cli/sinks/channels.ts', 'cli/sinks/process.ts']],
  ])('%s', (_, pattern, expected) => {
    expect(owners(pattern)).toEqual(expected);
  });
});
