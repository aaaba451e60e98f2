import { describe, expect, it } from 'vitest';
import { Connection, Operator } from '../../src/index.js';
import { ADMIN_ROUTES, API_ROUTES } from '../../src/serve/routes.js';
import { afterwards } from '../support/afterwards.js';
import { read } from '../support/examples.js';
import { mismatches, type Schema, undocumented } from '../support/schema.js';
import { ownRedis, serve } from '../support/serve.js';
import { until } from '../support/until.js';

const doc = JSON.parse(read('docs/reference/openapi.json'));
const METHODS = ['get', 'put', 'post', 'delete'];
const requestId = new RegExp(doc.components.headers['X-Request-ID'].schema.pattern);

/** What a reference leads to. */
const resolve = (reference: string): Schema =>
  reference
    .replace('#/', '')
    .split('/')
    .reduce((at, name) => at?.[name], doc) ?? {};
const resolved = (it: Schema): Schema => (it.$ref ? resolve(it.$ref) : it);

const operations: Schema[] = Object.entries<Schema>(doc.paths).flatMap(([path, item]) =>
  METHODS.filter((method) => item[method]).map((method) => ({
    ...item[method],
    path,
    method: method.toUpperCase(),
    isAdmin: item.servers !== undefined,
    parameters: [...(item.parameters ?? []), ...(item[method].parameters ?? [])].map(resolved),
  })),
);
const name = ({ method, path }: Schema) => `${method} ${path}`;

/** Every object of the document with its place. */
function* objects(at: unknown, place = ''): Generator<[string, Schema]> {
  if (typeof at !== 'object' || at === null) return;
  yield [place, at];
  for (const [key, value] of Object.entries(at)) yield* objects(value, `${place}/${key}`);
}

/** Statuses of faults that any request may have. */
const FAULTS = new Set([408, 417, 431]);

/** A path without the names of its parameters: the document may name them otherwise than the code. */
const shape = (path: string) => path.replace(/\{\w+\}|:\w+/g, '{}');

describe('the OpenAPI document', () => {
  it.each([
    ['API', API_ROUTES, false],
    ['admin', ADMIN_ROUTES, true],
  ] as const)('has all routes of the %s listener, and no others', (_, routes, isAdmin) => {
    const served = routes.map(({ method, path }) => `${method} ${shape(path)}`);
    const documented = operations
      .filter((operation) => operation.isAdmin === isAdmin && operation.path !== '/healthz')
      .map(({ method, path }) => `${method} ${shape(path)}`);
    expect(documented.sort()).toEqual(served.sort());
  });

  it('has the parameters in queries that the routes take', () => {
    const served = [...API_ROUTES, ...ADMIN_ROUTES].map(({ method, path, query = [] }) => [
      `${method} ${shape(path)}`,
      query,
    ]);
    const documented = operations.map(({ method, path, parameters }) => {
      const inQuery = parameters.filter((one: Schema) => one.in === 'query').map((one: Schema) => one.name);
      // The gate reads it, in any request.
      return [`${method} ${shape(path)}`, inQuery.filter((one: string) => one !== 'token')];
    });
    expect(Object.fromEntries(documented)).toMatchObject(Object.fromEntries(served));
  });

  it('has no reference that leads nowhere, and nothing that none leads to', () => {
    const references = [...objects(doc)]
      .map(([, { $ref }]) => $ref)
      .filter((reference) => typeof reference === 'string');
    expect(references.length).toBeGreaterThan(100);
    expect(references.filter((reference) => Object.keys(resolve(reference)).length === 0)).toEqual([]);
    const { securitySchemes, ...kinds } = doc.components;
    const parts = Object.entries<Schema>(kinds).flatMap(([kind, all]) =>
      Object.keys(all).map((part) => `#/components/${kind}/${part}`),
    );
    expect(parts.filter((part) => !references.includes(part))).toEqual([]);
    const security = [doc, ...operations].flatMap((one: Schema) => one.security ?? []);
    const schemes = new Set(security.flatMap((each: Schema) => Object.keys(each)));
    expect([...schemes].sort()).toEqual(Object.keys(securitySchemes).sort());
  });

  it('has an id, a summary and a success for each operation', () => {
    const ids = operations.map(({ operationId }) => operationId);
    expect(new Set(ids).size).toBe(ids.length);
    const wrong = operations.filter(
      ({ operationId, summary, responses }) =>
        !operationId || !summary || !Object.keys(responses).some((status) => status.startsWith('2')),
    );
    expect(wrong.map(name)).toEqual([]);
  });

  it('declares each parameter of a path, and no parameter twice', () => {
    for (const operation of operations) {
      const { path, parameters } = operation;
      const inPath = parameters.filter((parameter: Schema) => parameter.in === 'path' && parameter.required);
      const wanted = [...path.matchAll(/\{(\w+)\}/g)].map(([, parameter]) => parameter);
      expect(inPath.map((parameter: Schema) => parameter.name).sort(), name(operation)).toEqual(wanted.sort());
      const all = parameters.map((parameter: Schema) => `${parameter.in} ${parameter.name}`);
      expect(
        all.filter((one: string, i: number) => all.indexOf(one) < i),
        name(operation),
      ).toEqual([]);
    }
  });

  it('has examples that match their schemas', () => {
    const examples = [...objects(doc)].filter(([, { schema, example }]) => schema && example !== undefined);
    expect(examples.length).toBeGreaterThan(20);
    expect(
      examples.flatMap(([place, { schema, example }]) => {
        const wrong = [...mismatches(schema, example, resolve), ...undocumented(schema, example, resolve)];
        return wrong.map((why) => `${place} ${why}`);
      }),
    ).toEqual([]);
  });
});

describe('the server', () => {
  it('answers every operation as the document says', async () => {
    const redis = await ownRedis();
    const server = await serve(redis.url);
    const connection = new Connection(redis.url);
    afterwards(() => connection.close());
    const called = new Set<string>();
    /** Calls, and compares the answer with the document. Returns its JSON. */
    const ask = async (status: number, method: string, path: string, init: Omit<RequestInit, 'method'> = {}) => {
      const { origin, pathname } = new URL(path, server.api);
      const operation = operations.find((one) => {
        const isHere = one.path === '/healthz' || one.isAdmin === (origin === server.admin);
        const pattern = new RegExp(`^${one.path.replace(/\{\w+\}/g, '[^/]+')}$`);
        return one.method === method && isHere && pattern.test(pathname);
      }) as Schema;
      called.add(operation.operationId);
      const answer = await server.call(method, path, init);
      const what = `${method} ${path}: ${answer.status} ${answer.text.slice(0, 200)}`;
      expect(answer.status, what).toBe(status);
      const { [FAULTS.has(status) ? 'default' : status]: documentedAt = {} } = operation.responses;
      const documented = resolved(documentedAt);
      expect(documented.description, `${what} is not documented`).toBeDefined();
      expect(answer.headers.get('x-request-id'), what).toMatch(requestId);
      const [type, content] = Object.entries<Schema>(documented.content ?? {})[0] ?? [];
      expect(answer.headers.get('content-type')?.split(';')[0], what).toBe(type);
      if (type !== 'application/json') return answer.json as Schema;
      expect(mismatches(content?.schema, answer.json, resolve), what).toEqual([]);
      expect(undocumented(content?.schema, answer.json, resolve), what).toEqual([]);
      return answer.json as Schema;
    };
    const take = async (path: string) => {
      await ask(200, 'GET', `${path}/peek`);
      return server.call('GET', path);
    };
    const queue = '/api/shop/order-close';

    const { job_id: first } = await ask(201, 'PUT', `${queue}?tries=3`, { body: 'any text' });
    await ask(201, 'PUT', `${queue}/bulk?delay=0&tries=1`, { body: '[1,"two",{"three":3}]' });
    await ask(400, 'PUT', `${queue}?delay=soon`);
    await ask(400, 'PUT', `${queue}/bulk`, { body: '[]' });
    await ask(413, 'PUT', queue, { body: 'x'.repeat(1024 * 1024 + 1) });
    await ask(200, 'GET', `${queue}/size`);
    await ask(200, 'GET', `${queue}/peek`);
    await ask(200, 'GET', `${queue}/job/${first}`);
    await ask(404, 'GET', `${queue}/job/none`);
    await ask(404, 'GET', '/api/shop/empty/peek');
    await ask(404, 'GET', '/api/shop/empty');
    await ask(400, 'GET', `${queue}?count=101`);
    const { job_id: taken } = await ask(200, 'GET', queue);
    expect(taken).toBe(first);
    const headers = { 'Enable-Job-Version': 'YES', 'Job-Attr-Tenant': 'a' };
    const { job_id: second } = await ask(201, 'PUT', `${queue}/job/${taken}?delay=60`, { body: 'again', headers });
    expect((await ask(200, 'GET', `${queue}/job/${second}`)).attributes).toEqual({ tenant: 'a' });
    await ask(200, 'POST', `${queue}/job/${second}/reschedule?delay=90`);
    await ask(200, 'POST', `${queue}/job/${second}/cancel`);
    await ask(404, 'POST', `${queue}/job/${second}/cancel`);
    await ask(201, 'PUT', `/api/shop/remind?id=user:7&tries=3`, { body: '{}' });
    await ask(200, 'PUT', `/api/shop/remind?id=user:7&if_exists=keep`, { body: '{}' });
    const held = '/api/shop/remind/job/user:7';
    const receipt = { headers: { 'X-Receipt': (await take('/api/shop/remind')).headers.get('x-receipt') as string } };
    await ask(200, 'POST', `${held}/renew?ttr=60`, receipt);
    await ask(400, 'POST', `${held}/renew?ttr=60`);
    await ask(200, 'POST', `${held}/nack?delay=1500ms&error=busy`, receipt);
    await ask(409, 'POST', `${held}/nack`, receipt);
    await ask(409, 'DELETE', held, receipt);
    await ask(200, 'POST', `${queue}/ack`, { body: JSON.stringify(['none', { id: 'none', receipt: 'none' }]) });
    await ask(400, 'POST', `${queue}/ack`, { body: '[]' });
    await ask(404, 'GET', `${queue}/job/none/result`);
    await new Operator(connection).configure('shop.report', { keepDone: 86_400_000 });
    const report = '/api/shop/report';
    const isResult = async (state: string, id: string) =>
      expect(await ask(200, 'GET', `${report}/job/${id}/result?timeout=1ms`)).toMatchObject({ state });
    for (const id of ['a', 'b']) await ask(201, 'PUT', `${report}?id=${id}`, { body: '{}' });
    await isResult('pending', 'a');
    const reported = { id: 'a', receipt: (await take(report)).headers.get('x-receipt') };
    await isResult('active', 'a');
    await ask(400, 'POST', `${report}/ack`, { body: JSON.stringify([{ ...reported, result: 7 }]) });
    await ask(200, 'POST', `${report}/ack`, { body: JSON.stringify([{ ...reported, result: '4 pages' }]) });
    await isResult('done', 'a');
    const refused = (await take(report)).headers.get('x-receipt');
    await ask(200, 'POST', `${report}/job/b/nack?mode=dead&receipt=${refused}`);
    await isResult('dead', 'b');
    await ask(400, 'GET', `${report}/job/a/result?timeout=soon`);
    await ask(404, 'GET', `${report}/job/none/result`);
    const batch = await ask(200, 'GET', `${queue}?count=2&ttr=1&receipts=1`);
    expect(batch).toMatchObject([{ receipt: expect.any(String) }, { receipt: expect.any(String) }]);
    await ask(204, 'DELETE', `${queue}/job/${batch[0].job_id}`);
    // The other one has no tries left: it is a dead letter when its ttr is over.
    await until(async () => (await ask(200, 'GET', `${queue}/deadletter/size`)).size === 1);
    await ask(200, 'GET', `${queue}/deadletter`);
    await ask(200, 'PUT', `${queue}/deadletter?limit=1`);
    await ask(204, 'DELETE', `${queue}/deadletter`);
    await ask(204, 'DELETE', queue);
    await ask(200, 'GET', '/healthz');
    await ask(200, 'GET', '/openapi.json');

    const admin = (path: string) => `${server.admin}${path}`;
    for (const path of ['/version', '/metrics', '/info', '/pools', '/limits', '/healthz'])
      await ask(200, 'GET', admin(path));
    const { token } = await ask(201, 'POST', admin('/token/shop?description=mine'));
    await ask(400, 'POST', admin('/token/shop?description=mine&token=short'));
    const { token: publisher } = await ask(201, 'POST', admin('/token/shop?description=mine&rights=publish'));
    await ask(200, 'GET', admin('/token/shop'));
    await ask(401, 'GET', `${queue}/size`);
    await ask(401, 'GET', `${queue}/size`, { headers: { 'X-Token': `${token}x` } });
    await ask(404, 'GET', `${queue}/size`, { headers: { 'X-Token': `nowhere:${token}` } });
    await ask(200, 'GET', `${queue}/size?token=${token}`);
    await ask(403, 'GET', `${queue}/size?token=${publisher}`);
    const limit = { body: '{"read":1,"write":1,"interval":100}' };
    await ask(404, 'GET', admin(`/token/shop/${token}/limit`));
    await ask(201, 'POST', admin(`/token/shop/${token}/limit`), limit);
    await ask(409, 'POST', admin(`/token/shop/${token}/limit`), limit);
    await ask(200, 'PUT', admin(`/token/shop/${token}/limit`), limit);
    await ask(404, 'PUT', admin('/token/shop/no-such-token-there-is/limit'), limit);
    await ask(200, 'GET', admin(`/token/shop/${token}/limit`));
    await ask(200, 'GET', admin('/limits'));
    await ask(200, 'DELETE', admin(`/token/shop/${token}/limit`));
    await ask(204, 'DELETE', admin(`/token/shop/${token}`));
    await ask(403, 'GET', admin('/limits'), { headers: { Origin: 'http://elsewhere.example' } });

    const never = operations.filter(({ operationId }) => !called.has(operationId));
    expect(never.map(name)).toEqual([]);

    // What any operation may answer. From elsewhere, so that the admin listener asks for a token as well.
    const far = (headers: Record<string, string>) => ({ headers: { 'X-Forwarded-For': '10.0.0.1', ...headers } });
    const each = async (status: number, ofAll: boolean, headers: Record<string, string>) => {
      for (const { path, method, isAdmin, security } of operations) {
        if (security?.length === 0 && !ofAll) continue;
        const filled = path.replace(/\{\w+\}/g, 'some');
        await ask(status, method, isAdmin ? admin(filled) : filled, far(headers));
      }
    };
    await each(431, true, { 'X-Any': 'x'.repeat(17_000) });
    await each(404, false, { 'X-Token': 'nowhere:some' });
    for (let n = 0; n < 9; n++) await ask(401, 'GET', `${queue}/size`, far({ 'X-Token': `wrong${n}` }));
    await each(429, false, { 'X-Token': 'wrong' });
    await ask(413, 'PUT', admin(`/token/shop/${token}/limit`), { body: 'x'.repeat(70_000) });
    expect(await server.stop()).toMatchObject({ code: 0 });
  });
});
