import { beforeAll, describe, expect, it } from 'vitest';
import { idOf, jobOf } from '../../support/lmstfy.js';
import { freshName, timePasses } from '../../support/redis.js';
import { ownRedis, type Served, serve } from '../../support/serve.js';
import { request, Wire } from '../../support/wire.js';

// The requests of lmstfy's PHP client, as its one curl handle writes them.

let redis: Awaited<ReturnType<typeof ownRedis>>;
let served: Served;

beforeAll(async () => {
  redis = await ownRedis();
  served = await serve(redis.url);
});

/** One client. Once it has published, every request of its handle carries that body, whatever the method. */
async function newClient() {
  const wire = await Wire.to(served.api);
  const namespace = freshName();
  let last = '';
  const send = (method: string, path: string, data = '') => {
    if (data !== '') last = data;
    const form = [`Content-Length: ${Buffer.byteLength(last)}`, 'Content-Type: application/x-www-form-urlencoded'];
    const { host } = new URL(served.api);
    const headers = [`Host: ${host}`, 'Accept: */*', 'X-Token:abc', ...(last === '' ? [] : form)];
    return wire.ask(request(`${method} /api/${namespace}/${path}`, headers, last));
  };
  return {
    wire,
    send,
    pass: (queue: string, ms: number) => timePasses(`${namespace}.${queue}`, ms, redis.admin),
    async publish(queue: string, data: string) {
      const { status, json } = await send('PUT', `${queue}?ttl=0&tries=1&delay=0`, data);
      expect(status).toBe(201);
      return idOf(json);
    },
  };
}

describe('the PHP client', () => {
  it('publishes what it declares to be a form, byte for byte', async () => {
    const { send, publish } = await newClient();
    const id = await publish('q', 'orderId=42&note=a%20b+c');
    const { status, json } = await send('GET', 'q?ttr=120&timeout=0');
    expect(status).toBe(200);
    expect(jobOf(json)).toMatchObject({ id, data: Buffer.from('orderId=42&note=a%20b+c') });
    expect((await send('DELETE', `q/job/${id}`)).status).toBe(204);
  });

  it.each([10, 100_000, 1024 * 1024])('repeats its last body of %i bytes on every request after', async (length) => {
    const { wire, send, publish, pass } = await newClient();
    const id = await publish('q', 'x'.repeat(length));
    expect((await send('GET', 'q/size')).json).toMatchObject({ size: 1 });
    expect(jobOf((await send('GET', 'q/peek')).json)).toMatchObject({ id });
    expect(jobOf((await send('GET', `q/job/${id}`)).json).data).toHaveLength(length);
    expect(jobOf((await send('GET', 'q?ttr=1&timeout=3')).json)).toMatchObject({ id });
    await pass('q', 2_000);
    expect((await send('GET', 'q/deadletter')).json).toMatchObject({ deadletter_size: 1 });
    expect((await send('PUT', 'q/deadletter')).json).toMatchObject({ count: 1 });
    expect((await send('DELETE', `q/job/${id}`)).status).toBe(204);
    expect((await send('GET', 'q?ttr=120&timeout=0')).status).toBe(404);
    expect({ hasEnded: wire.hasEnded, wasReset: wire.wasReset }).toEqual({ hasEnded: false, wasReset: false });
  });

  it('publishes an empty job without a body and without a length', async () => {
    const { send } = await newClient();
    const { status, json } = await send('PUT', 'q?ttl=0&tries=1&delay=0');
    expect(status).toBe(201);
    expect(jobOf((await send('GET', 'q?ttr=120&timeout=0')).json)).toMatchObject({
      id: idOf(json),
      data: Buffer.alloc(0),
    });
  });

  it('takes from several queues with a query that is the word Array', async () => {
    const { send, publish } = await newClient();
    await publish('q1', 'one');
    await publish('q2', 'two');
    expect(jobOf((await send('GET', 'q2,q1?Array')).json)).toMatchObject({ queue: 'q2', data: Buffer.from('two') });
  });

  it('respawns one dead letter: its query is never sent', async () => {
    const { send, publish, pass } = await newClient();
    for (const data of ['one', 'two']) await publish('q', data);
    for (let n = 0; n < 2; n++) await send('GET', 'q?ttr=1&timeout=0');
    await pass('q', 2_000);
    expect(await send('PUT', 'q/deadletter')).toMatchObject({ status: 200, json: { count: 1 } });
  });

  it('sends a large body only after 100 Continue', async () => {
    const { wire, send } = await newClient();
    const body = Buffer.alloc(1024 * 1024, 'x');
    const { host } = new URL(served.api);
    const headers = [
      `Host: ${host}`,
      'Accept: */*',
      'X-Token:abc',
      `Content-Length: ${body.length}`,
      'Content-Type: application/x-www-form-urlencoded',
      'Expect: 100-continue',
    ];
    const namespace = freshName();
    expect(await wire.ask(request(`PUT /api/${namespace}/q?ttl=0&tries=1&delay=0`, headers))).toMatchObject({
      status: 100,
    });
    expect(await wire.ask(body)).toMatchObject({ status: 201 });
    expect((await send('GET', 'q/size')).status).toBe(200);
  });

  it('is told 413 in place of 100 Continue where its body is too large', async () => {
    const { wire } = await newClient();
    const { host } = new URL(served.api);
    const headers = [`Host: ${host}`, 'X-Token:abc', 'Content-Length: 1048577', 'Expect: 100-continue'];
    const answer = await wire.ask(request(`PUT /api/${freshName()}/q?ttl=0&tries=1&delay=0`, headers));
    expect(answer).toMatchObject({ status: 413, json: { error: 'body too large' } });
  });
});
