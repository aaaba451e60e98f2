import { spawnSync } from 'node:child_process';
import { closeSync, constants, mkdirSync, openSync, readFileSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { type Queue, RawPayload } from '../src/index.js';
import { begin } from './support/cli.js';
import { read, show } from './support/handlers.js';
import { freshQueue } from './support/redis.js';
import { temporaryDirectory } from './support/temporary.js';
import { until } from './support/until.js';

const path = (name: string) => fileURLToPath(new URL(`../examples/workers/${name}`, import.meta.url));
const has = (command: string, ...args: string[]) => spawnSync(command, args).status === 0;

/** The workers in examples/workers/, and what each needs. */
const WORKERS: readonly (readonly [name: string, isThere: boolean, command: readonly string[]])[] = [
  ['PHP', has('php', '-v'), ['php', path('worker.php')]],
  ['Python', has('python3', '-V'), ['python3', path('worker.py')]],
  ['Ruby', has('ruby', '-v'), ['ruby', path('worker.rb')]],
  ['Perl', has('perl', '-MJSON::PP', '-e', '1'), ['perl', path('worker.pl')]],
  ['Go', has('go', 'version'), ['worker']],
  ['Node', true, ['node', path('worker.mjs')]],
  ['sh', has('jq', '-V'), [path('worker.sh')]],
];

/** Opens a named pipe once somebody reads from it: then a worker has begun with the order behind it. */
async function opened(pipe: string): Promise<number> {
  let fd = -1;
  await until(() => {
    try {
      fd = openSync(pipe, constants.O_WRONLY | constants.O_NONBLOCK);
      return true;
    } catch {
      return false;
    }
  });
  return fd;
}

/** A directory with orders: some that cannot be read at once. */
function ordersDirectory(): string {
  const dir = temporaryDirectory();
  for (const id of [1, 6]) writeFileSync(join(dir, String(id)), 'open\n');
  writeFileSync(join(dir, '8'), 'paid\n');
  mkdirSync(join(dir, '3'));
  expect(
    spawnSync(
      'mkfifo',
      [4, 5, 7].map((id) => join(dir, String(id))),
    ).status,
  ).toBe(0);
  return dir;
}

/** Payloads that name no order, although a careless reader takes some of them for order 1. */
const BAD: readonly unknown[] = [
  ...['text', null, 5, [1], {}, { orderId: null }, { orderId: true }, { orderId: 1.5 }, { orderId: '' }],
  ...[{ orderId: '1\n2' }, { orderId: '../1' }, { orderId: [1] }, { orderId: { a: 1 } }],
];

const childrenOf = (pid: number | undefined) =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').map(Number);

async function enqueueOrders(queue: Queue, ids: readonly (number | readonly [id: number, note: string])[]) {
  const jobs = ids.map((order, i) => {
    const [orderId, note] = typeof order === 'number' ? [order] : order;
    return { id: String(orderId), at: 1_000 + i, payload: { orderId, note } };
  });
  await queue.enqueue(jobs);
}

describe.concurrent('the worker in', () => {
  // With tickets a worker does both, and nothing of it depends on which.
  for (const [name, isThere, words] of WORKERS)
    it.runIf(isThere).each(name === 'PHP' ? ['one job', 'four jobs'] : ['four jobs'])(
      `${name} closes orders, and survives what happens to it, with %s in hand`,
      { timeout: 240_000 },
      async (hand) => {
        const options = hand === 'one job' ? [] : ['--ahead', '4'];
        const dir = ordersDirectory();
        let command = [...words];
        if (name === 'Go') {
          command = [join(dir, 'worker')];
          const built = spawnSync('go', ['build', '-o', command[0] as string, path('worker.go')], { encoding: 'utf8' });
          expect(built).toMatchObject({ status: 0, stderr: '' });
        }
        const queue = freshQueue();
        // 4: the worker is killed; 5: it hangs; 1, 6: open; 2: no such order; 3: cannot be read; 8: paid; 7: it is stopped.
        const note = `é "quoted" $(touch x) \u2028 ${'x'.repeat(1024 * 1024)}`;
        await enqueueOrders(queue, [4, 5, 1, 2, 3, [6, note], 8]);
        await queue.enqueue(BAD.map((payload, i) => ({ id: `bad-${i}`, at: 1_500 + i, payload })));
        await queue.enqueue({ id: 'raw', at: 1_600, payload: new RawPayload(Buffer.from([0xff, 0x0a])) });
        const line = ['drain', '--watch', '--stay', '--backoff', '1h', '--timeout', '4s', '--kill-after', '1s'];
        const running = begin([...line, ...options, queue.name, '--', ...command], {
          env: { ORDERS: dir, PATH: process.env.PATH },
        });
        const killed = await opened(join(dir, '4'));
        process.kill(-(childrenOf(running.child.pid)[0] as number), 'SIGKILL');
        closeSync(killed);
        const hangs = await opened(join(dir, '5'));
        await until(async () => (await queue.counts()).pending === 3 && (await queue.counts()).active === 0);
        closeSync(hangs);
        expect(await show(queue, '4')).toMatchObject({
          failures: 1,
          error: expect.stringMatching(/^killed by SIGKILL/),
        });
        expect(await show(queue, '5')).toMatchObject({
          failures: 1,
          error: expect.stringMatching(/^timed out after 4s/),
        });
        expect(await show(queue, '2')).toMatchObject({ state: 'dead', reason: 'refused', error: 'no order 2' });
        const bad = await Promise.all([...BAD.keys()].map((i) => show(queue, `bad-${i}`)));
        for (const job of [...bad, await show(queue, 'raw')])
          expect(job).toMatchObject({ state: 'dead', reason: 'refused', error: 'no order id' });
        const three = await show(queue, '3');
        expect(three).toMatchObject({ state: 'pending', failures: 1, error: expect.stringMatching(/directory/i) });
        expect((three?.due ?? 0) - (three?.failed ?? 0)).toBe(3_600_000);
        expect(read(join(dir, 'closed'))).toBe('1\n6\n');
        // A stop in the middle of a job: it is finished.
        await enqueueOrders(queue, [7]);
        const stopped = await opened(join(dir, '7'));
        running.child.kill('SIGTERM');
        await until(
          () => running.stderr.includes('waiting up to 30s for 1 handler') || running.child.exitCode !== null,
        );
        writeSync(stopped, 'open\n');
        closeSync(stopped);
        expect((await running.ended).code).toBe(0);
        expect(read(join(dir, 'closed'))).toBe('1\n6\n7\n');
        expect((await queue.counts()).stats).toMatchObject({ acked: 4, retried: 3, dead: 2 + BAD.length });
      },
    );
});
