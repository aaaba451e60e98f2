import { describe, expect, it } from 'vitest';
import { during } from '../support/afterwards.js';
import { jobOf } from '../support/lmstfy.js';
import { freshName, redisUrl } from '../support/redis.js';
import { serve } from '../support/serve.js';
import { until } from '../support/until.js';
import { request, Wire } from '../support/wire.js';

// What clients see while `delayq serve` stops. Each server has its own prefix: it must not know of tokens of others.

const start = (...args: string[]) => during(serve(redisUrl, ['--prefix', freshName(), ...args]));
const HOST = 'Host: 127.0.0.1';
const get = (path: string) => request(`GET ${path}`, [HOST]);

describe('a server that gets SIGTERM', { concurrent: true }, () => {
  it('answers long polls at once, closes their connections and idle ones, and exits 0', async () => {
    const served = await start();
    const [polling, idle] = [await Wire.to(served.api), await Wire.to(served.api)];
    await idle.ask(get('/api/ns/q/size'));
    polling.write(get('/api/ns/q?timeout=600'));
    // Redis has answered the poll before these: it sleeps.
    for (let i = 0; i < 3; i++) await idle.ask(get('/api/ns/q/size'));
    const ended = served.stop();
    const { status, headers, json } = await polling.answer();
    expect({ status, json }).toEqual({ status: 404, json: { msg: 'no job available' } });
    expect(headers.get('connection')).toBe('close');
    expect(await ended).toMatchObject({ code: 0, stdout: '' });
    await until(() => idle.hasEnded || idle.wasReset);
  });

  it('takes what a client is still sending, and answers it', async () => {
    const served = await start();
    const wire = await Wire.to(served.api);
    wire.write(request('PUT /api/ns/q', [HOST, 'Content-Length: 10']), 'hello');
    // A poll that is answered tells that the server is stopping.
    const polling = await Wire.to(served.api);
    polling.write(get('/api/ns/other?timeout=600'));
    await until(async () => (await served.call('GET', '/api/ns/other/size')).status === 200);
    const ended = served.stop();
    await polling.answer();
    expect(served.running.child.exitCode).toBe(null);
    expect(await wire.ask('world')).toMatchObject({ status: 201 });
    expect(await ended).toMatchObject({ code: 0 });
  });

  it('answers clients that publish one job after the other, and resets none', async () => {
    const served = await start();
    const wires = await Promise.all(Array.from({ length: 20 }, () => Wire.to(served.api)));
    let published = 0;
    const clients = wires.map(async (wire, n) => {
      for (;;) {
        const { status, headers } = await wire.ask(request(`PUT /api/ns/q${n}`, [HOST, 'Content-Length: 2'], 'hi'));
        expect(status).toBe(201);
        published++;
        if (headers.get('connection') === 'close') return;
      }
    });
    await until(() => published > 200);
    const ended = served.stop();
    await Promise.all(clients);
    expect(await ended).toMatchObject({ code: 0 });
  });

  it('says 503 to health checks on connections that are open', async () => {
    const served = await start('--grace', '20s');
    const [wire, slow, polling] = await Promise.all([1, 2, 3].map(() => Wire.to(served.api)));
    // Keeps the server from its end.
    slow?.write(request('PUT /api/ns/q', [HOST, 'Content-Length: 1']));
    polling?.write(get('/api/ns/other?timeout=600'));
    wire?.write('GET /healthz HTTP/1.1\r\n');
    await until(async () => (await served.call('GET', '/api/ns/other/size')).status === 200);
    const ended = served.stop();
    await polling?.answer();
    expect(await wire?.ask(`${HOST}\r\n\r\n`)).toMatchObject({ status: 503 });
    slow?.write('x');
    expect(await ended).toMatchObject({ code: 0 });
  });

  it('waits no longer than its grace for a client that sends nothing more', async () => {
    const served = await start('--grace', '1s');
    const wire = await Wire.to(served.api);
    wire.write(request('PUT /api/ns/q', [HOST, 'Content-Length: 10']), 'hello');
    await until(async () => (await served.call('GET', '/api/ns/q/size')).status === 200);
    const { stderr } = await served.stop();
    expect(stderr).toMatch(/stopping/);
    await until(() => wire.hasEnded || wire.wasReset);
  });

  it('leaves its jobs to the next one', async () => {
    const prefix = freshName();
    const first = await during(serve(redisUrl, ['--prefix', prefix]));
    await first.call('PUT', '/api/ns/q?tries=1', { body: 'x' });
    const polling = await Wire.to(first.api);
    polling.write(get('/api/ns/other?timeout=600'));
    await first.stop();
    const second = await during(serve(redisUrl, ['--prefix', prefix]));
    expect(jobOf((await second.call('GET', '/api/ns/q')).json)).toMatchObject({ remainTries: 0 });
  });
});
