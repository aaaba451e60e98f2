import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Connection, Inspector, Operator, Queue } from '../../../src/index.js';
import { upTo } from '../../support/jobs.js';
import { nearly } from '../../support/lmstfy.js';
import { freshName } from '../../support/redis.js';
import { ownRedis, type Served, serve } from '../../support/serve.js';
import { until } from '../../support/until.js';
import { request, Wire } from '../../support/wire.js';

const NS = 'shop';

let served: Served;
let connection: Connection;
let inspector: Inspector;

beforeAll(async () => {
  const redis = await ownRedis();
  connection = new Connection(redis.url);
  inspector = new Inspector(connection);
  served = await serve(redis.url);
});

afterAll(() => connection.close());

/** A queue with the dead jobs d0, d1 …, which died in this order, each after its only delivery. */
async function withDead(count: number, partitions = 1) {
  const name = freshName();
  const queue = new Queue(connection, `${NS}.${name}`);
  if (partitions > 1) for await (const _ of new Operator(connection).partition(queue.name, partitions));
  for (const n of upTo(count)) {
    await queue.enqueue({ payload: n, id: `d${n}`, deliveries: 1, ttl: 3_600_000 });
    await queue.nack((await queue.drain({ limit: 1 })).jobs);
    // Two that died in the same ms are in the order of their ids.
    const died = await redisNow();
    await until(async () => (await redisNow()) > died);
  }
  return { name, queue, path: `/api/${NS}/${name}/deadletter` };
}

const redisNow = () => connection.now();
/** What the answers of these tests hold. */
interface Told {
  readonly ttl: number;
  readonly count: number;
  readonly deadletter_size: number;
  readonly deadletter_head: string;
}

async function call(method: string, path: string) {
  const answer = await served.call(method, path);
  return { ...answer, json: answer.json as Told };
}
const dead = async (path: string) => (await call('GET', path)).json;

async function idsOf(queue: Queue, state: 'dead' | 'pending') {
  const ids: string[] = [];
  for await (const some of inspector.ids(queue.name, { states: [state] })) ids.push(...some.map(String));
  return ids;
}

describe('GET /api/:ns/:queue/deadletter', () => {
  it.each([1, 3])('tells how many jobs are dead, and which one for longest (%i partitions)', async (partitions) => {
    const { name, path } = await withDead(4, partitions);
    const known = { namespace: NS, queue: name };
    expect(await dead(path)).toEqual({ ...known, deadletter_size: 4, deadletter_head: 'd0' });
    expect(await dead(`${path}/size`)).toEqual({ ...known, size: 4 });
  });

  it('tells of an empty one', async () => {
    const { name, path } = await withDead(0);
    const known = { namespace: NS, queue: name };
    expect(await dead(path)).toEqual({ ...known, deadletter_size: 0, deadletter_head: '' });
    expect(await dead(`${path}/size`)).toEqual({ ...known, size: 0 });
  });

  it.each([1, 3])('counts a job as soon as its last lease has expired (%i partitions)', async (partitions) => {
    const { queue, path } = await withDead(0, partitions);
    await queue.enqueue({ payload: 1, id: 'lost', deliveries: 1 });
    await queue.drain({ leaseMs: 1_000 });
    expect((await dead(path)).deadletter_size).toBe(0);
    await until(async () => (await dead(path)).deadletter_head === 'lost');
  });
});

describe('PUT /api/:ns/:queue/deadletter', () => {
  it.each([1, 3])('makes the one that is dead for longest due (%i partitions)', async (partitions) => {
    const { queue, path } = await withDead(3, partitions);
    const answer = await call('PUT', path);
    expect(answer).toMatchObject({ status: 200, json: { msg: 'respawned', count: 1 } });
    expect(await idsOf(queue, 'dead')).toEqual(['d1', 'd2']);
    expect(await idsOf(queue, 'pending')).toEqual(['d0']);
  });

  it('gives it one try, and a day to live', async () => {
    const { queue, path } = await withDead(1);
    await call('PUT', path);
    const shown = await call('GET', `${path.replace('deadletter', 'job')}/d0`);
    expect(shown.json).toMatchObject({ remain_tries: 1, ttl: nearly(86_400) });
    await queue.drain({ leaseMs: 20 });
    await until(async () => (await dead(path)).deadletter_size === 1);
  });

  it('gives it the time to live that is asked for; 0: it never expires', async () => {
    const { path } = await withDead(2);
    const ttlOf = async (id: string) => (await call('GET', `${path.replace('deadletter', 'job')}/${id}`)).json.ttl;
    await call('PUT', `${path}?ttl=1000`);
    expect(await ttlOf('d0')).toEqual(nearly(1_000));
    await call('PUT', `${path}?ttl=0`);
    expect(await ttlOf('d1')).toBe(0);
  });

  it.each([1, 3])('respawns up to `limit` (%i partitions)', async (partitions) => {
    const { queue, path } = await withDead(5, partitions);
    expect((await call('PUT', `${path}?limit=2`)).json.count).toBe(2);
    expect(await idsOf(queue, 'dead')).toEqual(['d2', 'd3', 'd4']);
    // The largest number of lmstfy's clients.
    expect((await call('PUT', `${path}?limit=9223372036854775807`)).json.count).toBe(3);
    expect((await call('PUT', path)).json.count).toBe(0);
  });

  it('respawns and removes more than one call takes', async () => {
    const { queue, path } = await withDead(0);
    await queue.enqueue(upTo(1_000).map((payload) => ({ payload, deliveries: 1 })));
    for (const _ of upTo(4)) await queue.nack((await queue.drain()).jobs);
    expect((await call('PUT', `${path}?limit=555`)).json.count).toBe(555);
    expect((await call('DELETE', `${path}?limit=321`)).status).toBe(204);
    expect((await dead(path)).deadletter_size).toBe(124);
  });

  it('goes past a job that cannot be delivered', async () => {
    const { queue, path } = await withDead(2);
    await connection.call('HDEL', `delayq:{${queue.name}}:payload`, 'd0');
    expect((await call('PUT', path)).json.count).toBe(1);
    expect(await idsOf(queue, 'dead')).toEqual(['d0']);
  });

  it('drops the body that some clients send with it, and the connection goes on', async () => {
    const { path } = await withDead(2);
    const wire = await Wire.to(served.api);
    const body = Buffer.alloc(900_000, 'x');
    const headers = [
      'Host: localhost',
      'Content-Type: application/x-www-form-urlencoded',
      `Content-Length: ${body.length}`,
    ];
    for (const n of [1, 1, 0]) {
      const { status, json } = await wire.ask(request(`PUT ${path}`, headers, body));
      expect({ status, json }).toEqual({ status: 200, json: { msg: 'respawned', count: n } });
    }
  });
});

describe('DELETE /api/:ns/:queue/deadletter', () => {
  it.each([1, 3])('removes those that are dead for longest (%i partitions)', async (partitions) => {
    const { queue, path } = await withDead(4, partitions);
    expect(await call('DELETE', path)).toMatchObject({ status: 204, text: '' });
    expect(await idsOf(queue, 'dead')).toEqual(['d1', 'd2', 'd3']);
    await call('DELETE', `${path}?limit=2`);
    expect(await idsOf(queue, 'dead')).toEqual(['d3']);
    expect((await call('GET', `${path.replace('deadletter', 'job')}/d0`)).status).toBe(404);
    await call('DELETE', `${path}?limit=2`);
    expect((await call('DELETE', path)).status).toBe(204);
    expect(await idsOf(queue, 'dead')).toEqual([]);
  });

  it('leaves other jobs alone', async () => {
    const { queue, path } = await withDead(1);
    await queue.enqueue([{ payload: 1 }, { payload: 2, id: 'p' }]);
    await queue.drain({ limit: 1 });
    await call('DELETE', `${path}?limit=10`);
    expect(await queue.counts()).toMatchObject({ pending: 1, active: 1, dead: 0 });
  });
});

describe.each(['PUT', 'DELETE'])('%s /api/:ns/:queue/deadletter with what it cannot read', (method) => {
  it.each(['0', '-1', '1.5', 'x', ''])('refuses the limit `%s`, and changes nothing', async (limit) => {
    const { path } = await withDead(1);
    expect(await call(method, `${path}?limit=${limit}`)).toMatchObject({
      status: 400,
      json: { error: 'invalid limit' },
    });
    expect((await dead(path)).deadletter_size).toBe(1);
  });

  it('refuses invalid names', async () => {
    expect((await call(method, '/api/a.b/q/deadletter')).status).toBe(400);
    expect((await call(method, '/api/a/_q/deadletter')).status).toBe(400);
  });
});

describe('the time to live of a respawn', () => {
  it.each(['-1', 'x', ''])('is refused if it is `%s`', async (ttl) => {
    const { path } = await withDead(1);
    expect((await call('PUT', `${path}?ttl=${ttl}`)).json).toEqual({ error: 'invalid ttl' });
    expect((await dead(path)).deadletter_size).toBe(1);
  });
});
