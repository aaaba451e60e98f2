import { readFileSync, rmSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { Context } from '../../../src/cli/host/context.js';
import { watch } from '../../../src/cli/terminal/watch.js';
import { during } from '../../support/afterwards.js';
import { begin, delayq, linesOf } from '../../support/cli.js';
import { admin, freshName, freshQueue, key } from '../../support/redis.js';
import { Server } from '../../support/server.js';
import { Terminal, tmux } from '../../support/terminal.js';
import { until } from '../../support/until.js';

const ownServer = () => during(Server.start());

/** A namespace of its own with queues that have a job each. */
async function queues(names: string[]): Promise<string> {
  const prefix = freshName();
  await admin.sadd(`${prefix}:queues`, ...names);
  for (const name of names) {
    await admin.hset(`${prefix}:{${name}}:payload`, 'a', '1');
    await admin.zadd(`${prefix}:{${name}}:pending`, Date.now() + 3_600_000, 'a');
  }
  return prefix;
}

const asBefore = { other: false, cursor: true, wraps: true };

describe.runIf(tmux)('delayq inspect --watch on a terminal', { concurrent: true }, () => {
  it.each([
    ['q', 0, (terminal: Terminal) => terminal.press('q')],
    ['Ctrl-C', 0, (terminal: Terminal) => terminal.press('C-c')],
    ['SIGTERM', 0, async (_: Terminal, pid: () => Promise<number>) => process.kill(await pid(), 'SIGTERM')],
  ])('uses the whole terminal, and restores it at %s', async (_, code, end) => {
    const prefix = await queues(['one']);
    const file = `/tmp/${prefix}.pid`;
    const terminal = new Terminal(`sh -c 'echo $$ > ${file}; exec delayq inspect --watch --prefix ${prefix}'`);
    await until(() => /^one /m.test(terminal.text));
    expect(terminal.state).toEqual({ other: true, cursor: false, wraps: false });
    expect(terminal.text).not.toContain('before');
    expect(terminal.lines).toHaveLength(24);
    expect(terminal.lines[23]).toContain('q: quit');
    await end(terminal, async () => Number(readFileSync(file, 'utf8')));
    await until(() => terminal.text.includes('ended'));
    rmSync(file);
    expect(linesOf(terminal.text).slice(0, 2)).toEqual(['before', `ended ${code}`]);
    expect(terminal.state).toEqual(asBefore);
    // Typed keys are echoed again.
    await until(() => /^\$/m.test(terminal.text));
    terminal.press('e', 'c', 'h', 'o', 'e', 'd');
    await until(() => terminal.text.includes('$ echoed'));
  });

  it('restores the terminal when it fails, and then says why', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const terminal = new Terminal(`delayq inspect --watch ${queue.name}`);
    await until(() => terminal.text.includes(queue.name));
    await admin.del(key(queue.name, 'stats'));
    await admin.set(key(queue.name, 'stats'), 'x');
    await until(() => terminal.text.includes('ended 78'));
    expect(terminal.text).toMatch(/^before\ndelayq: .*\n {2}why: .*WRONGTYPE/);
    expect(terminal.state).toEqual(asBefore);
  });

  it('restores the terminal while it is suspended by Ctrl-Z, and then goes on', async () => {
    const prefix = await queues(['one']);
    const terminal = new Terminal('true');
    await until(() => /^\$$/m.test(terminal.text));
    terminal.press(`delayq inspect -w --prefix ${prefix}`, 'Enter');
    await until(() => terminal.state.other && /^one /m.test(terminal.text));
    terminal.press('C-z');
    await until(() => !terminal.state.other);
    expect(terminal.state).toEqual(asBefore);
    await until(() => /[Ss]topped/.test(terminal.text));
    terminal.press('fg', 'Enter');
    await until(() => terminal.state.other && /^one /m.test(terminal.text));
    expect(terminal.state.cursor).toBe(false);
    terminal.press('q');
    await until(() => !terminal.state.other);
  });

  it('redraws at once when the size changes, and says how many queues do not fit', async () => {
    const prefix = await queues(Array.from({ length: 40 }, (_, i) => `queue-${String(i).padStart(2, '0')}`));
    const terminal = new Terminal(`delayq inspect --watch --prefix ${prefix}`);
    await until(() => terminal.text.includes('… and 19 more queues'));
    expect(terminal.lines).toHaveLength(24);
    expect(terminal.lines[0]).toMatch(/^queue +pending/);
    terminal.resize(60, 10);
    await until(() => terminal.text.includes('… and 33 more queues'));
    expect(terminal.lines[0]).toMatch(/^queue +pending/);
    terminal.resize(200, 50);
    await until(() => terminal.text.includes('queue-39'));
    expect(terminal.text).not.toContain('more queues');
  });

  it('shows queues with problems before others, and those with most due jobs first', async () => {
    const prefix = await queues(Array.from({ length: 40 }, (_, i) => `queue-${String(i).padStart(2, '0')}`));
    const late = Date.now() - 600_000;
    await admin.sadd(`${prefix}:queues`, 'zebra');
    for (let i = 20; i < 40; i++) await admin.zadd(`${prefix}:{queue-${i}}:pending`, late, 'a');
    for (const id of ['a', 'b']) {
      await admin.hset(`${prefix}:{zebra}:payload`, id, '1');
      await admin.zadd(`${prefix}:{zebra}:pending`, late, id);
    }
    const terminal = new Terminal(`delayq inspect --watch --prefix ${prefix}`);
    await until(() => terminal.text.includes('more queues'));
    expect(terminal.lines[0]).toMatch(/^! zebra: never drained: 2 jobs are due/);
    expect(terminal.text).toMatch(/^zebra +2 +2 /m);
    expect(terminal.text).not.toMatch(/^queue-0/m);
  });

  it('keeps to its columns, whatever characters names, ids and consumers have (failures 30)', async () => {
    const prefix = await queues(['a', 'x'.repeat(128)]);
    const long = new Terminal(`delayq inspect --watch --prefix ${prefix}`, { width: 60 });
    await until(() => long.text.includes('x…'));
    expect(long.lines[2]).toMatch(/^x+…x+ +1 +0 +–.* 0$/);
    const queue = freshQueue();
    const soon = Date.now() + 600_000;
    await admin.zadd(key(queue.name, 'pending'), soon, `${'注文'.repeat(40)}`, soon + 1, `\x1b[2J\x07🫠\u202e`);
    await admin.zadd(key(queue.name, 'active'), soon, 'held');
    await admin.hset(key(queue.name, 'lease'), 'held', `r 1 ${Date.now()} ${'コンシューマ'.repeat(20)}\x1b[31m\n`);
    const terminal = new Terminal(`delayq inspect --watch ${queue.name}`, { width: 80, height: 50 });
    await until(() => terminal.text.includes('注文'));
    expect(terminal.lines).toHaveLength(50);
    const line = terminal.lines.find((text) => text.includes('注文')) ?? '';
    expect(line).toMatch(/注…$/);
    // Each of them is two columns wide.
    expect(line.length + (line.match(/[注文]/g) ?? []).length).toBeLessThanOrEqual(80);
    expect(terminal.text).toContain('\\x1b[2J\\x07🫠\\u{202e}');
    expect(terminal.text).toMatch(/^ +コンシューマ.*…: 1 job since /m);
    expect(terminal.lines[49]).toContain('q: quit');
  });

  it('shows the last state while Redis is away, and goes on when it is back', async () => {
    const server = await ownServer();
    await delayq(['--redis', server.url, 'enqueue', 'kept', '1']);
    const terminal = new Terminal(`delayq --redis ${server.url} inspect --watch`);
    await until(() => /^kept +1/m.test(terminal.text));
    await server.end('SIGKILL');
    await until(() => /^! cannot reach Redis since \d\d:\d\d:\d\d \(.*\): /.test(terminal.text));
    expect(terminal.text).toMatch(/^kept +1/m);
    await server.run();
    await until(() => !terminal.text.includes('cannot reach') && terminal.text.includes('No queues'));
    terminal.press('q');
    await until(() => terminal.text.includes('ended 0'));
  });

  it('says since when Redis has not answered, not when that was noticed', async () => {
    const server = await ownServer();
    await delayq(['--redis', server.url, 'enqueue', 'kept', '1']);
    const terminal = new Terminal(`delayq --redis ${server.url} inspect --watch`);
    await until(() => /^kept +1/m.test(terminal.text));
    server.signal('SIGSTOP');
    // It is noticed when there is no answer for 5 s.
    await until(() => terminal.text.includes('cannot reach Redis since'));
    const [, since, long] = /since (\S+) \((\d+)(?:\.\d+)?s\)/.exec(terminal.text) ?? [];
    expect(Number(long)).toBeGreaterThanOrEqual(5);
    expect(terminal.lines[23]).toContain(`seen ${since} `);
    server.signal('SIGCONT');
    terminal.press('q');
  });

  it('ends at q while Redis does not answer', async () => {
    const server = await ownServer();
    await delayq(['--redis', server.url, 'enqueue', 'kept', '1']);
    const terminal = new Terminal(`delayq --redis ${server.url} inspect --watch`);
    await until(() => /^kept +1/m.test(terminal.text));
    server.signal('SIGSTOP');
    terminal.press('q');
    await until(() => terminal.text.includes('ended 0'));
    server.signal('SIGCONT');
  });
});

describe.concurrent('delayq inspect --watch into a pipe', () => {
  it('reports once that Redis is away, and goes on when it is back', async () => {
    const server = await ownServer();
    await delayq(['--redis', server.url, 'enqueue', 'kept', '1']);
    const running = begin(['--redis', server.url, 'inspect', '--json', '--watch']);
    await until(() => linesOf(running.stdout).length >= 1);
    await server.end('SIGKILL');
    await until(() => running.stderr.includes('why:'));
    const before = linesOf(running.stdout).length;
    await server.run();
    await until(() => linesOf(running.stdout).length > before);
    running.child.kill('SIGINT');
    const { code, stderr, stdout } = await running.ended;
    expect(code).toBe(0);
    expect(stderr.match(/why:/g)).toHaveLength(1);
    expect(stderr).toMatch(/Redis is back\n$/);
    for (const line of linesOf(stdout)) expect(JSON.parse(line)).toMatchObject({ schema: 1 });
  });

  it('makes one call for each queue and one for their names each second', async () => {
    const server = await ownServer();
    for (const name of ['a', 'b', 'c']) await delayq(['--redis', server.url, 'enqueue', name, '1']);
    await server.admin.config('RESETSTAT');
    const running = begin(['--redis', server.url, 'inspect', '--json', '--watch']);
    await until(() => linesOf(running.stdout).length >= 3);
    running.child.kill('SIGTERM');
    // It may have begun a look that it did not print.
    const looks = linesOf((await running.ended).stdout).length + 1;
    const stats = await server.admin.info('commandstats');
    const calls = (name: string) => Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1]);
    expect(calls('evalsha')).toBeLessThanOrEqual(3 * looks);
    expect(calls('smembers')).toBeLessThanOrEqual(looks);
  });
});

it('a watch that is stopped does not wait for a look without an answer', async () => {
  const stop = new AbortController();
  const context = { stopSignal: () => stop.signal, outputClosed: false } as unknown as Context;
  let looks = 0;
  const look = () => {
    looks++;
    return new Promise<number>(() => {});
  };
  const watching = watch(context, { first: 0, look, lines: undefined, print: async () => {} });
  await until(() => looks === 1);
  stop.abort();
  await watching;
});
