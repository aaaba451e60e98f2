import { beforeAll, describe, expect, it } from 'vitest';
import { idOf, jobOf } from '../../support/lmstfy.js';
import { freshName } from '../../support/redis.js';
import { ownRedis, type Served, serve } from '../../support/serve.js';
import { request, Wire } from '../../support/wire.js';

// The requests of lmstfy's Java client (OkHttp and Gson) and of its Rust client (reqwest).

let served: Served;

beforeAll(async () => {
  served = await serve((await ownRedis()).url);
});

async function javaClient() {
  const wire = await Wire.to(served.api);
  const namespace = freshName();
  const send = (method: string, path: string, body?: Buffer) => {
    const headers = [
      'X-Token: abc',
      ...(body ? ['Content-Type: text/binary', `Content-Length: ${body.length}`] : []),
      `Host: ${new URL(served.api).host}`,
      'Connection: Keep-Alive',
      'Accept-Encoding: gzip',
      'User-Agent: okhttp/3.10.0',
    ];
    return wire.ask(request(`${method} /api/${namespace}/${path}`, headers, body));
  };
  return { wire, send };
}

describe('the Java client', () => {
  it('publishes, consumes, peeks, counts and acks', async () => {
    const { wire, send } = await javaClient();
    const data = Buffer.from('héllo');
    const published = await send('PUT', 'q?delay=0&ttl=100&tries=2', data);
    expect(published.status).toBe(201);
    const id = idOf(published.json);
    expect(jobOf((await send('GET', 'q/peek')).json)).toMatchObject({ id, data });
    expect((await send('GET', 'q/size')).json).toMatchObject({ size: 1 });
    expect(jobOf((await send('GET', 'other,q?timeout=1&ttr=5')).json)).toMatchObject({ id, data, remainTries: 1 });
    expect((await send('DELETE', `q/job/${id}`)).status).toBe(204);
    expect((await send('GET', `q/job/${id}`)).status).toBe(404);
    expect((await send('GET', 'q/deadletter')).json).toMatchObject({ deadletter_size: 0, deadletter_head: '' });
    expect((await send('DELETE', 'q/deadletter?limit=1')).status).toBe(204);
    expect(wire.hasEnded).toBe(false);
  });

  it('finds JSON in every refusal: an empty body would be a NullPointerException', async () => {
    for (const [method, path, body] of [
      ['PUT', 'q?delay=x&ttl=1&tries=1', Buffer.from('x')],
      ['PUT', 'q?delay=2&ttl=1&tries=1', Buffer.from('x')],
      ['PUT', 'q?delay=0&ttl=0&tries=1', Buffer.alloc(2 * 1024 * 1024)],
      ['GET', 'q?timeout=-1&ttr=5', undefined],
      ['GET', 'q/job/none', undefined],
    ] as const) {
      const { send } = await javaClient();
      expect((await send(method, path, body)).json, path).toMatchObject({ error: expect.stringMatching(/./) });
    }
  });
});

describe('the Rust client', () => {
  it('publishes, republishes and acks with header names in lower case', async () => {
    const wire = await Wire.to(served.api);
    const namespace = freshName();
    const send = (method: string, path: string, body?: string) => {
      const { host } = new URL(served.api);
      const length = body === undefined ? [] : [`content-length: ${body.length}`];
      const headers = ['x-token: abc', 'accept: */*', `host: ${host}`, ...length];
      return wire.ask(request(`${method} /api/${namespace}/${path}`, headers, body));
    };
    const first = await send('PUT', 'q?ttl=100&tries=3&delay=0', 'first');
    const second = await send('PUT', `q/job/${idOf(first.json)}?ttl=100&tries=3&delay=0`, 'second');
    expect([first.status, second.status]).toEqual([201, 201]);
    expect(jobOf((await send('GET', 'q/peek')).json)).toMatchObject({ id: idOf(second.json) });
    expect((await send('DELETE', `q/job/${idOf(second.json)}`)).status).toBe(204);
    expect((await send('GET', 'q/peek')).status).toBe(404);
  });
});
