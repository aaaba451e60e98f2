import { describe, expect, it } from 'vitest';
import { Connection, type NewJob, Operator, Queue, Transfer } from '../../src/index.js';
import { Inspector } from '../../src/internal.js';
import { shaOf } from '../../src/store/script.js';
import { afterwards, during } from '../support/afterwards.js';
import { FaultyProxy } from '../support/proxy.js';
import {
  admin,
  connection,
  freshName,
  freshQueue,
  key,
  keysLike,
  redisTargets,
  redisUrl,
  timePasses,
} from '../support/redis.js';
import { Server } from '../support/server.js';

const DAY = 86_400_000;
const operator = new Operator(connection);
const inspector = new Inspector(connection);
const job = (more: Partial<NewJob> = {}): NewJob => ({ id: 'a', payload: 1, onceFor: '1d', ...more });

/** Enqueues a job, and does it. */
async function done(queue: Queue, given = job()): Promise<void> {
  expect(await queue.enqueue(given)).toMatchObject({ outcome: 'created' });
  expect(await queue.ack((await queue.drain()).jobs)).toEqual(['held']);
}

const outcomeOf = async (queue: Queue, given = job(), options = {}) => (await queue.enqueue(given, options)).outcome;
const remembered = (queue: Queue) => admin.zrange(key(queue.name, 'done'), '0', '-1');

/** A connection that has learned nothing. */
function stranger(): Connection {
  const other = new Connection(redisUrl);
  afterwards(() => other.close());
  return other;
}

describe('a window', () => {
  it('keeps the id of a job taken for so long after the job is done', async () => {
    const queue = freshQueue();
    await done(queue);
    expect(await outcomeOf(queue)).toBe('kept-done');
    expect(await outcomeOf(queue, job(), { ifExists: 'replace' })).toBe('kept-done');
    expect((await queue.enqueue([job(), job({ id: 'b' }), job(), job({ id: 'b' })])).map((one) => one.outcome)).toEqual(
      ['kept-done', 'created', 'kept-done', 'kept'],
    );
    expect(await queue.counts()).toMatchObject({ pending: 1, payload: 1, remembered: 1, stats: { kept: 5 } });
    await timePasses(queue.name, DAY - 600_000);
    expect(await outcomeOf(queue)).toBe('kept-done');
    await timePasses(queue.name, 600_000);
    expect(await outcomeOf(queue)).toBe('created');
  });

  it('counts from the end of the job, also of several that are acked together', async () => {
    const queue = freshQueue();
    await queue.enqueue([job(), job({ id: 'b', onceFor: '2d' }), { id: 'c', payload: 1 }]);
    await timePasses(queue.name, 5 * DAY);
    const { jobs, now } = await queue.drain();
    await queue.ack(jobs);
    const after = await connection.now();
    const ends = await admin.zrange(key(queue.name, 'done'), '0', '-1', 'WITHSCORES');
    expect(ends.filter((_, i) => i % 2 === 0)).toEqual(['a', 'b']);
    for (const [end, days] of [
      [Number(ends[1]), 1],
      [Number(ends[3]), 2],
    ] as const) {
      expect(end - days * DAY).toBeGreaterThanOrEqual(now);
      expect(end - days * DAY).toBeLessThanOrEqual(after);
    }
    expect(await outcomeOf(queue, { id: 'c', payload: 1 })).toBe('created');
  });

  it('can be that of the queue, by the setting at the end of the job; that of a job goes before it', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { id: 'a', payload: 1 },
      { id: 'b', payload: 1, onceFor: 1_000 },
    ]);
    await operator.configure(queue.name, { onceFor: DAY });
    await queue.ack((await queue.drain()).jobs);
    await timePasses(queue.name, 2_000);
    expect(await queue.enqueue(['a', 'b'].map((id) => ({ id, payload: 2 })))).toMatchObject([
      { outcome: 'kept-done' },
      { outcome: 'created' },
    ]);
    await operator.configure(queue.name, { onceFor: null });
    await queue.ack((await queue.drain()).jobs);
    expect(await outcomeOf(queue, { id: 'b', payload: 3 })).toBe('created');
  });

  it('begins when a job expires, or is taken at most once', async () => {
    const queue = freshQueue();
    await queue.enqueue([job({ ttl: 1 }), job({ id: 'b', at: 1 })]);
    await timePasses(queue.name, 5);
    expect(await queue.drain({ leaseMs: 0 })).toMatchObject({ expired: 1, jobs: [{ id: 'b' }] });
    expect((await remembered(queue)).sort()).toEqual(['a', 'b']);
    expect(await outcomeOf(queue)).toBe('kept-done');
  });

  it('does not begin for what a drain at most once puts back', async () => {
    const queue = freshQueue();
    await queue.enqueue(job());
    const { jobs } = await queue.drain({ leaseMs: 0 });
    await queue.putBack(jobs);
    expect(await remembered(queue)).toEqual([]);
    await queue.ack((await queue.drain()).jobs);
    expect(await remembered(queue)).toEqual(['a']);
  });

  it('stays for a job that is not put back, because another with its id has come', async () => {
    const queue = freshQueue();
    await queue.enqueue([job(), job({ id: 'b' })]);
    const { jobs } = await queue.drain({ leaseMs: 0 });
    const memory = await admin.zscore(key(queue.name, 'done'), 'a');
    await admin.zrem(key(queue.name, 'done'), 'a');
    await queue.enqueue(job());
    await admin.zadd(key(queue.name, 'done'), memory as string, 'a');
    await queue.putBack(jobs);
    expect(await remembered(queue)).toEqual(['a']);
  });

  it('does not begin for a job that failed, died or was requeued, and goes with it', async () => {
    const queue = freshQueue();
    await queue.enqueue(job({ tries: 1 }));
    await queue.nack((await queue.drain()).jobs);
    expect(await outcomeOf(queue)).toBe('kept-dead');
    expect(await remembered(queue)).toEqual([]);
    expect(await operator.requeue(queue.name, ['a'])).toEqual(['requeued']);
    await queue.ack((await queue.drain()).jobs);
    expect(await outcomeOf(queue)).toBe('kept-done');
  });

  it('is refused if it has no length, and says what to write', async () => {
    for (const onceFor of [0, '0s']) {
      await expect(freshQueue().enqueue(job({ onceFor }))).rejects.toMatchObject({
        code: 'usage',
        next: expect.stringContaining('1d'),
      });
    }
    await expect(operator.configure(freshName(), { onceFor: 0 })).rejects.toMatchObject({ code: 'usage' });
  });

  it('is learned by a connection that knew the queue as a plain one', async () => {
    const queue = freshQueue();
    await queue.enqueue({ id: 'b', payload: 1 });
    const other = new Queue(stranger(), queue.name);
    const taken = await other.drain();
    await queue.enqueue(job());
    expect(await other.ack(taken.jobs)).toEqual(['held']);
    await other.ack((await other.drain()).jobs);
    expect(await outcomeOf(other)).toBe('kept-done');
  });
});

describe('an enqueue whose reply was lost', () => {
  it.each([
    ['a given id', { id: 'a' }, 'kept-done'],
    ['an id made here', { id: undefined }, 'created'],
  ])('makes no second job with %s if the first is done by then', async (_, id, outcome) => {
    const proxy = await FaultyProxy.start(...redisTargets);
    afterwards(() => proxy.stop());
    const queue = freshQueue();
    const redis = new Connection(proxy.url);
    afterwards(() => redis.close());
    const faulty = new Queue(redis, queue.name);
    await queue.enqueue(job({ id: 'other' }));
    await queue.ack((await queue.drain()).jobs);
    await faulty.enqueue({ payload: 0, in: '1h' });
    // The reply is lost, and the job is done before the enqueue is repeated.
    proxy.fault = { word: shaOf('jobs/enqueue'), kind: 'cut', times: 1 };
    const sent = faulty.enqueue(job(id));
    let acked = 0;
    while (acked === 0) acked = (await queue.ack((await queue.drain()).jobs)).length;
    expect(await sent).toMatchObject({ outcome });
    expect(proxy.struck).toBe(1);
    expect(await queue.counts()).toMatchObject({ pending: 1, due: 0, stats: { acked: 2, kept: 1 } });
  });
});

describe('two processes that enqueue the same id at once', () => {
  it('make one job, whenever it is done', async () => {
    const [queue, others] = [freshQueue(), [stranger(), stranger()]];
    let ran = 0;
    let producing = true;
    const drains = (async () => {
      for (let last = false; !last; ) {
        last = !producing;
        const { jobs } = await queue.drain();
        ran += (await queue.ack(jobs)).filter((answer) => answer === 'held').length;
      }
    })();
    const produced = await Promise.all(
      others.map(async (redis) => {
        const own = new Queue(redis, queue.name);
        const outcomes: string[] = [];
        for (let i = 0; i < 200; i++) outcomes.push(await outcomeOf(own, job({ id: `report:${i}` })));
        return outcomes;
      }),
    );
    producing = false;
    await drains;
    expect(ran).toBe(200);
    for (let i = 0; i < 200; i++) expect(produced.filter((one) => one[i] === 'created')).toHaveLength(1);
  });
});

describe('cancel', () => {
  it('frees the id, also one that is only remembered', async () => {
    const queue = freshQueue();
    await queue.enqueue([job(), job({ id: 'b' })]);
    expect(await operator.cancel(queue.name, ['a', 'a'])).toEqual(['pending', 'missing']);
    await queue.ack((await queue.drain()).jobs);
    expect(await operator.cancel(queue.name, ['a', 'b', 'c'])).toEqual(['missing', 'freed', 'missing']);
    expect(await queue.enqueue([job(), job({ id: 'b' })])).toMatchObject([
      { outcome: 'created' },
      { outcome: 'created' },
    ]);
    expect((await queue.counts()).stats.cancelled).toBe(1);
  });

  it('can keep the id, as if the job was done', async () => {
    const queue = freshQueue();
    await queue.enqueue([job(), { id: 'b', payload: 1 }]);
    const states = ['pending', 'active', 'dead'] as const;
    expect(await operator.cancel(queue.name, ['a', 'b'], states, { keepId: true })).toEqual(['pending', 'pending']);
    expect(await operator.cancel(queue.name, ['a'], states, { keepId: true })).toEqual(['missing']);
    expect(await remembered(queue)).toEqual(['a']);
  });

  it('does not free the id of a job that it leaves', async () => {
    const queue = freshQueue();
    await done(queue);
    // Other software adds a job without asking.
    await admin.multi().hset(key(queue.name, 'payload'), 'a', '1').zadd(key(queue.name, 'pending'), 1, 'a').exec();
    expect(await operator.cancel(queue.name, ['a'], ['dead'])).toEqual(['missing']);
    expect(await remembered(queue)).toEqual(['a']);
    expect(await operator.cancel(queue.name, ['a'])).toEqual(['pending']);
    expect(await remembered(queue)).toEqual([]);
  });
});

describe('purge', () => {
  const purge = async (queue: Queue, ...states: ('pending' | 'active' | 'dead')[]) => {
    for await (const _ of operator.purge(queue.name, states.length > 0 ? states : undefined));
  };

  it.each([[[]], [['dead'] as const]])('of %j begins the windows of dead jobs', async (states) => {
    const queue = freshQueue();
    await done(queue, job({ id: 'old' }));
    await queue.enqueue(Array.from({ length: 300 }, (_, i) => job({ id: `d:${i}`, tries: 1 })));
    for (let n = 0; n < 2; n++) await queue.nack((await queue.drain()).jobs);
    await queue.enqueue(job({ in: '1h' }));
    await purge(queue, ...states);
    expect(await queue.counts()).toMatchObject({ dead: 0, remembered: 301, stats: { purged: states[0] ? 300 : 301 } });
    expect(await remembered(queue)).not.toContain('a');
  });

  it('keeps what is remembered; forget drops it, and all else', async () => {
    const queue = freshQueue();
    await done(queue);
    await purge(queue);
    expect(await outcomeOf(queue)).toBe('kept-done');
    expect(await operator.forget(queue.name)).toBe(true);
    expect(await keysLike(key(queue.name, '*'))).toEqual([]);
    expect(await inspector.queues()).not.toContain(queue.name);
    expect(await outcomeOf(queue)).toBe('created');
  });
});

describe('an import', () => {
  it('makes no job whose id is remembered; a move does', async () => {
    const [queue, from] = [freshQueue(), freshQueue()];
    await done(queue);
    const transfer = new Transfer(connection);
    const parcel = { id: Buffer.from('a'), state: 'pending', score: '1', record: undefined, payload: Buffer.from('2') };
    expect(await transfer.restore(queue.name, [parcel as never])).toEqual(['kept-done']);
    await from.enqueue({ id: 'a', payload: 3, in: '1h' });
    expect(await transfer.move(from.name, ['a'], { to: queue.name })).toEqual(['moved']);
    expect(await outcomeOf(queue)).toBe('kept');
  });

  it('does not shorten the window of an earlier job with that id', async () => {
    const [queue, from] = [freshQueue(), freshQueue()];
    await done(queue);
    await from.enqueue({ id: 'a', payload: 2, onceFor: '1h' });
    await new Transfer(connection).move(from.name, ['a'], { to: queue.name });
    expect(await queue.ack((await queue.drain()).jobs)).toEqual(['held']);
    await timePasses(queue.name, DAY / 2);
    expect(await outcomeOf(queue)).toBe('kept-done');
  });

  it('brings windows to a plain queue', async () => {
    const [queue, from] = [freshQueue(), freshQueue()];
    await from.enqueue(job());
    await new Transfer(connection).move(from.name, ['a'], { to: queue.name });
    const other = new Queue(stranger(), queue.name);
    await other.ack((await other.drain()).jobs);
    expect(await outcomeOf(other)).toBe('kept-done');
  });
});

describe('what is remembered', () => {
  it('is told by the inspector until it is free again', async () => {
    const queue = freshQueue();
    const before = await connection.now();
    await done(queue);
    const { now, remembered } = await queue.counts();
    expect(remembered).toBe(1);
    const until = (await inspector.rememberedUntil(queue.name, 'a')) as number;
    expect(until - DAY).toBeGreaterThanOrEqual(before);
    expect(until - DAY).toBeLessThanOrEqual(now);
    expect(await inspector.rememberedUntil(queue.name, 'b')).toBe(undefined);
    await timePasses(queue.name, DAY);
    expect(await inspector.rememberedUntil(queue.name, 'a')).toBe(undefined);
    expect((await queue.counts()).remembered).toBe(0);
  });

  it('is swept when windows have closed, in steps: two for each that is added, 100 by each enqueue', async () => {
    const queue = freshQueue();
    await queue.enqueue([job(), job({ id: 'b' })]);
    const many = Array.from({ length: 500 }, (_, i) => [1, `old:${i}`]).flat();
    await admin.zadd(key(queue.name, 'done'), ...(many as []));
    const size = () => admin.zcard(key(queue.name, 'done'));
    const { jobs } = await queue.drain({ limit: 1 });
    expect(await size()).toBe(500);
    await queue.ack(jobs);
    expect(await size()).toBe(500 + 1 - 2);
    await queue.enqueue({ payload: 1, in: '1h' });
    expect(await size()).toBe(399);
    await queue.enqueue([1, 2].map((payload) => ({ payload, in: '1h' })));
    expect(await size()).toBe(299);
    for (let n = 0; n < 3; n++) await queue.enqueue({ payload: 1, in: '1h' });
    expect(await remembered(queue)).toEqual(['a']);
  });

  it('fails a call if other software has taken its key, before anything is changed', async () => {
    const queue = freshQueue();
    await queue.enqueue([job(), job({ id: 'b', tries: 1, ttl: 1 })]);
    const { jobs } = await queue.drain({ limit: 1 });
    await admin.set(key(queue.name, 'done'), 'mine');
    const calls = [
      () => queue.ack(jobs),
      () => queue.enqueue(job({ id: 'c' })),
      () => queue.enqueue([job({ id: 'c' }), job({ id: 'd' })]),
      () => queue.drain(),
      () => operator.cancel(queue.name, ['a']),
    ];
    for (const call of calls)
      await expect(call()).rejects.toMatchObject({ code: 'config', why: expect.stringContaining('done is a string') });
    await admin.del(key(queue.name, 'done'));
    expect(await queue.ack(jobs)).toEqual(['held']);
    expect(await queue.counts()).toMatchObject({ pending: 1, payload: 1, stats: { acked: 1 } });
  });
});

describe('a full server', () => {
  it('still takes, acks, cancels and remembers', async () => {
    const server = await during(Server.start());
    const redis = new Connection(`unix://${server.socket}`);
    afterwards(() => redis.close());
    const queue = new Queue(redis, freshName());
    await queue.enqueue(['a', 'b', 'c', 'd'].map((id) => job({ id })));
    await redis.call('CONFIG', 'SET', 'maxmemory', '1', 'maxmemory-policy', 'noeviction');
    await expect(queue.enqueue(job({ id: 'e' }))).rejects.toMatchObject({ code: 'temporary' });
    expect(await queue.ack((await queue.drain({ limit: 1 })).jobs)).toEqual(['held']);
    expect(await queue.ack((await queue.drain({ limit: 2 })).jobs)).toEqual(['held', 'held']);
    const keep = { keepId: true };
    expect(await new Operator(redis).cancel(queue.name, ['d'], ['pending'], keep)).toEqual(['pending']);
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, remembered: 4 });
    expect(await outcomeOf(queue)).toBe('kept-done');
  });
});
