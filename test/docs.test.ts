import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import * as api from '../src/index.js';
import { documents, NAMES, read } from './support/examples.js';
import { temporaryDirectory } from './support/temporary.js';

const root = fileURLToPath(new URL('..', import.meta.url));

function run(command: string, args: string[], options: { cwd?: string; env?: Record<string, string> } = {}) {
  const env = { ...process.env, ...options.env };
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: root, encoding: 'utf8', ...options, env });
  return { status, stdout, stderr };
}

describe('the generated pages', () => {
  it('are what "npm run docs" writes', () => {
    const { status, stdout, stderr } = run(process.execPath, ['scripts/docs/generate.js', '--check']);
    expect(`${stdout}${stderr}`).toBe('');
    expect(status).toBe(0);
  });

  it('are told to be stale, by name, with what to do', () => {
    const copy = temporaryDirectory();
    for (const part of ['docs', 'package.json', 'scripts', 'src'])
      cpSync(join(root, part), join(copy, part), { recursive: true });
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
    writeFileSync(join(copy, 'docs/reference/commands.md'), 'old');
    const { status, stdout, stderr } = run(process.execPath, ['scripts/docs/generate.js', '--check'], { cwd: copy });
    expect({ status, stdout }).toEqual({ status: 1, stdout: 'docs/reference/commands.md\n' });
    expect(stderr).toContain('next: npm run docs');
  });
});

/** The lines of a document, without those of code blocks, which become empty. */
function linesOutsideCode(path: string): string[] {
  let fence: string | undefined;
  return read(path)
    .split('\n')
    .map((line) => {
      const [, mark] = /^ *(```+|~~~+)/.exec(line) ?? [];
      if (mark !== undefined && (fence === undefined || mark === fence)) {
        fence = fence === undefined ? mark : undefined;
        return '';
      }
      return fence !== undefined || line.startsWith('    ') ? '' : line;
    });
}

/** The anchors that GitHub gives to the headings of a document. */
function anchorsOf(path: string): Set<string> {
  const anchors = new Set<string>();
  for (const line of linesOutsideCode(path)) {
    const [, heading] = /^#{1,6} +(.*?) *#*$/.exec(line) ?? [];
    if (heading === undefined) continue;
    const text = heading.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase();
    const slug = text.replace(/[^\p{L}\p{N}\p{M}_ -]/gu, '').replaceAll(' ', '-');
    let anchor = slug;
    for (let n = 1; anchors.has(anchor); n++) anchor = `${slug}-${n}`;
    anchors.add(anchor);
  }
  return anchors;
}

/** The repository on the web: README links there to what is not in the package. */
const HOME = `${JSON.parse(read('package.json')).homepage.replace('#readme', '')}/blob/main/`;

/** The files that the links of a document lead to, as paths from the root, with their anchors. */
function linksOf(path: string): string[] {
  const text = linesOutsideCode(path)
    .join('\n')
    .replace(/(`+)[^`][\s\S]*?\1/g, '');
  const links = [...text.matchAll(/\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)/g), ...text.matchAll(/^ *\[[^\]]+\]: *(\S+)/gm)];
  return links
    .map(([, to = '']) => to.replace(HOME, '/'))
    .filter((to) => !/^(https?|mailto):/.test(to))
    .map((to) => (to.startsWith('#') ? path + to : to.startsWith('/') ? to.slice(1) : join(dirname(path), to)));
}

function isBroken(link: string): boolean {
  const [file = '', anchor] = link.split('#');
  const target = join(root, decodeURIComponent(file));
  if (file.startsWith('..') || !existsSync(target)) return true;
  return anchor !== undefined && !(file.endsWith('.md') && anchorsOf(file).has(anchor));
}

describe('the documents', () => {
  it('have no link that leads nowhere', () => {
    const links = documents.flatMap((path) => linksOf(path).map((link) => ({ path, link })));
    expect(links.length).toBeGreaterThan(50);
    expect(links.filter(({ link }) => isBroken(link))).toEqual([]);
  });

  it('name only files that there are', () => {
    const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter(
      (path) => !path.includes('node_modules'),
    );
    const own = documents.filter((path) =>
      /^(ARCHITECTURE|CONTRIBUTING|docs\/internals\/.*|test\/chaos\/README)\.md$/.test(path),
    );
    const named = own.flatMap((path) =>
      [...read(path).matchAll(/`([\w./-]+\.(?:ts|lua|js|sh))`/g)].map(([, name = '']) => ({ path, name })),
    );
    expect(named.length).toBeGreaterThan(30);
    // NAME and FOLDER are the reader's to fill in.
    const real = named.filter(({ name }) => !/NAME|FOLDER/.test(name));
    expect(real.filter(({ name }) => !files.some((file) => `/${file}`.endsWith(`/${name}`)))).toEqual([]);
  });

  it('have no line over 120 characters but in tables and code', () => {
    const long = documents.flatMap((path) =>
      linesOutsideCode(path).flatMap((line, i) =>
        [...line].length > 120 && !line.startsWith('|') && line.includes(' ') ? [`${path}:${i + 1}`] : [],
      ),
    );
    expect(long).toEqual([]);
  });
});

describe('the reference of the library', () => {
  const code = [...read('docs/reference/library.md').matchAll(/```ts\n([\s\S]*?)```/g)]
    .map(([, text]) => text)
    .join('');

  it('names only what the library exports', () => {
    const classes = [...code.matchAll(/\bnew (\w+)\(/g)].map(([, name]) => name);
    const functions = [...code.matchAll(/^(\w+)\(/gm)].map(([, name]) => name);
    const imported = [...code.matchAll(/import \{ (.*) \} from 'delayq'/g)].flatMap(([, names = '']) =>
      names.split(', '),
    );
    const named = new Set([...classes, ...functions, ...imported]);
    expect(named.size).toBeGreaterThan(10);
    expect([...named].filter((name) => !NAMES.includes(name as string))).toEqual([]);
  });

  it('names everything that it exports', () => {
    const text = read('docs/reference/library.md');
    const missing = NAMES.filter((name) => !new RegExp(`\\b${name}\\b`).test(text));
    expect(missing).toEqual([]);
  });

  it('names only methods that there are', () => {
    const nouns = {
      connection: api.Connection,
      queue: api.Queue,
      worker: api.BatchWorker,
      inspector: api.Inspector,
      operator: api.Operator,
      transfer: api.Transfer,
      doctor: api.Doctor,
      auditor: api.Auditor,
    };
    const calls = [...code.matchAll(new RegExp(`^(${Object.keys(nouns).join('|')})\\.(\\w+)\\(`, 'gm'))];
    expect(calls.length).toBeGreaterThan(30);
    const missing = calls.filter(
      ([, noun, method]) => !((method as string) in nouns[noun as keyof typeof nouns].prototype),
    );
    expect(missing.map(([call]) => call)).toEqual([]);
  });
});
