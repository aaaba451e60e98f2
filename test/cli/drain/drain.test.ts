import { describe, expect, it } from 'vitest';
import type { Queue } from '../../../src/index.js';
import { begin, beginSh, delayq, linesOf, onTerminal, sh } from '../../support/cli.js';
import { path, read, shell, upTo } from '../../support/handlers.js';
import { admin, freshName, freshQueue, key, keysLike, timePasses } from '../../support/redis.js';
import { until } from '../../support/until.js';

/** The lines of delayq itself, without those of handlers. */
const said = (stderr: string) => linesOf(stderr).filter((line) => /^(delayq:| {2}\w+:)/.test(line));

describe.concurrent('the summary of a drain', () => {
  it('says how many failed, why, and from when they are retried', async () => {
    const queue = freshQueue();
    await queue.enqueue(['reset', 'refused', 'refused', 'fine'].map((payload, i) => ({ payload, at: i + 1 })));
    const handler = shell('read x; [ "$x" = \'"fine"\' ] && exit 0; echo "connection $x" >&2; exit 1');
    const env = { TZ: 'Europe/Berlin' };
    const { code, stderr } = await delayq(['drain', '--backoff', '1h,2h', queue.name, ...handler], { env });
    expect(code).toBe(0);
    expect(said(stderr)).toEqual([
      expect.stringMatching(/^delayq: 1 done, 3 failed in \S+$/),
      '  why:  exit 1: connection "refused" (2), exit 1: connection "reset" (1)',
      expect.stringMatching(/^ {2}next: first retry due \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0[12]:00, in (1h|59m \d+s)$/),
    ]);
  });

  it('is printed with an invalid time zone, too, and escapes what handlers wrote', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const handler = shell("printf 'more\\n\\033[31mred\\n' >&2; exit 1");
    const { code, stderr } = await delayq(['drain', '--backoff', '1h', queue.name, ...handler], {
      env: { DELAYQ_TZ: 'Nowhere/Land' },
    });
    expect({ code, said: said(stderr).slice(1) }).toEqual({
      code: 1,
      said: ['  why:  exit 1: \\x1b[31mred …', expect.stringMatching(/^ {2}next: first retry due in (1h|59m \d+s)$/)],
    });
  });

  it('groups errors that differ in numbers and hosts, the most frequent first, and counts all but five kinds as others', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(30).map((n) => ({ payload: n, at: n + 1 })));
    const handler = shell(
      'read x; [ $x -ge 25 ] && exec sh -c "exit $x"; [ $x -ge 20 ] || echo "no answer from 10.0.0.$x:80" >&2; exit 1',
    );
    const { code, stderr } = await delayq(['drain', '--max-failures', '100', queue.name, ...handler]);
    expect(code).toBe(1);
    expect(said(stderr).slice(0, 2)).toEqual([
      expect.stringMatching(/^delayq: 30 failed in/),
      '  why:  exit 1: no answer from … (20), exit 1 (5), exit 25 (1), exit 26 (1), exit 27 (1), others (2)',
    ]);
  });

  it('is printed by -q, too, if all failed, and only then', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const drain = (command: string) => delayq(['drain', '-q', queue.name, ...shell(command)]);
    expect(await drain('read x; exit $((x - 1))')).toMatchObject({ code: 0, stderr: '' });
    await timePasses(queue.name, 60_000);
    const { code, stderr } = await drain('exit 1');
    expect(code).toBe(1);
    expect(said(stderr).slice(0, 2)).toEqual([expect.stringMatching(/^delayq: 1 failed in/), '  why:  exit 1']);
  });

  it('of a run that goes on says until when jobs are retried, if the first have been', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const handler = shell('exit 1');
    const running = begin(['drain', '--watch', '--backoff', '100ms,1h', queue.name, ...handler]);
    await until(async () => (await queue.counts()).stats.retried === 2);
    running.child.kill('SIGTERM');
    expect(said((await running.ended).stderr)).toEqual([
      expect.stringMatching(/^delayq: 2 failed in \S+$/),
      '  why:  exit 1',
      expect.stringMatching(/^ {2}next: last retry due .*, in (1h|59m \d+s)$/),
    ]);
  });
});

describe.concurrent('a job that dies', () => {
  /** A queue with a job that dies of each of the causes that a drain can meet. */
  async function dying(): Promise<Queue> {
    const queue = freshQueue();
    await queue.enqueue({ payload: 0, id: 'lost', maxLost: 1 });
    await queue.drain({ leaseMs: 1 });
    await queue.enqueue([
      { payload: 1, id: 'failed', tries: 1 },
      { payload: 65, id: 'refused' },
    ]);
    await admin
      .multi()
      .zadd(key(queue.name, 'pending'), 1, 'ghost\x1b[31m', 2, Buffer.from([0xff]))
      .hset(key(queue.name, 'payload'), Buffer.from([0xff]), '1')
      .exec();
    await timePasses(queue.name, 60_000);
    return queue;
  }
  const taken = [
    ': dead: lease expired too often',
    ' "ghost\\u001b[31m": dead: has no payload',
    ' base64:/w==: dead: has an invalid id',
  ];
  const known = ({ name }: Queue, stderr: string) =>
    said(stderr)
      .map((line) => line.replace(`delayq: ${name}`, '').replace(/attempt 1, [^:]+/, 'TOOK'))
      .map((line) => line.replace(/^ lost/, ''));

  it.each([
    ['-- command', (name: string) => [name, ...shell('read x; echo bad >&2; exit $x')]],
    ['--pipe', (name: string) => ['--pipe', 'read x; echo bad >&2; exit $x', '--batch', '1', name]],
  ])('is named by -q, with the reason: %s', async (form, args) => {
    const queue = await dying();
    const { code, stderr } = await delayq(['drain', '-q', ...args(queue.name)]);
    expect(code).toBe(1);
    expect(known(queue, stderr)).toEqual([
      ...taken,
      ' failed: TOOK: dead: failed too often: exit 1: bad',
      // A batch cannot be refused: its jobs fail.
      ...(form === '--pipe'
        ? [
            expect.stringMatching(/^delayq: 1 failed, 1 dead in/),
            '  why:  exit 65: bad',
            expect.stringMatching('next: '),
          ]
        : [' refused: TOOK: dead: refused by its handler: exit 65: bad']),
    ]);
  });

  it.each([['-q'], ['-q --lease 1m'], ['-q --at-most-once']])('is named in every form to stdout: %s', async (form) => {
    const queue = await dying();
    const { stderr } = await sh(`delayq drain ${form} ${queue.name} > ${path()}`);
    expect(known(queue, stderr)).toEqual(taken);
  });

  it('is one line of many in a flood, which ends with how many more there are, and how to list them', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(50).map((n) => ({ payload: n, tries: 1, at: n + 1 })));
    await admin.zadd(key(queue.name, 'pending'), ...upTo(5).flatMap((n) => [1, `ghost${n}`]));
    const { stderr } = await delayq(['drain', '-q', '--max-failures', '100', queue.name, '--', 'false']);
    const lines = linesOf(stderr);
    expect(lines.slice(0, 20).every((line) => line.includes(': dead: '))).toBe(true);
    expect(lines.slice(20)).toEqual([
      `delayq: ${queue.name}: 35 more jobs died; list them: delayq list --dead ${queue.name}`,
    ]);
    const listed = await delayq(['list', '--dead', '--json', queue.name]);
    expect(linesOf(listed.stdout)).toHaveLength(55);
  });

  it('is named however many there are with -v', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(30).map((n) => ({ payload: n, tries: 1 })));
    const { stderr } = await delayq(['drain', '-v', '--max-failures', '100', queue.name, '--', 'false']);
    expect(stderr.match(/: dead: failed too often/g)).toHaveLength(30);
  });

  it('is named, and expired jobs are, if the drain fails at its end', async () => {
    const [queue, broken] = [await dying(), freshQueue()];
    await queue.enqueue({ payload: 1, id: 'old', at: 1, ttl: '1s' });
    await admin.set(key(broken.name, 'dead'), 'x');
    const { code, stderr } = await delayq(['drain', `${queue.name},${broken.name}`, '--', 'false']);
    expect(code).toBe(78);
    expect(known(queue, stderr)).toEqual(
      expect.arrayContaining([
        ...taken,
        expect.stringMatching(/^delayq: 1 failed, 1 dead in/),
        ': 1 job expired and dropped',
      ]),
    );
  });
});

describe.concurrent('after a signal a drain that has to wait says for what', () => {
  const slow = async (...options: string[]) => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const [log, go] = [path(), path()];
    const handler = shell(`echo >> ${log}; while [ ! -e ${go} ]; do sleep 0.05; done`);
    const running = begin(['drain', ...options, '-P', '2', queue.name, ...handler]);
    await until(() => read(log).length === 2);
    running.child.kill('SIGTERM');
    return { running, go };
  };

  it('handlers, and for how long', async () => {
    const { running, go } = await slow('--grace', '20s');
    await until(() => running.stderr !== '');
    expect(running.stderr).toBe('delayq: waiting up to 20s for 2 handlers; a second signal stops at once\n');
    await sh(`touch ${go}`);
    expect(await running.ended).toMatchObject({ code: 0, stderr: expect.stringMatching(/\n.*: 2 done in \S+\n$/) });
  });

  it('the reader of its output', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(5_000).map((n) => ({ payload: { n, pad: 'x'.repeat(100) } })));
    const [pid, go] = [path(), path()];
    const drain = `sh -c 'echo $$ > ${pid}; exec delayq drain ${queue.name}'`;
    const running = beginSh(`${drain} | { while [ ! -e ${go} ]; do sleep 0.05; done; cat > ${path()}; }`);
    // More than fits into the pipe.
    await until(async () => (await queue.counts()).active >= 1_000);
    process.kill(Number(read(pid)), 'SIGTERM');
    await until(() => running.stderr !== '');
    expect(running.stderr).toContain('waiting up to 30s for the reader of stdout');
    await sh(`touch ${go}`);
    await running.ended;
    await until(async () => (await queue.counts()).active === 0);
  });

  it('not with -q, nor if it ends sooner', async () => {
    const [quiet, short] = await Promise.all([
      slow('-q', '--grace', '1500ms', '--kill-after', '0s'),
      slow('--grace', '100ms', '--kill-after', '0s'),
    ]);
    expect((await quiet.running.ended).stderr).toBe('');
    expect((await short.running.ended).stderr).toMatch(/^delayq: 2 given back in \S+\n$/);
  });
});

describe.concurrent('a queue that does not exist', () => {
  it('is told of beside one of a similar name; beside no such one only on a terminal and with -v', async () => {
    const [queue, name] = [freshQueue(), freshName()];
    await queue.enqueue({ payload: 1, in: '1h' });
    await admin.sadd('delayq:queues', queue.name);
    const drain = (...args: string[]) => delayq(['drain', ...args, '--', 'true']);
    const silent = { code: 0, signal: null, stdout: '', stderr: '' };
    const told = `delayq: there is no queue ${queue.name}x yet; similar: ${queue.name}\n`;
    const unlike = `delayq: there is no queue ${name} yet; list them: delayq inspect\n`;
    expect(await drain(`${queue.name}x`)).toEqual({ ...silent, stderr: told });
    expect(await drain('-q', `${queue.name}x`)).toEqual({ ...silent, stderr: told });
    expect(await drain(name)).toEqual(silent);
    expect(await drain('-v', `${queue.name},${name}`)).toEqual({ ...silent, stderr: unlike });
    expect(await onTerminal(`delayq drain ${name} -- true; echo "ended with $?"`)).toBe(`${unlike}ended with 0\n`);
    expect(await onTerminal(`delayq drain -q ${name} -- true`)).toBe('');
    expect(await keysLike(key(`${queue.name}x`, '*'))).toEqual([]);
  });

  it('is told of once by a drain that goes on, in each form', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, in: '1h' });
    const misspelt = `${queue.name}x`;
    const told = `delayq: there is no queue ${misspelt} yet; similar: ${queue.name}\n`;
    for (const rest of ['-- cat', '| cat']) {
      const running = beginSh(`delayq drain --for 2500ms ${misspelt} ${rest}`);
      expect(await running.ended).toMatchObject({ code: 0, stdout: '', stderr: told });
    }
  });

  it('is none if it was made before its first job, or all its jobs are done', async () => {
    const [other, made, done] = [freshQueue(), freshName(), freshQueue()];
    await other.enqueue({ payload: 1, in: '1h' });
    await delayq(['config', '--create', made, 'tries=3']);
    await done.enqueue({ payload: 1 });
    const drain = () => delayq(['drain', '-v', `${made},${done.name}`, '--', 'cat']);
    await drain();
    expect(await drain()).toEqual({ code: 0, signal: null, stdout: '', stderr: '' });
  });
});
