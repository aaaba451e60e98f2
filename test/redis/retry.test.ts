import { describe, expect, it } from 'vitest';
import { Connection, Queue } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { begin, delayq, linesOf } from '../support/cli.js';
import { FaultyProxy } from '../support/proxy.js';
import { admin, freshName, freshQueue, key, listeners, redisTargets, timePasses } from '../support/redis.js';
import { until } from '../support/until.js';

const proxy = () => during(FaultyProxy.start(...redisTargets));

const via = (url: string) => ({ env: { DELAYQ_REDIS_URL: url } });

describe.concurrent('a lost reply', () => {
  it('of enqueue: the call is repeated, and makes one job (failures 2)', async () => {
    const queue = freshQueue();
    const through = await proxy();
    through.fault = { word: 'EVAL', kind: 'cut', times: 1 };
    const { code, stdout, stderr } = await delayq(['enqueue', queue.name, '1'], via(through.url));
    expect({ code, stderr, struck: through.struck }).toEqual({ code: 0, stderr: '', struck: 1 });
    expect(await admin.hgetall(key(queue.name, 'payload'))).toEqual({ [stdout.trim()]: '1' });
  });

  it('of enqueue and of its repeats: exit 75 with the id; repeating with that id makes one job (failures 2)', async () => {
    const queue = freshQueue();
    const through = await proxy();
    through.fault = { word: 'EVAL', kind: 'cut', times: 100 };
    const { code, stdout, stderr } = await delayq(['enqueue', queue.name, '1'], via(through.url));
    expect({ code, stdout }).toEqual({ code: 75, stdout: '' });
    const id = /repeat with the id (\w+)/.exec(stderr)?.[1] as string;
    expect(await delayq(['enqueue', '--id', id, queue.name, '1'])).toMatchObject({ code: 0, stdout: `${id}\n` });
    expect(await admin.hgetall(key(queue.name, 'payload'))).toEqual({ [id]: '1' });
  });

  it('of single jobs that share a call: each caller gets the error of its own job', async () => {
    const through = await proxy();
    const redis = new Connection(through.url);
    const queue = new Queue(redis, freshName());
    through.fault = { word: 'EVAL', kind: 'cut', times: 100 };
    const asked = await Promise.allSettled(['a', 'b'].map((id) => queue.enqueue({ payload: id, id })));
    expect(asked).toMatchObject(['a', 'b'].map((id) => ({ reason: { code: 'unknown', ids: [id] } })));
    through.fault = undefined;
    const again = await Promise.all(['a', 'b'].map((id) => queue.enqueue({ payload: id, id })));
    redis.close();
    expect(again.map(({ outcome }) => outcome)).toEqual(['kept', 'kept']);
  });

  it('does not matter to a job object that its caller changes before the repeat', async () => {
    const through = await proxy();
    const redis = new Connection(through.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, freshName());
    // Redis knows the script from here on, so the first call runs it.
    await freshQueue().enqueue({ payload: 1 });
    through.fault = { word: 'EVAL', kind: 'cut', times: 1 };
    const job: { payload: number[]; id?: string } = { payload: [1] };
    const asked = queue.enqueue(job);
    job.id = 'a';
    job.payload.push(2);
    const { id, outcome } = await asked;
    expect({ outcome, struck: through.struck }).toEqual({ outcome: 'created', struck: 1 });
    expect(await admin.hgetall(key(queue.name, 'payload'))).toEqual({ [id]: '[1]' });
  });

  it('of a replacement: exit 75 if the job that is there may be the older one', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 'old', id: 'a' });
    const through = await proxy();
    through.fault = { word: 'EVAL', kind: 'cut', times: 1 };
    const replace = await delayq(
      ['enqueue', '--id', 'a', '--if-exists', 'replace', queue.name, '"new"'],
      via(through.url),
    );
    expect(replace).toMatchObject({ code: 75, stderr: expect.stringContaining('may be the earlier') });
  });

  it('in the middle of a bulk enqueue loses and doubles no line (failures 2)', async () => {
    const queue = freshQueue();
    const through = await proxy();
    const input = Array.from({ length: 6_000 }, (_, i) => `${i}\n`).join('');
    through.fault = { word: '2222', kind: 'cut', times: 1 };
    const { code, stdout, stderr } = await delayq(['enqueue', queue.name, '-'], { input, ...via(through.url) });
    expect({ code, stderr, struck: through.struck }).toEqual({ code: 0, stderr: '', struck: 1 });
    const ids = linesOf(stdout);
    expect(await admin.hmget(key(queue.name, 'payload'), ...ids)).toEqual(
      Array.from({ length: 6_000 }, (_, i) => String(i)),
    );
    expect((await queue.counts()).payload).toBe(6_000);
  });

  it('in a bulk enqueue that stays lost is reported line by line; repeating those lines makes each job once (failures 2)', async () => {
    const queue = freshQueue();
    const through = await proxy();
    const input = Array.from({ length: 6_000 }, (_, i) => `${i}\n`).join('');
    through.fault = { word: 'EVAL', kind: 'cut', times: 100 };
    const { code, stdout, stderr } = await delayq(['enqueue', queue.name, '-'], { input, ...via(through.url) });
    expect(code).toBe(75);
    const unknown = [...stderr.matchAll(/line (\d+): may or may not .* the id (\w+)/g)].map(
      ([, line, id]) => [Number(line), id] as const,
    );
    const rest = Number(/lines after (\d+): not enqueued/.exec(stderr)?.[1] ?? 6_000);
    const missed = [...stderr.matchAll(/lines (\d+) to (\d+): not enqueued/g)].map(
      ([, from, to]) => [Number(from), Number(to)] as const,
    );
    expect(unknown.length).toBeGreaterThan(0);
    expect(stderr).toContain(`in doubt: ${unknown.length.toLocaleString('en')} jobs that may or may not be enqueued\n`);
    const again = [
      ...unknown.map(([line, id]) => ({ payload: line - 1, id })),
      ...missed.flatMap(([from, to]) => Array.from({ length: to - from + 1 }, (_, i) => ({ payload: from + i - 1 }))),
      ...Array.from({ length: 6_000 - rest }, (_, i) => ({ payload: rest + i })),
    ];
    await queue.enqueue(again);
    expect(linesOf(stdout).length + again.length).toBe(6_000);
    const payloads = (await admin.hvals(key(queue.name, 'payload'))).map(Number).sort((a, b) => a - b);
    expect(payloads).toEqual(Array.from({ length: 6_000 }, (_, i) => i));
  });

  it.each(['', '--lease 1m'])(
    'of drain %s loses nothing: the jobs come back after their lease (failures 8)',
    async (form) => {
      const queue = freshQueue();
      await queue.enqueue(Array.from({ length: 2_000 }, (_, n) => ({ payload: n })));
      const through = await proxy();
      // The first call that contains a receipt and is not the text of a script: a drain.
      through.fault = { word: 'EVALSHA', kind: 'cut', times: 1 };
      const words = form.split(' ').filter(Boolean);
      const first = await delayq(['drain', ...words, queue.name], via(through.url));
      expect(first).toMatchObject({ code: 75, stderr: expect.stringContaining('lost the connection') });
      await timePasses(queue.name, 60_001);
      const second = await delayq(['drain', queue.name]);
      const seen = [...linesOf(first.stdout), ...linesOf(second.stdout)].map((line) =>
        line.startsWith('{') ? JSON.parse(line).payload : Number(line),
      );
      expect(new Set(seen).size).toBe(2_000);
      expect((await queue.counts()).payload).toBe(0);
    },
  );

  it('of ack: the call is repeated, and the jobs are removed', async () => {
    const through = await proxy();
    const far = new Connection(through.url);
    afterwards(() => far.close());
    const queue = new Queue(far, freshName());
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const { jobs } = await queue.drain();
    through.fault = { word: 'EVAL', kind: 'cut', times: 1 };
    expect(await queue.ack(jobs)).toEqual(['held', 'held']);
    expect(await queue.counts()).toMatchObject({ active: 0, payload: 0 });
  });

  it('of putBack: the call is not repeated, because jobs could be delivered twice', async () => {
    const through = await proxy();
    const far = new Connection(through.url);
    afterwards(() => far.close());
    const queue = new Queue(far, freshName());
    await queue.enqueue({ payload: 1, id: 'a' });
    const { jobs } = await queue.drain({ leaseMs: 0 });
    through.fault = { word: 'EVAL', kind: 'cut', times: 1 };
    await expect(queue.putBack(jobs)).rejects.toMatchObject({ code: 'unknown', ids: ['a'] });
    expect((await queue.counts()).stats).toMatchObject({ enqueued: 2 });
    expect((await queue.counts()).stats.kept).toBeUndefined();
  });

  it('of one batch of putBack does not stop the others', async () => {
    const queue = freshQueue();
    const jobs = Array.from({ length: 2_000 }, (_, i) => ({ payload: 'x'.repeat(2_000), id: `j${i}`, at: i }));
    await queue.enqueue(jobs);
    const through = await proxy();
    const running = begin(['drain', '--at-most-once', '--redis', through.url, queue.name]);
    running.child.stdout?.pause();
    // One batch is being written, two wait before it.
    await until(async () => (await queue.counts()).pending === 1_250);
    through.fault = { word: 'j260', kind: 'refuse', times: 1 };
    running.child.stdout?.destroy();
    expect(await running.ended).toMatchObject({ code: 75, stderr: expect.stringContaining('250 jobs may or may not') });
    const there = await admin.hkeys(key(queue.name, 'payload'));
    expect(['j240', 'j260', 'j510', 'j740', 'j750'].filter((id) => there.includes(id))).toEqual([
      'j240',
      'j510',
      'j740',
      'j750',
    ]);
  });

  it('while watching is reported once, and the drain goes on', async () => {
    const queue = freshQueue();
    const through = await proxy();
    const running = begin(['drain', '--watch', queue.name, '--redis', through.url]);
    await until(async () => (await listeners(queue.wakeChannel)) > 0);
    through.fault = { word: 'EVALSHA', kind: 'cut', times: 5 };
    await until(() => running.stderr.includes('Redis is back'));
    await queue.enqueue({ payload: 1 });
    await until(() => running.stdout === '1\n');
    running.child.kill('SIGTERM');
    const { code, stderr } = await running.ended;
    expect(code).toBe(0);
    expect(stderr.match(/lost the connection/g)).toHaveLength(through.struck > 5 ? 2 : 1);
  });
});
