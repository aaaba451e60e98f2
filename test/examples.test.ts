import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { text as textOf } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { Inspector, Queue } from '../src/index.js';
import { beginSh, cronEnv, sh } from './support/cli.js';
import { read } from './support/examples.js';
import { admin, connection, freshName, freshQueue } from './support/redis.js';
import { temporaryDirectory } from './support/temporary.js';
import { until } from './support/until.js';

const path = (name: string) => fileURLToPath(new URL(`../examples/${name}`, import.meta.url));
const text = (name: string) => readFileSync(path(name), 'utf8');
/** cron's environment, with the handler of the examples on the PATH. */
const env = { PATH: `${cronEnv().PATH}:${path('')}` };
const has = (command: string, ...args: string[]) => spawnSync(command, args).status === 0;

/** An example's command, with a queue of the test's own instead of its own. */
const forQueue = (command: string, name: string) => command.replace(/(?<!-)order-close(?=[ |]|$)/, name);

/** What cron does: runs a command in the home directory. */
const inHome = (command: string) => `cd ${path('')} && ${command}`;

/** What a drain reports of a run that is not quiet. */
const SUMMARY = /^delayq: (1 done|.*1 dead) in .*\n( {2}\w+: .*\n)*/m;

const cronCommands = [...text('crontab').matchAll(/^(?:\* ){5} (.*)$/gm)].map(([, command]) => command as string);

describe.concurrent('the crontab', () => {
  it.each(cronCommands)('line "%s" does its job', async (command) => {
    const queue = freshQueue();
    await queue.enqueue({ payload: { orderId: 42 } });
    // cron would turn a bare % into a new line.
    expect(command).not.toContain('%');
    const ended = await sh(inHome(forQueue(command, queue.name).replace('59s', '500ms')), { env });
    expect(ended).toMatchObject({ code: 0, stdout: 'closed {"orderId":42}\n' });
    expect(ended.stderr).toMatch(command.includes('-q') ? /^$/ : SUMMARY);
    expect((await queue.counts()).payload).toBe(0);
  });

  // No drain knows what became of a job behind a pipe.
  const tellers = cronCommands.filter((command) => !command.includes('|'));
  it.each(tellers)('line "%s" has cron mail each job that dies', async (command) => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'order:42', tries: 1 });
    const failing = forQueue(command, queue.name)
      .replace('59s', '500ms')
      .replace(/(\.\/)?close-order/, 'false');
    const { stderr } = await sh(inHome(failing), { env });
    expect(stderr.replace(SUMMARY, '')).toMatch(
      /^delayq: \S+ order:42: attempt 1, \S+: dead: failed too often: exit 1\n$/,
    );
  });

  it('has the lines that were run, and that of the first page', () => {
    expect(cronCommands).toHaveLength(5);
    const [, first] = /^ {4}(?:\* ){5} (.*?) +#/m.exec(read('README.md')) ?? [];
    expect(cronCommands[0]).toBe(first);
  });
});

describe.concurrent('the systemd units', () => {
  const execStart = (unit: string) => /^ExecStart=\/usr\/bin\/env (delayq .*)$/m.exec(text(unit))?.[1] as string;

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

  it.each(['order-close.service', 'order-close-watch.service'])('name jobs that die as they say: %s', async (unit) => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'order:42', tries: 1 });
    const [, pattern] = / --grep '(.*)'$/m.exec(text(unit)) ?? [];
    const command = forQueue(execStart(unit), queue.name).replace(/close-order$/, 'false');
    const running = beginSh(`exec ${command}`, { env });
    await until(() => running.stderr.includes(`order:42`));
    running.child.kill('SIGTERM');
    expect((await running.ended).stderr).toMatch(new RegExp(`order:42.*${pattern}`));
  });

  it('or watch', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, in: 300 });
    const running = beginSh(`exec ${forQueue(execStart('order-close-watch.service'), queue.name)}`, { env });
    await until(() => running.stdout === 'closed 1\n');
    // As systemd does with KillMode=mixed. The shell of this test has made way for delayq.
    running.child.kill('SIGTERM');
    expect((await running.ended).code).toBe(0);
    expect(await queue.counts()).toMatchObject({ active: 0, stats: { acked: 1 } });
  });

  it('or serve, and leave more time to stop than the server takes', async () => {
    const unit = text('delayq-serve.service');
    const command = execStart('delayq-serve.service');
    const grace = Number(/--grace (\d+)s/.exec(command)?.[1]);
    expect(Number(/^TimeoutStopSec=(\d+)s$/m.exec(unit)?.[1])).toBeGreaterThan(grace);
    const running = beginSh(`exec ${command} --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0`, { env });
    await until(() => running.stderr.includes('admin on'));
    const [, api] = /API on (\S+)/.exec(running.stderr) ?? [];
    expect((await fetch(`${api}/healthz`)).status).toBe(200);
    running.child.kill('SIGTERM');
    expect((await running.ended).code).toBe(0);
  });

  it('or watch with workers that stay', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, in: 300 });
    const worker = `sh -c 'while read -r line; do echo closed; echo ok >&3; done'`;
    const line = forQueue(execStart('order-close-stay.service'), queue.name).replace(/php \S+$/, worker);
    expect(line).toContain('--stay');
    const running = beginSh(`exec ${line}`, { env });
    await until(() => running.stdout === 'closed\n');
    running.child.kill('SIGTERM');
    expect((await running.ended).code).toBe(0);
    expect(await queue.counts()).toMatchObject({ active: 0, stats: { acked: 1 } });
  });

  it.each(['order-close.service', 'order-close-watch.service', 'order-close-stay.service'])(
    'stop delayq alone, not its handlers: %s',
    (unit) => {
      expect(text(unit)).toMatch(/^KillMode=mixed$/m);
    },
  );

  it.runIf(has('systemd-analyze', '--version'))('are valid', async () => {
    const names = [
      'order-close.service',
      'order-close-watch.service',
      'order-close-stay.service',
      'delayq-serve.service',
    ];
    names.push('order-close.timer');
    const units = names.map(path).join(' ');
    expect(await sh(`systemd-analyze verify ${units}`)).toMatchObject({ stderr: '' });
  });
});

describe.concurrent('the page of what wakes somebody', () => {
  const page = read('docs/guide/alerts.md');
  const cron = [...page.matchAll(/^(?:\*\S* ){5} (delayq drain.*|out=.*)$/gm)].map(([, command]) => command as string);
  const blocks = [...page.matchAll(/^```ini\n([\s\S]*?)```/gm)].map(([, text]) => text as string);

  /** Runs a line of cron with that handler, and programs that print how they were called. */
  const run = (line: string, queue: string, handler: string) => {
    const bin = temporaryDirectory();
    for (const name of ['logger', 'curl'])
      writeFileSync(`${bin}/${name}`, '#!/bin/sh\necho $0 "$@"\n', { mode: 0o755 });
    const command = line.replace('drain -q order-close', `drain -q ${queue}`).replace(/\/usr\/\S+/, handler);
    return sh(command.replace('check ', `check ${queue} `), { env: { PATH: `${bin}:${env.PATH}`, PING_URL: 'PING' } });
  };

  it('has lines for cron that tell of a run in which every handler failed, and of no other', async () => {
    expect(cron).toHaveLength(4);
    const queue = freshQueue();
    for (const line of cron.filter((line) => line.startsWith('delayq drain'))) {
      await queue.enqueue({ payload: 1 });
      const done = await run(line, queue.name, 'true');
      expect(done.stderr).toBe('');
      expect(done.stdout).toMatch(line.includes('curl') ? /curl .* PING\n$/ : /^$/);
      await queue.enqueue({ payload: 1 });
      const failed = await run(line, queue.name, 'false');
      expect(failed, line).toMatchObject({ stderr: expect.stringMatching(/^delayq: 1 failed in/) });
      expect(failed.stdout).toMatch(line.includes('logger') ? /logger -t order-close drain: exit 1\n$/ : /^$/);
    }
    const [check = ''] = cron.filter((line) => line.startsWith('out='));
    expect(await run(check, queue.name, '')).toMatchObject({ stdout: '', stderr: '' });
    await queue.enqueue({ payload: 1, tries: 1 });
    await run(cron[0] as string, queue.name, 'false');
    expect((await run(check, queue.name, '')).stdout).toMatch(/^DELAYQ WARNING/);
  });

  it('has checks for Nagios and systemd that delayq accepts', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, in: '1h' });
    await queue.drain();
    const checks = [...page.matchAll(/[= /](delayq check --max.*|delayq check --failing.*)$/gm)].map(([, line = '']) =>
      line.replace(/ order-close$| \$ARG1\$$|$/, ` ${queue.name}`),
    );
    expect(checks).toHaveLength(3);
    for (const line of checks)
      expect(await sh(line)).toMatchObject({ code: 0, stdout: expect.stringMatching(/^DELAYQ OK.* failing=0%;/) });
  });

  it.runIf(has('systemd-analyze', '--version'))('has units that are valid', async () => {
    const directory = temporaryDirectory();
    const names = ['alert@.service', 'order-close.conf', 'delayq-check.service', 'delayq-check.timer'];
    expect(blocks).toHaveLength(names.length);
    for (const [i, name] of names.entries()) writeFileSync(`${directory}/${name}`, blocks[i] as string);
    const units = names.filter((name) => !name.endsWith('conf')).map((name) => `${directory}/${name}`);
    expect(await sh(`systemd-analyze verify ${units.join(' ')}`)).toMatchObject({ stderr: '' });
  });
});

describe.concurrent('a shell script', () => {
  /** The environment of an example, with a namespace of its own, and what looks into that. */
  const own = () => {
    const prefix = freshName();
    const inspector = new Inspector(connection, { prefix });
    return { prefix, inspector, env: { ...env, DELAYQ_PREFIX: prefix } };
  };

  it('makes one job of an unpaid order, however often it is placed, and none of one that is paid', async () => {
    const { inspector, env } = own();
    const order = (rest: string) => sh(`${path('unpaid-order.sh')} ${rest}`, { env });
    await order('placed 42');
    expect(await order('placed 42 30m')).toMatchObject({ code: 0, stdout: 'order:42\n' });
    const [job] = await inspector.show('order-close', ['order:42']);
    expect(job?.payload?.toString()).toBe('{"orderId":42}');
    expect(((job?.due ?? 0) - (await connection.now())) / 60_000).toBeCloseTo(15, 0);
    expect(await order('paid 42')).toMatchObject({ code: 0, stdout: '', stderr: '' });
    expect(await inspector.show('order-close', ['order:42'])).toEqual([undefined]);
    expect(await order('paid 42')).toMatchObject({ code: 1, stderr: expect.stringContaining('order:42 is not in') });
  });

  it('reminds at a time of day', async () => {
    const { inspector, env } = own();
    const { stdout } = await sh(`${path('remind.sh')} 7 14:00`, { env });
    expect((await inspector.show('remind', [stdout.trim()]))[0]).toMatchObject({ state: 'pending', ttl: 3_600_000 });
  });

  it.runIf(has('curl', '--version'))(
    'posts webhooks, again after 30 s, 1 min, 10 min, then they are dead',
    async () => {
      const { prefix, inspector, env } = own();
      let status = 500;
      const posts: string[] = [];
      const server = createServer(async (request, response) => {
        posts.push(`${request.headers['idempotency-key']} ${await textOf(request)}`);
        response.writeHead(status).end();
      });
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      const url = `http://127.0.0.1:${(server.address() as { port: number }).port}/`;
      const queue = new Queue(connection, 'webhook', { prefix });
      await queue.enqueue([
        { payload: { n: 1 }, id: 'a' },
        { payload: { n: 2 }, id: 'b', in: '1h' },
      ]);
      const running = beginSh(`exec ${path('webhook.sh')}`, { env: { ...env, WEBHOOK_URL: url } });
      const due = `${prefix}:{webhook}:pending`;
      const waits: number[] = [];
      for (const failures of [1, 2, 3]) {
        await until(async () => (await inspector.show('webhook', ['a']))[0]?.failures === failures);
        const [job] = await inspector.show('webhook', ['a']);
        waits.push((job?.due ?? 0) - (job?.failed ?? 0));
        await admin.zadd(due, 1, 'a');
      }
      expect(waits).toEqual([30_000, 60_000, 600_000]);
      await until(async () => (await inspector.show('webhook', ['a']))[0]?.state === 'dead');
      expect((await inspector.show('webhook', ['a']))[0]).toMatchObject({
        reason: 'failed',
        error: 'exit 75: HTTP 500',
      });
      status = 410;
      await admin.zadd(due, 1, 'b');
      await until(async () => (await inspector.show('webhook', ['b']))[0]?.reason === 'refused');
      running.child.kill('SIGTERM');
      expect((await running.ended).code).toBe(0);
      expect(posts).toEqual([...Array(4).fill('a {"n":1}\n'), 'b {"n":2}\n']);
      server.close();
    },
  );

  it('holds what takes longer than its lease', async () => {
    const { prefix, env } = own();
    await new Queue(connection, 'report', { prefix }).enqueue({ payload: 'sales' });
    const { stdout } = await sh(`${path('slow-report.sh')} 1s`, { env: { ...env, SLOW: '0.2' } });
    expect(stdout).toBe('made "sales", attempt 1 of 5\n');
  });

  it.runIf(has('jq', '--version'))('acks what its handler has passed on', async () => {
    const { prefix, env } = own();
    const queue = new Queue(connection, 'mail', { prefix });
    await queue.enqueue([{ payload: { to: 'a' } }, { payload: {} }]);
    expect(await sh(path('send-mails.sh'), { env })).toMatchObject({ code: 0, stderr: '' });
    expect(await queue.counts()).toMatchObject({ active: 1, payload: 1, stats: { acked: 1 } });
  });
});

describe.runIf(has('jq', '--version'))(
  'the jq lines of the guide, the examples and the helps',
  { concurrent: true },
  () => {
    const root = fileURLToPath(new URL('..', import.meta.url));
    const lines = ['docs/guide', 'examples', 'src/cli/commands']
      .flatMap((folder) => readdirSync(`${root}${folder}`, { withFileTypes: true }))
      .filter((entry) => entry.isFile())
      .map(({ parentPath, name }) => `${parentPath}/${name}`)
      .flatMap((file) => [
        ...readFileSync(file, 'utf8').matchAll(/delayq (?:list|show|drain|export) .*?\| (jq [^|]*?('[^']+'|\.\w+))/g),
      ])
      .map(([, line = '']) => line)
      // What corrects payloads knows what they are.
      .filter((line) => !/\.payload\S* \|?= |".payload/.test(line));

    it('are found', () => expect(lines.length).toBeGreaterThan(4));

    it.each(lines)('%s takes any payload', async (line) => {
      const input = ['42', '"text"', 'null', '[1]', '{}', '{"sum":200,"ok":true,"to":"a"}']
        .map((payload) => `{"id":"a","attempts":9,"payload":${payload}}\n`)
        .join('');
      const { code, stdout, stderr } = await sh(line, { input });
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      expect(stdout).not.toBe('');
    });
  },
);

describe.concurrent('monitoring', () => {
  it('writes the file for the textfile collector', async () => {
    const directory = temporaryDirectory();
    const prefix = freshName();
    await new Queue(connection, 'order-close', { prefix }).enqueue({ payload: 1 });
    const own = { ...env, DELAYQ_PREFIX: prefix };
    expect(await sh(`${path('metrics.sh')} ${directory}`, { env: own })).toMatchObject({
      code: 0,
      stdout: '',
      stderr: '',
    });
    expect(readFileSync(`${directory}/delayq.prom`, 'utf8')).toMatch(/^delayq_jobs_due\{queue="/m);
  });

  it('alerts by metrics that delayq prints', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    await queue.drain();
    const { stdout } = await sh(`delayq metrics ${queue.name}`);
    const printed = new Set([...stdout.matchAll(/^([a-z_]+)\{/gm)].map(([, name]) => name));
    for (const file of ['alerts.yml', 'alerts_test.yml', 'grafana.json']) {
      const names = new Set(text(file).match(/\bdelayq_[a-z_]+/g));
      expect(names.size).toBeGreaterThan(5);
      for (const name of names) expect([...printed], `${name} in ${file}`).toContain(name);
    }
  });

  const { panels, templating } = JSON.parse(text('grafana.json'));

  it('has a Grafana board whose panels do not overlap, each with a query for the chosen queues', () => {
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }: { gridPos: Record<'x' | 'y' | 'w' | 'h', number> }) => {
      expect(x + w).toBeLessThanOrEqual(24);
      return Array.from({ length: w * h }, (_, i) => `${x + (i % w)},${y + Math.floor(i / w)}`);
    });
    expect(new Set(cells).size).toBe(cells.length);
    expect(new Set(panels.map(({ id }: { id: number }) => id)).size).toBe(panels.length);
    expect(templating.list.map(({ name }: { name: string }) => name)).toEqual(['datasource', 'queue']);
    for (const { title, description, targets } of panels) {
      expect(description, title).toMatch(/\w/);
      expect(targets.length, title).toBeGreaterThan(0);
      for (const { expr } of targets) expect(expr, title).toContain('queue=~"$queue"');
    }
  });

  it.runIf(has('promtool', '--version'))('has a Grafana board whose queries Prometheus understands', async () => {
    const queries: string[] = panels.flatMap(({ targets }: { targets: { expr: string }[] }) =>
      targets.map(({ expr }) => expr.replaceAll('$__rate_interval', '5m').replaceAll('$queue', '.*')),
    );
    const file = `${temporaryDirectory()}/rules.yml`;
    const rules = queries.map((expr, i) => ({ record: `query:${i}`, expr }));
    writeFileSync(file, JSON.stringify({ groups: [{ name: 'board', rules }] }));
    const { code, stdout } = await sh(`promtool check rules ${file}`);
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining(`${queries.length} rules found`) });
  });

  it.runIf(has('promtool', '--version'))('has rules that fire when they should, and only then', async () => {
    const { code, stdout } = await sh(
      `promtool check rules ${path('alerts.yml')} && promtool test rules ${path('alerts_test.yml')}`,
    );
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining('11 rules found') });
  });
});
