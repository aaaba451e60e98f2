import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as textOf } from 'node:stream/consumers';
import { transformSync } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, Queue } from '../src/index.js';
import { type Example, firstOf, programOf, programs } from './support/examples.js';
import { installIn } from './support/package.js';
import { connection, freshName, redisUrl } from './support/redis.js';
import { temporaryDirectory } from './support/temporary.js';
import { until } from './support/until.js';

/** A project with delayq, installed from its tarball. */
const project = temporaryDirectory();
const urlOf = (server: Server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

/** What handlers of the examples post to. */
const service = createServer((_, response) => response.end()).listen(0, '127.0.0.1');

beforeAll(() => installIn(project));
afterAll(() => service.close());

describe.concurrent('the library as it is installed', () => {
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
    expect(await run(firstOf('README.md'), { queue })).toEqual({ status: 0, stdout: 'gone\n', stderr: '' });
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
    expect(await run(firstOf('docs/guide/library.md'), { queue, url: urlOf(server), after })).toEqual({
      status: 0,
      stdout: '{"acked":1,"dead":1}\n',
      stderr: `delayq: ${queue}: job "order:42" failed at attempt 1 (dead): gone\n`,
    });
    expect(posts).toEqual(['"gone"', '{"big":12345678901234567890}']);
    server.close();
  });

  const others = programs.filter(
    // That with a file for TLS is only compiled.
    (one) => ![firstOf('README.md'), firstOf('docs/guide/library.md'), firstOf('docs/guide/connect.md')].includes(one),
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
