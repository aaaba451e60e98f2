import { describe, expect, it } from 'vitest';
import { Inspector, orphans, type Queue } from '../../src/internal.js';
import * as scripts from '../../src/store/jobs.js';
import { queueKeys } from '../../src/store/keys.js';
import { run } from '../../src/store/script.js';
import { admin, connection, freshQueue, key, timePasses } from '../support/redis.js';

describe('what other software leaves behind (failures 26)', () => {
  it('an id without a payload is moved to dead and counted, and the other jobs are delivered', async () => {
    const queue = freshQueue();
    await admin.zadd(key(queue.name, 'pending'), 1, 'ghost', 2, '\x1b[31mspace and\nescape');
    await queue.enqueue({ payload: 1 });
    expect(orphans(await queue.counts())).toEqual({ ids: 2, payloads: 0 });
    expect(await queue.drain()).toMatchObject({
      died: [
        { id: 'ghost', reason: 'orphaned' },
        { id: '\x1b[31mspace and\nescape', reason: 'orphaned' },
      ],
      jobs: [{ payload: Buffer.from('1') }],
    });
    expect(await queue.counts()).toMatchObject({ dead: 2, stats: { orphaned: 2 } });
    expect(JSON.parse((await admin.hget(key(queue.name, 'meta'), 'ghost')) ?? '')).toEqual({ reason: 'orphaned' });
  });

  it('a payload without an id is counted, and enqueuing its id makes it a job', async () => {
    const queue = freshQueue();
    await admin.hset(key(queue.name, 'payload'), 'ghost', 'boo');
    expect(orphans(await queue.counts())).toEqual({ ids: 0, payloads: 1 });
    expect((await queue.drain()).jobs).toEqual([]);
    expect(await queue.enqueue({ payload: 2, id: 'ghost' })).toMatchObject({ outcome: 'created' });
    expect(orphans(await queue.counts())).toEqual({ ids: 0, payloads: 0 });
  });

  it('an id without a payload is repaired by enqueuing it', async () => {
    const queue = freshQueue();
    await admin.zadd(key(queue.name, 'dead'), 1, 'ghost');
    expect(await queue.enqueue({ payload: 2, id: 'ghost' })).toMatchObject({ outcome: 'created' });
    expect(await queue.counts()).toMatchObject({ dead: 0, pending: 1, payload: 1 });
  });

  it('an id without a payload is repaired with the record of the new job', async () => {
    const queue = freshQueue();
    await admin.zadd(key(queue.name, 'dead'), 1, 'ghost');
    await queue.enqueue({ payload: 2, id: 'ghost', tries: 7 });
    expect((await queue.drain()).jobs).toMatchObject([{ id: 'ghost', tries: 7 }]);
  });

  it('a missing lease, and records that are not JSON or have other types, stop nothing', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, id: 'a' },
      { payload: 2, id: 'b' },
      { payload: 3, id: 'c' },
    ]);
    await queue.drain({ leaseMs: 1 });
    await admin.hdel(key(queue.name, 'lease'), 'a');
    await admin.hset(key(queue.name, 'lease'), 'b', 'receipt nan x y', 'c', 'nothing');
    await admin.hset(
      key(queue.name, 'meta'),
      'b',
      'no json',
      'c',
      '{"losses":{},"failures":[],"ttl":"x","maxLost":[]}',
    );
    await timePasses(queue.name, 1_000);
    const { jobs } = await queue.drain();
    expect(jobs.map(({ id, attempt }) => [id, attempt]).sort()).toEqual([
      ['a', 2],
      ['b', 2],
      ['c', 2],
    ]);
  });

  it('a job whose lease has no due time is due now when it is given back', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const { jobs } = await queue.drain();
    await admin.hset(key(queue.name, 'lease'), 'a', `${jobs[0]?.receipt} soon`);
    expect(await queue.nack(jobs, { mode: 'release' })).toMatchObject([{ answer: 'pending' }]);
    expect((await queue.drain()).jobs).toHaveLength(1);
  });

  it('fractional and infinite scores stop nothing', async () => {
    const queue = freshQueue();
    await admin.zadd(key(queue.name, 'pending'), 1.5, 'a', '-inf', 'b', '+inf', 'c');
    await admin.hset(key(queue.name, 'payload'), 'a', '1', 'b', '2', 'c', '3');
    const drained = await queue.drain();
    expect(drained.jobs.map(({ id, due }) => [id, due])).toEqual([
      ['b', -(8.64e15 - 86_400_000)],
      ['a', 1],
    ]);
    expect(await queue.nack(drained.jobs, { mode: 'release' })).toMatchObject([
      { answer: 'pending' },
      { answer: 'pending' },
    ]);
    expect((await queue.counts(5)).pending).toBe(3);
  });

  it('a key of the wrong type is named in the error, and nothing is changed', async () => {
    const names = ['pending', 'active', 'lease', 'dead', 'payload', 'meta', 'stats', 'config'];
    for (const name of names) {
      const queue = freshQueue();
      await queue.enqueue([{ payload: 1 }, { payload: 2 }, { payload: 3 }]);
      const { jobs } = await queue.drain({ limit: 1 });
      const { jobs: two } = await queue.drain({ limit: 2 });
      await queue.enqueue([{ payload: 4 }, { id: 'one', payload: 5 }]);
      // The next call would store a sample.
      await admin.hset(key(queue.name, 'stats'), 'sampled', 1);
      await admin.del(key(queue.name, name));
      await admin.set(key(queue.name, name), 'x');
      const contents = () => Promise.all(names.map((one) => admin.dump(key(queue.name, one))));
      const before = await contents();
      const named = { code: 'config', why: expect.stringContaining(key(queue.name, name)) };
      const calls: (() => Promise<unknown>)[] = [() => queue.drain(), () => queue.nack(jobs), () => queue.renew(two)];
      // One plain job alone is taken without the counters.
      if (name !== 'stats') calls.push(() => queue.drain({ limit: 1 }));
      // What they do not need does not stop them.
      const put = { tries: 2, payload: 1 };
      const replace = () => queue.enqueue({ id: 'one', payload: 1 }, { ifExists: 'replace' });
      if (!['lease', 'stats'].includes(name))
        calls.push(
          () => queue.enqueue(put),
          () => queue.enqueue([put, put]),
        );
      if (!['lease', 'meta', 'stats'].includes(name)) calls.push(() => queue.enqueue({ id: 'other', payload: 1 }));
      // Nobody else can hold an id that delayq makes.
      if (['pending', 'payload', 'config'].includes(name)) calls.push(() => queue.enqueue({ payload: 1 }));
      if (['active', 'lease', 'config'].includes(name))
        calls.push(
          () => queue.ack(jobs),
          () => queue.ack(two),
        );
      if (!['lease', 'stats'].includes(name)) calls.push(replace);
      for (const call of calls) await expect(call(), `${name}: ${call}`).rejects.toMatchObject(named);
      expect(await contents(), name).toEqual(before);
    }
  });

  it('a job is done even if other software has overwritten the keys of payloads, records or counters', async () => {
    for (const name of ['payload', 'meta', 'stats']) {
      for (const n of [1, 2]) {
        const queue = freshQueue();
        await queue.enqueue(Array.from({ length: n }, () => ({ payload: 1, tries: 3 })));
        const { jobs } = await queue.drain();
        await admin.del(key(queue.name, name));
        await admin.set(key(queue.name, name), 'x');
        expect(await queue.ack(jobs), `${name} ${n}`).toEqual(jobs.map(() => 'held'));
        await admin.del(key(queue.name, name));
        expect(await queue.counts()).toMatchObject({ active: 0, lease: 0 });
      }
    }
  });

  it('a due time that makes no sense does not spoil the sum of lateness', async () => {
    for (const due of ['-inf', '-1e300', '-1e17']) {
      for (const n of [1, 2]) {
        const queue = freshQueue();
        await queue.enqueue(Array.from({ length: n }, (_, i) => ({ id: `${i}`, payload: 1 })));
        await admin.hset(key(queue.name, 'stats'), 'late:sum', 12_345);
        await admin.zadd(key(queue.name, 'pending'), due, '0');
        expect((await queue.drain()).jobs).toHaveLength(n);
        expect(await admin.hget(key(queue.name, 'stats'), 'late:sum'), `${due} ${n}`).toBe('12345');
      }
    }
  });

  it('a queue with a layout of two digits is rejected as a newer one', async () => {
    const queue = freshQueue();
    await admin.hset(key(queue.name, 'config'), 'layout', '10 0/1');
    await expect(queue.drain()).rejects.toMatchObject({ code: 'config', next: expect.stringContaining('newer') });
  });

  it('a queue with a newer layout is rejected', async () => {
    const queue = freshQueue();
    await admin.hset(key(queue.name, 'config'), 'layout', 2);
    await expect(queue.enqueue({ payload: 1 })).rejects.toMatchObject({
      code: 'config',
      next: expect.stringContaining('newer delayq'),
    });
    await expect(queue.drain()).rejects.toMatchObject({ code: 'config' });
  });

  it('a queue that gets a newer layout keeps its jobs as they are, whatever is called', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }, { payload: 3 }]);
    const { jobs } = await queue.drain({ limit: 2 });
    await admin.hset(key(queue.name, 'config'), 'layout', 2);
    for (const call of [
      () => queue.enqueue([{ payload: 4 }, { payload: 5 }]),
      () => queue.drain({ limit: 1 }),
      () => queue.ack(jobs.slice(0, 1)),
      () => queue.ack(jobs),
      () => queue.nack(jobs),
      () => queue.renew(jobs),
    ])
      await expect(call(), String(call)).rejects.toMatchObject({ code: 'config' });
    await admin.hdel(key(queue.name, 'config'), 'layout');
    expect(await queue.counts()).toMatchObject({ pending: 1, active: 2, payload: 3 });
  });

  it('a lease whose job is not active is removed by ack, but not counted as done', async () => {
    for (const n of [1, 2]) {
      const queue = freshQueue();
      await queue.enqueue(Array.from({ length: n }, () => ({ payload: 1 })));
      const { jobs } = await queue.drain();
      await admin.del(key(queue.name, 'active'));
      await queue.ack(jobs);
      const { lease, stats } = await queue.counts();
      expect({ lease, acked: stats.acked }).toEqual({ lease: 0, acked: undefined });
    }
  });
});

describe('invalid records (failures 26)', () => {
  const records = [
    '{"failures":-5}',
    '{"failures":0.5,"tries":2.5}',
    '{"failures":NaN,"first":1e999}',
    '{"failures":"x","losses":[1]}',
    '[1,2]',
    'null',
    'no json',
    '{"failures":1e300,"tries":null}',
  ];
  const leases = ['R 1e999 1 me', 'R nan 1 me', 'R -inf 1 me', 'R x 1 me', 'R'];

  const runOut = async ({ name }: Queue) => {
    for (const id of await admin.zrange(key(name, 'active'), '0', '-1')) await admin.zadd(key(name, 'active'), 1, id);
  };

  it.each(records)('%s: the job survives a nack and an expired lease', async (record) => {
    for (const mode of ['retry', 'dead', 'release'] as const) {
      const queue = freshQueue();
      await queue.enqueue([
        { payload: 1, id: 'a' },
        { payload: 2, id: 'b' },
      ]);
      await admin.hset(key(queue.name, 'meta'), 'a', record);
      const { jobs } = await queue.drain();
      await queue.nack(jobs, { mode, backoff: mode === 'retry' ? [0, 0] : 'exponential' });
      const { pending, dead, active, payload } = await queue.counts();
      expect({ all: pending + dead, active, payload }).toEqual({ all: 2, active: 0, payload: 2 });
    }
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, id: 'a' },
      { payload: 2, id: 'b' },
    ]);
    await admin.hset(key(queue.name, 'meta'), 'a', record);
    await queue.drain({ leaseMs: 1_000 });
    await runOut(queue);
    await queue.drain();
    const { pending, dead, active, payload } = await queue.counts();
    expect({ all: pending + dead + active, payload }).toEqual({ all: 2, payload: 2 });
  });

  it.each(leases)('a lease of "%s" loses no job', async (lease) => {
    const queue = freshQueue();
    await queue.enqueue(['a', 'b', 'c'].map((id) => ({ payload: id, id })));
    const { jobs } = await queue.drain({ leaseMs: 1_000 });
    const receipt = jobs[0]?.receipt ?? '';
    await admin.hset(key(queue.name, 'lease'), 'a', lease.replace('R', receipt), 'b', lease.replace('R', receipt));
    await queue.nack(jobs.slice(0, 1), { mode: 'release' });
    await runOut(queue);
    const { jobs: again } = await queue.drain();
    expect(again.map(({ id }) => id).sort()).toEqual(['a', 'b', 'c']);
  });

  it('a job that was due at -inf keeps its record', async () => {
    const queue = freshQueue();
    await admin
      .multi()
      .zadd(key(queue.name, 'pending'), '-inf', 'x')
      .hset(key(queue.name, 'payload'), 'x', '1')
      .hset(key(queue.name, 'meta'), 'x', '{"tries":2}')
      .exec();
    const { jobs } = await queue.drain();
    expect(jobs).toMatchObject([{ tries: 2 }]);
    await queue.nack(jobs, { error: 'no luck' });
    expect((await new Inspector(connection).show(queue.name, ['x']))[0]).toMatchObject({
      tries: 2,
      failures: 1,
      error: 'no luck',
    });
  });

  it('an invalid config is ignored', async () => {
    const queue = freshQueue();
    await admin.hset(key(queue.name, 'config'), {
      lease: 'inf',
      tries: 'many',
      maxLost: '-1',
      ttl: 'nan',
      backoff: 'soon',
    });
    await queue.enqueue({ payload: 1 });
    const { jobs, leaseMs } = await queue.drain();
    expect({ leaseMs, tries: jobs[0]?.tries }).toEqual({ leaseMs: 60_000, tries: 5 });
    expect((await queue.nack(jobs))[0]?.delayMs).toBeGreaterThan(11_000);
  });
});

describe('invalid numbers', () => {
  it('are rejected before anything is written', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    for (const leaseMs of [Number.NaN, -5, Number.POSITIVE_INFINITY])
      await expect(queue.drain({ leaseMs })).rejects.toMatchObject({ code: 'usage' });
    await expect(queue.drain({ limit: 0 })).rejects.toMatchObject({ code: 'usage' });
    const { jobs } = await queue.drain();
    await expect(queue.renew(jobs, Number.NaN)).rejects.toMatchObject({ code: 'usage' });
    await expect(queue.nack(jobs.map((job) => ({ ...job, delayMs: Number.NaN })))).rejects.toMatchObject({
      code: 'usage',
    });
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 2, lease: 2, payload: 2 });
  });

  it('are also rejected by the scripts', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const keys = queueKeys('delayq', queue.name);
    const options = { limit: 10, receipt: 'r', by: 'me', cutoff: undefined };
    await expect(scripts.drain(connection, keys, { ...options, leaseMs: Number.NaN })).rejects.toThrow();
    await expect(scripts.drain(connection, keys, { ...options, leaseMs: 1, limit: -1 })).rejects.toThrow();
    const { jobs } = await queue.drain();
    const receipts = jobs.flatMap(({ id, receipt }) => [id, receipt]);
    await expect(run(connection, 'jobs/renew', keys, ['NaN', ...receipts])).rejects.toThrow();
    await expect(
      run(connection, 'jobs/nack', keys, ['retry', '', 0, ...receipts.slice(0, 2), 'NaN', '']),
    ).rejects.toThrow();
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 2, lease: 2, payload: 2 });
  });

  it('in the counters of a queue stop nothing', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    for (const name of ['enqueued', 'delivered', 'acked', 'retried', 'lost', 'dead', 'removed'])
      await admin.hset(key(queue.name, 'stats'), name, 'x');
    await queue.enqueue({ payload: 3 });
    const { jobs } = await queue.drain({ limit: 2 });
    expect(await queue.ack(jobs.slice(0, 1))).toEqual(['held']);
    expect(await queue.nack(jobs.slice(1), { backoff: [0] })).toMatchObject([{ answer: 'pending' }]);
    expect((await queue.drain({ leaseMs: 0 })).jobs).toHaveLength(2);
  });
});
