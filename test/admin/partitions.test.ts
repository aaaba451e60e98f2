import { describe, expect, it } from 'vitest';
import { Connection, DelayqError, Inspector, Operator, Queue, Spread, Transfer, trend } from '../../src/index.js';
import { crc32 } from '../../src/store/crc32.js';
import { sampleOf } from '../../src/store/inspect.js';
import { queueKeys } from '../../src/store/keys.js';
import { nameOf } from '../../src/store/script.js';
import * as moves from '../../src/store/transfer.js';
import { afterwards } from '../support/afterwards.js';
import { delayq, linesOf } from '../support/cli.js';
import { upTo } from '../support/jobs.js';
import { openGrowth as makePublic } from '../support/partitions.js';
import { admin, connection, freshName, freshQueue, key, onCluster, redisUrl } from '../support/redis.js';

const inspector = new Inspector(connection);
const operator = new Operator(connection);
const transfer = new Transfer(connection);

async function grow(name: string, count: number): Promise<void> {
  for await (const _ of operator.partition(name, count));
}

/** Begins a growth, as if its process were killed at once. */
async function openGrowth(name: string, count: number): Promise<void> {
  for await (const _ of operator.partition(name, count)) break;
}

async function grownQueue(count: number): Promise<Queue> {
  const queue = freshQueue();
  await grow(queue.name, count);
  return queue;
}

/** The tags of the partitions of a queue. */
async function tagsOf(name: string): Promise<string[]> {
  const stored = (await admin.hget(key(name, 'config'), 'partitions')) ?? '';
  return [name, ...stored.split(' ').filter(Boolean)];
}

/** Id and score of each job of one state, first in line first, without delayq. */
async function inSet(name: string, state: string): Promise<[string, number][]> {
  const all: [string, number][] = [];
  for (const tag of await tagsOf(name)) {
    const list = await admin.zrange(key(tag, state), '0', '-1', 'WITHSCORES');
    for (let n = 0; n < list.length; n += 2) all.push([list[n] as string, Number(list[n + 1])]);
  }
  return all.sort(([a, x], [b, y]) => x - y || (a < b ? -1 : 1));
}

async function allIds(name: string, state: 'pending' | 'active' | 'dead' = 'pending', limit?: number) {
  const ids: unknown[] = [];
  for await (const some of inspector.ids(name, { states: [state], limit })) ids.push(...some);
  return ids;
}

/** Jobs in an order that is not that of their ids; several are due at the same time. */
const mixed = (n: number) => upTo(n).map((i) => ({ id: `j${i}`, payload: { i }, at: 4e12 + ((i * 7919) % 331) }));

/** A connection on which the reply to the third requeue is lost. */
class Losing extends Connection {
  #seen = 0;

  override async call(...args: Parameters<Connection['call']>) {
    const reply = await super.call(...args);
    if (nameOf(String(args[1])) === 'edit/requeue' && ++this.#seen === 3)
      throw new DelayqError('unknown', 'no reply', { next: 'wait' });
    return reply;
  }
}

describe('over partitions', () => {
  it('jobs are listed in the order of their times, the first n are the first n of all', async () => {
    const queue = await grownQueue(5);
    await queue.enqueue(mixed(1_500));
    const expected = (await inSet(queue.name, 'pending')).map(([id]) => id);
    expect(expected).toHaveLength(1_500);
    expect(await allIds(queue.name)).toEqual(expected);
    for (const n of [1, 7, 450]) expect(await allIds(queue.name, 'pending', n)).toEqual(expected.slice(0, n));
    const jobs: string[] = [];
    for await (const { id } of inspector.list(queue.name, { states: ['pending'], text: '"i":12', limit: 20 }))
      jobs.push(id);
    expect(jobs).toEqual(expected.filter((id) => id.startsWith('j12')).slice(0, 20));
    expect(await inspector.count(queue.name, { states: ['pending'], to: 4e12 + 100 })).toBe(
      (await inSet(queue.name, 'pending')).filter(([, score]) => score <= 4e12 + 100).length,
    );
    const { stdout } = await delayq(['list', '--ids', '-n', '9', queue.name]);
    expect(linesOf(stdout)).toEqual(expected.slice(0, 9));
  });

  it('a process that does not know of them yet counts and orders all jobs', async () => {
    const queue = await grownQueue(4);
    await queue.enqueue(mixed(40));
    const fresh = () => {
      const redis = new Connection(redisUrl);
      afterwards(() => redis.close());
      return new Inspector(redis);
    };
    const expected = (await inSet(queue.name, 'pending')).map(([id]) => id);
    expect(await fresh().count(queue.name, { states: ['pending'] })).toBe(40);
    expect(await fresh().inOrder(queue.name, [...expected].reverse())).toEqual(expected);
    expect(await fresh().hasPayload(queue.name, 'j7')).toBe(true);
  });

  it('no job is left out of a list, or comes twice, while a growth moves all of them', async () => {
    const queue = freshQueue();
    await queue.enqueue(mixed(900));
    const expected = (await inSet(queue.name, 'pending')).map(([id]) => id);
    const ids: unknown[] = [];
    let slices = 0;
    for await (const some of inspector.ids(queue.name, { states: ['pending'] })) {
      ids.push(...some);
      slices += 1;
      if (slices === 1) await openGrowth(queue.name, 3);
      if (slices === 2) await grow(queue.name, 3);
      if (slices === 3) await grow(queue.name, 7);
    }
    expect(ids).toEqual(expected);
  });

  it('jobs are shown in the order of the ids, about 1 MiB of payloads at a time', async () => {
    const queue = await grownQueue(16);
    await queue.enqueue(upTo(150).map((i) => ({ id: `b${i}`, payload: 'x'.repeat(50_000), in: '1h' })));
    const ids = ['none', ...upTo(150).map((i) => `b${i}`), 'b3'];
    const shown: (string | undefined)[] = [];
    for await (const some of inspector.shown(queue.name, ids)) {
      expect(some.reduce((sum, job) => sum + (job?.payload?.length ?? 0), 0)).toBeLessThan(1.5 * 1024 * 1024);
      shown.push(...some.map((job) => job?.id));
    }
    expect(shown).toEqual([undefined, ...ids.slice(1)]);
  });

  it('a job that a growth is moving is shown before larger ones that are where they belong', async () => {
    const { name } = freshQueue();
    const [a, b] = upTo(20)
      .map((i) => `o:${i}`)
      .filter((id) => crc32(id) % 2 === 1) as [string, string];
    await new Queue(connection, name).enqueue({ id: a, payload: 1, in: '1h' });
    await makePublic(admin, name, 2);
    const keys = queueKeys('delayq', name, '1 0/2 from 1');
    await moves.hold(connection, keys, [a], { states: ['pending'], receipt: 'dead', by: `move:${name}/1` });
    await new Queue(connection, name).enqueue({ id: b, payload: 'x'.repeat(600_000), in: '1h' });
    const shown: unknown[] = [];
    let slices = 0;
    for await (const some of inspector.shown(name, [a, b])) {
      shown.push(...some.map((job) => [job?.id, job?.state]));
      if (++slices > 10) break;
    }
    expect(shown).toEqual([
      [a, 'pending'],
      [b, 'pending'],
    ]);
  });

  it('a lost reply of an edit that gives due times is in doubt, whatever came before it', async () => {
    const { name } = await grownQueue(2);
    const ids = upTo(20)
      .map((i) => `o:${i}`)
      .filter((id) => crc32(id) % 2 === 1);
    await new Queue(connection, name).enqueue(ids.map((id) => ({ id, payload: id, in: '1h' })));
    // So that the script is known.
    await operator.requeue(name, ids.slice(0, 1));
    await operator.bury(name, ids);
    const losing = new Losing(redisUrl);
    afterwards(() => losing.close());
    const requeued = new Operator(losing).requeue(name, ids, new Spread({ stepMs: 1 }));
    await expect(requeued).rejects.toMatchObject({ code: 'unknown' });
  });

  it('reschedule and requeue keep the order and the step of all, over several calls', async () => {
    const queue = await grownQueue(16);
    await queue.enqueue(mixed(400));
    const order = (await inSet(queue.name, 'pending')).map(([id]) => id);
    const spread = new Spread({ at: 3e12, stepMs: 1_000 });
    const [first, second] = [order.slice(0, 250), order.slice(250)];
    for (const some of [first, second]) {
      const answers = await operator.reschedule(queue.name, ['none', ...some].reverse(), spread);
      expect(answers.filter((answer) => answer === 'rescheduled')).toHaveLength(some.length);
    }
    expect(await inSet(queue.name, 'pending')).toEqual(order.map((id, n) => [id, 3e12 + n * 1_000]));

    await operator.bury(queue.name, order);
    const step = new Spread({ at: 2e12, stepMs: 0.5 });
    const mine = [...order].reverse();
    expect(new Set(await operator.requeue(queue.name, mine, step))).toEqual(new Set(['requeued']));
    expect(await inSet(queue.name, 'pending')).toEqual(mine.map((id, n) => [id, 2e12 + n * 0.5]));
  });

  it('an edit of the first n takes the first n of all', async () => {
    const queue = await grownQueue(3);
    await queue.enqueue(mixed(60));
    const order = (await inSet(queue.name, 'pending')).map(([id]) => id);
    const { code } = await delayq(['cancel', queue.name, '--pending', '-n', '7', '--yes']);
    expect({ code, left: (await inSet(queue.name, 'pending')).map(([id]) => id) }).toEqual({
      code: 0,
      left: order.slice(7),
    });
  });

  it('jobs that other software wrote into the queue itself are found by id', async () => {
    const queue = await grownQueue(16);
    for (const id of ['f1', 'f2', 'f3', 'f4']) {
      await admin.hset(key(queue.name, 'payload'), id, '{}');
      await admin.zadd(key(queue.name, 'pending'), 4e12, id);
    }
    expect((await inspector.show(queue.name, ['f1', 'f2', 'f3', 'f4'])).map((job) => job?.state)).toEqual(
      Array.from({ length: 4 }, () => 'pending'),
    );
    expect(await operator.cancel(queue.name, ['f1'])).toEqual(['pending']);
    expect(await operator.bury(queue.name, ['f2'])).toEqual(['buried']);
    expect(await operator.requeue(queue.name, ['f2'])).toEqual(['requeued']);
    expect(await operator.reschedule(queue.name, ['f3', 'f4'], new Spread({ at: 3e12, stepMs: 1 }))).toEqual([
      'rescheduled',
      'rescheduled',
    ]);
    expect((await inSet(queue.name, 'pending')).slice(1)).toEqual([
      ['f3', 3e12],
      ['f4', 3e12 + 1],
    ]);
  });

  it('the trend is that of all partitions', async () => {
    const queue = await grownQueue(3);
    const now = await connection.now();
    const tags = await tagsOf(queue.name);
    // 60, 120 and 180 jobs a minute. Each has its samples at the beginning of a minute, but not in the same second.
    for (const [i, tag] of tags.entries()) {
      const pace = 60 * (i + 1);
      for (let minute = 1; minute < 9; minute++) {
        const at = (Math.floor(now / 60_000) - minute) * 60_000 + i * 1_500;
        const enqueued = Math.round(pace * (10 - (now - at) / 60_000));
        const sample = [at, enqueued, 0, 0, 0, 0, enqueued, at - 1_000, enqueued].join(' ');
        await admin.hset(key(tag, 'stats'), `at:${minute}`, sample);
      }
      await admin.hset(key(tag, 'stats'), 'enqueued', pace * 10);
    }
    const snapshot = await inspector.inspect(queue.name);
    const seen = trend(snapshot.samples, sampleOf(snapshot));
    expect(snapshot.stats.enqueued).toBe(3_600);
    expect(seen?.in).toBeGreaterThan(5.4);
    expect(seen?.in).toBeLessThan(6.6);
  });

  it('leases are settled from the command line, each in the partition of its receipt', async () => {
    const queue = await grownQueue(4);
    await queue.enqueue(upTo(20).map((i) => ({ id: `s${i}`, payload: i })));
    const lines: string[] = [];
    for (let { jobs } = await queue.drain(); jobs.length > 0; { jobs } = await queue.drain())
      lines.push(...jobs.map(({ id, receipt }) => JSON.stringify({ queue: queue.name, id, receipt })));
    const receipts = new Set(lines.map((line) => JSON.parse(line).receipt.replace(/^\w+/, '')));
    expect([...receipts].sort()).toEqual(['', '.1', '.2', '.3']);
    const [first = '', second = '', ...rest] = lines;
    const { id, receipt } = JSON.parse(first);
    expect((await delayq(['ack', queue.name, id, receipt])).code).toBe(0);
    expect((await delayq(['renew'], { input: second })).code).toBe(0);
    expect((await delayq(['nack', '--in', '1h'], { input: second })).code).toBe(0);
    expect((await delayq(['ack'], { input: rest.join('\n') })).code).toBe(0);
    expect(await inspector.inspect(queue.name)).toMatchObject({ pending: 1, active: 0, stats: { acked: 19 } });
  });

  it('holders of leases are told once, with all their jobs', async () => {
    const queue = await grownQueue(3);
    await queue.enqueue(upTo(30).map((i) => ({ id: `h${i}`, payload: i })));
    while ((await queue.drain()).jobs.length > 0);
    const { active, held } = await inspector.inspect(queue.name);
    const { seen, holders } = held;
    expect({ active, seen, jobs: holders.map(({ jobs }) => jobs) }).toEqual({ active: 30, seen: 30, jobs: [30] });
  });

  it('inspect shows the sums of the partitions that can be read, names the others, and exits 75', async () => {
    const queue = await grownQueue(4);
    await queue.enqueue(mixed(100));
    const [, tag = ''] = await tagsOf(queue.name);
    const lost = await admin.zcard(key(tag, 'pending'));
    await admin.rename(key(tag, 'pending'), key(tag, 'other'));
    await admin.set(key(tag, 'pending'), 'x');
    const { code, stdout, stderr } = await delayq(['inspect', '--json', '--partitions', queue.name]);
    const { queues, unreadable } = JSON.parse(stdout);
    expect({ code, stderr }).toEqual({ code: 75, stderr: '' });
    expect(queues[0]).toMatchObject({ pending: 100 - lost, partitions: { count: 4, from: null } });
    expect(queues[0].partitions.each).toHaveLength(4);
    expect(queues[0].partitions.each[1]).toEqual({ index: 1, tag, error: expect.stringContaining('is a string') });
    expect(unreadable).toEqual([{ queue: queue.name, partition: 1, error: expect.stringContaining('is a string') }]);
    const text = await delayq(['inspect', queue.name]);
    expect(text.code).toBe(75);
    expect(text.stderr).toMatch(new RegExp(`^delayq: partition 1 of ${queue.name} cannot be read: WRONGTYPE`));
    expect(text.stdout).toMatch(/^ {2}partitions {2}4\n {2}pending/m);
    expect((await delayq(['inspect', '--partitions'])).code).toBe(64);
  });
});

describe('between partitions', () => {
  it('all jobs of a queue are moved, exported and imported, each once', async () => {
    const [from, to, copy] = [await grownQueue(3), await grownQueue(5), await grownQueue(2)];
    await from.enqueue(mixed(350));
    const dead = upTo(50).map((i) => `j${i * 7}`);
    await operator.bury(from.name, dead, { reason: 'why' });
    const [pending, buried] = [await inSet(from.name, 'pending'), await inSet(from.name, 'dead')];

    const exported = await delayq(['export', from.name]);
    expect({ code: exported.code, lines: linesOf(exported.stdout).length }).toEqual({ code: 0, lines: 350 });
    expect((await delayq(['import', copy.name], { input: exported.stdout })).code).toBe(0);
    expect(await inSet(copy.name, 'pending')).toEqual(pending);
    expect(await inSet(copy.name, 'dead')).toEqual(buried);
    expect(linesOf((await delayq(['export', from.name, '-n', '120'])).stdout)).toHaveLength(120);

    expect((await delayq(['move', from.name, '--into', to.name, '--all', '--yes'])).code).toBe(0);
    expect(await inSet(to.name, 'pending')).toEqual(pending);
    expect(await inSet(to.name, 'dead')).toEqual(buried);
    expect(await inspector.inspect(from.name)).toMatchObject({ pending: 0, active: 0, lease: 0, dead: 0, payload: 0 });
    expect(await inspector.inspect(to.name)).toMatchObject({ lease: 0, payload: 350 });
  });

  it('an interrupted move is finished where it holds its jobs, also after a growth began', async () => {
    const [from, to] = [freshQueue(), freshQueue()];
    const ids = upTo(20).map((i) => `m${i}`);
    await from.enqueue(ids.map((id) => ({ id, payload: 1, in: '1h' })));
    const how = { states: ['pending' as const], receipt: 'dead', by: `move:${to.name}` };
    await moves.hold(connection, queueKeys('delayq', from.name), ids, how);
    await openGrowth(from.name, 4);
    await grow(to.name, 3);
    const moved: unknown[] = [];
    for await (const { answers } of transfer.resume(from.name, to.name)) moved.push(...answers);
    expect(moved).toEqual(ids.map(() => 'moved'));
    await grow(from.name, 4);
    expect((await inSet(to.name, 'pending')).map(([id]) => id).sort()).toEqual([...ids].sort());
    expect(await inspector.inspect(from.name)).toMatchObject({ pending: 0, active: 0, payload: 0 });
  });

  it('while a growth is open, jobs that are active where they belonged are left, or cancelled there', async () => {
    const queue = freshQueue();
    const ids = upTo(12).map((i) => `a${i}`);
    await queue.enqueue(ids.map((id) => ({ id, payload: 1 })));
    const { jobs } = await queue.drain();
    await openGrowth(queue.name, 8);
    expect(new Set(await operator.bury(queue.name, ids))).toEqual(new Set(['active']));
    expect(new Set(await operator.reschedule(queue.name, ids, new Spread()))).toEqual(new Set(['active']));
    expect(new Set(await operator.requeue(queue.name, ids))).toEqual(new Set(['missing']));
    expect(new Set(await operator.cancel(queue.name, ids, ['pending', 'dead']))).toEqual(new Set(['missing']));
    expect(new Set(await transfer.move(queue.name, ids, { to: freshName() }))).toEqual(new Set(['active']));
    expect(new Set(await operator.cancel(queue.name, ids))).toEqual(new Set(['active']));
    expect(new Set(await queue.ack(jobs))).toEqual(new Set(['superseded']));
  });
});

describe('adopt into partitions', () => {
  /** A connection of a process that is killed before its call of this number. */
  class Killed extends Connection {
    calls = 0;
    constructor(readonly at: number) {
      super(redisUrl);
    }
    override call(...args: Parameters<Connection['call']>) {
      this.calls += 1;
      return this.calls > this.at ? Promise.reject(new Error('killed')) : super.call(...args);
    }
  }

  it('takes each job once, killed before any of its calls and repeated', async () => {
    for (let at = 1, isKilled = true; isKilled; at++) {
      const queue = await grownQueue(3);
      const tag = freshName();
      const options = { zset: `{${tag}}:z`, hash: `{${tag}}:h`, unit: 'ms' as const };
      for (const id of ['x1', 'x2', 'x3', 'x4', 'x5']) {
        await admin.hset(options.hash, id, `{"id":"${id}"}`);
        await admin.zadd(options.zset, 4e12, id);
      }
      const redis = new Killed(at);
      const run = async (by: Connection) => {
        for await (const _ of new Transfer(by).adopt(queue.name, options));
      };
      isKilled = await run(redis).then(
        () => false,
        () => true,
      );
      redis.close();
      await run(connection);
      expect((await inSet(queue.name, 'pending')).map(([id]) => id)).toEqual(['x1', 'x2', 'x3', 'x4', 'x5']);
      // A copy that is killed between two removals leaves the value.
      expect(await admin.exists(options.zset, ...(onCluster ? [] : [options.hash]))).toBe(0);
      expect(await admin.zcard(key(queue.name, 'pending'))).toBeLessThan(5);
      expect(await inspector.inspect(queue.name)).toMatchObject({ payload: 5 });
    }
  });
});

describe('a queue without partitions', () => {
  /** A connection that writes down what it sends. */
  class Noting extends Connection {
    sent: string[] = [];
    override call(...args: Parameters<Connection['call']>) {
      const [command, sha] = args;
      // The text of a script that Redis does not know yet is no further call.
      if (command !== 'EVAL') this.sent.push(command === 'EVALSHA' ? String(nameOf(String(sha))) : String(command));
      return super.call(...args);
    }
  }

  it('is looked at and changed with the same calls as before there were any', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(120).map((i) => ({ id: `u${i}`, payload: i, in: '1h' })));
    const redis = new Noting(redisUrl);
    afterwards(() => redis.close());
    const [look, act, name] = [new Inspector(redis), new Operator(redis), queue.name];
    const ids = upTo(120).map((i) => `u${i}`);
    const sent = async (what: () => Promise<unknown>) => {
      redis.sent = [];
      await what();
      return redis.sent.join(' ');
    };
    const all = async (found: AsyncIterable<unknown>) => {
      for await (const _ of found);
    };
    expect(await sent(() => look.inspect(name))).toBe('inspect/inspect');
    expect(await sent(() => look.show(name, ids))).toBe('inspect/show');
    expect(await sent(() => look.hasPayload(name, 'u1'))).toBe('inspect/show');
    expect(await sent(() => all(look.ids(name, { states: ['pending'] })))).toBe('inspect/list inspect/list');
    expect(await sent(() => act.bury(name, ids))).toBe('edit/bury edit/bury');
    expect(await sent(() => act.requeue(name, ids))).toBe('edit/requeue edit/requeue');
    expect(await sent(() => act.reschedule(name, ['u1'], new Spread()))).toBe('edit/reschedule');
    expect(await sent(() => act.cancel(name, ids))).toBe('edit/cancel edit/cancel');
    expect(await sent(() => all(act.purge(name)))).toBe('edit/purge');
    expect(await sent(() => all(new Transfer(redis).unfinished(name, 'other')))).toBe('inspect/list');
  });
});
