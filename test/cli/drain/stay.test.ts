import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { type Queue, RawPayload } from '../../../src/index.js';
import { begin, delayq, linesOf } from '../../support/cli.js';
import { alive, path, read, script, show, upTo } from '../../support/handlers.js';
import { freshQueue } from '../../support/redis.js';
import { until } from '../../support/until.js';

/** A worker in the shell. `body` runs for each job: its line is in $line, its payload, a word, in $p. */
const inShell = (body: string) =>
  script(`while read -r line; do p=\${line##*payload\\":}; p=\${p%?}; p=\${p#\\"}; p=\${p%\\"}; ${body}; done`);

/** A worker in Node. `body` runs for each job: `job` is the envelope, `say(text)` writes to the descriptor for answers. */
const inNode = (body: string) => {
  const file = script('');
  const head = `#!${process.execPath}\nconst { writeSync, appendFileSync } = require('node:fs');\n`;
  const say = 'const say = (text) => writeSync(Number(process.env.DELAYQ_ANSWER_FD), text);\n';
  const lines =
    'const lines = require("node:readline").createInterface({ input: process.stdin, crlfDelay: Infinity });\n';
  const { writeFileSync } = require('node:fs') as typeof import('node:fs');
  writeFileSync(
    file,
    `${head}${say}${lines}lines.on('line', async (line) => { const job = JSON.parse(line); ${body} });\n`,
  );
  return file;
};

const stay = (queue: Queue, worker: string, ...options: string[]) =>
  delayq(['drain', '--stay', '--backoff', '1h', ...options, queue.name, '--', worker]);

/** A queue with these payloads, whose ids are the payloads or, if they are no words, a, b, c …. */
async function queueOf(...payloads: unknown[]): Promise<Queue> {
  const queue = freshQueue();
  const idOf = (payload: unknown, i: number) => (typeof payload === 'string' ? payload : String.fromCharCode(97 + i));
  await queue.enqueue(payloads.map((payload, i) => ({ payload, id: idOf(payload, i) })));
  return queue;
}

describe.concurrent('handlers that stay', () => {
  it('get one job after another as a JSON line: the next one only after an answer', async () => {
    const queue = await queueOf('a', 'b', 'c');
    const log = path();
    const worker = inNode(`
      appendFileSync('${log}', process.pid + ' ' + line + '\\n');
      setTimeout(() => { appendFileSync('${log}', 'answered\\n'); say('ok\\n'); }, 20);`);
    expect(await stay(queue, worker)).toMatchObject({ code: 0, stderr: expect.stringContaining('3 done in') });
    const lines = linesOf(read(log));
    expect(lines.map((line) => line.replace(/^\d+ \{.*/, 'job'))).toEqual(upTo(3).flatMap(() => ['job', 'answered']));
    expect(new Set(lines.filter((line) => line !== 'answered').map((line) => line.split(' ')[0])).size).toBe(1);
    const jobs = lines.filter((line) => line !== 'answered').map((line) => JSON.parse(line.replace(/^\d+ /, '')));
    expect(jobs[0]).toEqual({
      ...{ id: 'a', queue: queue.name, attempt: 1, tries: expect.any(Number), due: expect.any(Number), payload: 'a' },
      ticket: expect.stringMatching(/^\w{4,}\.\w+$/),
    });
    expect(new Set(jobs.map(({ ticket }) => ticket)).size).toBe(3);
  });

  it('answer ok, retry, release or dead, with a delay and a reason', async () => {
    const queue = await queueOf(
      'ok',
      'retry',
      'retry-30s',
      'retry-30s-out-of-luck',
      'retry---7d-late',
      'release-10s',
      'dead-bad-order',
    );
    // Two dashes are one, with spaces around it.
    const worker = inShell(`printf '%s\\n' "$p" | sed 's/--/ @/; s/-/ /g; s/@/- /' >&3`);
    const { code, stderr } = await stay(queue, worker, '-P', '1');
    expect(code).toBe(1);
    expect(stderr).toContain('1 done, 4 failed, 1 dead, 1 given back in');
    expect(await show(queue, 'ok')).toBeUndefined();
    const waits = async (id: string) => {
      const { failures, error, due = 0, failed = 0 } = (await show(queue, id)) ?? {};
      return { failures, error, wait: due - failed };
    };
    expect(await waits('retry')).toEqual({ failures: 1, error: 'answered retry', wait: 3_600_000 });
    expect(await waits('retry-30s')).toEqual({ failures: 1, error: 'answered retry', wait: 30_000 });
    expect(await waits('retry-30s-out-of-luck')).toEqual({ failures: 1, error: 'out of luck', wait: 30_000 });
    expect(await waits('retry---7d-late')).toEqual({ failures: 1, error: '7d late', wait: 3_600_000 });
    expect(await show(queue, 'release-10s')).toMatchObject({ state: 'pending', failures: 0 });
    expect(await show(queue, 'dead-bad-order')).toMatchObject({ state: 'dead', reason: 'refused', error: 'bad order' });
  });

  it('print what they like: stdout and stderr pass through, and are no answers', async () => {
    const queue = await queueOf('a', 'b');
    const worker = inShell(`echo dead; echo "oops $p" >&2; echo ok >&3`);
    expect(await stay(queue, worker)).toMatchObject({
      ...{ code: 0, stdout: 'dead\ndead\n' },
      stderr: expect.stringMatching(/^oops a\noops b\ndelayq: 2 done in/),
    });
  });

  it.each(['>&3', '>/dev/fd/3', '>>/dev/fd/3', '>/proc/self/fd/3'])('answer with echo ok %s', async (into) => {
    const queue = await queueOf('a', 'b');
    expect(await stay(queue, inShell(`echo ok ${into}`))).toMatchObject({ code: 0 });
    expect(await queue.counts()).toMatchObject({ payload: 0, stats: { acked: 2 } });
  });

  it('with --ahead have several in hand, and answer in any order by their tickets', async () => {
    const queue = await queueOf(...upTo(8));
    const worker = inNode(`
      (global.jobs ??= []).push(job);
      if (jobs.length === 4) for (const one of jobs.splice(0).reverse()) say('ok ' + one.ticket + '\\n');`);
    expect(await stay(queue, worker, '--ahead', '4')).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('8 done'),
    });
  });

  it('with --answers stdout answer there with tickets; other lines pass through', async () => {
    const queue = await queueOf('a', 'b');
    const worker = inShell(`t=\${line#*ticket\\":\\"}; echo ok; printf 'half '; echo "done $p"; echo "ok \${t%%\\"*}"`);
    expect(await stay(queue, worker, '--answers', 'stdout')).toMatchObject({
      ...{ code: 0, stdout: 'ok\nhalf done a\nok\nhalf done b\n' },
      stderr: expect.stringContaining('2 done'),
    });
  });

  it('keep their leases, however long they work', async () => {
    const queue = await queueOf('a');
    const log = path();
    const worker = inShell(`echo "$p" >> ${log}; sleep 1.2; echo ok >&3`);
    expect(await stay(queue, worker, '--lease', '300ms')).toMatchObject({ code: 0 });
    expect(read(log)).toBe('a\n');
    expect((await queue.counts()).stats).toMatchObject({ delivered: 1, acked: 1 });
  });

  it('run side by side with -P, as many as there are jobs for', async () => {
    const queue = await queueOf('a', 'b', 'c');
    const log = path();
    const worker = inShell(`echo $$ >> ${log}; while [ $(wc -l < ${log}) -lt 3 ]; do sleep 0.01; done; echo ok >&3`);
    expect(await stay(queue, worker, '-P', '5')).toMatchObject({ code: 0, stderr: expect.stringContaining('3 done') });
    expect(new Set(linesOf(read(log))).size).toBe(3);
  });

  it('get payloads of 8 MiB, and bytes that are no UTF-8 as base64', async () => {
    const queue = freshQueue();
    const long = 'x'.repeat(8 * 1024 * 1024 - 100);
    const bytes = Buffer.from([0xff, 0, 10, 65]);
    await queue.enqueue([
      { payload: long, id: 'long' },
      { payload: new RawPayload(bytes), id: 'bytes' },
    ]);
    const log = path();
    const worker = inNode(`
      appendFileSync('${log}', job.id + ' ' + (job.payloadBase64 ?? job.payload.length) + '\\n'); say('ok\\n');`);
    expect(await stay(queue, worker)).toMatchObject({ code: 0 });
    expect(linesOf(read(log))).toEqual([`long ${long.length}`, `bytes ${bytes.toString('base64')}`]);
  });
});

describe.concurrent('--timeout', () => {
  it('ends and replaces the process, and fails the job that it had begun', async () => {
    const queue = await queueOf('a', 'hang', 'z');
    const log = path();
    const worker = inShell(`echo "$$ $p" >> ${log}; [ "$p" = hang ] && { sleep 600; }; echo ok >&3`);
    const { code, stderr } = await stay(queue, worker, '--timeout', '400ms', '-v');
    expect(stderr).toContain(`${queue.name} hang: attempt 1, `);
    expect(code).toBe(0);
    expect(await show(queue, 'hang')).toMatchObject({ failures: 1, error: 'timed out after 400ms' });
    const lines = linesOf(read(log)).map((line) => line.split(' '));
    expect(lines.map(([, p]) => p)).toEqual(['a', 'hang', 'z']);
    expect(lines[0]?.[0]).toBe(lines[1]?.[0]);
    expect(lines[2]?.[0]).not.toBe(lines[1]?.[0]);
    expect(alive(Number(lines[1]?.[0]))).toBe(false);
  });

  it('begins when the job before is answered, and leaves those behind untouched', async () => {
    const queue = await queueOf(0, 1, 2, 3, 4, 'hang', 6);
    const worker = inShell(
      `t=\${line#*ticket\\":\\"}; if [ "$p" = hang ]; then sleep 600; fi; sleep 0.3; echo "ok \${t%%\\"*}" >&3`,
    );
    expect(await stay(queue, worker, '--ahead', '7', '--timeout', '1s', '--kill-after', '100ms')).toMatchObject({
      stderr: expect.stringContaining('6 done, 1 failed'),
    });
    expect((await queue.counts()).stats).toMatchObject({ acked: 6, retried: 1 });
    expect(await show(queue, 'hang')).toMatchObject({ failures: 1 });
  });

  it('kills what does not end by SIGTERM, with its children', async () => {
    const queue = await queueOf('a');
    const log = path();
    const worker = inShell(`trap '' TERM; sleep 600 & echo "$$ $!" >> ${log}; wait; sleep 600`);
    expect(await stay(queue, worker, '--timeout', '200ms', '--kill-after', '200ms')).toMatchObject({ code: 1 });
    expect(read(log).trim().split(' ').map(Number).filter(alive)).toEqual([]);
  });
});

describe.concurrent('a process that ends', () => {
  it('fails the job that it had begun alone; those behind go to another as they were', async () => {
    const queue = await queueOf('a', 'die', 'x', 'y');
    const worker = inNode(`
      if (job.id === 'die') { process.stderr.write('Error: no luck\\n'); process.kill(process.pid, 'SIGKILL'); while (true); }
      say('ok ' + job.ticket + '\\n');`);
    expect(await stay(queue, worker, '--ahead', '4')).toMatchObject({
      stderr: expect.stringContaining('3 done, 1 failed'),
    });
    expect(await show(queue, 'die')).toMatchObject({ failures: 1, error: expect.stringMatching(/^killed by SIGKILL/) });
    expect((await queue.counts()).stats).toMatchObject({ acked: 3, retried: 1 });
  });

  it.each([
    ['exit 3', 'exit 3: why', 'pending'],
    ['exit 65', 'exit 65: why', 'dead'],
    ['exit 0', 'the process ended (exit 0) without an answer: why', 'pending'],
  ])('by %s in the middle of a job: its exit status counts', async (end, error, state) => {
    const queue = await queueOf('a');
    expect(await stay(queue, inShell(`echo why >&2; ${end}`))).toMatchObject({ code: 1 });
    expect(await show(queue, 'a')).toMatchObject({ failures: 1, error, state });
  });

  it('between two jobs fails none: what it has not read goes to another', async () => {
    const queue = await queueOf(...upTo(30));
    const log = path();
    const body = `echo $$ >> ${log}; echo ok >&3; n=$((n + 1)); [ $n -lt 4 ] || exit 0`;
    const { code, stderr } = await stay(queue, inShell(body), '-P', '2');
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr: expect.stringMatching(/^delayq: 30 done in/),
    });
    expect((await queue.counts()).stats).toMatchObject({ acked: 30 });
    expect((await queue.counts()).stats.retried ?? 0).toBe(0);
    expect(new Set(linesOf(read(log))).size).toBeGreaterThanOrEqual(8);
  });

  it('answers with its last words, also without a line end', async () => {
    const queue = await queueOf('a', 'b');
    expect(await stay(queue, inShell(`printf ok >&3; exit`))).toMatchObject({ code: 0 });
    expect((await queue.counts()).stats).toMatchObject({ acked: 2 });
  });

  it('before it reads a job fails it, so that a handler that cannot start is seen to fail', async () => {
    const queue = await queueOf('a');
    const { code, stderr } = await stay(queue, script('echo "no database" >&2; exit 9'));
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('exit 9: no database') });
    expect(await show(queue, 'a')).toMatchObject({ failures: 1, error: 'exit 9: no database' });
  });

  it('with 127 before any has run gives its jobs back, and delayq exits with 78', async () => {
    const queue = await queueOf('a', 'b');
    const { code, stderr } = await stay(queue, script('no-such-command-anywhere'));
    expect({ code, stderr }).toMatchObject({ code: 78, stderr: expect.stringContaining('cannot run') });
    expect(await queue.counts()).toMatchObject({ pending: 2, meta: 0 });
  });

  it('is replaced; a row of failures ends a run without --watch', async () => {
    const queue = await queueOf(...upTo(10));
    const { code, stderr } = await stay(queue, inShell('exit 1'), '--max-failures', '3');
    expect({ code, stderr }).toMatchObject({ code: 1, stderr: expect.stringContaining('3 failures in a row') });
    expect((await queue.counts()).stats).toMatchObject({ retried: 3 });
  });

  it('leaves nobody who could answer for a job of its successor', async () => {
    const queue = await queueOf('a', 'b');
    const log = path();
    // What it leaves behind, in a session of its own, answers again and again, while the next job is in hand.
    const late = `setsid sh -c 'for i in 1 2 3 4 5 6 7 8 9; do sleep 0.05; echo ok; done >&3' & `;
    const worker = inShell(`if [ "$p" = a ]; then ${late} exit 1; fi; sleep 0.6; echo "dead as told" >&3`);
    await stay(queue, worker);
    expect(read(log)).toBe('');
    expect(await show(queue, 'b')).toMatchObject({ state: 'dead', error: 'as told' });
  });
});

describe.concurrent('a process is replaced between two jobs', () => {
  it('after --max-jobs', async () => {
    const queue = await queueOf(...upTo(7));
    const log = path();
    expect(await stay(queue, inShell(`echo $$ >> ${log}; echo ok >&3`), '--max-jobs', '3')).toMatchObject({ code: 0 });
    const counts = new Map<string, number>();
    for (const pid of linesOf(read(log))) counts.set(pid, (counts.get(pid) ?? 0) + 1);
    expect([...counts.values()]).toEqual([3, 3, 1]);
  });

  it('and leaves no descriptor open', async () => {
    const queue = freshQueue();
    const options = ['--watch', '-n', '41', '--max-jobs', '1'];
    const running = begin(['drain', '--stay', ...options, queue.name, '--', inShell('echo ok >&3')]);
    const opened = () => readdirSync(`/proc/${running.child.pid}/fd`).length;
    await queue.enqueue({ payload: 1 });
    await until(async () => (await queue.counts()).stats.acked === 1);
    const before = opened();
    await queue.enqueue(upTo(39).map((payload) => ({ payload })));
    await until(async () => (await queue.counts()).stats.acked === 40);
    expect(opened()).toBeLessThan(before + 20);
    await queue.enqueue({ payload: 1 });
    expect((await running.ended).code).toBe(0);
  });

  it('when it has more memory than --max-memory', async () => {
    const queue = await queueOf('a', 'b');
    const log = path();
    const worker = inNode(`
      (global.kept ??= []).push(Buffer.alloc(150e6, 1)); appendFileSync('${log}', process.pid + '\\n'); say('ok\\n');`);
    expect(await stay(queue, worker, '--max-memory', '128M')).toMatchObject({ code: 0 });
    expect(new Set(linesOf(read(log))).size).toBe(2);
  });
});

describe.concurrent('a line that is no answer', () => {
  it.each([
    ['done', '"done" is no answer of a handler: an answer is ok, retry, release or dead'],
    ['ok then', '"ok then" is no answer'],
    ['release later', '"release later" is no answer'],
    ['ok a.1', '"ok a.1" is no answer'],
  ])('"%s" is reported, and the job stays in hand', async (line, reported) => {
    const queue = await queueOf('a');
    const { code, stderr } = await stay(queue, inShell(`echo '${line}' >&3; echo 'dead yes' >&3`));
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining(reported) });
    expect(await show(queue, 'a')).toMatchObject({ error: 'yes' });
  });

  it('is reported three times a minute at most, and shown without what could control a terminal', async () => {
    const queue = await queueOf('a');
    const worker = inShell(
      `i=0; while [ $i -lt 50 ]; do i=$((i + 1)); printf '\\033[2J%s\\n' $i >&3; done; echo ok >&3`,
    );
    const { stderr } = await stay(queue, worker);
    expect(stderr.match(/is no answer/g)).toHaveLength(3);
    expect(stderr).toContain('47 more such reports');
    expect(stderr).not.toContain('\u001b');
  });

  it('such as a second ok answers for no other job, if the tickets are given', async () => {
    const queue = await queueOf('a', 'b', 'c');
    const worker = inNode(`
      global.last ??= job.ticket; say('ok ' + last + '\\n'); say('ok ' + job.ticket + '\\n'); last = job.ticket;`);
    const { code, stderr } = await stay(queue, worker);
    expect({ code, stderr }).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('it has no job with this ticket in hand'),
    });
    expect((await queue.counts()).stats).toMatchObject({ acked: 3 });
  });

  it('without a line end is reported while the job waits for it', async () => {
    const queue = await queueOf('a');
    const running = begin(['drain', '--stay', queue.name, '--', inShell('printf ok >&3; sleep 600')]);
    await until(() => running.stderr.includes('"ok" is no answer of a handler: the line has no end'));
    expect(await queue.counts()).toMatchObject({ active: 1 });
    running.child.kill('SIGTERM');
    await until(() => running.stderr.includes('a second signal stops at once'));
    running.child.kill('SIGTERM');
    await running.ended;
  });
});

describe.concurrent('an answer', () => {
  it('may come in pieces, and two in one', async () => {
    const queue = await queueOf('a', 'b', 'c');
    const worker = inNode(`
      (global.jobs ??= []).push(job);
      if (jobs.length < 3) return;
      const text = jobs.map((one) => 'retry ' + one.ticket + ' 5s of ' + one.id + '\\n').join('');
      for (const letter of text.slice(0, 40)) { say(letter); await new Promise(setImmediate); }
      say(text.slice(40));`);
    await stay(queue, worker, '--ahead', '3');
    for (const id of ['a', 'b', 'c']) expect(await show(queue, id)).toMatchObject({ failures: 1, error: `of ${id}` });
  });

  it('that is too long is cut', async () => {
    const queue = await queueOf('a', 'b');
    const worker = inNode(`say('retry 1h ' + 'x'.repeat(job.id === 'a' ? 1e6 : 5) + '\\n');`);
    await stay(queue, worker);
    expect((await show(queue, 'a'))?.error).toMatch(/^x{2000}$/);
    expect((await show(queue, 'b'))?.error).toBe('xxxxx');
  });

  it('cannot come from a process that closed the descriptor: it is replaced, and its job has failed', async () => {
    const queue = await queueOf('a');
    const { code } = await stay(queue, inShell('exec 3>&-; sleep 600'));
    expect(code).toBe(1);
    expect(await show(queue, 'a')).toMatchObject({
      failures: 1,
      error: 'the process closed the descriptor for answers (DELAYQ_ANSWER_FD)',
    });
  });

  it('can come from a process that stops reading', async () => {
    const queue = await queueOf(['x'.repeat(1_000_000)], ['y'.repeat(1_000_000)]);
    const worker = script(
      'head -c 10 > /dev/null; echo "dead unread" >&3; sleep 0.1; head -c 10 > /dev/null; sleep 600',
    );
    await stay(queue, worker, '--timeout', '1s');
    expect((await queue.counts()).stats).toMatchObject({ dead: 1, retried: 1 });
  });
});

describe.concurrent('a stop', () => {
  const started = async (body: string, ...options: string[]) => {
    const queue = await queueOf('a', 'b');
    const log = path();
    const worker = inShell(body.replaceAll('LOG', log));
    const running = begin(['drain', '--watch', '--stay', ...options, queue.name, '--', worker]);
    await until(() => read(log) !== '');
    return { queue, running, log, pid: Number(read(log).split(/\s/)[0]) };
  };

  it('lets the running job finish, begins no other, and ends the processes', async () => {
    const { queue, running, log, pid } = await started('echo $$ >> LOG; sleep 0.5; echo ok >&3');
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0, stderr: expect.stringContaining('1 done in') });
    expect(linesOf(read(log))).toHaveLength(1);
    expect(alive(pid)).toBe(false);
    expect(await queue.counts()).toMatchObject({ pending: 1, active: 0, meta: 0 });
  });

  it('ends what runs on after --grace, and gives its job back', async () => {
    const { queue, running, pid } = await started('echo $$ >> LOG; sleep 600', '--grace', '100ms');
    running.child.kill('SIGTERM');
    expect((await running.ended).code).toBe(0);
    expect(alive(pid)).toBe(false);
    expect(await queue.counts()).toMatchObject({ pending: 2, active: 0, stats: { delivered: 2 } });
    expect(await show(queue, 'a')).toMatchObject({ failures: 0 });
  });

  it('that reaches the processes as well counts nothing', async () => {
    const { queue, running, pid } = await started('echo $$ >> LOG; sleep 600');
    running.child.kill('SIGSTOP');
    process.kill(-pid, 'SIGTERM');
    await until(() => !alive(pid));
    running.child.kill('SIGTERM');
    running.child.kill('SIGCONT');
    expect(await running.ended).toMatchObject({ code: 0 });
    expect(await queue.counts()).toMatchObject({ pending: 2, meta: 0 });
  });

  it('with a second signal leaves no process behind', async () => {
    const { running, pid } = await started(`trap '' TERM; echo $$ >> LOG; sleep 600; sleep 600`);
    running.child.kill('SIGTERM');
    await until(() => running.stderr.includes('a second signal stops at once'));
    running.child.kill('SIGTERM');
    await running.ended;
    await until(() => !alive(pid));
  });

  it('ends processes that go on although their stdin has ended', async () => {
    const queue = await queueOf('a');
    const log = path();
    const worker = script(`read -r line; echo $$ > ${log}; echo ok >&3; sleep 600`);
    expect(await stay(queue, worker, '--kill-after', '100ms')).toMatchObject({ code: 0 });
    expect(alive(Number(read(log)))).toBe(false);
  });
});

it('a process that answers after its time is up has failed its job: it is being ended', async () => {
  const queue = await queueOf('a');
  const worker = inNode(`process.on('SIGTERM', () => { say('ok\\n'); setTimeout(() => process.exit(0), 100); });`);
  expect(await stay(queue, worker, '--timeout', '300ms')).toMatchObject({ code: 1 });
  expect(await show(queue, 'a')).toMatchObject({ failures: 1, error: 'timed out after 300ms' });
});

it('with --watch start before the first job, and are replaced before the next one', async () => {
  const queue = freshQueue();
  const log = path();
  const worker = script(`echo $$ >> ${log}; while read -r line; do echo ok >&3; done`);
  const running = begin(['drain', '--watch', '--stay', '-P', '2', queue.name, '--', worker]);
  await until(() => linesOf(read(log)).length === 2);
  await queue.enqueue({ payload: 1 });
  await until(async () => (await queue.counts()).stats.acked === 1);
  process.kill(Number(linesOf(read(log))[0]), 'SIGKILL');
  await until(() => linesOf(read(log)).length === 3);
  running.child.kill('SIGTERM');
  expect(await running.ended).toMatchObject({ code: 0, stderr: expect.stringContaining('killed by SIGKILL') });
});

describe.concurrent('a process for one job', () => {
  const each = (queue: Queue, text: string, ...options: string[]) =>
    delayq(['drain', '--backoff', '1h', ...options, queue.name, '--', 'sh', '-c', text]);

  it.each([
    ['echo "retry 5s busy" >&3', { state: 'pending', failures: 1, error: 'busy' }],
    ['echo "retry 5s busy" >/dev/fd/3; exit 1', { state: 'pending', failures: 1, error: 'busy' }],
    ['echo "dead no such order" >&3; exit 1', { state: 'dead', failures: 1, error: 'no such order' }],
    ['echo "release 10s" >&3', { state: 'pending', failures: 0 }],
    ['printf release >&3; exit 4', { state: 'pending', failures: 0 }],
    ['echo ok >&3; exit 1', { state: 'pending', failures: 1, error: 'exit 1' }],
  ])('that does %s has answered', async (text, job) => {
    const queue = await queueOf('a');
    await each(queue, text);
    expect(await show(queue, 'a')).toMatchObject(job);
  });

  it('that says ok and exits with 0 is done; so is one that says nothing', async () => {
    const queue = await queueOf('a', 'b');
    expect(await each(queue, 'case $DELAYQ_ID in a) echo ok >&3;; esac')).toMatchObject({ code: 0 });
    expect((await queue.counts()).stats).toMatchObject({ acked: 2 });
  });

  it('is put off by --release-on, which show and inspect count', async () => {
    const queue = await queueOf('a');
    expect(await each(queue, 'exit 75', '--release-on', '75')).toMatchObject({
      stderr: expect.stringContaining('1 given back'),
    });
    expect(await show(queue, 'a')).toMatchObject({ state: 'pending', failures: 0, releases: 1 });
    expect((await delayq(['show', queue.name, 'a'])).stdout).toMatch(/attempts +0: .*, released once\n/);
    expect((await delayq(['inspect', queue.name])).stdout).toMatch(/totals .*released 1/);
  });

  it('that puts its job off more often than --max-releases allows leaves it dead', async () => {
    const queue = await queueOf('a');
    const options = ['--watch', '-n', '4', '--max-releases', '3'];
    const { code, stderr } = await each(queue, 'echo "release 1ms" >&3', ...options);
    expect({ code, stderr }).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/ a: .*: dead: released too often/),
    });
    expect(await show(queue, 'a')).toMatchObject({ state: 'dead', reason: 'released', releases: 4 });
  });

  it('reports a line that is no answer', async () => {
    const queue = await queueOf('a');
    expect(await each(queue, 'echo hello >&3')).toMatchObject({
      ...{ code: 0, stderr: expect.stringContaining('"hello" is no answer of a handler') },
    });
  });
});

it.each([
  [['--ahead', '2', '--', 'cat'], '--ahead needs --stay'],
  [['--max-jobs', '2', '--', 'cat'], '--max-jobs needs --stay'],
  [['--stay'], '--stay needs a handler'],
  [['--stay', '--pipe', 'cat'], 'cannot be used with'],
  [['--stay', '--text', '--', 'cat'], 'cannot be used with'],
  [['--stay', '--', 'cat', '{id}'], '{id} is not known when a handler that stays is started'],
  [['--stay', '--max-memory', '1.5G', '--', 'cat'], '"1.5G" is not a size'],
  [['--stay', '--ahead', '0', '--', 'cat'], '"0" is not a count'],
  [['--stay', '--answers', 'stderr', '--', 'cat'], 'stdout'],
])('delayq drain %s is refused', async (args, error) => {
  expect(await delayq(['drain', 'q', ...args])).toMatchObject({ code: 64, stderr: expect.stringContaining(error) });
});
