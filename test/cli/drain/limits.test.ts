import { writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { begin, delayq } from '../../support/cli.js';
import { path, shell, upTo } from '../../support/handlers.js';
import { admin, freshQueue, key } from '../../support/redis.js';
import { until } from '../../support/until.js';

async function limited(settings: string[], n: number) {
  const queue = freshQueue();
  expect(await delayq(['config', '--create', queue.name, ...settings])).toMatchObject({ code: 0 });
  await queue.enqueue(upTo(n).map((i) => ({ payload: i, at: 1_000 + i })));
  return queue;
}

describe.concurrent('delayq drain of a queue with limits', () => {
  it('keeps the rate together with other drains, and ends when all that was due is done', async () => {
    const queue = await limited(['rate=50/s', 'burst=1'], 40);
    const [from] = await admin.time();
    const drains = upTo(3).map(() => delayq(['drain', '-q', queue.name, '-P', '4', '--', 'true']));
    for (const ended of await Promise.all(drains)) expect(ended).toMatchObject({ code: 0, stderr: '' });
    const [to, micros] = await admin.time();
    expect(await queue.counts()).toMatchObject({ pending: 0, stats: { acked: 40 } });
    // 39 tokens of 20 ms.
    expect(Number(to) + Number(micros) / 1e6 - Number(from)).toBeGreaterThanOrEqual(0.78);
  });

  it('to stdout prints what the rate allows', async () => {
    const queue = await limited(['rate=100/s'], 30);
    const { code, stdout } = await delayq(['drain', '-q', queue.name]);
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: upTo(30)
        .map((i) => `${i}\n`)
        .join(''),
    });
  });

  it('is stopped at once while it waits for the rate', async () => {
    const queue = await limited(['rate=1/h'], 3);
    const running = begin(['drain', queue.name, '--', 'true']);
    await until(async () => (await queue.counts()).stats.acked === 1);
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
    expect(await queue.counts()).toMatchObject({ pending: 2, active: 0 });
  });

  it('ends with --for, whatever waits', async () => {
    const queue = await limited(['rate=1/h'], 3);
    expect(await delayq(['drain', '-q', '--for', '500ms', queue.name, '--', 'true'])).toMatchObject({ code: 0 });
    expect(await queue.counts()).toMatchObject({ pending: 2, active: 0 });
  });

  it('keeps max-active, and hands all jobs over', async () => {
    const queue = await limited(['max-active=2'], 12);
    const go = path();
    const handler = shell(`while [ ! -e ${go} ]; do sleep 0.05; done`);
    const drains = upTo(2).map(() => begin(['drain', '-q', queue.name, '-P', '3', ...handler]).ended);
    const active: number[] = [];
    const look = async () => {
      active.push(await admin.zcard(key(queue.name, 'active')));
      return queue.counts();
    };
    // Both drains have asked again and again while the jobs of the first were in hand.
    await until(async () => (await look()).active === 2);
    for (const { now } = await look(); (await look()).now < now + 500; );
    writeFileSync(go, '');
    await until(async () => (await look()).stats.acked === 12);
    for (const ended of await Promise.all(drains)) expect(ended).toMatchObject({ code: 0, stderr: '' });
    expect(Math.max(...active)).toBe(2);
    expect(await queue.counts()).toMatchObject({ pending: 0, stats: { acked: 12 } });
  });

  it('with max-active refuses forms that hold jobs nobody has begun, and says what to do', async () => {
    const queue = await limited(['max-active=2'], 3);
    for (const form of [[], ['--at-most-once']]) {
      const { code, stdout, stderr } = await delayq(['drain', ...form, queue.name]);
      expect({ code, stdout }).toEqual({ code: 78, stdout: '' });
      expect(stderr).toMatch(/why: +LIMITED the queue has max-active/);
      expect(stderr).toMatch(/next: use handlers, or drain --lease and ack, or remove the limit/);
      expect(stderr).toContain(`delayq config ${queue.name} max-active=`);
    }
    expect(await queue.counts()).toMatchObject({ pending: 3, active: 0 });
  });

  it('with max-active hands over leases up to it, until they are acknowledged', async () => {
    const queue = await limited(['max-active=2'], 3);
    const running = begin(['drain', '--lease', '1m', '--watch', queue.name]);
    await until(async () => (await queue.counts()).active === 2);
    const [id] = await admin.zrange(key(queue.name, 'active'), '0', '0');
    const [receipt = ''] = ((await admin.hget(key(queue.name, 'lease'), id ?? '')) ?? '').split(' ');
    await queue.ack([{ id: id ?? '', receipt }]);
    await until(async () => (await queue.counts()).stats.delivered === 3);
    running.child.kill('SIGTERM');
    await running.ended;
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 2 });
  });
});

describe.concurrent('the limits of a queue', () => {
  it('are shown where its lag and its active jobs are', async () => {
    const queue = await limited(['rate=1/h', 'max-active=5'], 3);
    await queue.drain();
    const { stdout } = await delayq(['inspect', queue.name]);
    expect(stdout).toMatch(/lag .*, limited to 1\/h\n/);
    expect(stdout).toMatch(/active +1 of at most 5\n/);
    expect(stdout).toMatch(/config +.*max-active 5/);
    const [row] = JSON.parse((await delayq(['inspect', '--json', queue.name])).stdout).queues;
    expect(row.limits).toEqual({ rate: { jobs: 1, perMs: 3_600_000 }, burst: 1, maxActive: 5 });
    const overview = (await delayq(['inspect'])).stdout.split('\n').find((line) => line.startsWith(`${queue.name} `));
    expect(overview).toMatch(/ limited /);
    const metrics = (await delayq(['metrics', queue.name])).stdout;
    expect(metrics).toContain(`delayq_limit_active_jobs{queue="${queue.name}"} 5\n`);
    expect(metrics).toContain(`delayq_limit_burst_jobs{queue="${queue.name}"} 1\n`);
    expect((await delayq(['check', queue.name])).stdout).toMatch(/late, limited to 1\/h/);
    expect((await delayq(['doctor', queue.name])).stdout).not.toContain('bucket');
  });

  it('say that max-active holds jobs back', async () => {
    const queue = await limited(['max-active=1'], 3);
    await queue.drain();
    expect((await delayq(['inspect', queue.name])).stdout).toMatch(/lag .*, limited to 1 active\n/);
  });

  it.each([
    ['rate=1/h', '1/h'],
    ['rate=10/h burst=10', '1 active'],
  ])('with %s say which of two holds jobs back', async (rate, holds) => {
    const queue = await limited([...rate.split(' '), 'max-active=1'], 3);
    await queue.drain();
    expect((await delayq(['inspect', queue.name])).stdout).toMatch(new RegExp(`lag .*, limited to ${holds}\n`));
  });

  it.each(['rate=0/s', 'rate=-1/s', 'rate=10', 'rate=1/0s', 'burst=0', 'max-active=0', 'max-active=1.5'])(
    'that make no sense are refused: %s',
    async (bad) => {
      const queue = freshQueue();
      const { code, stderr } = await delayq(['config', queue.name, 'tries=3', bad]);
      expect(code).toBe(64);
      expect(stderr).toMatch(/next: /);
      expect(await admin.exists(key(queue.name, 'config'))).toBe(0);
    },
  );

  it.each([[['rate=1/s', 'partitions=4']], [['partitions=4', 'max-active=2', 'tries=3']]])(
    'and partitions in one command are refused before anything is written: %j',
    async (words) => {
      const queue = freshQueue();
      const { code, stderr } = await delayq(['config', '--create', queue.name, ...words]);
      expect(code).toBe(78);
      expect(stderr).toMatch(/cannot have partitions/);
      expect(await admin.exists(key(queue.name, 'config'))).toBe(0);
    },
  );

  it('make partitions refused, and partitions make them refused, with nothing written', async () => {
    const queue = await limited(['rate=1/s'], 0);
    const before = await admin.hgetall(key(queue.name, 'config'));
    expect(await delayq(['config', queue.name, 'tries=3', 'partitions=4'])).toMatchObject({ code: 78 });
    expect(await admin.hgetall(key(queue.name, 'config'))).toEqual(before);
    // Also of numbers that begin with 1.
    for (const count of [2, 10, 16, 100]) {
      const parted = freshQueue();
      expect(await delayq(['config', '--create', parted.name, `partitions=${count}`])).toMatchObject({ code: 0 });
      const set = await admin.hgetall(key(parted.name, 'config'));
      expect(await delayq(['config', parted.name, 'tries=3', 'rate=1/s'])).toMatchObject({ code: 78 });
      expect(await admin.hgetall(key(parted.name, 'config'))).toEqual(set);
    }
  });
});
