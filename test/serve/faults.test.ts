import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Connection, Queue } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { upTo } from '../support/jobs.js';
import { ManualClock } from '../support/manual-clock.js';
import { freshName } from '../support/redis.js';
import { figure, ownRedis, type Served, type ServedHere, type Serving, serve, serveHere } from '../support/serve.js';
import { until } from '../support/until.js';
import { request, Wire } from '../support/wire.js';

const MIB = 1024 * 1024;
const HOST = 'Host: localhost';
const CHUNKED = 'Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n';

let redis: Awaited<ReturnType<typeof ownRedis>>;
let connection: Connection;
/** In the process of this test: it cuts off those who must read why soon. */
let served: ServedHere;
/** In a process of its own, whose memory tells. */
let alone: Served;

beforeAll(async () => {
  redis = await ownRedis();
  connection = new Connection(redis.url);
  served = await serveHere(redis.url, { patience: { lingerMs: 200 } });
  alone = await serve(redis.url, ['--log', 'all']);
});

afterAll(async () => {
  connection.close();
  const { code, stderr } = await alone.stop();
  await served.stop();
  const faults = `${stderr}${served.log}`.match(/.*(internal error| 500 |Error:).*/g);
  expect({ code, faults }).toEqual({ code: 0, faults: null });
});

const fresh = () => `/api/shop/${freshName()}`;
const queueOf = (path: string) => new Queue(connection, path.split('/').slice(2).join('.'));
const dueIn = async (path: string) => (await queueOf(path).counts()).due;
/** What others have of a server that somebody harms. */
const publish = async (to: Serving = served) => (await to.call('PUT', fresh(), { body: 'hello' })).status;

/** How much memory the server has that runs alone, MiB. What proves something needs twice as much, or more. */
function memory(): number {
  const status = readFileSync(`/proc/${alone.running.child.pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) / 1024;
}

/** Opens many connections, and writes the same to each. */
async function wires(count: number, to: Serving, ...parts: readonly (string | Buffer)[]): Promise<Wire[]> {
  const all = await Promise.all(upTo(count).map(() => Wire.to(to.api)));
  for (const wire of all) wire.write(...parts);
  return all;
}

/** A server with little room for bodies, and with few queues: so its metrics are no large answer. */
const small = (maxInFlight: number) => serveHere(redis.url, { maxInFlight, prefix: freshName() });

const close = async (wire: Wire) => until(() => wire.hasEnded || wire.wasReset);

describe.concurrent('a client that is slow', () => {
  /** What a server answers to clients that go on writing a little, while it serves others. */
  async function answersTo(all: readonly Wire[], own: Serving, piece: string) {
    await until(async () => {
      for (const wire of all) if (!wire.hasEnded) wire.write(piece);
      expect(await publish(own)).toBe(201);
      return all.every(({ rest, wasReset }) => rest !== '' || wasReset);
    }, 60_000);
    return Promise.all(all.map((wire) => wire.answer()));
  }

  it('with its headers is cut off, and others are served', async () => {
    const own = await during(serveHere(redis.url, { patience: { headersMs: 1_000, checkMs: 100, lingerMs: 200 } }));
    const since = performance.now();
    const all = await wires(20, own, `GET /healthz HTTP/1.1\r\n${HOST}\r\n`);
    for (const answer of await answersTo(all, own, 'X-Any: 1\r\n'))
      expect(answer).toMatchObject({ status: 408, json: { error: 'request timeout' } });
    expect(performance.now() - since).toBeGreaterThan(900);
    for (const wire of all) await close(wire);
  });

  it('with its body is told so, and nothing is published', async () => {
    const own = await during(serveHere(redis.url, { patience: { requestMs: 1_000, headersMs: 1_000, checkMs: 100 } }));
    const path = fresh();
    const since = performance.now();
    const all = await wires(20, own, request(`PUT ${path}`, [HOST, 'Content-Length: 1000']));
    for (const answer of await answersTo(all, own, 'x'))
      expect(answer).toMatchObject({ status: 408, json: { error: 'request timeout' } });
    expect(performance.now() - since).toBeGreaterThan(900);
    expect(await dueIn(path)).toBe(0);
  });

  it('to take its answers is cut off after a minute', async () => {
    const clock = new ManualClock();
    const own = await during(serveHere(redis.url, { clock }));
    const [client] = (await unread(own, 1, 16)) as [Unread];
    await until(async () => (await figure(own, 'body_bytes')) > 0);
    clock.pass(60_000);
    expect(await figure(own, 'running_requests')).toBeGreaterThan(1);
    clock.pass(10_000);
    await until(async () => (await figure(own, 'running_requests')) === 1);
    expect(own.log).toMatch(/ gone /);
    // What the kernel had taken is there for those who read at last.
    client.read();
    await until(() => client.hasEnded);
    expect(client.statuses).toContain(200);
  });

  it('to take its answers holds little memory, and others are served', async () => {
    const most = 16 * MIB;
    const own = await during(small(most));
    const calls = async () => {
      const infos = await Promise.all((await connection.nodes()).map((node) => node.call('INFO', 'commandstats')));
      return infos.reduce<number>((sum, info) => sum + Number(/evalsha:calls=(\d+)/.exec(String(info))?.[1] ?? 0), 0);
    };
    const before = await calls();
    // They ask for 112 MiB, of which the kernel takes some.
    const requests = 80;
    const all = await unread(own, 8, requests / 8);
    // A peek is two calls, and each look here three more at most. Half of what may be in flight is for answers.
    for (let done = false, looks = 0; !done; looks++) {
      expect(await publish(own)).toBe(201);
      expect(await figure(own, 'body_bytes')).toBeLessThanOrEqual(most / 2);
      done = (await calls()) - before > 2 * requests + 3 * looks;
    }
    for (const client of all) client.read();
    await until(() => all.every(({ statuses }) => statuses.length === requests / 8));
    const statuses = all.flatMap(({ statuses }) => statuses);
    expect(new Set(statuses)).toEqual(new Set([200, 503]));
    await until(async () => (await figure(own, 'body_bytes')) === 0);
  });
});

/** A client that has asked, and does not read yet. */
interface Unread {
  /** What it has been answered, as far as it has read. */
  readonly statuses: readonly number[];
  readonly hasEnded: boolean;
  read(): void;
}

/** Clients that ask many times for a job of 1 MiB, and do not read. */
async function unread({ api, call }: Serving, clients: number, requests: number): Promise<Unread[]> {
  const path = fresh();
  expect((await call('PUT', path, { body: Buffer.alloc(MIB, 'x') })).status).toBe(201);
  const { hostname, port } = new URL(api);
  const peeks = Buffer.concat(upTo(requests).map(() => request(`GET ${path}/peek`, [HOST])));
  return upTo(clients).map(() => {
    const socket = connect({ host: hostname, port: Number(port) }).pause();
    afterwards(() => socket.destroy());
    let rest = '';
    const client = { statuses: [] as number[], hasEnded: false, read: () => void socket.resume() };
    socket
      .on('error', () => {})
      .on('close', () => {
        client.hasEnded = true;
      })
      .on('data', (data) => {
        // No payload looks like this.
        const text = rest + data.toString('latin1');
        for (const [, status] of text.matchAll(/HTTP\/1\.1 (\d{3}) /g)) client.statuses.push(Number(status));
        rest = text.slice(-'HTTP/1.1 200'.length);
      });
    socket.write(peeks);
    return client;
  });
}

describe('a body that is too large', () => {
  const EXPECT = 'Expect: 100-continue';
  const tooLarge = { status: 413, json: { error: 'body too large' } };

  it('is refused before it comes, by its length', async () => {
    const [wire] = (await wires(1, served, request(`PUT ${fresh()}`, [HOST, `Content-Length: ${MIB + 1}`]))) as [Wire];
    expect(await wire.answer()).toMatchObject(tooLarge);
    await until(() => wire.hasEnded);
  });

  it('is refused while it comes, where nobody knows its length', async () => {
    const [wire] = (await wires(1, served, request(`PUT ${fresh()}`, [HOST, 'Transfer-Encoding: chunked']))) as [Wire];
    for (const _ of upTo(17)) wire.write('10000\r\n', Buffer.alloc(65_536, 'x'), '\r\n');
    expect(await wire.answer()).toMatchObject(tooLarge);
    await until(() => wire.hasEnded);
  });

  it.each(['Content-Length', 'chunked'])(
    'is the last request of its connection: none behind it is carried out (%s)',
    async (how) => {
      const path = fresh();
      const body = Buffer.alloc(MIB + 65_536, 'x');
      const [large, behind] = [`PUT ${fresh()}`, request(`PUT ${path}`, [HOST, 'Content-Length: 2'], 'hi')];
      const first =
        how === 'chunked'
          ? Buffer.concat([
              request(large, [HOST, 'Transfer-Encoding: chunked']),
              Buffer.from(`${body.length.toString(16)}\r\n`),
              body,
              Buffer.from('\r\n0\r\n\r\n'),
            ])
          : Buffer.concat([request(large, [HOST, `Content-Length: ${body.length}`]), body]);
      const [wire] = (await wires(1, served, first, behind, behind)) as [Wire];
      const answer = await wire.answer();
      expect(answer).toMatchObject(tooLarge);
      expect(answer.headers.get('connection')).toBe('close');
      await until(() => wire.hasEnded);
      expect(await dueIn(path)).toBe(0);
    },
  );

  it('is not asked for: the client that waits for 100 is told 413', async () => {
    const [wire] = (await wires(
      1,
      served,
      request(`PUT ${fresh()}`, [HOST, EXPECT, `Content-Length: ${MIB + 1}`]),
    )) as [Wire];
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

  it('on a request that needs none ends the connection after 16 MiB', async () => {
    const wire = await Wire.to(served.api);
    wire.write(request(`GET ${fresh()}/size`, [HOST, 'Transfer-Encoding: chunked']));
    const piece = Buffer.concat([Buffer.from('100000\r\n'), Buffer.alloc(MIB, 'x'), Buffer.from('\r\n')]);
    let written = 0;
    await until(() => {
      if (wire.waiting === 0) {
        wire.write(piece);
        written += MIB;
      }
      return wire.wasReset || wire.hasEnded;
    });
    expect((await wire.answer()).status).toBe(200);
    expect(written).toBeGreaterThanOrEqual(16 * MIB);
    // What the kernel takes comes on top.
    expect(written).toBeLessThan(48 * MIB);
  });

  it('does not count once its client has gone', async () => {
    const own = await during(small(8 * MIB));
    // Each round has what may be in flight, if nothing of the one before it stayed.
    for (const _ of upTo(3)) {
      const head = request(`PUT ${fresh()}`, [HOST, `Content-Length: ${MIB}`]);
      const all = await wires(6, own, head, Buffer.alloc(MIB - 1));
      await until(async () => (await figure(own, 'body_bytes')) >= 6 * (MIB - 1));
      for (const wire of all) wire.close();
      await until(async () => (await figure(own, 'body_bytes')) === 0);
    }
    expect(await publish(own)).toBe(201);
  });

  it('does not let other clients in when too much is in flight, until it has ended', async () => {
    const most = 8 * MIB;
    const own = await during(small(most));
    const path = fresh();
    const body = Buffer.alloc(MIB);
    const all = await wires(12, own, request(`PUT ${path}`, [HOST, `Content-Length: ${MIB}`]), body.subarray(1));
    let refusal: Awaited<ReturnType<Serving['call']>> | undefined;
    await until(async () => {
      const bytes = await figure(own, 'body_bytes');
      // Not a number: there was no memory for the answer.
      if (!Number.isNaN(bytes)) expect(bytes).toBeLessThanOrEqual(most);
      refusal = await own.call('PUT', fresh(), { body });
      return refusal.status === 503;
    });
    expect(refusal?.json).toEqual({ error: 'too many bytes in flight' });
    expect(refusal?.headers.get('retry-after')).toBe('1');
    for (const wire of all) wire.write('x');
    const statuses = await Promise.all(all.map(async (wire) => (await wire.answer()).status));
    expect(new Set(statuses)).toEqual(new Set([201, 503]));
    const size = statuses.filter((status) => status === 201).length;
    expect((await own.call('GET', `${path}/size`)).json).toMatchObject({ size });
    expect(await publish(own)).toBe(201);
  });
});

describe('what is no request', () => {
  it('after a request is refused when that has been answered', async () => {
    const path = fresh();
    const [wire] = (await wires(
      1,
      served,
      request(`PUT ${path}`, [HOST, 'Content-Length: 2']),
      'hi\0\x01garbage\r\n\r\n',
    )) as [Wire];
    expect((await wire.answer()).status).toBe(201);
    expect(await wire.answer()).toMatchObject({ status: 400, json: { error: 'bad request' } });
    await close(wire);
    expect(await dueIn(path)).toBe(1);
  });

  it('is not taken for the end of a long poll before it, and costs no memory', async () => {
    const path = fresh();
    const wire = await Wire.to(alone.api);
    wire.write(request(`GET ${path}?timeout=30`, [HOST]), 'garbage\r\n\r\n');
    const before = memory();
    const piece = Buffer.alloc(4 * MIB, 'x');
    for (const _ of upTo(50)) {
      wire.write(piece);
      await until(() => wire.waiting === 0);
    }
    expect(memory() - before).toBeLessThan(100);
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
    const [wire] = (await wires(1, served, bytes)) as [Wire];
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
    const all = await wires(10, served, `GET /healthz HTTP/1.1\r\n${HOST}\r\n${headers}\r\n`);
    for (const wire of all) {
      const { status, headers, json } = await wire.answer();
      expect({ status, json }).toEqual({ status: 431, json: { error: 'request header fields too large' } });
      expect(headers.get('x-request-id')).toMatch(/^[0-9A-HJKMNP-TV-Z]{26}$/);
    }
    expect(await publish()).toBe(201);
  });

  it('a URL that is too long is refused', async () => {
    const [wire] = (await wires(1, served, request(`GET /api/shop/q?x=${'x'.repeat(20_000)}`, [HOST]))) as [Wire];
    expect((await wire.answer()).status).toBe(431);
  });
});

describe('many connections', () => {
  it('1,000 at once are all served, also while they publish', async () => {
    const before = memory();
    const path = fresh();
    const all = await wires(1_000, alone, request(`PUT ${path}`, [HOST, 'Content-Length: 5']), 'hello');
    for (const wire of all) expect((await wire.answer()).status).toBe(201);
    expect(await dueIn(path)).toBe(1_000);
    expect(memory() - before).toBeLessThan(150);
    for (const wire of all) wire.close();
  });

  it('300 that are reset in the middle of anything harm nobody', async () => {
    const path = fresh();
    const texts = [
      'GET /heal',
      `PUT ${path} HTTP/1.1\r\n${HOST}\r\nContent-Le`,
      `PUT ${path} HTTP/1.1\r\n${HOST}\r\nContent-Length: 100\r\n\r\nhello`,
      `GET ${path}?timeout=60 HTTP/1.1\r\n${HOST}\r\n\r\n`,
      `GET ${path}/size HTTP/1.1\r\n${HOST}\r\n\r\n`,
    ];
    const { hostname, port } = new URL(served.api);
    for (const text of texts) {
      const sockets = upTo(60).map(() => connect({ host: hostname, port: Number(port) }).on('error', () => {}));
      await until(() => sockets.every((socket) => !socket.connecting));
      for (const socket of sockets) socket.write(text);
      for (const socket of sockets) socket.resetAndDestroy();
    }
    expect(await publish()).toBe(201);
    await takesNothing(path);
  });

  /** No poll of a client that has gone takes a job: it is there for the next one, and has been for nobody before. */
  async function takesNothing(path: string) {
    await until(async () => (await figure(served, 'running_requests')) === 1);
    const released = await figure(served, 'released_jobs_total');
    const { job_id } = (await served.call('PUT', path, { body: 'hello' })).json as { job_id: string };
    expect(await served.call('GET', path)).toMatchObject({ status: 200, json: { job_id } });
    expect(await figure(served, 'released_jobs_total')).toBe(released);
  }

  it('a client that pipelines too much is cut off, and others are served', async () => {
    const path = fresh();
    const [wire] = (await wires(1, served, ...upTo(200).map(() => request(`GET ${path}?timeout=60`, [HOST])))) as [
      Wire,
    ];
    await close(wire);
    expect(await publish()).toBe(201);
  });

  it('of what such a client pipelines, 64 requests at most are carried out', async () => {
    const path = fresh();
    const puts = upTo(200).map(() => request(`PUT ${path}`, [HOST, 'Content-Length: 2'], 'hi'));
    const [wire] = (await wires(1, served, ...puts)) as [Wire];
    await close(wire);
    expect(await dueIn(path)).toBeLessThanOrEqual(64);
  });

  it('more than --max-connections are cut off', async () => {
    const own = await during(serve(redis.url, ['--max-connections', '5']));
    const held = await Promise.all(upTo(5).map(() => Wire.to(own.api)));
    for (const wire of held) expect((await wire.ask(request(`GET ${fresh()}/size`, [HOST]))).status).toBe(200);
    await close(await Wire.to(own.api));
    await until(() => /refused 1 request: .*--max-connections; the last from 127\.0\.0\.1\n/.test(own.running.stderr));
  });

  it('more connections than there may be are counted, and told a few times', async () => {
    const clock = new ManualClock();
    const own = await during(serveHere(redis.url, { maxConnections: 5, clock }));
    const held = await Promise.all(upTo(5).map(() => Wire.to(own.api)));
    for (const wire of held) expect((await wire.ask(request(`GET ${fresh()}/size`, [HOST]))).status).toBe(200);
    const dropped = async () => {
      const { text } = await own.call('GET', `${own.admin}/metrics`);
      return Number(/refused_requests_total\{reason="connections"\} (\d+)/.exec(text)?.[1] ?? 0);
    };
    for (const _ of upTo(20)) await close(await Wire.to(own.api));
    expect(await dropped()).toBe(20);
    const said = () => {
      const lines = own.log.matchAll(/refused (\d+) requests?: .*--max-connections; the last from 127\.0\.0\.1\n/g);
      return [...lines].map(([, count]) => Number(count));
    };
    expect(said()).toEqual([1]);
    clock.pass(10_000);
    expect(said()).toEqual([1, 19]);
  });

  it('floods of pipelined requests hold up nobody, and their memory is bounded', async () => {
    const before = memory();
    const flood = Buffer.concat(upTo(1_000).map(() => request('GET /api/shop/none/peek', [HOST])));
    const all = await wires(100, alone);
    for (const wire of all) wire.write(flood);
    // A busy machine may let one wait for so long that it is 408.
    await until(async () => (await fetch(`${alone.api}/healthz`)).status === 200);
    for (const wire of all) await close(wire);
    expect(memory() - before).toBeLessThan(400);
    // Of each connection 64 at most are run.
    const { text } = await alone.call('GET', `${alone.admin}/metrics`);
    const run = [...text.matchAll(/^delayq_http_requests_total\{[^}]*\/peek"[^}]*\} (\d+)$/gm)];
    const count = run.reduce((sum, [, count]) => sum + Number(count), 0);
    expect({ count, isFew: count > 100 && count <= 100 * 64 }).toEqual({ count, isFew: true });
  });

  it('a body of one-byte chunks takes no more memory than its bytes', async () => {
    const path = fresh();
    const chunks = Buffer.from('1\r\nx\r\n'.repeat(100_000));
    const all = await wires(4, alone, request(`PUT ${path}`, [HOST, 'Transfer-Encoding: chunked']));
    const before = memory();
    for (const wire of all) for (const _ of upTo(2)) wire.write(chunks);
    // All of it is parsed.
    await until(async () => (await figure(alone, 'body_bytes')) >= 4 * 200_000);
    expect(memory() - before).toBeLessThan(100);
    for (const wire of all) expect((await wire.ask('0\r\n\r\n')).status).toBe(201);
    expect(await dueIn(path)).toBe(4);
  });

  /** Sends all that it has to say, shuts its side, and returns what comes until the server shuts the other one. */
  async function saidTo(all: string | Buffer): Promise<string> {
    const { hostname, port } = new URL(served.api);
    const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
    afterwards(() => socket.destroy());
    let said = '';
    let hasEnded = false;
    socket.on('data', (data) => {
      said += data;
    });
    socket.on('end', () => {
      hasEnded = true;
    });
    socket.end(all);
    await until(() => hasEnded);
    return said;
  }
  const statusesIn = (said: string) => [...said.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status));

  it('a client that shuts its side of the connection gets its answers', async () => {
    const path = fresh();
    const put = `PUT ${path} HTTP/1.1\r\n${HOST}\r\nContent-Length: 2\r\n\r\nhi`;
    const all = await Promise.all(upTo(50).map(() => saidTo(put)));
    expect(all.flatMap(statusesIn)).toEqual(Array(50).fill(201));
    const peek = request(`GET ${path}/peek`, [HOST]);
    expect(statusesIn(await saidTo(put + peek + peek))).toEqual([201, 200, 200]);
    expect(await dueIn(path)).toBe(51);
    // Half a request is none.
    expect(statusesIn(await saidTo(put.slice(0, -1)))).toEqual([400]);
  });

  it('but no job: it may have gone', async () => {
    const path = fresh();
    expect(statusesIn(await saidTo(request(`GET ${path}?timeout=60`, [HOST])))).toEqual([404]);
    await takesNothing(path);
    const put = `PUT ${path} HTTP/1.1\r\n${HOST}\r\nContent-Length: 2\r\n\r\nhi`;
    expect(statusesIn(await saidTo(request(`GET ${path}?timeout=60`, [HOST]) + put))).toEqual([404, 201]);
    expect(await dueIn(path)).toBe(1);
    expect(statusesIn(await saidTo(request(`GET ${path}`, [HOST])))).toEqual([404]);
    const next = await served.call('GET', `${path}?timeout=60`);
    expect(next).toMatchObject({ status: 200, json: { remain_tries: expect.any(Number) } });
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
    [`GET /healthz HTTP/2.0\r\n${HOST}\r\n\r\n`, 400, 'invalid HTTP version'],
    [`PUT /api/shop/q HTTP/1.0\r\n${HOST}\r\n${CHUNKED}`, 400, 'invalid transfer encoding'],
    [`PUT /api/shop/q HTTP/1.1\r\n${HOST}\r\n${CHUNKED.replace(': ', ': gzip, ')}`, 400, 'invalid transfer encoding'],
  ])('%j is %i', async (bytes, status, error) => {
    const wire = await Wire.to(served.api);
    const answer = await wire.ask(bytes);
    expect(answer).toMatchObject({ status, json: { error } });
    const id = answer.headers.get('x-request-id');
    expect(id).toMatch(/^[0-9A-HJKMNP-TV-Z]{26}$/);
    await until(() => wire.hasEnded || wire.wasReset);
    await until(() => served.log.includes(` ${id}\n`));
  });

  it('a target may be a whole URL', async () => {
    const path = fresh();
    const wire = await Wire.to(served.api);
    for (const target of [`http://localhost${path}`, `HTTP://127.0.0.1:7777${path}`]) {
      expect((await wire.ask(request(`PUT ${target}`, [HOST, 'Content-Length: 2'], 'hi'))).status).toBe(201);
    }
    expect((await wire.ask(request('GET http://localhost', [HOST]))).status).toBe(404);
    expect((await wire.ask(request(`GET http://localhost${path}/size?kind=http://a/b`, [HOST]))).json).toMatchObject({
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
