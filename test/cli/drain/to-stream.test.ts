import { describe, expect, it } from 'vitest';
import { Connection, Operator, Queue, Recurring } from '../../../src/index.js';
import { afterwards, during } from '../../support/afterwards.js';
import { begin, delayq, linesOf } from '../../support/cli.js';
import { upTo } from '../../support/jobs.js';
import { FaultyProxy } from '../../support/proxy.js';
import {
  admin,
  connection,
  freshQueue,
  key,
  listeners,
  onCluster,
  redisTargets,
  timePasses,
} from '../../support/redis.js';
import { Server } from '../../support/server.js';
import { until, within } from '../../support/until.js';

const streamOf = ({ name }: Queue) => key(name, 'stream');
const length = (queue: Queue) => admin.xlen(streamOf(queue));

/** A field of each entry of a stream. */
const fieldsIn = async (stream: string, field = 'id') =>
  (await admin.xrange(stream, '-', '+')).map(([, words]) => words[words.indexOf(field) + 1] as string);

/** Enqueues n due jobs, j0, j1 … */
const fill = (queue: Queue, n: number) =>
  queue.enqueue(upTo(n).map((i) => ({ id: `j${i}`, payload: i, at: 1_000 + i })));
const withDue = async (n: number) => {
  const queue = freshQueue();
  await fill(queue, n);
  return queue;
};

/** Has a group read n entries, and ack them. Makes the group if it is not there. */
async function consume(queue: Queue, n: number, group = 'g'): Promise<void> {
  const stream = streamOf(queue);
  await admin.xgroup('CREATE', stream, group, '0', 'MKSTREAM').catch(() => {});
  const read = await admin.xreadgroup('GROUP', group, 'me', 'COUNT', n, 'STREAMS', stream, '>');
  const [[, entries]] = read as [[string, [string, string[]][]]];
  await admin.xack(stream, group, ...entries.map(([id]) => id));
}

const toStream = ({ name }: Queue, ...more: string[]) => delayq(['drain', name, '--to-stream', ...more]);
const watching = async (queue: Queue, ...more: string[]) => {
  const running = begin(['drain', queue.name, '--watch', '--to-stream', ...more]);
  await until(async () => (await listeners(key(queue.name, 'wake'))) > 0);
  return running;
};

describe.concurrent('delayq drain --to-stream', () => {
  it('moves what is due, oldest first, says how many, and prints nothing', async () => {
    const queue = await withDue(600);
    await queue.enqueue({ payload: 1, in: '1h' });
    const { code, stdout, stderr } = await toStream(queue);
    expect({ code, stdout, stderr }).toEqual({
      code: 0,
      stdout: '',
      stderr: expect.stringMatching(/^delayq: 600 handed over in \S+\n$/),
    });
    expect(await fieldsIn(streamOf(queue))).toEqual(upTo(600).map((i) => `j${i}`));
    const { pending, stats } = await queue.counts();
    expect(pending).toBe(1);
    expect(await admin.hget(key(queue.name, 'stats'), 'late:inf')).toBe('600');
    expect(stats).toMatchObject({ delivered: 600, removed: 600 });
  });

  it('is silent with -q, and with -v reports each call', async () => {
    const queue = await withDue(2);
    expect(await toStream(queue, '-q', '-n', '1')).toMatchObject({ code: 0, stderr: '' });
    const { stderr } = await toStream(queue, '-v');
    expect(linesOf(stderr)[0]).toBe(`delayq: ${queue.name}: 1 job to ${streamOf(queue)}, not acked there: 2`);
    expect(await toStream(queue)).toMatchObject({ code: 0, stderr: '' });
  });

  it('moves as many as -n says', async () => {
    const queue = await withDue(5);
    expect(await toStream(queue, '-n', '3')).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('3 handed over'),
    });
    expect(await length(queue)).toBe(3);
  });

  it('exits 3 as it is asked to if nothing was due, or if there is no queue', async () => {
    const queue = freshQueue();
    expect(await toStream(queue, '--must-exist')).toMatchObject({ code: 3 });
    expect(await toStream(queue, '--fail-if-empty')).toMatchObject({ code: 3 });
    await fill(queue, 1);
    expect(await toStream(queue, '--fail-if-empty', '--must-exist')).toMatchObject({ code: 0 });
    expect(await admin.exists(streamOf(freshQueue()))).toBe(0);
  });

  it('drops what has expired, remembers ids, and counts both', async () => {
    const queue = freshQueue();
    const [old, once] = [
      { id: 'old', payload: 1, ttl: '1m' },
      { id: 'once', payload: 2, onceFor: '1h' },
    ];
    await queue.enqueue([old, once]);
    await timePasses(queue.name, 60_001);
    const { code, stderr } = await toStream(queue);
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining('1 job expired and dropped') });
    expect(await fieldsIn(streamOf(queue))).toEqual(['once']);
    expect((await queue.enqueue([old, once])).map(({ outcome }) => outcome)).toEqual(['created', 'kept-done']);
  });

  it('takes back jobs whose leases have expired', async () => {
    const queue = await withDue(2);
    await queue.drain({ leaseMs: 1_000 });
    await timePasses(queue.name, 1_001);
    expect(await toStream(queue)).toMatchObject({ code: 0 });
    expect(await queue.counts()).toMatchObject({ active: 0, stats: { lost: 2, removed: 2 } });
    expect(await fieldsIn(streamOf(queue))).toEqual(['j0', 'j1']);
  });

  it('makes the jobs of recurring ones', async () => {
    const queue = freshQueue();
    await new Recurring(connection).put(queue.name, { id: 'tick', when: '1h', payload: 7 });
    await timePasses(queue.name, 3_600_001);
    expect(await toStream(queue)).toMatchObject({ code: 0 });
    expect(await fieldsIn(streamOf(queue))).toEqual([expect.stringMatching(/^tick@/)]);
    expect(await fieldsIn(streamOf(queue), 'payload')).toEqual(['7']);
  });

  it('takes nothing of a paused queue', async () => {
    const queue = await withDue(1);
    const operator = new Operator(connection);
    await operator.pause(queue.name);
    expect(await toStream(queue)).toMatchObject({ code: 0 });
    expect(await length(queue)).toBe(0);
    await operator.resume(queue.name);
    expect(await toStream(queue)).toMatchObject({ code: 0 });
    expect(await length(queue)).toBe(1);
  });

  it('keeps the rate of the queue, and ends with --for', async () => {
    const queue = await withDue(10);
    await new Operator(connection).configure(queue.name, { rate: { jobs: 3, perMs: 3_600_000 }, burst: 3 });
    expect(await toStream(queue, '--for', '300ms')).toMatchObject({ code: 0 });
    expect(await length(queue)).toBe(3);
  });

  it('buries what no consumer could be given, says so, and exits 1', async () => {
    const queue = await withDue(1);
    await admin.zadd(key(queue.name, 'pending'), 1, Buffer.from([0xff]));
    await admin.hset(key(queue.name, 'payload'), Buffer.from([0xff]) as unknown as string, '1');
    const { code, stderr } = await toStream(queue);
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('dead:') });
    expect(await fieldsIn(streamOf(queue))).toEqual(['j0']);
  });

  it('takes another key with the hash tag of the queue', async () => {
    const queue = await withDue(1);
    const other = `{${queue.name}}:jobs`;
    expect(await toStream(queue, other)).toMatchObject({ code: 0 });
    expect(await fieldsIn(other)).toEqual(['j0']);
  });

  it('watches, and moves each job when it falls due, until it is stopped', async () => {
    const queue = await withDue(1);
    const running = await watching(queue);
    await until(async () => (await length(queue)) === 1);
    await queue.enqueue({ id: 'now', payload: 1 });
    await queue.enqueue({ id: 'soon', payload: 1, in: 300 });
    await until(async () => (await length(queue)) === 3);
    running.child.kill('SIGTERM');
    const { code, stderr } = await running.ended;
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringMatching(/^delayq: 3 handed over in .*\n$/) });
    expect(await fieldsIn(streamOf(queue))).toEqual(['j0', 'now', 'soon']);
  });
});

describe.concurrent('delayq drain --to-stream refuses', () => {
  it.each([
    ['no tag', () => 'jobs', /unless it contains \{/],
    ['another tag', () => '{other}:jobs', /on another node/],
    ['the tag of a partition', (name: string) => `{${name}/1.7}:jobs`, /on another node/],
    ['a second tag', (name: string) => `{a}{${name}}`, /on another node/],
    ['an empty name', () => '', /on another node/],
    ['a key of the queue', (name: string) => `delayq:{${name}}:pending`, /keys of queues/],
    ['a key of the queue under another prefix', (name: string) => `shop:{${name}}:done`, /keys of queues/],
  ])('a key with %s, and says which to use', async (_, keyOf, why) => {
    const queue = await withDue(1);
    const { code, stderr } = await toStream(queue, keyOf(queue.name));
    expect({ code, stderr }).toEqual({ code: 64, stderr: expect.stringMatching(why) });
    expect(stderr).toContain(`next: use another key, for example '{${queue.name}}:jobs'`);
    expect(await queue.counts()).toMatchObject({ pending: 1 });
  });

  it.each([
    ['several queues', ['drain', 'a,b', '--to-stream'], /run a drain for each queue/],
    ['a handler', ['drain', 'a', '--to-stream', '--', 'true'], /does not work with a handler/],
    ...['--pipe=x', '--lease=5m', '--envelope', '--text', '--at-most-once', '--grace=1s', '-P2', '--timeout=1s'].map(
      (option) => [option, ['drain', 'a', option, '--to-stream'], /does not work with --/] as const,
    ),
    ['no queue', ['drain', '--to-stream', 'a'], /name the queue before --to-stream/],
    ['--max-unacked=0', ['drain', 'a', '--to-stream', '--max-unacked=0'], /not a count/],
    ['--max-unacked alone', ['drain', 'a', '--max-unacked=5'], /needs --to-stream/],
  ] as const)('%s', async (_, args, words) => {
    const { code, stderr } = await delayq([...args]);
    expect({ code, stderr }).toEqual({ code: 64, stderr: expect.stringMatching(words) });
    expect(stderr).toMatch(/next: /);
  });

  it('a queue with partitions, also one that gets them while it watches', async () => {
    const queue = await withDue(1);
    expect(await delayq(['config', queue.name, 'partitions=2'])).toMatchObject({ code: 0 });
    const error =
      /^delayq: the jobs of \S+ cannot go to a stream\n +why: +it has 2 partitions.*\n +next: drain it into/;
    const { code, stderr } = await toStream(queue);
    expect({ code, stderr }).toEqual({ code: 78, stderr: expect.stringMatching(error) });
    expect((await queue.counts()).pending).toBe(1);
    const growing = freshQueue();
    const running = await watching(growing);
    expect(await delayq(['config', '--create', growing.name, 'partitions=2'])).toMatchObject({ code: 0 });
    expect(await running.ended).toMatchObject({ code: 78, stderr: expect.stringMatching(error) });
  });

  it('a queue with max-active: nothing holds a place', async () => {
    const queue = await withDue(1);
    await new Operator(connection).configure(queue.name, { maxActive: 2 });
    expect(await toStream(queue)).toMatchObject({ code: 78, stderr: expect.stringContaining('LIMITED') });
    expect(await length(queue)).toBe(0);
  });

  it('a key that is not a stream', async () => {
    const queue = await withDue(1);
    await admin.set(streamOf(queue), 'x');
    const { code, stderr } = await toStream(queue, '--for', '10s');
    expect({ code, stderr }).toEqual({ code: 78, stderr: expect.stringContaining('is a string, not a stream') });
    expect(await queue.counts()).toMatchObject({ pending: 1 });
  });
});

describe.concurrent('with as many unacked entries as --max-unacked, delayq drain --to-stream', () => {
  it.each([
    ['without a group', undefined, /it has 3 entries and no group\n +next: .*XGROUP CREATE/],
    ['with a group', 'g', /the group g has not acked 3 entries\n +next: .*XINFO GROUPS.*XAUTOCLAIM/],
  ])('%s moves no more, says what to do, and exits 1', async (_, group, why) => {
    const queue = await withDue(5);
    if (group) await admin.xgroup('CREATE', streamOf(queue), group, '0', 'MKSTREAM');
    for (const more of [[], ['--fail-if-empty'], ['--for', '200ms'], ['-q']]) {
      const { code, stderr } = await toStream(queue, '--max-unacked', '3', ...more);
      expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(why) });
      expect(stderr.match(/stay pending/g)).toHaveLength(1);
      expect(await length(queue)).toBe(3);
    }
    expect(await queue.counts()).toMatchObject({ pending: 2 });
  });

  it('exits 0 if it has moved as many as -n says', async () => {
    const queue = await withDue(5);
    expect(await toStream(queue, '--max-unacked', '3', '-n', '3')).toMatchObject({ code: 0 });
  });

  it('with --watch waits without haste, goes on when entries are acked, and says both once', async () => {
    const queue = await withDue(30);
    const running = await watching(queue, '--max-unacked', '10');
    await until(() => running.stderr.includes('stay pending'));
    let acked = 0;
    for (const n of [10, 1, 4, 10]) {
      await consume(queue, n);
      acked += n;
      await until(async () => (await queue.counts()).pending === Math.max(0, 20 - acked));
      expect(await length(queue)).toBeLessThanOrEqual(10);
    }
    await until(() => running.stderr.includes('all due jobs'));
    running.child.kill('SIGTERM');
    const { code, stderr } = await running.ended;
    expect(code).toBe(0);
    expect(stderr.match(/stay pending/g)).toHaveLength(1);
    expect(stderr.match(new RegExp(`all due jobs of ${queue.name} are in ${streamOf(queue)} after `))).toHaveLength(1);
    expect(stderr).toMatch(/30 handed over/);
  });
});

describe.concurrent('what was moved into a stream is there once, although', () => {
  it('drains are killed at any moment', async () => {
    const queue = freshQueue();
    const ids: string[] = [];
    const rounds = 6;
    for (let round = 0; round < rounds; round++) {
      const some = upTo(1_500).map((i) => `r${round}.${i}`);
      await queue.enqueue(some.map((id) => ({ id, payload: id, at: 1_000 })));
      ids.push(...some);
      const drains = upTo(2).map(() => begin(['drain', queue.name, '--to-stream', '--max-unacked', '1000000']));
      // Kills them when about so many of the jobs of this round are left.
      const rest = Math.floor(Math.random() * some.length);
      await until(async () => (await queue.counts()).pending <= rest);
      for (const { child } of drains) child.kill('SIGKILL');
      await Promise.all(drains.map(({ ended }) => ended));
    }
    expect(await toStream(queue, '--max-unacked', '1000000')).toMatchObject({ code: 0 });
    expect((await fieldsIn(streamOf(queue))).sort()).toEqual(ids.sort());
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, payload: 0 });
  });

  it.each([[[]], [['--for', '10s']]])('a reply is lost: %j', async (more) => {
    const queue = await withDue(600);
    const proxy = await during(FaultyProxy.start(...redisTargets));
    proxy.fault = { word: streamOf(queue), kind: 'cut', times: 1 };
    const env = { DELAYQ_REDIS_URL: proxy.url };
    const running = begin(['drain', queue.name, '--to-stream', ...more], { env });
    await until(async () => (await queue.counts()).pending === 0);
    if (more.length > 0) running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
    expect(proxy.struck).toBe(1);
    expect(await fieldsIn(streamOf(queue))).toEqual(upTo(600).map((i) => `j${i}`));
  });

  it('a reply is lost under a limit, which is never exceeded', async () => {
    const queue = await withDue(10);
    const proxy = await during(FaultyProxy.start(...redisTargets));
    proxy.fault = { word: streamOf(queue), kind: 'cut', times: 1 };
    const { code, stderr } = await delayq(['drain', queue.name, '--to-stream', '-n', '4', '--watch'], {
      env: { DELAYQ_REDIS_URL: proxy.url },
    });
    expect({ code, stderr }).toEqual({ code: 75, stderr: expect.stringContaining('nothing is lost') });
    // The first call may go to another node of a cluster, which does nothing.
    expect(await length(queue)).toBeOneOf(onCluster ? [0, 4] : [4]);
  });
});

describe.concurrent('a drain into a stream', () => {
  const own = async () => {
    const server = await during(Server.start());
    const redis = new Connection(server.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, 'q');
    await fill(queue, 3);
    return { server, queue, env: { DELAYQ_REDIS_URL: server.url } };
  };

  it('waits until Redis is back, and goes on', async () => {
    const { server, env } = await own();
    await server.admin.config('SET', 'min-replicas-to-write', '1');
    const running = begin(['drain', 'q', '--watch', '--to-stream'], { env });
    await until(() => running.stderr.includes('still trying'));
    await server.admin.config('SET', 'min-replicas-to-write', '0');
    await until(async () => (await server.admin.xlen('delayq:{q}:stream')) === 3);
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0, stderr: expect.stringContaining('Redis is back') });
  });

  it('ends soon when it is stopped while Redis is frozen, and says that nothing is lost', async () => {
    const { server, env } = await own();
    const running = begin(['drain', 'q', '--watch', '--to-stream'], { env });
    await until(async () => (await server.admin.xlen('delayq:{q}:stream')) === 3);
    server.signal('SIGSTOP');
    await until(() => running.stderr.includes('still trying'));
    running.child.kill('SIGTERM');
    const ended = await within(25_000, 'a drain that is stopped', running.ended);
    expect(ended.code).toBeOneOf([0, 75]);
    if (ended.code === 75) expect(ended.stderr).toContain('nothing is lost');
    server.signal('SIGCONT');
  });

  it('needs permissions, of which doctor --acl tells all', async () => {
    const { server } = await own();
    const line = (await delayq(['doctor', '--acl', '--redis-version', '7.0', 'q'])).stdout.trim();
    const [, ...words] = line.replace(/#\S+/, '>secret').split(' ');
    await server.admin.call('ACL', ...words);
    const env = { DELAYQ_REDIS_URL: server.url.replace('://', '://app:secret@') };
    expect(await delayq(['drain', 'q', '--to-stream', '-n', '1'], { env })).toMatchObject({ code: 0 });
    const { code, stderr } = await delayq(['drain', 'q', '--to-stream', '{q}:jobs'], { env });
    expect({ code, stderr }).toEqual({ code: 77, stderr: expect.stringMatching(/NOPERM|key/) });
    await server.admin.call('ACL', 'SETUSER', 'app', '-xadd');
    expect(await delayq(['drain', 'q', '--to-stream'], { env })).toMatchObject({ code: 77 });
    expect(await server.admin.xlen('delayq:{q}:stream')).toBe(1);
    expect(await server.admin.zcard('delayq:{q}:pending')).toBe(2);
  });
});
