import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { text as textOf } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { connect, Queue } from '../src/index.js';
import { connection, freshName, redisUrl } from './support/redis.js';
import { until } from './support/until.js';

const root = new URL('..', import.meta.url);

describe('the library as it is installed', () => {
  /** Runs the first example of a document, with a queue of the test's own, until it has handled a job; what it prints. */
  async function run(document: string, queue: string, before = '', after = ''): Promise<[string, string]> {
    const [, shown = ''] = /```ts\n([\s\S]*?)```/.exec(readFileSync(new URL(document, root), 'utf8')) ?? [];
    const code = shown.replace('redis://127.0.0.1:6379', redisUrl).replace("'webhook'", `'${queue}'`);
    await new Queue(connection, queue).enqueue({ payload: 'gone', id: 'a', at: 1 });
    // In the package itself, the name delayq means what "exports" says.
    const child = spawn(process.execPath, ['--input-type=module', '-e', before + code + after], {
      cwd: root,
      stdio: 'pipe',
    });
    const output = Promise.all([textOf(child.stdout), textOf(child.stderr)]);
    await until(async () => (await new Queue(connection, queue).counts()).stats.acked === 1);
    child.kill('SIGTERM');
    return output;
  }

  it('does what the README shows', async () => {
    const queue = freshName();
    expect(await run('README.md', queue)).toEqual(['gone\n', '']);
    expect(await new Queue(connection, queue).counts()).toMatchObject({ pending: 1 });
  });

  it('does what the guide shows, and lets the process end once it is closed', async () => {
    const posts: string[] = [];
    const server = createServer(async (request, response) => {
      posts.push(await textOf(request));
      response.writeHead(posts.length === 1 ? 410 : 200).end();
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const url = `const url = 'http://127.0.0.1:${port}';\n`;
    const printed = await run(
      'docs/guide/library.md',
      freshName(),
      url,
      'console.log(JSON.stringify({ acked, dead }));',
    );
    expect(printed).toEqual(['{"acked":1,"dead":1}\n', '']);
    expect(posts).toEqual(['"gone"', '{"big":12345678901234567890}']);
    server.close();
  });

  it('tells with connect() itself that Redis is not there', async () => {
    await expect(connect('redis://127.0.0.1:1')).rejects.toMatchObject({
      code: 'unreachable',
      message: expect.stringContaining('127.0.0.1:1'),
    });
  });
});
