import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Connection, Inspector, type NewJob, Operator, parseUrl, Queue } from '../../../src/internal.js';
import type { ApiCall } from '../../../src/serve/api/call.js';
import { peek } from '../../../src/serve/api/jobs.js';
import type { Exchange } from '../../../src/serve/http/exchange.js';
import { Figures } from '../../../src/serve/http/figures.js';
import { Memory } from '../../../src/serve/http/memory.js';
import { Pool } from '../../../src/serve/queues/pool.js';
import { afterwards, during } from '../../support/afterwards.js';
import { upTo } from '../../support/jobs.js';
import { nearly } from '../../support/lmstfy.js';
import { FaultyProxy } from '../../support/proxy.js';
import { freshName, key, onCluster, timePasses } from '../../support/redis.js';
import { scriptHash } from '../../support/scripts.js';
import { figure, ownRedis, type Served, serve, serveHere } from '../../support/serve.js';
import type { Server } from '../../support/server.js';
import { until } from '../../support/until.js';
import { request, Wire } from '../../support/wire.js';

const NS = 'shop';

let redis: Awaited<ReturnType<typeof ownRedis>>;
let served: Served;
let connection: Connection;

beforeAll(async () => {
  redis = await ownRedis();
  connection = new Connection(redis.url);
  served = await serve(redis.url);
});

afterAll(() => connection.close());

/** A queue, and the path of it. With `partitions`, it has so many. */
async function fresh(partitions = 1) {
  const name = freshName();
  const queue = new Queue(connection, `${NS}.${name}`);
  if (partitions > 1) for await (const _ of new Operator(connection).partition(queue.name, partitions));
  return { name, queue, path: `/api/${NS}/${name}` };
}

const put = async (queue: Queue, job: Partial<NewJob> = {}) => (await queue.enqueue({ payload: 'x', ...job })).id;

/** Takes one job. */
async function take(queue: Queue, leaseMs = 60_000) {
  const [job] = (await queue.drain({ limit: 1, leaseMs, by: 'http:test:1' })).jobs;
  if (!job) throw new Error('no job was due');
  return job;
}

/** What the answers of these tests hold. */
interface Told {
  readonly ttl: number;
  readonly elapsed_ms: number;
  readonly remain_tries: number;
  readonly size: number;
  readonly due: number;
  readonly ttr_ms: number;
  readonly error: string;
}

async function call(...args: Parameters<Served['call']>) {
  const answer = await served.call(...args);
  return { ...answer, json: answer.json as Told };
}
const get = (path: string) => call('GET', path);
const post = (path: string, headers: Record<string, string> = {}) => call('POST', path, { headers });
const NO_JOB = { status: 404, json: { error: 'job not found' } };
const EMPTY = { status: 404, json: { error: 'the queue is empty' } };

/** The requests about a queue that change nothing. */
const LOOKS = ['/size', '/peek', '/job/nope', '/deadletter', '/deadletter/size'];

describe('GET /api/:ns/:queue/size', () => {
  it.each([1, 3])('counts the jobs that are due, of all partitions (%i)', async (partitions) => {
    const { name, queue, path } = await fresh(partitions);
    await queue.enqueue(upTo(20).map((payload) => ({ payload })));
    await put(queue, { in: '1h' });
    await take(queue);
    expect(await get(`${path}/size`)).toMatchObject({
      status: 200,
      json: { namespace: NS, queue: name, size: 19 },
    });
  });

  it('counts a job again as soon as its lease has expired', async () => {
    const { queue, path } = await fresh();
    await put(queue);
    await take(queue, 50);
    await until(async () => (await get(`${path}/size`)).json.size === 1);
  });
});

describe('looking at a queue', () => {
  it.each(LOOKS)('does not create it: %s', async (look) => {
    const { name, path } = await fresh();
    await get(path + look);
    expect(await new Inspector(connection).queues()).not.toContain(`${NS}.${name}`);
    expect(await redis.admin.exists(key(`${NS}.${name}`, 'stats'))).toBe(0);
  });

  it.each([...LOOKS.map((look) => ['GET', look]), ['DELETE', ''], ['POST', '/job/a/cancel']])(
    'refuses invalid names: %s …%s',
    async (method = '', rest) => {
      const refusal = async (ns: string, name: string) => (await call(method, `/api/${ns}/${name}${rest}`)).json;
      expect(await refusal('sh.op', 'q')).toEqual({ error: expect.stringContaining('namespace') });
      expect(await refusal(NS, 'q*')).toEqual({ error: expect.stringContaining('queue name') });
      expect(await refusal(NS, '_q')).toEqual({ error: expect.stringContaining('queue name') });
      expect(await refusal(NS, 'q'.repeat(256))).toMatchObject({ error: expect.any(String) });
    },
  );

  it('shares one call among requests that come together', async () => {
    const { queue, path } = await fresh();
    await put(queue);
    const calls = async () => {
      const stats = (await redis.admin.info('commandstats')) ?? '';
      return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
    };
    // The first one loads the script.
    await get(`${path}/size`);
    const before = await calls();
    const wire = await Wire.to(served.api);
    wire.write(...upTo(50).map(() => request(`GET ${path}/size`, ['Host: localhost'])));
    for (const _ of upTo(50)) expect((await wire.answer()).json).toMatchObject({ size: 1 });
    expect((await calls()) - before).toBeLessThan(25);
  });
});

describe('GET /api/:ns/:queue/job/:id', () => {
  it.each([1, 3])('shows a job that is not due yet, as it is stored (%i partitions)', async (partitions) => {
    const { name, queue, path } = await fresh(partitions);
    const id = await put(queue, {
      payload: { n: 1 },
      in: '1h',
      ttl: 10_000,
      deliveries: 3,
      attributes: { trace: 'é' },
    });
    const { status, headers, json } = await get(`${path}/job/${id}`);
    expect(status).toBe(200);
    expect(headers.get('content-type')).toBe('application/json; charset=utf-8');
    const data = Buffer.from('{"n":1}').toString('base64');
    const known = { namespace: NS, queue: name, job_id: id, data, remain_tries: 3, attributes: { trace: 'é' } };
    // Its time to live begins when it is due.
    expect(json).toEqual({ ...known, ttl: nearly(3_610), elapsed_ms: expect.any(Number) });
  });

  it('tells the time to live in seconds, and 0 if it has none', async () => {
    const { queue, path } = await fresh();
    const ids = [await put(queue, { ttl: 1_000_000 }), await put(queue)];
    expect((await get(`${path}/job/${ids[0]}`)).json.ttl).toEqual(nearly(1_000));
    expect((await get(`${path}/job/${ids[1]}`)).json.ttl).toBe(0);
  });

  it('tells how long ago it was published, and how many deliveries are left', async () => {
    const { queue, path } = await fresh();
    const id = await put(queue, { id: 'a', deliveries: 3, created: Date.now() - 5_000 });
    await take(queue);
    const { json } = await get(`${path}/job/${id}`);
    expect(json.remain_tries).toBe(2);
    expect(json.elapsed_ms).toBeGreaterThanOrEqual(5_000);
    expect(json.elapsed_ms).toBeLessThan(65_000);
    expect(Number.isInteger(json.elapsed_ms)).toBe(true);
  });

  it('counts the tries of its queue where it has no limit of its own', async () => {
    const { queue, path } = await fresh();
    const id = await put(queue);
    expect((await get(`${path}/job/${id}`)).json.remain_tries).toBe(5);
    await new Operator(connection).configure(queue.name, { tries: 2 });
    expect((await get(`${path}/job/${id}`)).json.remain_tries).toBe(2);
  });

  it('shows a dead letter, for ever and without tries', async () => {
    const { queue, path } = await fresh();
    const id = await put(queue, { deliveries: 1, ttl: 60_000 });
    await take(queue, 20);
    await until(async () => (await get(`${path}/deadletter/size`)).json.size === 1);
    await timePasses(queue.name, 3_600_000, redis.admin);
    expect((await get(`${path}/job/${id}`)).json).toMatchObject({ job_id: id, ttl: 0, remain_tries: 0 });
  });

  it('does not find a job of another queue, or one that was done', async () => {
    const { queue, path } = await fresh();
    const other = await fresh();
    const id = await put(queue);
    expect(await get(`${other.path}/job/${id}`)).toMatchObject(NO_JOB);
    await queue.ack([await take(queue)]);
    expect(await get(`${path}/job/${id}`)).toMatchObject(NO_JOB);
  });

  it('does not find a job that has expired, though it is still stored', async () => {
    const { queue, path } = await fresh();
    const id = await put(queue, { ttl: 20 });
    await until(async () => (await get(`${path}/job/${id}`)).status === 404);
    expect(await redis.admin.zcard(key(queue.name, 'pending'))).toBe(1);
  });

  it('does not find a job that has expired by the time to live of its queue', async () => {
    const { queue, path } = await fresh();
    await new Operator(connection).configure(queue.name, { ttl: 20 });
    const id = await put(queue);
    await until(async () => (await get(`${path}/job/${id}`)).status === 404);
    expect(await get(`${path}/peek`)).toMatchObject(EMPTY);
  });
});

describe('GET /api/:ns/:queue/peek', () => {
  it.each([1, 3])('shows the job that is due first, and does not take it (%i partitions)', async (partitions) => {
    const { queue, path } = await fresh(partitions);
    const now = Date.now();
    await queue.enqueue(upTo(9).map((n) => ({ payload: n, id: `j${n}`, at: now - 1_000 * n })));
    for (const _ of upTo(2)) expect((await get(`${path}/peek`)).json).toMatchObject({ job_id: 'j8', data: 'OA==' });
    expect((await take(queue)).id).toBe('j8');
    expect((await get(`${path}/peek`)).json).toMatchObject({ job_id: 'j7' });
  });

  it('never shows a job that is not due', async () => {
    const { queue, path } = await fresh();
    await put(queue, { in: '1h' });
    expect(await get(`${path}/peek`)).toMatchObject(EMPTY);
  });

  it('shows a job again as soon as its lease has expired', async () => {
    const { queue, path } = await fresh();
    const id = await put(queue, { deliveries: 2 });
    await take(queue, 50);
    await until(async () => (await get(`${path}/peek`)).status === 200);
    expect((await get(`${path}/peek`)).json).toMatchObject({ job_id: id, remain_tries: 1 });
  });

  it.each([1, 3])('passes over 5,000 jobs that have expired (%i partitions)', async (partitions) => {
    const { queue, path } = await fresh(partitions);
    const at = Date.now() - 60_000;
    await queue.enqueue(upTo(5_000).map((i) => ({ payload: i, at, ttl: 1_000 })));
    expect(await get(`${path}/peek`)).toMatchObject(EMPTY);
    const id = await put(queue, { at: at + 100 });
    expect(await get(`${path}/peek`)).toMatchObject({ status: 200, json: { job_id: id } });
  });

  describe('says so if there are too many to pass over', () => {
    /** What a peek answers that passes over at most so many jobs, or bytes. */
    async function peekOver(most: { jobs: number; bytes: number }, params: ApiCall['params']): Promise<unknown> {
      const stopping = new AbortController();
      const shared = { prefix: 'delayq', figures: new Figures(), memory: new Memory(0), signal: stopping.signal };
      const pool = new Pool('default', { to: parseUrl(redis.url), names: undefined }, shared);
      afterwards(() => pool.close());
      let answer: unknown;
      const exchange = {
        isGone: false,
        answer: (status: number, body: string) => {
          answer = { status, json: JSON.parse(body) };
        },
      };
      const defaults = { tries: 1, ttl: 0 };
      await peek({ exchange: exchange as unknown as Exchange, params, pool, defaults }, most).catch((refusal) => {
        answer = { status: refusal.status, json: refusal.body };
      });
      return answer;
    }

    it.each([
      ['jobs', { jobs: 100, bytes: 1_000_000 }, 1],
      ['bytes', { jobs: 1_000_000, bytes: 100_000 }, 1_000],
    ])('%s', async (_, most, length) => {
      const { name, queue } = await fresh();
      const at = Date.now() - 60_000;
      const payload = 'x'.repeat(length);
      const expired = (count: number) => upTo(count).map((i) => ({ payload, at: at + i, ttl: 1_000 }));
      await queue.enqueue(expired(90));
      const last = await put(queue);
      const params = { ns: NS, queue: name };
      expect(await peekOver(most, params)).toMatchObject({ status: 200, json: { job_id: last } });
      await queue.enqueue(expired(160));
      expect(await peekOver(most, params)).toMatchObject({
        status: 503,
        json: { error: 'too many expired jobs are first: consume drops them' },
      });
      // As it says, who consumes drops them.
      let id: string | undefined;
      while (id === undefined) id = (await queue.drain({ limit: 100 })).jobs[0]?.id;
      expect(id).toBe(last);
    });
  });
});

describe('DELETE /api/:ns/:queue', () => {
  it.each([1, 3])('removes what is due, and nothing else (%i partitions)', async (partitions) => {
    const { queue, path } = await fresh(partitions);
    await queue.enqueue(upTo(12).map((payload) => ({ payload, deliveries: 1 })));
    const later = await put(queue, { in: '1h' });
    const held = await take(queue);
    await queue.nack([await take(queue)], { mode: 'dead' });
    expect(await call('DELETE', path)).toMatchObject({ status: 204, text: '' });
    const { pending, active, dead } = await queue.counts();
    expect({ pending, active, dead }).toEqual({ pending: 1, active: 1, dead: 1 });
    expect((await get(`${path}/job/${later}`)).status).toBe(200);
    expect(await queue.ack([held])).toEqual(['held']);
  });

  it('does not create a queue', async () => {
    const { queue, path } = await fresh();
    expect((await call('DELETE', path)).status).toBe(204);
    expect(await redis.admin.exists(key(queue.name, 'stats'))).toBe(0);
  });

  it.skipIf(onCluster)('removes many jobs in slices, and stops if its client goes away', async () => {
    const { queue, path } = await fresh();
    const proxy = await during(FaultyProxy.start((redis as Server).socket));
    const own = await during(serveHere(proxy.url));
    const total = 4_000;
    await queue.enqueue(upTo(total).map((payload) => ({ payload })));
    const left = async () => (await queue.counts()).pending;
    // Redis knows the script from now on.
    expect((await own.call('DELETE', `${path}other`)).status).toBe(204);
    const wire = await Wire.to(own.api);
    proxy.fault = { word: scriptHash('purge'), kind: 'pass', times: 1, after: 2, before: () => wire.reset() };
    wire.write(request(`DELETE ${path}`, ['Host: localhost']));
    await until(async () => proxy.struck === 1 && (await figure(own, 'running_requests')) === 1);
    // What is under way when it goes is done, and nothing after that.
    const before = await left();
    expect(before).toBeLessThan(total);
    expect(before).toBeGreaterThan(0);
    expect((await own.call('GET', `${path}/size`)).json).toMatchObject({ size: before });
    expect((await call('DELETE', path)).status).toBe(204);
    expect(await left()).toBe(0);
  });
});

describe('POST /api/:ns/:queue/job/:id/nack', () => {
  it.each([1, 3])('gives a job back after its delay, with its error (%i partitions)', async (partitions) => {
    const { queue, path } = await fresh(partitions);
    await put(queue);
    const { id, receipt } = await take(queue);
    const url = `${path}/job/${id}/nack?delay=1500ms&error=no+such+order`;
    const answer = await post(url, { 'X-Receipt': receipt });
    expect(answer).toMatchObject({ status: 200, json: { job_id: id, state: 'pending', delay_ms: 1_500 } });
    const [job] = await new Inspector(connection).show(queue.name, [id]);
    expect(job).toMatchObject({ state: 'pending', failures: 1, error: 'no such order' });
  });

  it('counts a delivery: the last one makes a dead letter', async () => {
    const { queue, path } = await fresh();
    await put(queue, { deliveries: 2 });
    for (const state of ['pending', 'dead']) {
      const { id, receipt } = await take(queue);
      const { json } = await post(`${path}/job/${id}/nack?delay=0&receipt=${receipt}`);
      expect(json).toEqual({ job_id: id, state, delay_ms: 0 });
    }
    expect((await get(`${path}/deadletter/size`)).json.size).toBe(1);
  });

  it('counts nothing with mode=release, and buries with mode=dead', async () => {
    const { queue, path } = await fresh();
    await put(queue);
    const first = await take(queue);
    await post(`${path}/job/${first.id}/nack?mode=release`, { 'X-Receipt': first.receipt });
    const second = await take(queue);
    expect(second.attempt).toBe(1);
    const { json } = await post(`${path}/job/${second.id}/nack?mode=dead&receipt=${second.receipt}`);
    expect(json).toMatchObject({ state: 'dead' });
  });

  it('refuses what it cannot read, and changes nothing', async () => {
    const { queue, path } = await fresh();
    await put(queue);
    const { id, receipt } = await take(queue);
    const refusalOf = async (query: string) => (await post(`${path}/job/${id}/nack${query}`)).json.error;
    expect(await refusalOf('')).toBe('receipt is missing');
    expect(await refusalOf(`?receipt=${receipt}&mode=drop`)).toBe('invalid mode');
    expect(await refusalOf(`?receipt=${receipt}&delay=-1`)).toBe('invalid delay');
    expect(await queue.ack([{ id, receipt }])).toEqual(['held']);
  });
});

describe.each(['nack', 'renew'])('a job whose lease is lost: POST …/%s', (act) => {
  it.each([1, 3])('is refused with 409 (%i partitions)', async (partitions) => {
    const { queue, path } = await fresh(partitions);
    await put(queue);
    const { id, receipt } = await take(queue, 20);
    await until(async () => (await get(`${path}/size`)).json.size === 1);
    const lost = { status: 409, json: { error: 'the lease is no longer held', lease: 'lost' } };
    expect(await post(`${path}/job/${id}/${act}?receipt=${receipt}`)).toMatchObject(lost);
    expect(await post(`${path}/job/${id}/${act}?receipt=made-up.2`)).toMatchObject(lost);
    expect((await get(`${path}/size`)).json.size).toBe(1);
  });

  it('is not found if it is gone', async () => {
    const { queue, path } = await fresh();
    await put(queue);
    const { id, receipt } = await take(queue);
    await new Operator(connection).cancel(queue.name, [id]);
    expect(await post(`${path}/job/${id}/${act}?receipt=${receipt}`)).toMatchObject(NO_JOB);
  });
});

describe('POST /api/:ns/:queue/job/:id/renew', () => {
  it('holds a job for longer', async () => {
    const { queue, path } = await fresh();
    await put(queue);
    const { id, receipt } = await take(queue, 300);
    const answer = await post(`${path}/job/${id}/renew?ttr=90`, { 'X-Receipt': receipt });
    expect(answer).toMatchObject({ status: 200, json: { job_id: id, state: 'active', ttr_ms: 90_000 } });
    const [job] = await new Inspector(connection).show(queue.name, [id]);
    expect(Number(job?.lease?.ends) - Date.now()).toBeGreaterThan(30_000);
  });

  it('holds it for 120 s if no ttr is given, and refuses one that it cannot read', async () => {
    const { queue, path } = await fresh();
    await put(queue);
    const { id, receipt } = await take(queue);
    expect((await post(`${path}/job/${id}/renew?receipt=${receipt}`)).json.ttr_ms).toBe(120_000);
    expect((await post(`${path}/job/${id}/renew?receipt=${receipt}&ttr=1001ms`)).json.ttr_ms).toBe(1_001);
    expect(await post(`${path}/job/${id}/renew?receipt=${receipt}&ttr=x`)).toMatchObject({
      status: 400,
      json: { error: 'invalid ttr' },
    });
  });
});

describe('POST /api/:ns/:queue/job/:id/cancel', () => {
  it.each([1, 3])('removes a job in any state, and says in which it was (%i partitions)', async (partitions) => {
    const { queue, path } = await fresh(partitions);
    await put(queue, { id: 'd' });
    await queue.nack([await take(queue)], { mode: 'dead' });
    await put(queue, { id: 'a' });
    const held = await take(queue);
    await put(queue, { id: 'p', in: '1h' });
    for (const [id, was] of [
      ['d', 'dead'],
      ['a', 'active'],
      ['p', 'pending'],
    ]) {
      const json = { job_id: id, state: 'cancelled', was };
      expect(await post(`${path}/job/${id}/cancel`)).toMatchObject({ status: 200, json });
      expect(await post(`${path}/job/${id}/cancel`)).toMatchObject(NO_JOB);
    }
    expect(await queue.ack([held])).toEqual(['superseded']);
  });

  it('does not find a job that has expired', async () => {
    const { queue, path } = await fresh();
    const id = await put(queue, { ttl: 20 });
    await until(async () => (await get(`${path}/job/${id}`)).status === 404);
    expect(await post(`${path}/job/${id}/cancel`)).toMatchObject(NO_JOB);
    expect(await post(`${path}/job/${id}/reschedule?delay=5`)).toMatchObject(NO_JOB);
  });
});

describe('POST /api/:ns/:queue/job/:id/reschedule', () => {
  it.each([1, 3])('gives a job a new due time (%i partitions)', async (partitions) => {
    const { queue, path } = await fresh(partitions);
    const id = await put(queue, { in: '1h' });
    const { status, json } = await post(`${path}/job/${id}/reschedule?delay=90`);
    expect({ status, json }).toMatchObject({ status: 200, json: { job_id: id, state: 'pending' } });
    expect(Math.abs(json.due - Date.now() - 90_000)).toBeLessThan(30_000);
    const [job] = await new Inspector(connection).show(queue.name, [id]);
    expect(job?.due).toBe(json.due);
  });

  it('takes a time, in ms since 1970 or as text with its zone', async () => {
    const { queue, path } = await fresh();
    const id = await put(queue);
    const dueAt = async (at: string) => (await post(`${path}/job/${id}/reschedule?at=${at}`)).json;
    const due = Date.UTC(2030, 0, 2, 3, 4, 5);
    expect(await dueAt(String(due))).toMatchObject({ due });
    expect(await dueAt('2030-01-02T03:04:05Z')).toMatchObject({ due });
    expect(await dueAt('2030-01-02T05:04:05%2B02:00')).toMatchObject({ due });
    for (const at of ['', 'tomorrow', '2030-01-02', '2030-01-02T03:04:05', '2030-13-02T03:04:05Z', '1893553445']) {
      expect(await dueAt(at), at).toEqual({ error: 'invalid at' });
    }
    expect((await post(`${path}/job/${id}/reschedule`)).json).toEqual({ error: 'either delay or at is needed' });
    expect((await post(`${path}/job/${id}/reschedule?at=${due}&delay=1`)).status).toBe(400);
  });

  it('refuses a job that is not pending with 409, and says why', async () => {
    const { queue, path } = await fresh();
    const id = await put(queue, { deliveries: 1 });
    const reschedule = () => post(`${path}/job/${id}/reschedule?delay=5`);
    const held = await take(queue);
    expect(await reschedule()).toMatchObject({ status: 409, json: { error: 'job is active' } });
    await queue.nack([held]);
    expect(await reschedule()).toMatchObject({ status: 409, json: { error: 'job is dead' } });
    expect(await post(`${path}/job/nope/reschedule?delay=5`)).toMatchObject(NO_JOB);
  });
});
