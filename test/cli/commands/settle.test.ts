import { describe, expect, it } from 'vitest';
import { Connection, Inspector, Operator, Queue } from '../../../src/index.js';
import { afterwards, during } from '../../support/afterwards.js';
import { begin, beginSh, delayq, linesOf, sh } from '../../support/cli.js';
import { FaultyProxy } from '../../support/proxy.js';
import { admin, connection, freshQueue, key, redisTargets, timePasses } from '../../support/redis.js';
import { Server } from '../../support/server.js';
import { until } from '../../support/until.js';

const inspector = new Inspector(connection);
const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);

/** Enqueues jobs and takes them; returns their envelopes. */
async function held(queue: Queue, n = 1): Promise<{ id: string; receipt: string; line: string }[]> {
  await queue.enqueue(upTo(n).map((i) => ({ payload: { n: i }, id: `j${i}`, at: 1_000 + i })));
  const { stdout } = await delayq(['drain', '--lease', '5m', queue.name]);
  return linesOf(stdout).map((line) => ({ ...JSON.parse(line), line }));
}
const input = (jobs: { line: string }[]) => `${jobs.map(({ line }) => line).join('\n')}\n`;
const done = { code: 0, signal: null, stdout: '', stderr: '' };

describe.concurrent('delayq ack', () => {
  it('removes a job named by queue, id and receipt', async () => {
    const queue = freshQueue();
    const [job] = await held(queue);
    expect(await delayq(['ack', queue.name, 'j0', job?.receipt ?? ''])).toEqual(done);
    expect(await queue.counts()).toMatchObject({ active: 0, payload: 0, stats: { acked: 1 } });
  });

  it('removes the jobs of lines on stdin, of whatever queues, whatever else the lines say', async () => {
    const [a, b] = [freshQueue(), freshQueue()];
    const lines = [...(await held(a, 700)), ...(await held(b, 3))];
    const mixed = lines.map(({ line }, i) =>
      i % 2 ? { line } : { line: JSON.stringify({ x: 1, ...JSON.parse(line) }) },
    );
    expect(await delayq(['ack'], { input: `\n${input(mixed)}\r\n` })).toEqual(done);
    expect((await a.counts()).payload + (await b.counts()).payload).toBe(0);
  });

  it('tells with --json how many', async () => {
    const queue = freshQueue();
    const jobs = await held(queue, 2);
    await delayq(['ack'], { input: input(jobs.slice(0, 1)) });
    const { code, stdout } = await delayq(['ack', '--json'], { input: `${input(jobs)}no line\n` });
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toEqual({ schema: 1, settled: 1, dead: 0, lost: 1, superseded: 0, refused: 1 });
  });

  it('reports lost jobs by line, exit 1, and changes nothing of them (failures 12)', async () => {
    const queue = freshQueue();
    const late = await held(queue, 2);
    await timePasses(queue.name, 300_001);
    const { jobs } = await queue.drain();
    expect(jobs).toHaveLength(2);
    for (const command of ['ack', 'nack', 'renew']) {
      const { code, stdout, stderr } = await delayq([command], { input: input(late) });
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
      expect(linesOf(stderr)).toEqual([
        expect.stringMatching(new RegExp(`^delayq: line 1: ${queue.name} j0: lost`)),
        expect.stringMatching(new RegExp(`^delayq: line 2: ${queue.name} j1: lost`)),
      ]);
    }
    expect(await queue.ack(jobs)).toEqual(['held', 'held']);
    // A late nack does not bring back what is done.
    await delayq(['nack'], { input: input(late) });
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, payload: 0, meta: 0 });
  });

  it('says of superseded jobs that they are, which is no error', async () => {
    const queue = freshQueue();
    const jobs = await held(queue);
    await queue.enqueue({ payload: 'new', id: 'j0' }, { ifExists: 'replace' });
    const { code, stderr } = await delayq(['ack'], { input: input(jobs) });
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining('j0: superseded') });
    expect((await queue.counts()).pending).toBe(1);
  });

  it('refuses lines that name no job, by number, and settles the rest', async () => {
    const queue = freshQueue();
    const [job] = await held(queue);
    const bad = [
      '{',
      '[]',
      'null',
      '{"queue":"q"}',
      '{"queue":"q","id":1,"receipt":"r"}',
      '{"queue":"a b","id":"x","receipt":"r"}',
    ];
    const { code, stderr } = await delayq(['ack'], { input: `${bad.join('\n')}\n\xff\n${job?.line}\n` });
    expect(code).toBe(1);
    expect(linesOf(stderr).map((line) => /^delayq: line (\d+): /.exec(line)?.[1])).toEqual([
      '1',
      '2',
      '3',
      '4',
      '5',
      '6',
      '7',
    ]);
    expect((await queue.counts()).payload).toBe(0);
  });

  it.each([
    [['ack', 'q'], 'belong together'],
    [['ack', 'q', 'id'], 'belong together'],
    [['ack', 'a b', 'id', 'r'], 'cannot name a queue'],
    [['nack', '--dead', '--in', '5m'], 'cannot be used with'],
    [['nack', '--dead', '--release'], 'cannot be used with'],
    [['nack', '--release', '--error', 'x'], 'cannot be used with'],
    [['nack', '--in', '5'], 'no unit'],
    [['renew', '--lease', '0s'], 'must be greater than zero'],
  ])('%j is refused', async (args, message) => {
    expect(await delayq(args as string[])).toMatchObject({
      code: 64,
      stdout: '',
      stderr: expect.stringContaining(message as string),
    });
  });

  it('does not wait for lines on a terminal', async () => {
    const { stdout } = await sh(`script -qec 'delayq ack; echo "ended with $?"' /dev/null`);
    expect(stdout).toMatch(/no jobs are given[\s\S]*ended with 64/);
  });

  it('of nothing is nothing', async () => expect(await delayq(['ack'])).toEqual(done));
});

describe.concurrent('delayq nack', () => {
  const nacked = async (...options: string[]) => {
    const queue = freshQueue();
    const [held0] = await held(queue);
    const before = await connection.now();
    const ended = await delayq(['nack', ...options, queue.name, 'j0', held0?.receipt ?? '']);
    const [job] = await inspector.show(queue.name, ['j0']);
    return { ended, job, waits: (job?.due ?? 0) - before };
  };

  it('counts a failure and lets the job wait by the backoff of its queue', async () => {
    const { ended, job, waits } = await nacked('--error', 'no luck');
    expect(ended).toEqual(done);
    expect(job).toMatchObject({ state: 'pending', failures: 1, error: 'no luck' });
    expect(waits).toBeGreaterThan(11_000);
  });

  it('waits as long as --in says', async () => {
    expect((await nacked('--in', '1h')).waits).toBeGreaterThanOrEqual(3_600_000);
  });

  it('with --dead ends the job', async () => {
    const { ended, job } = await nacked('--dead', '--error', 'no such customer');
    expect(ended).toEqual(done);
    expect(job).toMatchObject({ state: 'dead', reason: 'refused', error: 'no such customer' });
  });

  it('with --release counts nothing: due as before, or with --in after that', async () => {
    expect((await nacked('--release')).job).toMatchObject({ state: 'pending', failures: 0, due: 1_000 });
    const { job, waits } = await nacked('--release', '--in', '10m');
    expect(job).toMatchObject({ state: 'pending', failures: 0 });
    expect(waits).toBeGreaterThanOrEqual(600_000);
  });

  it('says when a job is dead now because it has no tries left, exit 1', async () => {
    const queue = freshQueue();
    await new Operator(connection).configure(queue.name, { tries: 1 });
    const jobs = await held(queue);
    expect(await delayq(['nack', '--error', 'rate\x1b[m limited'], { input: input(jobs) })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`line 1: ${queue.name} j0: dead: failed too often: rate\\x1b[m limited\n`),
    });
  });

  it('says when a job is dead now because it was released too often, whatever its last error was', async () => {
    const queue = freshQueue();
    const jobs = await held(queue);
    await admin.hset(key(queue.name, 'meta'), 'j0', '{"releases":1000,"failures":1,"error":"old"}');
    expect(await delayq(['nack', '--release'], { input: input(jobs) })).toMatchObject({
      code: 1,
      stderr: `delayq: line 1: ${queue.name} j0: dead: released too often\n`,
    });
    expect((await delayq(['list', '--dead', queue.name])).stdout).toMatch(/^j0 .* released too often /m);
  });

  it('names the first of many jobs that die, and says how many more there are', async () => {
    const queue = freshQueue();
    await new Operator(connection).configure(queue.name, { tries: 1 });
    const { stderr } = await delayq(['nack'], { input: input(await held(queue, 300)) });
    expect(linesOf(stderr)).toHaveLength(21);
    expect(linesOf(stderr)[20]).toBe(
      `delayq: ${queue.name}: 280 more jobs died; list them: delayq list --dead ${queue.name}`,
    );
  });
});

it('delayq renew extends leases, by what it is told or as the queue says', async () => {
  const queue = freshQueue();
  const jobs = await held(queue, 2);
  const ends = async () => (await inspector.show(queue.name, ['j0', 'j1'])).map((job) => job?.lease?.ends ?? 0);
  const now = await connection.now();
  expect(await delayq(['renew', '--lease', '1h'], { input: input(jobs) })).toEqual(done);
  for (const end of await ends()) expect(end - now).toBeGreaterThanOrEqual(3_600_000);
  expect(await delayq(['renew', queue.name, 'j0', jobs[0]?.receipt ?? ''])).toEqual(done);
  // A minute, if the queue has no lease of its own.
  expect((await ends())[0]).toBeLessThan(now + 600_000);
});

describe.concurrent('a pipeline drain | handler | ack', () => {
  it('keeps up: what the handler passes on is gone, the rest comes back as losses, not failures', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(2_000).map((n) => ({ payload: { n, ok: n % 2 === 0 } })));
    const { code, stdout, stderr } = await sh(`delayq drain --lease 30s ${queue.name} | grep '"ok":true' | delayq ack`);
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: '', stderr: '' });
    expect(await queue.counts()).toMatchObject({ active: 1_000, payload: 1_000 });
    await timePasses(queue.name, 30_001);
    const again = linesOf((await delayq(['drain', '--envelope', queue.name])).stdout).map((line) => JSON.parse(line));
    expect(again).toHaveLength(1_000);
    expect(new Set(again.map(({ attempt, payload }) => `${attempt} ${payload.ok}`))).toEqual(new Set(['2 false']));
    expect((await queue.counts()).stats).toMatchObject({ lost: 1_000, acked: 2_000 });
    expect((await queue.counts()).stats.retried).toBe(undefined);
  });

  it('acks while lines still come', async () => {
    const queue = freshQueue();
    const [first, second] = await held(queue, 2);
    const running = begin(['ack']);
    running.child.stdin?.write(`${first?.line}\n`);
    await until(async () => (await queue.counts()).active === 1);
    running.child.stdin?.end(`${second?.line}\n`);
    expect(await running.ended).toMatchObject({ code: 0 });
    expect((await queue.counts()).active).toBe(0);
  });

  it('that is stopped as a whole acks what its handler had finished', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(100).map((n) => ({ payload: n })));
    const handler =
      'trap "" TERM; n=0; while read -r line && [ $n -lt 5 ]; do n=$((n+1)); sleep 0.05; echo "$line"; done';
    const running = beginSh(
      `delayq drain --watch --lease 5m ${queue.name} | sh -c '${handler}' | delayq ack; echo "ended with $?"`,
      { detached: true },
    );
    await until(async () => ((await queue.counts()).stats.acked ?? 0) >= 1);
    process.kill(-(running.child.pid as number), 'SIGTERM');
    await until(async () => (await queue.counts()).stats.acked === 5);
    await running.ended;
  });

  it('that cannot reach Redis says so at once, and settles when Redis is there', async () => {
    const server = await during(Server.start({ tcp: true, args: ['--appendonly', 'yes'] }));
    const redis = new Connection(server.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, 'q');
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const { jobs } = await queue.drain({ leaseMs: 300_000 });
    await server.end();
    const running = begin(['ack'], { env: { DELAYQ_REDIS_URL: server.tcpUrl } });
    const lines = jobs.map(({ id, receipt }) => JSON.stringify({ queue: 'q', id, receipt }));
    running.child.stdin?.end(`${lines.join('\n')}\n`);
    await until(() => /ECONNREFUSED[\s\S]*still trying/.test(running.stderr));
    await server.run();
    expect(await running.ended).toMatchObject({ code: 0, stderr: expect.stringMatching(/Redis is back after .*\n$/) });
    expect(await queue.counts()).toMatchObject({ active: 0, payload: 0, stats: { acked: 2 } });
  });

  it('that cannot settle the jobs of one queue names their lines, and settles those of others', async () => {
    const [broken, queue] = [freshQueue(), freshQueue()];
    const jobs = await held(queue, 2);
    await admin.set(key(broken.name, 'lease'), 'x');
    const bad = ['a', 'b', 'c'].map((id) => ({ line: JSON.stringify({ queue: broken.name, id, receipt: 'r' }) }));
    const { code, stderr } = await delayq(['ack'], { input: input([...bad, ...jobs]) });
    expect(code).toBe(78);
    expect(stderr).toContain(`lines 1 to 3: not settled in ${broken.name}`);
    expect((await queue.counts()).payload).toBe(0);
  });

  it('rides out a Redis that is gone for a moment, and a reply that is lost', async () => {
    const queue = freshQueue();
    const jobs = await held(queue, 20);
    const proxy = await during(FaultyProxy.start(...redisTargets));
    proxy.fault = { word: 'EVAL', kind: 'cut', times: 3 };
    const ended = await delayq(['ack'], { input: input(jobs), env: { DELAYQ_REDIS_URL: proxy.url } });
    expect(ended).toMatchObject({ code: 0, stdout: '' });
    expect(ended.stderr).toMatch(/^(delayq: lost the connection[\s\S]*Redis is back.*\n)?$/);
    expect(await queue.counts()).toMatchObject({ payload: 0, stats: { acked: 20 } });
  });
});
