import { describe, expect, it } from 'vitest';
import { Connection, Queue, RawPayload } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { upTo } from '../support/jobs.js';
import { admin, freshQueue, key, timePasses } from '../support/redis.js';
import { Server } from '../support/server.js';

const streamOf = (queue: Queue) => key(queue.name, 'stream');

/** One call that moves due jobs. */
const handOver = (queue: Queue, { limit = 250, maxUnacked = 10_000, stream = streamOf(queue) } = {}) =>
  queue.take({ limit }, { stream: { key: stream, maxUnacked } });

/** A queue with n due jobs, whose payloads and ids are the numbers from 0. */
const withDue = async (n: number, queue = freshQueue()) => {
  await queue.enqueue(upTo(n).map((i) => ({ payload: i, id: `j${i}`, at: 1_000 + i })));
  return queue;
};

type Fields = Record<string, string>;

/** The entries of a stream, without their ids. */
const entriesOf = async (stream: string): Promise<Fields[]> =>
  (await admin.xrange(stream, '-', '+')).map(([, words]) =>
    Object.fromEntries(words.flatMap((word, i) => (i % 2 ? [[words[i - 1], word]] : []))),
  );

/** What is in the stream, by payload. */
const left = async (queue: Queue) => (await entriesOf(streamOf(queue))).map(({ payload }) => Number(payload));

/** Has a group read n entries, and ack all of them but the first ones. */
async function consume(queue: Queue, group: string, n: number, { keep = 0 } = {}): Promise<void> {
  const stream = streamOf(queue);
  await admin.xgroup('CREATE', stream, group, '0', 'MKSTREAM').catch(() => {});
  const read = await admin.xreadgroup('GROUP', group, 'me', 'COUNT', n, 'STREAMS', stream, '>');
  const [[, entries]] = read as [string, [string, string[]][]][] as [[string, [string, string[]][]]];
  expect(entries).toHaveLength(n);
  await admin.xack(stream, group, ...entries.slice(keep).map(([id]) => id));
}

/** All keys of a queue, as they are stored. */
const dump = async (queue: Queue) =>
  Promise.all(['pending', 'payload', 'meta', 'stats', 'stream'].map((name) => admin.dumpBuffer(key(queue.name, name))));

describe('an entry', () => {
  it('has the id, queue, due time, payload and attributes of the job, and no other fields', async () => {
    const queue = freshQueue();
    await queue.enqueue({
      ...{ id: 'a', payload: { n: 1 }, at: 1_795_266_000_000 - 1e12, tries: 3 },
      attributes: { tenant: 'ü/"7', empty: '' },
    });
    await queue.enqueue({ id: 'b', payload: [], at: 1_795_266_000_001 - 1e12 });
    expect(await handOver(queue)).toMatchObject({ state: 'idle', handedOver: { count: 2 } });
    const [first, second, ...more] = await entriesOf(streamOf(queue));
    const { attributes = '', ...rest } = first ?? {};
    expect(rest).toEqual({ id: 'a', queue: queue.name, due: '795266000000', payload: '{"n":1}' });
    expect(JSON.parse(attributes)).toEqual({ tenant: 'ü/"7', empty: '' });
    expect(second).toEqual({ id: 'b', queue: queue.name, due: '795266000001', payload: '[]' });
    expect(more).toEqual([]);
  });

  it('has the due time in whole ms, whatever its score is', async () => {
    const queue = await withDue(3);
    await admin.zadd(key(queue.name, 'pending'), '-inf', 'j0', '1000.75', 'j1', '-1.5', 'j2');
    await handOver(queue);
    const dues = (await entriesOf(streamOf(queue))).map(({ id, due }) => [id, due]);
    expect(dues).toEqual([
      ['j0', '-8639999913600000'],
      ['j2', '-2'],
      ['j1', '1000'],
    ]);
  });

  it('has any bytes as they are stored, and 8 MiB of them', async () => {
    const queue = freshQueue();
    const odd = Buffer.from([0, 0xff, 0x0a, 0xc3, 0x28]);
    const large = Buffer.alloc(8 * 1024 * 1024, 'ab');
    await queue.enqueue([
      { payload: new RawPayload(odd), at: 1_000 },
      { payload: new RawPayload(large), at: 1_001 },
      { payload: new RawPayload(Buffer.alloc(0)), at: 1_002 },
    ]);
    for (let taken = 0; taken < 3; ) taken += (await handOver(queue)).handedOver?.count ?? 0;
    const entries = await admin.xrangeBuffer(streamOf(queue), '-', '+');
    const payloads = entries.map(([, words]) => words[1 + words.findIndex((word) => String(word) === 'payload')]);
    expect(
      payloads.map((payload) =>
        Buffer.compare(payload as Buffer, [odd, large][payloads.indexOf(payload)] ?? Buffer.alloc(0)),
      ),
    ).toEqual([0, 0, 0]);
  });

  it('has none of the attributes that break the rules', async () => {
    const queue = await withDue(1);
    const bad = {
      ...{ 'a:Upper': '1', 'a:': '1', 'a:ctl': 'a\nb', 'a:c1': 'a\u0085b', 'a:fffd': 'a\ufffdb', 'a:del': '\x7f' },
      ...{ 'a:number': 7, 'a:long': 'ü'.repeat(65), [`a:${'x'.repeat(33)}`]: '1', tries: 9 },
    };
    const good = { 'a:ok': '1', 'a:most': 'ü'.repeat(64) };
    await admin.hset(key(queue.name, 'meta'), 'j0', JSON.stringify({ ...bad, ...good }));
    await handOver(queue);
    const [{ attributes = '' } = {}] = await entriesOf(streamOf(queue));
    expect(JSON.parse(attributes)).toEqual({ ok: '1', most: 'ü'.repeat(64) });
  });
});

describe('a stream is trimmed', () => {
  it('not at all without a group', async () => {
    const queue = await withDue(3);
    await handOver(queue, { limit: 2 });
    await handOver(queue);
    expect(await left(queue)).toEqual([0, 1, 2]);
  });

  it('to what the slowest of its groups has not acked, also when nothing is due', async () => {
    const queue = await withDue(10);
    await handOver(queue);
    await consume(queue, 'fast', 8);
    await consume(queue, 'slow', 3);
    expect(await handOver(queue)).toMatchObject({ state: 'idle' });
    expect(await left(queue)).toEqual([3, 4, 5, 6, 7, 8, 9]);
    await consume(queue, 'slow', 7);
    await handOver(queue);
    expect(await left(queue)).toEqual([8, 9]);
    await consume(queue, 'fast', 2);
    await handOver(queue);
    expect(await left(queue)).toEqual([]);
  });

  it('not beyond an entry that was read, but not acked, by a group that has read all others', async () => {
    const queue = await withDue(10);
    await handOver(queue);
    await consume(queue, 'g', 4);
    await consume(queue, 'g', 5, { keep: 2 });
    await handOver(queue);
    expect(await left(queue)).toEqual([4, 5, 6, 7, 8, 9]);
  });

  it('not beyond the place of a group that was made with a short id', async () => {
    const queue = await withDue(3);
    await handOver(queue);
    await admin.xgroup('CREATE', streamOf(queue), 'early', '5');
    await consume(queue, 'g', 3);
    await handOver(queue);
    expect(await left(queue)).toEqual([0, 1, 2]);
  });

  it('not beyond what a group reads again, after XGROUP SETID', async () => {
    const queue = await withDue(3);
    await handOver(queue);
    await consume(queue, 'g', 3, { keep: 1 });
    await admin.xgroup('SETID', streamOf(queue), 'g', '0');
    await handOver(queue);
    expect(await left(queue)).toEqual([0, 1, 2]);
  });

  it.each(['18446744073709551614-18446744073709551000', '9007199254740993-9007199254740993'])(
    'by ids that are larger than the numbers of Lua: %s',
    async (last) => {
      const queue = await withDue(3);
      await admin.xadd(streamOf(queue), last, 'payload', '-1');
      await handOver(queue);
      await consume(queue, 'g', 3, { keep: 2 });
      await handOver(queue);
      expect((await left(queue)).slice(0, 2)).toEqual([-1, 0]);
      const pending = (await admin.xpending(streamOf(queue), 'g', '-', '+', 9)) as string[][];
      await admin.xack(streamOf(queue), 'g', ...pending.map(([id = '']) => id));
      await handOver(queue);
      // Of such an id one that is acked may stay.
      expect((await left(queue)).at(-1)).toBe(2);
      expect((await left(queue)).length).toBeLessThanOrEqual(2);
    },
  );

  it('in steps, of which each has a bound', async () => {
    const queue = await withDue(1);
    const fill = `for i = 1, 25000 do redis.call('XADD', KEYS[1], '*', 'payload', '-1') end`;
    await admin.eval(fill, 1, streamOf(queue));
    await admin.xgroup('CREATE', streamOf(queue), 'g', '$');
    const sizes: number[] = [];
    for (let size = 25_000; size > 1; sizes.push(size)) {
      await handOver(queue);
      size = await admin.xlen(streamOf(queue));
    }
    expect(sizes.length).toBeGreaterThan(2);
    expect(await left(queue)).toEqual([0]);
  });
});

describe('with as many unacked entries as it may have, a stream gets no more', () => {
  it('without a group by its length', async () => {
    const queue = await withDue(5);
    const full = { state: 'unacked', handedOver: { slowest: '' } };
    expect(await handOver(queue, { maxUnacked: 3 })).toMatchObject({ ...full, handedOver: { count: 3, unacked: 3 } });
    expect(await handOver(queue, { maxUnacked: 3 })).toMatchObject({ ...full, handedOver: { count: 0, unacked: 3 } });
    expect(await queue.counts()).toMatchObject({ pending: 2, stats: { delivered: 3, removed: 3 } });
  });

  it('by what the slowest group has read and not acked, and not read', async () => {
    const queue = await withDue(20);
    await handOver(queue, { limit: 10 });
    await consume(queue, 'fast', 9);
    await consume(queue, 'slow', 6, { keep: 2 });
    const full = { state: 'unacked', handedOver: { count: 0, unacked: 6, slowest: 'slow' } };
    expect(await handOver(queue, { maxUnacked: 6 })).toMatchObject(full);
    expect(await handOver(queue, { maxUnacked: 7 })).toMatchObject({ ...full, handedOver: { count: 1, unacked: 7 } });
    await consume(queue, 'slow', 5);
    expect(await handOver(queue, { maxUnacked: 7 })).toMatchObject({ handedOver: { count: 5, unacked: 7 } });
    expect(await handOver(queue)).toMatchObject({ state: 'idle', handedOver: { count: 4 } });
  });

  it('by its length after it was trimmed, where Redis does not tell the lag of a group', async () => {
    const queue = await withDue(10);
    await handOver(queue, { limit: 6 });
    await consume(queue, 'g', 2);
    const deleted = (await admin.xrange(streamOf(queue), '-', '+'))[3]?.[0] ?? '';
    await admin.xdel(streamOf(queue), deleted);
    const [group] = (await admin.xinfo('GROUPS', streamOf(queue))) as unknown[][];
    // Redis 6 has no such field.
    expect([undefined, null]).toContain(group?.[group.indexOf('lag') + 1] ?? null);
    const full = { state: 'unacked', handedOver: { unacked: 4, slowest: 'g' } };
    expect(await handOver(queue, { maxUnacked: 4 })).toMatchObject({ ...full, handedOver: { count: 1 } });
    expect(await left(queue)).toEqual([2, 4, 5, 6]);
  });

  it('and gets more when what is acked was removed, however much that is', async () => {
    const queue = await withDue(1);
    const fill = `for i = 1, 25000 do redis.call('XADD', KEYS[1], '*', 'payload', '-1') end`;
    await admin.eval(fill, 1, streamOf(queue));
    await admin.xgroup('CREATE', streamOf(queue), 'g', '$');
    // Without a lag the length counts.
    await admin.xgroup('SETID', streamOf(queue), 'g', `${Date.now() + 1e6}-0`);
    const states: string[] = [];
    for (let count = 0; count === 0; ) {
      const { state, handedOver } = await handOver(queue, { maxUnacked: 1 });
      count = handedOver?.count ?? 0;
      states.push(state);
    }
    expect([...new Set(states)]).toEqual(['more', 'idle']);
  });

  it('but all expired leases are taken back', async () => {
    const queue = await withDue(250);
    await queue.drain({ leaseMs: 1_000 });
    await admin.xadd(streamOf(queue), '*', 'payload', '-1');
    await timePasses(queue.name, 1_001);
    expect(await handOver(queue, { maxUnacked: 1 })).toMatchObject({ state: 'more', lost: 200 });
    expect(await handOver(queue, { maxUnacked: 1 })).toMatchObject({ state: 'unacked', lost: 50 });
  });

  it('also if many move jobs at the same time', async () => {
    const queue = await withDue(300);
    const ended = await Promise.all(upTo(20).map(() => handOver(queue, { limit: 30, maxUnacked: 100 })));
    expect(ended.reduce((sum, { handedOver }) => sum + (handedOver?.count ?? 0), 0)).toBe(100);
    expect(await left(queue)).toEqual(upTo(100));
  });
});

describe('a call that cannot do its work changes nothing:', () => {
  it('the key is not a stream', async () => {
    const queue = await withDue(2);
    await admin.set(streamOf(queue), 'x');
    const before = await dump(queue);
    await expect(handOver(queue)).rejects.toMatchObject({
      code: 'config',
      why: `STREAM ${streamOf(queue)} is a string, not a stream`,
      next: expect.stringContaining('choose another one'),
    });
    expect(await dump(queue)).toEqual(before);
  });

  it('a key of the queue has another type', async () => {
    const queue = await withDue(2);
    await handOver(queue, { limit: 1 });
    await admin.set(key(queue.name, 'dead'), 'x');
    const before = await dump(queue);
    await expect(handOver(queue)).rejects.toMatchObject({ code: 'config', why: expect.stringContaining('dead is a') });
    expect(await dump(queue)).toEqual(before);
  });

  it('the stream has no more ids', async () => {
    const queue = await withDue(2);
    await admin.xadd(streamOf(queue), '18446744073709551615-18446744073709551615', 'a', 'b');
    await expect(handOver(queue)).rejects.toMatchObject({ why: expect.stringContaining('exhausted') });
    expect(await queue.counts()).toMatchObject({ pending: 2, payload: 2 });
  });

  it.each(['xadd', 'xtrim', 'xinfo', 'xpending'])('the user may not run %s', async (command) => {
    const own = await during(Server.start());
    await own.admin.call('ACL', 'SETUSER', 'app', 'on', '>secret', '~*', '&*', '+@all', `-${command}`);
    const redis = new Connection(own.url.replace('://', '://app:secret@'));
    afterwards(() => redis.close());
    const queue = await withDue(2, new Queue(redis, 'q'));
    await own.admin.xgroup('CREATE', 'delayq:{q}:stream', 'g', '0', 'MKSTREAM');
    await own.admin.xadd('delayq:{q}:stream', '*', 'a', 'b');
    await own.admin.xreadgroup('GROUP', 'g', 'me', 'STREAMS', 'delayq:{q}:stream', '>');
    await expect(handOver(queue)).rejects.toMatchObject({ code: 'refused', next: expect.stringContaining('ACL') });
    expect(await own.admin.xlen('delayq:{q}:stream')).toBe(1);
    expect(await queue.counts()).toMatchObject({ pending: 2, payload: 2 });
  });

  it('the server is a replica', async () => {
    const own = await during(Server.start());
    const redis = new Connection(own.url);
    afterwards(() => redis.close());
    const queue = await withDue(2, new Queue(redis, 'q'));
    await own.admin.call('REPLICAOF', '127.0.0.1', '1');
    await expect(handOver(queue)).rejects.toMatchObject({
      code: 'temporary',
      why: expect.stringContaining('READONLY'),
    });
    expect(await queue.counts()).toMatchObject({ pending: 2, payload: 2 });
  });
});

it('a server that is full lets jobs go into a stream', async () => {
  const own = await during(Server.start());
  const redis = new Connection(own.url);
  afterwards(() => redis.close());
  const queue = await withDue(20, new Queue(redis, 'q'));
  await own.admin.config('SET', 'maxmemory', '1mb');
  await expect(queue.enqueue({ payload: 1 })).rejects.toMatchObject({ code: 'temporary' });
  expect(await handOver(queue)).toMatchObject({ handedOver: { count: 20 } });
  expect(await own.admin.xlen('delayq:{q}:stream')).toBe(20);
});
