import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Connection, parseUrl } from '../../../src/internal.js';
import { hashOf, Tokens } from '../../../src/serve/access/tokens.js';
import { afterwards, during } from '../../support/afterwards.js';
import { sh } from '../../support/cli.js';
import { ManualClock } from '../../support/manual-clock.js';
import { ownRedis, type Served, serve, serveHere } from '../../support/serve.js';
import { Server } from '../../support/server.js';
import { until } from '../../support/until.js';

let served: Served;
let connection: Connection;
let tokens: Tokens;
let second: Server;

beforeAll(async () => {
  const redis = await ownRedis();
  second = await Server.start();
  served = await serve(redis.url, ['--pool', `second=${second.url}`]);
  connection = new Connection(redis.url);
  tokens = new Tokens(connection, 'delayq');
});
afterAll(async () => {
  connection.close();
  await second.stop();
});

const admin = (method: string, path: string, init: Parameters<Served['call']>[2] = {}) =>
  served.call(method, `${served.admin}${path}`, init);
const tokenOf = (json: unknown) => (json as { token: string }).token;
let namespaces = 0;
const fresh = () => `ns${namespaces++}`;
const make = async (ns: string) => tokenOf((await admin('POST', `/token/${ns}?description=x`)).json);
const put = (ns: string, token: string) =>
  served.call('PUT', `/api/${ns}/q`, { body: 'x', headers: { 'X-Token': token } });

describe('/token/:ns', () => {
  it('POST makes a token that works at once, from the query or a form', async () => {
    const ns = fresh();
    const answer = await admin('POST', `/token/${ns}?description=suite`);
    expect(answer).toMatchObject({ status: 201, json: { token: expect.stringMatching(/^[\w-]{43}$/) } });
    expect(await put(ns, tokenOf(answer.json))).toMatchObject({ status: 201 });
    const body = new URLSearchParams({ description: 'by form', token: `form-${'x'.repeat(20)}` });
    expect(await admin('POST', `/token/${ns}`, { body })).toMatchObject({
      status: 201,
      json: { token: body.get('token') },
    });
    expect(await put(ns, body.get('token') as string)).toMatchObject({ status: 201 });
  });

  it('POST takes rights, and the token that a client has already, once', async () => {
    const ns = fresh();
    const token = `from-lmstfy-${ns}`.padEnd(26, 'x');
    const path = `/token/${ns}?description=x&rights=publish&token=${token}`;
    expect(await admin('POST', path)).toMatchObject({ status: 201, json: { token } });
    expect(await admin('POST', path)).toMatchObject({ status: 400, json: { error: 'the token exists already' } });
    expect(await tokens.list(ns)).toMatchObject([{ rights: ['publish'] }]);
  });

  it.each([
    ['without a description', '/token/shop', 'invalid description'],
    ['with a short token', '/token/shop?description=x&token=short', 'the user token was too short'],
    [
      'with a namespace of other characters',
      '/token/a.b?description=x',
      'namespace name contains forbidden characters',
    ],
    ['for all namespaces', '/token/*?description=x', 'namespace name contains forbidden characters'],
    ['with a long namespace', `/token/${'n'.repeat(256)}?description=x`, 'the namespace name was too long'],
    ['with an unknown right', '/token/shop?description=x&rights=root', expect.any(String)],
  ])('POST %s is 400, and makes none', async (_, path, error) => {
    const before = await tokens.count();
    expect(await admin('POST', path)).toMatchObject({ status: 400, json: { error } });
    expect(await tokens.count()).toBe(before);
  });

  it('POST for another pool stores it there, and answers with the name of the pool before it', async () => {
    const ns = fresh();
    const token = tokenOf((await admin('POST', `/token/${ns}?description=x&pool=second`)).json);
    expect(token).toMatch(/^second:[\w-]{43}$/);
    expect(await put(ns, token)).toMatchObject({ status: 201 });
    expect(await put(ns, token.slice('second:'.length))).toMatchObject({ status: 401 });
    const own = `second:mine-${ns}-${'x'.repeat(20)}`;
    expect((await admin('POST', `/token/${ns}?description=y&token=${own}`)).json).toEqual({ token: own });
    expect((await admin('GET', `/token/${ns}?pool=second`)).json).toEqual({
      tokens: {
        [`second:${hashOf(token.slice(7)).slice(0, 12)}`]: 'x',
        [`second:${hashOf(own.slice(7)).slice(0, 12)}`]: 'y',
      },
    });
    expect((await admin('GET', `/token/${ns}`)).json).toEqual({ tokens: {} });
  });

  it('a token of one pool acts on that pool alone, for whatever namespaces it is', async () => {
    const ns = fresh();
    const there = new Connection(second.url);
    afterwards(() => there.close());
    const keys = new Tokens(there, 'delayq');
    const [own, all] = [await keys.add(ns, { rights: ['operate'] }), await keys.add('*', { rights: ['operate'] })];
    await tokens.add(ns, { limits: { read: 1, write: 1, interval: 1 } });
    afterwards(() => keys.list('*').then(([token]) => token && keys.remove(token)));
    await put(ns, await make(ns));
    const far = (token: string) => ({ headers: { 'X-Forwarded-For': '192.0.2.1', 'X-Token': `second:${token}` } });
    const before = await tokens.count();
    for (const token of [own, all]) {
      expect(await admin('POST', `/token/${ns}?description=x`, far(token))).toMatchObject({ status: 403 });
      expect(await admin('GET', `/token/${ns}`, far(token))).toMatchObject({ status: 403 });
      expect(await admin('POST', `/token/${ns}?description=x&pool=second`, far(token))).toMatchObject({ status: 201 });
    }
    expect(await tokens.count()).toBe(before);
    expect(await admin('GET', '/info', far(all))).toMatchObject({ status: 403 });
    expect(await admin('GET', '/info?pool=second', far(all))).toMatchObject({ status: 200 });
    expect((await admin('GET', '/limits', far(all))).text).not.toContain(ns);
    expect((await admin('GET', '/metrics', far(all))).text).not.toContain(`queue="${ns}.q"`);
    expect((await admin('GET', '/metrics')).text).toContain(`queue="${ns}.q"`);
  });

  it('GET lists descriptions by fingerprints, of this namespace alone', async () => {
    const [ns, other] = [fresh(), fresh()];
    const token = await make(ns);
    await make(other);
    const answer = await admin('GET', `/token/${ns}`);
    expect(answer).toMatchObject({ status: 200, json: { tokens: { [hashOf(token).slice(0, 12)]: 'x' } } });
    expect(answer.text).not.toContain(token);
  });

  it.each([
    ['its text', (token: string) => token],
    ['its fingerprint', (token: string) => hashOf(token).slice(0, 12)],
    ['its pool and text', (token: string) => `default:${token}`],
  ])('DELETE removes a token by %s, at once on this server', async (_, name) => {
    const [ns, other] = [fresh(), fresh()];
    const token = await make(ns);
    expect(await put(ns, token)).toMatchObject({ status: 201 });
    expect(await admin('DELETE', `/token/${other}/${name(token)}`)).toMatchObject({ status: 204 });
    expect(await put(ns, token)).toMatchObject({ status: 201 });
    for (let n = 0; n < 2; n++)
      expect(await admin('DELETE', `/token/${ns}/${name(token)}`)).toMatchObject({ status: 204, text: '' });
    expect(await put(ns, token)).toMatchObject({ status: 401 });
  });
});

describe('/token/:ns/:token/limit', () => {
  const limiter = { read: 5, write: 1, interval: 600 };
  const body = JSON.stringify(limiter);

  it('is set, shown, changed and removed, and counts at once', async () => {
    const ns = fresh();
    const token = await make(ns);
    const path = `/token/${ns}/${token}/limit`;
    expect(await admin('GET', path)).toMatchObject({ status: 404, text: 'null' });
    expect(await admin('POST', path, { body })).toMatchObject({ status: 201, json: { limiter } });
    expect(await admin('POST', path, { body })).toMatchObject({ status: 409, json: { error: expect.any(String) } });
    expect(await admin('GET', path)).toMatchObject({ status: 200, json: limiter });
    expect((await admin('GET', '/limits')).json).toContainEqual({
      namespace: ns,
      token: hashOf(token).slice(0, 12),
      limiter,
    });
    expect(await put(ns, token)).toMatchObject({ status: 201 });
    expect(await put(ns, token)).toMatchObject({ status: 429 });
    const more = { ...limiter, write: 2 };
    expect(await admin('PUT', path, { body: JSON.stringify(more) })).toMatchObject({
      status: 200,
      json: { limiter: more },
    });
    expect(await put(ns, token)).toMatchObject({ status: 201 });
    expect(await put(ns, token)).toMatchObject({ status: 429 });
    expect(await admin('DELETE', path)).toMatchObject({ status: 200, json: { msg: 'success' } });
    expect(await put(ns, token)).toMatchObject({ status: 201 });
    expect(await admin('GET', path)).toMatchObject({ status: 404 });
  });

  it.each([
    ['no JSON', 'x'],
    ['null', 'null'],
    ['two zeros', '{"read":0,"write":0,"interval":1}'],
    ['no interval', '{"read":1,"write":1}'],
    ['a text', '{"read":"1","write":1,"interval":1}'],
    ['a negative number', '{"read":-1,"write":1,"interval":1}'],
  ])('with %s is 400', async (_, bad) => {
    const ns = fresh();
    const path = `/token/${ns}/${await make(ns)}/limit`;
    for (const method of ['POST', 'PUT'])
      expect(await admin(method, path, { body: bad })).toMatchObject({
        status: 400,
        json: { error: expect.any(String) },
      });
    expect(await admin('GET', path)).toMatchObject({ status: 404 });
  });

  it('of a token that is not there is 404', async () => {
    const path = `/token/shop/${'x'.repeat(20)}/limit`;
    for (const method of ['POST', 'PUT']) expect(await admin(method, path, { body })).toMatchObject({ status: 404 });
    expect(await admin('DELETE', path)).toMatchObject({ status: 200 });
  });
});

describe('the pool of a request', () => {
  const LIMIT = { body: JSON.stringify({ read: 1, interval: 1 }) };

  it.each<[string, string, { body: string }?]>([
    ['POST', '/token/shop?description=x&pool=third'],
    ['POST', `/token/shop?description=x&token=third:${'x'.repeat(20)}`],
    ['GET', '/token/shop?pool=third'],
    ['DELETE', '/token/shop/123456789012?pool=third'],
    ['DELETE', '/token/shop/third:123456789012'],
    ['GET', '/token/shop/123456789012/limit?pool=third'],
    ['POST', '/token/shop/123456789012/limit?pool=third', LIMIT],
    ['PUT', '/token/shop/third:123456789012/limit', LIMIT],
    ['DELETE', '/token/shop/123456789012/limit?pool=third'],
    ['GET', '/limits?pool=third'],
    ['GET', '/info?pool=third'],
    ['GET', '/metrics?pool=third'],
  ])('if there is none of that name: 404 (%s %s)', async (method, path, init) => {
    expect(await admin(method, path, init)).toMatchObject({ status: 404, json: { error: 'pool not found' } });
  });

  it('is in the query, or before the token: limits and metrics are told of that one alone', async () => {
    const ns = fresh();
    for (const pool of ['default', 'second']) {
      const token = tokenOf((await admin('POST', `/token/${ns}?description=x&pool=${pool}`)).json);
      await put(ns, token);
      const [, text] = token.split(':');
      const path = `/token/${ns}/${text}/limit?pool=${pool}`;
      expect(await admin('POST', path, LIMIT)).toMatchObject({ status: 201 });
      expect(await admin('GET', path)).toMatchObject({ status: 200, json: { read: 1 } });
      expect(await admin('GET', `/token/${ns}/${pool}:${text}/limit?pool=third`)).toMatchObject({ status: 200 });
    }
    const limits = async (query: string) => {
      const all = (await admin('GET', `/limits${query}`)).json as { namespace: string; token: string }[];
      return all.filter(({ namespace }) => namespace === ns).map(({ token }) => token.includes(':'));
    };
    expect(await limits('?pool=default')).toEqual([false]);
    expect(await limits('?pool=second')).toEqual([true]);
    expect(await limits('')).toEqual([false, true]);
    const { text } = await admin('GET', '/metrics?pool=second');
    expect(text).toContain(`queue="${ns}.q",pool="second"`);
    expect(text).not.toContain(`queue="${ns}.q",pool="default"`);
  });
});

describe('the rest', () => {
  it('tells pools, the version, and the queues of namespaces', async () => {
    const ns = fresh();
    await put(ns, await make(ns));
    expect(await admin('GET', '/pools')).toMatchObject({ status: 200, json: ['default', 'second'] });
    expect(await admin('GET', '/pools/')).toMatchObject({ status: 200, json: ['default', 'second'] });
    expect(await admin('GET', '/version')).toMatchObject({ json: { version: expect.stringMatching(/^\d+\./) } });
    expect((await admin('GET', '/info')).json).toMatchObject({ [ns]: ['q'] });
    expect((await admin('GET', '/info?pool=second')).json).not.toHaveProperty(ns);
    expect(await admin('GET', '/debug/pprof/profile')).toMatchObject({ status: 404, json: { error: 'api not found' } });
  });

  it('refuses pages of other sites, and names that they may have led here, whatever they ask', async () => {
    for (const headers of [{ Origin: 'http://evil.example' }, { 'Sec-Fetch-Site': 'cross-site' }]) {
      expect(await admin('POST', '/token/shop?description=x', { headers })).toMatchObject({ status: 403 });
      expect(await admin('GET', '/metrics', { headers })).toMatchObject({ status: 403 });
    }
    expect(await admin('GET', '/info', { headers: { 'X-Forwarded-For': '10.0.0.1' } })).toMatchObject({ status: 401 });
    const { stdout } = await sh(`curl -s -o /dev/null -w '%{http_code}' -H 'Host: evil.example' ${served.admin}/info`);
    expect(stdout).toBe('401');
  });
});

describe('/metrics', () => {
  it('has the queues of all pools and what the server counts, as Prometheus reads it', async () => {
    const ns = fresh();
    const token = await make(ns);
    await put(ns, token);
    await put(ns, tokenOf((await admin('POST', `/token/${ns}?description=x&pool=second`)).json));
    await put(ns, 'wrong');
    const { text, headers } = await admin('GET', '/metrics');
    expect(headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/);
    for (const line of [
      `delayq_jobs{queue="${ns}.q",pool="default",state="pending"} 1`,
      `delayq_jobs{queue="${ns}.q",pool="second",state="pending"} 1`,
      'delayq_http_pool_up{pool="default"} 1',
      'delayq_http_running_requests 1',
      'delayq_http_waiting_requests 0',
      'delayq_http_released_jobs_total 0',
    ])
      expect(text.split('\n')).toContain(line);
    expect(text).toMatch(/^delayq_http_requests_total\{method="PUT",route="\/api\/:ns\/:queue",status="201"\} [1-9]/m);
    expect(text).toMatch(
      /^delayq_http_request_seconds_bucket\{method="PUT",route="\/api\/:ns\/:queue",le="\+Inf"\} [1-9]/m,
    );
    expect(text).toMatch(/^delayq_http_refused_requests_total\{reason="token"\} [1-9]/m);
    expect(text).toMatch(/^delayq_http_connections\{listener="api"\} \d/m);
    const families = [...text.matchAll(/^# TYPE (\S+) /gm)].map(([, name]) => name);
    expect(families).toEqual([...new Set(families)]);
    // All lines of a metric stand together.
    const order = text.split('\n').filter((line) => /^delayq_jobs\{/.test(line) || /^# TYPE/.test(line));
    expect(order.join('\n')).toMatch(/# TYPE delayq_jobs gauge\n(delayq_jobs\{.*\n)+# TYPE/);
    expect(text).not.toContain(token);
  });

  it('does not grow with the paths and methods that clients make up', async () => {
    for (let n = 0; n < 20; n++) await served.call('GET', `/nothing/${n}`);
    const { text } = await admin('GET', '/metrics');
    expect(text).not.toContain('/nothing');
    expect(text).toMatch(/^delayq_http_requests_total\{method="-",route="-",status="404"\} /m);
  });

  it('is told within 4 s while a Redis is frozen: of the other pools', async () => {
    const [good, frozen] = [await during(Server.start()), await during(Server.start())];
    const clock = new ManualClock();
    const places = { default: good.url, frozen: frozen.url };
    const pools = Object.entries(places).map(([name, url]) => [name, { to: parseUrl(url), names: undefined }] as const);
    const own = await during(serveHere(good.url, { pools: new Map(pools), clock }));
    for (const pool of ['default', 'frozen'])
      expect(await own.call('PUT', '/api/shop/q', { body: 'x', headers: { 'X-Token': `${pool}:` } })).toMatchObject({
        status: 201,
      });
    frozen.signal('SIGSTOP');
    afterwards(() => frozen.signal('SIGCONT'));
    let answer: Awaited<ReturnType<Served['call']>> | undefined;
    const asked = own.call('GET', `${own.admin}/metrics`).then((told) => {
      answer = told;
    });
    const others = async () => (await own.call('GET', `${own.admin}/metrics?pool=default`)).text;
    await until(async () => (await others()).includes('delayq_http_running_requests 2\n'));
    clock.pass(3_999);
    expect(await others()).toContain('delayq_queue_up{queue="shop.q",pool="default"} 1');
    expect(answer).toBeUndefined();
    clock.pass(1);
    await asked;
    expect(answer?.status).toBe(200);
    expect(answer?.text).toContain('delayq_queue_up{queue="shop.q",pool="default"} 1');
  });

  it('tells of a Redis that it is down within 5 s, and that it is up again', async () => {
    const redis = await during(Server.start());
    const clock = new ManualClock();
    const own = await during(serveHere(redis.url, { clock }));
    const isUp = async (up: 0 | 1) =>
      (await own.call('GET', `${own.admin}/metrics`)).text.includes(`delayq_http_pool_up{pool="default"} ${up}\n`);
    expect(await isUp(1)).toBe(true);
    await redis.end();
    clock.pass(5_000);
    await until(() => isUp(0));
    await redis.run();
    await until(() => {
      clock.pass(250);
      return isUp(1);
    });
  });
});
