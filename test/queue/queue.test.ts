import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Backoff, Inspector, JsonText, MAX_ERROR, orphans, type Queue } from '../../src/internal.js';
import { queueKeys } from '../../src/redis/keys.js';
import * as scripts from '../../src/scripts/jobs.js';
import { admin, connection, freshQueue, key, timePasses } from '../support/redis.js';

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
    const { due } = await queue.enqueue({ payload: 1, in: '1h' });
    const { now } = await queue.counts();
    expect(due - now).toBeGreaterThan(3_590_000);
    expect((await queue.drain()).jobs).toEqual([]);
    await timePasses(queue.name, 3_599_000);
    expect((await queue.drain()).jobs).toEqual([]);
    await timePasses(queue.name, 1_000);
    expect((await queue.drain()).jobs).toHaveLength(1);
  });

  it('takes a point in time', async () => {
    const queue = freshQueue();
    const due = Date.now() + 60_000;
    expect(await queue.enqueue({ payload: 1, at: new Date(due) })).toMatchObject({ due });
    expect(await queue.enqueue({ payload: 1, at: 1_000 })).toMatchObject({ due: 1_000 });
    expect((await queue.drain()).jobs).toMatchObject([{ due: 1_000 }]);
  });

  it('of single jobs in one go gives each its own result or error, and keeps their order', async () => {
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

  it('says for an id that is there: kept, or replaced when asked', async () => {
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

  it('that replaces a job being handled supersedes its lease, and the handler is told so', async () => {
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

  it('takes many at once, and an async iterable, and answers in order', async () => {
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

  it('of one bad job among many enqueues none of its batch', async () => {
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

  it('costs a plain job one zset entry and one hash field, and no key has a TTL', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, in: '1h' });
    expect(await queue.counts()).toMatchObject({ pending: 1, payload: 1, meta: 0, lease: 0, active: 0, dead: 0 });
    for (const name of ['pending', 'payload', 'stats']) expect(await admin.pttl(key(queue.name, name))).toBe(-1);
  });

  it('wakes watchers only for a new head that is due within a second', async () => {
    const queue = freshQueue();
    const heard: string[] = [];
    const listener = admin.duplicate();
    await listener.subscribe(queue.wakeChannel);
    listener.on('message', (_, message) => heard.push(message));
    await queue.enqueue({ payload: 1, in: '1h' });
    const { due } = await queue.enqueue({ payload: 1, in: '500ms' });
    await queue.enqueue({ payload: 1, in: '800ms' });
    await listener.ping();
    listener.disconnect();
    expect(heard).toEqual([String(due)]);
  });

  it('brings any JSON back byte for byte (failures 29)', async () => {
    const queue = freshQueue();
    const anything = fc.oneof(
      fc.json({ maxDepth: 4 }),
      fc.bigInt().map(String),
      fc.string({ unit: 'binary', maxLength: 300 }).map((text) => JSON.stringify(text)),
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
      { numRuns: 150 },
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

  it('says whether there is more, and when there will be', async () => {
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

  it('hides a job while it is leased and brings it back when the lease ended, counting a loss', async () => {
    const queue = freshQueue();
    const { due } = await queue.enqueue({ payload: 1 });
    await queue.drain({ leaseMs: 30_000 });
    await timePasses(queue.name, 29_000);
    expect((await queue.drain()).jobs).toEqual([]);
    await timePasses(queue.name, 1_500);
    const again = await queue.drain({ leaseMs: 30_000 });
    expect(again).toMatchObject({ lost: 1, died: 0, jobs: [{ attempt: 2, due: due - 30_500 }] });
    expect((await queue.counts()).stats).toMatchObject({ delivered: 2, lost: 1 });
  });

  it('gives a late holder its lease back as long as nobody took the job', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }, { payload: 3 }]);
    const { jobs } = await queue.drain({ leaseMs: 1_000 });
    await timePasses(queue.name, 5_000);
    expect(await queue.renew(jobs.slice(0, 1))).toEqual(['held']);
    expect(await queue.ack(jobs.slice(1, 2))).toEqual(['held']);
    expect(await queue.nack(jobs.slice(2), { backoff: [0] })).toMatchObject([{ answer: 'pending' }]);
    expect(await queue.drain()).toMatchObject({ lost: 0, jobs: [{ attempt: 2, payload: Buffer.from('3') }] });
  });

  it('refuses a late holder once another took the job (failures 12)', async () => {
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

  it('ends a job whose leases were lost too often', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, maxLost: 2 });
    for (let i = 0; i < 2; i++) {
      await queue.drain({ leaseMs: 1_000 });
      await timePasses(queue.name, 1_500);
    }
    expect(await queue.drain()).toMatchObject({ lost: 1, died: 1, jobs: [] });
    expect(await queue.counts()).toMatchObject({ dead: 1, payload: 1, stats: { dead: 1 } });
    const [meta] = await admin.hvals(key(queue.name, 'meta'));
    expect(JSON.parse(meta ?? '')).toMatchObject({ losses: 2, reason: 'lost' });
  });

  it('with lease 0 removes as it takes', async () => {
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
  });

  it('drops what is worth nothing any more, and counts it', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1, ttl: '1s' }, { payload: 2, ttl: '1h' }, { payload: 3 }]);
    await timePasses(queue.name, 5_000);
    expect(await queue.drain()).toMatchObject({ expired: 1, jobs: [{}, {}] });
    expect(await queue.counts()).toMatchObject({ payload: 2, stats: { expired: 1 } });
  });

  it('measures the time to live from the first due time, also after a failure, and takes it from the queue', async () => {
    const queue = freshQueue();
    await admin.hset(key(queue.name, 'config'), 'ttl', 10_000);
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

  it('takes nothing while the queue is paused', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    await admin.hset(key(queue.name, 'config'), 'paused', 'inf');
    expect(await queue.drain()).toMatchObject({ state: 'paused', next: undefined, jobs: [] });
    const { now } = await queue.counts();
    await admin.hset(key(queue.name, 'config'), 'paused', now + 5_000);
    expect(await queue.drain()).toMatchObject({ state: 'paused', next: now + 5_000 });
    await admin.hset(key(queue.name, 'config'), 'paused', now - 1);
    expect((await queue.drain()).jobs).toHaveLength(1);
  });

  it('does not create a queue that is not there', async () => {
    const queue = freshQueue();
    expect(await queue.drain()).toMatchObject({ state: 'idle', jobs: [] });
    expect(await admin.keys(key(queue.name, '*'))).toEqual([]);
  });

  it('of 10,000 asked for takes what one call may (failures 25)', async () => {
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

  it('takes back a heap of lost leases in steps, and what is due with them', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 700 }, (_, i) => ({ payload: i })));
    while ((await queue.drain({ leaseMs: 1_000 })).jobs.length > 0);
    await timePasses(queue.name, 2_000);
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
  it('counts a failure, keeps the error, and delays', async () => {
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

  it('ends a job when its tries are spent: its own, or those of the queue, or five', async () => {
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
    await admin.hset(key(queue.name, 'config'), 'tries', 3);
    expect(await fails(queue)).toBe(3);
    expect(await fails(queue, 1)).toBe(1);
    expect(await queue.counts()).toMatchObject({ dead: 2, payload: 2, pending: 0 });
  });

  it('counts failures and losses apart (failures 14)', async () => {
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
    await admin.hset(key(queue.name, 'config'), 'backoff', '30000 60000 600000');
    expect(await waits()).toEqual([30_000, 60_000, ...Array(5).fill(600_000)]);
    const plain = [15_000, 60_000, 240_000, 960_000, 3_600_000, 3_600_000, 3_600_000];
    for (const [i, ms] of (await waits('exponential')).entries()) {
      expect(ms).toBeGreaterThanOrEqual((plain[i] ?? 0) * 0.8 - 1);
      expect(ms).toBeLessThanOrEqual((plain[i] ?? 0) * 1.2);
    }
  });

  it('spreads the jobs of one call over the whole of the jitter', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 100 }, (_, i) => ({ payload: i })));
    const { jobs } = await queue.drain();
    const delays = (await queue.nack(jobs)).map(({ delayMs }) => delayMs).sort((a, b) => a - b);
    const gaps = delays.slice(1).map((delay, i) => delay - (delays[i] as number));
    expect(delays[0]).toBeLessThan(12_200);
    expect(delays.at(-1)).toBeGreaterThan(17_800);
    expect(Math.max(...gaps)).toBeLessThan(200);
  });

  it('keeps an error that is too long as far as it goes', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    await queue.nack((await queue.drain()).jobs, { error: `${'x'.repeat(MAX_ERROR)}y` });
    const [job] = await new Inspector(connection).show(queue.name, ['a']);
    expect(job?.error).toBe('x'.repeat(MAX_ERROR));
  });

  it('as release with a delay counts nothing either, and waits', async () => {
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

  it('as release counts nothing and keeps the place in line', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, at: 1 },
      { payload: 2, at: 2 },
    ]);
    const { jobs } = await queue.drain({ limit: 1 });
    expect(await queue.nack(jobs, { mode: 'release' })).toMatchObject([{ answer: 'pending' }]);
    expect((await queue.drain()).jobs).toMatchObject([
      { due: 1, attempt: 1 },
      { due: 2, attempt: 1 },
    ]);
    expect((await queue.counts()).meta).toBe(0);
  });

  it('of one job twice in one call counts once', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, tries: 1 });
    const { jobs } = await queue.drain();
    expect(await queue.nack([...jobs, ...jobs])).toMatchObject([{ answer: 'dead' }, { answer: 'lost' }]);
    expect(await queue.counts()).toMatchObject({ dead: 1, pending: 0, stats: { dead: 1 } });
  });
});

describe('what should not be there (failures 26)', () => {
  it('an id without a payload is set aside in dead and counted, and the rest goes on', async () => {
    const queue = freshQueue();
    await admin.zadd(key(queue.name, 'pending'), 1, 'ghost', 2, '\x1b[31mspace and\nescape');
    await queue.enqueue({ payload: 1 });
    expect(orphans(await queue.counts())).toEqual({ ids: 2, payloads: 0 });
    expect(await queue.drain()).toMatchObject({ orphaned: 2, jobs: [{ payload: Buffer.from('1') }] });
    expect(await queue.counts()).toMatchObject({ dead: 2, stats: { orphaned: 2 } });
    expect(JSON.parse((await admin.hget(key(queue.name, 'meta'), 'ghost')) ?? '')).toEqual({ reason: 'orphaned' });
  });

  it('a payload without an id is counted, and enqueuing its id makes a job of it', async () => {
    const queue = freshQueue();
    await admin.hset(key(queue.name, 'payload'), 'ghost', 'boo');
    expect(orphans(await queue.counts())).toEqual({ ids: 0, payloads: 1 });
    expect((await queue.drain()).jobs).toEqual([]);
    expect(await queue.enqueue({ payload: 2, id: 'ghost' })).toMatchObject({ outcome: 'created' });
    expect(orphans(await queue.counts())).toEqual({ ids: 0, payloads: 0 });
  });

  it('an id without a payload is mended by enqueuing it', async () => {
    const queue = freshQueue();
    await admin.zadd(key(queue.name, 'dead'), 1, 'ghost');
    expect(await queue.enqueue({ payload: 2, id: 'ghost' })).toMatchObject({ outcome: 'created' });
    expect(await queue.counts()).toMatchObject({ dead: 0, pending: 1, payload: 1 });
  });

  it('a lease without a record, and records that are no JSON or of strange types, stop nothing', async () => {
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

  it('a job whose lease has no due time to go back to goes back to now', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const { jobs } = await queue.drain();
    await admin.hset(key(queue.name, 'lease'), 'a', `${jobs[0]?.receipt} soon`);
    expect(await queue.nack(jobs, { mode: 'release' })).toMatchObject([{ answer: 'pending' }]);
    expect((await queue.drain()).jobs).toHaveLength(1);
  });

  it('scores that are fractions or endless stop nothing', async () => {
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

  it('a key of the wrong type is named, and nothing is changed', async () => {
    for (const name of ['pending', 'active', 'lease', 'dead', 'payload', 'meta', 'stats', 'config']) {
      const queue = freshQueue();
      await admin.zadd(key(queue.name, 'pending'), 1, 'a');
      await admin.hset(key(queue.name, 'payload'), 'a', '1');
      await admin.del(key(queue.name, name));
      await admin.set(key(queue.name, name), 'x');
      const before = await admin.dump(key(queue.name, 'pending'));
      const named = { code: 'config', why: expect.stringContaining(key(queue.name, name)) };
      await expect(queue.drain()).rejects.toMatchObject(named);
      await expect(queue.enqueue({ payload: 1 })).rejects.toMatchObject(named);
      await expect(queue.ack([{ id: 'a', receipt: 'x' }])).rejects.toMatchObject(named);
      expect(await admin.dump(key(queue.name, 'pending'))).toEqual(before);
    }
  });

  it('a queue of a newer layout is refused', async () => {
    const queue = freshQueue();
    await admin.hset(key(queue.name, 'config'), 'layout', 2);
    await expect(queue.enqueue({ payload: 1 })).rejects.toMatchObject({
      code: 'config',
      next: expect.stringContaining('newer delayq'),
    });
    await expect(queue.drain()).rejects.toMatchObject({ code: 'config' });
  });
});

describe('records that other software has spoilt (failures 26)', () => {
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

  it.each(records)('%s: the job stays whole, given back or taken back', async (record) => {
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

  it.each(leases)('a lease of "%s" costs no job', async (lease) => {
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

  it('a config that makes no sense counts as none', async () => {
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

it('a release with a delay does not make a time to live begin anew', async () => {
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

describe('numbers that are none', () => {
  it('are refused before anything changes', async () => {
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

  it('are refused by the scripts themselves, too', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const keys = queueKeys('delayq', queue.name);
    const wake = { channel: queue.wakeChannel, pollMs: 1_000 };
    const options = { limit: 10, receipt: 'r', by: 'me', cutoff: undefined };
    await expect(scripts.drain(connection, keys, { ...options, leaseMs: Number.NaN })).rejects.toThrow();
    await expect(scripts.drain(connection, keys, { ...options, leaseMs: 1, limit: -1 })).rejects.toThrow();
    const { jobs } = await queue.drain();
    await expect(scripts.renew(connection, keys, jobs, Number.NaN)).rejects.toThrow();
    const late = jobs.map((job) => ({ ...job, delayMs: Number.NaN }));
    await expect(
      scripts.nack(connection, keys, late, { mode: 'retry', backoff: '', jitter: 0, wake }),
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

it('jobs that were removed as they were taken can be put back as they were', async () => {
  const queue = freshQueue();
  await queue.enqueue([
    { payload: 1, at: 1_000, tries: 2, ttl: '52w', id: 'a' },
    { payload: 2, at: 2_000, id: 'b' },
  ]);
  await queue.enqueue({ payload: 3, at: 3_000 });
  await admin.hset(key(queue.name, 'payload'), 'b', Buffer.from([0xff]));
  await admin.hset(key(queue.name, 'config'), 'ttl', 10 ** 13);
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

it('a producer in any language may enqueue with plain commands', async () => {
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

it('scripts that Redis has forgotten are sent again, between any two calls (failures 18)', async () => {
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
