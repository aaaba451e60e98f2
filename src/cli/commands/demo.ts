import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Connection, connect, DelayqError, isPassing, Queue } from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import type { Context } from '../host/context.js';
import { noTemporary } from '../host/temporary.js';
import { colours } from '../terminal/output.js';

type Counts = Awaited<ReturnType<Queue['counts']>>;

/** A step: what is said before it, by what is in the queue then, and after it, by the jobs that it has done. */
interface Step {
  readonly before: string | ((counts: Counts) => string);
  readonly run: string;
  readonly after?: (done: number) => string | undefined;
}

// A loaded machine is slow: nothing may be said that depends on how fast the steps follow each other.
const STEPS: readonly Step[] = [
  {
    before: 'Orders that are not paid must be closed. Two of them, due in one second and in four:',
    run: `delayq enqueue --in 1s order-close '{"orderId":41}'\ndelayq enqueue --in 4s order-close '{"orderId":42}'`,
  },
  {
    before: 'A drain, usually started by cron, gives what is due to a handler:',
    run: 'delayq drain order-close -- ./close-order',
    after: (done) => (done === 0 ? 'Nothing was due yet, so it did nothing and exited 0.' : undefined),
  },
  {
    before: ({ pending }) =>
      pending === 2 ? 'A second later the first one is due. It goes to the handler:' : 'A second later, once more:',
    run: 'sleep 1\ndelayq drain order-close -- ./close-order',
  },
  { before: ({ pending }) => stillPending(pending), run: 'delayq list order-close' },
  {
    before: ({ pending }) =>
      pending > 0 ? 'A drain that keeps running delivers it on time, without cron:' : 'A drain may also keep running:',
    run: 'delayq drain --for 4s order-close -- ./close-order',
  },
  { before: ({ payload }) => (payload === 0 ? 'Both are done:' : 'Now:'), run: 'delayq inspect' },
];

function stillPending(pending: number): string {
  return pending === 0 ? 'Both are done already:' : pending === 1 ? 'The other one is still pending:' : 'Now:';
}

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
  let started: Awaited<ReturnType<typeof startRedis>> | undefined;
  try {
    started = await startRedis(directory);
    const queue = new Queue(started.redis, 'order-close');
    await writeFile(join(directory, 'close-order'), HANDLER);
    const [node, file] = context.program;
    // The command lines must run this very delayq, however it was started.
    await writeFile(join(directory, 'delayq'), `#!/bin/sh\nexec '${node}' '${file}' "$@"\n`);
    for (const name of ['close-order', 'delayq']) await chmod(join(directory, name), 0o755);
    const env = {
      ...context.env,
      PATH: `${directory}${delimiter}${context.env.PATH}`,
      DELAYQ_REDIS_URL: `unix://${directory}/redis.sock`,
      DELAYQ_PREFIX: '',
    };
    const paint = await colours(context, context.stdout);
    for (const { before, run, after } of STEPS) {
      const counts = await queue.counts();
      await context.write(`\n${typeof before === 'string' ? before : before(counts)}\n`);
      for (const line of run.split('\n')) {
        await context.write(`${paint.dim('$')} ${paint.bold(line)}\n`);
        const child = spawn('/bin/sh', ['-c', line], { cwd: directory, env, stdio: ['ignore', 'inherit', 'inherit'] });
        const [status] = (await once(child, 'exit')) as [number | null];
        if (stop.aborted) {
          context.outcomes.add('interrupted');
          return;
        }
        if (status !== 0)
          throw new DelayqError('internal', `the demo failed: ${line}`, { why: `its exit status was ${status}` });
      }
      const told = after?.(counts.payload - (await queue.counts()).payload);
      if (told !== undefined) await context.write(`${told}\n`);
    }
    await context.write('\nNext, with your own Redis: delayq enqueue --help\n');
  } finally {
    started?.redis.close();
    const server = started?.server;
    if (server?.exitCode === null) {
      server.kill();
      await once(server, 'exit');
    }
    await rm(directory, { recursive: true, force: true });
  }
}

async function startRedis(directory: string): Promise<{ server: ChildProcess; redis: Connection }> {
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
      return { server, redis: await Promise.race([connect(`unix://${socket}`), failed]) };
    } catch (error) {
      if (!isPassing(error)) throw error;
      await Promise.race([sleep(20), failed]);
    }
  }
}
