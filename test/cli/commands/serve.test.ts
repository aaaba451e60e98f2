import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Connection } from '../../../src/index.js';
import { Tokens } from '../../../src/serve/access/tokens.js';
import { afterwards, during } from '../../support/afterwards.js';
import { begin, binary, delayq, onTerminal } from '../../support/cli.js';
import { type Served, serve } from '../../support/serve.js';
import { freePort, Server } from '../../support/server.js';
import { until } from '../../support/until.js';
import { request, Wire } from '../../support/wire.js';

async function alone() {
  const redis = await during(Server.start({ tcp: true }));
  const connection = new Connection(redis.url);
  afterwards(() => connection.close());
  return { redis, tokens: new Tokens(connection, 'delayq'), env: { DELAYQ_REDIS_URL: redis.url } };
}

const LOCAL = ['--listen', '127.0.0.1:0', '--admin-listen', '127.0.0.1:0'];

/** A publish of which only the headers have been sent, and the connection. */
async function halfSent(served: Served, headers = '') {
  const { hostname, port } = new URL(served.api);
  const socket: Socket = connect(Number(port), hostname);
  afterwards(() => socket.destroy());
  await once(socket, 'connect');
  let heard = '';
  socket.on('data', (data) => (heard += data)).on('error', () => {});
  socket.write(`PUT /api/shop/q?delay=1 HTTP/1.1\r\nHost: localhost\r\n${headers}Content-Length: 2\r\n\r\nh`);
  await until(async () =>
    /^delayq_http_running_requests 2$/m.test((await served.call('GET', `${served.admin}/metrics`)).text),
  );
  return { socket, heard: () => heard };
}

describe('delayq serve', () => {
  it('says where it listens, and exits with 0 when it is stopped', async () => {
    const { redis } = await alone();
    const served = await serve(redis.url);
    const { code, stdout, stderr } = await served.stop();
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' });
    expect(stderr).toBe(
      `delayq serve: API on ${served.api}\ndelayq serve: admin on ${served.admin}\ndelayq serve: stopping; requests that are running: 0\n`,
    );
  });

  it('tells once, as all it tells, of a password that Redis does not ask for', async () => {
    const { redis } = await alone();
    const served = await serve(redis.url.replace('://', '://:needless@'));
    const { stderr } = await served.stop();
    expect(stderr.match(/.*password.*/g)).toEqual([expect.stringMatching(/^delayq serve: This Redis server's/)]);
    expect(stderr.split('\n').filter((line) => line && !line.startsWith('delayq serve: '))).toEqual([]);
  });

  it('names its own options where it says what to do about a Redis', async () => {
    const { redis, env, tokens } = await alone();
    await tokens.add('shop');
    const http = await serve(redis.url);
    const url = http.api.replace('http', 'redis');
    const next = async (...args: string[]) =>
      /\n {2}next: (.*)/.exec((await delayq(['serve', ...LOCAL, ...args], { env })).stderr)?.[1];
    expect(await next('--redis', url)).toContain('--redis or DELAYQ_REDIS_URL');
    expect(await next('--pool', `far-one=${url}`)).toContain('--pool far-one or DELAYQ_POOL_FAR_ONE');
    await http.stop();
  });

  it('shows its help within 80 columns', async () => {
    const help = await onTerminal('delayq serve --help', { columns: 80 });
    for (const line of help.split('\n')) expect(line.length, line).toBeLessThanOrEqual(82);
    expect(help).not.toMatch(/\{"host"/);
  });

  it('--tries and --ttl are for publishes that name none, in all their forms', async () => {
    const { redis } = await alone();
    const served = await during(serve(redis.url, ['--tries', '3', '--ttl', '2h']));
    const path = '/api/shop/q';
    const publish = async (to: string, body = '[1]') => {
      expect(await served.call('PUT', `${path}${to}`, { body })).toMatchObject({ status: 201 });
      return (await served.call('GET', path)).json;
    };
    const [ours, named] = [
      { remain_tries: 2, ttl: 7_200 },
      { remain_tries: 8, ttl: 60 },
    ];
    for (const to of ['', '/bulk', '/job/none', '?id=own', '?id=own2&if_exists=replace'])
      expect(await publish(to), to).toMatchObject(ours);
    for (const to of ['?tries=9&ttl=60', '/bulk?tries=9&ttl=60']) expect(await publish(to), to).toMatchObject(named);
    expect(await publish('?ttl=0')).toMatchObject({ remain_tries: 2, ttl: 0 });
  });

  it('--ttl 0s lets jobs live for ever', async () => {
    const { redis } = await alone();
    const served = await during(serve(redis.url, ['--ttl', '0s']));
    await served.call('PUT', '/api/shop/q?delay=3d', { body: '1' });
    await served.call('PUT', '/api/shop/q', { body: '2' });
    expect((await served.call('GET', '/api/shop/q')).json).toMatchObject({ ttl: 0 });
  });

  it.each([
    ['--listen', 'nonsense', 64],
    ['--listen', '127.0.0.1:65536', 64],
    ['--pool', 'default=redis://x', 64],
    ['--pool', 'a b=redis://x', 64],
    ['--pool', 'nowhere', 64],
    ['--allow-host', 'http://x', 64],
    ['--log', 'some', 64],
    ['--grace', 'long', 64],
    ['--tries', '0', 64],
    ['--tries', '65536', 64],
    ['--ttl', 'long', 64],
  ])('refuses %s %s with exit code %i, without Redis', async (option, value, code) => {
    const env = { DELAYQ_REDIS_URL: 'redis://127.0.0.1:1' };
    const ended = await delayq(['serve', ...LOCAL, option, value], { env });
    expect(ended).toMatchObject({ code, stdout: '' });
    expect(ended.stderr).toMatch(/\n {2}next: /);
  });

  it('refuses an address that is not its own with exit code 78', async () => {
    const { env, tokens } = await alone();
    await tokens.add('shop');
    const ended = await binary(['serve', ...LOCAL, '--listen', '192.0.2.1:0'], { env });
    expect(ended).toMatchObject({ code: 78, stdout: '', stderr: expect.stringMatching(/\n {2}next: /) });
  });

  it('does not listen where another program does', async () => {
    const { redis, env } = await alone();
    const served = await during(serve(redis.url));
    const taken = new URL(served.api).host;
    const ended = await binary(['serve', ...LOCAL, '--listen', taken], { env });
    expect(ended).toMatchObject({
      code: 75,
      stderr: expect.stringMatching(/cannot listen for API requests\n {2}why: .*EADDRINUSE/),
    });
  });
});

describe.concurrent('an address that other machines can reach', () => {
  it('needs a token: without one the exit code is 78', async () => {
    const { env, redis, tokens } = await alone();
    const api = ['serve', '--listen', '0.0.0.0:0', '--admin-listen', '127.0.0.1:0'];
    const refused = await delayq(api, { env });
    expect(refused).toMatchObject({ code: 78, stdout: '' });
    expect(refused.stderr).toMatch(
      /^delayq: the API listener needs a token first\n {2}why: {2}other machines can reach it.*\n {2}next: .*delayq token add/,
    );
    await tokens.add('shop');
    const served = await during(serve(redis.url, ['--listen', '0.0.0.0:0']));
    const { port } = new URL(served.api);
    expect(await served.call('GET', `http://127.0.0.1:${port}/api/shop/q`)).toMatchObject({ status: 401 });
  });

  it('is listened on while Redis does not answer, and lets nobody in without a token', async () => {
    const { redis } = await alone();
    await redis.end();
    const served = await during(serve(redis.url, ['--listen', '0.0.0.0:0', '--admin-listen', '0.0.0.0:0']));
    const get = async (listener: string, path: string) =>
      (await served.call('GET', `http://127.0.0.1:${new URL(listener).port}${path}`)).status;
    expect(await get(served.api, '/api/shop/q/size')).toBe(503);
    await redis.run();
    await until(async () => (await get(served.api, '/api/shop/q/size')) !== 503);
    expect(await get(served.api, '/api/shop/q/size')).toBe(401);
    expect(await get(served.admin, '/info')).toBe(401);
  });

  it('of the admin listener needs one with the right operate, and then a login, also from here', async () => {
    const { env, redis, tokens } = await alone();
    const place = ['--admin-listen', '0.0.0.0:0'];
    await tokens.add('shop');
    const refused = await binary(['serve', '--listen', '127.0.0.1:0', ...place], { env });
    expect(refused).toMatchObject({ code: 78, stderr: expect.stringContaining('the right operate') });
    const [all, own, plain] = [
      await tokens.add('*', { rights: ['operate'] }),
      await tokens.add('shop', { rights: ['operate'] }),
      await tokens.add('shop'),
    ];
    const served = await during(serve(redis.url, place));
    const admin = `http://127.0.0.1:${new URL(served.admin).port}`;
    const get = (path: string, headers = {}) => served.call('GET', `${admin}${path}`, { headers });
    const basic = (login: string) => ({ Authorization: `Basic ${Buffer.from(login).toString('base64')}` });
    for (const path of ['/metrics', '/info', '/token/shop', '/version']) {
      const none = await get(path);
      expect(none).toMatchObject({ status: 401, json: { error: 'token not found' } });
      expect(none.headers.get('www-authenticate')).toMatch(/^Basic realm="delayq"/);
      expect(await get(path, { 'X-Token': 'wrong' })).toMatchObject({ status: 401 });
      expect(await get(path, { 'X-Token': plain })).toMatchObject({ status: 403 });
      expect(await get(`${path}?token=${all}`)).toMatchObject({ status: 401 });
      expect(await get(path, { 'X-Token': all })).toMatchObject({ status: 200 });
      expect(await get(path, { Authorization: `Bearer ${all}` })).toMatchObject({ status: 200 });
      expect(await get(path, basic(`prometheus:${all}`))).toMatchObject({ status: 200 });
      expect(await get(path, basic(`${all}:`))).toMatchObject({ status: 200 });
      expect(await get(path, { 'X-Token': own })).toMatchObject({ status: path === '/token/shop' ? 200 : 403 });
    }
    expect(await get('/token/mail', { 'X-Token': own })).toMatchObject({ status: 403 });
    expect(await get('/healthz')).toMatchObject({ status: 200 });
    // Ten more would be too many.
    expect(await get('/metrics', { ...basic(`x:${all}`), 'Sec-Fetch-Site': 'cross-site' })).toMatchObject({
      status: 403,
    });
  });
});

describe.concurrent('without Redis', () => {
  it('it starts, says so once, answers 503, and says when it is back', async () => {
    const port = await freePort();
    const url = `redis://127.0.0.1:${port}`;
    const served = await during(serve(url));
    expect(await served.call('PUT', '/api/shop/q', { body: 'x' })).toMatchObject({
      status: 503,
      json: { error: 'redis is not available' },
    });
    expect(await served.call('GET', `${served.admin}/info`)).toMatchObject({ status: 503 });
    expect(await served.call('POST', `${served.admin}/token/shop?description=x`)).toMatchObject({ status: 503 });
    await during(Server.start({ port }));
    await until(async () => (await served.call('PUT', '/api/shop/q', { body: 'x' })).status === 201);
    const { stderr } = served.running;
    expect(stderr.match(/pool default: .*its requests get 503/g)).toHaveLength(1);
    expect(stderr.match(/pool default: Redis is back/g)).toHaveLength(1);
  });

  it('a password that Redis does not take is an error at the start', async () => {
    const { redis } = await alone();
    const url = `redis://nobody:wrong@127.0.0.1:${redis.port}`;
    const ended = await binary(['serve', ...LOCAL], { env: { DELAYQ_REDIS_URL: url } });
    expect(ended).toMatchObject({ code: 77, stdout: '' });
    expect(ended.stderr).not.toContain('wrong@');
  });
});

describe.concurrent('a stop', () => {
  it('turns /healthz of both listeners to 503, lets requests end, and answers those that wait', async () => {
    const { redis } = await alone();
    const served = await serve(redis.url);
    const poll = served.call('GET', '/api/shop/empty?timeout=600');
    await until(async () =>
      /^delayq_http_waiting_requests 1$/m.test((await served.call('GET', `${served.admin}/metrics`)).text),
    );
    const { hostname, port } = new URL(served.api);
    const socket = connect(Number(port), hostname);
    afterwards(() => socket.destroy());
    let heard = '';
    socket.on('data', (data) => (heard += data));
    socket.write('PUT /api/shop/q HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nh');
    await until(async () =>
      /^delayq_http_running_requests 3$/m.test((await served.call('GET', `${served.admin}/metrics`)).text),
    );
    const ended = served.stop();
    const health = async (url: string) => (await served.call('GET', `${url}/healthz`)).status;
    await until(async () => (await health(served.api)) === 503);
    expect(await health(served.admin)).toBe(503);
    expect(await poll).toMatchObject({ status: 404, json: { msg: 'no job available' } });
    expect(heard).toBe('');
    socket.write('i');
    await until(() => heard.includes('"msg":"published"'));
    expect(heard).toMatch(/^HTTP\/1\.1 201 [\s\S]*\r\nConnection: close\r\n/);
    // The poll has its answer already, or is about to end.
    const stderr = expect.stringMatching(/: stopping; requests that are running: [12]$/m);
    expect(await ended).toMatchObject({ code: 0, stderr });
  });

  it('ends after --grace, and exits with 1 if it has cut off requests', async () => {
    const { redis } = await alone();
    const served = await serve(redis.url, ['--grace', '300ms']);
    const { heard } = await halfSent(served);
    const ended = await served.stop();
    expect(ended).toMatchObject({ code: 1 });
    expect(ended.stderr).toMatch(/requests that had not ended after 0\.3 s \(--grace\) and were cut off: 1\n$/);
    expect(heard()).toBe('');
  });

  it('is not delayed by connections without a request, or with a part of one', async () => {
    const { redis } = await alone();
    const served = await serve(redis.url, ['--grace', '1h']);
    const { hostname, port } = new URL(served.api);
    const connections = [1, 2].map(() => connect(Number(port), hostname));
    for (const socket of connections) {
      afterwards(() => socket.destroy());
      await once(
        socket.on('error', () => {}),
        'connect',
      );
    }
    connections[0]?.write('GET /healthz HTTP/1.1\r\nHo');
    expect(await served.stop()).toMatchObject({ code: 0 });
  });

  it('ends at once with the second signal, with exit code 130', async () => {
    const { redis } = await alone();
    const served = await serve(redis.url, ['--grace', '1h']);
    await halfSent(served);
    served.running.child.kill('SIGINT');
    await until(() => served.running.stderr.includes('stopping'));
    await until(() => {
      served.running.child.kill('SIGINT');
      return served.running.child.exitCode !== null;
    });
    expect(await served.running.ended).toMatchObject({ code: 130 });
  });
});

describe('an error that nothing has caught', () => {
  it('is said without its message, and ends the server with exit code 70', async () => {
    const { redis } = await alone();
    const directory = await mkdtemp(join(tmpdir(), 'delayq-test-'));
    afterwards(() => rm(directory, { recursive: true }));
    const file = join(directory, 'bug.cjs');
    await writeFile(file, "process.on('SIGUSR2', () => { throw new TypeError('secret payload'); });");
    const env = { DELAYQ_REDIS_URL: redis.url, NODE_OPTIONS: `--require ${file}` };
    const running = begin(['serve', ...LOCAL], { env, input: '' });
    await until(() => running.stderr.includes('admin on'));
    running.child.kill('SIGUSR2');
    const { code, stderr } = await running.ended;
    expect(code).toBe(70);
    expect(stderr).toMatch(
      /delayq: delayq serve itself failed\n {2}why: {2}TypeError\n +at .*bug\.cjs[\s\S]*\n {2}next: please report/,
    );
    expect(stderr).not.toContain('secret');
  });
});

describe.concurrent('the log', () => {
  const logged = async (level: string) => {
    const { redis } = await alone();
    const served = await serve(redis.url, ['--log', level]);
    await served.call('PUT', '/api/shop/q?id=secret-id', { body: 'secret payload' });
    await served.call('GET', '/api/shop/q/job/secret-id?token=secret');
    await served.call('GET', '/nothing/secret');
    await redis.end();
    await until(async () => (await served.call('PUT', '/api/shop/q?id=secret-id', { body: 'secret' })).status === 503);
    const { stderr } = await served.stop();
    expect(stderr).not.toContain('secret');
    return stderr.split('\n').filter((line) => /^\d{4}-/.test(line));
  };

  it('has all requests with --log all: when, route, status, time, who, and the id that was answered', async () => {
    const lines = await logged('all');
    expect(lines.length).toBeGreaterThan(3);
    const shape = /^[\d-]{10}T[\d:.]{12}Z [A-Z]+ \S+ (\d{3}|gone) \d+\.\dms - [0-9A-Z]{26}( \(.*\))?$/;
    for (const line of lines) expect(line).toMatch(shape);
    expect(lines[0]).toMatch(/ GET \/healthz 200 /);
    expect(lines[1]).toMatch(/ PUT \/api\/:ns\/:queue 201 /);
    expect(lines[3]).toMatch(/ GET - 404 /);
    expect(lines.at(-1)).toMatch(/ 503 .* \((unreachable|unknown).*\)$/);
  });

  it('has only what failed here with --log errors, and nothing with none', async () => {
    const lines = await logged('errors');
    expect(lines.length).toBeGreaterThan(0);
    for (const line of lines) expect(line).toMatch(/ 503 /);
    expect(await logged('none')).toEqual([]);
  });

  it('that nobody reads stops nothing', async () => {
    const { redis, env } = await alone();
    const running = begin(['serve', ...LOCAL, '--log', 'all'], { env, input: '' });
    await until(() => running.stderr.includes('admin on'));
    running.child.stderr?.pause();
    const [, api] = /API on (\S+)/.exec(running.stderr) ?? [];
    const wire = await Wire.to(api as string);
    const asked = Array.from({ length: 50 }, () => request('GET /api/shop/q/size', ['Host: localhost']));
    // Their lines are more than twice what a pipe and its writer hold.
    for (let n = 0; n < 40; n++) {
      wire.write(...asked);
      for (const _ of asked) expect((await wire.answer()).status).toBe(200);
    }
    expect(redis.isAwake).toBe(true);
    running.child.kill('SIGKILL');
  });
});
