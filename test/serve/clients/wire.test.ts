import { beforeAll, describe, expect, it } from 'vitest';
import { sh } from '../../support/cli.js';
import { idOf, jobOf } from '../../support/lmstfy.js';
import { freshName } from '../../support/redis.js';
import { ownRedis, type Served, serve } from '../../support/serve.js';
import { until } from '../../support/until.js';
import { request, Wire } from '../../support/wire.js';

// How requests may stand on the wire, whatever client wrote them.

let served: Served;

beforeAll(async () => {
  served = await serve((await ownRedis()).url);
});

const fresh = () => `/api/${freshName()}/q`;
const HOST = 'Host: 127.0.0.1';
const get = (path: string, ...headers: string[]) => request(`GET ${path}`, [HOST, ...headers]);
const put = (path: string, body: string | Buffer, ...headers: string[]) =>
  request(`PUT ${path}`, [HOST, `Content-Length: ${Buffer.byteLength(body)}`, ...headers], body);

/** A connection that stays open: somebody who may has asked on it. */
async function admitted(): Promise<Wire> {
  const wire = await Wire.to(served.api);
  expect((await wire.ask(get(`${fresh()}/size`))).status).toBe(200);
  return wire;
}

describe('a request', () => {
  it('may come byte by byte', async () => {
    const wire = await Wire.to(served.api);
    for (const byte of put(fresh(), 'hello')) {
      wire.write(Buffer.from([byte]));
      await new Promise(setImmediate);
    }
    expect((await wire.answer()).status).toBe(201);
  });

  it('may have a chunked body, with extensions and trailers', async () => {
    const path = fresh();
    const wire = await Wire.to(served.api);
    wire.write(request(`PUT ${path}`, [HOST, 'transfer-encoding: chunked']));
    wire.write('5;note=x\r\nhello\r\n', '6\r\n world\r\n', '0\r\nX-Trailer: 1\r\n\r\n');
    expect((await wire.answer()).status).toBe(201);
    expect(jobOf((await wire.ask(get(path))).json).data.toString()).toBe('hello world');
  });

  it('may have a chunked body on GET and DELETE, which is dropped', async () => {
    const path = fresh();
    const wire = await Wire.to(served.api);
    const id = idOf((await wire.ask(put(path, 'x'))).json);
    const chunked = (line: string) => request(line, [HOST, 'Transfer-Encoding: chunked'], '3\r\nabc\r\n0\r\n\r\n');
    expect((await wire.ask(chunked(`GET ${path}/peek`))).status).toBe(200);
    expect((await wire.ask(chunked(`DELETE ${path}/job/${id}`))).status).toBe(204);
    expect((await wire.ask(get(`${path}/size`))).json).toMatchObject({ size: 0 });
  });

  it('a chunked body that is too large is refused while it comes', async () => {
    const wire = await Wire.to(served.api);
    wire.write(request(`PUT ${fresh()}`, [HOST, 'Transfer-Encoding: chunked']));
    const chunk = `10000\r\n${'x'.repeat(0x10000)}\r\n`;
    // Never ended: the answer must not wait for that.
    for (let n = 0; n < 17; n++) wire.write(chunk);
    expect(await wire.answer()).toMatchObject({ status: 413, json: { error: 'body too large' } });
  });

  it.each([2, 8])('a client that writes %i MiB before it reads is told 413, not cut off', async (mebibytes) => {
    const wire = await Wire.to(served.api);
    wire.write(request(`PUT ${fresh()}`, [HOST, `Content-Length: ${mebibytes * 1024 * 1024}`]));
    const piece = Buffer.alloc(64 * 1024, 'x');
    for (let n = 0; n < mebibytes * 16; n++) {
      await until(() => wire.waiting < piece.length || wire.wasReset);
      wire.write(piece);
    }
    await until(() => wire.waiting === 0 || wire.wasReset);
    expect(wire.wasReset).toBe(false);
    expect(await wire.answer()).toMatchObject({ status: 413, json: { error: 'body too large' } });
  });

  it('a refusal before a body was read reaches a client that writes it first', async () => {
    const wire = await Wire.to(served.api);
    const body = Buffer.alloc(1024 * 1024, 'x');
    wire.write(request(`PUT ${fresh()}?delay=x`, [HOST, `Content-Length: ${body.length}`]));
    for (let at = 0; at < body.length; at += 65_536) {
      await until(() => wire.waiting < 65_536 || wire.wasReset);
      wire.write(body.subarray(at, at + 65_536));
    }
    expect(await wire.answer()).toMatchObject({ status: 400, json: { error: 'invalid delay' } });
    expect(wire.wasReset).toBe(false);
  });

  it('several may be sent at once, and are answered in order', async () => {
    const path = fresh();
    const wire = await Wire.to(served.api);
    wire.write(put(path, '1'), put(path, '2'), get(`${path}?timeout=0`), get('/nothing'), get(`${path}/none`));
    const answers = [];
    for (let n = 0; n < 5; n++) answers.push((await wire.answer()).status);
    expect(answers).toEqual([201, 201, expect.any(Number), 404, 404]);
  });

  it('a long poll that is followed by another request is answered first', async () => {
    const path = fresh();
    const wire = await Wire.to(served.api);
    wire.write(get(`${path}?timeout=1`), get(`${path}/size`));
    expect((await wire.answer()).json).toEqual({ msg: 'no job available' });
    expect((await wire.answer()).json).toMatchObject({ size: 0 });
  });

  it('with Connection: close is the last', async () => {
    const wire = await Wire.to(served.api);
    const { status, headers } = await wire.ask(put(fresh(), 'x', 'Connection: close'));
    expect({ status, connection: headers.get('connection') }).toEqual({ status: 201, connection: 'close' });
    await until(() => wire.hasEnded);
  });

  it('may be that of HTTP/1.0', async () => {
    const path = fresh();
    const wire = await Wire.to(served.api);
    wire.write(`PUT ${path} HTTP/1.0\r\n${HOST}\r\nContent-Length: 1\r\n\r\nx`);
    expect((await wire.answer()).status).toBe(201);
    await until(() => wire.hasEnded);
  });

  it('may have header names in any case, its token in the query, and parts that mean nothing', async () => {
    const wire = await Wire.to(served.api);
    const headers = ['hOsT: 127.0.0.1', 'CONTENT-LENGTH: 1', 'x-token:', 'Cookie: a=b', 'Content-Type: nonsense;;'];
    expect(await wire.ask(request(`PUT ${fresh()}?token=abc&&=&Array`, headers, 'x'))).toMatchObject({ status: 201 });
  });

  it('may name its job in 16,000 bytes of a path, not more', async () => {
    const wire = await Wire.to(served.api);
    expect((await wire.ask(get(`${fresh()}/job/${'a'.repeat(8_000)}`))).status).toBe(404);
    expect((await wire.ask(get(`${fresh()}/job/${'a'.repeat(20_000)}`))).status).toBe(431);
  });

  it.each(['HEAD', 'OPTIONS', 'PATCH', 'TRACE'])('%s is answered, and the connection goes on', async (method) => {
    const wire = await admitted();
    wire.write(request(`${method} ${fresh()}`, [HOST]));
    expect((await wire.answer({ bodiless: method === 'HEAD' })).status).toBe(404);
    expect((await wire.ask(put(fresh(), 'x'))).status).toBe(201);
  });

  it.each([
    ['no HTTP', 'hello\r\n\r\n'],
    ['two lengths', `PUT /api/a/b HTTP/1.1\r\n${HOST}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx`],
    [
      'a length and chunks',
      `PUT /api/a/b HTTP/1.1\r\n${HOST}\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    ],
    ['a length that is none', `PUT /api/a/b HTTP/1.1\r\n${HOST}\r\nContent-Length: -1\r\n\r\n`],
    ['a broken chunk', `PUT /api/a/b HTTP/1.1\r\n${HOST}\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n`],
  ])('%s is 400 with a reason, and the connection is closed', async (_what, bytes) => {
    const wire = await Wire.to(served.api);
    const { status, json } = await wire.ask(bytes);
    expect({ status, json }).toEqual({ status: 400, json: { error: expect.any(String) } });
    await until(() => wire.hasEnded || wire.wasReset);
  });

  it('without Host is 400', async () => {
    const wire = await Wire.to(served.api);
    expect((await wire.ask('GET /api/a/b HTTP/1.1\r\n\r\n')).status).toBe(400);
  });

  it.each(['/api/a/%', '/api/a/%zz', '/api/a/%ff', '/api/%2e%2e/q', '//', '/api//q', '/api/a//', '*'])(
    'the path %s is refused, and the server goes on',
    async (path) => {
      const wire = await admitted();
      const { status, json } = await wire.ask(get(path));
      expect([400, 404]).toContain(status);
      expect(json).toEqual({ error: expect.any(String) });
      expect((await wire.ask(put(fresh(), 'x'))).status).toBe(201);
    },
  );

  it('may have an absolute URL as its target', async () => {
    const path = fresh();
    const wire = await Wire.to(served.api);
    expect((await wire.ask(put(`${served.api}${path}`, 'x'))).status).toBe(201);
    expect((await wire.ask(get(`${path}/size`))).json).toMatchObject({ size: 1 });
  });
});

describe('a consumer that goes away', () => {
  const waiting = async () => {
    const { text } = await served.call('GET', `${served.admin}/metrics`);
    return Number(/^delayq_http_waiting\S* (\d+)$/m.exec(text)?.[1]);
  };

  it('while it polls takes no job, and no try of one', async () => {
    const path = fresh();
    const stays = await Wire.to(served.api);
    for (let n = 0; n < 10; n++) {
      const pollers = await Promise.all(Array.from({ length: 5 }, () => Wire.to(served.api)));
      for (const poller of pollers) poller.write(get(`${path},other?timeout=600${n % 2 ? '&count=10' : ''}`));
      await until(async () => (await waiting()) === 5);
      for (const poller of pollers) poller.close();
      await until(async () => (await waiting()) === 0);
      const id = idOf((await served.call('PUT', `${path}?tries=1`, { body: `${n}` })).json);
      expect(jobOf((await stays.ask(get(`${path}?timeout=5`))).json)).toMatchObject({ id, remainTries: 0 });
      expect((await stays.ask(request(`DELETE ${path}/job/${id}`, [HOST]))).status).toBe(204);
    }
  });
});

describe('curl', () => {
  const run = async (line: string) => (await sh(line, { env: { API: served.api } })).stdout;

  it('publishes a file with --upload-file and from stdin, and what -d makes of a text', async () => {
    const path = fresh();
    const write = `-s -o /dev/null -w '%{http_code}'`;
    expect(await run(`printf 'from stdin' | curl ${write} -T - "$API${path}"`)).toBe('201');
    expect(await run(`curl ${write} -X PUT -d 'a=1' -d 'b=2' "$API${path}"`)).toBe('201');
    expect(await run(`curl ${write} -X PUT "$API${path}"`)).toBe('201');
    const jobs = JSON.parse(await run(`curl -s "$API${path}?count=10"`)) as unknown[];
    expect(jobs.map((job) => jobOf(job).data.toString()).sort()).toEqual(['', 'a=1&b=2', 'from stdin']);
  });

  it('is told 413 for a file of 3 MiB', async () => {
    const line = `head -c 3145728 /dev/zero | curl -s -w ' %{http_code}' -X PUT --data-binary @- "$API${fresh()}"`;
    expect(await run(line)).toBe('{"error":"body too large"} 413');
  });

  it('--compressed and HTTP/1.0 make no difference', async () => {
    const path = fresh();
    expect(await run(`curl -s --compressed -0 "$API${path}"`)).toBe('{"msg":"no job available"}');
  });
});
