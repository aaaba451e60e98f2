import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, inject, it } from 'vitest';
import { Queue } from '../src/index.js';
import { beginSh, cronEnv, sh } from './support/cli.js';
import { admin, connection, freshName, freshQueue } from './support/redis.js';
import { until } from './support/until.js';

const path = (name: string) => fileURLToPath(new URL(`../examples/${name}`, import.meta.url));
const text = (name: string) => readFileSync(path(name), 'utf8');
/** cron's environment, with the handler of the examples on the PATH. */
const env = { PATH: `${cronEnv().PATH}:${path('')}` };
const has = (command: string, ...args: string[]) => spawnSync(command, args).status === 0;

/** An example's command, with a queue of the test's own instead of its own. */
const forQueue = (command: string, name: string) => command.replace(/order-close(?=[ |])|remind/, name);

const cronCommands = [...text('crontab').matchAll(/^(?:\* ){5} (.*)$/gm)].map(([, command]) => command as string);

describe('the crontab', () => {
  it.each(cronCommands)('line "%s" does its job', async (command) => {
    const queue = freshQueue();
    await queue.enqueue({ payload: { orderId: 42 } });
    // cron would turn a bare % into a new line.
    expect(command).not.toContain('%');
    const ended = await sh(forQueue(command, queue.name).replace('59s', '500ms'), { env });
    expect(ended).toMatchObject({ code: 0, stdout: 'closed {"orderId":42}\n', stderr: '' });
    expect((await queue.counts()).payload).toBe(0);
  });

  it('has the lines that were run', () => expect(cronCommands).toHaveLength(2));
});

describe('the systemd units', () => {
  const execStart = (unit: string) => /^ExecStart=\/bin\/sh -c '(.*)'$/m.exec(text(unit))?.[1] as string;

  it('drain every minute', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    expect(await sh(forQueue(execStart('order-close.service'), queue.name), { env })).toMatchObject({
      code: 0,
      stdout: 'closed 1\n',
      stderr: '',
    });
    expect(text('order-close.timer')).toContain('OnCalendar=minutely');
  });

  it('or watch', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, in: 300 });
    const running = beginSh(forQueue(execStart('order-close-watch.service'), queue.name), { env, detached: true });
    await until(() => running.stdout === 'closed 1\n');
    // As systemd does: all processes of the service are told, the reader too.
    process.kill(-(running.child.pid as number), 'SIGTERM');
    await running.ended;
    await until(async () => (await queue.counts()).active === 0);
  });

  it.runIf(has('systemd-analyze', '--version'))('are valid', async () => {
    const units = ['order-close.service', 'order-close.timer', 'order-close-watch.service'].map(path).join(' ');
    expect(await sh(`systemd-analyze verify ${units}`)).toMatchObject({ stderr: '' });
  });
});

describe('a producer in another language', () => {
  const socket = inject('redisSocket');
  const produces = async (command: string, more: Record<string, string>) => {
    const name = freshName();
    const payload = `{"orderId":42,"note":"it's \\"quoted\\" $(touch x) %"}`;
    const { code, stdout, stderr } = await sh(`${command} "$QUEUE" "$SECONDS_AHEAD" "$PAYLOAD"`, {
      env: { ...env, ...more, QUEUE: name, PAYLOAD: payload, SECONDS_AHEAD: '900' },
    });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const queue = new Queue(connection, name);
    const { pending, payload: payloads, now, upcoming } = await queue.counts(1);
    expect({ pending, payloads, id: upcoming[0]?.id }).toEqual({ pending: 1, payloads: 1, id: stdout.trim() });
    expect((upcoming[0]?.due ?? 0) - now).toBeGreaterThan(880_000);
    expect((upcoming[0]?.due ?? 0) - now).toBeLessThanOrEqual(900_000);
    expect(await admin.hget(`delayq:{${name}}:payload`, stdout.trim())).toBe(payload);
    expect(await admin.sismember('delayq:queues', name)).toBe(1);
  };

  it('such as the shell with redis-cli', () =>
    produces(path('enqueue-redis-cli.sh'), { REDISCLI_OPTIONS: `-s ${socket}` }));
  it.runIf(has('php', '-r', 'exit(class_exists("Redis") ? 0 : 1);'))('such as PHP', () =>
    produces(`php ${path('enqueue.php')}`, { REDIS_SOCKET: socket }),
  );
  it.runIf(has('/usr/bin/python3', '-c', 'import redis'))('such as Python', () =>
    produces(`/usr/bin/python3 ${path('enqueue.py')}`, { REDIS_URL: `unix://${socket}` }),
  );
});
