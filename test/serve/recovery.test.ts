import { describe, expect, it } from 'vitest';
import { Connection, Queue } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { Cluster } from '../support/cluster.js';
import { FaultyProxy } from '../support/proxy.js';
import { key, timePasses } from '../support/redis.js';
import { scriptHash } from '../support/scripts.js';
import { Sentinels } from '../support/sentinel.js';
import { figure, type Served, serve } from '../support/serve.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';
import { request, Wire } from '../support/wire.js';

const QUEUE = 'shop.mail';
const PATH = '/api/shop/mail';

/** How long an answer may take while Redis hangs, ms: a call has 5 s, some are repeated, and some follow another. */
const DEADLINE_MS = 20_000;

/** A clock, ms, which stands still while a busy machine does not let this process run. */
function ownTime(): () => number {
  let ms = 0;
  const ticks = setInterval(() => {
    ms += 10;
  }, 10);
  afterwards(() => clearInterval(ticks));
  return () => ms;
}

const ALWAYS = ['--appendonly', 'yes', '--appendfsync', 'always'];

/** A server until the end of the test. */
async function serving(url: string): Promise<Served> {
  const served = await serve(url, ['--log', 'all']);
  afterwards(() => {
    served.running.child.kill('SIGKILL');
    return served.running.ended;
  });
  return served;
}

/** A server, and a proxy between it and its own Redis. */
async function behindProxy() {
  const redis = await during(Server.start());
  const proxy = await during(FaultyProxy.start(redis.socket));
  return { redis, proxy, served: await serving(proxy.url) };
}

const publish = ({ call }: Served, query = '', body = 'hello') =>
  call('PUT', `${PATH}?ttl=0&tries=9${query}`, { body });
const size = async ({ call }: Served, what = 'size') => (await call('GET', `${PATH}/${what}`)).json;

/** Takes the next job. `left`: how many deliveries it has after this one, of 9. */
async function taken({ call }: Served, query = '') {
  const { status, json } = await call('GET', `${PATH}?${query}`);
  const { job_id: id, remain_tries: left } = json as { job_id: string; remain_tries: number };
  return { status, id, left };
}

async function published(served: Served, query = '', body = 'hello'): Promise<string> {
  const { status, json } = await publish(served, query, body);
  expect(status).toBe(201);
  return (json as { job_id: string }).job_id;
}

/** A client that asks for jobs, and may leave at any moment. */
async function polling(served: Served, query: string): Promise<Wire> {
  const wire = await Wire.to(served.api);
  wire.write(request(`GET ${PATH}?${query}`, ['Host: 127.0.0.1']));
  return wire;
}

const waiting = (served: Served) => figure(served, 'waiting_requests');

/** Resolves when a server knows that the client of a poll has left. */
const hasMissed = ({ running }: Served) => until(() => / GET \/api\/:ns\/:queue gone /.test(running.stderr));

/** A client that leaves while the take for it is under way: Redis runs it only when the server knows that. */
async function leavesDuringTake({ redis, proxy, served }: Awaited<ReturnType<typeof behindProxy>>, query: string) {
  // Loads the script: from now on, calls name its hash.
  await taken(served);
  const id = await published(served);
  proxy.fault = { word: scriptHash('drain'), kind: 'pass', times: 1, before: () => redis.signal('SIGSTOP') };
  const poll = await polling(served, query);
  await until(() => proxy.struck === 1);
  poll.close();
  await hasMissed(served);
  return id;
}

describe.concurrent('while Redis is away', () => {
  it.each<[string, (redis: Server) => unknown, (redis: Server) => unknown]>([
    ['was killed', (redis) => redis.end('SIGKILL'), (redis) => redis.run()],
    ['is frozen', (redis) => redis.signal('SIGSTOP'), (redis) => redis.signal('SIGCONT')],
  ])(
    'every request is answered 503 in time if it %s; all goes on by itself when it is back',
    async (_, leave, back) => {
      const redis = await during(Server.start({ args: ALWAYS }));
      const served = await serving(redis.url);
      const id = await published(served);
      const held = await taken(served, 'ttr=600');
      expect(held).toMatchObject({ status: 200, id, left: 8 });
      const other = await published(served, '&delay=3600');
      const poll = served.call('GET', `${PATH}?timeout=600`);
      await until(async () => (await waiting(served)) === 1);

      await leave(redis);
      const time = ownTime();
      const asked: [string, string, string?][] = [
        ['PUT', PATH, 'x'],
        ['PUT', `${PATH}/bulk`, '[1,2]'],
        ['PUT', `${PATH}/job/${other}?delay=3600`, 'y'],
        ['PUT', `${PATH}/deadletter`],
        ['GET', PATH],
        ['GET', `${PATH},other?timeout=60&count=20`],
        ['GET', `${PATH}/size`],
        ['GET', `${PATH}/peek`],
        ['GET', `${PATH}/job/${id}`],
        ['GET', `${PATH}/deadletter`],
        ['DELETE', `${PATH}/job/none`],
        ['DELETE', `${PATH}/deadletter`],
      ];
      const answers = asked.map(([method, path, body]) =>
        served.call(method, path, body === undefined ? {} : { body }),
      );
      for (const answer of [poll, ...answers])
        expect(await answer).toMatchObject({ status: 503, json: { error: expect.stringContaining('redis') } });
      expect(time()).toBeLessThan(DEADLINE_MS);

      await back(redis);
      const since = ownTime();
      await until(async () => (await served.call('DELETE', `${PATH}/job/${id}`)).status === 204);
      expect(since()).toBeLessThan(DEADLINE_MS);
      expect(await redis.admin.zscore(key(QUEUE, 'active'), id)).toBe(null);
      // The republish was sent or not: one of the two jobs is there.
      const bodies = await redis.admin.hvals(key(QUEUE, 'payload'));
      expect(bodies.filter((body) => body === 'hello' || body === 'y')).toHaveLength(1);
      expect(await publish(served)).toMatchObject({ status: 201 });
      expect(served.running.child.exitCode).toBe(null);
    },
  );

  it('a server that starts before its Redis serves as soon as that is there', async () => {
    const redis = await during(Server.start());
    await redis.end('SIGKILL');
    const served = await serving(redis.url);
    expect(await publish(served)).toMatchObject({ status: 503 });
    await redis.run();
    await until(async () => (await publish(served)).status === 201);
  });

  it('a full Redis refuses publishes with 503, and jobs are delivered and acked', async () => {
    const redis = await during(Server.start());
    const served = await serving(redis.url);
    const id = await published(served);
    await redis.admin.config('SET', 'maxmemory', '1mb');
    expect(await publish(served)).toMatchObject({ status: 503 });
    expect(await served.call('PUT', `${PATH}/job/${id}`, { body: 'y' })).toMatchObject({ status: 503 });
    expect(await taken(served)).toMatchObject({ status: 200, id });
    expect(await served.call('DELETE', `${PATH}/job/${id}`)).toMatchObject({ status: 204 });
    expect(await size(served)).toMatchObject({ size: 0 });
    await redis.admin.config('SET', 'maxmemory', '0');
    await published(served);
  });

  it('a poll waits on when its connections are cut, and gets the job that is published then', async () => {
    const { redis, proxy, served } = await behindProxy();
    const other = await serving(redis.url);
    await until(async () => {
      const poll = taken(served, 'timeout=600');
      await until(async () => (await waiting(served)) === 1);
      expect(proxy.strike('refuse')).toBeGreaterThan(0);
      const id = await published(other);
      const answer = await poll;
      if (answer.status === 200) expect(answer).toMatchObject({ id, left: 8 });
      // A machine that cannot connect again within half a second gets 503, as it should.
      else await until(async () => (await taken(other)).id === id);
      return answer.status === 200;
    }, 90_000);
  });

  it('a poll hears of jobs again after an outage, without waiting for its next look', async () => {
    const { redis, proxy, served } = await behindProxy();
    const poll = taken(served, 'timeout=600');
    await until(async () => (await waiting(served)) === 1);
    const heard = async () =>
      Number(((await redis.admin.pubsub('NUMSUB', `delayq:{${QUEUE}}:wake`)) as unknown[])[1]) > 0;
    await until(heard);
    proxy.strike('refuse');
    await until(async () => !(await heard()));
    await until(heard);
    await published(served);
    expect(await poll).toMatchObject({ status: 200 });
  });
});

describe.concurrent('when another server of Redis takes over', () => {
  it('HTTP goes on by itself after Sentinels have replaced the primary', async () => {
    const redis = await during(Sentinels.start());
    const served = await serving(redis.url);
    const id = await published(served);
    const primary = await redis.primary();
    await primary.copied(1);
    await primary.end('SIGKILL');
    const statuses = new Set<number>();
    await until(async () => {
      const { status } = await publish(served, '&delay=3600');
      statuses.add(status);
      return status === 201;
    }, 60_000);
    expect([...statuses].filter((status) => status !== 201 && status !== 503)).toEqual([]);
    expect(await taken(served)).toMatchObject({ status: 200, id });
    expect(await served.call('DELETE', `${PATH}/job/${id}`)).toMatchObject({ status: 204 });
  });

  it('HTTP goes on by itself after a replica has replaced a master of a cluster, and polls go on', async () => {
    const redis = await during(Cluster.start({ replicas: 1 }));
    const served = await serving(redis.url);
    const id = await published(served);
    const master = await redis.ownerOf(key(QUEUE, 'pending'));
    await master.copied(1, `{${QUEUE}}mark`);
    await master.end('SIGKILL');
    await until(async () => (await taken(served, 'timeout=5')).id === id, 60_000);
    expect(await served.call('DELETE', `${PATH}/job/${id}`)).toMatchObject({ status: 204 });
    expect(await publish(served)).toMatchObject({ status: 201 });
  });
});

describe.concurrent('a client that leaves', () => {
  it.each(['timeout=600', 'timeout=0'])(
    'while the take for it is under way costs nothing: the job goes back (%s)',
    async (query) => {
      const all = await behindProxy();
      const { redis, served } = all;
      const id = await leavesDuringTake(all, query);
      redis.signal('SIGCONT');
      await until(async () => (await figure(served, 'released_jobs_total')) === 1);
      expect(await taken(served, 'timeout=600')).toEqual({ status: 200, id, left: 8 });
    },
  );

  it('while the take for it is under way leaves its job to the next in line', async () => {
    const { redis, proxy, served } = await behindProxy();
    await taken(served);
    const queue = new Connection(redis.url);
    afterwards(() => queue.close());
    await queue.now();
    const first = await polling(served, 'timeout=600');
    await until(async () => (await waiting(served)) === 1);
    const next = await polling(served, 'timeout=600');
    await until(async () => (await waiting(served)) === 2);
    // Between two takes: the next one comes in a second.
    proxy.fault = { word: scriptHash('drain'), kind: 'pass', times: 1 };
    await until(() => proxy.struck === 1);
    await redis.admin.ping();
    redis.signal('SIGSTOP');
    // Redis has it before the next take, and runs both only when the client has left.
    const enqueued = new Queue(queue, QUEUE).enqueue({ id: 'one', payload: 1 });
    proxy.fault = { word: scriptHash('drain'), kind: 'pass', times: 1 };
    await until(() => proxy.struck === 2);
    first.close();
    await hasMissed(served);
    redis.signal('SIGCONT');
    await enqueued;
    expect(await next.answer()).toMatchObject({ status: 200, json: { job_id: 'one', remain_tries: 4 } });
    expect(await figure(served, 'released_jobs_total')).toBe(0);
  });

  it('or breaks its request, after a take from one of its queues: that job goes back', async () => {
    const { redis, proxy, served } = await behindProxy();
    await taken(served);
    const id = await published(served);
    // The second queue is asked when the first one has given its job.
    const before = () => redis.signal('SIGSTOP');
    proxy.fault = { word: '{shop.other}:pending', kind: 'pass', times: 1, before };
    const client = await Wire.to(served.api);
    const headers = ['Host: localhost', 'Transfer-Encoding: chunked'];
    client.write(request(`GET ${PATH},other?count=2`, headers, '1\r\nx\r\n'));
    await until(() => proxy.struck === 1);
    client.write('no chunk\r\n');
    expect(await client.answer()).toMatchObject({ status: 400 });
    redis.signal('SIGCONT');
    expect(await taken(served, 'timeout=600')).toEqual({ status: 200, id, left: 8 });
  });

  it('when the reply of the take was lost: the job comes back after its ttr, as one more delivery', async () => {
    const { redis, proxy, served } = await behindProxy();
    await taken(served);
    const id = await published(served);
    let poll: Wire | undefined;
    proxy.fault = { word: scriptHash('drain'), kind: 'cut', times: 1, before: () => poll?.close() };
    poll = await polling(served, 'ttr=60');
    await until(async () => (await redis.admin.zcard(key(QUEUE, 'active'))) === 1);
    await until(async () => (await taken(served)).status === 404);
    await timePasses(QUEUE, 60_000, redis.admin);
    expect(await taken(served)).toEqual({ status: 200, id, left: 7 });
  });

  it('after the answer, without an ack: the job comes back after its ttr, as one more delivery', async () => {
    const redis = await during(Server.start());
    const served = await serving(redis.url);
    const id = await published(served);
    const poll = await polling(served, 'ttr=60');
    expect(await poll.answer()).toMatchObject({ status: 200, json: { job_id: id } });
    poll.close();
    expect(await taken(served)).toMatchObject({ status: 404 });
    await timePasses(QUEUE, 60_000, redis.admin);
    expect(await taken(served)).toEqual({ status: 200, id, left: 7 });
  });

  it('and resets the connection right after the answer had not read it: the job goes back at once, and nothing counts', async () => {
    const served = await serving((await during(Server.start())).url);
    const id = await published(served);
    const poll = await polling(served, 'ttr=60');
    await poll.answer();
    poll.reset();
    expect(await taken(served, 'timeout=600')).toEqual({ status: 200, id, left: 8 });
  });

  it('and whose job cannot go back, as Redis is away: it comes back when Redis does', async () => {
    const all = await behindProxy();
    const id = await leavesDuringTake(all, 'ttr=60');
    const { redis, proxy, served } = all;
    // The release does not arrive, nor does its repeat, nor the next one.
    proxy.fault = { word: scriptHash('nack'), kind: 'refuse', times: 3 };
    redis.signal('SIGCONT');
    await until(() => proxy.struck === 4);
    expect(await taken(served, 'timeout=600')).toEqual({ status: 200, id, left: 8 });
  });

  it('in the middle of its request publishes nothing', async () => {
    const redis = await during(Server.start());
    const served = await serving(redis.url);
    const wire = await Wire.to(served.api);
    wire.write(request(`PUT ${PATH}`, ['Host: 127.0.0.1', 'Content-Length: 1000'], 'x'.repeat(999)));
    const bulk = await Wire.to(served.api);
    bulk.write(request(`PUT ${PATH}/bulk`, ['Host: 127.0.0.1', 'Transfer-Encoding: chunked'], '4\r\n[1,2\r\n'));
    wire.close();
    bulk.close();
    expect(await published(served)).toEqual(expect.any(String));
    expect(await size(served)).toMatchObject({ size: 1 });
  });
});

describe.concurrent('a server that ends', () => {
  it('by SIGKILL, while a take is under way: the job comes back after its ttr', async () => {
    const { redis, proxy, served } = await behindProxy();
    await taken(served);
    const id = await published(served);
    const before = () => served.running.child.kill('SIGKILL');
    proxy.fault = { word: scriptHash('drain'), kind: 'cut', times: 1, before };
    const poll = await polling(served, 'ttr=60');
    await served.running.ended;
    await until(() => poll.hasEnded || poll.wasReset);
    const other = await serving(redis.url);
    await until(async () => (await redis.admin.zcard(key(QUEUE, 'active'))) === 1);
    await timePasses(QUEUE, 60_000, redis.admin);
    expect(await taken(other)).toEqual({ status: 200, id, left: 7 });
  });

  it('by SIGTERM answers polls that wait with 404, and what runs as ever, with exit 0', async () => {
    const redis = await during(Server.start());
    const served = await serving(redis.url);
    const polls = await Promise.all([polling(served, 'timeout=600'), polling(served, 'timeout=600&count=5')]);
    await until(async () => (await waiting(served)) === 2);
    const slow = await Wire.to(served.api);
    slow.write(request(`PUT ${PATH}?tries=9`, ['Host: 127.0.0.1', 'Content-Length: 5'], 'he'));
    // These, and the one that asks.
    await until(async () => (await figure(served, 'running_requests')) === 4);
    const ended = served.stop();
    for (const poll of polls) expect(await poll.answer()).toMatchObject({ status: 404 });
    slow.write('llo');
    expect(await slow.answer()).toMatchObject({ status: 201 });
    expect(await ended).toMatchObject({ code: 0 });
    const other = await serving(redis.url);
    expect(await taken(other)).toMatchObject({ status: 200, left: 8 });
  });

  it('by SIGTERM, while a take is under way whose client has left: the job goes back before it ends', async () => {
    const all = await behindProxy();
    const { redis, served } = all;
    const id = await leavesDuringTake(all, 'timeout=600');
    served.running.child.kill('SIGTERM');
    await until(() => /stopping/.test(served.running.stderr));
    redis.signal('SIGCONT');
    expect(await served.running.ended).toMatchObject({ code: 0 });
    expect(await taken(await serving(redis.url))).toEqual({ status: 200, id, left: 8 });
  });
});
