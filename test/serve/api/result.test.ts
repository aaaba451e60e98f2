import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { Connection, Operator, Queue } from '../../../src/index.js';
import { shaOf } from '../../../src/store/script.js';
import { afterwards, during } from '../../support/afterwards.js';
import { FaultyProxy } from '../../support/proxy.js';
import { onCluster, timePasses } from '../../support/redis.js';
import { figure, ownRedis, serve } from '../../support/serve.js';
import { Server } from '../../support/server.js';
import { until } from '../../support/until.js';
import { request, Wire } from '../../support/wire.js';

/* How jobs have ended, in queues that keep jobs that are done. */

const redis = await ownRedis();
const served = await serve(redis.url);
const connection = new Connection(redis.url);
const operator = new Operator(connection);
const NOT_FOUND = { status: 404, json: { error: 'job not found' } };
let last = 0;

/** A queue of its own for a test, which keeps jobs that are done. */
async function place(partitions = 1) {
  const name = `q${++last}`;
  const queue = new Queue(connection, `ns.${name}`);
  await operator.configure(queue.name, { keepDone: 86_400_000 });
  if (partitions > 1) for await (const _ of operator.partition(queue.name, partitions));
  return { path: `/api/ns/${name}`, queue };
}

const put = (path: string, query = '') => served.call('PUT', `${path}${query}`, { body: 'x' });
const resultOf = (path: string, id: string, query = '') => served.call('GET', `${path}/job/${id}/result${query}`);
const remove = (path: string, id: string) => served.call('DELETE', `${path}/job/${id}`);
const ack = (path: string, body: unknown) => served.call('POST', `${path}/ack`, { body: JSON.stringify(body) });

/** Takes a job. Returns its id and receipt. */
async function take(path: string, query = ''): Promise<{ id: string; receipt: string }> {
  const { headers, json } = await served.call('GET', `${path}?timeout=30&ttr=60${query}`);
  return { id: (json as { job_id: string }).job_id, receipt: headers.get('x-receipt') ?? '' };
}

const untilWaiting = (count: number, server = served) =>
  until(async () => (await figure(server, 'waiting_requests')) === count);

/** Asks for the end of a job, and waits until the server waits for it. */
async function waiting(path: string, id: string, server = served): Promise<Wire> {
  const wire = await Wire.to(server.api);
  wire.write(request(`GET ${path}/job/${id}/result?timeout=600`, ['Host: localhost']));
  await untilWaiting(1, server);
  return wire;
}

it('tells how a job has ended, and its state before that', async () => {
  const { path } = await place();
  expect(await resultOf(path, 'a')).toMatchObject(NOT_FOUND);
  await put(path, '?id=a');
  expect(await resultOf(path, 'a')).toMatchObject({ status: 200, json: { job_id: 'a', state: 'pending' } });
  const began = Date.now();
  const held = await take(path);
  expect(await resultOf(path, 'a')).toMatchObject({ status: 200, json: { job_id: 'a', state: 'active' } });
  expect(await ack(path, [{ ...held, result: '{"total":"4 €"}' }])).toMatchObject({ json: { acked: 1 } });
  const { status, json } = await resultOf(path, 'a');
  expect(status).toBe(200);
  expect(json).toEqual({
    ...{ job_id: 'a', state: 'done', attempts: 1, result: '{"total":"4 €"}' },
    ...{ done: expect.any(Number), took_ms: expect.any(Number) },
  });
  const { done, took_ms: took } = json as { done: number; took_ms: number };
  expect(Math.abs(done - began)).toBeLessThan(60_000);
  expect(took).toBeLessThan(60_000);
});

it.each(['without a receipt', 'with a receipt'])('a DELETE %s has no result', async (how) => {
  const { path } = await place();
  await put(path, '?id=a');
  const client = await waiting(path, 'a');
  const { receipt } = await take(path);
  const headers: Record<string, string> = how === 'with a receipt' ? { 'X-Receipt': receipt } : {};
  expect((await served.call('DELETE', `${path}/job/a`, { headers })).status).toBe(204);
  expect(await client.answer()).toMatchObject({ status: 200, json: { job_id: 'a', state: 'done', result: null } });
});

it.each([1, 2])('a wait ends when the job is done, in a queue of %d partitions', async (partitions) => {
  const { path } = await place(partitions);
  const ids = ['a', 'b', 'c', 'd', 'e', 'f'];
  for (const id of ids) await put(path, `?id=${id}`);
  const clients = ids.map((id) => resultOf(path, id, '?timeout=60'));
  await untilWaiting(ids.length);
  for (const _ of ids) {
    const held = await take(path);
    await ack(path, [{ ...held, result: `of ${held.id}` }]);
  }
  for (const [i, id] of ids.entries())
    expect(await clients[i]).toMatchObject({ status: 200, json: { job_id: id, state: 'done', result: `of ${id}` } });
  expect(await resultOf(path, 'none', '?timeout=60')).toMatchObject(NOT_FOUND);
});

it('a wait goes on while its queue grows', async () => {
  const { path, queue } = await place();
  await put(path, '?id=a&delay=1h');
  await put(path, '?id=b&delay=1h');
  const clients = ['a', 'b'].map((id) => resultOf(path, id, '?timeout=600'));
  await untilWaiting(2);
  for await (const _ of operator.partition(queue.name, 2));
  await operator.cancel(queue.name, ['a']);
  expect(await clients[0]).toMatchObject(NOT_FOUND);
  await served.call('POST', `${path}/job/b/reschedule?delay=0`);
  await ack(path, [{ ...(await take(path)), result: 'late' }]);
  expect(await clients[1]).toMatchObject({ json: { state: 'done', result: 'late' } });
});

it('a wait ends when the job dies, with the reason', async () => {
  const { path } = await place();
  await put(path, '?id=a&tries=3');
  const client = await waiting(path, 'a');
  const { receipt } = await take(path);
  await served.call('POST', `${path}/job/a/nack?mode=dead&error=no%20such%20order&receipt=${receipt}`);
  const json = { job_id: 'a', state: 'dead', reason: 'refused', error: 'no such order', attempts: 1 };
  expect(await client.answer()).toMatchObject({ status: 200, json });
  expect((await resultOf(path, 'a')).json).toEqual(json);
});

it('a wait ends when the last ttr is over, though nobody takes jobs', async () => {
  const { path, queue } = await place();
  await put(path, '?id=a&tries=1');
  await take(path);
  const client = await waiting(path, 'a');
  await timePasses(queue.name, 61_000, redis.admin);
  expect((await client.answer()).json).toMatchObject({ state: 'dead', reason: 'lost', error: null, attempts: 1 });
});

it('a job that was requeued is waited for again', async () => {
  const { path, queue } = await place();
  await put(path, '?id=a&tries=3');
  const { receipt } = await take(path);
  await served.call('POST', `${path}/job/a/nack?mode=dead&receipt=${receipt}`);
  await operator.requeue(queue.name, ['a']);
  const client = await waiting(path, 'a');
  await ack(path, [{ ...(await take(path)), result: 'at last' }]);
  expect((await client.answer()).json).toMatchObject({ state: 'done', result: 'at last' });
});

it('a job that failed is waited for until its last try', async () => {
  const { path } = await place();
  await put(path, '?id=a&tries=2');
  const client = await waiting(path, 'a');
  const { receipt } = await take(path);
  await served.call('POST', `${path}/job/a/nack?delay=1ms&receipt=${receipt}`);
  await ack(path, [{ ...(await take(path)), result: 'ok' }]);
  expect((await client.answer()).json).toMatchObject({ state: 'done', attempts: 2, result: 'ok' });
});

it('a wait for a job that is cancelled ends with 404', async () => {
  const { path } = await place();
  await put(path, '?id=a');
  const client = await waiting(path, 'a');
  await served.call('POST', `${path}/job/a/cancel`);
  expect(await client.answer()).toMatchObject(NOT_FOUND);
});

it('a job that is cancelled has not the result of an earlier one', async () => {
  const { path } = await place();
  await put(path, '?id=a');
  await ack(path, [{ ...(await take(path)), result: 'of the first' }]);
  await put(path, '?id=a');
  const client = await waiting(path, 'a');
  await served.call('POST', `${path}/job/a/cancel`);
  expect(await client.answer()).toMatchObject(NOT_FOUND);
});

it('a wait for a job that expires ends with 404 when a consumer meets it', async () => {
  const { path, queue } = await place();
  await put(path, '?id=a&ttl=60');
  const client = await waiting(path, 'a');
  await timePasses(queue.name, 61_000, redis.admin);
  expect((await served.call('GET', path)).status).toBe(404);
  expect(await client.answer()).toMatchObject(NOT_FOUND);
});

it('a job that has not ended in time is answered with its state', async () => {
  const { path, queue } = await place();
  await put(path, '?id=a');
  await operator.pause(queue.name);
  expect((await resultOf(path, 'a', '?timeout=50ms')).json).toEqual({ job_id: 'a', state: 'pending' });
});

it('what is done is forgotten after keep-done', async () => {
  const { path, queue } = await place();
  await put(path, '?id=a');
  await take(path);
  await remove(path, 'a');
  expect((await resultOf(path, 'a')).json).toMatchObject({ state: 'done' });
  await operator.configure(queue.name, { keepDone: 1 });
  await until(async () => (await resultOf(path, 'a')).status === 404);
});

it('a queue that keeps nothing says so, also one that nobody knows', async () => {
  const { path, queue } = await place();
  const error = (name: string) => `ns.${name} keeps no jobs that are done: keep-done is not set for this queue`;
  expect(await resultOf('/api/ns/none', 'a')).toMatchObject({ status: 404, json: { error: error('none') } });
  await put(path, '?id=a');
  const client = await waiting(path, 'a');
  await operator.configure(queue.name, { keepDone: null });
  expect(await client.answer()).toMatchObject({ status: 404, json: { error: error(queue.name.slice(3)) } });
  expect((await resultOf(path, 'a', '?timeout=60')).status).toBe(404);
});

it.each(['timeout=-1', 'timeout=1.5', 'timeout=soon', 'timeout=', 'time=3'])('%s is refused', async (query) => {
  const { path } = await place();
  await put(path, '?id=a');
  expect(await resultOf(path, 'a', `?${query}`)).toMatchObject({ status: 400, json: { error: expect.any(String) } });
});

it('an id may have slashes, percent-encoded', async () => {
  const { path } = await place();
  await put(path, '?id=a/result');
  expect((await resultOf(path, 'a%2Fresult')).json).toEqual({ job_id: 'a/result', state: 'pending' });
  expect((await served.call('GET', `${path}/job/a%2Fresult`)).json).toMatchObject({ job_id: 'a/result' });
});

describe('an ack of many', () => {
  it('keeps at most 4 KiB of a result, in whole characters', async () => {
    const { path } = await place();
    await put(path, '?id=a');
    await ack(path, [{ ...(await take(path)), result: '€'.repeat(2_000) }]);
    expect((await resultOf(path, 'a')).json).toMatchObject({ result: '€'.repeat(1_365) });
  });

  it('has results only of those that have one', async () => {
    const { path } = await place();
    for (const id of ['a', 'b', 'c']) await put(path, `?id=${id}`);
    const [a, b, c] = [await take(path), await take(path), await take(path)];
    await ack(path, [a, { ...b, result: 'of b', tookMs: 'none' }, c.id, { id: 'd', receipt: 'none', result: 'x' }]);
    const results = ['a', 'b', 'c'].map(async (id) => (await resultOf(path, id)).json);
    expect(await Promise.all(results)).toMatchObject([{ result: null }, { result: 'of b' }, { result: null }]);
    expect((await resultOf(path, 'd')).status).toBe(404);
  });

  it.each([7, null, {}, ['x'], false])('with the result %j is refused, and nothing is acked', async (result) => {
    const { path, queue } = await place();
    for (const id of ['a', 'b', 'c']) await put(path, `?id=${id}`);
    const [a, b, c] = [await take(path), await take(path), await take(path)];
    expect((await ack(path, [a.id, { ...b, result: 'x' }, { ...c, result }])).status).toBe(400);
    expect((await queue.counts()).active).toBe(3);
  });

  it('takes results of queues that keep none', async () => {
    const { path, queue } = await place();
    await operator.configure(queue.name, { keepDone: null });
    await put(path);
    expect((await ack(path, [{ ...(await take(path)), result: 'x' }])).json).toMatchObject({ acked: 1 });
  });
});

/** How many calls of scripts the Redis has run. */
const calls = async () => Number(/evalsha:calls=(\d+)/.exec(await (redis as Server).admin.info('commandstats'))?.[1]);

it('many requests that wait share few calls', async () => {
  const { path, queue } = await place();
  const ids = Array.from({ length: 500 }, (_, i) => `job${i}`);
  await queue.enqueue(ids.map((id) => ({ id, payload: 1, in: '1h' })));
  const clients = [...ids, ...ids].map((id) => resultOf(path, id, '?timeout=600'));
  await untilWaiting(1_000);
  if (!onCluster) {
    const [before, began] = [await calls(), performance.now()];
    await until(async () => (await calls()) >= before + 10);
    // 2 calls for 500 jobs, at most every 50 ms. A slow machine makes it fewer, never more.
    const rounds = 1 + (performance.now() - began) / 50;
    expect((await calls()) - before).toBeLessThanOrEqual(2 * rounds + (performance.now() - began) / 500);
  }
  await operator.cancel(queue.name, ids);
  expect((await Promise.all(clients)).every(({ status }) => status === 404)).toBe(true);
});

it('a client that goes away is waited for no longer', async () => {
  const { path } = await place();
  await put(path, '?id=a');
  const client = await waiting(path, 'a');
  client.close();
  await untilWaiting(0);
});

it('a client that shuts its side is answered at once, and so are its later requests', async () => {
  const { path } = await place();
  await put(path, '?id=a');
  const { hostname, port } = new URL(served.api);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  await once(socket, 'connect');
  const get = (query: string) => request(`GET ${path}/job/a/result${query}`, ['Host: localhost']);
  socket.write(get('?timeout=600'));
  await untilWaiting(1);
  socket.end(get(''));
  const bodies = (await text(socket)).match(/\{.*?\}/g);
  expect(bodies).toEqual(Array(2).fill('{"job_id":"a","state":"pending"}'));
});

it('a server that stops answers waits at once, with the states of their jobs', async () => {
  const { path } = await place();
  await put(path, '?id=a');
  const server = await during(serve(redis.url));
  const client = await waiting(path, 'a', server);
  const ended = server.stop();
  const { status, headers, json } = await client.answer();
  expect({ status, json }).toEqual({ status: 200, json: { job_id: 'a', state: 'pending' } });
  expect(headers.get('connection')).toBe('close');
  expect(await ended).toMatchObject({ code: 0 });
});

it('a wait fails soon when Redis is gone', async () => {
  const own = await during(Server.start());
  const server = await during(serve(own.url));
  const owner = new Connection(own.url);
  afterwards(() => owner.close());
  await new Operator(owner).configure('ns.q', { keepDone: 86_400_000 });
  expect((await server.call('PUT', '/api/ns/q?id=a', { body: 'x' })).status).toBe(201);
  const client = await waiting('/api/ns/q', 'a', server);
  await own.end('SIGKILL');
  expect(await client.answer()).toMatchObject({ status: 503, json: { error: expect.stringContaining('redis') } });
});

it.skipIf(onCluster)('a wait goes on when calls fail for a moment', async () => {
  const { path } = await place();
  await put(path, '?id=a');
  const proxy = await during(FaultyProxy.start((redis as Server).socket));
  const server = await during(serve(proxy.url));
  const client = await waiting(path, 'a', server);
  proxy.fault = { word: shaOf('inspect/finished'), kind: 'cut', times: 1 };
  await until(() => proxy.struck === 1);
  await ack(path, [{ ...(await take(path)), result: 'x' }]);
  expect(await client.answer()).toMatchObject({ status: 200, json: { state: 'done', result: 'x' } });
});
