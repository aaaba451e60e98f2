import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { Connection, Queue } from '../../../src/index.js';
import { afterwards, during } from '../../support/afterwards.js';
import { beginSh, linesOf, sh } from '../../support/cli.js';
import { upTo } from '../../support/jobs.js';
import { admin, freshQueue, key, timePasses } from '../../support/redis.js';
import { Server } from '../../support/server.js';
import { temporaryDirectory } from '../../support/temporary.js';
import { until } from '../../support/until.js';

/** A queue with `n` due jobs and the given lease. */
async function queueOf(jobs: number, lease = '60000'): Promise<Queue> {
  const queue = freshQueue();
  await admin.hset(key(queue.name, 'config'), 'layout', '1 0/1 uses settings', 'lease', lease);
  await queue.enqueue(upTo(jobs).map((n) => ({ payload: n })));
  return queue;
}

/** Files of a test, which its shell lines know by variables. */
function scene() {
  const directory = temporaryDirectory();
  const env = { GATE: join(directory, 'gate'), LOG: join(directory, 'log'), LOCK: join(directory, 'lock') };
  return {
    env,
    log: () => (existsSync(env.LOG) ? readFileSync(env.LOG, 'utf8') : ''),
    openGate: () => writeFileSync(env.GATE, ''),
  };
}

/** Waits until the file $GATE exists. */
const WAITS = 'until [ -e "$GATE" ]; do sleep 0.01; done';

/** Reads what there is, and writes it down when the gate is open. */
const READER = `{ ${WAITS}; cat > "$LOG"; }`;

/** The watchers among all processes, by what their environment tells: the lock of their test. */
function watchersOf({ LOCK }: { LOCK: string }): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        const [words, environment] = ['cmdline', 'environ'].map((file) => readFileSync(`/proc/${pid}/${file}`, 'utf8'));
        return words?.includes('\0watch-pipe\0') && environment?.includes(`LOCK=${LOCK}\0`);
      } catch {
        return false;
      }
    })
    .map(Number);
}

const isDone = (jobs: number) => async (queue: Queue) => (await queue.counts()).stats.acked === jobs;

describe.concurrent('a drain whose pipe others can write into, too, ends when its lines are written', () => {
  it.each([
    ['flock', (q: string) => `flock -n "$LOCK" delayq drain ${q}`],
    ['timeout', (q: string) => `timeout 55 delayq drain ${q}`],
    ['a subshell', (q: string) => `(delayq drain ${q}; : ; )`],
    ['2>&1 and a wrapper', (q: string) => `timeout 55 delayq drain ${q} 2>&1`],
  ])('%s: its jobs are done when the reader is', async (_, drain) => {
    const queue = await queueOf(3);
    const { env, log, openGate } = scene();
    const running = beginSh(`{ ${drain(queue.name)}; echo "ended $?" >&2; } | ${READER}`, { env });
    await until(() => running.stderr === 'ended 0\n');
    expect(await queue.counts()).toMatchObject({ active: 3, stats: { delivered: 3 } });
    // A lock is free for the next run.
    expect((await sh('flock -n "$LOCK" true', { env })).code).toBe(0);
    openGate();
    await running.ended;
    await until(() => isDone(3)(queue));
    expect(linesOf(log())).toEqual(['0', '1', '2']);
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, payload: 0, lease: 0 });
    await until(() => watchersOf(env).length === 0);
  });

  it('a loop over queues: one watcher for all of them', async () => {
    const queues = [await queueOf(2), await queueOf(2), await queueOf(2)];
    const { env, openGate, log } = scene();
    const names = queues.map(({ name }) => name).join(' ');
    const running = beginSh(`{ for q in ${names}; do delayq drain $q; done; echo ended >&2; ${WAITS}; } | ${READER}`, {
      env,
    });
    await until(() => running.stderr === 'ended\n');
    await until(() => watchersOf(env).length === 1);
    openGate();
    await running.ended;
    for (const queue of queues) await until(() => isDone(2)(queue));
    expect(linesOf(log())).toEqual(['0', '1', '0', '1', '0', '1']);
  });

  it('nobody has read them, and their reader dies: all jobs of all drains come again', async () => {
    const queues = [await queueOf(3), await queueOf(3)];
    const { env, openGate } = scene();
    const drains = queues.map(({ name }) => `delayq drain ${name}`).join('; ');
    const running = beginSh(`{ ${drains}; echo ended >&2; ${WAITS}; } | { echo $$ > "$LOG"; exec sleep 1000; }`, {
      env,
    });
    await until(() => running.stderr === 'ended\n');
    process.kill(readersOf(watchersOf(env)), 'SIGKILL');
    for (const queue of queues) await until(async () => (await queue.counts()).pending === 3);
    expect((await queues[0]?.counts())?.stats.acked).toBe(undefined);
    openGate();
    await running.ended;
  });

  it('a reader that reads on: its jobs are done a lease after they were written', async () => {
    const queue = await queueOf(3, '1000');
    const { env, openGate } = scene();
    const running = beginSh(`{ delayq drain ${queue.name}; ${WAITS}; } | cat`, { env });
    await until(() => isDone(3)(queue));
    expect(running.stdout).toBe('0\n1\n2\n');
    await until(() => watchersOf(env).length === 0);
    openGate();
    await running.ended;
  });

  it('a reader that dies does not keep others from noticing it', async () => {
    const queue = await queueOf(3);
    const { env } = scene();
    const { code, stdout } = await sh(`{ delayq drain ${queue.name}; yes; } | head -n 4`, { env });
    expect({ code, stdout }).toEqual({ code: 0, stdout: '0\n1\n2\ny\n' });
    await until(async () => (await queue.counts()).active === 0);
    await until(() => watchersOf(env).length === 0);
  });

  it('a watcher that is killed loses nothing: the jobs come again when their leases expire', async () => {
    const queue = await queueOf(3);
    const { env, openGate } = scene();
    const running = beginSh(`{ delayq drain ${queue.name}; echo ended >&2; ${WAITS}; } | ${READER}`, { env });
    await until(() => running.stderr === 'ended\n');
    for (const pid of watchersOf(env)) process.kill(pid, 'SIGKILL');
    await until(() => watchersOf(env).length === 0);
    await timePasses(queue.name, 60_000);
    expect((await queue.drain()).jobs).toHaveLength(3);
    openGate();
    await running.ended;
  });

  it('a watcher that is told to end gives the jobs back', async () => {
    const queue = await queueOf(3);
    const { env, openGate } = scene();
    const running = beginSh(`{ delayq drain ${queue.name}; echo ended >&2; ${WAITS}; } | ${READER}`, { env });
    await until(() => running.stderr === 'ended\n');
    for (const pid of watchersOf(env)) process.kill(pid, 'SIGTERM');
    await until(async () => (await queue.counts()).pending === 3);
    await until(() => watchersOf(env).length === 0);
    openGate();
    await running.ended;
  });

  it('a watcher takes nothing from strangers', async () => {
    const queue = await queueOf(1);
    const { env, openGate } = scene();
    const running = beginSh(`{ delayq drain ${queue.name}; echo ended >&2; ${WAITS}; } | ${READER}`, { env });
    await until(() => running.stderr === 'ended\n');
    const [pid = 0] = watchersOf(env);
    const [, target] = /watch-pipe\0(.*)\0/.exec(readFileSync(`/proc/${pid}/cmdline`, 'utf8')) ?? [];
    const socket = connect(`\0delayq-${process.getuid?.()}-${target}`);
    socket.end('wrong key\n{}');
    expect(await text(socket)).toBe(`${pid}\n`);
    openGate();
    await running.ended;
    await until(() => isDone(1)(queue));
  });

  it('under systemd, which would end a watcher, drain waits itself', async () => {
    const queue = await queueOf(3, '1000');
    const { env } = scene();
    const line = `{ delayq drain ${queue.name}; : ; } | cat`;
    const { stdout } = await sh(line, { env: { ...env, INVOCATION_ID: 'b1946ac92492d2347c6235b4d2611184' } });
    expect(stdout).toBe('0\n1\n2\n');
    expect(await queue.counts()).toMatchObject({ active: 0, stats: { acked: 3 } });
  });

  it.runIf(process.getuid?.() === 0)('a reader of another user, who cannot be seen: done a lease later', async () => {
    // Others may not open the socket of the shared server.
    const server = await during(Server.start({ tcp: true }));
    const redis = new Connection(server.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, 'q');
    await server.admin.hset(key('q', 'config'), 'layout', '1 0/1 uses settings', 'lease', '1000');
    await queue.enqueue(upTo(3).map((n) => ({ payload: n })));
    const { env, log, openGate } = scene();
    const drain = 'setpriv --reuid=65534 --clear-groups delayq drain q';
    const running = beginSh(`{ ${drain}; echo "ended $?" >&2; } | ${READER}`, {
      env: { ...env, DELAYQ_REDIS_URL: server.tcpUrl },
    });
    await until(() => running.stderr === 'ended 0\n');
    await until(() => isDone(3)(queue));
    openGate();
    await running.ended;
    expect(linesOf(log())).toEqual(['0', '1', '2']);
  });
});

describe.concurrent('2>&1 without a wrapper', () => {
  it('is the drain itself: it says what it has to, and the reader gets its end', async () => {
    const queue = await queueOf(2);
    await queue.enqueue([{ payload: 'late', at: 1_000, ttl: 1 }]);
    const { env } = scene();
    const { stdout } = await sh(`delayq drain ${queue.name} 2>&1 | cat`, { env });
    expect(linesOf(stdout).sort()).toEqual(['0', '1', `delayq: ${queue.name}: 1 job expired and dropped`]);
    await until(() => isDone(2)(queue));
    expect(watchersOf(env)).toEqual([]);
  });
});

/** The first process that reads from the pipe of a watcher, and is none itself. */
function readersOf([watcher = 0]: number[]): number {
  const [, target] = /watch-pipe\0(.*)\0/.exec(readFileSync(`/proc/${watcher}/cmdline`, 'utf8')) ?? [];
  const found = execFileSync('sh', [
    '-c',
    `for p in /proc/[0-9]*; do [ "$(readlink $p/fd/0)" = '${target}' ] && echo "$p"; done; :`,
  ]);
  return Number(/\/proc\/(\d+)/.exec(String(found))?.[1]);
}
