import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Connection, Queue, RawPayload } from '../../src/index.js';
import { upTo } from '../support/jobs.js';
import { freshName } from '../support/redis.js';
import { ownRedis, type Served, serve } from '../support/serve.js';
import { until } from '../support/until.js';
import { request, Wire } from '../support/wire.js';

const MIB = 1024 * 1024;
const HOST = 'Host: localhost';

let redis: Awaited<ReturnType<typeof ownRedis>>;
let connection: Connection;
let served: Served;

beforeAll(async () => {
  redis = await ownRedis();
  connection = new Connection(redis.url);
  served = await serve(redis.url, ['--log', 'all']);
});

afterAll(async () => {
  connection.close();
  const { code, stderr } = await served.stop();
  expect({ code, faults: stderr.match(/.*(internal error| 500 |Error:).*/g) }).toEqual({ code: 0, faults: null });
});

const fresh = () => `/api/shop/${freshName()}`;
const queueOf = (path: string) => new Queue(connection, path.split('/').slice(2).join('.'));
const dueIn = async (path: string) => (await queueOf(path).counts()).due;
/** What others have of a server that somebody harms. */
const publish = async (to = served) => (await to.call('PUT', fresh(), { body: 'hello' })).status;

/** How much memory a server has, MiB. */
function memoryOf({ running }: Served): number {
  const status = readFileSync(`/proc/${running.child.pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) / 1024;
}

/** Opens many connections, and writes the same to each. */
async function wires(count: number, ...parts: readonly (string | Buffer)[]): Promise<Wire[]> {
  const all = await Promise.all(upTo(count).map(() => Wire.to(served.api)));
  for (const wire of all) wire.write(...parts);
  return all;
}

describe.concurrent('a client that is slow', () => {
  it('with its headers is cut off after 10 s, and others are served', async () => {
    const all = await wires(100, `GET /healthz HTTP/1.1\r\n${HOST}\r\n`);
    const since = performance.now();
    await until(async () => {
      for (const wire of all) if (!wire.hasEnded) wire.write('X-Any: 1\r\n');
      expect(await publish()).toBe(201);
      await sleep(500);
      return all.every((wire) => wire.hasEnded || wire.wasReset);
    }, 60_000);
    expect(performance.now() - since).toBeGreaterThan(9_000);
    expect(await all[0]?.answer()).toMatchObject({ status: 408, json: { error: 'request timeout' } });
  });

  it('with its body is told so after 30 s, and nothing is published', async () => {
    const path = fresh();
    const all = await wires(100, request(`PUT ${path}`, [HOST, 'Content-Length: 1000']));
    await until(async () => {
      for (const wire of all) if (!wire.hasEnded) wire.write('x');
      expect(await publish()).toBe(201);
      await sleep(500);
      return all.every(({ rest }) => rest !== '');
    }, 60_000);
    for (const wire of all) {
      const { status, json } = await wire.answer();
      expect({ status, json }).toEqual({ status: 408, json: { error: 'request timeout' } });
    }
    expect(await dueIn(path)).toBe(0);
  });

  it('to take its answers is cut off after a minute', { timeout: 150_000 }, async () => {
    const own = await serve(redis.url, ['--log', 'all']);
    const [client] = await unread(own, 1, 40);
    await until(() => / gone /.test(own.running.stderr), 90_000);
    // What the kernel had taken is there for those who read at last.
    client?.resume();
    await until(() => client?.closed);
    expect((await own.stop()).code).toBe(0);
  });

  it('to take its answers holds little memory, and others are served', async () => {
    const own = await serve(redis.url);
    const before = memoryOf(own);
    // They ask for 5,600 MiB.
    const all = await unread(own, 200, 20);
    let most = 0;
    for (const _ of upTo(100)) {
      expect(await publish(own)).toBe(201);
      most = Math.max(most, memoryOf(own));
      await sleep(50);
    }
    expect(most - before).toBeLessThan(700);
    for (const socket of all) socket.destroy();
    expect((await own.stop()).code).toBe(0);
  });
});

/** Clients that ask many times for a job of 1 MiB, and do not read. */
async function unread({ api }: Served, clients: number, requests: number): Promise<Socket[]> {
  const path = fresh();
  await queueOf(path).enqueue({ payload: new RawPayload(Buffer.alloc(MIB, 'x')) });
  const { hostname, port } = new URL(api);
  const peeks = Buffer.concat(upTo(requests).map(() => request(`GET ${path}/peek`, [HOST])));
  return upTo(clients).map(() => {
    const socket = connect({ host: hostname, port: Number(port) }).pause();
    socket.on('error', () => {});
    socket.write(peeks);
    return socket;
  });
}

describe('a body that is too large', () => {
  const EXPECT = 'Expect: 100-continue';
  const tooLarge = { status: 413, json: { error: 'body too large' } };

  it('is refused before it comes, by its length', async () => {
    const [wire] = (await wires(1, request(`PUT ${fresh()}`, [HOST, `Content-Length: ${MIB + 1}`]))) as [Wire];
    expect(await wire.answer()).toMatchObject(tooLarge);
    await until(() => wire.hasEnded);
  });

  it('is refused while it comes, where nobody knows its length', async () => {
    const [wire] = (await wires(1, request(`PUT ${fresh()}`, [HOST, 'Transfer-Encoding: chunked']))) as [Wire];
    for (const _ of upTo(17)) wire.write('10000\r\n', Buffer.alloc(65_536, 'x'), '\r\n');
    expect(await wire.answer()).toMatchObject(tooLarge);
    await until(() => wire.hasEnded);
  });

  it('is not asked for: the client that waits for 100 is told 413', async () => {
    const [wire] = (await wires(1, request(`PUT ${fresh()}`, [HOST, EXPECT, `Content-Length: ${MIB + 1}`]))) as [Wire];
    expect(await wire.answer()).toMatchObject(tooLarge);
  });

  it('a body that is not is asked for, also one that is dropped', async () => {
    const path = fresh();
    const wire = await Wire.to(served.api);
    for (const [line, status] of [
      [`PUT ${path}`, 201],
      [`PUT ${path}/deadletter`, 200],
      [`GET ${path}`, 200],
      [`DELETE ${path}`, 204],
    ] as const) {
      wire.write(request(line, [HOST, EXPECT, 'Content-Length: 5']));
      expect((await wire.answer()).status).toBe(100);
      wire.write('hello');
      expect((await wire.answer()).status).toBe(status);
    }
  });

  it('a request that is refused for another reason does not ask for its body either', async () => {
    const wire = await Wire.to(served.api);
    wire.write(request(`PUT ${fresh()}?delay=x`, [HOST, EXPECT, 'Content-Length: 5']));
    expect(await wire.answer()).toMatchObject({ status: 400, json: { error: 'invalid delay' } });
    await until(() => wire.hasEnded);
  });

  it('on a request that needs none ends the connection, and takes no memory', async () => {
    const before = memoryOf(served);
    const wire = await Wire.to(served.api);
    wire.write(request(`GET ${fresh()}/size`, [HOST, 'Transfer-Encoding: chunked']));
    const piece = Buffer.concat([Buffer.from('100000\r\n'), Buffer.alloc(MIB, 'x'), Buffer.from('\r\n')]);
    await until(() => {
      if (wire.waiting < piece.length) wire.write(piece);
      return wire.wasReset || wire.hasEnded;
    });
    expect((await wire.answer()).status).toBe(200);
    expect(memoryOf(served) - before).toBeLessThan(100);
  });

  it('does not count once its client has gone', async () => {
    // More than may be in flight, if any of it stayed.
    for (const _ of upTo(4)) {
      const all = await wires(100, request(`PUT ${fresh()}`, [HOST, `Content-Length: ${MIB}`]), Buffer.alloc(MIB - 1));
      await until(() => all.every((wire) => wire.waiting === 0));
      for (const wire of all) wire.close();
    }
    expect(await publish()).toBe(201);
  });

  it('does not let other clients in when too much is in flight, until it has ended', async () => {
    const own = await serve(redis.url);
    const path = fresh();
    const body = Buffer.alloc(MIB);
    const all = await Promise.all(upTo(300).map(() => Wire.to(own.api)));
    for (const wire of all) wire.write(request(`PUT ${path}`, [HOST, `Content-Length: ${MIB}`]), body.subarray(1));
    let refusal: Awaited<ReturnType<Served['call']>> | undefined;
    await until(async () => {
      refusal = await own.call('PUT', fresh(), { body });
      return refusal.status === 503;
    });
    expect(refusal?.json).toEqual({ error: 'too many bytes in flight' });
    expect(refusal?.headers.get('retry-after')).toBe('1');
    expect(memoryOf(own)).toBeLessThan(900);
    for (const wire of all) wire.write('x');
    const statuses = await Promise.all(all.map(async (wire) => (await wire.answer()).status));
    expect(statuses.filter((status) => status === 201).length).toBe(await dueIn(path));
    expect(await publish(own)).toBe(201);
    expect((await own.stop()).code).toBe(0);
  });
});

describe('what is no request', () => {
  const close = async (wire: Wire) => until(() => wire.hasEnded || wire.wasReset);

  it('after a request is refused when that has been answered', async () => {
    const path = fresh();
    const [wire] = (await wires(1, request(`PUT ${path}`, [HOST, 'Content-Length: 2']), 'hi\0\x01garbage\r\n\r\n')) as [
      Wire,
    ];
    expect((await wire.answer()).status).toBe(201);
    expect(await wire.answer()).toMatchObject({ status: 400, json: { error: 'bad request' } });
    await close(wire);
    expect(await dueIn(path)).toBe(1);
  });

  it('is not taken for the end of a long poll before it, and costs no memory', async () => {
    const path = fresh();
    const wire = await Wire.to(served.api);
    wire.write(request(`GET ${path}?timeout=30`, [HOST]), 'garbage\r\n\r\n');
    const before = memoryOf(served);
    for (const _ of upTo(500)) wire.write(Buffer.alloc(65_536, 'x'));
    await until(() => wire.waiting === 0);
    expect(memoryOf(served) - before).toBeLessThan(100);
    await queueOf(path).enqueue({ payload: 1 });
    expect((await wire.answer()).status).toBe(200);
    expect((await wire.answer()).status).toBe(400);
    await close(wire);
  });

  const SMUGGLED = 'PUT /api/shop/smuggled HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx';
  const put = (...headers: string[]) => `PUT /api/shop/front HTTP/1.1\r\n${[HOST, ...headers].join('\r\n')}\r\n\r\n`;

  it.each<[string, string]>([
    ['two lengths', put('Content-Length: 0', `Content-Length: ${SMUGGLED.length}`) + SMUGGLED],
    ['a list of lengths', put('Content-Length: 0, 5') + SMUGGLED],
    ['a length and chunks', `${put('Content-Length: 4', 'Transfer-Encoding: chunked')}0\r\n\r\n${SMUGGLED}`],
    ['chunks and a length', `${put('Transfer-Encoding: chunked', 'Content-Length: 4')}0\r\n\r\n${SMUGGLED}`],
    ['a length that is none', put('Content-Length: +0') + SMUGGLED],
    ['a length in hexadecimal', put('Content-Length: 0x1') + SMUGGLED],
    ['a negative length', put('Content-Length: -1') + SMUGGLED],
    ['an encoding that nobody knows', `${put('Transfer-Encoding: xchunked')}0\r\n\r\n${SMUGGLED}`],
    ['chunks that are not the last encoding', `${put('Transfer-Encoding: chunked, identity')}0\r\n\r\n${SMUGGLED}`],
    ['a space before a colon', `${put('Transfer-Encoding : chunked')}0\r\n\r\n${SMUGGLED}`],
    ['a size of a chunk that is none', `${put('Transfer-Encoding: chunked')}xyz\r\n\r\n${SMUGGLED}`],
    ['a negative size of a chunk', `${put('Transfer-Encoding: chunked')}-1\r\n\r\n${SMUGGLED}`],
    ['a size of a chunk that overflows', `${put('Transfer-Encoding: chunked')}fffffffffffffffff\r\n${SMUGGLED}`],
    ['a chunk that is longer than its size', `${put('Transfer-Encoding: chunked')}1\r\nabc\r\n0\r\n\r\n${SMUGGLED}`],
    ['a line that ends in CR alone', `PUT /api/shop/front HTTP/1.1\r${HOST}\r\r${SMUGGLED}`],
    ['NUL in a header', put('X-Any: a\0b') + SMUGGLED],
    ['a folded header', put('X-Any: a\r\n Transfer-Encoding: chunked') + SMUGGLED],
  ])('smuggles no second request by %s', async (_, bytes) => {
    const [wire] = (await wires(1, bytes)) as [Wire];
    expect((await wire.answer()).status).toBe(400);
    await close(wire);
    expect(await dueIn('/api/shop/smuggled')).toBe(0);
    expect(await publish()).toBe(201);
  });

  it.each([
    ['one of 1 MiB', `X-Any: ${'x'.repeat(MIB)}\r\n`],
    ['100,000 of them', 'X-Any: 1\r\n'.repeat(100_000)],
    ['a name of 20 KiB', `${'x'.repeat(20_000)}: 1\r\n`],
  ])('too many headers are refused: %s', async (_, headers) => {
    const before = memoryOf(served);
    const all = await wires(50, `GET /healthz HTTP/1.1\r\n${HOST}\r\n${headers}\r\n`);
    for (const wire of all) {
      const { status, headers, json } = await wire.answer();
      expect({ status, json }).toEqual({ status: 431, json: { error: 'request header fields too large' } });
      expect(headers.get('x-request-id')).toMatch(/^[0-9A-HJKMNP-TV-Z]{26}$/);
    }
    expect(memoryOf(served) - before).toBeLessThan(150);
    expect(await publish()).toBe(201);
  });

  it('a URL that is too long is refused', async () => {
    const [wire] = (await wires(1, request(`GET /api/shop/q?x=${'x'.repeat(20_000)}`, [HOST]))) as [Wire];
    expect((await wire.answer()).status).toBe(431);
  });
});

describe('many connections', () => {
  it('1,000 at once are all served, also while they publish', async () => {
    const before = memoryOf(served);
    const path = fresh();
    const all = await wires(1_000, request(`PUT ${path}`, [HOST, 'Content-Length: 5']), 'hello');
    for (const wire of all) expect((await wire.answer()).status).toBe(201);
    expect(await dueIn(path)).toBe(1_000);
    expect(memoryOf(served) - before).toBeLessThan(150);
    for (const wire of all) wire.close();
  });

  it('1,000 that are reset in the middle of anything harm nobody', async () => {
    const path = fresh();
    const texts = [
      'GET /heal',
      `PUT ${path} HTTP/1.1\r\n${HOST}\r\nContent-Le`,
      `PUT ${path} HTTP/1.1\r\n${HOST}\r\nContent-Length: 100\r\n\r\nhello`,
      `GET ${path}?timeout=60 HTTP/1.1\r\n${HOST}\r\n\r\n`,
      `GET ${path}/size HTTP/1.1\r\n${HOST}\r\n\r\n`,
    ];
    for (const text of texts) {
      const { hostname, port } = new URL(served.api);
      const sockets = upTo(200).map(() => connect({ host: hostname, port: Number(port) }).on('error', () => {}));
      await until(() => sockets.every((socket) => !socket.connecting));
      for (const socket of sockets) socket.write(text);
      for (const socket of sockets) socket.resetAndDestroy();
    }
    expect(await publish()).toBe(201);
    // No poll of those that are gone takes a job.
    await queueOf(path).enqueue({ payload: 1 });
    await sleep(50);
    expect(await queueOf(path).counts()).toMatchObject({ due: 1, active: 0 });
  });

  it('a client that pipelines too much is cut off, and others are served', async () => {
    const path = fresh();
    const [wire] = (await wires(1, ...upTo(200).map(() => request(`GET ${path}?timeout=60`, [HOST])))) as [Wire];
    await close(wire);
    expect(await publish()).toBe(201);
  });

  it('a client that pipelines too much gets the first 64 answers, then 429', async () => {
    const path = fresh();
    const puts = upTo(200).map(() => request(`PUT ${path}`, [HOST, 'Content-Length: 2'], 'hi'));
    const [wire] = (await wires(1, ...puts)) as [Wire];
    for (const _ of upTo(64)) expect((await wire.answer()).status).toBe(201);
    expect(await wire.answer()).toMatchObject({ status: 429, json: { error: 'too many requests' } });
    await close(wire);
    expect(await dueIn(path)).toBe(64);
  });

  it('more than --max-connections are cut off, counted, and told a few times', async () => {
    const own = await serve(redis.url, ['--max-connections', '5']);
    const held = await Promise.all(upTo(5).map(() => Wire.to(own.api)));
    for (const wire of held) expect((await wire.ask(request(`GET ${fresh()}/size`, [HOST]))).status).toBe(200);
    const dropped = async () => {
      const { text } = await own.call('GET', `${own.admin}/metrics`);
      return Number(/refused_requests_total\{reason="connections"\} (\d+)/.exec(text)?.[1] ?? 0);
    };
    // The connection that serve() has asked on may not be closed yet.
    const before = await dropped();
    for (const _ of upTo(20)) await close(await Wire.to(own.api));
    expect((await dropped()) - before).toBe(20);
    // The last line comes by itself.
    const said = () =>
      [
        ...own.running.stderr.matchAll(/refused (\d+) requests?: .*--max-connections; the last from 127\.0\.0\.1\n/g),
      ].map(([, count]) => Number(count));
    await until(() => said().reduce((sum, count) => sum + count, 0) === before + 20, 30_000);
    expect(said().length).toBeLessThanOrEqual(4);
    for (const wire of held) wire.close();
    expect((await own.stop()).code).toBe(0);
  });

  it('floods of pipelined requests hold up nobody, and cost no memory', async () => {
    const before = memoryOf(served);
    const flood = Buffer.concat(upTo(1_000).map(() => request('GET /api/shop/none/peek', [HOST])));
    const all = await wires(100);
    for (const wire of all) wire.write(flood);
    expect((await fetch(`${served.api}/healthz`)).status).toBe(200);
    for (const wire of all) await close(wire);
    expect(memoryOf(served) - before).toBeLessThan(150);
    // Of each connection 64 at most are run.
    const { text } = await served.call('GET', `${served.admin}/metrics`);
    const run = [...text.matchAll(/^delayq_http_requests_total\{[^}]*\/peek"[^}]*\} (\d+)$/gm)];
    const count = run.reduce((sum, [, count]) => sum + Number(count), 0);
    // Other tests have peeked a few times.
    expect({ count, isFew: count > 100 && count < 100 * 65 }).toEqual({ count, isFew: true });
  });

  const close = async (wire: Wire) => until(() => wire.hasEnded || wire.wasReset);

  it('a client that closes its half while it polls takes no job', async () => {
    const path = fresh();
    const { hostname, port } = new URL(served.api);
    const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
    let hasEnded = false;
    socket.on('end', () => {
      hasEnded = true;
    });
    socket.resume().end(request(`GET ${path}?timeout=60`, [HOST]));
    await until(() => hasEnded);
    await queueOf(path).enqueue({ payload: 1 });
    await sleep(50);
    expect(await queueOf(path).counts()).toMatchObject({ due: 1, active: 0 });
    socket.destroy();
  });
});

describe('other forms of HTTP', () => {
  it('a body that is compressed is kept as it is', async () => {
    const path = fresh();
    const body = gzipSync('hello');
    const init = { body, headers: { 'Content-Encoding': 'gzip' } };
    expect((await served.call('PUT', path, init)).status).toBe(201);
    const { json } = await served.call('GET', `${path}/peek`);
    expect(json).toMatchObject({ data: body.toString('base64') });
  });

  it('HTTP/1.0 is answered, and its connection closed unless it is to be kept', async () => {
    const path = fresh();
    const wire = await Wire.to(served.api);
    const { status, headers } = await wire.ask(`PUT ${path} HTTP/1.0\r\n${HOST}\r\nContent-Length: 2\r\n\r\nhi`);
    expect({ status, connection: headers.get('connection') }).toEqual({ status: 201, connection: 'close' });
    await until(() => wire.hasEnded);
    const kept = await Wire.to(served.api);
    const ask = () => kept.ask(`GET ${path}/size HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n`);
    for (const _ of upTo(2)) expect((await ask()).json).toMatchObject({ size: 1 });
  });

  it.each<[string, number, string]>([
    [
      `PUT /api/shop/q HTTP/1.1\r\n${HOST}\r\nExpect: nonsense\r\nContent-Length: 2\r\n\r\nhi`,
      417,
      'expectation failed',
    ],
    [`GET /healthz HTTP/1.1\r\n${HOST}\r\nHost: evil\r\n\r\n`, 400, 'invalid host'],
    [`GET /healthz HTTP/1.1\r\nhost: localhost\r\nHOST: localhost\r\n\r\n`, 400, 'invalid host'],
    ['GET /healthz HTTP/1.1\r\n\r\n', 400, 'invalid host'],
    ['GET /healthz\r\n\r\n', 400, 'invalid host'],
  ])('%j is %i', async (bytes, status, error) => {
    const wire = await Wire.to(served.api);
    const answer = await wire.ask(bytes);
    expect(answer).toMatchObject({ status, json: { error } });
    const id = answer.headers.get('x-request-id');
    expect(id).toMatch(/^[0-9A-HJKMNP-TV-Z]{26}$/);
    await until(() => wire.hasEnded || wire.wasReset);
    await until(() => served.running.stderr.includes(` ${id}\n`));
  });

  it('a target may be a whole URL', async () => {
    const path = fresh();
    const wire = await Wire.to(served.api);
    for (const target of [`http://localhost${path}`, `HTTP://127.0.0.1:7777${path}`]) {
      expect((await wire.ask(request(`PUT ${target}`, [HOST, 'Content-Length: 2'], 'hi'))).status).toBe(201);
    }
    expect((await wire.ask(request('GET http://localhost', [HOST]))).status).toBe(404);
    expect((await wire.ask(request(`GET http://localhost${path}/size?x=http://a/b`, [HOST]))).json).toMatchObject({
      size: 2,
    });
  });

  it.each(['OPTIONS *', 'OPTIONS /api/shop/q', 'TRACE /api/shop/q', 'PATCH /api/shop/q'])(
    '%s is not found',
    async (line) => {
      const wire = await Wire.to(served.api);
      expect(await wire.ask(request(line, [HOST]))).toMatchObject({ status: 404, json: { error: 'api not found' } });
    },
  );

  it('CONNECT opens no tunnel', async () => {
    const wire = await Wire.to(served.api);
    wire.write(request('CONNECT localhost:6379', [HOST]));
    await until(() => wire.hasEnded || wire.wasReset);
    expect(wire.rest).not.toMatch(/ 200 /);
    expect(await publish()).toBe(201);
  });

  it.each([
    ['websocket', ['Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==', 'Sec-WebSocket-Version: 13']],
    ['h2c', ['HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA']],
  ])('Upgrade: %s is answered as without it', async (protocol, headers) => {
    const wire = await Wire.to(served.api);
    const all = [HOST, 'Connection: Upgrade', `Upgrade: ${protocol}`, ...headers];
    for (const _ of upTo(2)) {
      expect(await wire.ask(request(`GET ${fresh()}/size`, all))).toMatchObject({ status: 200, json: { size: 0 } });
    }
  });

  it('HTTP/2 and TLS are refused', async () => {
    for (const bytes of ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', Buffer.from('16030100a5010000a10303', 'hex')]) {
      const wire = await Wire.to(served.api);
      wire.write(bytes);
      await until(() => wire.hasEnded || wire.wasReset);
      expect(wire.rest).toMatch(/^HTTP\/1\.1 400 /);
    }
  });
});
