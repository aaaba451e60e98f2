import { beforeAll, describe, expect, it } from 'vitest';
import { delayq } from '../../support/cli.js';
import { idOf, jobOf } from '../../support/lmstfy.js';
import { freshName, timePasses } from '../../support/redis.js';
import { ownRedis, type Served, serve } from '../../support/serve.js';
import { until } from '../../support/until.js';

// Tokens, limits and the admin listener, as lmstfy's clients and tools use them.

let redis: Awaited<ReturnType<typeof ownRedis>>;
let served: Served;
/** A second server at the same Redis, with a pool. */
let other: Served;

beforeAll(async () => {
  redis = await ownRedis();
  served = await serve(redis.url);
  // From now on every request needs a token.
  await newToken(freshName());
  other = await serve(redis.url, ['--pool', `spare=${redis.url}`]);
});

const call: Served['call'] = (...args) => served.call(...args);
const admin: Served['call'] = (method, path, init) => served.call(method, `${served.admin}${path}`, init);

/** Makes a token as lmstfy's own suite does: by POST without a login. */
async function newToken(namespace: string, query = 'description=client'): Promise<string> {
  const { status, json } = await admin('POST', `/token/${namespace}?${query}`);
  expect({ status, json }).toEqual({ status: 201, json: { token: expect.stringMatching(/^.{20,}$/) } });
  return (json as { token: string }).token;
}

const withToken = (token: string, body?: string) => ({ headers: { 'X-Token': token }, ...(body && { body }) });
const refused = (status: number, error: unknown = expect.stringMatching(/./)) => ({ status, json: { error } });

const ROUTES = [
  ['PUT', ''],
  ['PUT', '/bulk'],
  ['PUT', '/job/1'],
  ['GET', ''],
  ['DELETE', '/job/1'],
  ['GET', '/peek'],
  ['GET', '/job/1'],
  ['GET', '/size'],
  ['GET', '/deadletter/size'],
  ['DELETE', ''],
  ['GET', '/deadletter'],
  ['PUT', '/deadletter'],
  ['DELETE', '/deadletter'],
] as const;

describe('a token', () => {
  it('made by POST opens every route that lmstfy has, in its namespace', async () => {
    const namespace = freshName();
    const token = await newToken(namespace);
    for (const [method, rest] of ROUTES) {
      const body = method === 'PUT' ? '["x"]' : undefined;
      const { status } = await call(method, `/api/${namespace}/q${rest}`, withToken(token, body));
      // 404: nothing is there.
      expect([200, 201, 204, 404], `${method} ${rest}: ${status}`).toContain(status);
    }
  });

  it.each(ROUTES)('is needed for %s /api/:ns/:queue%s', async (method, rest) => {
    const path = `/api/${freshName()}/q${rest}`;
    const body = method === 'PUT' ? '["x"]' : null;
    expect(await call(method, path, { body })).toMatchObject(refused(401, 'token not found'));
  });

  it('that nobody made is refused', async () => {
    const headers = { 'X-Token': 'nobody-has-ever-made-this-token' };
    const path = `/api/${freshName()}/q`;
    expect(await other.call('PUT', path, { body: 'x', headers })).toMatchObject(refused(401, 'invalid token'));
  });

  it('may be in the query, and the header wins', async () => {
    const namespace = freshName();
    const token = await newToken(namespace);
    const path = `/api/${namespace}/q`;
    const init = { body: 'x' };
    expect(await call('PUT', `${path}?token=${token}`, init)).toMatchObject({ status: 201 });
    expect(await call('PUT', `${path}?token=${token}`, withToken('', 'x'))).toMatchObject({ status: 201 });
    expect(await call('PUT', `${path}?token=wrong`, withToken(token, 'x'))).toMatchObject({ status: 201 });
    expect(await call('PUT', `${path}?token=${token}`, withToken('wrong', 'x'))).toMatchObject(refused(401));
  });

  it('of a namespace does not open one whose name only begins like it', async () => {
    const namespace = freshName();
    const token = await newToken(namespace);
    expect(await call('GET', `/api/${namespace}/q`, withToken(token))).toMatchObject({ status: 404 });
    // `0` and the token: what the two names would be made of if they were joined.
    for (const text of [token, `0${token}`])
      expect(await call('GET', `/api/${namespace}0/q`, withToken(text))).toMatchObject(refused(401, 'invalid token'));
    const shorter = `/api/${namespace.slice(0, -1)}/q`;
    const joined = withToken(`${namespace.slice(-1)}${token}`);
    expect(await call('GET', shorter, joined)).toMatchObject(refused(401, 'invalid token'));
  });

  it('may be brought along: that of lmstfy goes on working', async () => {
    const namespace = freshName();
    const mine = '01CG17XY4HA7CQCMHSS8GTQ';
    expect(await newToken(namespace, `description=old&token=${mine}`)).toBe(mine);
    expect(await call('PUT', `/api/${namespace}/q`, withToken(mine, 'x'))).toMatchObject({ status: 201 });
  });

  it('of a pool has its name before a colon; an unknown pool is 404', async () => {
    const namespace = freshName();
    const { json } = await other.call('POST', `${other.admin}/token/${namespace}?description=x&pool=spare`);
    const { token } = json as { token: string };
    expect(token).toMatch(/^spare:.{20,}$/);
    const path = `/api/${namespace}/q`;
    expect(await other.call('PUT', path, withToken(token, 'x'))).toMatchObject({ status: 201 });
    const elsewhere = token.replace('spare', 'nowhere');
    expect(await other.call('PUT', path, withToken(elsewhere, 'x'))).toMatchObject(refused(404, 'pool not found'));
    const ofDefault = `default:${await newToken(namespace)}`;
    expect(await other.call('PUT', path, withToken(ofDefault, 'x'))).toMatchObject({ status: 201 });
  });

  it('that was removed is refused at once by the server that removed it', async () => {
    const namespace = freshName();
    const token = await newToken(namespace);
    const path = `/api/${namespace}/q`;
    expect(await call('GET', path, withToken(token))).toMatchObject({ status: 404 });
    expect(await admin('DELETE', `/token/${namespace}/${token}`)).toMatchObject({ status: 204, text: '' });
    expect(await call('GET', path, withToken(token))).toMatchObject(refused(401));
    expect(await admin('DELETE', `/token/${namespace}/${token}`)).toMatchObject({ status: 204 });
  });

  it('made on the command line opens what its rights say', async () => {
    const namespace = freshName();
    const { stdout } = await delayq(['token', 'add', namespace, '--rights', 'publish'], {
      env: { DELAYQ_REDIS_URL: redis.url },
    });
    const token = stdout.trim();
    const path = `/api/${namespace}/q`;
    await until(async () => (await call('PUT', path, withToken(token, 'x'))).status === 201);
    expect(await call('GET', path, withToken(token))).toMatchObject(refused(403));
  });

  it('is never in the log', async () => {
    const namespace = freshName();
    const loud = await serve(redis.url, ['--log', 'all']);
    const token = await newToken(namespace);
    await loud.call('PUT', `/api/${namespace}/q?token=${token}&delay=x`, { body: 'secret payload' });
    await loud.call('GET', `/api/${namespace}/q`, withToken(token));
    await loud.call('DELETE', `${loud.admin}/token/${namespace}/${token}`);
    const { code, stderr } = await loud.stop();
    expect(code).toBe(0);
    expect(stderr).toMatch(/PUT \/api\/:ns\/:queue 400 /);
    for (const secret of [token, 'secret payload', namespace]) expect(stderr).not.toContain(secret);
  });
});

describe('a limit of a token', () => {
  const limit = (namespace: string, token: string, method: string, body?: string) =>
    admin(method, `/token/${namespace}/${token}/limit`, body === undefined ? {} : { body });

  it('is added, shown, changed and removed', async () => {
    const namespace = freshName();
    const token = await newToken(namespace);
    expect(await limit(namespace, token, 'GET')).toMatchObject({ status: 404, text: 'null' });
    const first = { read: 0, write: 3, interval: 600 };
    expect(await limit(namespace, token, 'POST', JSON.stringify(first))).toMatchObject({
      status: 201,
      json: { limiter: first },
    });
    const second = { read: 5, write: 6, interval: 60 };
    expect(await limit(namespace, token, 'PUT', JSON.stringify(second))).toMatchObject({
      status: 200,
      json: { limiter: second },
    });
    expect(await limit(namespace, token, 'GET')).toMatchObject({ status: 200, json: second });
    expect((await admin('GET', '/limits')).text).toContain(namespace);
    expect(await limit(namespace, token, 'DELETE')).toMatchObject({ status: 200, json: { msg: 'success' } });
    expect(await limit(namespace, token, 'GET')).toMatchObject({ status: 404 });
  });

  it.each(['{"read":0,"write":0,"interval":1}', '{"read":1,"write":1,"interval":0}', '{"read":1', '[]', ''])(
    'that is %s is refused',
    async (body) => {
      const namespace = freshName();
      expect(await limit(namespace, await newToken(namespace), 'POST', body)).toMatchObject(refused(400));
    },
  );

  it('is for that token alone, and counts only what succeeded', async () => {
    const namespace = freshName();
    const [limited, free] = [await newToken(namespace), await newToken(namespace)];
    await limit(namespace, limited, 'POST', '{"read":2,"write":3,"interval":600}');
    const path = `/api/${namespace}/q`;
    // Refused, so not counted.
    for (let n = 0; n < 5; n++) await call('PUT', `${path}?delay=x`, withToken(limited, 'x'));
    for (let n = 0; n < 5; n++) await call('GET', path, withToken(limited));
    const publish = async () => (await call('PUT', path, withToken(limited, 'x'))).status;
    await until(async () => (await publish()) === 429);
    expect((await call('GET', `${path}/size`, withToken(free))).json).toMatchObject({ size: 3 });
    const over = await call('PUT', path, withToken(limited, 'x'));
    expect(over).toMatchObject(refused(429));
    expect(over.text).not.toContain(limited);
    expect(await call('PUT', path, withToken(free, 'x'))).toMatchObject({ status: 201 });
    const taken = [];
    for (let n = 0; n < 3; n++) taken.push((await call('GET', path, withToken(limited))).status);
    expect(taken).toEqual([200, 200, 429]);
    expect(await call('GET', path, withToken(free))).toMatchObject({ status: 200 });
  });
});

describe('the admin listener', () => {
  it('lists tokens by what they are for, and shows none of them', async () => {
    const namespace = freshName();
    const token = await newToken(namespace, 'description=order%20service');
    const { json, text } = await admin('GET', `/token/${namespace}`);
    expect(Object.values((json as { tokens: object }).tokens)).toEqual(['order service']);
    expect(text).not.toContain(token);
  });

  it('takes the parameters of a token from a form too', async () => {
    const body = new URLSearchParams({ description: 'from a form', token: 'a-token-of-my-own-choice' });
    expect(await admin('POST', `/token/${freshName()}`, { body })).toMatchObject({
      status: 201,
      json: { token: 'a-token-of-my-own-choice' },
    });
  });

  it.each([
    ['', 'invalid description'],
    ['description=', 'invalid description'],
    ['description=x&token=short', 'the user token was too short'],
  ])('refuses a token with %j', async (query, error) => {
    expect(await admin('POST', `/token/${freshName()}?${query}`)).toMatchObject(refused(400, error));
  });

  it('refuses a token for what cannot be a namespace', async () => {
    for (const namespace of ['a.b', 'n'.repeat(256), 'a%20b'])
      expect(await admin('POST', `/token/${namespace}?description=x`)).toMatchObject(refused(400));
  });

  it('tells of queues, pools, its version and metrics', async () => {
    const namespace = freshName();
    const token = await newToken(namespace);
    await call('PUT', `/api/${namespace}/orders`, withToken(token, 'x'));
    expect((await admin('GET', '/info')).json).toMatchObject({ [namespace]: ['orders'] });
    expect((await other.call('GET', `${other.admin}/pools`)).json).toEqual(['default', 'spare']);
    expect((await admin('GET', '/version')).json).toMatchObject({ version: expect.stringMatching(/^\d/) });
    const { status, text } = await admin('GET', '/metrics');
    expect(status).toBe(200);
    expect(text).toMatch(/^delayq_/m);
    expect(text).not.toContain(token);
  });

  it('has no route of the API', async () => {
    expect(await admin('GET', '/api/ns/q')).toMatchObject(refused(404));
  });
});

describe('a delivery with a receipt', () => {
  const leased = async (query: string) => {
    const namespace = freshName();
    const token = await newToken(namespace);
    const path = `/api/${namespace}/q`;
    const send = (method: string, rest: string, headers = {}, body?: string) =>
      call(method, `${path}${rest}`, { headers: { 'X-Token': token, ...headers }, ...(body && { body }) });
    const id = idOf((await send('PUT', '?tries=3', {}, 'x')).json);
    const { headers } = await send('GET', query);
    const receipt = { 'X-Receipt': headers.get('x-receipt') as string };
    const pass = (ms: number) => timePasses(`${namespace}.q`, ms, redis.admin);
    return { send, id, receipt, pass };
  };

  it('is acked only while its lease is held', async () => {
    const { send, id, receipt, pass } = await leased('?ttr=5');
    await pass(6_000);
    expect(jobOf((await send('GET', '?ttr=60')).json)).toMatchObject({ id });
    expect(await send('DELETE', `/job/${id}`, receipt)).toMatchObject({ status: 409 });
    expect(await send('GET', `/job/${id}`)).toMatchObject({ status: 200 });
    expect(await send('DELETE', `/job/${id}`)).toMatchObject({ status: 204 });
    expect(await send('GET', `/job/${id}`)).toMatchObject({ status: 404 });
  });

  it('is given back by nack, and held longer by renew', async () => {
    const { send, id, receipt, pass } = await leased('?ttr=5');
    expect(await send('POST', `/job/${id}/renew?ttr=60`, receipt)).toMatchObject({ status: 200 });
    await pass(6_000);
    expect(await send('GET', '')).toMatchObject({ status: 404 });
    expect(await send('POST', `/job/${id}/nack?delay=0`, receipt)).toMatchObject({ status: 200 });
    expect(jobOf((await send('GET', '')).json)).toMatchObject({ id, remainTries: 1 });
    expect(await send('POST', `/job/${id}/nack`, receipt)).toMatchObject({ status: 409 });
  });
});
