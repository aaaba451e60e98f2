import { describe, expect, it } from 'vitest';
import { type Filter, Inspector, Operator, type Queue, Transfer } from '../../src/index.js';
import { upTo } from '../support/jobs.js';
import { admin, connection, freshQueue, key } from '../support/redis.js';

const inspector = new Inspector(connection);
const operator = new Operator(connection);
const transfer = new Transfer(connection);

const HOUR = 3_600_000;

/** A job of other software: its id, its record, and its time in the set of its state. */
type Foreign = readonly [id: string, record: object | string, at?: number];

/** Puts jobs into a queue as other software does, with records that it made. */
async function put(name: string, state: 'pending' | 'dead', jobs: readonly Foreign[]): Promise<void> {
  const call = admin.multi();
  for (const [id, record, at = 4e12] of jobs) {
    call.hset(key(name, 'payload'), id, '1').zadd(key(name, state), at, id);
    call.hset(key(name, 'meta'), id, typeof record === 'string' ? record : JSON.stringify(record));
  }
  await call.exec();
}

/** Lets n jobs fail once: their errors differ only by a number. */
async function failing(n: number): Promise<Queue> {
  const queue = freshQueue();
  await queue.enqueue(upTo(n).map((i) => ({ payload: i })));
  for (let failed = 0; failed < n; ) {
    const { jobs } = await queue.drain({ limit: 200 });
    await queue.nack(jobs.map((job, i) => ({ ...job, delayMs: HOUR, error: `HTTP 502 of order ${failed + i}` })));
    failed += jobs.length;
  }
  return queue;
}

async function idsOf(name: string, filter: Partial<Filter>): Promise<unknown[]> {
  const ids: unknown[] = [];
  for await (const some of inspector.ids(name, { states: ['pending'], ...filter })) ids.push(...some);
  return ids;
}

describe('the errors of a queue', () => {
  it('are grouped by kind: jobs that wait and dead ones, each once, with their first and last time', async () => {
    const { name } = freshQueue();
    await put(name, 'pending', [
      ['a', { failures: 4, failed: 1_000, error: 'connect ECONNREFUSED 10.0.0.1:80\nat Socket' }],
      ['b', { failures: 1, failed: 3_000, error: 'connect ECONNREFUSED 10.0.0.2:80' }],
      ['c', { failures: 2, failed: 2_000, error: 'no such order' }],
      ['new', { tries: 7 }],
    ]);
    await put(name, 'dead', [
      ['d', { failures: 5, failed: 2_000, error: 'connect ECONNREFUSED 10.0.0.3:80', reason: 'failed' }, 5_000],
    ]);
    expect(await inspector.errors(name)).toEqual([
      { kind: 'connect ECONNREFUSED …', waiting: 2, dead: 1, first: 1_000, last: 3_000, samples: ['b', 'd', 'a'] },
      { kind: 'no such order', waiting: 1, dead: 0, first: 2_000, last: 2_000, samples: ['c'] },
    ]);
  });

  it('of jobs that were lost are none: they are a group of their own', async () => {
    const { name } = freshQueue();
    await put(name, 'pending', [['a', { losses: 3 }]]);
    expect(await inspector.errors(name)).toEqual([
      { kind: undefined, waiting: 1, dead: 0, first: undefined, last: undefined, samples: ['a'] },
    ]);
    await put(name, 'dead', [['b', { losses: 20, reason: 'lost' }, 5_000]]);
    expect(await inspector.errors(name)).toMatchObject([{ waiting: 1, dead: 1, first: 5_000, last: 5_000 }]);
  });

  it('count neither active jobs nor records without a job', async () => {
    const queue = await failing(3);
    await admin.hset(key(queue.name, 'meta'), 'ghost', '{"failures":1,"error":"no job"}');
    await admin.zadd(key(queue.name, 'pending'), 1, (await idsOf(queue.name, {}))[0] as string);
    await queue.drain({ limit: 1 });
    expect(await inspector.errors(queue.name)).toMatchObject([{ kind: 'HTTP 502 of order …', waiting: 2, dead: 0 }]);
  });

  it('are at most 10,000 kinds; further ones are one', async () => {
    const { name } = freshQueue();
    const word = (n: number) => [...String(n)].map((digit) => 'abcdefghij'[Number(digit)]).join('');
    await put(
      name,
      'dead',
      upTo(10_050).map((n) => [`j${n}`, { failures: 1, error: `failed with ${word(n)}` }]),
    );
    const groups = await inspector.errors(name);
    expect(groups).toHaveLength(10_001);
    expect(groups[0]).toMatchObject({ kind: '…', dead: 50 });
  });
});

describe('a filter of failed jobs', () => {
  it('finds those with a failure or a loss among many that never failed, the last failure first', async () => {
    const { name } = freshQueue();
    await put(name, 'pending', [
      ['lost', { losses: 1 }, 1_000],
      ['a', { failures: 1, failed: 1_000 }, 9_000],
      ['b', { failures: 1, failed: 3_000, losses: 2 }, 8_000],
      ['c', { failures: 3, failed: 2_000 }, 7_000],
      ['new', { tries: 3, ttl: 5 }, 6_000],
    ]);
    await admin.zadd(key(name, 'pending'), ...upTo(5_000).flatMap((n) => [n, `never-${n}`]));
    expect(await idsOf(name, { failed: true })).toEqual(['b', 'c', 'a', 'lost']);
    expect(await idsOf(name, { failed: true, limit: 2 })).toEqual(['b', 'c']);
    expect(await idsOf(name, { failed: true, from: 7_500 })).toEqual(['b', 'a']);
    expect(await idsOf(name, { failed: true, to: 7_000 })).toEqual(['c', 'lost']);
    expect(await inspector.count(name, { states: ['pending'], failed: true })).toBe(4);
    expect(await inspector.count(name, { states: ['pending', 'dead'], failed: true, limit: 3 })).toBe(3);
  });

  it('with an error alone keeps the order of the times, state by state', async () => {
    const { name } = freshQueue();
    await put(name, 'pending', [
      ['late', { failures: 1, failed: 9, error: 'timeout after 5 s' }, 9_000],
      ['soon', { failures: 1, failed: 5, error: 'timeout after 30 s' }, 7_000],
      ['other', { failures: 1, error: 'refused' }, 8_000],
    ]);
    await put(name, 'dead', [['d', { error: 'timeout after 5 s' }, 5_000]]);
    const states = ['dead', 'pending'] as const;
    expect(await idsOf(name, { states, error: 'timeout after … s' })).toEqual(['d', 'soon', 'late']);
    expect(await idsOf(name, { states, error: 'timeout after 5' })).toEqual(['d', 'late']);
    expect(await idsOf(name, { states, error: 'timeout after 5', failed: true })).toEqual(['late']);
    expect(await idsOf(name, { states, error: 'timeout', text: 'soo' })).toEqual(['soon']);
    expect(await idsOf(name, { states, error: 'timeout.*' })).toEqual([]);
  });

  it.each([1, 4])('takes an error that is a kind as this kind alone, over all of %i partitions', async (parts) => {
    const queue = freshQueue();
    const errors: readonly (readonly [string, string])[] = [
      ...upTo(9).map((n) => [`l${n}`, 'exit 12'] as const),
      ...upTo(3).map((n) => [`s${n}`, 'exit 1'] as const),
      ['t', 'exit 1: no such file'],
      ['u', 'exit 1: no such order'],
    ];
    await queue.enqueue(errors.map(([id]) => ({ payload: 1, id })));
    const of = new Map(errors);
    await queue.nack(
      (await queue.drain({ limit: 20 })).jobs.map((job) => ({ ...job, error: of.get(String(job.id)) as string })),
      { mode: 'dead' },
    );
    if (parts > 1) for await (const _ of operator.partition(queue.name, parts));
    const dead = async (error: string, filter: Partial<Filter> = {}) => {
      const asked = { states: ['dead'] as const, error, ...filter };
      const ids = await idsOf(queue.name, asked);
      const listed: string[] = [];
      for await (const { id } of inspector.list(queue.name, asked)) listed.push(id);
      const exported: string[] = [];
      for await (const { jobs } of transfer.export(queue.name, asked)) exported.push(...jobs.map(({ id }) => `${id}`));
      expect(listed).toEqual(ids);
      expect(exported.sort()).toEqual(ids.toSorted());
      if (asked.text === undefined) expect(await inspector.count(queue.name, asked)).toBe(ids.length);
      return exported.join(' ');
    };
    expect(await dead('exit 1')).toBe('s0 s1 s2');
    expect(await dead('exit 1', { text: 's1' })).toBe('s1');
    expect(await dead('exit 1: no such o…')).toBe('u');
    expect(await dead('exit 1: no…')).toBe('t u');
    expect(await dead('exit 1:')).toBe('t u');
    expect(await dead('exit')).toMatch(/^(l\d ){9}s0 s1 s2 t u$/);
    expect(await dead('exit 1', { to: 1 })).toBe('');
    const decided = await inspector.decided(queue.name, { states: ['dead'], error: 'exit 1' });
    await operator.cancel(queue.name, ['s0', 's1', 's2']);
    expect(await idsOf(queue.name, decided)).toEqual([]);
    // Nothing has this error any more: it is a text.
    expect(await dead('exit 1')).toMatch(/^(l\d ){9}t u$/);
  });

  it('finds each of some thousand jobs once, over partitions and while they grow', async () => {
    const queue = await failing(3_000);
    const all = new Set(await idsOf(queue.name, {}));
    const found = async () => idsOf(queue.name, { error: 'HTTP 502 of order …' });
    expect(await found()).toHaveLength(3_000);
    for await (const _ of operator.partition(queue.name, 4)) {
      // What is being moved just now may be missing.
      const some = await found();
      expect(new Set(some).size).toBe(some.length);
    }
    const after = await found();
    expect(after).toHaveLength(3_000);
    expect(new Set(after)).toEqual(all);
    const first = await idsOf(queue.name, { failed: true, limit: 10 });
    expect(first).toEqual((await idsOf(queue.name, { failed: true })).slice(0, 10));
    expect(await inspector.errors(queue.name)).toMatchObject([{ waiting: 3_000, dead: 0 }]);
  });

  it('ignores what cannot be read in the records of other software', async () => {
    const { name } = freshQueue();
    const nonsense = [
      '',
      'null',
      '[]',
      '5',
      '"error"',
      '{',
      '\u0000',
      '{"failures":"many","error":5}',
      '{"losses":-1}',
    ];
    await put(name, 'pending', [
      ...nonsense.map((record, n): Foreign => [`n${n}`, record]),
      ['far', { failures: 1, failed: 1e300, error: 'x' }],
      ['text', { failures: '2', failed: '1000', error: 'x' }],
    ]);
    const odd = Buffer.from([0xff, 0x00]);
    await admin.hset(key(name, 'meta'), new Map([[odd, '{"failures":1,"failed":500,"error":"x"}']]) as never);
    await admin.zadd(key(name, 'pending'), 'inf', odd);
    expect(await idsOf(name, { failed: true })).toEqual(['text', odd, 'far']);
    expect(await inspector.errors(name)).toEqual([
      { kind: 'x', waiting: 3, dead: 0, first: 500, last: 1_000, samples: ['text', odd, 'far'] },
    ]);
  });

  it('gives no job that has changed since its record was read', async () => {
    const queue = await failing(500);
    const seen: string[] = [];
    for await (const { id } of inspector.list(queue.name, { states: ['pending'], failed: true })) {
      if (seen.length === 0) await admin.del(key(queue.name, 'pending'));
      seen.push(id);
    }
    expect(seen.length).toBeLessThan(500);
  });
});
