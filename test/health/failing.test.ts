import { describe, expect, it } from 'vitest';
import { check, DEFAULT_THRESHOLDS } from '../../src/health/check.js';
import { failing, hanging } from '../../src/health/failing.js';
import { problems } from '../../src/health/problems.js';
import { Inspector, Operator, type Queue } from '../../src/index.js';
import { during } from '../support/afterwards.js';
import { delayq } from '../support/cli.js';
import { admin, connection, freshQueue, key, timePasses } from '../support/redis.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

const inspector = new Inspector(connection);
const look = (queue: Queue) => inspector.inspect(queue.name);
const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);

/** Adds so many jobs, which fail with these errors in turn. */
async function fail(queue: Queue, n: number, ...errors: string[]): Promise<void> {
  await queue.enqueue(upTo(n).map((i) => ({ payload: i })));
  const { jobs } = await queue.drain({ limit: n });
  const failed = jobs.map((job, i) => ({ ...job, error: errors[i % errors.length] ?? 'boom' }));
  await queue.nack(failed, { backoff: [3_600_000] });
  await timePasses(queue.name, 1_000);
}

async function succeed(queue: Queue, n: number): Promise<void> {
  await queue.enqueue(upTo(n).map((i) => ({ payload: i })));
  await queue.ack((await queue.drain({ limit: n })).jobs);
}

/** What problems, check and doctor say. */
async function verdicts(queue: Queue) {
  const snapshot = await look(queue);
  const found = problems(queue.name, snapshot).find((one) => ['failing', 'hanging'].includes(one.check));
  const { state, says } = check(snapshot, DEFAULT_THRESHOLDS);
  const { stdout } = await delayq(['doctor', '--json', queue.name]);
  const doctor = JSON.parse(stdout).findings.find((one: { check: string }) => one.check === found?.check);
  return { level: found?.level, what: found?.what, state, says, doctor: doctor?.what };
}

describe('a queue whose handlers fail', () => {
  it('is known after ten failures in a row, by inspect, check and doctor alike', async () => {
    const queue = freshQueue();
    await fail(queue, 9, 'connect ECONNREFUSED 10.0.0.1:80', 'connect ECONNREFUSED 10.0.0.2:80', 'timeout');
    expect(await verdicts(queue)).toMatchObject({ level: undefined, state: 'OK' });
    await fail(queue, 2, 'timeout');
    const { level, what, state, says, doctor } = await verdicts(queue);
    expect(what).toMatch(/^11 failed, none done for 2\S+: connect ECONNREFUSED … \(6\), timeout \(5\)$/);
    expect(says.replace(/for \S+:/, '')).toBe(`${what?.replace(/for \S+:/, '')} (limit 100%)`);
    expect(doctor?.replace(/for .*?:/, '')).toBe(what?.replace(/for .*?:/, ''));
    expect({ level, state }).toEqual({ level: 'fail', state: 'CRITICAL' });
  });

  it('is known after one failure, a minute later', async () => {
    const queue = freshQueue();
    await fail(queue, 1, 'no such table: orders');
    expect((await verdicts(queue)).level).toBeUndefined();
    await timePasses(queue.name, 61_000);
    const { level, what } = await verdicts(queue);
    expect({ level, what }).toEqual({
      level: 'fail',
      what: expect.stringMatching(/^1 failed, none done for 1m [1-4]s: no such table: orders$/),
    });
    // Its next try is due in an hour. When that is long ago, too, nothing is known any more.
    await timePasses(queue.name, 62 * 60_000);
    await admin.hset(key(queue.name, 'stats'), 'drained', Date.now());
    expect(failing(await look(queue))?.share).toBe(1);
    await timePasses(queue.name, 4 * 60_000);
    await admin.hset(key(queue.name, 'stats'), 'drained', Date.now());
    expect(failing(await look(queue))).toBeUndefined();
  });

  it('is in order again as soon as one job is done', async () => {
    const queue = freshQueue();
    await fail(queue, 30);
    expect(failing(await look(queue))?.share).toBe(1);
    await succeed(queue, 1);
    const snapshot = await look(queue);
    expect(snapshot.failures).toMatchObject({ inARow: 0, error: 'boom' });
    expect(failing(snapshot)?.share ?? 0).toBeLessThan(1);
    await fail(queue, 2);
    expect((await look(queue)).failures).toMatchObject({ inARow: 2, kinds: [{ kind: 'boom', count: 2 }] });
  });

  it('is no alarm once an operator has removed what failed', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(12).map((i) => ({ id: `j${i}`, payload: i })));
    await queue.nack((await queue.drain()).jobs, { mode: 'dead', error: 'boom' });
    // Others may succeed at the same moment.
    expect(failing(await look(queue))).toBeUndefined();
    await timePasses(queue.name, 1_000);
    expect(failing(await look(queue))?.share).toBe(1);
    await new Operator(connection).cancel(
      queue.name,
      upTo(12).map((i) => `j${i}`),
      ['dead'],
    );
    expect(failing(await look(queue))).toBeUndefined();
  });

  it('counts leases that expire as failures: workers that are killed say nothing', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(12).map((i) => ({ payload: i })));
    await queue.drain({ leaseMs: 1, by: 'web1:4711' });
    await until(async () => (await queue.drain()).lost > 0);
    await timePasses(queue.name, 1_000);
    const snapshot = await look(queue);
    expect(snapshot.failures).toMatchObject({ inARow: 12, error: 'lease expired', by: 'web1:4711' });
    expect(failing(snapshot)?.what).toMatch(/^12 failed, none done for \S+: lease expired$/);
  });

  it('is no alarm for long if what failed has died: then it has dead jobs', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(12).map((i) => ({ payload: i })));
    await queue.nack((await queue.drain()).jobs, { mode: 'dead', error: 'boom' });
    await timePasses(queue.name, 290_000);
    expect(failing(await look(queue))?.share).toBe(1);
    await timePasses(queue.name, 120_000);
    expect(failing(await look(queue))).toBeUndefined();
  });

  it.each(['purge', 'cancel'])('is no alarm after a %s, whatever comes then', async (how) => {
    const queue = freshQueue();
    await fail(queue, 12);
    await delayq([how, ...(how === 'cancel' ? ['--all'] : []), '--yes', queue.name]);
    await queue.enqueue({ payload: 0, in: '1d' });
    await timePasses(queue.name, 60_000);
    expect(failing(await look(queue))).toBeUndefined();
  });

  it('is another alarm if nobody drains it: check says only that', async () => {
    const queue = freshQueue();
    await fail(queue, 12);
    await queue.enqueue({ payload: 0 });
    expect((await verdicts(queue)).state).toBe('CRITICAL');
    await timePasses(queue.name, 130_000);
    const { what, state, says } = await verdicts(queue);
    expect({ what, state }).toEqual({ what: undefined, state: 'WARNING' });
    expect(says).not.toMatch(/failed/);
  });

  it('is no alarm while it is paused', async () => {
    const queue = freshQueue();
    await fail(queue, 12);
    await new Operator(connection).pause(queue.name);
    expect((await verdicts(queue)).what).toBeUndefined();
    expect((await verdicts(queue)).state).toBe('WARNING');
  });

  it('counts a release as no failure', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(20).map((i) => ({ payload: i })));
    await queue.nack((await queue.drain()).jobs, { mode: 'release' });
    expect((await look(queue)).failures).toBeUndefined();
  });

  it('names few kinds of errors, and counts the others', async () => {
    const queue = freshQueue();
    const words = [
      'alpha',
      'beta',
      'gamma',
      'delta',
      'epsilon',
      'zeta',
      'eta',
      'theta',
      'iota',
      'kappa',
      'lambda',
      'mu',
    ];
    await fail(queue, 40, 'often', 'often', 'often', ...words);
    const snapshot = await look(queue);
    expect(snapshot.failures?.kinds.length).toBeLessThanOrEqual(9);
    expect(snapshot.failures?.kinds.reduce((total, { count }) => total + count, 0)).toBe(40);
    expect(failing(snapshot)?.what).toMatch(/^40 failed, .*: often \(9\), [a-z]+ \(3\), [a-z]+ \(3\), others \(25\)$/);
  });

  it.each([
    ['half of them', 12, 8, 'warn', 'WARNING'],
    ['fewer', 4, 16, undefined, 'OK'],
  ])('when %s fail', async (_, bad, good, level, state) => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 0, in: '1d' });
    await timePasses(queue.name, 60_000);
    await fail(queue, bad, 'timeout after 30 s');
    await succeed(queue, good);
    const found = await verdicts(queue);
    expect(found).toMatchObject({ level, state });
    if (level) expect(found.what).toMatch(/^12 of 20 attempts failed in \dm.*; the last: timeout after 30 s$/);
  });

  it('is judged by all of its partitions', async () => {
    const queue = freshQueue();
    await delayq(['config', '--create', queue.name, 'partitions=2']);
    await queue.enqueue(upTo(60).map((i) => ({ id: `j${i}`, payload: i })));
    const jobs = [];
    for (let more = 1; more > 0; ) {
      const { jobs: some } = await queue.drain();
      more = some.length;
      jobs.push(...some);
    }
    const parts = new Map<string, typeof jobs>();
    for (const job of jobs) {
      const part = job.receipt.split('.')[1] ?? '0';
      parts.set(part, [...(parts.get(part) ?? []), job]);
    }
    expect(parts.size).toBe(2);
    const [here = [], there = []] = parts.values();
    await queue.nack(here, { error: 'boom' });
    expect((await look(queue)).failures?.inARow).toBe(here.length);
    await queue.nack(there.slice(1), { error: 'bang' });
    expect((await look(queue)).failures).toMatchObject({ inARow: 59, kinds: [{ count: expect.any(Number) }, {}] });
    await queue.ack(there.slice(0, 1));
    expect((await look(queue)).failures?.inARow).toBe(0);
    // One failure after that is one, wherever it is.
    for (let n = 1; n <= 5; n++) {
      await queue.enqueue({ payload: n });
      const { jobs: some } = await queue.drain();
      await queue.nack(some, { error: 'again', backoff: [3_600_000] });
      expect((await look(queue)).failures?.inARow ?? 0).toBeLessThanOrEqual(n);
    }
  });

  it.each([
    '',
    '[]',
    '7',
    '{',
    '{"n":1e99,"since":"x","at":null}',
    '{"n":3,"since":9000000,"at":9000000,"done":0,"kinds":[1,2]}',
  ])('reads %j of other software as none, or without complaint, and goes on', async (written) => {
    const queue = freshQueue();
    await fail(queue, 1);
    await admin.hset(key(queue.name, 'stats'), 'failures', written);
    await look(queue);
    await fail(queue, 2, 'boom');
    expect((await look(queue)).failures).toMatchObject({ error: 'boom' });
  });

  it('is not said to be empty soon while more attempts fail than succeed', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(300).map((i) => ({ payload: i })));
    await timePasses(queue.name, 70_000);
    const { jobs } = await queue.drain({ limit: 200 });
    await queue.nack(jobs, { backoff: [3_600_000], error: 'boom' });
    await timePasses(queue.name, 1_000);
    const { stdout } = await delayq(['inspect', queue.name]);
    expect(stdout).toMatch(/^! 200 failed, none done for .*: boom; 100 jobs are due, the oldest for 1m 1\ds$/m);
    expect(stdout).toMatch(/^ {2}empty in +never at this rate/m);
    expect(stdout).not.toMatch(/catching up|falling behind/);
  });
});

describe('a handler that hangs', () => {
  async function held(queue: Queue, due: number) {
    await queue.enqueue(upTo(due + 1).map((i) => ({ payload: i })));
    return (await queue.drain({ limit: 1, leaseMs: 3_600_000 })).jobs;
  }

  it('is known after a minute, if jobs are due behind it', async () => {
    const queue = freshQueue();
    const jobs = await held(queue, 19);
    expect(hanging(await look(queue))).toBeUndefined();
    await timePasses(queue.name, 65_000);
    await queue.renew(jobs, 3_600_000);
    expect(await verdicts(queue)).toMatchObject({
      level: 'warn',
      what: expect.stringMatching(/^no job done for 1m \ds, 1 has been running for 1m \ds on \S+:\d+; 19 jobs are due/),
      state: 'WARNING',
    });
    await timePasses(queue.name, 65_000);
    expect((await verdicts(queue)).level).toBe('fail');
    const { stdout } = await delayq(['metrics', queue.name]);
    expect(stdout).toMatch(/^delayq_oldest_delivery_seconds\{.*\} 13\d/m);
  });

  it('is no alarm with nothing due behind it', async () => {
    const queue = freshQueue();
    await held(queue, 0);
    await timePasses(queue.name, 300_000);
    expect(hanging(await look(queue))).toBeUndefined();
  });

  it('is none while others do their jobs', async () => {
    const queue = freshQueue();
    await held(queue, 19);
    await timePasses(queue.name, 65_000);
    await succeed(queue, 1);
    expect(hanging(await look(queue))).toBeUndefined();
  });

  it('is none for ten minutes if jobs were done, and nothing is known of how long they take', async () => {
    const queue = freshQueue();
    await queue.ack(await held(queue, 0));
    await timePasses(queue.name, 800_000);
    await held(queue, 5);
    await timePasses(queue.name, 120_000);
    expect(hanging(await look(queue))).toBeUndefined();
    await timePasses(queue.name, 500_000);
    expect(hanging(await look(queue))).toMatch(/^no job done for /);
  });

  it('is one only after three times as long as handlers take', async () => {
    const queue = freshQueue();
    await queue.ack(await held(queue, 0));
    // Nearly all take 100 s.
    await queue.countDurations(new Map([[17, 20]]));
    await timePasses(queue.name, 800_000);
    await held(queue, 5);
    await timePasses(queue.name, 120_000);
    expect(hanging(await look(queue))).toBeUndefined();
    await timePasses(queue.name, 300_000);
    expect(hanging(await look(queue))).toMatch(/^no job done for /);
  });
});

describe('a Redis that is full', () => {
  it('is told by inspect once, and by check and metrics for each queue', async () => {
    const server = await during(Server.start());
    const env = { DELAYQ_REDIS_URL: server.url };
    for (const queue of ['a', 'b']) await delayq(['enqueue', '--in', '1h', queue, '1'], { env });
    expect((await delayq(['check', 'a'], { env })).code).toBe(0);
    await server.admin.config('SET', 'maxmemory', '500kb');
    const { stdout } = await delayq(['inspect'], { env });
    const said = /^! Redis is full and refuses new jobs: \d.* of 0.5 MiB \(maxmemory\) used$/gm;
    // Its memory may have grown from one look to the next.
    const told = stdout.match(said)?.map((line) => line.replace(/[\d.]+ MiB of/, ''));
    expect(new Set(told).size).toBe(1);
    expect((await delayq(['inspect', 'a'], { env })).stdout.match(said)).toHaveLength(1);
    expect(await delayq(['check', 'a'], { env })).toMatchObject({ code: 2, stdout: /Redis is full and refuses/ });
    expect((await delayq(['metrics'], { env })).stdout).toMatch(/^delayq_refused\{queue="b"\} 1$/m);
    // Keys would be deleted in place of that.
    await server.admin.config('SET', 'maxmemory-policy', 'allkeys-lru');
    expect((await delayq(['inspect'], { env })).stdout).not.toMatch(said);
    await server.admin.config('SET', 'maxmemory-policy', 'noeviction');
    await server.admin.acl('SETUSER', 'default', '-info');
    expect((await delayq(['inspect'], { env })).stdout).not.toMatch(/full/);
  });
});
