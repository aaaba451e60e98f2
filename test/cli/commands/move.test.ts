import { describe, expect, it } from 'vitest';
import { Connection, Inspector, type Queue, Transfer } from '../../../src/index.js';
import { queueKeys } from '../../../src/store/keys.js';
import * as moves from '../../../src/store/transfer.js';
import { Random } from '../../chaos/random.js';
import { afterwards, during } from '../../support/afterwards.js';
import { begin, delayq, linesOf, sh } from '../../support/cli.js';
import { FaultyProxy } from '../../support/proxy.js';
import { admin, connection, freshQueue, key, masters, onCluster, redisTargets, redisUrl } from '../../support/redis.js';
import { scriptHash } from '../../support/scripts.js';
import { Server } from '../../support/server.js';
import { until } from '../../support/until.js';

const transfer = new Transfer(connection);
const inspector = new Inspector(connection);
const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);

/** 300 pending jobs, 50 of them due, and 50 dead ones; more than go into a call. */
async function filled(): Promise<Queue> {
  const queue = freshQueue();
  await queue.enqueue(upTo(50).map((n) => ({ id: `d${n}`, payload: { n }, at: n, tries: 3 })));
  await queue.nack((await queue.drain()).jobs, { mode: 'dead', error: 'no' });
  await queue.enqueue(upTo(300).map((n) => ({ id: `p${n}`, payload: { n }, at: n < 50 ? 1_000 + n : 4e12 + n })));
  return queue;
}

async function contents(name: string) {
  const [pending, dead, active] = await Promise.all(
    ['pending', 'dead', 'active'].map((set) => admin.zrange(key(name, set), '0', '-1', 'WITHSCORES')),
  );
  const [payload, meta, lease] = await Promise.all(
    ['payload', 'meta', 'lease'].map((hash) => admin.hgetall(key(name, hash))),
  );
  return { pending, dead, active, payload, meta, lease } as Record<'pending' | 'dead' | 'active', string[]> &
    Record<'payload' | 'meta' | 'lease', Record<string, string>>;
}

const EMPTY = { pending: [], dead: [], active: [], payload: {}, meta: {}, lease: {} };
const statsOf = (queue: Queue) => admin.hgetall(key(queue.name, 'stats'));

describe('delayq move', () => {
  it('puts jobs into another queue as they are: state, time, record, payload', async () => {
    const [from, to] = [await filled(), freshQueue()];
    const before = await contents(from.name);
    const { code, stderr } = await delayq(['move', from.name, '--into', to.name, '--all', '--yes']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: `delayq: 350 jobs moved from ${from.name} to ${to.name}\n` });
    expect(await contents(to.name)).toEqual(before);
    expect(await contents(from.name)).toEqual(EMPTY);
    expect((await statsOf(from)).moved).toBe('350');
    expect(await statsOf(to)).toEqual({ restored: '350' });
    expect(await inspector.queues()).toContain(to.name);
  });

  it('keeps how often a job was released', async () => {
    const [from, to] = [freshQueue(), freshQueue()];
    await from.enqueue({ id: 'a', payload: 1 });
    for (let i = 0; i < 2; i++) await from.nack((await from.drain()).jobs, { mode: 'release' });
    expect((await delayq(['move', from.name, '--into', to.name, 'a'])).code).toBe(0);
    await to.nack((await to.drain()).jobs, { mode: 'release' });
    expect(await inspector.show(to.name, ['a'])).toMatchObject([{ state: 'pending', releases: 3 }]);
  });

  it('moves the jobs that are named, or that a filter means', async () => {
    const [from, to] = [await filled(), freshQueue()];
    await delayq(['move', from.name, '--into', to.name, 'p0', 'd0']);
    await delayq(['move', from.name, '--into', to.name, '--dead', '--grep', '"n":7', '--yes']);
    await delayq(['move', from.name, '--into', to.name, '-'], { input: 'p1\np2\n' });
    expect(Object.keys((await contents(to.name)).payload).sort()).toEqual(['d0', 'd7', 'p0', 'p1', 'p2']);
    const { stderr, stdout, code } = await delayq(['move', from.name, '--into', to.name, 'p0', 'p3', '--json']);
    expect({ code, stderr }).toEqual({ code: 1, stderr: `delayq: p0 is not in ${from.name}\n` });
    expect(JSON.parse(stdout)).toMatchObject({ moved: 1, missing: 1, into: to.name, finished: 0 });
  });

  it('leaves what a consumer holds, and what has no payload, and says so', async () => {
    const [from, to] = [freshQueue(), freshQueue()];
    await from.enqueue({ id: 'held', payload: 1 });
    const { jobs } = await from.drain();
    await admin.zadd(key(from.name, 'pending'), 1, 'orphan');
    const { code, stderr } = await delayq(['move', from.name, '--into', to.name, 'held', 'orphan']);
    expect(code).toBe(1);
    expect(linesOf(stderr)).toEqual([
      `delayq: held stays in ${from.name}: it is active`,
      `delayq: orphan stays in ${from.name}: it has no payload`,
      `delayq: 0 jobs moved from ${from.name} to ${to.name}`,
    ]);
    expect(await from.ack(jobs)).toEqual(['held']);
  });

  it('takes a job with other attributes for another one', async () => {
    const [from, to] = [freshQueue(), freshQueue()];
    const job = { id: 'a', payload: 1, at: 1_000 };
    await from.enqueue([
      { ...job, attributes: { tenant: '7' } },
      { ...job, id: 'b', attributes: { tenant: '7', x: 'y' } },
    ]);
    await to.enqueue([
      { ...job, attributes: { tenant: '8' } },
      { ...job, id: 'b', tries: 2, attributes: { x: 'y', tenant: '7' } },
    ]);
    const { code, stderr } = await delayq(['move', from.name, '--into', to.name, 'a', 'b']);
    expect({ code, lines: linesOf(stderr).slice(0, 2) }).toEqual({
      code: 1,
      lines: [
        `delayq: a stays in ${from.name}: ${to.name} has another job under this id`,
        `delayq: b was in ${to.name} already, with the same payload: only that one is left`,
      ],
    });
    expect((await new Inspector(connection).show(from.name, ['a']))[0]).toMatchObject({ attributes: { tenant: '7' } });
  });

  it('puts a job back where it stood when the other queue has another payload under its id, exit 1', async () => {
    const [from, to] = [await filled(), freshQueue()];
    await to.enqueue([
      { id: 'd0', payload: 'other' },
      { id: 'p0', payload: 'other' },
      { id: 'p1', payload: { n: 1 } },
    ]);
    const before = await contents(from.name);
    const { code, stderr } = await delayq(['move', from.name, '--into', to.name, 'd0', 'p0', 'p1']);
    expect(code).toBe(1);
    expect(linesOf(stderr)).toEqual([
      `delayq: d0 stays in ${from.name}: ${to.name} has another job under this id`,
      `delayq: p0 stays in ${from.name}: ${to.name} has another job under this id`,
      `delayq: p1 was in ${to.name} already, with the same payload: only that one is left`,
      `delayq: 1 job moved from ${from.name} to ${to.name}`,
    ]);
    const after = await contents(from.name);
    expect(after.dead).toEqual(before.dead);
    expect(after.pending).toEqual(before.pending.filter((part, i, all) => part !== 'p1' && all[i - 1] !== 'p1'));
    expect(after).toMatchObject({ active: [], lease: {} });
    expect((await contents(to.name)).lease).toEqual({});
  });

  it('leaves a pending job of which the other queue holds a dead one, exit 1', async () => {
    const [from, to] = [freshQueue(), freshQueue()];
    await to.enqueue({ id: 'a', payload: 1 });
    await to.nack((await to.drain()).jobs, { mode: 'dead' });
    await from.enqueue({ id: 'a', payload: 1, at: 4e12 });
    const { code, stderr } = await delayq(['move', from.name, '--into', to.name, 'a']);
    expect({ code, stderr }).toMatchObject({ code: 1, stderr: expect.stringContaining(`it is dead in ${to.name}`) });
    expect((await contents(from.name)).pending).toEqual(['a', '4000000000000']);
    expect(await contents(to.name)).toMatchObject({ pending: [], dead: ['a', expect.any(String)], lease: {} });
  });

  it('to the same queue, to none, or with a time for its name is a usage error', async () => {
    const { name } = await filled();
    expect(await delayq(['move', name, '--into', name, '--all', '--yes'])).toMatchObject({ code: 64 });
    expect(await delayq(['move', name, '--all', '--yes'])).toMatchObject({ code: 64 });
    const { code, stderr } = await delayq(['move', name, '--to', 'other', 'p0']);
    expect({ code, stderr }).toMatchObject({ code: 64, stderr: expect.stringContaining('--into') });
    await expect(transfer.move(name, ['p0'], { to: name })).rejects.toMatchObject({ code: 'usage' });
    const nothing = await delayq(['move', name, '--into', 'other']);
    expect(nothing).toMatchObject({ code: 3, stderr: expect.stringContaining('no job is named, and no move from') });
  });

  it('gives back what it holds when the other queue cannot take it, as Redis is full', async () => {
    const server = await during(Server.start());
    const [from, to] = [freshQueue(), freshQueue()];
    const run = (...args: string[]) => delayq([...args, '--redis', server.url]);
    const lines = upTo(300).map((n) => JSON.stringify({ id: `j${n}`, at: '@4000000000.5', payload: n }));
    await delayq(['enqueue', '-q', '--jobs', '--redis', server.url, from.name, '-'], { input: lines.join('\n') });
    await server.admin.config('SET', 'maxmemory', '1');
    const { code } = await run('move', from.name, '--into', to.name, '--all', '--yes');
    expect(code).toBe(75);
    expect(await server.admin.zcard(key(from.name, 'pending'))).toBe(300);
    expect(await server.admin.zcard(key(from.name, 'active'))).toBe(0);
    expect(await server.admin.hlen(key(from.name, 'lease'))).toBe(0);
    await server.admin.config('SET', 'maxmemory', '0');
    expect((await run('move', from.name, '--into', to.name, '--all', '--yes')).code).toBe(0);
    expect(await server.admin.zcard(key(to.name, 'pending'))).toBe(300);
  });
});

/** The same URL, with which clients need not find out by their first call whether it is a cluster. */
const sureOf = (url: string) => (onCluster ? url.replace('redis:', 'redis+cluster:') : url);

/** Starts a move that is stopped for ever at a step, before or after Redis does it, and kills it there. */
async function killedAt(from: Queue, to: Queue, step: string, kind: 'deaf' | 'silent', which = '--all'): Promise<void> {
  // Redis must know the scripts, or the call that is struck only learns that it does not.
  const hashes = ['hold', 'restore', 'transfer/end'].map((name) => scriptHash(name));
  await until(async () => {
    const [one, other] = [freshQueue(), freshQueue()];
    await one.enqueue({ id: 'a', payload: 1 });
    await transfer.move(one.name, ['a'], { to: other.name });
    const known = await Promise.all((await masters()).map((master) => master.script('EXISTS', ...hashes)));
    return known.flat().every((one) => one === 1);
  });
  const proxy = await during(FaultyProxy.start(...redisTargets));
  const word = step === 'forget' ? 'HDEL' : scriptHash(step);
  proxy.fault = { word, kind, times: 1 };
  const args = ['move', from.name, '--into', to.name, which, '--yes'];
  const running = begin(args, { input: '', env: { DELAYQ_REDIS_URL: sureOf(proxy.url) } });
  await until(() => proxy.struck === 1 || running.child.exitCode !== null);
  expect({ struck: proxy.struck, stderr: running.stderr }).toMatchObject({ struck: 1 });
  if (kind === 'silent') await until(() => isDone(from, to, step));
  running.child.kill('SIGKILL');
  await running.ended;
}

/** Whether Redis has carried out a step, of a move that is stopped there. */
async function isDone(from: Queue, to: Queue, step: string): Promise<boolean> {
  const held = await admin.zcard(key(from.name, 'active'));
  const copies = await admin.hlen(key(to.name, 'payload'));
  const tokens = await admin.hlen(key(to.name, 'lease'));
  return (
    { hold: held > 0, restore: copies > 0, 'transfer/end': held === 0 && copies > 0, forget: tokens === 0 }[step] ??
    false
  );
}

describe('a move that was killed', () => {
  const steps = ['hold', 'restore', 'transfer/end', 'forget'].flatMap((step) =>
    (['deaf', 'silent'] as const).map((kind) => ({ step, kind })),
  );

  it.each(steps)('at $step ($kind) loses nothing, and a repeat ends it', async ({ step, kind }) => {
    const [from, to] = [await filled(), freshQueue()];
    const before = await contents(from.name);
    await killedAt(from, to, step, kind);
    const payloads = { ...(await contents(from.name)).payload, ...(await contents(to.name)).payload };
    expect(payloads).toEqual(before.payload);
    expect(await delayq(['move', from.name, '--into', to.name, '--all', '--yes'])).toMatchObject({ code: 0 });
    expect(await contents(from.name)).toEqual(EMPTY);
    const { lease, ...after } = await contents(to.name);
    expect(after.pending).toEqual(before.pending);
    expect(after.dead).toEqual(before.dead);
    expect(after.payload).toEqual(before.payload);
    expect(after.meta).toEqual(before.meta);
    // Only tokens may be left, and only of jobs that the killed move has held: it might have slept, and come back.
    expect(Object.keys(lease).length).toBeLessThanOrEqual(100);
    // Doctor tells them from what becomes of a cancelled job.
    for (const value of Object.values(lease)) expect(value).toMatch(/^\d+ moved$/);
    if (step === 'hold' && kind === 'deaf') expect(lease).toEqual({});
    expect(await statsOf(to)).toEqual({ restored: '350' });
  });

  it.each(steps)('at $step ($kind) brings no job twice that was done meanwhile', async ({ step, kind }) => {
    const [from, to] = [await filled(), freshQueue()];
    await killedAt(from, to, step, kind, '--pending');
    const handled: string[] = [];
    const work = async (queue: Queue) => {
      const { jobs } = await queue.drain();
      handled.push(...jobs.map(({ id }) => id));
      await queue.ack(jobs);
    };
    await work(to);
    await work(from);
    await delayq(['move', from.name, '--into', to.name, '--all', '--yes']);
    await work(to);
    expect(handled.sort()).toEqual(
      upTo(50)
        .map((n) => `p${n}`)
        .sort(),
    );
    const { payload } = await contents(to.name);
    expect(Object.keys(payload)).toHaveLength(300);
    expect(await contents(from.name)).toMatchObject({ pending: [], dead: [], active: [], payload: {}, meta: {} });
  });

  it('is ended by a repeat whatever that one asks for, and by one that asks for nothing more', async () => {
    for (const more of [['p299'], ['--dead', '-n', '1', '--yes'], []]) {
      const [from, to] = [await filled(), freshQueue()];
      await killedAt(from, to, 'restore', 'deaf');
      const held = await admin.zcard(key(from.name, 'active'));
      expect(held).toBeGreaterThan(0);
      const { code, stderr } = await delayq(['move', from.name, '--into', to.name, ...more]);
      expect(code).toBe(0);
      expect(stderr).toContain(`${held} jobs of an interrupted move to ${to.name} moved`);
      expect(await admin.zcard(key(from.name, 'active'))).toBe(0);
    }
  });

  it('leaves jobs that no drain takes, that show explains, and that inspect, list and export tell of', async () => {
    const [from, to] = [await filled(), freshQueue()];
    await killedAt(from, to, 'restore', 'deaf');
    const held = await admin.zrange(key(from.name, 'active'), '0', '-1');
    const { state, next } = await from.drain();
    expect({ state, next: next === undefined || next < 5e12 }).toEqual({ state: 'idle', next: true });
    const { active, runOut } = await inspector.inspect(from.name);
    expect({ active: active >= held.length, runOut }).toEqual({ active: true, runOut: 0 });
    const dead = held.find((id) => id.startsWith('d')) as string;
    const { stdout } = await sh(`script -qec 'delayq show ${from.name} ${dead}' /dev/null`);
    expect(stdout).toContain(`to end it: delayq move ${from.name} --into ${to.name}`);
    expect(stdout).toContain('dead before');
    expect(stdout).not.toContain('lease ends');
    const shown = JSON.parse((await delayq(['show', '--json', from.name, dead])).stdout);
    expect(shown).toMatchObject({
      state: 'active',
      leasedBy: `move:${to.name}`,
      moving: { to: to.name, from: 'dead' },
    });
    const listed = await delayq(['list', '--json', '--active', from.name]);
    expect(linesOf(listed.stdout).length).toBeGreaterThanOrEqual(held.length);
    const line = linesOf((await delayq(['export', from.name])).stdout).find((text) => text.includes(`"${dead}"`));
    expect(JSON.parse(line ?? '')).toMatchObject({ id: dead, state: 'dead' });
  });

  it('is ended with --dry-run by saying so only', async () => {
    const [from, to] = [await filled(), freshQueue()];
    await killedAt(from, to, 'restore', 'silent');
    const before = await contents(from.name);
    const { code, stderr } = await delayq(['move', from.name, '--into', to.name, '--dry-run', '--dead']);
    expect(code).toBe(0);
    expect(stderr).toMatch(/of an interrupted move to \S+ would be moved first/);
    expect(await contents(from.name)).toEqual(before);
  });

  it('does not bring to life again what was cancelled meanwhile at its source', async () => {
    const [from, to] = [await filled(), freshQueue()];
    await killedAt(from, to, 'restore', 'deaf');
    const [id = ''] = await admin.zrange(key(from.name, 'active'), '0', '0');
    expect(await delayq(['cancel', from.name, id])).toMatchObject({ code: 0 });
    await delayq(['move', from.name, '--into', to.name]);
    expect(await admin.hexists(key(to.name, 'payload'), id)).toBe(0);
    expect(await admin.hexists(key(from.name, 'payload'), id)).toBe(0);
  });
});

it('a job is not moved back onto what an interrupted move still holds of it, which goes when that is ended', async () => {
  const [from, to] = [await filled(), freshQueue()];
  const { payload } = await contents(from.name);
  await killedAt(from, to, 'transfer/end', 'deaf', '--pending');
  const held = await admin.zcard(key(from.name, 'active'));
  const back = await delayq(['move', to.name, '--into', from.name, '--all', '--yes', '--json']);
  expect(back.code).toBe(1);
  expect(JSON.parse(back.stdout)).toMatchObject({ moved: 0, held });
  expect(linesOf(back.stderr)[0]).toContain(`holds this id in ${from.name}`);
  const input = linesOf((await delayq(['export', to.name])).stdout).join('\n');
  const imported = await delayq(['import', '--json', from.name], { input });
  expect(imported.code).toBe(1);
  expect(JSON.parse(imported.stdout)).toMatchObject({ created: 0, held });
  expect(await delayq(['move', from.name, '--into', to.name])).toMatchObject({ code: 0 });
  expect({ ...(await contents(from.name)).payload, ...(await contents(to.name)).payload }).toEqual(payload);
  expect(await delayq(['move', to.name, '--into', from.name, '--all', '--yes'])).toMatchObject({ code: 0 });
  expect((await contents(from.name)).payload).toEqual(payload);
});

it('moves to and fro, killed at any step while consumers work on both queues, lose nothing and bring nothing twice', async () => {
  const queues = [await filled(), freshQueue()] as const;
  const seed = Math.floor(Math.random() * 1e9);
  const random = new Random(seed);
  const handled: string[] = [];
  const work = async (queue: Queue, limit: number) => {
    const { jobs } = await queue.drain({ limit });
    handled.push(...jobs.map(({ id }) => id));
    await queue.ack(jobs);
  };
  for (const _ of upTo(12)) {
    const [from, to] = random.pick([queues, [queues[1], queues[0]] as const]);
    const proxy = await during(FaultyProxy.start(...redisTargets));
    const step = random.pick(['hold', 'restore', 'transfer/end', 'forget'] as const);
    const word = step === 'forget' ? 'HDEL' : scriptHash(step);
    proxy.fault = { word, kind: random.pick(['deaf', 'silent'] as const), times: 1 };
    const args = ['move', from.name, '--into', to.name, random.pick(['--all', '--pending', '--overdue']), '--yes'];
    const running = begin(args, { input: '', env: { DELAYQ_REDIS_URL: sureOf(proxy.url) } });
    await until(() => proxy.struck === 1 || running.child.exitCode !== null);
    running.child.kill('SIGKILL');
    await running.ended;
    for (const queue of queues) await work(queue, 3);
  }
  // Each way is ended once; what one of them holds the other may have waited for.
  const ways = [[...queues], [...queues].reverse()] as [Queue, Queue][];
  for (const [from, to] of [...ways, ...ways]) for await (const _ of transfer.resume(from.name, to.name));
  for (const queue of queues) await work(queue, 500);
  expect({ seed, handled: handled.sort() }).toEqual({
    seed,
    handled: upTo(50)
      .map((n) => `p${n}`)
      .sort(),
  });
  const [a, b] = await Promise.all(queues.map(({ name }) => contents(name)));
  expect({ seed, n: [...Object.keys(a?.payload ?? {}), ...Object.keys(b?.payload ?? {})].length }).toEqual({
    seed,
    n: 300,
  });
  expect({ ...a?.payload, ...b?.payload }).toMatchObject({ p299: '{"n":299}', d0: '{"n":0}' });
  expect([a?.active, b?.active]).toEqual([[], []]);
});

it('a move that sleeps while another ends it brings back no job that was done meanwhile', async () => {
  const [from, to] = [freshQueue(), freshQueue()];
  await from.enqueue({ id: 'a', payload: 1 });
  const sleeper = new Connection(sureOf(redisUrl));
  afterwards(() => sleeper.close());
  const call = sleeper.call.bind(sleeper);
  let wake = () => {};
  let asleep = false;
  sleeper.call = async (command, ...args) => {
    if (String(args[0]) === scriptHash('restore')) {
      asleep = true;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
    return call(command, ...args);
  };
  const first = new Transfer(sleeper).move(from.name, ['a'], { to: to.name });
  await until(() => asleep);
  for await (const _ of transfer.resume(from.name, to.name));
  expect(await to.ack((await to.drain()).jobs)).toEqual(['held']);
  wake();
  await first;
  expect((await to.drain()).jobs).toEqual([]);
  expect((await contents(to.name)).payload).toEqual({});
});

it('a move that was taken over ends nothing any more, and its token stays the same', async () => {
  const [from, to] = [await filled(), freshQueue()];
  const keys = queueKeys('delayq', from.name);
  const how = { states: ['pending', 'dead'] as const, by: `move:${to.name}` };
  const ids = ['p0', 'd0', 'p0', 'nowhere'];
  const token = { token: 'first' };
  const first = await moves.hold(connection, keys, ids, { ...how, receipt: 'first' });
  expect(first.holds).toMatchObject([token, token, 'missing', 'missing']);
  const second = await moves.hold(connection, keys, ['p0', 'd0'], { ...how, receipt: 'second' });
  expect(second.holds).toMatchObject([token, token]);
  const other = { ...how, by: 'move:elsewhere', receipt: 'third' };
  expect((await moves.hold(connection, keys, ['p0', 'd0'], other)).holds).toEqual(['active', 'active']);
  const jobs = ['p0', 'd0'].map((id, i) => ({ id: Buffer.from(id), moved: i === 0 }));
  expect(await moves.endHolds(connection, keys, jobs, 'first')).toEqual(['lost', 'lost']);
  expect((await contents(from.name)).active).toEqual(['d0', 'inf', 'p0', 'inf']);
  expect(await moves.endHolds(connection, keys, jobs, 'second')).toEqual(['held', 'held']);
  expect(await contents(from.name)).toMatchObject({ active: [], lease: {} });
  expect(await admin.zscore(key(from.name, 'dead'), 'd0')).not.toBeNull();
  expect(await admin.hexists(key(from.name, 'payload'), 'p0')).toBe(0);
});

it('moves between two queues to and fro, by several at once, end with each job in one place', async () => {
  const [a, b] = [await filled(), freshQueue()];
  const ids = [...upTo(300).map((n) => `p${n}`), ...upTo(50).map((n) => `d${n}`)];
  const there = (n: number) =>
    n % 2 ? transfer.move(a.name, ids, { to: b.name }) : transfer.move(b.name, ids, { to: a.name });
  for (const _ of upTo(5)) await Promise.all(upTo(6).map(there));
  for await (const _ of transfer.resume(a.name, b.name));
  for await (const _ of transfer.resume(b.name, a.name));
  const [inA, inB] = [await contents(a.name), await contents(b.name)];
  expect([...Object.keys(inA.payload), ...Object.keys(inB.payload)].sort()).toEqual(ids.sort());
  expect(inA.pending.length + inB.pending.length).toBe(600);
  expect(inA.dead.length + inB.dead.length).toBe(100);
  expect([inA.active, inB.active]).toEqual([[], []]);
});
