import { describe, expect, it } from 'vitest';
import { JsonText, Queue } from '../../../src/index.js';
import { begin, beginSh, binary, delayq, GAVE_BACK, linesOf, sh } from '../../support/cli.js';
import { admin, connection, freshName, freshQueue, key, keysLike, masters, timePasses } from '../../support/redis.js';
import { until } from '../../support/until.js';

/** Numbered payloads, long enough that a few thousand do not fit into a pipe. */
const numbered = (n: number) => Array.from({ length: n }, (_, i) => ({ payload: { n: i, pad: 'x'.repeat(100) } }));
const numbersOf = (text: string) => linesOf(text).map((line) => JSON.parse(line).n as number);
const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);

/** A drain that is held up by a reader that does not read: what it took, it holds. */
async function stalled(queue: Queue, ...options: string[]) {
  const running = begin(['drain', ...options, queue.name]);
  running.child.stdout?.pause();
  await until(async () => (await queue.counts()).active >= 500);
  return running;
}

describe('delayq drain', () => {
  it('writes due payloads byte for byte, oldest due first, and removes them', async () => {
    const queue = freshQueue();
    const odd = '{"orderId":42,"big":12345678901234567890}';
    await queue.enqueue([
      { payload: 2, at: 2 },
      { payload: JsonText.parse(odd), at: 1 },
      { payload: 3, in: '1h' },
    ]);
    expect(await delayq(['drain', queue.name])).toEqual({ code: 0, signal: null, stdout: `${odd}\n2\n`, stderr: '' });
    expect(await queue.counts()).toMatchObject({ pending: 1, active: 0, payload: 1, lease: 0, stats: { acked: 2 } });
  });

  it('says nothing and exits 0 when nothing is due, even to an unknown queue', async () => {
    const name = freshName();
    expect(await delayq(['drain', name])).toEqual({ code: 0, signal: null, stdout: '', stderr: '' });
    expect(await keysLike(key(name, '*'))).toEqual([]);
  });

  it('exits 3 where it was asked to tell', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, in: '1h' });
    expect(await delayq(['drain', '--fail-if-empty', queue.name])).toMatchObject({ code: 3, stdout: '', stderr: '' });
    expect(await delayq(['drain', '--must-exist', queue.name])).toMatchObject({ code: 0 });
    const { code, stderr } = await delayq(['drain', '--must-exist', `${queue.name}x`]);
    await admin.sadd('delayq:queues', queue.name);
    expect(code).toBe(3);
    expect(stderr).toContain(`there is no queue ${queue.name}x`);
    expect((await delayq(['drain', '--must-exist', `${queue.name}x`])).stderr).toContain(`did you mean ${queue.name}?`);
  });

  it('takes at most -n jobs', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(700));
    expect(numbersOf((await delayq(['drain', '-n', '600', queue.name])).stdout)).toEqual(upTo(600));
    expect(await queue.counts()).toMatchObject({ pending: 100, active: 0 });
  });

  it('takes only what was due when it began, so it ends', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(1_000));
    // A handler that enqueues for each line: with every job there is a new one that is due.
    const { stdout } = await sh(`delayq drain ${queue.name} | delayq enqueue ${queue.name} - | wc -l`);
    expect(stdout.trim()).toBe('1000');
    expect(await queue.counts()).toMatchObject({ pending: 1_000 });
  });

  it('serves several queues in the order named', async () => {
    const [high, low] = [freshQueue(), freshQueue()];
    await low.enqueue([{ payload: 'low' }]);
    await high.enqueue([{ payload: 'high' }]);
    expect((await delayq(['drain', `${high.name},${low.name}`])).stdout).toBe('"high"\n"low"\n');
  });

  it('writes envelopes when asked, whatever the payload', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: { a: 1 }, id: 'a', at: 1 });
    await admin
      .multi()
      .hset(key(queue.name, 'payload'), 'b"\n', 'no json')
      .zadd(key(queue.name, 'pending'), 2, 'b"\n')
      .exec();
    const { stdout, stderr } = await delayq(['drain', '--envelope', queue.name]);
    expect(linesOf(stdout).map((line) => JSON.parse(line))).toEqual([
      { queue: queue.name, id: 'a', receipt: expect.stringMatching(/^\w{12}$/), attempt: 1, due: 1, payload: { a: 1 } },
      { queue: queue.name, id: 'b"\n', receipt: expect.any(String), attempt: 1, due: 2, payloadBase64: 'bm8ganNvbg==' },
    ]);
    expect(stderr).toBe('');
  });

  it('undoes --text', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 'any "text"' }, { payload: { n: 1 } }]);
    expect((await delayq(['drain', '--text', queue.name])).stdout).toBe('any "text"\n{"n":1}\n');
  });

  it('writes a text with line breaks as the JSON string it is: one job is one line', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 'a\nb', id: 'x' }]);
    const { stdout, stderr } = await delayq(['drain', '--text', queue.name]);
    expect({ stdout, stderr }).toEqual({ stdout: '"a\\nb"\n', stderr: expect.stringContaining('line breaks') });
  });

  it('says once of each queue that texts have line breaks, and not with -q', async () => {
    const queue = freshQueue();
    const texts = ['a\nb', 'c\nd', 'e\nf'].map((payload, i) => ({ payload, id: `t${i}` }));
    await queue.enqueue(texts);
    expect((await delayq(['drain', '--text', queue.name])).stderr).toBe(
      `delayq: ${queue.name}: a text has line breaks: printed as a JSON string (t0)\n`,
    );
    await queue.enqueue(texts);
    expect((await delayq(['drain', '-q', '--text', queue.name])).stderr).toBe('');
  });

  it('says how to name several queues, that the queue is missing, and how to use a shell', async () => {
    const next = async (...args: string[]) => linesOf((await delayq(['drain', ...args])).stderr).at(-1);
    expect(await next('high', 'low', '--', 'cat')).toBe('  next: write delayq drain high,low -- cat');
    expect(await next('--watch', '--', 'cat')).toBe('  next: write delayq drain QUEUE -- cat');
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    expect(await next(queue.name, '--', 'cat | wc')).toMatch(/^ {2}next: start a shell for it: -- sh -c 'cat \| wc'/);
    expect(await queue.counts()).toMatchObject({ pending: 1, active: 0 });
  });

  it('takes leases of any length', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    expect(await delayq(['drain', '--lease', '52w', '--grace', '52w', queue.name])).toMatchObject({
      code: 0,
      stderr: '',
    });
  });

  it('keeps one job one line, and never lets the terminal of an operator obey a payload (failures 30)', async () => {
    const queue = freshQueue();
    await admin
      .multi()
      .hset(key(queue.name, 'payload'), 'a', '{"a":1,\r\n"b":2}')
      .zadd(key(queue.name, 'pending'), 1, 'a')
      .exec();
    expect((await delayq(['drain', queue.name])).stdout).toBe('{"a":1,  "b":2}\n');
  });

  it('with --lease leaves the jobs leased, and prints what ack needs', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(2));
    const { stdout } = await delayq(['drain', '--lease', '5m', queue.name]);
    const held = linesOf(stdout).map((line) => JSON.parse(line));
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 2, lease: 2 });
    expect(await queue.ack(held)).toEqual(['held', 'held']);
  });

  it('with --at-most-once removes as it takes', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(600));
    expect(numbersOf((await delayq(['drain', '--at-most-once', queue.name])).stdout)).toEqual(upTo(600));
    expect(await queue.counts()).toMatchObject({ pending: 0, payload: 0, stats: { removed: 600 } });
  });

  it('reports ids without a payload, expired and dead jobs on stderr', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, ttl: '1s' },
      { payload: 2, maxLost: 1 },
    ]);
    await admin.zadd(key(queue.name, 'pending'), 1, 'ghost');
    await queue.drain({ limit: 10, leaseMs: 1 });
    await queue.enqueue([{ payload: 3, ttl: '1s' }]);
    await admin.zadd(key(queue.name, 'pending'), 1, 'ghost2');
    await timePasses(queue.name, 60_000);
    const { code, stdout, stderr } = await delayq(['drain', queue.name]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toMatch(
      /lease expired too often\n.* ghost2: dead: has no payload\n.*: 2 jobs expired and dropped\n$/,
    );
  });

  it.each([
    [['drain'], 'missing required argument'],
    [['drain', ''], 'cannot name a queue'],
    [['drain', 'a,'], 'cannot name a queue'],
    [['drain', '-n', '0', 'q'], 'from 1'],
    [['drain', '--lease', '0s', 'q'], 'must be greater than zero'],
    [['drain', '--lease', '1m', '--at-most-once', 'q'], 'cannot be used with'],
    [['drain', '--text', '--envelope', 'q'], 'cannot be used with'],
    [['drain', '--for', '59', 'q'], 'no unit'],
  ])('%j is refused', async (args, message) => {
    expect(await delayq(args as string[])).toMatchObject({
      code: 64,
      stdout: '',
      stderr: expect.stringContaining(message as string),
    });
  });

  it('works from a crontab line', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: { orderId: 42 } });
    const { code, stdout, stderr } = await sh(
      `delayq drain ${queue.name} | while read -r order; do echo "closed $order"; done`,
    );
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: 'closed {"orderId":42}\n', stderr: '' });
  });
});

describe('ten drains at once (failures 16)', () => {
  it('hand out 10,000 jobs once each', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(10_000));
    const ended = await Promise.all(upTo(10).map((i) => (i < 3 ? binary : delayq)(['drain', queue.name])));
    expect(new Set(ended.map(({ code, stderr }) => `${code}${stderr}`))).toEqual(new Set(['0']));
    expect(ended.flatMap(({ stdout }) => numbersOf(stdout)).sort((a, b) => a - b)).toEqual(upTo(10_000));
  });
});

describe('a reader of drain', () => {
  it.each(['', '--at-most-once', '--lease 1m'])(
    'that closes early costs no job and no stack trace (drain %s, failures 9)',
    async (form) => {
      const queue = freshQueue();
      await queue.enqueue(numbered(5_000));
      const { stdout, stderr } = await sh(
        `{ delayq drain ${form} ${queue.name}; echo "drain ended with $?" >&2; } | head -1`,
      );
      expect(linesOf(stdout)).toHaveLength(1);
      expect(stderr).toBe('drain ended with 0\n');
      const { pending, active, payload, meta } = await queue.counts();
      // Without lease, and with one that is the reader's, the lines in the pipe were handed over.
      if (form === '') expect(pending).toBeGreaterThanOrEqual(4_999);
      expect({ orphans: payload - pending - active, meta }).toEqual({ orphans: 0, meta: 0 });
      expect(pending).toBeGreaterThan(3_000);
    },
  );

  it('that is killed gets every line it had not read a second time', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(5_000));
    const { stdout, stderr } = await sh(
      `{ delayq drain ${queue.name}; echo "drain ended with $?" >&2; } | { for i in 1 2 3; do read -r line; echo "$line"; done; kill -9 $$; }`,
    );
    expect(numbersOf(stdout)).toEqual([0, 1, 2]);
    await until(async () => (await queue.counts()).active === 0);
    expect(stderr === '' || stderr === 'drain ended with 0\n').toBe(true);
    const rest = numbersOf((await delayq(['drain', queue.name])).stdout);
    expect(new Set([...numbersOf(stdout), ...rest]).size).toBe(5_000);
  });

  it('that does not read holds the jobs, and a SIGKILL of drain brings them all back after the lease (failures 6)', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(5_000));
    const running = await stalled(queue);
    running.child.kill('SIGKILL');
    running.child.stdout?.resume();
    const { stdout } = await running.ended;
    await timePasses(queue.name, 60_001);
    const again = await delayq(['drain', queue.name]);
    const complete = linesOf(stdout.slice(0, stdout.lastIndexOf('\n') + 1)).map((line) => JSON.parse(line).n as number);
    const back = numbersOf(again.stdout);
    expect(new Set([...complete, ...back]).size).toBe(5_000);
    expect(new Set(back).size).toBe(back.length);
    const losses = Object.values(await admin.hgetall(key(queue.name, 'meta'))).map((text) => JSON.parse(text).losses);
    expect(losses.every((n) => n === 1)).toBe(true);
  });

  it('that is slow does not let the leases of what waits for it run out', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(3_000));
    const running = await stalled(queue, '--lease', '1s', '--grace', '100ms');
    const { stats } = await queue.counts();
    // Leases in hand are moved back as if most of their time had passed, again and again: each time they are renewed.
    for (let i = 0; i < 5; i++) {
      const before = (await queue.counts()).now;
      await until(async () => {
        const [, first] = await admin.zrange(key(queue.name, 'active'), '-1', '-1', 'WITHSCORES');
        return Number(first) > before + 900;
      });
    }
    expect(stats.lost).toBe(undefined);
    running.child.kill('SIGTERM');
    running.child.stdout?.resume();
    expect(await running.ended).toMatchObject({ code: 0, stderr: '' });
  });
});

describe('a drain that is stopped', () => {
  it.each(['SIGTERM', 'SIGINT'] as const)('by %s gives back what was not written and exits 0', async (signal) => {
    const queue = freshQueue();
    await queue.enqueue(numbered(5_000));
    const running = await stalled(queue, '--grace', '100ms');
    running.child.kill(signal);
    await until(async () => (await queue.counts()).active === 0);
    running.child.stdout?.resume();
    const { code, stdout, stderr } = await running.ended;
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringMatching(GAVE_BACK) });
    expect(await queue.counts()).toMatchObject({ active: 0, lease: 0, meta: 0 });
    const complete = linesOf(stdout.slice(0, stdout.lastIndexOf('\n') + 1)).map((line) => JSON.parse(line).n as number);
    const rest = numbersOf((await delayq(['drain', queue.name])).stdout);
    expect(new Set([...complete, ...rest]).size).toBe(5_000);
  });

  it('with a reader that reads on within grace writes whole lines, and gives back what that may not have handled', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(5_000));
    const running = await stalled(queue);
    running.child.kill('SIGTERM');
    running.child.stdout?.resume();
    const { code, stdout } = await running.ended;
    expect(code).toBe(0);
    const seen = numbersOf(stdout);
    const rest = numbersOf((await delayq(['drain', queue.name])).stdout);
    expect(new Set([...seen, ...rest]).size).toBe(5_000);
  });

  it('together with its reader, as a service is, loses nothing (failures 35)', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(300));
    const running = beginSh(
      `delayq drain --watch ${queue.name} | while read -r line; do echo "$line"; sleep 0.05; done`,
      { detached: true },
    );
    await until(() => linesOf(running.stdout).length >= 5);
    process.kill(-(running.child.pid as number), 'SIGTERM');
    await running.ended;
    await until(async () => (await queue.counts()).active === 0);
    const seen = numbersOf(running.stdout);
    const rest = numbersOf((await delayq(['drain', queue.name])).stdout);
    expect(new Set([...seen, ...rest]).size).toBe(300);
  });

  it('at most once enqueues again what was not written, with its old due time, and nothing comes twice', async () => {
    const queue = freshQueue();
    await queue.enqueue(numbered(5_000).map((job, i) => ({ ...job, at: 1_000 + i })));
    const running = begin(['drain', '--at-most-once', '--grace', '100ms', queue.name]);
    running.child.stdout?.pause();
    await until(async () => ((await queue.counts()).stats.removed ?? 0) >= 1_000);
    running.child.kill('SIGTERM');
    await until(() => running.child.exitCode !== null);
    running.child.stdout?.resume();
    const { code, stdout } = await running.ended;
    expect(code).toBe(0);
    const { jobs } = await queue.drain({ limit: 1 });
    expect(jobs[0]?.due).toBe(1_000 + JSON.parse(String(jobs[0]?.payload)).n);
    await queue.nack(jobs, { mode: 'release' });
    const complete = numbersOf(stdout.slice(0, stdout.lastIndexOf('\n') + 1));
    const rest = numbersOf((await delayq(['drain', queue.name])).stdout);
    expect(new Set([...complete, ...rest]).size).toBe(complete.length + rest.length);
    // Only the chunk that was half-way into the pipe is gone.
    expect(complete.length + rest.length).toBeGreaterThan(5_000 - 700);
  });
});

describe('delayq drain --watch', () => {
  it('delivers jobs when they fall due, never early, whatever is enqueued meanwhile', async () => {
    const queue = freshQueue();
    const running = begin(['drain', '--watch', '--envelope', queue.name]);
    await queue.enqueue([
      { payload: 1, in: 1_200 },
      { payload: 2, in: 200 },
    ]);
    await until(() => running.stdout.includes('"payload":2'));
    const { due } = await queue.enqueue({ payload: 3, in: 100 });
    await until(() => running.stdout.includes('"payload":3'));
    expect((await queue.counts()).now).toBeGreaterThanOrEqual(due);
    await until(() => running.stdout.includes('"payload":1'));
    running.child.kill('SIGTERM');
    const { code, stderr } = await running.ended;
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringMatching(GAVE_BACK) });
  });

  it('ends by itself after --for', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, in: 300 });
    expect(await delayq(['drain', '--for', '1s', queue.name])).toMatchObject({ code: 0, stdout: '1\n', stderr: '' });
  });

  it('delivers by the clock of Redis, whatever the client thinks the time is (failures 24)', async () => {
    for (const minutes of [-5, 5]) {
      const queue = freshQueue();
      const env = {
        NODE_OPTIONS: `--import data:text/javascript,const%20n=Date.now;Date.now=()=>n()+${minutes}*60000;`,
      };
      const made = await binary(['enqueue', '--json', '--in', '700ms', queue.name, '1'], { env });
      const { due } = JSON.parse(made.stdout);
      const running = begin(['drain', '--watch', queue.name], { env });
      await until(() => running.stdout === '1\n');
      const { now } = await queue.counts();
      expect(now).toBeGreaterThanOrEqual(due);
      running.child.kill('SIGTERM');
      expect((await running.ended).code).toBe(0);
    }
  });

  it('takes nothing from a paused queue and goes on when it is resumed', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    await admin.hset(key(queue.name, 'config'), 'layout', '1 0/1 uses settings', 'paused', 'inf');
    const running = begin(['drain', '--watch', queue.name]);
    const calls = async () => {
      const stats = await Promise.all((await masters()).map((master) => master.info('commandstats')));
      return stats.reduce((sum, text) => sum + Number(/cmdstat_evalsha:calls=(\d+)/.exec(text)?.[1] ?? 0), 0);
    };
    const before = await calls();
    await until(async () => (await calls()) > before + 2);
    expect((await queue.counts()).due).toBe(1);
    await admin.hdel(key(queue.name, 'config'), 'paused');
    await until(() => running.stdout === '1\n');
    running.child.kill('SIGTERM');
    await running.ended;
  });
});

it('of 200 payloads of 1 MiB a drain keeps few in memory at once (failures 23)', async () => {
  const queue = freshQueue();
  const payload = JsonText.from('x'.repeat(1024 * 1024));
  for (let i = 0; i < 200; i++) await queue.enqueue({ payload });
  const atExit = "process.on('exit',()=>console.error(process.resourceUsage().maxRSS))";
  const env = { NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(atExit)}` };
  const { stdout, stderr } = await sh(`delayq drain ${queue.name} | wc -l`, { env });
  expect(stdout.trim()).toBe('200');
  expect(Number(stderr) / 1024).toBeLessThan(200);
  expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, payload: 0 });
});

it('100,000 jobs due in the same second all come, oldest first (failures 23)', async () => {
  const queue = new Queue(connection, freshName());
  const due = Date.now() - 5_000;
  await queue.enqueue(upTo(100_000).map((n) => ({ payload: { n }, at: due + Math.floor(n / 100) })));
  expect(numbersOf((await delayq(['drain', queue.name])).stdout)).toEqual(upTo(100_000));
});
