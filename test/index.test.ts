import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { transformSync } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, Queue } from '../src/index.js';
import { declarationsOf, type Example, examples, programOf } from './support/examples.js';
import { installIn } from './support/package.js';
import { connection, freshName, redisUrl } from './support/redis.js';
import { temporaryDirectory } from './support/temporary.js';
import { until } from './support/until.js';

const root = fileURLToPath(new URL('..', import.meta.url));
/** A project with delayq, installed from its tarball. */
const project = temporaryDirectory();
const programs = examples.filter(({ kind }) => kind === 'program');
const urlOf = (server: Server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const first = (document: string) => programs.find(({ at }) => at.startsWith(`${document}:`)) as Example;

/** What handlers of the examples post to. */
const service = createServer((_, response) => response.end()).listen(0, '127.0.0.1');

beforeAll(() => installIn(project));
afterAll(() => service.close());

describe('the library as it is installed', () => {
  /**
   * Runs an example, with a queue of the test's own that has a due job, until it ends; a worker until it has done a job.
   * Returns its exit status and what it printed.
   */
  async function run(example: Example, { queue = freshName(), url = urlOf(service), after = '' } = {}) {
    const code = programOf(example)
      .replace(/\bconnect\((?:'redis:[^']*')?\)/, `connect('${redisUrl}')`)
      .replace(/'(webhook|order-close)'/g, `'${queue}'`)
      .replace(/'https:[^']*'/, `'${url}'`);
    // Node 20 does not know `using`.
    const { code: plain } = transformSync(code + after, { loader: 'ts', target: 'node20' });
    await new Queue(connection, queue).enqueue({ payload: 'gone', id: 'order:42', at: 1 });
    const child = spawn(process.execPath, ['--input-type=module', '-e', plain], { cwd: project, stdio: 'pipe' });
    const output = Promise.all([textOf(child.stdout), textOf(child.stderr)]);
    const ended = once(child, 'exit');
    if (code.includes('.run()')) {
      const done = async () => ((await new Queue(connection, queue).counts()).stats.acked ?? 0) >= 1;
      await until(async () => child.exitCode !== null || (await done()));
      child.kill('SIGTERM');
    }
    const [status] = await ended;
    const [stdout, stderr] = await output;
    return { status, stdout, stderr };
  }

  it('does what the README shows', async () => {
    const queue = freshName();
    expect(await run(first('README.md'), { queue })).toEqual({ status: 0, stdout: 'gone\n', stderr: '' });
    expect(await new Queue(connection, queue).counts()).toMatchObject({ pending: 1 });
  });

  it('does what the guide shows, tells failures on stderr, and lets the process end once it is closed', async () => {
    const posts: string[] = [];
    const server = createServer(async (request, response) => {
      posts.push(await textOf(request));
      response.writeHead(posts.length === 1 ? 410 : 200).end();
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const queue = freshName();
    const after = 'console.log(JSON.stringify({ acked, dead }));';
    expect(await run(first('docs/guide/library.md'), { queue, url: urlOf(server), after })).toEqual({
      status: 0,
      stdout: '{"acked":1,"dead":1}\n',
      stderr: `delayq: ${queue}: job "order:42" failed at attempt 1 (dead): gone\n`,
    });
    expect(posts).toEqual(['"gone"', '{"big":12345678901234567890}']);
    server.close();
  });

  const others = programs.filter(
    // That with a file for TLS is only compiled.
    (one) => ![first('README.md'), first('docs/guide/library.md'), first('docs/guide/connect.md')].includes(one),
  );
  it.each(others)('runs the example of $at', async (example) => {
    expect(await run(example)).toMatchObject({ status: 0, stderr: '' });
  });

  it('gives import and require the same classes', () => {
    const code = `
      import * as all from 'delayq';
      import { createRequire } from 'node:module';
      const same = createRequire(import.meta.url)('delayq');
      console.log(Object.keys(same).every((name) => all[name] === same[name]), Object.keys(same).length > 20);`;
    const options = { cwd: project, encoding: 'utf8' } as const;
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', code], options);
    expect({ stdout, stderr }).toEqual({ stdout: 'true true\n', stderr: '' });
  });

  it('tells with connect() itself that Redis is not there', async () => {
    await expect(connect('redis://127.0.0.1:1')).rejects.toMatchObject({
      code: 'unreachable',
      message: expect.stringContaining('127.0.0.1:1'),
    });
  });
});

describe('the types of the library', () => {
  /** Compiles files of the project. Returns what the compiler says. */
  function compile(compiler: string, files: Readonly<Record<string, string>>, options: object): string {
    for (const [name, code] of Object.entries(files)) writeFileSync(join(project, name), code);
    const compilerOptions = {
      ...{ strict: true, noEmit: true, target: 'es2022', skipLibCheck: true, types: ['node'] },
      ...options,
    };
    const config = JSON.stringify({ compilerOptions, files: Object.keys(files) });
    writeFileSync(join(project, 'tsconfig.json'), config);
    const tsc = join(root, 'node_modules', compiler, 'bin/tsc');
    const { stdout, stderr } = spawnSync(process.execPath, [tsc, '-p', project], { encoding: 'utf8' });
    return `${stdout}${stderr}`;
  }

  const esm = Object.fromEntries(programs.map((example, i) => [`example-${i}.mts`, programOf(example)]));
  // Top-level await is only for ES modules.
  const main = (code: string) => code.replace(/^(import .*\n)([\s\S]*)$/, '$1async function main() {\n$2}\nmain();\n');
  const refused = `import { Queue, Worker } from 'delayq';
declare const queue: Queue;
// @ts-expect-error
queue.enqueue({ payload: 1, delay: '15m' });
// @ts-expect-error
new Worker(queue, () => {}, { concurency: 5 });
// @ts-expect-error
new Worker(queue, () => {}, { batch: 5 });`;
  const modules = { ...esm, 'refused.mts': refused };
  const cjs = { 'required.cts': main(programOf(first('README.md'))) };

  const settings: [name: string, options: object, files: Readonly<Record<string, string>>][] = [
    ['node16', { module: 'node16' }, { ...modules, ...cjs }],
    ['nodenext, without DOM', { module: 'nodenext', lib: ['es2022'], skipLibCheck: false }, { ...modules, ...cjs }],
    ['bundler', { module: 'esnext', moduleResolution: 'bundler' }, modules],
  ];

  describe.each(['typescript-5.4', 'typescript-5.9', 'typescript'])('with %s', (compiler) => {
    it.each(settings)('take all examples of the documents: %s', (_, options, files) => {
      expect(compile(compiler, files, options)).toBe('');
    });
  });

  it('are those that the reference lists', () => {
    const lists = examples.filter(({ kind }) => kind === 'signatures');
    expect(lists.length).toBeGreaterThan(7);
    const files = Object.fromEntries(lists.map((example, i) => [`list-${i}.mts`, declarationsOf(example)]));
    expect(compile('typescript', files, { module: 'nodenext', noImplicitAny: false })).toBe('');
  });
});
