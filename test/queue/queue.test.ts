import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Backoff, Inspector, type Job, JsonText, MAX_ERROR, Operator } from '../../src/internal.js';
import { show } from '../support/handlers.js';
import { codePoint, slowRuns } from '../support/property.js';
import { admin, connection, freshQueue, hearing, key, keysLike, timePasses } from '../support/redis.js';

const json = (value: unknown) => JsonText.from(value);

describe('enqueue', () => {
  it('makes a job that is due now', async () => {
    const queue = freshQueue();
    const { id, outcome } = await queue.enqueue({ payload: { orderId: 42 } });
    expect(outcome).toBe('created');
    const { jobs } = await queue.drain();
    expect(jobs).toMatchObject([{ id, attempt: 1, payload: Buffer.from('{"orderId":42}') }]);
  });

  it('makes a job that is due later, by the clock of Redis', async () => {
    const queue = freshQueue();
    const before = await connection.now();
    const { due } = await queue.enqueue({ payload: 1, in: '1h' });
    expect(due - 3_600_000).toBeGreaterThanOrEqual(before);
    expect(due - 3_600_000).toBeLessThanOrEqual(await connection.now());
    expect((await queue.drain()).jobs).toEqual([]);
    await timePasses(queue.name, 3_000_000);
    expect((await queue.drain()).jobs).toEqual([]);
    await timePasses(queue.name, 600_000);
    expect((await queue.drain()).jobs).toHaveLength(1);
  });

  it('accepts a point in time', async () => {
    const queue = freshQueue();
    const due = Date.now() + 60_000;
    expect(await queue.enqueue({ payload: 1, at: new Date(due) })).toMatchObject({ due });
    expect(await queue.enqueue({ payload: 1, at: 1_000 })).toMatchObject({ due: 1_000 });
    expect((await queue.drain()).jobs).toMatchObject([{ due: 1_000 }]);
  });

  it.each([
    ['2026-12-24T14:00:00Z', Date.UTC(2026, 11, 24, 14)],
    ['2026-12-24T14:00:00.250+01:00', Date.UTC(2026, 11, 24, 13, 0, 0, 250)],
    ['2026-12-24 14:00-05:30', Date.UTC(2026, 11, 24, 19, 30)],
    ['@1795266000', 1_795_266_000_000],
  ])('accepts a point in time as text: %s', async (at, due) => {
    expect(await freshQueue().enqueue({ payload: 1, at })).toMatchObject({ due });
  });

  it.each(['2026-12-24T14:00:00', '2026-12-24', '14:00', '1795266000', '', 'tomorrow', '14:00Z', '2026-12-24T25:00Z'])(
    'refuses %j as a point in time',
    async (at) => {
      await expect(freshQueue().enqueue({ payload: 1, at })).rejects.toMatchObject({
        code: 'usage',
        next: expect.stringContaining('T14:00:00+01:00'),
      });
    },
  );

  it('refuses null as a point in time, which is not 1970', async () => {
    await expect(freshQueue().enqueue({ payload: 1, at: null as never })).rejects.toMatchObject({ code: 'usage' });
  });

  it('says what to do about a payload that is not there, or is not JSON', async () => {
    for (const payload of [undefined, 1n, () => {}]) {
      const error = { code: 'data', next: expect.stringMatching(/^pass /) };
      await expect(freshQueue().enqueue({ payload })).rejects.toMatchObject(error);
      await expect(freshQueue().enqueue([{ payload }])).rejects.toMatchObject(error);
    }
  });

  it('of batches tells a bad payload as the result of its batch, after those before it', async () => {
    async function* groups() {
      yield Array.from({ length: 250 }, (_, i) => ({ payload: i as unknown }));
      yield [{ payload: undefined }];
    }
    const results: string[] = [];
    for await (const result of freshQueue().enqueueBatches(groups())) results.push(Object.keys(result).join());
    expect(results).toEqual(['batch,enqueued', 'batch,error']);
  });

  it('of single jobs at once gives each its own result or error, and keeps their order', async () => {
    const queue = freshQueue();
    const bad = queue.enqueue({ payload: undefined });
    const many = Promise.all(Array.from({ length: 1_200 }, (_, i) => queue.enqueue({ payload: i })));
    const twice = [queue.enqueue({ payload: 'first', id: 'a' }), queue.enqueue({ payload: 'second', id: 'a' })];
    const replaced = queue.enqueue({ payload: 'third', id: 'a' }, { ifExists: 'replace' });
    await expect(bad).rejects.toMatchObject({ code: 'data' });
    expect(new Set((await many).map(({ id }) => id)).size).toBe(1_200);
    const outcomes = (await Promise.all([...twice, replaced])).map(({ outcome }) => outcome);
    expect(outcomes).toEqual(['created', 'kept', 'replaced']);
    const { pending } = await queue.counts();
    const seen: number[] = [];
    for (let state = 'more'; state === 'more'; ) {
      const drained = await queue.drain({ limit: 250 });
      for (const { id, payload } of drained.jobs) if (id !== 'a') seen.push(Number(payload));
      state = drained.state;
    }
    expect({ pending, seen }).toEqual({ pending: 1_201, seen: Array.from({ length: 1_200 }, (_, i) => i) });
  });

  it('of an existing id keeps the job, or replaces it on request', async () => {
    const queue = freshQueue();
    expect(await queue.enqueue({ payload: 1, id: 'a' })).toMatchObject({ outcome: 'created' });
    expect(await queue.enqueue({ payload: 2, id: 'a' })).toMatchObject({ outcome: 'kept' });
    expect(await queue.enqueue({ payload: 3, id: 'a' }, { ifExists: 'replace' })).toMatchObject({
      outcome: 'replaced',
    });
    const { jobs } = await queue.drain();
    expect(jobs.map(({ payload }) => String(payload))).toEqual(['3']);
    expect(await queue.enqueue({ payload: 4, id: 'a' })).toMatchObject({ outcome: 'kept' });
    await queue.nack(jobs, { mode: 'dead' });
    expect(await queue.enqueue({ payload: 5, id: 'a' })).toMatchObject({ outcome: 'kept-dead' });
    expect((await queue.counts()).stats).toMatchObject({ enqueued: 1, replaced: 1, kept: 3 });
  });

  it('of one id twice in one batch is like two calls', async () => {
    const queue = freshQueue();
    const twice = [
      { payload: 1, id: 'a', tries: 2 },
      { payload: 2, id: 'a' },
    ];
    expect(await queue.enqueue(twice)).toMatchObject([{ outcome: 'created' }, { outcome: 'kept' }]);
    const other = freshQueue();
    expect(await other.enqueue(twice, { ifExists: 'replace' })).toMatchObject([
      { outcome: 'created' },
      { outcome: 'replaced' },
    ]);
    expect((await other.drain()).jobs.map(({ payload }) => String(payload))).toEqual(['2']);
    expect((await other.counts()).meta).toBe(0);
  });

  it('of one id in two queues makes two jobs', async () => {
    const [one, two] = [freshQueue(), freshQueue()];
    expect(await one.enqueue({ payload: 1, id: 'a' })).toMatchObject({ outcome: 'created' });
    expect(await two.enqueue({ payload: 2, id: 'a' })).toMatchObject({ outcome: 'created' });
    expect((await one.drain()).jobs.map(({ payload }) => String(payload))).toEqual(['1']);
  });

  it('that replaces an active job supersedes its lease, and its holder learns so', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const first = (await queue.drain()).jobs;
    await queue.enqueue({ payload: 2, id: 'a' }, { ifExists: 'replace' });
    const second = (await queue.drain()).jobs;
    expect(second).toMatchObject([{ attempt: 1, payload: Buffer.from('2') }]);
    expect(await queue.renew(first)).toEqual(['superseded']);
    expect(await queue.nack(first)).toMatchObject([{ answer: 'superseded' }]);
    expect(await queue.ack(second)).toEqual(['held']);
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, lease: 0, payload: 0 });
  });

  it('accepts an array and an async iterable, and returns results in order', async () => {
    const queue = freshQueue();
    const many = await queue.enqueue(Array.from({ length: 1_203 }, (_, i) => ({ payload: i, id: `a${i}` })));
    expect(many.map(({ id }) => id)).toEqual(Array.from({ length: 1_203 }, (_, i) => `a${i}`));
    async function* endless() {
      for (let i = 0; i < 1_203; i++) yield { payload: i, id: `b${i}` };
    }
    let n = 0;
    for await (const { id } of queue.enqueue(endless())) expect(id).toBe(`b${n++}`);
    expect(await queue.counts()).toMatchObject({ pending: 2_406, payload: 2_406 });
  });

  it('of one invalid job among many enqueues none of its batch', async () => {
    const queue = freshQueue();
    await expect(queue.enqueue([{ payload: 1 }, { payload: 1, id: 'bad id' }])).rejects.toMatchObject({
      code: 'usage',
    });
    await expect(queue.enqueue({ payload: 1, tries: 0 })).rejects.toMatchObject({ code: 'usage' });
    await expect(queue.enqueue({ payload: 1, in: -1 })).rejects.toMatchObject({ code: 'usage' });
    await expect(queue.enqueue({ payload: 1, in: 1, at: 1 })).rejects.toMatchObject({ code: 'usage' });
    await expect(queue.enqueue({ payload: 1, at: Number.NaN })).rejects.toMatchObject({ code: 'usage' });
    expect(await queue.counts()).toMatchObject({ pending: 0, stats: {} });
  });

  it('stores a plain job as one zset entry and one hash field, and no key has a TTL', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, in: '1h' });
    expect(await queue.counts()).toMatchObject({ pending: 1, payload: 1, meta: 0, lease: 0, active: 0, dead: 0 });
    for (const name of ['pending', 'payload', 'stats']) expect(await admin.pttl(key(queue.name, name))).toBe(-1);
  });

  it('wakes waiting drains only for a new first job that is due within a second', async () => {
    const queue = freshQueue();
    const { messages, client } = await hearing(queue.wakeChannel);
    await queue.enqueue({ payload: 1, in: '1h' });
    const { due } = await queue.enqueue({ payload: 1, in: '500ms' });
    await queue.enqueue({ payload: 1, in: '800ms' });
    await client.ping();
    expect(messages).toEqual([String(due)]);
  });

  it('returns any JSON byte for byte (failures 29)', async () => {
    const queue = freshQueue();
    const anything = fc.oneof(
      fc.json({ maxDepth: 4 }),
      fc.bigInt().map(String),
      fc.string({ unit: codePoint, maxLength: 300 }).map((text) => JSON.stringify(text)),
      fc.constantFrom(
        '"\\u0000\\ud800\\/"',
        '{"a":1,"a":2}',
        '-0',
        '1E400',
        `"${'x'.repeat(512 * 1024)}"`,
        '"😀\\ud83d"',
        '"\x7f\u2028"',
      ),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(anything, { minLength: 1, maxLength: 20 }), async (texts) => {
        await queue.enqueue(texts.map((text, i) => ({ payload: JsonText.parse(text), at: i })));
        const { jobs } = await queue.drain({ leaseMs: 0 });
        const back = [...jobs];
        while (back.length < texts.length) back.push(...(await queue.drain({ leaseMs: 0 })).jobs);
        expect(back.map(({ payload }) => payload.toString())).toEqual(texts.map((text) => text.trim()));
      }),
      slowRuns(150),
    );
  });
});

describe('drain', () => {
  it('takes the oldest due first', async () => {
    const queue = freshQueue();
    await queue.enqueue([5, 3, 1, 4, 2].map((n) => ({ payload: n, at: n })));
    const { jobs } = await queue.drain();
    expect(jobs.map(({ due }) => due)).toEqual([1, 2, 3, 4, 5]);
  });

  it('says whether there is more to take, and when there will be', async () => {
    const queue = freshQueue();
    const { due } = await queue.enqueue({ payload: 1, in: '1h' });
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    expect(await queue.drain({ limit: 1 })).toMatchObject({ state: 'more' });
    const last = await queue.drain({ limit: 1, leaseMs: 10_000_000 });
    expect(last).toMatchObject({ state: 'idle' });
    const next = await queue.drain();
    expect(next).toMatchObject({ state: 'idle', jobs: [] });
    expect(next.next).toBeLessThan(due);
  });

  it('takes a job that is alone as it takes many: with what it was enqueued with, and its counts', async () => {
    const queue = freshQueue();
    const given = { payload: 1, tries: 7, ttl: '1h', created: 1_000, attributes: { kind: 'x' } };
    const shapeOf = ({ attempt, failures, tries, attributes, created, expires }: Job) => {
      return { attempt, failures, tries, attributes, created, isMortal: expires !== undefined };
    };
    const shapes: object[][] = [];
    for (const limit of [1, 1, 10]) {
      await queue.enqueue(Array.from({ length: limit === 1 ? 1 : 2 }, () => given));
      const first = await queue.drain({ limit });
      await queue.nack(first.jobs.map((job) => ({ ...job, delayMs: 0 })));
      const again = await queue.drain({ limit });
      await queue.ack(again.jobs);
      shapes.push([first.jobs[0] as Job, again.jobs[0] as Job].map(shapeOf));
    }
    const [alone, short, many] = shapes;
    expect(alone?.[0]).toEqual({
      attempt: 1,
      failures: 0,
      tries: 7,
      attributes: { kind: 'x' },
      created: 1_000,
      isMortal: true,
    });
    expect(alone?.[1]).toMatchObject({ attempt: 2, failures: 1 });
    expect(short).toEqual(alone);
    expect(many).toEqual(alone);
  });

  it('drops a job that is alone if its time to live has passed, also since it came first', async () => {
    const queue = freshQueue();
    await queue.drain(); // So that the next ones go the short way.
    for (const record of ['{"ttl":5000}', '{"ttl": 5000}', '{"ttl":"5000"}', '{"first":1,"ttl":50000}']) {
      await queue.enqueue({ id: 'one', payload: 1, at: Date.now() - 10_000 });
      await admin.hset(key(queue.name, 'meta'), 'one', record);
      expect(await queue.drain({ limit: 1 }), record).toMatchObject({ jobs: [], expired: 1 });
    }
    for (const record of ['{"ttl":50000}', '{"ttl": 50000}', '{"first":1e12,"ttl":1e15}', 'x', '{"ttl":{}}']) {
      await queue.enqueue({ id: 'one', payload: 1, at: Date.now() - 10_000 });
      await admin.hset(key(queue.name, 'meta'), 'one', record);
      const { jobs } = await queue.drain({ limit: 1 });
      expect(jobs, record).toMatchObject([{ id: 'one' }]);
      await queue.ack(jobs);
    }
  });

  it('of a job that is alone says when the first lease ends, and counts how late the job was', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    await timePasses(queue.name, 12_000);
    const { now } = await queue.drain({ limit: 1, leaseMs: 500_000 });
    await queue.enqueue({ payload: 2 });
    const second = await queue.drain({ limit: 1, leaseMs: 1_000_000 });
    expect(second).toMatchObject({ state: 'idle', next: now + 500_000 });
    await queue.enqueue({ payload: 3 });
    const third = await queue.drain({ limit: 1, leaseMs: 100_000 });
    expect(third).toMatchObject({ state: 'idle', next: third.now + 100_000 });
    const stats = await admin.hgetall(key(queue.name, 'stats'));
    expect(stats).toMatchObject({ delivered: '3', 'late:60000': '1' });
    // Noted once a second.
    expect(Number(stats.drained)).toBeLessThanOrEqual(third.now);
    expect(Number(stats.drained)).toBeGreaterThanOrEqual(now);
    expect(Number(stats['late:sum'])).toBeGreaterThanOrEqual(12_000);
  });

  it('hides a job until its lease expires, then delivers it again and counts a loss', async () => {
    const queue = freshQueue();
    const { due } = await queue.enqueue({ payload: 1 });
    await queue.drain({ leaseMs: 600_000 });
    await timePasses(queue.name, 500_000);
    expect((await queue.drain()).jobs).toEqual([]);
    await timePasses(queue.name, 100_500);
    const again = await queue.drain({ leaseMs: 30_000 });
    expect(again).toMatchObject({ lost: 1, died: [], jobs: [{ attempt: 2, due: due - 600_500 }] });
    expect((await queue.counts()).stats).toMatchObject({ delivered: 2, lost: 1 });
  });

  it('leaves nothing of jobs that are acked, whichever receipts they have', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 4 }, () => ({ payload: 1, tries: 3 })));
    const { jobs: first } = await queue.drain({ limit: 1 });
    const { jobs: rest } = await queue.drain();
    const jobs = [...first, ...rest];
    // A part of a receipt proves nothing.
    const cut = jobs.map((job) => ({ ...job, receipt: job.receipt.slice(0, -1) }));
    expect(await queue.ack(cut)).toEqual(['lost', 'lost', 'lost', 'lost']);
    expect(await queue.ack(cut.slice(0, 1))).toEqual(['lost']);
    expect(await queue.ack(jobs.slice(3))).toEqual(['held']);
    expect(await queue.ack(jobs.slice(0, 3))).toEqual(['held', 'held', 'held']);
    expect(await queue.counts()).toMatchObject({ active: 0, lease: 0, payload: 0, meta: 0, stats: { acked: 4 } });
  });

  it('accepts a late ack, nack or renew if nobody has taken the job back', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }, { payload: 3 }]);
    const { jobs } = await queue.drain({ leaseMs: 1_000 });
    await timePasses(queue.name, 5_000);
    expect(await queue.renew(jobs.slice(0, 1))).toEqual(['held']);
    expect(await queue.ack(jobs.slice(1, 2))).toEqual(['held']);
    expect(await queue.nack(jobs.slice(2), { backoff: [0] })).toMatchObject([{ answer: 'pending' }]);
    expect(await queue.drain()).toMatchObject({ lost: 0, jobs: [{ attempt: 2, payload: Buffer.from('3') }] });
  });

  it('rejects a late holder after another drain took the job (failures 12)', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const { jobs: late } = await queue.drain({ leaseMs: 1_000 });
    await timePasses(queue.name, 1_500);
    const { jobs } = await queue.drain();
    expect(await queue.ack(late)).toEqual(['lost']);
    expect(await queue.renew(late)).toEqual(['lost']);
    expect(await queue.nack(late)).toMatchObject([{ answer: 'lost' }]);
    expect(await queue.ack(jobs)).toEqual(['held']);
    expect(await queue.nack(late)).toMatchObject([{ answer: 'lost' }]);
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, dead: 0, payload: 0, meta: 0, lease: 0 });
  });

  it('moves a job to dead that was lost too often', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, maxLost: 2 });
    for (let i = 0; i < 2; i++) {
      await queue.drain({ leaseMs: 1_000 });
      await timePasses(queue.name, 1_500);
    }
    expect(await queue.drain()).toMatchObject({ lost: 1, died: [{ reason: 'lost' }], jobs: [] });
    expect(await queue.counts()).toMatchObject({ dead: 1, payload: 1, stats: { dead: 1 } });
    const [meta] = await admin.hvals(key(queue.name, 'meta'));
    expect(JSON.parse(meta ?? '')).toMatchObject({ losses: 2, reason: 'lost' });
  });

  it('with lease 0 removes jobs at once', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1, tries: 2 }, { payload: 2 }]);
    expect((await queue.drain({ leaseMs: 0 })).jobs).toHaveLength(2);
    expect(await queue.counts()).toMatchObject({
      pending: 0,
      active: 0,
      payload: 0,
      meta: 0,
      lease: 0,
      stats: { removed: 2 },
    });
  });

  it('with a cutoff takes only what was due by then', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, at: 1_000 },
      { payload: 2, at: 2_000 },
    ]);
    expect((await queue.drain({ cutoff: 1_500 })).jobs).toMatchObject([{ due: 1_000 }]);
    // Never early.
    await queue.enqueue({ payload: 3, in: '1h' });
    expect((await queue.drain({ cutoff: Date.now() + 7_200_000 })).jobs).toMatchObject([{ due: 2_000 }]);
  });

  it('drops expired jobs, and counts them', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1, ttl: '1s' }, { payload: 2, ttl: '1h' }, { payload: 3 }]);
    await timePasses(queue.name, 5_000);
    expect(await queue.drain()).toMatchObject({ expired: 1, jobs: [{}, {}] });
    expect(await queue.counts()).toMatchObject({ payload: 2, stats: { expired: 1 } });
  });

  it("counts the time to live from the first due time, also after a failure; its default is the queue's", async () => {
    const queue = freshQueue();
    await admin.hset(key(queue.name, 'config'), 'layout', '1 0/1 uses settings', 'ttl', 10_000);
    await queue.enqueue({ payload: 1 });
    const { jobs } = await queue.drain();
    await queue.nack(jobs.map((job) => ({ ...job, delayMs: 8_000 })));
    await timePasses(queue.name, 9_000);
    const { jobs: again } = await queue.drain();
    expect(again).toHaveLength(1);
    await queue.nack(again.map((job) => ({ ...job, delayMs: 8_000 })));
    await timePasses(queue.name, 9_000);
    expect(await queue.drain()).toMatchObject({ expired: 1, jobs: [] });
  });

  it("drops a job that is alone when the queue's time to live has passed", async () => {
    const queue = freshQueue();
    await admin.hset(key(queue.name, 'config'), 'layout', '1 0/1 uses settings', 'ttl', 1_000);
    await queue.enqueue({ payload: 1 });
    await timePasses(queue.name, 5_000);
    expect(await queue.drain()).toMatchObject({ expired: 1, jobs: [] });
    expect(await queue.counts()).toMatchObject({ payload: 0, stats: { expired: 1 } });
  });

  it('takes nothing while the queue is paused', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    await admin.hset(key(queue.name, 'config'), 'layout', '1 0/1 uses settings', 'paused', 'inf');
    expect(await queue.drain()).toMatchObject({ state: 'paused', next: undefined, jobs: [] });
    const { now } = await queue.counts();
    await admin.hset(key(queue.name, 'config'), 'layout', '1 0/1 uses settings', 'paused', now + 5_000);
    expect(await queue.drain()).toMatchObject({ state: 'paused', next: now + 5_000 });
    await admin.hset(key(queue.name, 'config'), 'layout', '1 0/1 uses settings', 'paused', now - 1);
    expect((await queue.drain()).jobs).toHaveLength(1);
  });

  it('does not create a queue', async () => {
    const queue = freshQueue();
    expect(await queue.drain()).toMatchObject({ state: 'idle', jobs: [] });
    expect(await keysLike(key(queue.name, '*'))).toEqual([]);
  });

  it('with a limit of 10,000 takes at most one call (failures 25)', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 10_000 }, (_, i) => ({ payload: i })));
    const jobs = [];
    for (let more = true; more; ) {
      const drained = await queue.drain({ limit: 10_000 });
      expect(drained.jobs.length).toBeLessThanOrEqual(250);
      jobs.push(...drained.jobs);
      more = drained.state === 'more';
    }
    expect(jobs).toHaveLength(10_000);
    expect(new Set(await queue.renew(jobs))).toEqual(new Set(['held']));
    expect(new Set(await queue.ack(jobs))).toEqual(new Set(['held']));
    expect(await queue.counts()).toMatchObject({ active: 0, payload: 0, lease: 0 });
  });

  it('returns at most about 1 MiB of payloads, one job at least (failures 23)', async () => {
    const queue = freshQueue();
    const big = json('x'.repeat(300 * 1024));
    await queue.enqueue(Array.from({ length: 10 }, (_, i) => ({ payload: i < 5 ? i : big, at: i })));
    expect((await queue.drain()).jobs).toHaveLength(8);
    await queue.enqueue({ payload: json('x'.repeat(3 * 1024 * 1024)), at: 0 });
    expect((await queue.drain()).jobs).toHaveLength(1);
    expect((await queue.drain()).jobs).toHaveLength(2);
  });

  it('takes back many expired leases in steps, together with due jobs', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 700 }, (_, i) => ({ payload: i })));
    while ((await queue.drain({ leaseMs: 600_000 })).jobs.length > 0);
    await timePasses(queue.name, 601_000);
    const seen = new Set<string>();
    for (;;) {
      const { jobs, state, lost } = await queue.drain();
      expect(lost).toBeLessThanOrEqual(200);
      for (const { id } of jobs) seen.add(id);
      if (state === 'idle') break;
    }
    expect(seen.size).toBe(700);
  });
});

describe('nack', () => {
  it('counts a failure, stores the error, and delays the job', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const { jobs } = await queue.drain();
    expect(
      await queue.nack(
        jobs.map((job) => ({ ...job, delayMs: 5_000 })),
        { error: 'no luck' },
      ),
    ).toEqual([{ answer: 'pending', delayMs: 5_000 }]);
    expect((await queue.drain()).jobs).toEqual([]);
    await timePasses(queue.name, 5_000);
    expect((await queue.drain()).jobs).toMatchObject([{ attempt: 2 }]);
    expect(JSON.parse((await admin.hget(key(queue.name, 'meta'), 'a')) ?? '')).toMatchObject({
      failures: 1,
      error: 'no luck',
    });
    expect((await queue.counts()).stats).toMatchObject({ retried: 1 });
  });

  it("moves a job to dead after its own tries, the queue's, or five", async () => {
    const fails = async (queue = freshQueue(), tries?: number) => {
      await queue.enqueue({ payload: 1, tries });
      for (let n = 1; ; n++) {
        const { jobs } = await queue.drain();
        if ((await queue.nack(jobs.map((job) => ({ ...job, delayMs: 0 }))))[0]?.answer === 'dead') return n;
      }
    };
    expect(await fails()).toBe(5);
    expect(await fails(freshQueue(), 2)).toBe(2);
    const queue = freshQueue();
    await admin.hset(key(queue.name, 'config'), 'layout', '1 0/1 uses settings', 'tries', 3);
    expect(await fails(queue)).toBe(3);
    expect(await fails(queue, 1)).toBe(1);
    expect(await queue.counts()).toMatchObject({ dead: 2, payload: 2, pending: 0 });
  });

  it('counts failures and losses separately (failures 14)', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, tries: 2, id: 'a' });
    for (let i = 0; i < 4; i++) {
      await queue.drain({ leaseMs: 1_000 });
      await timePasses(queue.name, 2_000);
    }
    const { jobs } = await queue.drain();
    expect(jobs).toMatchObject([{ attempt: 5 }]);
    expect(await queue.nack(jobs)).toMatchObject([{ answer: 'pending' }]);
    expect(JSON.parse((await admin.hget(key(queue.name, 'meta'), 'a')) ?? '')).toMatchObject({
      failures: 1,
      losses: 4,
    });
  });

  it("without a delay waits by the backoff: a list, the queue's, or exponential with jitter", async () => {
    const queue = freshQueue();
    const waits = async (backoff?: Backoff) => {
      const seen: number[] = [];
      await queue.enqueue({ payload: 1, tries: 8 });
      for (let i = 0; i < 7; i++) {
        const { jobs } = await queue.drain();
        const [nacked] = await queue.nack(jobs, { backoff });
        seen.push(nacked?.delayMs ?? -1);
        await timePasses(queue.name, seen.at(-1) ?? 0);
      }
      await queue.ack((await queue.drain()).jobs);
      return seen;
    };
    expect(await waits([1_000, 2_000])).toEqual([1_000, ...Array(6).fill(2_000)]);
    await admin.hset(key(queue.name, 'config'), 'layout', '1 0/1 uses settings', 'backoff', '30000 60000 600000');
    expect(await waits()).toEqual([30_000, 60_000, ...Array(5).fill(600_000)]);
    const plain = [15_000, 60_000, 240_000, 960_000, 3_600_000, 3_600_000, 3_600_000];
    for (const [i, ms] of (await waits('exponential')).entries()) {
      expect(ms).toBeGreaterThanOrEqual((plain[i] ?? 0) * 0.8 - 1);
      expect(ms).toBeLessThanOrEqual((plain[i] ?? 0) * 1.2);
    }
  });

  it('spreads the jobs of one call over the whole range of the jitter', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 100 }, (_, i) => ({ payload: i })));
    const { jobs } = await queue.drain();
    const delays = (await queue.nack(jobs)).map(({ delayMs }) => delayMs).sort((a, b) => a - b);
    const gaps = delays.slice(1).map((delay, i) => delay - (delays[i] as number));
    expect(delays[0]).toBeLessThan(12_200);
    expect(delays.at(-1)).toBeGreaterThan(17_800);
    expect(Math.max(...gaps)).toBeLessThan(200);
  });

  it('cuts an error that is too long', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    await queue.nack((await queue.drain()).jobs, { error: `${'x'.repeat(MAX_ERROR)}y` });
    const [job] = await new Inspector(connection).show(queue.name, ['a']);
    expect(job?.error).toBe('x'.repeat(MAX_ERROR));
  });

  it('as release with a delay counts nothing, and delays the job', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, tries: 1 });
    const { jobs } = await queue.drain();
    await queue.nack(
      jobs.map((job) => ({ ...job, delayMs: 60_000 })),
      { mode: 'release' },
    );
    const { pending, due, meta, stats } = await queue.counts();
    expect({ pending, due, meta: meta - 1, retried: stats.retried }).toEqual({
      pending: 1,
      due: 0,
      meta: 0,
      retried: undefined,
    });
  });

  it.each([
    ['release', 1],
    ['back', 0],
  ] as const)('as %s counts no failure, %i release, and keeps the due time', async (mode, releases) => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, at: 1 },
      { payload: 2, at: 2 },
    ]);
    const { jobs } = await queue.drain({ limit: 1 });
    expect(await queue.nack(jobs, { mode })).toMatchObject([{ answer: 'pending' }]);
    expect((await queue.drain()).jobs).toMatchObject([
      { due: 1, attempt: 1, failures: 0 },
      { due: 2, attempt: 1 },
    ]);
    const { meta, stats } = await queue.counts();
    expect([meta, stats.released ?? 0]).toEqual([releases, releases]);
  });

  it('as release more often than maxReleases makes the job dead; after a requeue the count begins anew', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a', at: 1 });
    const release = async () => (await queue.nack((await queue.drain()).jobs, { mode: 'release', maxReleases: 2 }))[0];
    expect(await release()).toMatchObject({ answer: 'pending' });
    expect(await release()).toMatchObject({ answer: 'pending' });
    expect(await release()).toMatchObject({ answer: 'dead' });
    expect(await show(queue, 'a')).toMatchObject({
      state: 'dead',
      reason: 'released',
      releases: 3,
      failures: 0,
      due: 1,
    });
    expect((await queue.counts()).failures).toBeUndefined();
    await new Operator(connection).requeue(queue.name, ['a']);
    expect(await show(queue, 'a')).toMatchObject({ state: 'pending', releases: 0 });
    expect(await release()).toMatchObject({ answer: 'pending' });
    await expect(queue.nack([], { mode: 'release', maxReleases: 0 })).rejects.toMatchObject({ code: 'usage' });
  });

  it('of the same job twice in one call counts once', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, tries: 1 });
    const { jobs } = await queue.drain();
    expect(await queue.nack([...jobs, ...jobs])).toMatchObject([{ answer: 'dead' }, { answer: 'lost' }]);
    expect(await queue.counts()).toMatchObject({ dead: 1, pending: 0, stats: { dead: 1 } });
  });
});

it('a release with a delay does not restart the time to live', async () => {
  const queue = freshQueue();
  await queue.enqueue({ payload: 1, ttl: '10s' });
  const { jobs } = await queue.drain();
  await queue.nack(
    jobs.map((job) => ({ ...job, delayMs: 9_000 })),
    { mode: 'release' },
  );
  await timePasses(queue.name, 11_000);
  expect(await queue.drain()).toMatchObject({ expired: 1, jobs: [] });
});

it('jobs removed by lease 0 can be put back unchanged', async () => {
  const queue = freshQueue();
  await queue.enqueue([
    { payload: 1, at: 1_000, tries: 2, ttl: '52w', id: 'a' },
    { payload: 2, at: 2_000, id: 'b' },
  ]);
  await queue.enqueue({ payload: 3, at: 3_000 });
  await admin.hset(key(queue.name, 'payload'), 'b', Buffer.from([0xff]));
  await admin.hset(key(queue.name, 'config'), 'layout', '1 0/1 uses settings', 'ttl', 10 ** 13);
  await admin.hset(key(queue.name, 'meta'), 'a', '{"tries":2,"ttl":9000000000000,"failures":1}');
  const before = await Promise.all(['payload', 'meta'].map((name) => admin.hgetallBuffer(key(queue.name, name))));
  const { jobs } = await queue.drain({ leaseMs: 0 });
  expect(jobs).toHaveLength(3);
  await queue.putBack(jobs);
  expect(await Promise.all(['payload', 'meta'].map((name) => admin.hgetallBuffer(key(queue.name, name))))).toEqual(
    before,
  );
  expect((await queue.drain()).jobs).toMatchObject([
    { due: 1_000, attempt: 2 },
    { due: 2_000, attempt: 1 },
    { due: 3_000 },
  ]);
});

it('a producer in any language can enqueue with plain commands', async () => {
  const queue = freshQueue();
  await admin
    .multi()
    .hset(key(queue.name, 'payload'), 'abc', '{"n":1}')
    .zadd(key(queue.name, 'pending'), Date.now(), 'abc')
    .exec();
  const { jobs } = await queue.drain();
  expect(jobs).toMatchObject([{ id: 'abc', attempt: 1 }]);
  expect(await queue.ack(jobs)).toEqual(['held']);
});

it('scripts are sent again after Redis has forgotten them, between any two calls (failures 18)', async () => {
  const queue = freshQueue();
  const flush = () => connection.call('SCRIPT', 'FLUSH');
  await queue.enqueue({ payload: 1 });
  await flush();
  await queue.enqueue({ payload: 2 });
  await flush();
  const { jobs } = await queue.drain();
  expect(jobs).toHaveLength(2);
  await flush();
  expect(await queue.renew(jobs)).toEqual(['held', 'held']);
  await flush();
  expect(await queue.nack(jobs.slice(1))).toMatchObject([{ answer: 'pending' }]);
  await flush();
  expect(await queue.ack(jobs.slice(0, 1))).toEqual(['held']);
  await flush();
  expect(await queue.counts()).toMatchObject({ pending: 1, active: 0 });
});
