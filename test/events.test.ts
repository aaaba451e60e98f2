import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { Operator, Queue } from '../src/index.js';
import { afterwards } from './support/afterwards.js';
import { beginSh, sh } from './support/cli.js';
import { connection, freshName } from './support/redis.js';
import { temporaryDirectory } from './support/temporary.js';
import { until } from './support/until.js';

const guide = readFileSync(new URL('../docs/guide/events.md', import.meta.url), 'utf8');
/** The block of the guide in which a text stands. */
const blockWith = (text: string) =>
  [...guide.matchAll(/^```\w*\n([\s\S]*?)^```$/gm)]
    .map(([, block = '']) => block)
    .find((block) => block.includes(text)) ?? '';

const hasTools = spawnSync('sh', ['-c', 'curl -V && jq -V']).status === 0;

it('the result of a job is in a shell variable, as the guide has it', async () => {
  const directory = temporaryDirectory();
  const image = '#!/bin/sh\nread -r job\necho "working on $job" >&2\necho "https://img.example.com/cat.png"\n';
  writeFileSync(join(directory, 'make-thumbnail'), image, { mode: 0o755 });
  const script = `cd ${directory} || exit 99; ${blockWith('url=$(delayq result')}\nkill $!; wait $!`;
  const { stdout, stderr } = await sh(script, { env: { DELAYQ_PREFIX: freshName() } });
  expect({ url: stdout.split('\n').at(-2), stderr }).toMatchObject({ url: 'https://img.example.com/cat.png' });
});

it.runIf(hasTools)(
  'an alert comes for each dead job, also for those that died while it did not run, as the guide has it',
  async () => {
    const [prefix, directory] = [freshName(), temporaryDirectory()];
    const texts: string[] = [];
    const chat = createServer((request, response) => {
      request.on('data', (data) => texts.push(JSON.parse(String(data)).text));
      request.on('end', () => response.end());
    }).listen(0, '127.0.0.1');
    afterwards(() => chat.close());
    await once(chat, 'listening');
    const url = `http://127.0.0.1:${(chat.address() as AddressInfo).port}`;
    const [start = '', script = ''] = [blockWith('--from-group pager -- ./alert'), blockWith('# alert: ')];
    writeFileSync(join(directory, 'alert'), script, { mode: 0o755 });
    const [config = '', follow = ''] = start.trim().split('\n');
    const env = { DELAYQ_PREFIX: prefix, CHAT_URL: url };
    await sh(config, { env });
    const queue = new Queue(connection, 'order-close', { prefix });
    await new Operator(connection, { prefix }).configure('order-close', { tries: 1 });
    const die = async (id: string) => {
      await queue.enqueue({ id, payload: 1 });
      await queue.nack((await queue.drain()).jobs, { error: `no "${id}"` });
    };
    const groups = async () =>
      (await connection.call('XINFO', 'GROUPS', `${prefix}:{order-close}:events`)) as unknown[];
    const isReading = async () => (await groups().catch(() => [])).length > 0;
    for (const [before, during] of [
      [undefined, 'a'],
      ['a2', 'b'],
    ] as const) {
      if (before) await die(before);
      const running = beginSh(`cd ${directory} && ${follow}`, { env, detached: true });
      await until(isReading);
      await die(during);
      await until(() => texts.some((text) => text.includes(`"${during}"`)));
      process.kill(-(running.child.pid as number), 'SIGTERM');
      await running.ended;
    }
    expect(texts).toEqual(['a', 'a2', 'b'].map((id) => `order-close ${id} is dead (failed): no "${id}"`));
  },
);
