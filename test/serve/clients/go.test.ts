import { beforeAll, describe, expect, it } from 'vitest';
import { idOf, jobOf, nearly } from '../../support/lmstfy.js';
import { freshName, timePasses } from '../../support/redis.js';
import { ownRedis, type Served, serve } from '../../support/serve.js';
import { request, Wire } from '../../support/wire.js';

// The requests of lmstfy's Go client, as net/http writes them, on one connection that it keeps.

let redis: Awaited<ReturnType<typeof ownRedis>>;
let served: Served;

beforeAll(async () => {
  redis = await ownRedis();
  served = await serve(redis.url);
});

/** One client: its namespace and its connection. */
async function newClient(token = '') {
  const wire = await Wire.to(served.api);
  const namespace = freshName();
  const send = (method: string, path: string, body?: string | Buffer, more: string[] = []) => {
    const length = body !== undefined || method === 'PUT' ? [`Content-Length: ${Buffer.byteLength(body ?? '')}`] : [];
    const headers = [
      `Host: ${new URL(served.api).host}`,
      'User-Agent: Go-http-client/1.1',
      ...length,
      ...more,
      `X-Token: ${token}`,
      'Accept-Encoding: gzip',
    ];
    return wire.ask(request(`${method} /api/${namespace}/${path}`, headers, body));
  };
  return {
    namespace,
    wire,
    send,
    pass: (queue: string, ms: number) => timePasses(`${namespace}.${queue}`, ms, redis.admin),
    async publish(queue: string, body: string | Buffer, query = 'delay=0&tries=1&ttl=0') {
      const { status, json } = await send('PUT', `${queue}?${query}`, body);
      expect(status).toBe(201);
      return idOf(json);
    },
    async consume(queues: string, query = 'freeze_tries=false&timeout=0&ttr=10') {
      const { status, json } = await send('GET', `${queues}?${query}`);
      return status === 404 ? undefined : jobOf(json);
    },
  };
}

describe('the Go client', () => {
  it('publishes, consumes and acks on one connection', async () => {
    const { wire, send, publish, consume, namespace } = await newClient();
    const id = await publish('q', 'hello');
    expect(await consume('q')).toMatchObject({ id, namespace, queue: 'q', data: Buffer.from('hello'), ttl: 0 });
    const { status, body } = await send('DELETE', `q/job/${id}`);
    expect({ status, length: body.length }).toEqual({ status: 204, length: 0 });
    expect(await consume('q')).toBeUndefined();
    expect(wire.hasEnded).toBe(false);
  });

  it('sends freeze_tries with every consume, true or false', async () => {
    const { publish, consume } = await newClient();
    const id = await publish('q', 'x', 'delay=0&tries=2&ttl=0');
    expect(await consume('q', 'freeze_tries=true&timeout=1&ttr=30')).toMatchObject({ id });
  });

  it('publishes an empty job with Content-Length: 0', async () => {
    const { publish, consume } = await newClient();
    await publish('q', '');
    expect(await consume('q')).toMatchObject({ data: Buffer.alloc(0) });
  });

  it('republishes a job that it holds: the new one has its own ttl at once', async () => {
    const { send, publish, consume } = await newClient();
    const old = await publish('q', 'hello');
    await consume('q', 'freeze_tries=false&timeout=1&ttr=5');
    const { status, json } = await send('PUT', `q/job/${old}?delay=0&tries=1&ttl=1000`, 'hello');
    expect(status).toBe(201);
    expect(idOf(json)).not.toBe(old);
    expect(await consume('q', 'freeze_tries=false&timeout=1&ttr=5')).toMatchObject({
      id: idOf(json),
      ttl: nearly(1_000),
    });
  });

  it('publishes a batch as json.Marshal writes it, and finds every value as it wrote it', async () => {
    const { send, consume } = await newClient();
    const values = ['"hello msg \\u003c\\u0026"', '123456', '{"msg":"success"}', '["foo","bar"]', 'true', '1e+21'];
    const { status, json } = await send('PUT', 'q/bulk?delay=0&tries=1&ttl=10', `[${values}]`);
    expect(status).toBe(201);
    const { job_ids } = json as { job_ids: string[] };
    for (const _ of values) {
      const job = await consume('q', 'freeze_tries=false&timeout=1&ttr=5');
      expect(job?.data.toString()).toBe(values[job_ids.indexOf(job?.id as string)]);
    }
  });

  it('reads a batch of one as an object, and larger ones as arrays', async () => {
    const { send, publish } = await newClient();
    for (let n = 0; n < 4; n++) await publish('q', 'hello');
    const batch = async (count: number) =>
      (await send('GET', `q?count=${count}&freeze_tries=false&timeout=3&ttr=3`)).json;
    expect(jobOf(await batch(1)).data.toString()).toBe('hello');
    expect(((await batch(2)) as unknown[]).map((job) => jobOf(job).data.toString())).toEqual(['hello', 'hello']);
    expect((await batch(100)) as unknown[]).toHaveLength(1);
  });

  it('waits for a batch that stays empty', async () => {
    const { send } = await newClient();
    const since = performance.now();
    const { status } = await send('GET', 'q?count=3&freeze_tries=false&timeout=1&ttr=3');
    expect(status).toBe(404);
    expect(performance.now() - since).toBeGreaterThanOrEqual(1_000);
  });

  it('takes from several queues, whose commas are not escaped', async () => {
    const { publish, consume } = await newClient();
    await publish('q1', 'hello1');
    const id = await publish('q2', 'hello2');
    expect(await consume('q2,q1', 'freeze_tries=false&timeout=1&ttr=10')).toMatchObject({ id, queue: 'q2' });
  });

  it('acks in the wrong queue without an error', async () => {
    const { send, publish, consume } = await newClient();
    await publish('q', 'hello');
    const job = await consume('q');
    expect((await send('DELETE', `other/job/${job?.id}`)).status).toBe(204);
    expect((await send('GET', `q/job/${job?.id}`)).status).toBe(200);
  });

  it('reads sizes and peeks: the job published first is the head', async () => {
    const { send, publish } = await newClient();
    const id = await publish('q', 'hello1');
    await publish('q', 'hello2');
    expect(jobOf((await send('GET', 'q/peek')).json)).toMatchObject({ id, data: Buffer.from('hello1') });
    expect(jobOf((await send('GET', `q/job/${id}`)).json)).toMatchObject({ id });
    expect((await send('GET', 'q/size')).json).toMatchObject({ namespace: expect.any(String), queue: 'q', size: 2 });
  });

  it('reads, respawns and deletes dead letters; PUT has no body, but a length', async () => {
    const { send, publish, consume, pass } = await newClient();
    const die = async () => {
      const id = await publish('q', 'hello1');
      await consume('q', 'freeze_tries=false&timeout=0&ttr=1');
      await pass('q', 2_000);
      return id;
    };
    const id = await die();
    expect((await send('GET', 'q/deadletter')).json).toMatchObject({ deadletter_size: 1, deadletter_head: id });
    expect((await send('PUT', 'q/deadletter?limit=2&ttl=120')).json).toMatchObject({ count: 1 });
    expect(await consume('q', 'freeze_tries=false&timeout=0&ttr=1')).toMatchObject({ id, data: Buffer.from('hello1') });
    await pass('q', 2_000);
    expect((await send('DELETE', 'q/deadletter?limit=2')).status).toBe(204);
    expect((await send('GET', `q/job/${id}`)).status).toBe(404);
    expect((await send('GET', 'q/deadletter')).json).toMatchObject({ deadletter_size: 0, deadletter_head: '' });
  });

  it('publishes attributes, whose values are UTF-8 as they are', async () => {
    const { send, consume } = await newClient();
    const more = ['Enable-Job-Version: YES', 'Job-Attr-Trace_id: 42', 'Job-Attr-Place: Zürich ✓'];
    expect((await send('PUT', 'q?delay=0&tries=1&ttl=0', 'x', more)).status).toBe(201);
    expect(await consume('q')).toMatchObject({ attributes: { trace_id: '42', place: 'Zürich ✓' } });
  });

  it.each([
    ['PUT', 'q?delay=5&tries=1&ttl=4', 400],
    ['PUT', 'q/bulk?delay=0&tries=1&ttl=0', 400],
    ['PUT', '_q?delay=0&tries=1&ttl=0', 400],
    ['GET', 'q?freeze_tries=false&timeout=x&ttr=10', 400],
  ])('reads a reason in JSON where %s %s is refused', async (method, path, status) => {
    const { send } = await newClient();
    const { headers, ...answer } = await send(method, path);
    expect(answer).toMatchObject({ status, json: { error: expect.stringMatching(/./) } });
    expect(headers.get('x-request-id')).toHaveLength(26);
  });

  it('keeps its connection after a refusal', async () => {
    const { wire, send, publish } = await newClient();
    await send('PUT', 'q?delay=x&tries=1&ttl=0', 'hello');
    await send('GET', 'nothing?freeze_tries=false&timeout=0&ttr=1');
    await publish('q', 'hello');
    expect(wire.hasEnded).toBe(false);
  });
});
