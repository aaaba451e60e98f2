import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Connection, parseUrl } from '../../../src/internal.js';
import { type NewToken, Tokens } from '../../../src/serve/access/tokens.js';
import { afterwards, during } from '../../support/afterwards.js';
import { upTo } from '../../support/jobs.js';
import { ManualClock } from '../../support/manual-clock.js';
import { ownRedis, type Served, type ServedHere, serve, serveHere } from '../../support/serve.js';
import { Server } from '../../support/server.js';
import { until } from '../../support/until.js';
import { request as bytesOf, Wire } from '../../support/wire.js';

/** A Redis of a test's own, and its tokens. */
async function alone() {
  const redis = await during(Server.start());
  const connection = new Connection(redis.url);
  afterwards(() => connection.close());
  return { redis, tokens: new Tokens(connection, 'delayq') };
}

/** Publishes with exactly these headers: fetch sends its own Host. */
async function putWith(url: string, headers: Record<string, string>) {
  const sent = request(`${url}/api/shop/q`, { method: 'PUT', headers }).end(JOB.body);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  return { status: response.statusCode, json: JSON.parse((await response.toArray()).join('')) as unknown };
}

const JOB = { body: '{"secret":"payload"}' };
const withToken = (token: string) => ({ ...JOB, headers: { 'X-Token': token } });

describe('without any token', () => {
  let served: Served;
  beforeAll(async () => {
    const { url } = await ownRedis();
    served = await serve(url, ['--allow-host', 'Queues.internal', '--pool', `second=${url}`]);
  });

  const put = (headers: Record<string, string>) => putWith(served.api, headers);

  it.each([
    ['as curl does', {}],
    ['with a token that it has from elsewhere', { 'X-Token': 'old' }],
    ['with another pool', { 'X-Token': 'second:' }],
    ['by the name localhost', { Host: 'localhost:7777' }],
    ['by an address of IPv6', { Host: '[::1]:7777' }],
    ['by a name of --allow-host', { Host: 'queues.internal' }],
    ['from its own page', { Host: 'localhost:1', Origin: 'http://localhost:1', 'Sec-Fetch-Site': 'same-origin' }],
  ])('a program on this machine may ask %s', async (_, headers) => {
    expect(await put(headers as Record<string, string>)).toMatchObject({ status: 201 });
  });

  it.each([
    ['a Host that another site has led here', { Host: 'evil.example' }],
    ['a Host that begins like an address', { Host: '127.0.0.1.evil.example:7777' }],
    ['a page of another site', { Origin: 'http://evil.example' }],
    ['a page of another port', { Host: 'localhost:1', Origin: 'http://localhost:2' }],
    ['a page of nowhere', { Origin: 'null' }],
    ['a browser that says so', { 'Sec-Fetch-Site': 'cross-site' }],
    ['a browser that says nearly so', { 'Sec-Fetch-Site': 'same-site' }],
    ['a proxy', { 'X-Forwarded-For': '127.0.0.1' }],
    ['another proxy', { Forwarded: 'for=127.0.0.1' }],
    ['a proxy that tells only its own name', { Via: '1.1 cache' }],
    ['a bare nginx with X-Real-IP', { 'X-Real-IP': '127.0.0.1' }],
  ])('a request from %s is refused, and stores nothing', async (_, headers) => {
    const sizes = async () => (await served.call('GET', '/api/shop/q/peek')).status;
    const before = await sizes();
    expect(await put(headers as Record<string, string>)).toMatchObject({
      status: 403,
      json: { error: expect.any(String) },
    });
    expect(await sizes()).toBe(before);
  });

  it('nobody hides what a proxy says behind thousands of other headers', async () => {
    for (const url of [`${served.api}/api/shop/q/size`, `${served.admin}/info`]) {
      const wire = await Wire.to(url);
      const many = 'a:b\r\n'.repeat(3_000);
      wire.write(
        `GET ${new URL(url).pathname} HTTP/1.1\r\nHost: localhost\r\n${many}X-Forwarded-For: 10.0.0.1\r\n\r\n`,
      );
      const { status, json } = await wire.answer();
      expect([status, json], url).toEqual([expect.toBeOneOf([401, 403]), { error: expect.any(String) }]);
    }
  });

  it.each([
    ['a proxy has passed it on', { 'X-Forwarded-For': '10.0.0.1' }, /proxy.*delayq token add/],
    ['its Host is not allowed', { Host: 'queues.example' }, /^host not allowed: .*--allow-host.*delayq token add/],
  ])('a refused request is told that %s, and what to do', async (_, headers, error) => {
    expect((await put(headers as Record<string, string>)).json).toEqual({ error: expect.stringMatching(error) });
  });

  it('a client that has gone before it was looked at is gone, not refused', async () => {
    const { hostname, port } = new URL(served.api);
    const figures = async () => (await served.call('GET', `${served.admin}/metrics`)).text;
    const countOf = (text: string, status: string) =>
      Number(
        new RegExp(`requests_total\\{method="PUT",route="/api/:ns/:queue",status="${status}"\\} (.*)`).exec(
          text,
        )?.[1] ?? 0,
      );
    const before = await figures();
    for (let i = 0; i < 20; i += 1) {
      const socket = connect(Number(port), hostname);
      await once(socket, 'connect');
      socket.write('PUT /api/shop/q HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}', () =>
        socket.resetAndDestroy(),
      );
      await once(socket, 'close');
    }
    await until(async () => countOf(await figures(), 'gone') > countOf(before, 'gone'));
    expect(countOf(await figures(), '403')).toBe(countOf(before, '403'));
  });

  it('an unknown pool is not found', async () => {
    expect(await put({ 'X-Token': 'third:x' })).toMatchObject({ status: 404, json: { error: 'pool not found' } });
  });
});

describe('with tokens', () => {
  let redis: Awaited<ReturnType<typeof ownRedis>>;
  let connection: Connection;
  let tokens: Tokens;
  let served: ServedHere;
  const clock = new ManualClock();
  const made: string[] = [];
  const add = async (ns: string, given?: NewToken) => {
    const token = await tokens.add(ns, given);
    made.push(token);
    return token;
  };

  beforeAll(async () => {
    redis = await ownRedis();
    connection = new Connection(redis.url);
    tokens = new Tokens(connection, 'delayq');
    await add('first');
    const pool = { to: parseUrl(redis.url), names: undefined };
    served = await serveHere(redis.url, {
      pools: new Map([
        ['default', pool],
        ['second', pool],
      ]),
      trustProxy: true,
      clock,
    });
  });
  afterAll(() => connection.close());

  const put = (path: string, init: { headers?: Record<string, string> } = {}) =>
    served.call('PUT', path, { ...JOB, ...init });

  it('a request without one is 401', async () => {
    const refusal = { status: 401, json: { error: 'token not found' } };
    expect(await put('/api/shop/q')).toMatchObject(refusal);
    expect(await put('/api/shop/q?token=')).toMatchObject(refusal);
    expect(await put('/api/shop/q', { headers: { 'X-Token': '' } })).toMatchObject(refusal);
  });

  it('a token comes in X-Token, else in the query, with its pool or without', async () => {
    const token = await add('shop');
    expect(await put('/api/shop/q', withToken(token))).toMatchObject({ status: 201 });
    expect(await put(`/api/shop/q?token=${token}`)).toMatchObject({ status: 201 });
    expect(await put(`/api/shop/q?token=${token}`, { headers: { 'X-Token': '' } })).toMatchObject({ status: 201 });
    expect(await put('/api/shop/q', withToken(`default:${token}`))).toMatchObject({ status: 201 });
    expect(await put('/api/shop/q', withToken(`second:${token}`))).toMatchObject({ status: 201 });
    expect(await put('/api/shop/q', withToken(`third:${token}`))).toMatchObject({
      status: 404,
      json: { error: 'pool not found' },
    });
  });

  it.each([
    ['a', 'a0'],
    ['a0', 'a'],
    ['b', 'B'],
  ])('a token of %s does not open %s', async (own, other) => {
    const token = await add(own);
    expect(await put(`/api/${own}/q`, withToken(token))).toMatchObject({ status: 201 });
    const from = { ...withToken(token).headers, 'X-Forwarded-For': `10.1.${own}.${other}` };
    expect(await put(`/api/${other}/q`, { headers: from })).toMatchObject({
      status: 401,
      json: { error: 'invalid token' },
    });
    expect(await put(`/api/${other}/0q`, { headers: from })).toMatchObject({ status: 401 });
  });

  it.each([
    ['without a token', 'GET /api/keep/q', 401],
    ['with an invalid token', 'GET /api/keep/q?token=wrong', 401],
    ['with a token of another namespace', 'GET /api/keep/q?token=OTHER', 401],
    ['with an unknown pool', 'GET /api/keep/q?token=third:x', 404],
    ['for a route that is not there', 'GET /nothing', 404],
    ['with a path that is none', 'GET /api/%/q', 400],
    ['for health', 'GET /healthz', 200],
  ])('a request %s closes its connection, unless a token has let it in before', async (_, line, status) => {
    const [token, other] = [await add('keep'), await add('keep-not')];
    const publish = () => bytesOf(`PUT /api/keep/q?token=${token}`, ['Host: a', 'Content-Length: 2'], 'hi');
    const asked = bytesOf(line.replace('OTHER', other), ['Host: a', `X-Forwarded-For: 10.2.0.${line.length}`]);
    const wire = await Wire.to(served.api);
    wire.write(asked);
    const answer = await wire.answer();
    expect([answer.status, answer.headers.get('connection')]).toEqual([status, 'close']);
    await until(() => wire.hasEnded);

    const kept = await Wire.to(served.api);
    for (const [bytes, expected] of [
      [publish(), 201],
      [asked, status],
      [publish(), 201],
    ] as const) {
      const { status, headers } = await kept.ask(bytes);
      expect([status, headers.get('connection')]).toEqual([expected, 'keep-alive']);
    }
  });

  it('nothing behind a request that closes its connection is served', async () => {
    const token = await add('keep');
    const wire = await Wire.to(served.api);
    const line = `PUT /api/keep/behind?token=${token}`;
    wire.write(bytesOf('GET /healthz', ['Host: a']), bytesOf(line, ['Host: a', 'Content-Length: 2'], 'hi'));
    expect((await wire.answer()).headers.get('connection')).toBe('close');
    await until(() => wire.hasEnded || wire.wasReset);
    const size = await served.call('GET', `/api/keep/behind/size?token=${token}`);
    expect(size.json).toMatchObject({ size: 0 });
  });

  it('a body that comes after its refusal is read, so that its client sees why', async () => {
    const wire = await Wire.to(served.api);
    wire.write(bytesOf('PUT /api/keep/q', ['Host: a', 'Content-Length: 1000000']));
    wire.write(Buffer.alloc(1_000_000));
    expect(await wire.answer()).toMatchObject({ status: 401, json: { error: 'token not found' } });
    await until(() => wire.hasEnded);
    expect(wire.wasReset).toBe(false);
  });

  it('a token of * opens each namespace', async () => {
    const token = await add('*', { rights: ['publish'] });
    expect(await put('/api/any/q', withToken(token))).toMatchObject({ status: 201 });
    expect(await put('/api/other/q', withToken(token))).toMatchObject({ status: 201 });
  });

  it('a token allows what its rights say', async () => {
    const [publisher, consumer] = [await add('r', { rights: ['publish'] }), await add('r', { rights: ['consume'] })];
    const refusal = { status: 403, json: { error: 'the token does not allow this' } };
    expect(await put('/api/r/q', withToken(consumer))).toMatchObject(refusal);
    expect(await put('/api/r/q/bulk', withToken(consumer))).toMatchObject(refusal);
    expect(await put('/api/r/q', withToken(publisher))).toMatchObject({ status: 201 });
    const get = { headers: { 'X-Token': publisher } };
    expect(await served.call('GET', '/api/r/q', get)).toMatchObject(refusal);
    expect(await served.call('DELETE', '/api/r/q/job/x', get)).toMatchObject(refusal);
    expect(await served.call('GET', '/api/r/q', { headers: { 'X-Token': consumer } })).toMatchObject({ status: 200 });
  });

  it('a new token works within a second, though it was refused before', async () => {
    const token = `new-${'x'.repeat(20)}`;
    expect(await put('/api/later/q', withToken(token))).toMatchObject({ status: 401 });
    await add('later', { token });
    clock.pass(999);
    expect(await put('/api/later/q', withToken(token))).toMatchObject({ status: 401 });
    clock.pass(1);
    expect(await put('/api/later/q', withToken(token))).toMatchObject({ status: 201 });
  });

  it('a removed token is refused within 10 s, also by another server that has just used it', async () => {
    const other = await during(serveHere(redis.url, { clock }));
    const token = await add('gone');
    for (const { call } of [served, other])
      expect(await call('PUT', '/api/gone/q', withToken(token))).toMatchObject({ status: 201 });
    const found = await tokens.find('gone', token);
    if (!found) throw new Error('it was made');
    await tokens.remove(found);
    clock.pass(10_000);
    for (const { call } of [other, served])
      expect(await call('PUT', '/api/gone/q', withToken(token))).toMatchObject({ status: 401 });
  });

  it('a removed token that is used is refused sooner: after 5 s', async () => {
    const token = await add('soon');
    expect(await put('/api/soon/q', withToken(token))).toMatchObject({ status: 201 });
    const found = await tokens.find('soon', token);
    if (!found) throw new Error('it was made');
    await tokens.remove(found);
    clock.pass(4_999);
    expect(await put('/api/soon/q', withToken(token))).toMatchObject({ status: 201 });
    clock.pass(1);
    expect(await put('/api/soon/q', withToken(token))).toMatchObject({ status: 401 });
  });

  const from = (address: string, token: string) => ({
    headers: { 'X-Token': token, 'X-Forwarded-For': `1.1.1.1, ${address}` },
  });
  const fail = async (address: string, token: string) =>
    expect(await put('/api/guess/q', from(address, token))).toMatchObject({ status: 401 });

  it('an address has ten invalid tokens a minute; others, and tokens that are known, go on', async () => {
    const good = await add('guess');
    expect(await put('/api/guess/q', from('10.0.0.9', good))).toMatchObject({ status: 201 });
    for (let n = 0; n < 10; n++) await fail('10.0.0.9', `wrong${n}`);
    const blocked = await put('/api/guess/q', from('10.0.0.9', 'wrong'));
    expect(blocked).toMatchObject({ status: 429, json: { error: 'too many invalid tokens' } });
    expect(blocked.headers.get('retry-after')).toBe('60');
    expect(await put('/api/guess/q', from('10.0.0.9', good))).toMatchObject({ status: 201 });
    await fail('10.0.0.8', 'wrong');
  });

  it('a good token that this server has not met is accepted from an address with too many invalid ones', async () => {
    for (let n = 0; n < 10; n++) await fail('10.0.0.6', `wrong${n}`);
    expect(await put('/api/guess/q', from('10.0.0.6', 'wrong'))).toMatchObject({ status: 429 });
    expect(await put('/api/guess/q', from('10.0.0.6', await add('guess')))).toMatchObject({ status: 201 });
  });

  it('a token that was refused before it was made is accepted soon, and from such an address, too', async () => {
    const token = 'a-token-that-is-made-too-late';
    for (let n = 0; n < 10; n++) await fail('10.0.0.5', n === 0 ? token : `wrong${n}`);
    await add('guess', { token });
    clock.pass(1_000);
    expect(await put('/api/guess/q', from('10.0.0.5', token))).toMatchObject({ status: 201 });
  });

  it('an address that guesses on is looked at ten times a second, and a good token gets its turn', async () => {
    const looks = async () => Number(/cmdstat_hget:calls=(\d+)/.exec(await redis.admin.info('commandstats'))?.[1] ?? 0);
    for (let n = 0; n < 10; n++) await fail('10.0.0.4', `wrong${n}`);
    const good = await add('guess');
    for (const round of [1, 2]) {
      const before = await looks();
      const guesses = upTo(25).map((n) => put('/api/guess/q', from('10.0.0.4', `guess${round}.${n}`)));
      for (const answer of await Promise.all(guesses)) expect(answer).toMatchObject({ status: 429 });
      expect((await looks()) - before).toBe(10);
      expect(await put('/api/guess/q', from('10.0.0.4', good))).toMatchObject({ status: 429 });
      clock.pass(1_000);
    }
    expect(await put('/api/guess/q', from('10.0.0.4', good))).toMatchObject({ status: 201 });
  });

  it('a client that goes on with an invalid token is 429, and locks out nobody else of its address', async () => {
    for (let n = 0; n < 10; n++) await fail('10.0.0.7', 'wrong');
    expect(await put('/api/guess/q', from('10.0.0.7', 'wrong'))).toMatchObject({ status: 429 });
    expect(await put('/api/guess/q', from('10.0.0.7', await add('guess')))).toMatchObject({ status: 201 });
  });

  it('the addresses of one IPv6 network count as one', async () => {
    for (let n = 0; n < 10; n++) await fail(`2001:db8::${n}:1`, `wrong${n}`);
    expect(await put('/api/guess/q', from('2001:db8:0:0:ffff::1', 'wrong'))).toMatchObject({ status: 429 });
    await fail('2001:db8:0:1::1', 'wrong');
  });

  describe('that have limits', () => {
    const limits = { read: 2, write: 3, interval: 600 };
    const get = (path: string, token: string) => served.call('GET', path, { headers: { 'X-Token': token } });

    it('a request over the limit is 429, says when to come again, and not the token; other tokens go on', async () => {
      const [token, other] = [await add('lim', { limits }), await add('lim', { limits })];
      for (let n = 0; n < 3; n++) expect(await put('/api/lim/q', withToken(token))).toMatchObject({ status: 201 });
      const refused = await put('/api/lim/q', withToken(token));
      expect(refused).toMatchObject({ status: 429, json: { error: 'too many requests' } });
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(500);
      expect(refused.text).not.toContain(token);
      expect(await put('/api/lim/q', withToken(other))).toMatchObject({ status: 201 });
      expect(await put('/api/lim/q', withToken(await add('lim')))).toMatchObject({ status: 201 });
    });

    it('requests count over all servers, and only those that did something', async () => {
      const other = await during(serveHere(redis.url));
      const token = await add('two', { limits: { ...limits, read: 2 } });
      for (let n = 0; n < 5; n++) {
        expect(await put('/api/two/q?delay=x', withToken(token))).toMatchObject({ status: 400 });
        expect(await get('/api/two/q', token)).toMatchObject({ status: 404 });
      }
      // What is given back comes a moment after the answer.
      await until(async () => Number((await used(token)).write) === 0);
      for (const { call } of [served, other, served])
        expect(await call('PUT', '/api/two/q', withToken(token))).toMatchObject({ status: 201 });
      expect(await other.call('PUT', '/api/two/q', withToken(token))).toMatchObject({ status: 429 });
      await until(async () => Number((await used(token)).read) === 0);
      for (let n = 0; n < 2; n++) expect(await get('/api/two/q', token)).toMatchObject({ status: 200 });
      expect(await get('/api/two/q', token)).toMatchObject({ status: 429 });
    });

    const used = async (token: string) => {
      const found = await tokens.find('two', token);
      const [read, write] = (await connection.call(
        'HMGET',
        'delayq:http:used',
        `${found?.hash}:read`,
        `${found?.hash}:write`,
      )) as (Buffer | null)[];
      return { read: String(read).split(' ')[0], write: String(write).split(' ')[0] };
    };
  });

  it('no log, metric or list holds a token, a query or a payload', async () => {
    const all = [
      served.log,
      (await served.call('GET', `${served.admin}/metrics`)).text,
      (await served.call('GET', `${served.admin}/limits`)).text,
      (await served.call('GET', `${served.admin}/token/shop`)).text,
    ].join('\n');
    expect(all).toMatch(/PUT \/api\/:ns\/:queue 201 .*[0-9a-f]{12}/);
    expect(made.length).toBeGreaterThan(5);
    for (const word of [...made, 'wrong', 'secret', 'delay=', 'token=']) expect(all).not.toContain(word);
  });

  it('refused requests are said, but not each', async () => {
    const said = served.log.split('\n').filter((line) => /refused \d+ requests?:/.test(line));
    expect(said.length).toBeGreaterThan(0);
    expect(said.length).toBeLessThan(20);
  });
});

describe('the first token', () => {
  it('that is made elsewhere locks a running server within 10 s', async () => {
    const { redis, tokens } = await alone();
    const clock = new ManualClock();
    const served = await during(serveHere(redis.url, { clock }));
    expect(await served.call('PUT', '/api/shop/q', JOB)).toMatchObject({ status: 201 });
    const token = await tokens.add('shop');
    clock.pass(5_000);
    await until(async () => (await served.call('PUT', '/api/shop/q', JOB)).status === 401);
    expect(await served.call('PUT', '/api/shop/q', withToken(token))).toMatchObject({ status: 201 });
  });

  it('opens a server that others can reach, which let nobody in while Redis did not answer', async () => {
    const { redis, tokens } = await alone();
    await redis.end();
    const clock = new ManualClock();
    const place = { host: '0.0.0.0', port: 0 };
    const served = await during(serveHere(redis.url, { clock, listen: place, adminListen: place }));
    const get = async (listener: string, path: string, headers = {}) => {
      const { status } = await served.call('GET', `http://127.0.0.1:${new URL(listener).port}${path}`, { headers });
      return status;
    };
    expect(await get(served.api, '/api/shop/q/size')).toBe(503);
    await redis.run();
    await until(async () => {
      clock.pass(250);
      return (await get(served.api, '/api/shop/q/size')) === 401;
    });
    expect(await get(served.admin, '/info')).toBe(401);
    const headers = { 'X-Token': await tokens.add('*', { rights: ['consume', 'operate'] }) };
    expect(await get(served.api, '/api/shop/q/size', headers)).toBe(401);
    clock.pass(5_000);
    await until(async () => (await get(served.api, '/api/shop/q/size', headers)) === 200);
    expect(await get(served.admin, '/info', headers)).toBe(200);
  });
});

describe('while Redis does not answer', () => {
  it('requests are 503, with a known token too, and all is well when it is back', async () => {
    const { redis, tokens } = await alone();
    const token = await tokens.add('shop');
    const served = await during(serve(redis.url));
    expect(await served.call('PUT', '/api/shop/q', withToken(token))).toMatchObject({ status: 201 });
    await redis.end();
    const down = { status: 503, json: { error: expect.any(String) } };
    expect(await served.call('PUT', '/api/shop/q', withToken(token))).toMatchObject(down);
    const unknown = await served.call('PUT', '/api/shop/q', withToken('another-token-of-20-chars'));
    expect(unknown).toMatchObject(down);
    expect(unknown.headers.get('retry-after')).toBe('1');
    await redis.run();
    await tokens.add('shop', { token });
    await until(async () => (await served.call('PUT', '/api/shop/q', withToken(token))).status === 201);
    expect(served.running.stderr).not.toMatch(/bug/);
  });
});
