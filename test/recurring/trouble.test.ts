import { expect, it } from 'vitest';
import { Connection, Operator, Queue, Recurring } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { begin, delayq, linesOf } from '../support/cli.js';
import { admin, connection, freshName, key } from '../support/redis.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

const recurring = new Recurring(connection);

/** Puts a recurring job `r` of which one occurrence is due, at a time of a whole second in the past. */
async function withDue(name: string, { redis = connection, client = admin, payload = 'made' } = {}): Promise<string> {
  await new Recurring(redis).put(name, { id: 'r', when: '1h', payload });
  const at = (Math.floor((await redis.now()) / 1_000) - 5) * 1_000;
  await client.zadd(key(name, 'occurs'), at, 'r');
  return `r@${new Date(at).toISOString().slice(0, 19)}Z`;
}

it('a full server delivers the jobs that are there; the occurrence makes its job once there is room', async () => {
  const server = await during(Server.start());
  const redis = new Connection(server.url);
  afterwards(() => redis.close());
  const name = freshName();
  await new Queue(redis, name).enqueue({ id: 'there', payload: 'there' });
  await withDue(name, { redis, client: server.admin });
  const drain = () => delayq(['drain', '-q', '--redis', server.url, name]);
  await server.admin.config('SET', 'maxmemory', '1');
  expect(await drain()).toMatchObject({ code: 0, stdout: '"there"\n' });
  expect(await server.admin.zcard(key(name, 'occurs'))).toBe(1);
  await server.admin.config('SET', 'maxmemory', '0');
  expect(await drain()).toMatchObject({ code: 0, stdout: '"made"\n' });
});

it('a user who may not use its keys is refused, with what is missing, and takes nothing', async () => {
  const server = await during(Server.start());
  const redis = new Connection(server.url);
  afterwards(() => redis.close());
  const name = freshName();
  await withDue(name, { redis, client: server.admin });
  const keys = ['pending', 'active', 'lease', 'dead', 'payload', 'meta', 'stats', 'config', 'done'];
  const own = keys.map((one) => `~${key(name, one)}`);
  await server.admin.call('ACL', 'SETUSER', 'app', 'on', '>secret', '+@all', '&*', '~delayq:queues', ...own);
  const url = server.url.replace('://', '://app:secret@');
  const { code, stdout, stderr } = await delayq(['drain', '--redis', url, name]);
  expect({ code, stdout }).toEqual({ code: 77, stdout: '' });
  expect(stderr).toMatch(/permission/i);
  expect((await delayq(['drain', '-q', '--redis', server.url, name])).stdout).toBe('"made"\n');
});

it('limits that are reached hold its job back, not its occurrence', async () => {
  const name = freshName();
  const queue = new Queue(connection, name);
  await new Operator(connection).configure(name, { rate: { jobs: 1, perMs: 3_600_000 }, maxActive: 1 });
  await queue.enqueue({ payload: 1 });
  expect((await queue.drain()).jobs).toHaveLength(1);
  const draining = begin(['drain', '-q', '--watch', name, '--', 'true']);
  const id = await withDue(name);
  await until(async () => (await admin.zcard(key(name, 'pending'))) > 0);
  draining.child.kill('SIGTERM');
  await draining.ended;
  expect(await admin.zrange(key(name, 'pending'), '0', '-1')).toEqual([id]);
  expect((await queue.counts()).active).toBe(1);
});

it('a clock that goes back makes it late; a new interval, or a resumed cron expression, counts from now', async () => {
  const name = freshName();
  // As a server would have stored them whose clock was a day ahead.
  const ahead = (await connection.now()) + 86_400_000;
  for (const [id, when] of [
    ['cron', '0 * * * *'],
    ['interval', '1h'],
  ] as const) {
    await recurring.put(name, { id, when, payload: 1 });
    await admin.zadd(key(name, 'occurs'), ahead, id);
    const text = String(await admin.hget(key(name, 'every'), id));
    await admin.hset(key(name, 'every'), id, text.replace(/"created":\d+/, `"created":${ahead}`));
  }
  expect(await delayq(['drain', '-q', name])).toMatchObject({ code: 0, stdout: '' });
  await delayq(['every', '--pause', name, 'cron']);
  await delayq(['every', '--resume', name, 'cron']);
  await delayq(['every', '--remove', name, 'interval']);
  await delayq(['every', '1h', '--id', 'interval', name, '1']);
  for (const { next } of await recurring.list(name))
    expect((next as number) - (await connection.now())).toBeLessThan(3_600_001);
});

it('--must-exist knows a queue that has recurring jobs only', async () => {
  const name = freshName();
  expect((await delayq(['drain', '--must-exist', name])).code).toBe(3);
  await recurring.put(name, { id: 'r', when: '1h', payload: 1 });
  expect(await delayq(['drain', '-q', '--must-exist', name])).toMatchObject({ code: 0, stdout: '' });
});

it('of a queue that comes first, its job comes first', async () => {
  const [high, low] = [freshName(), freshName()];
  await new Queue(connection, low).enqueue({ payload: 'low', at: 1_000 });
  await withDue(high, { payload: 'high' });
  const { stdout } = await delayq(['drain', '-q', '--at-most-once', `${high},${low}`]);
  expect(linesOf(stdout)).toEqual(['"high"', '"low"']);
});

it('stays where it is when jobs are moved, into its queue or out of it, or adopted', async () => {
  const [from, to] = [freshName(), freshName()];
  const id = await withDue(from);
  const queue = new Queue(connection, from);
  const { jobs } = await queue.drain();
  await queue.nack(jobs, { mode: 'release' });
  await recurring.put(to, { id: 'other', when: '1h', payload: 1 });
  expect(await delayq(['move', from, '--into', to, '--all', '--yes'])).toMatchObject({ code: 0 });
  await admin.zadd(`data:${from}`, 4_000_000_000, 'foreign');
  await admin.hset(`data:${from}:bodies`, 'foreign', '1');
  const adopt = ['adopt', '--zset', `data:${from}`, '--hash', `data:${from}:bodies`, to];
  expect(await delayq(adopt)).toMatchObject({ code: 0 });
  expect(await admin.zrange(key(to, 'pending'), '0', '-1')).toEqual([id, 'foreign']);
  expect((await recurring.list(from)).map((one) => [one.id, one.last])).toEqual([['r', id]]);
  expect((await recurring.list(to)).map((one) => one.id)).toEqual(['other']);
});
