import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { Writable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { OnDead } from '../../../src/cli/drain/on-dead.js';
import type { Context } from '../../../src/cli/host/context.js';
import { type Job, RawPayload } from '../../../src/index.js';
import { begin, delayq, linesOf } from '../../support/cli.js';
import { alive, path, read, script, shell, upTo } from '../../support/handlers.js';
import { freshQueue, timePasses } from '../../support/redis.js';
import { until } from '../../support/until.js';

/** A command that notes what it gets: a line for each job, with its payload at the end. */
function notes() {
  const log = path();
  const line = '$DELAYQ_QUEUE $DELAYQ_ID $DELAYQ_REASON $DELAYQ_ATTEMPT $DELAYQ_ERROR|$DELAYQ_ATTR_TENANT|';
  return { command: `echo "${line}$(cat)" >> ${log}`, lines: () => linesOf(read(log)).sort() };
}

describe.concurrent('--on-dead', () => {
  it('runs once for each job that dies, with all about it, and not for a retry or a job that is done', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { id: 'dies', payload: { a: 1 }, tries: 1, attributes: { tenant: 'x' } },
      ...['retried', 'refused', 'done'].map((id) => ({ id, payload: id })),
    ]);
    const { command, lines } = notes();
    const handler = shell('case $DELAYQ_ID in done) ;; refused) exit 65;; *) echo broken >&2; exit 3;; esac');
    for (let i = 0; i < 2; i++) {
      await delayq(['drain', '--on-dead', command, queue.name, ...handler]);
      await timePasses(queue.name, 3_600_000);
    }
    expect(lines()).toEqual([
      `${queue.name} dies failed 1 exit 3: broken|x|{"a":1}`,
      `${queue.name} refused refused 1 exit 65||"refused"`,
    ]);
  });

  it('gets payloads byte for byte, also an empty one', async () => {
    const queue = freshQueue();
    const bytes = Buffer.from([0, 255, 10, 13, 128, 0]);
    await queue.enqueue([
      { id: 'bytes', payload: new RawPayload(bytes), tries: 1 },
      { id: 'empty', payload: new RawPayload(Buffer.alloc(0)), tries: 1 },
    ]);
    const copy = path();
    await delayq(['drain', '-q', '--on-dead', `cat > ${copy}.$DELAYQ_ID`, queue.name, '--', 'false']);
    expect(readFileSync(`${copy}.bytes`)).toEqual(bytes);
    expect(readFileSync(`${copy}.empty`)).toEqual(Buffer.alloc(0));
  });

  const stay = 'while read -r line; do echo dead never >&3; done';
  it.each<[string, string[], string]>([
    ['processes that stay', ['--stay', ...shell(stay)], 'refused 1 never||1'],
    ['a command for each batch', ['--pipe', 'exit 4'], 'failed 1 exit 4||1'],
    ['several handlers at once', ['-P', '3', ...shell('exit 4')], 'failed 1 exit 4||1'],
  ])('works with %s', async (_, form, expected) => {
    const queue = freshQueue();
    await queue.enqueue({ id: 'a', payload: 1, tries: 1 });
    const { command, lines } = notes();
    const { code } = await delayq(['drain', '-q', '--on-dead', command, queue.name, ...form]);
    expect({ code, lines: lines() }).toEqual({ code: 1, lines: [`${queue.name} a ${expected}`] });
  });

  it.each<[string, string[]]>([
    ['a handler', ['--', 'true']],
    ['stdout', []],
    ['stdout with leases', ['--lease', '1m']],
    ['stdout at most once', ['--at-most-once']],
    ['a stream', ['--to-stream']],
  ])('runs for a job that was lost too often, found by a drain to %s', async (_, form) => {
    const queue = freshQueue();
    await queue.enqueue([{ id: 'a', payload: { a: 1 }, maxLost: 1, attributes: { tenant: 'x' } }]);
    await queue.drain();
    await timePasses(queue.name, 60_001);
    const { command, lines } = notes();
    const { stdout } = await delayq(['drain', '-q', '--on-dead', command, queue.name, ...form]);
    expect({ stdout, lines: lines() }).toEqual({ stdout: '', lines: [`${queue.name} a lost 1 |x|{"a":1}`] });
  });

  it.each<[string, string[]]>([
    ['stdout', []],
    ['stdout at most once', ['--at-most-once']],
  ])('runs for a job that cannot be a line of %s', async (_, form) => {
    const queue = freshQueue();
    await queue.enqueue({ id: 'a', payload: new RawPayload(Buffer.from('b\nc')) });
    const { command, lines } = notes();
    await delayq(['drain', '-q', '--on-dead', command, queue.name, ...form]);
    expect(lines()).toEqual([
      'c',
      expect.stringMatching(new RegExp(`^${queue.name} a refused 1 not a line: .*\\|\\|b$`)),
    ]);
  });

  it('has no login in its environment, no variable of another job, and no NUL or more than 2,000 characters of an error', async () => {
    const queue = freshQueue();
    await queue.enqueue({ id: 'a', payload: 1, tries: 1 });
    const log = path();
    const env = {
      ...{ REDIS_URL: 'redis://:secret@example.com', REDISCLI_AUTH: 'secret', DELAYQ_ATTR_OF: 'another' },
      ...{ DELAYQ_REASON: 'lost', DELAYQ_TRIES: '9' },
    };
    const handler = shell(`printf 'a\\0b%03000d' 0 >&2; exit 1`);
    await delayq(['drain', '-q', '--on-dead', `env > ${log}`, queue.name, ...handler], { env });
    expect(read(log)).not.toMatch(/secret|another|DELAYQ_TRIES|DELAYQ_RECEIPT/);
    expect(linesOf(read(log))).toContain('DELAYQ_REASON=failed');
    expect(linesOf(read(log)).find((line) => line.startsWith('DELAYQ_ERROR='))).toMatch(
      /^DELAYQ_ERROR=exit 1: ab0{1980,}$/,
    );
  });

  it('prints to stderr: what the drain prints to stdout is data', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { id: 'a', payload: 1, tries: 1 },
      { id: 'b', payload: 2, tries: 1 },
    ]);
    const args = ['drain', '-q', '--on-dead', 'echo told; echo so >&2', queue.name, ...shell('cat; exit 1')];
    const { stdout, stderr } = await delayq(args);
    expect(stdout).toBe('1\n2\n');
    expect(stderr.match(/^told$/gm)).toHaveLength(2);
    expect(stderr.match(/^so$/gm)).toHaveLength(2);
  });

  it.each([
    ['exits with another status than 0', 'echo no route >&2; exit 7', 'exit 7: no route'],
    ['is killed', 'kill -9 $$', 'killed by SIGKILL'],
    ['does not exist', '/nowhere/notify', 'exit 127: .*/nowhere/notify.*not found'],
  ])('that %s is reported, and the drain goes on', async (_, command, why) => {
    const queue = freshQueue();
    await queue.enqueue([
      { id: 'a', payload: 1, at: 1 },
      { id: 'b', payload: 2, at: 2 },
    ]);
    const handler = shell('[ $DELAYQ_ID = b ] || exit 65');
    const { code, stderr } = await delayq(['drain', '-q', '--on-dead', command, queue.name, ...handler]);
    expect(stderr).toMatch(new RegExp(`^delayq: ${queue.name} a: --on-dead failed: ${why}$`, 'm'));
    expect(await queue.counts()).toMatchObject({ pending: 0, dead: 1, stats: { acked: 1 } });
    // As if it had not failed: a job has died.
    expect(code).toBe(1);
  });

  it('that fails for each of many jobs is reported three times, and then counted', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(10).map((n) => ({ payload: n, tries: 1 })));
    const { stderr } = await delayq(['drain', '-q', '--on-dead', 'exit 7', queue.name, '--', 'false']);
    expect(stderr.match(/--on-dead failed: exit 7/g)).toHaveLength(3);
    expect(stderr).toContain('delayq: --on-dead: 7 more failures in this minute\n');
  });

  it('that hangs is ended after a while, with the processes that it has started', async () => {
    const said: string[] = [];
    const stderr = new Writable({
      write: (text: Buffer, _, done) => {
        said.push(String(text));
        done();
      },
    });
    const room = () => undefined;
    const context = { env: process.env, stderr, room, withoutLogins: (text: string) => text, atExit: () => {} };
    const pids = path();
    const hang = script(`trap '' TERM\necho $$ >> ${pids}\nsh -c 'echo $$ >> ${pids}; exec sleep 600'`);
    const limits = { timeoutMs: 2_000, killAfterMs: 100 };
    const onDead = new OnDead(context as unknown as Context, hang, limits);
    const job = { id: 'a', attempt: 1, attributes: {}, payload: Buffer.from('1') } as Job;
    onDead.jobs.died(freshQueue(), job, 'failed', 'why');
    await until(() => linesOf(read(pids)).length === 2);
    await onDead.end(30_000);
    expect(said.join('')).toMatch(/^delayq: \S+ a: --on-dead failed: timed out after 2s\n$/);
    await until(() => linesOf(read(pids)).every((pid) => !alive(Number(pid))));
  });

  it('runs at most four times at once for 300 jobs that die at once, once for each', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(300).map((n) => ({ id: `j${n}`, payload: n, maxLost: 1 })));
    for (let taken = 0; taken < 300; ) taken += (await queue.drain()).jobs.length;
    await timePasses(queue.name, 60_001);
    const [log, running] = [path(), path()];
    const command = `echo + >> ${running}; echo $DELAYQ_ID $(cat) >> ${log}; echo - >> ${running}`;
    await delayq(['drain', '-q', '--grace', '5m', '--on-dead', command, queue.name, '--', 'true']);
    expect(new Set(linesOf(read(log)))).toEqual(new Set(upTo(300).map((n) => `j${n} ${n}`)));
    expect(linesOf(read(log))).toHaveLength(300);
    let [now, most] = [0, 0];
    for (const sign of linesOf(read(running))) {
      now += sign === '+' ? 1 : -1;
      most = Math.max(most, now);
    }
    expect(most).toBeLessThanOrEqual(4);
  });

  it('runs in one of two drains for each job', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(40).map((n) => ({ id: `${n}`, payload: n, tries: 1 })));
    const log = path();
    const drain = () =>
      delayq(['drain', '-q', '-P', '4', '--on-dead', `echo $DELAYQ_ID >> ${log}`, queue.name, ...shell('exit 1')]);
    await Promise.all([drain(), drain()]);
    expect(
      linesOf(read(log))
        .map(Number)
        .sort((a, b) => a - b),
    ).toEqual(upTo(40));
  });

  it('is waited for after SIGTERM of the drain', async () => {
    const queue = freshQueue();
    await queue.enqueue({ id: 'a', payload: 1, tries: 1 });
    const [begun, go, told] = [path(), path(), path()];
    const command = `touch ${begun}; while [ ! -e ${go} ]; do sleep 0.05; done; echo $DELAYQ_ID > ${told}`;
    const running = begin(['drain', '--watch', '--on-dead', command, queue.name, '--', 'false']);
    await until(() => existsSync(begun));
    running.child.kill('SIGTERM');
    await until(() => running.stderr.includes('waiting up to 30s for 1 --on-dead command'));
    writeFileSync(go, '');
    expect(await running.ended).toMatchObject({ code: 0 });
    expect(read(told)).toBe('a\n');
  });

  it('is killed when grace is over after SIGTERM of the drain', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(6).map((n) => ({ payload: n, tries: 1 })));
    const pids = path();
    const command = `echo $$ >> ${pids}; exec sleep 600`;
    const running = begin([
      ...['drain', '--watch', '--grace', '200ms', '-P', '6', '--on-dead', command],
      ...[queue.name, '--', 'false'],
    ]);
    await until(async () => linesOf(read(pids)).length === 4 && (await queue.counts()).dead === 6);
    running.child.kill('SIGTERM');
    const { code, stderr } = await running.ended;
    expect(code).toBe(0);
    expect(stderr).toContain('delayq: --on-dead had not ended for 4 dead jobs\n');
    expect(stderr).toContain('delayq: --on-dead was not called for 2 dead jobs: the run has ended\n');
    await until(() => linesOf(read(pids)).every((pid) => !alive(Number(pid))));
  });

  it('must not be empty', async () => {
    const { code, stderr } = await delayq(['drain', '--on-dead', ' ', 'q', '--to-stream']);
    expect({ code, stderr }).toMatchObject({ code: 64, stderr: expect.stringContaining('--on-dead is empty') });
  });
});
