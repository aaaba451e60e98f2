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
  it('does what the README shows, and lets the process end once it is closed', async () => {
    const posts: string[] = [];
    const server = createServer(async (request, response) => {
      posts.push(await textOf(request));
      response.writeHead(posts.length === 1 ? 410 : 200).end();
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const name = freshName();
    const readme = readFileSync(new URL('README.md', root), 'utf8');
    const [, shown = ''] = /```ts\n([\s\S]*?)```/.exec(readme) ?? [];
    const code = shown.replace('redis://127.0.0.1:6379', redisUrl).replace("'webhook'", `'${name}'`);
    const printed = `const url = 'http://127.0.0.1:${port}';\n${code}\nconsole.log(JSON.stringify({ acked, dead }));`;
    await new Queue(connection, name).enqueue({ payload: 'gone', id: 'a', at: 1 });
    // In the package itself, the name delayq means what "exports" says.
    const child = spawn(process.execPath, ['--input-type=module', '-e', printed], { cwd: root, stdio: 'pipe' });
    const output = Promise.all([textOf(child.stdout), textOf(child.stderr)]);
    await until(async () => (await new Queue(connection, name).counts()).stats.acked === 1);
    child.kill('SIGTERM');
    expect(await output).toEqual(['{"acked":1,"dead":1}\n', '']);
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
