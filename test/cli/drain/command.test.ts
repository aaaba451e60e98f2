import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { JsonText } from '../../../src/index.js';
import { begin, delayq, linesOf, sh } from '../../support/cli.js';
import { path, read, script, shell, show, upTo } from '../../support/handlers.js';
import { freshQueue, redisUrl, timePasses } from '../../support/redis.js';
import { until } from '../../support/until.js';

describe.concurrent('delayq drain -- command', () => {
  it('runs a process for each job: payload on stdin, the rest in the environment', async () => {
    const queue = freshQueue();
    const odd = '{"big":12345678901234567890,"s":"it\'s \\"$(touch x)\\" % `id`"}';
    await queue.enqueue({ payload: JsonText.parse(odd), id: 'order:42', at: 1_000, tries: 7 });
    const { code, stdout, stderr } = await delayq(['drain', queue.name, ...shell('cat; env | grep ^DELAYQ_ | sort')]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringMatching(/^delayq: 1 done in \S+\n$/) });
    expect(linesOf(stdout)).toEqual([
      odd,
      'DELAYQ_ANSWER_FD=3',
      'DELAYQ_ATTEMPT=1',
      'DELAYQ_DUE=1000',
      'DELAYQ_ID=order:42',
      `DELAYQ_QUEUE=${queue.name}`,
      expect.stringMatching(/^DELAYQ_RECEIPT=\w{12}$/),
      expect.stringMatching(/^DELAYQ_REDIS_URL=unix:/),
      'DELAYQ_TRIES=7',
    ]);
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, payload: 0, meta: 0, stats: { acked: 1 } });
  });

  it('passes attributes in the environment: those of the job, none of its own surroundings', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, at: 1, attributes: { traceparent: '00-4bf9-01', 'tenant-id': '$(id) "7"' } },
      { payload: 2, at: 2 },
    ]);
    const env = { DELAYQ_ATTR_TRACEPARENT: 'of another job', DELAYQ_ATTR_OTHER: 'x' };
    const shown = shell('cat; env | grep ^DELAYQ_ATTR_ | sort');
    expect(linesOf((await delayq(['drain', queue.name, ...shown], { env })).stdout)).toEqual([
      '1',
      'DELAYQ_ATTR_TENANT_ID=$(id) "7"',
      'DELAYQ_ATTR_TRACEPARENT=00-4bf9-01',
      '2',
    ]);
    await queue.enqueue({ payload: 3, attributes: { a: 'x' } });
    expect((await delayq(['drain', '--pipe', 'cat; env', queue.name], { env })).stdout).not.toContain('DELAYQ_ATTR_');
  });

  it.each([[['--lease', '1m']], [['--envelope', '--at-most-once']], [['--envelope', '--pipe', 'cat']]])(
    'prints envelopes (%j) with attributes only of jobs that have some',
    async (form) => {
      const queue = freshQueue();
      const attributes = { traceparent: '00-4bf9-01' };
      await queue.enqueue([
        { payload: 1, at: 1, attributes },
        { payload: 2, at: 2, tries: 3 },
      ]);
      const lines = linesOf((await delayq(['drain', ...form, queue.name])).stdout).map((line) => JSON.parse(line));
      expect(lines).toMatchObject([{ attributes, payload: 1 }, { payload: 2 }]);
      expect(lines[1]).not.toHaveProperty('attributes');
    },
  );

  it('prints nothing if no job is due, and with -q never', async () => {
    const queue = freshQueue();
    const silent = { code: 0, signal: null, stdout: '', stderr: '' };
    expect(await delayq(['drain', queue.name, '--', 'true'])).toEqual(silent);
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    expect(await delayq(['drain', '-q', queue.name, '--', 'true'])).toEqual(silent);
    expect((await queue.counts()).stats.acked).toBe(2);
  });

  it('prints the outcome of each job with -v', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 0, id: 'a', at: 1 },
      { payload: 1, id: 'b', at: 2 },
      { payload: 65, id: 'c', at: 3 },
    ]);
    const { code, stderr } = await delayq(['drain', '-v', queue.name, ...shell('read x; echo "no $x" >&2; exit $x')]);
    expect(code).toBe(1);
    expect(linesOf(stderr).filter((line) => line.startsWith('delayq'))).toEqual([
      expect.stringMatching(new RegExp(`^delayq: ${queue.name} a: attempt 1, \\S+: done$`)),
      expect.stringMatching(
        new RegExp(`^delayq: ${queue.name} b: attempt 1, \\S+: failed, retry in 1\\ds: exit 1: no 1$`),
      ),
      expect.stringMatching(
        new RegExp(`^delayq: ${queue.name} c: attempt 1, \\S+: dead: refused by its handler: exit 65: no 65$`),
      ),
      expect.stringMatching(/^delayq: 1 done, 1 failed, 1 dead in \S+$/),
    ]);
  });

  it('with --text gives a text as it is, line breaks and all, with a line end if it has none', async () => {
    const queue = freshQueue();
    const texts = ['two\nlines', 'CR\r\nLF\n', '"quoted"', '\n', '', 'ends\n\n', '\u2028 ä \x1b[31m'];
    await queue.enqueue([...texts.map((payload, i) => ({ payload, at: i + 1 })), { payload: { n: 1 } }]);
    const log = path();
    const { code, stderr } = await delayq([
      'drain',
      '-q',
      '--text',
      queue.name,
      ...shell(`cat >> ${log}; echo "<end>" >> ${log}`),
    ]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const lines = texts.map((text) => (text.endsWith('\n') ? text : `${text}\n`));
    expect(read(log).split('<end>\n').slice(0, -1)).toEqual([...lines, '{"n":1}\n']);
  });

  it('a file goes through --text and comes out the same', async () => {
    const queue = freshQueue();
    const [file, copy] = [path(), path()];
    await sh(`seq 3 > ${file}; printf 'a\\\\b\\t"\\r\\n' >> ${file}`);
    expect(await delayq(['enqueue', '-q', '--text', queue.name, `@${file}`])).toMatchObject({ code: 0, stderr: '' });
    await delayq(['drain', '-q', '--text', queue.name, ...shell(`cat > ${copy}`)]);
    expect(read(copy)).toBe(read(file));
    expect(read(file)).toBe('1\n2\n3\na\\b\t"\r\n');
  });

  it('passes arguments on unchanged, and replaces {id} and {queue} if they are a whole argument', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: '$(touch x)', id: '$(touch_x)' });
    const print = script('for arg; do echo "<$arg>"; done');
    const args = ['-v', '--watch', '--', '{id}', '{queue}', 'x{id}', 'a b', '$HOME', ''];
    const { stdout } = await delayq(['drain', queue.name, '--', print, ...args]);
    const seen = ['-v', '--watch', '--', '$(touch_x)', queue.name, 'x{id}', 'a b', '$HOME', ''];
    expect(linesOf(stdout)).toEqual(seen.map((arg) => `<${arg}>`));
  });

  it('never lets a shell parse a payload or an id, in any form (failures 32)', async () => {
    const touched = path();
    const code = `$(touch ${touched}) \`touch ${touched}\` '; touch ${touched}; ' "; touch ${touched}; " % \\ \n`;
    const forms = [
      (name: string) => [name, '--', 'cat'],
      (name: string) => [name, '--', 'sh', '-c', 'cat', '{id}'],
      (name: string) => ['--text', name, '--', 'cat'],
      (name: string) => ['--pipe', 'cat', name],
      (name: string) => ['--envelope', '--pipe', 'cat', name],
      (name: string) => ['--text', name],
    ];
    for (const form of forms) {
      const queue = freshQueue();
      await queue.enqueue({ payload: code, id: `$(touch\${IFS}${touched})` });
      const ended = await delayq(['drain', ...form(queue.name)]);
      expect(ended).toMatchObject({ code: 0, stdout: expect.stringContaining('touch') });
      expect(existsSync(touched)).toBe(false);
    }
  });

  it('removes Redis passwords from the environment of handlers (failures 33)', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const env = {
      DELAYQ_REDIS_URL: redisUrl,
      REDIS_URL: 'rediss://user:se%63ret@host:6379/1',
      REDISCLI_AUTH: 'secret',
      // A path, as that of a key for TLS: who may read the file decides who knows the password.
      DELAYQ_SENTINEL_PASSWORD_FILE: '/run/password',
    };
    const { stdout } = await delayq(['drain', queue.name, '--', 'env'], { env });
    expect(stdout).not.toMatch(/se.?cret|REDISCLI_AUTH/);
    expect(linesOf(stdout)).toEqual(
      expect.arrayContaining([
        'DELAYQ_SENTINEL_PASSWORD_FILE=/run/password',
        'REDIS_URL=rediss://host:6379/1',
        `DELAYQ_REDIS_URL=${redisUrl}`,
      ]),
    );
  });

  it.each([
    ['redis://me:secret@h1:7000,h2', 'redis://h1:7000,h2'],
    ['rediss+cluster://:se@,cret@h1,[::1]:7001', 'rediss+cluster://h1,[::1]:7001'],
    ['redis+sentinel://me:se/#cret@s1,s2/m/2?sentinel-user=u', 'redis+sentinel://s1,s2/m/2?sentinel-user=u'],
    ['redis-sentinel://me:secret@s1?sentinelMasterId=m', 'redis-sentinel://s1?sentinelMasterId=m'],
  ])('passes on REDIS_URL=%s without its login', async (REDIS_URL, without) => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const env = { DELAYQ_REDIS_URL: redisUrl, REDIS_URL };
    const { stdout } = await delayq(['drain', '-q', '--pipe', 'env', queue.name], { env });
    expect(linesOf(stdout)).toContain(`REDIS_URL=${without}`);
  });

  it.each([
    'redis://me:secret@h1,me:secret@h2',
    'redis+sentinel://:secret@s1',
    'redis://:se/cret@host:x',
    'redis://host?password=secret',
    'sentinel://se%%cret',
    'secret',
  ])('does not pass on REDIS_URL=%s, which it cannot parse (failures 33)', async (REDIS_URL) => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const env = { DELAYQ_REDIS_URL: redisUrl, REDIS_URL, DELAYQ_ID: 'secret', DELAYQ_RECEIPT: 'secret' };
    expect((await delayq(['drain', '-q', '--pipe', 'env', queue.name], { env })).stdout).not.toMatch(/cret/);
  });

  it.each([
    [['drain', 'q', './x'], 'the handler must follow --'],
    [['drain', 'q', './x', '--', 'y'], 'the handler must follow --'],
    [['drain', '--', 'q', './x'], 'the handler must follow --'],
    [['drain', '--pipe', 'cat', 'q', '--', './x'], 'two handlers'],
    [['drain', '--at-most-once', 'q', '--', './x'], 'at least once'],
    [['drain', '--batch', '5', 'q', '--', './x'], '--batch needs --pipe'],
    [['drain', '--dead-on', '5', '--pipe', 'cat', 'q'], 'cannot be used with'],
    [['drain', '--dead-on', '0', 'q', '--', './x'], '"0" is not a list'],
    [['drain', 'q', '--', ''], 'the handler is empty'],
    [['drain', 'q', '--'], 'the handler is empty'],
    [['drain', '--pipe', ' ', 'q'], 'the handler is empty'],
    [['drain', '-P', '2', 'q'], '--parallel needs a handler'],
    [['drain', '--timeout', '2s', 'q'], '--timeout needs a handler'],
    [['drain', '--backoff', '5', 'q', '--', 'x'], 'no unit'],
    [['drain', '--rate', '5', 'q', '--', 'x'], '"5" is not a rate'],
    [['drain', '-v', '-q', 'q', '--', 'x'], 'cannot be used with'],
  ])('%j is refused', async (args, message) => {
    expect(await delayq(args as string[])).toMatchObject({
      code: 64,
      stdout: '',
      stderr: expect.stringContaining(message as string),
    });
  });
});

describe.concurrent('delayq drain --pipe', () => {
  it('gives a batch to a shell command, one job a line, and removes it after exit 0', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(250).map((n) => ({ payload: { n }, at: 1_000 + n })));
    const command = 'cat; echo "$DELAYQ_QUEUE end"';
    const { code, stdout, stderr } = await delayq(['drain', '--batch', '100', '--pipe', command, queue.name]);
    const end = `${queue.name} end`;
    const lines = upTo(250).map((n) => `{"n":${n}}`);
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining('250 done') });
    expect(linesOf(stdout)).toEqual([
      ...lines.slice(0, 100),
      end,
      ...lines.slice(100, 200),
      end,
      ...lines.slice(200),
      end,
    ]);
    expect((await queue.counts()).payload).toBe(0);
  });

  it('retries the whole batch after the backoff if the command exits with another status', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(20).map((n) => ({ payload: n, id: `j${n}` })));
    const options = ['--batch', '10', '--backoff', '7s', '--pipe', 'grep -q 15 && exit 65; exit 0'];
    const { code } = await delayq(['drain', ...options, queue.name]);
    expect(code).toBe(0);
    const { pending, dead, stats } = await queue.counts();
    expect({ pending, dead, stats }).toMatchObject({ pending: 10, dead: 0, stats: { acked: 10, retried: 10 } });
    expect(await show(queue, 'j15')).toMatchObject({ failures: 1, error: 'exit 65' });
  });

  it('writes envelopes or texts if asked to', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 'a text', id: 'a' });
    await delayq(['drain', '-q', '--envelope', '--pipe', 'cat; exit 1', '--backoff', '0s', queue.name]).then(
      ({ stdout }) =>
        expect(JSON.parse(stdout)).toMatchObject({ queue: queue.name, id: 'a', attempt: 1, payload: 'a text' }),
    );
    expect((await delayq(['drain', '-q', '--text', '--pipe', 'cat', queue.name])).stdout).toBe('a text\n');
  });

  it('killed: the batch is delivered again after the lease (failures 7)', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(30).map((n) => ({ payload: n })));
    const log = path();
    const running = begin(['drain', '--pipe', `echo $$ > ${log}; exec sleep 600`, queue.name]);
    await until(() => read(log).includes('\n'));
    running.child.kill('SIGKILL');
    await running.ended;
    process.kill(Number(read(log)), 'SIGKILL');
    await timePasses(queue.name, 60_001);
    expect(linesOf((await delayq(['drain', '-q', '--pipe', 'cat', queue.name])).stdout)).toHaveLength(30);
  });
});
