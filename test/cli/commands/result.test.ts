import { EventEmitter } from 'node:events';
import { describe, expect, it } from 'vitest';
import { Operator, type Queue } from '../../../src/index.js';
import { begin, delayq, linesOf, onTerminal, sh } from '../../support/cli.js';
import { connection, freshName, freshQueue } from '../../support/redis.js';
import { until } from '../../support/until.js';

const operator = new Operator(connection);

async function keeping(...jobs: { id: string; payload?: unknown }[]): Promise<Queue> {
  const queue = freshQueue();
  await operator.configure(queue.name, { keepDone: 60_000, tries: 1 });
  await queue.enqueue(jobs.map((job) => ({ payload: 1, ...job })));
  return queue;
}

/** Has a handler, a line of sh, do what is due. */
const work = (queue: Queue, script: string, ...options: string[]) =>
  delayq(['drain', '-q', ...options, queue.name, '--', 'sh', '-c', script]);

describe('delayq result', () => {
  it.each([
    ['the last line of stdout', 'echo first; echo "last one"', 'last one\n'],
    ['the last that is not empty', 'echo said; echo; echo "  "', 'said\n'],
    ['a line without an end', 'echo first; printf last', 'last\n'],
    ['JSON as it is', `echo '{"url":"https://…"}'`, '{"url":"https://…"}\n'],
    ['nothing', 'echo "not this" >&2', ''],
    ['the last line of much', 'seq 1 200000 | tr "\\n" " " >&2; seq 1 300000', '300000\n'],
    ['the beginning of a long line', 'head -c 100000 /dev/zero | tr "\\0" x', `${'x'.repeat(4096)}\n`],
    ['a last line after 8 MiB', 'head -c 8000000 /dev/zero | tr "\\0" x; echo; echo end', 'end\n'],
    ['bytes that are no text, as far as they are', "printf 'a\\377b\\n'", 'a\ufffdb\n'],
  ])('prints what a handler said: %s', async (_, script, stdout) => {
    const queue = await keeping({ id: 'a' });
    await work(queue, script);
    expect(await delayq(['result', queue.name, 'a'])).toMatchObject({ code: 0, stdout, stderr: '' });
  });

  it('has that of each of several that run at once', async () => {
    const ids = Array.from({ length: 20 }, (_, i) => `j${i}`);
    const queue = await keeping(...ids.map((id) => ({ id })));
    await work(queue, 'echo "$DELAYQ_ID out"; echo "$DELAYQ_ID is done"', '-P', '8');
    for (const id of ids) expect((await delayq(['result', queue.name, id])).stdout).toBe(`${id} is done\n`);
  });

  it('has what a handler that stays says after the ticket', async () => {
    const queue = await keeping({ id: 'a' }, { id: 'b' });
    const script = `while read -r line; do
      ticket=$(printf %s "$line" | sed 's/.*"ticket":"\\([^"]*\\)".*/\\1/'); id=$(printf %s "$line" | sed 's/.*"id":"\\([^"]*\\)".*/\\1/')
      echo "not this"; echo "ok $ticket result of $id" >&3
    done`;
    await work(queue, script, '--stay');
    for (const id of ['a', 'b']) expect((await delayq(['result', queue.name, id])).stdout).toBe(`result of ${id}\n`);
  });

  it('is the value of a variable in a shell, also if the job is not done yet', async () => {
    const queue = await keeping();
    const drain = begin(['drain', '--watch', '-q', queue.name, '--', 'sh', '-c', 'echo "made $(cat)"'], { input: '' });
    const { code, stdout } = await sh(
      `id=$(delayq enqueue --in 300ms ${queue.name} 42) && out=$(delayq result ${queue.name} "$id" --timeout 30s) && echo "got <$out>"`,
    );
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'got <made 42>\n' });
    drain.child.kill('SIGTERM');
    await drain.ended;
  });

  it('of a job that died is why, exit 1', async () => {
    const queue = await keeping({ id: 'a' });
    await work(queue, 'echo "no such order" >&2; echo out; exit 3');
    const { code, stdout, stderr } = await delayq(['result', queue.name, 'a']);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toBe(
      `delayq: job a of ${queue.name} is dead: failed too often\n  why:  exit 3: no such order\n  next: delayq show ${queue.name} a\n`,
    );
  });

  it('of a job that is not done says so, exit 75, at once or when the time is over', async () => {
    const queue = await keeping({ id: 'a' });
    const once = await delayq(['result', queue.name, 'a']);
    expect(once).toMatchObject({ code: 75, stdout: '', stderr: expect.stringContaining('is pending, not done') });
    const late = await delayq(['result', queue.name, 'a', '--timeout', '50ms']);
    expect(late).toMatchObject({ code: 75, stdout: '', stderr: `delayq: job a of ${queue.name} is still pending\n` });
  });

  it('is interrupted by Ctrl-C, exit 130', async () => {
    const queue = await keeping({ id: 'a' });
    const signals = new EventEmitter();
    const ended = delayq(['result', queue.name, 'a', '--timeout', '1h'], { signals });
    await until(() => signals.listenerCount('SIGINT') > 0);
    signals.emit('SIGINT', 'SIGINT');
    expect(await ended).toMatchObject({ code: 130, stdout: '' });
  });

  it('that does not exist, exit 3: no job, no queue, or one that keeps nothing', async () => {
    const queue = await keeping({ id: 'a' });
    const none = await delayq(['result', queue.name, 'b', '--timeout', '1h']);
    expect(none).toMatchObject({ code: 3, stdout: '', stderr: expect.stringContaining('there is no job b of') });
    expect(await delayq(['result', freshName(), 'a'])).toMatchObject({ code: 3, stdout: '' });
    await operator.configure(queue.name, { keepDone: null });
    const off = await delayq(['result', queue.name, 'a']);
    expect(off).toMatchObject({ code: 3, stdout: '' });
    expect(off.stderr).toContain(`next: delayq config ${queue.name} keep-done=24h`);
    expect(await delayq(['list', '--done', queue.name])).toMatchObject({ code: 3, stderr: off.stderr });
  });
});

it('a result cannot control the terminal', async () => {
  const queue = await keeping({ id: 'a' });
  await work(queue, "printf 'a\\033[31mred\\n'");
  expect(await onTerminal(`delayq result ${queue.name} a`)).toBe('a\\x1b[31mred\n');
  expect((await delayq(['result', queue.name, 'a'])).stdout).toBe('a\x1b[31mred\n');
});

describe('jobs that are done', () => {
  it('are listed, with what came out, cut unless all is asked for', async () => {
    const queue = await keeping({ id: 'a' }, { id: 'b' });
    await work(queue, 'seq -s " " 1 100');
    const { stdout } = await delayq(['list', '--done', '--full', queue.name]);
    expect(stdout).toMatch(/^id +done +attempts +took +by +result\na +\S+ ago +1 +\S+ +\S+:\d+ +1 2 3 .* 100\nb /);
    const shown = linesOf(await onTerminal(`delayq list --done ${queue.name}`, { columns: 80, rows: 24 }));
    for (const line of shown) expect(line.length).toBeLessThanOrEqual(80);
    expect(shown[1]).toMatch(/1 2 3.*…$/);
    expect((await delayq(['list', '--done', '--ids', queue.name])).stdout).toBe('a\nb\n');
    expect(linesOf((await delayq(['list', '--done', '--json', '-n', '1', queue.name])).stdout)).toHaveLength(1);
    expect((await delayq(['list', '--done', '--to', '-1h', queue.name])).stderr).toBe(
      `delayq: ${queue.name} has no such jobs\n`,
    );
    expect(await delayq(['list', '--done', '--dead', queue.name])).toMatchObject({ code: 64 });
  });

  it('are shown, with their story where events are kept', async () => {
    const queue = await keeping();
    await operator.configure(queue.name, { events: 100 });
    await queue.enqueue({ id: 'a', payload: 1 });
    await work(queue, 'echo said');
    const { code, stdout } = await delayq(['show', queue.name, 'a']);
    expect(code).toBe(0);
    expect(stdout).toMatch(new RegExp(`^${queue.name} a  done\n +done +\\S+ \\S+ .* ago\n`));
    expect(stdout).toMatch(
      / events +\S+ +enqueued: due now\n +\S+ +delivered: attempt 1, by \S+, \d+ms late\n +\S+ +acked/,
    );
    expect(stdout).toMatch(/ {2}result {6}said\n$/);
    await operator.configure(queue.name, { keepDone: null });
    const gone = await delayq(['show', queue.name, 'a']);
    expect(gone).toMatchObject({ code: 3, stdout: expect.stringMatching(/acked: attempt 1/) });
  });
});
