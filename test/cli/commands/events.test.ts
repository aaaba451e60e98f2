import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Operator, type Queue } from '../../../src/index.js';
import { during } from '../../support/afterwards.js';
import { begin, beginSh, delayq, linesOf, sh } from '../../support/cli.js';
import { admin, connection, freshName, freshQueue, key } from '../../support/redis.js';
import { Server } from '../../support/server.js';
import { temporaryDirectory } from '../../support/temporary.js';
import { until } from '../../support/until.js';

const operator = new Operator(connection);

async function observed(events = 1_000): Promise<Queue> {
  const queue = freshQueue();
  await operator.configure(queue.name, { events });
  return queue;
}

const parsed = (text: string) => linesOf(text).map((line) => JSON.parse(line) as Record<string, unknown>);
const idsIn = (text: string) => parsed(text).map(({ id }) => id);

/** A position is there: the reader waits. */
const isReading = async (queue: Queue) =>
  ((await admin.xinfo('GROUPS', key(queue.name, 'events')).catch(() => [])) as unknown[]).length > 0;

describe('delayq events', () => {
  it('prints what happened, one event a line, and only what is asked for', async () => {
    const queue = await observed();
    await queue.enqueue([
      { id: 'a', payload: 1 },
      { id: 'b', payload: 2 },
    ]);
    await delayq(['drain', queue.name, '--dead-on', '1', '--', 'sh', '-c', 'test $DELAYQ_ID = a']);
    const { code, stdout, stderr } = await delayq(['events', queue.name]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const by = expect.stringMatching(/^\S+:\d+$/);
    expect(parsed(stdout)).toEqual(
      expect.arrayContaining([
        { queue: queue.name, type: 'enqueued', id: 'a', at: expect.any(Number), due: expect.any(Number) },
        { queue: queue.name, type: 'acked', id: 'a', at: expect.any(Number), by, attempt: 1 },
        {
          ...{ queue: queue.name, type: 'dead', id: 'b', at: expect.any(Number), by, attempt: 1 },
          ...{ reason: 'refused', error: 'exit 1' },
        },
      ]),
    );
    expect(idsIn((await delayq(['events', queue.name, '--type', 'dead,acked'])).stdout)).toEqual(['a', 'b']);
    expect(parsed((await delayq(['events', queue.name, '--id', 'b'])).stdout)).toHaveLength(3);
    expect(idsIn((await delayq(['events', queue.name, '--since', '1h', '--type', 'dead'])).stdout)).toEqual(['b']);
    expect((await delayq(['events', queue.name, '--since', '2099-01-01 0:00'])).stdout).toBe('');
  });

  it('is refused where no events are kept, with what to do', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    for (const args of [[], ['--follow'], ['--follow', '--from-group', 'g']]) {
      const { code, stdout, stderr } = await delayq(['events', queue.name, ...args]);
      expect({ code, stdout }).toEqual({ code: 3, stdout: '' });
      expect(stderr).toContain(`next: delayq config ${queue.name} events=10000`);
    }
    expect(await delayq(['events', freshName()])).toMatchObject({ code: 3, stderr: /there is no queue/ });
    const wrong = await delayq(['events', queue.name, '--type', 'died']);
    expect(wrong).toMatchObject({ code: 64, stderr: expect.stringContaining('the types are enqueued, ') });
  });

  it('follows, and ends with 0 when it is stopped', async () => {
    const queue = await observed();
    const running = begin(['events', queue.name, '--follow', '--type', 'enqueued'], { input: '' });
    await queue.enqueue({ id: 'a', payload: 1 });
    await until(() => running.stdout !== '');
    await queue.enqueue({ id: 'b', payload: 1 });
    await until(() => linesOf(running.stdout).length === 2);
    running.child.kill('SIGTERM');
    const { code, stdout, stderr } = await running.ended;
    expect({ code, ids: idsIn(stdout), stderr }).toEqual({ code: 0, ids: ['a', 'b'], stderr: '' });
  });

  it('with a name goes on where it was killed, and no event is missing', async () => {
    const queue = await observed();
    const seen: unknown[] = [];
    let n = 0;
    for (let run = 0; run < 4; run++) {
      const running = begin(['events', queue.name, '--follow', '--from-group', 'pager'], { input: '' });
      await until(() => isReading(queue));
      await queue.enqueue(Array.from({ length: 30 }, () => ({ id: `j${n++}`, payload: 1 })));
      await until(() => running.stdout !== '');
      running.child.kill('SIGKILL');
      seen.push(...idsIn((await running.ended).stdout.replace(/[^\n]*$/, '')));
      await queue.enqueue({ id: `j${n++}`, payload: 1 });
    }
    seen.push(...idsIn((await delayq(['events', queue.name, '--from-group', 'pager'])).stdout));
    expect([...new Set(seen)].sort()).toEqual(Array.from({ length: n }, (_, i) => `j${i}`).sort());
    expect((await delayq(['events', queue.name, '--from-group', 'pager'])).stdout).toBe('');
  });

  it('does not move its position past what the reader of the pipe has not read, and ends when that ends', async () => {
    const queue = await observed();
    expect(await delayq(['events', queue.name, '--from-group', 'g'])).toMatchObject({ code: 0, stdout: '' });
    await queue.enqueue(['a', 'b', 'c'].map((id) => ({ id, payload: 1 })));
    const follow = `delayq events ${queue.name} --from-group g --follow`;
    // It reads one of three lines, byte by byte, and dies.
    const { code, stdout } = await sh(`${follow} | (read -r line; echo "$line"; sleep 0.5)`);
    expect({ code, ids: idsIn(stdout) }).toEqual({ code: 0, ids: ['a'] });
    const again = beginSh(`${follow} | cat`, { detached: true });
    await until(() => linesOf(again.stdout).length === 3);
    const left = async () => (await delayq(['events', queue.name, '--from-group', 'g'])).stdout;
    await until(async () => (await left()) === '');
    process.kill(-(again.child.pid as number), 'SIGTERM');
    expect(idsIn((await again.ended).stdout)).toEqual(['a', 'b', 'c']);
  });

  it('ends soon when the reader of the pipe has ended, though nothing happens', async () => {
    const queue = await observed();
    const { code, stderr } = await sh(`delayq events ${queue.name} --follow | sleep 1`);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  });

  it('runs a command for each event until it succeeds, and moves its position then', async () => {
    const queue = await observed();
    const dir = temporaryDirectory();
    await delayq(['events', queue.name, '--from-group', 'g']);
    await queue.enqueue(['a', 'b'].map((id) => ({ id, payload: 1 })));
    const script = `cat >> ${dir}/seen; echo "$DELAYQ_QUEUE $DELAYQ_ID $DELAYQ_TYPE"
      [ "$DELAYQ_ID" != b ] || [ -e ${dir}/mended ]`;
    const args = ['events', queue.name, '--follow', '--from-group', 'g', '--', 'sh', '-c', script];
    const running = begin(args, { input: '' });
    await until(() => running.stderr.includes('again in'));
    running.child.kill('SIGTERM');
    const { code, stdout, stderr } = await running.ended;
    expect({ code, lines: linesOf(stdout).slice(0, 2) }).toEqual({
      code: 0,
      lines: [`${queue.name} a enqueued`, `${queue.name} b enqueued`],
    });
    expect(stderr).toMatch(new RegExp(`^delayq: ${queue.name} b enqueued: the command failed, again in 1s: exit 1\n`));
    writeFileSync(join(dir, 'mended'), '');
    const next = await delayq(args.filter((arg) => arg !== '--follow'));
    expect(next).toMatchObject({ code: 0, stdout: `${queue.name} b enqueued\n`, stderr: '' });
    expect(idsIn(readFileSync(join(dir, 'seen'), 'utf8')).filter((id) => id === 'a')).toHaveLength(1);
    expect((await delayq(['events', queue.name, '--from-group', 'g'])).stdout).toBe('');
    expect(await delayq(['events', queue.name, '--', 'no-such-command'])).toMatchObject({ code: 78 });
  });

  it('says how many events it has missed, exit 1', async () => {
    const queue = await observed(100);
    await delayq(['events', queue.name, '--from-group', 'g']);
    await queue.enqueue(Array.from({ length: 1_000 }, (_, i) => ({ payload: i })));
    const left = await admin.xlen(key(queue.name, 'events'));
    const { code, stdout, stderr } = await delayq(['events', queue.name, '--from-group', 'g']);
    expect({ code, lines: linesOf(stdout).length }).toEqual({ code: 1, lines: left });
    expect(stderr).toBe(
      `delayq: ${queue.name}: ${1_000 - left} events of all types were removed before they were read; to keep more, raise events\n`,
    );
  });

  it('follows on after Redis was away, and a stop meanwhile is no failure', async () => {
    const server = await during(Server.start({ args: ['--appendonly', 'yes', '--appendfsync', 'always'] }));
    const env = { DELAYQ_REDIS_URL: server.url };
    expect(await delayq(['config', '--create', 'q', 'events=100'], { env })).toMatchObject({ code: 0 });
    const running = begin(['events', 'q', '--follow'], { input: '', env });
    await delayq(['enqueue', 'q', '1', '--id', 'a'], { env });
    await until(() => idsIn(running.stdout).length === 1);
    await server.end('SIGKILL');
    await server.run();
    await delayq(['enqueue', 'q', '1', '--id', 'b'], { env });
    await until(() => idsIn(running.stdout).length === 2);
    expect(idsIn(running.stdout)).toEqual(['a', 'b']);
    await server.end('SIGKILL');
    await until(() => running.stderr.includes('cannot reach Redis'));
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
  });
});
