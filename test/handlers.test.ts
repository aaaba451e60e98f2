import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as textOf } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { delayq } from './support/cli.js';
import { read } from './support/examples.js';
import { path, script, show } from './support/handlers.js';
import { freshQueue } from './support/redis.js';

const has = (line: string) => spawnSync('sh', ['-c', line]).status === 0;

/** The programs of the page: those of its blocks of code that begin with #!. */
const programs = [...read('docs/guide/handlers.md').matchAll(/^```(\w+)\n(#![\s\S]*?)^```$/gm)].map(
  ([, language = '', code = '']) => ({ language, code }),
);

/** What each needs, as a shell line that succeeds where it is there. */
const NEEDS: Readonly<Record<string, string>> = {
  php: 'php -v',
  python: '/usr/bin/python3 -V',
  sh: 'curl -V && jq -V',
  node: 'true',
};

it('the page of handlers has one in each language', () => {
  expect(programs.map(({ language }) => language)).toEqual(Object.keys(NEEDS));
});

describe.concurrent.each(programs)('the handler in $language', ({ language, code }) => {
  /** Drains one job into the handler, before a service that answers with `status`. */
  const handled = async (payload: unknown, status = 200) => {
    const posts: string[] = [];
    const server = createServer(async (request, response) => {
      posts.push(`${request.headers['idempotency-key']} ${await textOf(request)}`.trimEnd());
      response.writeHead(status).end();
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const file = path();
    writeFileSync(file, code);
    chmodSync(file, 0o755);
    const queue = freshQueue();
    await queue.enqueue({ id: 'order:42', payload });
    const env = { ORDERS_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` };
    const { stdout } = await delayq(['drain', '-q', queue.name, '--', file], { env });
    server.close();
    return { stdout, posts, job: await show(queue, 'order:42') };
  };

  it.runIf(has(NEEDS[language] as string))('completes a job, refuses one, and fails with an error', async () => {
    const posts = ['order:42 {"orderId":42}'];
    expect(await handled({ orderId: 42 })).toEqual({ stdout: 'closed 42\n', posts, job: undefined });
    const refused = await handled({ note: 'none' });
    expect(refused).toMatchObject({ stdout: '', posts: [], job: { state: 'dead', error: 'exit 65: no orderId' } });
    const failed = await handled({ orderId: 42 }, 500);
    expect(failed).toMatchObject({ stdout: '', posts, job: { state: 'pending', failures: 1 } });
    expect(failed.job?.error).toMatch(/^exit \d+: [\s\S]*500/);
  });
});

/** Programs that fail without a word of theirs about exit statuses, and what they exit with. */
const FAILURES = [
  ['php', `php -r 'throw new Exception("why");' 2>&1 >/dev/null`, 255],
  ['python', `/usr/bin/python3 -c 'raise Exception("why")'`, 1],
  ['sh', `sh -c 'echo why >&2; (exit 7)'`, 7],
  ['node', `node -e 'Promise.reject(new Error("why"))'`, 1],
] as const;

describe.concurrent('what a language exits with by itself is a failure that is retried', () => {
  it.each(FAILURES.filter(([language]) => has(NEEDS[language] as string)))('%s', async (_, line, status) => {
    const queue = freshQueue();
    await queue.enqueue({ id: 'a', payload: 1 });
    await delayq(['drain', '-q', queue.name, '--', script(`exec ${line}`)]);
    expect(await show(queue, 'a')).toMatchObject({ state: 'pending', failures: 1 });
    expect((await show(queue, 'a'))?.error).toMatch(new RegExp(`^exit ${status}`));
  });
});

describe.concurrent('SIGTERM after --timeout ends', () => {
  const sleepers = [
    ['php', `php -r 'sleep(600);'`],
    ['python', `/usr/bin/python3 -c 'import time; time.sleep(600)'`],
    ['sh', `sh -c 'sleep 600; exit 0'`],
    ['node', `node -e 'setTimeout(() => {}, 600_000)'`],
  ] as const;
  it.each(sleepers.filter(([language]) => has(NEEDS[language] as string)))('%s, which has failed', async (_, line) => {
    const queue = freshQueue();
    await queue.enqueue({ id: 'a', payload: 1 });
    // SIGKILL would come after the time limit of the test.
    const options = ['--timeout', '300ms', '--kill-after', '10m'];
    await delayq(['drain', '-q', ...options, queue.name, '--', script(`exec ${line}`)]);
    expect(await show(queue, 'a')).toMatchObject({ state: 'pending', failures: 1, error: 'timed out after 300ms' });
  });
});
