import { spawnSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { read } from './support/examples.js';
import { temporaryDirectory } from './support/temporary.js';

const root = fileURLToPath(new URL('..', import.meta.url));

function node(args: string[], cwd = root) {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd, encoding: 'utf8' });
  return { status, stdout, stderr };
}

/** A copy of both READMEs, and of what makes the one from the other. */
function copied() {
  const copy = temporaryDirectory();
  const files = ['README.md', ...['README.md', 'package.json'].map((name) => `bench/${name}`)];
  const programs = ['readme.js', 'results.js', 'rounds.js', 'table.js'].map((name) => `bench/${name}`);
  for (const file of [...files, ...programs]) cpSync(join(root, file), join(copy, file));
  return {
    check: () => node(['bench/readme.js', '--check'], copy),
    write: () => node(['bench/readme.js'], copy),
    evaluate: (code: string) => node(['--input-type=module', '-e', code], copy),
    read: (file: string) => readFileSync(join(copy, file), 'utf8'),
    change(file: string, from: string, to: string) {
      const text = this.read(file);
      expect(text).toContain(from);
      writeFileSync(
        join(copy, file),
        text.replace(from, () => to),
      );
    },
  };
}

describe('the performance table of README', () => {
  it('has the figures of the table in bench/README.md', () => {
    expect(node(['bench/readme.js', '--check'])).toEqual({ status: 0, stdout: '', stderr: '' });
  });

  it('is told to differ when a figure of either is changed, and made again from the table of the bench', () => {
    const copy = copied();
    const [figure = ''] = /Enqueue a file .*\n.* calls +\d+k/.exec(copy.read('bench/README.md')) ?? [];
    copy.change('bench/README.md', figure, figure.replace(/\d+k$/, '123k'));
    expect(copy.check()).toMatchObject({ status: 1, stderr: expect.stringContaining('next: node bench/readme.js') });
    expect(copy.write().status).toBe(0);
    expect(copy.check().status).toBe(0);
    expect(copy.read('README.md')).toContain('| enqueue a file of 1,000,000 lines | 123,000/s, ');
    copy.change('README.md', '| 123,000/s, ', '| 321,000/s, ');
    expect(copy.check().status).toBe(1);
  });

  it('is not made from a table that lacks one of its rows', () => {
    const copy = copied();
    copy.change('bench/README.md', '\nWorker, ', '\nHandler, ');
    expect(copy.check()).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('no row "beanstalkd" of the topic worker'),
    });
  });
});

describe('the table of the bench', () => {
  const store = (results: object[], machine = 'stored().machine') => `
    import { store, stored } from './bench/results.js';
    const topics = [...new Set([...stored().results.map(({ topic }) => topic), 'zeal'])];
    store({ machine: ${machine}, results: ${JSON.stringify(results)} }, topics);
    console.log(JSON.stringify(stored().results));`;
  const row = (met: string) => `Zeal: jobs/s, more is better\n  ${'of a bee'.padEnd(92)}${met}`;

  it('takes the topics of a run, and keeps the others', () => {
    const copy = copied();
    const before = JSON.parse(copy.evaluate(store([])).stdout);
    expect(before.length).toBeGreaterThan(10);
    const unchanged = copy.read('bench/README.md');
    expect(unchanged).toBe(read('bench/README.md'));
    const [first, ...others] = before;
    const run = [
      { ...first, head: 'now', text: row('MISSED') },
      { topic: 'zeal', head: 'now', text: row('yes') },
    ];
    const { stdout, stderr } = copy.evaluate(store(run));
    expect(stderr).toBe('');
    expect(JSON.parse(stdout)).toEqual([run[0], ...others, run[1]]);
  });

  it('keeps no figures of another machine', () => {
    const run = [{ topic: 'zeal', head: 'now', text: row('yes') }];
    const copy = copied();
    expect(JSON.parse(copy.evaluate(store(run, '"an abacus"')).stdout)).toEqual(run);
    expect(copy.read('bench/README.md')).toContain('\nan abacus  \n1 targets met, 0 missed.\n');
  });
});

describe('npm run bench', () => {
  it('has a file and a description for each topic that it names', () => {
    const { stdout } = node(['bench/run.js', '--help']);
    const [, list = ''] = /Topics:\n(.*?)\n\n/s.exec(stdout) ?? [];
    const topics = [...list.matchAll(/^ {2}(\w+)/gm)].map(([, topic]) => topic as string);
    const files = readdirSync(join(root, 'bench/cases')).map((file) => file.replace(/\.js$/, ''));
    expect(files).toEqual([...topics].sort());
    const described = [...read('bench/README.md').matchAll(/^\| `(\w+)` \|/gm)].map(([, topic]) => topic);
    expect(described).toEqual(topics);
  });

  it.each([
    ['an unknown topic', ['zeal'], 'unknown topic "zeal"'],
    ['figures of a smoke run', ['--smoke', '--json', 'file'], '--smoke has no figures to write'],
    ['to write those of smaller runs', ['--quick', '--write'], '--write is for the full sizes'],
  ])('refuses %s', (_, args, why) => {
    expect(node(['bench/run.js', ...args])).toMatchObject({ status: 64, stderr: expect.stringContaining(why) });
  });
});
