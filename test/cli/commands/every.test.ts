import { expect, it } from 'vitest';
import { Recurring } from '../../../src/index.js';
import { during } from '../../support/afterwards.js';
import { delayq } from '../../support/cli.js';
import { admin, connection, freshName, key } from '../../support/redis.js';
import { Server } from '../../support/server.js';

const put = (queue: string, ...more: string[]) =>
  delayq([
    'every',
    '0 9 * * 1-5',
    '--tz',
    'Europe/Berlin',
    '--id',
    'daily',
    ...more,
    queue,
    '{"big":12345678901234567890}',
  ]);

it('puts a recurring job; again it changes nothing, and changed it says what', async () => {
  const queue = freshName();
  expect(await put(queue)).toMatchObject({ code: 0, stdout: 'daily\n', stderr: '' });
  expect((await put(queue)).stderr).toMatch(/unchanged/);
  expect((await put(queue, '--tries', '2')).stderr).toMatch(/replaced: tries/);
  const { stdout } = await delayq(['every', '--list', queue]);
  expect(stdout).toMatch(/daily +0 9 \* \* 1-5 +Europe\/Berlin +\d{4}-\d\d-\d\d 09:00:00 \+0[12]:00 {2}in/);
  expect((await delayq(['show', queue, 'daily'])).stdout).toMatch(/recurs +0 9 \* \* 1-5, in Europe\/Berlin/);
  expect((await delayq(['inspect', queue])).stdout).toMatch(/recurring +1 job, next /);
});

it.each(['', ':', '/no/such'])('with TZ=%s an expression is in UTC', async (tz) => {
  const env = { TZ: tz, DELAYQ_TZ: undefined };
  const args = ['every', '0 9 * * *', '--id', 'r', '--json', freshName(), '1'];
  expect(JSON.parse((await delayq(args, { env })).stdout)).toMatchObject({ outcome: 'created', tz: 'UTC' });
});

it('prints a payload as it was given: big numbers, the order of its keys', async () => {
  const queue = freshName();
  const payload = '{"b":12345678901234567890,"2":1e2,"1":0}';
  const { stdout } = await delayq(['every', '15m', '--id', 'r', '--json', queue, payload]);
  const shown = [stdout, (await delayq(['show', '--json', queue, 'r'])).stdout];
  shown.push((await delayq(['every', '--list', '--json', queue])).stdout);
  for (const text of shown) {
    JSON.parse(text);
    expect(text).toContain(`"payload":${payload}}`);
  }
});

it('--once-for keeps the ids of its jobs taken after they have ended, and can be changed', async () => {
  const queue = freshName();
  await delayq(['every', '1s', '--id', 'tick', '--once-for', '1d', queue, '7']);
  await delayq(['drain', queue, '--watch', '-n', '1', '--', 'true']);
  expect(await admin.zcard(key(queue, 'done'))).toBe(1);
  expect((await delayq(['show', queue, 'tick'])).stdout).toMatch(/its jobs +once-for=1d/);
  expect((await delayq(['every', '1s', '--id', 'tick', '--once-for', '2d', queue, '7'])).stderr).toMatch(/: onceFor:/);
  expect((await delayq(['export', '--config', queue])).stdout).toContain('"onceFor":172800000');
});

it('is no job: list, wait and purge do not see it', async () => {
  const queue = freshName();
  await put(queue);
  expect(await delayq(['list', '--json', queue])).toMatchObject({ code: 0, stdout: '' });
  expect(await delayq(['wait', '--timeout', '0s', queue])).toMatchObject({ code: 0 });
  expect(JSON.parse((await delayq(['purge', '--yes', '--json', queue])).stdout)).toMatchObject({ pending: 0, dead: 0 });
  expect((await delayq(['every', '--list', queue])).stdout).toMatch(/daily/);
});

it('drains the jobs of an interval', async () => {
  const queue = freshName();
  await delayq(['every', '1s', '--id', 'tick', queue, '7']);
  const { stdout } = await delayq(['drain', queue, '--watch', '--at-most-once', '-n', '2']);
  expect(stdout.trim().split('\n')).toHaveLength(2);
});

it('pauses, resumes and removes; an id that is not there is told, with status 1', async () => {
  const queue = freshName();
  await put(queue);
  expect((await delayq(['every', '--pause', queue, 'daily'])).stderr).toMatch(/paused: daily/);
  expect((await delayq(['every', '--list', queue])).stdout).toMatch(/paused/);
  expect((await delayq(['every', '--resume', queue, 'daily'])).stderr).toMatch(/resumed: daily .*next/);
  expect(await delayq(['every', '--remove', queue, 'daily', 'none'])).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/removed: daily[\s\S]*no recurring job none/),
  });
});

it('export --config and import --config carry it', async () => {
  const [queue, other] = [freshName(), freshName()];
  await put(queue, '--missed', 'skip', '--attr', 'tenant=7');
  await delayq(['every', '--pause', queue, 'daily']);
  const { stdout } = await delayq(['export', '--config', queue]);
  const ignored = await delayq(['import', other], { input: stdout });
  expect(ignored.stderr).toMatch(/recurring job daily ignored/);
  const dry = await delayq(['import', '--config', '--dry-run', other], { input: stdout });
  expect(dry.stderr).toMatch(/1 recurring job would be put/);
  expect(await delayq(['import', '--config', other], { input: stdout })).toMatchObject({
    code: 0,
    stderr: expect.stringMatching(/0 jobs imported into .*; 1 recurring job put/),
  });
  const again = await delayq(['import', '--config', '--json', other], { input: stdout });
  expect(JSON.parse(again.stdout)).toMatchObject({ created: 0, recurring: 1 });
  const [before, after] = await Promise.all([queue, other].map((name) => delayq(['every', '--list', '--json', name])));
  const of = (text = '') => ({ ...JSON.parse(text).jobs[0], queue: '', created: 0 });
  expect(of(after?.stdout)).toEqual(of(before?.stdout));
  expect(await admin.hget(key(other, 'every'), 'daily')).toMatch(/\n{"big":12345678901234567890}$/);
});

it('an export keeps when an interval comes, also into a queue that has it at other times', async () => {
  const [queue, other] = [freshName(), freshName()];
  const recurring = new Recurring(connection);
  // As if it had been put seven hours ago.
  const from = Math.floor(Date.now() / 1_000) * 1_000 - 7 * 3_600_000;
  const { job } = await recurring.put(queue, { id: 'pulse', when: '10h', from, payload: 1 });
  expect(job.next).toBe(from + 10 * 3_600_000);
  const { stdout } = await delayq(['export', '--config', queue]);
  await delayq(['every', '10h', '--id', 'pulse', other, '1']);
  for (let n = 0; n < 2; n++) {
    expect((await delayq(['import', '--config', other], { input: stdout })).code).toBe(0);
    expect(await recurring.list(other)).toMatchObject([{ id: 'pulse', created: from, next: job.next }]);
  }
  const bad = stdout.replace(`"from":${from}`, '"from":"yesterday"');
  expect(await delayq(['import', '--config', other], { input: bad })).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('10h cannot count from yesterday'),
  });
});

it('that is damaged is told by list, show and doctor; what doctor says removes it, also with an odd id', async () => {
  const queue = freshName();
  await put(queue);
  await admin.hset(key(queue, 'every'), 'one', 'damaged');
  const { stdout } = await delayq(['doctor', queue]);
  expect(stdout).toContain('a recurring job that cannot be read: one\n');
  expect(stdout).toContain(`next: delayq every --remove ${queue} one, or put it again`);
  await admin.hset(key(queue, 'every'), 'bad id ü', 'damaged');
  await admin.hset(key(queue, 'every'), Buffer.from([0xff]), 'damaged');
  for (const word of ['one', 'bad id ü', 'base64:/w==']) {
    const shown = await delayq(['show', queue, word]);
    expect(shown).toMatchObject({ code: 78, stderr: expect.stringContaining(`${word} of ${queue} cannot be read`) });
  }
  for (const more of [[], ['--json']]) {
    const { stdout, stderr } = await delayq(['every', '--list', ...more, queue]);
    expect(stdout).toContain('daily');
    expect(stderr).toMatch(
      new RegExp(`^delayq: ${queue}: 3 recurring jobs cannot be read: .*delayq doctor ${queue}\n$`),
    );
  }
  const [, words = ''] = /--remove \S+ (.*), or put them again/.exec((await delayq(['doctor', queue])).stdout) ?? [];
  expect(words.split(' ').sort()).toEqual([`'bad`, 'base64:/w==', 'id', 'one', `ü'`]);
  const removed = await delayq(['every', '--remove', queue, 'one', 'bad id ü', 'base64:/w==', 'base64:/g==']);
  expect(removed).toMatchObject({ code: 1, stderr: expect.stringContaining('no recurring job base64:/g==') });
  expect(await admin.hkeys(key(queue, 'every'))).toEqual(['daily']);
  await admin.hset(key(queue, 'every'), 'daily', 'damaged');
  expect((await delayq(['every', '--list', queue])).stderr).not.toContain('no recurring jobs');
});

it('needs an id, and does not offer to make one', async () => {
  const { code, stderr } = await delayq(['every', '1h', '--id', '', freshName(), '1']);
  expect(code).toBe(64);
  expect(stderr).toContain('for example daily-report');
});

it.each([
  [['0 0 30 2 *', '--id', 'x'], /never comes/],
  [['0 9 * *', '--id', 'x'], /4 fields/],
  [['0 9 * * *', '--id', 'x', '--tz', 'Mars/X'], /not a time zone/],
  [['500ms', '--id', 'x'], /whole seconds/],
  [['15m'], /needs an id/],
  [['15m', '--id', 'x', '--list'], /cannot be used with/],
])('refuses %j before anything is written', async (words, why) => {
  const queue = freshName();
  const [when = '', ...options] = words;
  const { code, stderr } = await delayq(['every', ...options, when, queue, '1']);
  expect(code).toBe(64);
  expect(stderr).toMatch(why);
  expect(await admin.exists(key(queue, 'config'), key(queue, 'every'))).toBe(0);
});

it('that is due, and nobody drains, is told by inspect and check', async () => {
  const queue = freshName();
  await delayq(['every', '1h', '--id', 'tick', queue, '7']);
  await admin.zadd(key(queue, 'occurs'), Date.now() - 400_000, 'tick');
  const says = /never drained: a recurring job has been due for \d+m/;
  expect((await delayq(['inspect', queue])).stdout).toMatch(says);
  expect((await delayq(['inspect'])).stdout).toMatch(says);
  expect(await delayq(['check', queue])).toMatchObject({
    code: 2,
    stdout: expect.stringMatching(/a recurring job is \d+m/),
  });
  await delayq(['drain', queue, '--', 'true']);
  expect((await delayq(['check', queue])).code).toBe(0);
});

it('whose jobs cannot be made is told by drain, and other jobs are delivered', async () => {
  const server = await during(Server.start());
  const run = (...args: string[]) => delayq([...args, '--redis', server.url]);
  await run('every', '1h', '--id', 'tick', 'q', '7');
  await run('enqueue', 'q', '8');
  await server.admin.zadd(key('q', 'occurs'), Date.now() - 400_000, 'tick');
  await server.admin.config('SET', 'maxmemory', '1');
  const { stdout, stderr } = await run('drain', 'q');
  expect(stdout).toBe('8\n');
  expect(stderr).toMatch(/cannot enqueue the recurring jobs of q\n.*why: .*OOM/);
  await server.admin.config('SET', 'maxmemory', '0');
  expect(await run('drain', 'q')).toMatchObject({ stdout: '7\n', stderr: '' });
});
