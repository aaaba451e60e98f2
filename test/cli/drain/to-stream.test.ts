import { describe, expect, it } from 'vitest';
import { type Queue, RawPayload, Recurring } from '../../../src/index.js';
import { during } from '../../support/afterwards.js';
import { begin, delayq } from '../../support/cli.js';
import { upTo } from '../../support/handlers.js';
import { FaultyProxy } from '../../support/proxy.js';
import { admin, connection, freshQueue, key, onCluster, redisTargets, timePasses } from '../../support/redis.js';
import { scriptHash } from '../../support/scripts.js';
import { until } from '../../support/until.js';

const streamOf = (queue: Queue) => key(queue.name, 'stream');
const toStream = (queue: Queue, ...options: string[]) => delayq(['drain', queue.name, '--to-stream', ...options]);

/** The entries of a stream, their fields as an object. */
async function entries(stream: string): Promise<Record<string, string>[]> {
  const found = await admin.xrange(stream, '-', '+');
  return found.map(([, fields]) =>
    Object.fromEntries(upTo(fields.length / 2).map((i) => [fields[2 * i], fields[2 * i + 1]])),
  );
}

const numbered = (n: number) => upTo(n).map((i) => ({ payload: i, id: `job-${i}`, at: 1_000 + i }));

describe.concurrent('delayq drain --to-stream', () => {
  it('moves due jobs into the stream of the queue, oldest first, and removes them', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: { n: 2 }, id: 'b', at: 2_000, attributes: { tenant: '7' } },
      { payload: { n: 1 }, id: 'a', at: 1_000 },
      { payload: 'later', in: '1h' },
    ]);
    expect(await toStream(queue)).toMatchObject({
      ...{ code: 0, stdout: '' },
      stderr: expect.stringMatching(`^delayq: handed 2 jobs to ${streamOf(queue)} in `),
    });
    expect(await entries(streamOf(queue))).toEqual([
      { id: 'a', queue: queue.name, due: '1000', payload: '{"n":1}' },
      { id: 'b', queue: queue.name, due: '2000', payload: '{"n":2}', attributes: '{"tenant":"7"}' },
    ]);
    expect(await queue.counts()).toMatchObject({
      ...{ pending: 1, active: 0, payload: 1, meta: 0, lease: 0, stats: { delivered: 2, removed: 2 } },
    });
  });

  it('takes another stream in the slot of the queue, and payloads of any bytes and size', async () => {
    const queue = freshQueue();
    const bytes = Buffer.from([0xff, 0, 10, 65]);
    const long = 'x'.repeat(8 * 1024 * 1024 - 2);
    await queue.enqueue([
      { payload: new RawPayload(bytes), id: 'bytes', at: 1 },
      { payload: long, id: 'long', at: 2 },
    ]);
    const stream = `{${queue.name}}:jobs`;
    expect(await toStream(queue, stream)).toMatchObject({ code: 0 });
    const [first, second] = await admin.xrangeBuffer(stream, '-', '+');
    expect(first?.[1][7]).toEqual(bytes);
    expect(second?.[1][7]?.length).toBe(long.length + 2);
  });

  it.each([
    ['orders', 'in one slot'],
    ['{other}:orders', 'in one slot'],
    ['{}orders', 'in one slot'],
    ['delayq:{QUEUE}:payload', 'it is a key of the queue itself'],
    ['delayq:{QUEUE}:wake', 'it is a key of the queue itself'],
  ])('refuses %s as a stream', async (stream, why) => {
    const queue = freshQueue();
    await queue.enqueue(numbered(1));
    const { code, stderr } = await toStream(queue, stream.replace('QUEUE', queue.name));
    expect({ code, stderr }).toEqual({ code: 64, stderr: expect.stringContaining(why) });
    expect(await queue.counts()).toMatchObject({ pending: 1 });
  });

  it('refuses a key of another type, several queues, partitions and max-active, and changes nothing', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(2));
    await admin.set(streamOf(queue), 'text');
    expect(await toStream(queue)).toMatchObject({
      code: 78,
      stderr: expect.stringContaining(`STREAM ${streamOf(queue)} is a string, not a stream`),
    });
    expect(await queue.counts()).toMatchObject({ pending: 2, stats: { enqueued: 2 } });
    expect(await admin.del(streamOf(queue))).toBe(1);
    expect(await delayq(['drain', `${queue.name},other`, '--to-stream'])).toMatchObject({ code: 64 });
    await delayq(['config', queue.name, 'max-active=2']);
    expect(await toStream(queue)).toMatchObject({ code: 78, stderr: expect.stringContaining('max-active') });
    await delayq(['config', queue.name, 'max-active=']);
    await delayq(['config', queue.name, 'partitions=2']);
    expect(await toStream(queue)).toMatchObject({ code: 78, stderr: expect.stringContaining('several partitions') });
    expect(await queue.counts()).toMatchObject({ pending: 2 });
    expect(await admin.exists(streamOf(queue))).toBe(0);
  });

  it('drops what is past its time to live, remembers ids, and makes recurring jobs', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, id: 'late', at: 1_000, ttl: '1s' },
      { payload: 2, id: 'once', onceFor: '1h' },
    ]);
    await new Recurring(connection).put(queue.name, { id: 'tick', when: '1h', payload: 3 });
    await timePasses(queue.name, 3_600_000);
    expect(await toStream(queue, '-q')).toMatchObject({ code: 0 });
    const ids = (await entries(streamOf(queue))).map(({ id }) => id);
    expect(ids).toEqual(['once', expect.stringMatching(/^tick@/)]);
    expect(await queue.enqueue({ payload: 2, id: 'once' })).toMatchObject({ outcome: 'kept-done' });
  });

  it('keeps the rate of the queue', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(10));
    await delayq(['config', queue.name, 'rate=1/h', 'burst=3']);
    expect(await toStream(queue, '--for', '1s')).toMatchObject({ code: 0 });
    expect(await entries(streamOf(queue))).toHaveLength(3);
  });

  it('with -n hands over so many', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(700));
    expect(await toStream(queue, '-n', '600', '-q')).toMatchObject({ code: 0, stderr: '' });
    expect(await entries(streamOf(queue))).toHaveLength(600);
    expect(await queue.counts()).toMatchObject({ pending: 100 });
  });

  it('with --watch hands over each job when it falls due, and ends at once when it is stopped', async () => {
    const queue = freshQueue();
    const running = begin(['drain', '--watch', queue.name, '--to-stream']);
    await queue.enqueue({ payload: 1, in: 300 });
    await until(async () => (await admin.xlen(streamOf(queue))) === 1);
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0, stderr: expect.stringContaining('handed 1 job') });
  });
});

describe.concurrent('what groups have acked', () => {
  const readBy = async (stream: string, group: string, n: number, acks: number) => {
    await admin.xgroup('CREATE', stream, group, '0', 'MKSTREAM').catch(() => {});
    const read = (await admin.xreadgroup('GROUP', group, 'me', 'COUNT', n, 'STREAMS', stream, '>')) as
      | [string, [string, string[]][]][]
      | null;
    const ids = read?.[0]?.[1].map(([id]) => id) ?? [];
    if (acks > 0) await admin.xack(stream, group, ...ids.slice(0, acks));
    return ids;
  };

  it('is trimmed, up to the first entry that some group has not acked', async () => {
    const queue = freshQueue();
    const stream = streamOf(queue);
    await queue.enqueue(numbered(10));
    await toStream(queue);
    expect(await admin.xlen(stream)).toBe(10);
    await toStream(queue);
    // No group: nobody has acked anything.
    expect(await admin.xlen(stream)).toBe(10);
    await readBy(stream, 'fast', 10, 10);
    const slow = await readBy(stream, 'slow', 6, 4);
    await toStream(queue);
    expect((await admin.xrange(stream, '-', '+', 'COUNT', 1))[0]?.[0]).toBe(slow[4]);
    await admin.xack(stream, 'slow', ...slow.slice(4));
    await readBy(stream, 'slow', 10, 10);
    await toStream(queue);
    expect(await admin.xlen(stream)).toBe(1);
  });

  it('makes room: while --max-unacked entries are not acked, jobs stay pending', async () => {
    const queue = freshQueue();
    const stream = streamOf(queue);
    await queue.enqueue(numbered(30));
    const full = await toStream(queue, '--max-unacked', '12');
    expect(full).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`${stream} is full: no more jobs are handed to it, and stay pending`),
    });
    expect([await admin.xlen(stream), (await queue.counts()).pending]).toEqual([12, 18]);
    await readBy(stream, 'g', 5, 5);
    expect(await toStream(queue, '--max-unacked', '12')).toMatchObject({
      ...{ code: 1, stderr: expect.stringContaining('the group g has not acked 12 jobs') },
    });
    expect((await queue.counts()).pending).toBe(13);
    await readBy(stream, 'g', 100, 100);
    expect(await toStream(queue, '--max-unacked', '20')).toMatchObject({ code: 0 });
    expect((await queue.counts()).pending).toBe(0);
    expect(new Set((await entries(stream)).map(({ id }) => id)).size).toBeGreaterThanOrEqual(13);
  });

  it('is counted by the length where the server does not know how far a group lags', async () => {
    const queue = freshQueue();
    const stream = streamOf(queue);
    await queue.enqueue(numbered(20));
    await toStream(queue, '-n', '6', '-q');
    await admin.xgroup('CREATE', stream, 'g', '0');
    const [, [second = ''] = []] = await admin.xrange(stream, '-', '+');
    await admin.xdel(stream, second);
    const [info] = (await admin.xinfo('GROUPS', stream)) as unknown[][];
    expect(info?.[(info?.indexOf('lag') ?? 0) + 1]).toBeNull();
    expect(await toStream(queue, '--max-unacked', '8')).toMatchObject({ code: 1 });
    expect(await admin.xlen(stream)).toBe(8);
  });

  it('is waited for with --watch, which says so once, and when it goes on', async () => {
    const queue = freshQueue();
    const stream = streamOf(queue);
    await queue.enqueue(numbered(4));
    const running = begin(['drain', '--watch', queue.name, '--to-stream', '--max-unacked', '2']);
    await until(() => running.stderr.includes('it has 2 jobs, and no group'));
    expect(await admin.xlen(stream)).toBe(2);
    await readBy(stream, 'g', 2, 2);
    await until(async () => (await queue.counts()).pending === 0);
    await readBy(stream, 'g', 2, 2);
    await until(() => running.stderr.includes('goes on'));
    running.child.kill('SIGTERM');
    expect((await running.ended).code).toBe(0);
    expect(running.stderr.match(/goes on/g)?.length).toBe(running.stderr.match(/ is full/g)?.length);
  });
});

describe.concurrent('each job goes into the stream exactly once', () => {
  const balanced = async (queue: Queue, jobs: number) => {
    const ids = (await entries(streamOf(queue))).map(({ id }) => id);
    expect([ids.length, new Set(ids).size]).toEqual([jobs, jobs]);
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, payload: 0 });
  };

  it('although drains are killed', { timeout: 240_000 }, async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(20_000));
    for (let n = 0; n < 8; n++) {
      const running = begin(['drain', queue.name, '--to-stream', '--max-unacked', '100000']);
      const before = await admin.xlen(streamOf(queue));
      await until(
        async () => running.child.exitCode !== null || (await admin.xlen(streamOf(queue))) > before + n * 200,
      );
      running.child.kill('SIGKILL');
      await running.ended;
    }
    await toStream(queue, '-q', '--max-unacked', '100000');
    await balanced(queue, 20_000);
  });

  it.skipIf(onCluster)('although replies are lost', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(1_000));
    const proxy = await during(FaultyProxy.start(...redisTargets));
    const env = { DELAYQ_REDIS_URL: proxy.url };
    for (let n = 0; n < 3; n++) {
      proxy.fault = { word: scriptHash('jobs/drain'), kind: 'cut', times: 1, after: n };
      await delayq(['drain', queue.name, '--to-stream'], { env });
    }
    proxy.fault = undefined;
    await toStream(queue, '-q');
    await balanced(queue, 1_000);
  });
});
