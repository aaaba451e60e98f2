import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, DelayqError, isPassing } from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import type { Context } from '../host/context.js';
import { noTemporary } from '../host/temporary.js';
import { colours } from '../terminal/output.js';

/**
 * The steps: what is said, and the lines that are run. A loaded machine is slow: nothing may be said that depends on how
 * fast the steps follow each other.
 */
const STEPS: readonly (readonly [before: string, ...lines: string[]])[] = [
  [
    'Orders that are not paid must be closed. Two of them, due in one second and in four:',
    `delayq enqueue --in 1s order-close '{"orderId":41}'`,
    `delayq enqueue --in 4s order-close '{"orderId":42}'`,
  ],
  [
    'A drain, usually started by cron, gives what is due to a handler. If nothing is due, it ends:',
    'delayq drain order-close -- ./close-order',
  ],
  ['A second later the first one is due:', 'sleep 1', 'delayq drain order-close -- ./close-order'],
  ['Jobs that are still in the queue:', 'delayq list order-close'],
  [
    'A drain that keeps running delivers jobs on time, without cron:',
    'delayq drain --for 4s order-close -- ./close-order',
  ],
  ['Both are done:', 'delayq inspect'],
];

const HANDLER = `#!/bin/sh
# Reads one order a line and closes it.
while read -r order; do echo "close-order: closed $order at $(date +%T)"; done
`;

export function demoCommand(command: CliCommand, context: Context): void {
  command
    .description('Show what delayq does in ten seconds, on a private redis-server that is removed at the end.')
    .action(() => demo(context));
  command.examples(['delayq demo']);
}

async function demo(context: Context): Promise<void> {
  const stop = context.stopSignal();
  const directory = await mkdtemp(join(tmpdir(), 'delayq-demo-'))
    .then((made) => realpath(made))
    .catch((cause: Error) => {
      throw noTemporary('the demo needs a temporary directory', cause);
    });
  let server: ChildProcess | undefined;
  try {
    server = await startRedis(directory);
    await writeFile(join(directory, 'close-order'), HANDLER, { mode: 0o755 });
    const [node, file] = context.program;
    // The command lines must run this very delayq, however it was started.
    await writeFile(join(directory, 'delayq'), `#!/bin/sh\nexec '${node}' '${file}' "$@"\n`, { mode: 0o755 });
    const env = {
      ...context.env,
      PATH: `${directory}${delimiter}${context.env.PATH}`,
      DELAYQ_REDIS_URL: `unix://${directory}/redis.sock`,
      DELAYQ_PREFIX: '',
    };
    const paint = await colours(context, context.stdout);
    for (const [before, ...lines] of STEPS) {
      await context.write(`\n${before}\n`);
      for (const line of lines) {
        await context.write(`${paint.dim('$')} ${paint.bold(line)}\n`);
        const child = spawn('/bin/sh', ['-c', line], { cwd: directory, env, stdio: ['ignore', 'inherit', 'inherit'] });
        const [status] = (await once(child, 'exit')) as [number | null];
        if (stop.aborted) return void context.outcomes.add('interrupted');
        if (status !== 0)
          throw new DelayqError('internal', `the demo failed: ${line}`, { why: `its exit status was ${status}` });
      }
    }
    await context.write('\nNext, with your own Redis: delayq enqueue --help\n');
  } finally {
    if (server?.exitCode === null) {
      server.kill();
      await once(server, 'exit');
    }
    await rm(directory, { recursive: true, force: true });
  }
}

async function startRedis(directory: string): Promise<ChildProcess> {
  const socket = join(directory, 'redis.sock');
  const server = spawn('redis-server', ['--port', '0', '--unixsocket', socket, '--save', '', '--dir', directory], {
    stdio: 'ignore',
    // A process group of its own: Ctrl-C is for the demo, which then ends the server.
    detached: true,
  });
  const failed = once(server, 'exit').then(
    ([status]) => {
      throw new DelayqError('config', 'redis-server did not start', { why: `its exit status was ${status}` });
    },
    (cause) => {
      throw new DelayqError('config', 'the demo needs redis-server', {
        why: (cause as Error).message,
        next: 'install it: apt-get install redis-server, or brew install redis',
        cause,
      });
    },
  );
  failed.catch(() => {});
  for (;;) {
    try {
      (await Promise.race([connect(`unix://${socket}`), failed])).close();
      return server;
    } catch (error) {
      if (!isPassing(error)) throw error;
      await Promise.race([sleep(20), failed]);
    }
  }
}
