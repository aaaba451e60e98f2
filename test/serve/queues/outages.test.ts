import { describe, expect, it } from 'vitest';
import { Connection } from '../../../src/index.js';
import { Tokens } from '../../../src/serve/access/tokens.js';
import { afterwards, during } from '../../support/afterwards.js';
import { Cluster } from '../../support/cluster.js';
import { FaultyProxy } from '../../support/proxy.js';
import { freshName, key } from '../../support/redis.js';
import { figure, type Served, type Serving, serve, serveHere } from '../../support/serve.js';
import { Server } from '../../support/server.js';
import { until } from '../../support/until.js';

/** A Redis of its own, and a server in front of it. */
async function started(): Promise<{ redis: Server; served: Served }> {
  const redis = await during(Server.start());
  const served = await during(serve(redis.url));
  expect((await publish(served)).status).toBe(201);
  expect((await served.call('GET', '/api/ns/q')).status).toBe(200);
  return { redis, served };
}

const publish = (served: Serving) => served.call('PUT', '/api/ns/q', { body: 'x' });

/** Told of calls of Redis that are not answered, one after the other: what waits for one of them ends before the second. */
function twoCalls(redis: Server): { areOver: boolean } {
  const connection = new Connection(redis.url);
  afterwards(() => connection.close());
  const calls = { areOver: false };
  const fails = () => connection.now().catch(() => {});
  void fails()
    .then(fails)
    .then(() => {
      calls.areOver = true;
    });
  return calls;
}

const isWaiting = async (served: Serving) => (await figure(served, 'waiting_requests')) === 1;

it('a server that stood still takes no Redis for silent whose answer is there', async () => {
  const redis = await during(Server.start());
  const served = await serveHere(redis.url);
  afterwards(() => served.stop());
  expect((await publish(served)).status).toBe(201);
  expect((await served.call('GET', '/api/ns/q')).status).toBe(200);
  redis.signal('SIGSTOP');
  const polling = served.call('GET', '/api/ns/q,a?timeout=10');
  // It asks Redis before these are answered, which need none.
  for (let n = 0; n < 3; n++) await fetch(`${served.api}/healthz`);
  redis.signal('SIGCONT');
  // Longer than a request for several queues waits for a silent Redis. It is in this process.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_200);
  expect((await publish(served)).status).toBe(201);
  expect(await polling).toMatchObject({ status: 200 });
});

describe.concurrent('a server whose Redis is away', () => {
  it('answers 503 while Redis is gone, and goes on when it is back', async () => {
    const { redis, served } = await started();
    const waiting = served.call('GET', '/api/ns/q?timeout=600');
    await until(() => isWaiting(served));
    await redis.end('SIGKILL');
    // At the next poll, and a second later at most: not when the request's own time is over.
    expect(await waiting).toMatchObject({ status: 503, json: { error: expect.stringContaining('redis') } });
    for (const path of ['/api/ns/q', '/api/ns/a,b?count=3']) expect((await served.call('GET', path)).status).toBe(503);
    const refused = await publish(served);
    expect(refused).toMatchObject({ status: 503 });
    expect(refused.headers.get('retry-after')).toBe('1');
    await redis.run();
    await until(async () => (await publish(served)).status === 201);
    expect((await served.call('GET', '/api/ns/q')).status).toBe(200);
  });

  it('holds the 503 of clients that wanted to wait: they would ask again at once', async () => {
    const { redis, served } = await started();
    await redis.end('SIGKILL');
    await until(async () => (await publish(served)).status === 503);
    const since = performance.now();
    const answers = [1, 2, 3].map(async () => {
      expect((await served.call('GET', '/api/ns/q?timeout=600')).status).toBe(503);
      expect(performance.now() - since).toBeGreaterThan(450);
    });
    await Promise.all(answers);
  });

  it('a request whose wait began during an outage is answered with a job when that is over in time', async () => {
    const { redis, served } = await started();
    await redis.end('SIGKILL');
    await until(async () => (await publish(served)).status === 503);
    const answers: number[] = [];
    const asking = (async () => {
      while (!answers.includes(200)) answers.push((await served.call('GET', '/api/ns/q?timeout=60')).status);
    })();
    await until(() => answers.length > 0);
    await redis.run();
    await until(async () => (await publish(served)).status === 201);
    await asking;
    expect(new Set(answers)).toEqual(new Set([503, 200]));
  });

  it('answers 503 within the time limit of a call when Redis hangs, then at once, and goes on when it wakes', async () => {
    const redis = await during(Server.start());
    const proxy = await during(FaultyProxy.start(redis.socket));
    const served = await during(serve(proxy.url));
    expect((await publish(served)).status).toBe(201);
    expect((await served.call('GET', '/api/ns/q')).status).toBe(200);
    const waiting = served.call('GET', '/api/ns/q?timeout=600');
    await until(() => isWaiting(served));
    redis.signal('SIGSTOP');
    const calls = twoCalls(redis);
    // Whether there was a job within its second, nobody knows.
    const short = served.call('GET', '/api/ns/other?timeout=1');
    expect((await waiting).status).toBe(503);
    expect((await short).status).toBe(503);
    expect(calls.areOver).toBe(false);
    // At once is without a call of their own.
    proxy.fault = { word: '{ns.q}', kind: 'pass', times: Number.POSITIVE_INFINITY };
    await until(async () => {
      const before = proxy.struck;
      await publish(served);
      return proxy.struck === before;
    });
    const before = proxy.struck;
    const later = await Promise.all(Array.from({ length: 20 }, () => publish(served)));
    expect(later.map(({ status }) => status)).toEqual(Array(20).fill(503));
    expect(proxy.struck).toBe(before);
    redis.signal('SIGCONT');
    await until(async () => (await publish(served)).status === 201);
  });

  it('publishes that Redis does not answer are told their ids soon, and that they may be there', async () => {
    const { redis, served } = await started();
    // Redis knows the script from now on.
    await served.call('PUT', '/api/ns/q/job/other', { body: 'x' });
    await served.call('GET', '/api/ns/q');
    redis.signal('SIGSTOP');
    const calls = twoCalls(redis);
    const answers = await Promise.all([
      ...Array.from({ length: 5 }, () => publish(served)),
      served.call('PUT', '/api/ns/q/bulk', { body: '[1,2]' }),
      served.call('PUT', '/api/ns/q/job/other', { body: 'x' }),
    ]);
    redis.signal('SIGCONT');
    expect(calls.areOver).toBe(false);
    expect(answers.map(({ status }) => status)).toEqual(Array(7).fill(503));
    // Of the publishes, some may have waited for the first ones, and were not sent.
    const told = answers.map(({ json }) => (json as { job_ids?: string[] }).job_ids ?? []);
    expect(told.map((ids) => ids.length)).toEqual([1, ...Array(4).fill(expect.any(Number)), 2, 1]);
    const ids = told.flat().sort();
    expect(new Set(ids).size).toBe(ids.length);
    // Redis read them before it stopped, and stores them when it goes on.
    await until(async () => {
      const { status, json } = await served.call('GET', '/api/ns/q/size');
      return status === 200 && (json as { size: number }).size === ids.length;
    });
    const taken = (await served.call('GET', '/api/ns/q?count=100')).json as { job_id: string }[];
    expect(taken.map(({ job_id }) => job_id).sort()).toEqual(ids);
  });

  it('no request waits longer than one call may take when Redis hangs: acks and nacks, with tokens and limits', async () => {
    const redis = await during(Server.start());
    const connection = new Connection(redis.url);
    afterwards(() => connection.close());
    const tokens = new Tokens(connection, 'delayq');
    const limited = { 'X-Token': await tokens.add('ns', { limits: { read: 100, write: 100, interval: 60 } }) };
    const proxy = await during(FaultyProxy.start(redis.socket));
    const served = await during(serve(proxy.url));
    const call = (method: string, path: string, init: RequestInit = {}) =>
      served.call(method, `/api/ns/q${path}`, { headers: limited, ...init });
    await call('PUT', '/bulk', { body: '[1,2,3]' });
    const { json } = await call('GET', '?count=3&receipts=1');
    const held = (json as { job_id: string; receipt: string }[]).map(({ job_id, receipt }) => ({
      path: `/job/${job_id}`,
      init: { headers: { ...limited, 'X-Receipt': receipt } },
      body: JSON.stringify([{ id: job_id, receipt }]),
    }));
    const [first, second, third] = held as [(typeof held)[0], (typeof held)[0], (typeof held)[0]];
    redis.signal('SIGSTOP');
    const calls = twoCalls(redis);
    const publishes = [call('PUT', '', { body: 'x' })];
    const others = [
      call('DELETE', first.path, first.init),
      call('POST', `${second.path}/nack`, second.init),
      call('POST', `${second.path}/renew`, second.init),
      call('POST', '/ack', { body: third.body }),
      call('GET', '/size'),
    ];
    // While the limit is asked for the first one.
    await until(async () => (await figure(served, 'running_requests')) === 7);
    publishes.push(call('PUT', '', { body: 'x' }));
    for (const answer of await Promise.all([...publishes, ...others]))
      expect(answer).toMatchObject({ status: 503, json: { error: expect.stringContaining('redis') } });
    expect(calls.areOver).toBe(false);
    // From now on nothing of theirs is sent, not even to look for their tokens.
    proxy.fault = { word: 'ns.q', kind: 'pass', times: Number.POSITIVE_INFINITY };
    await until(async () => {
      const before = proxy.struck;
      await call('GET', '/size');
      return proxy.struck === before;
    });
    proxy.fault = { word: 'HGET', kind: 'pass', times: Number.POSITIVE_INFINITY };
    const before = proxy.struck;
    expect((await call('PUT', '', { body: 'x' })).status).toBe(503);
    const unknown = { 'X-Token': 'one that the server has not met' };
    expect((await call('PUT', '', { body: 'x', headers: unknown })).status).toBe(503);
    expect(proxy.struck).toBe(before);
    expect((await served.call('GET', '/openapi.json')).status).toBe(200);
  });

  it('jobs of a take whose reply was lost come back when their ttr is over', async () => {
    const redis = await during(Server.start());
    const proxy = await during(FaultyProxy.start(redis.socket));
    const served = await during(serve(proxy.url));
    // Redis knows the script from now on.
    expect((await served.call('GET', '/api/ns/q')).status).toBe(404);
    expect((await served.call('PUT', '/api/ns/q?tries=2', { body: 'x' })).status).toBe(201);
    proxy.fault = { word: '{ns.q}:pending', kind: 'cut', times: 1 };
    expect((await served.call('GET', '/api/ns/q?ttr=1')).status).toBe(503);
    const { status, json } = await served.call('GET', '/api/ns/q?timeout=30');
    expect({ status, json }).toMatchObject({ status: 200, json: { remain_tries: 0 } });
  });

  it('a request for several queues goes on without one that cannot be used, and says so only if none had a job', async () => {
    const { redis, served } = await started();
    await redis.admin.set('delayq:{ns.bad}:pending', 'not a set');
    await redis.admin.set('delayq:{ns.worse}:pending', 'not a set');
    const none = await Promise.all(
      ['bad,good', 'good,bad', 'bad,worse', 'bad'].map((queues) => served.call('GET', `/api/ns/${queues}`)),
    );
    expect(none.map(({ status }) => status)).toEqual([500, 500, 500, 500]);
    for (const queues of ['bad,good', 'good,bad', 'bad,good,worse']) {
      const waiting = served.call('GET', `/api/ns/${queues}?timeout=60`);
      await until(() => isWaiting(served));
      await served.call('PUT', '/api/ns/good', { body: queues });
      expect(await waiting).toMatchObject({ status: 200, json: { queue: 'good' } });
      await served.call('PUT', '/api/ns/good', { body: queues });
      expect(await served.call('GET', `/api/ns/${queues}`)).toMatchObject({ status: 200, json: { queue: 'good' } });
    }
    expect(await served.call('GET', '/api/ns/bad,worse?timeout=60')).toMatchObject({ status: 500 });
    expect(await served.call('GET', '/api/ns/bad,good?timeout=1')).toMatchObject({ status: 500 });
  });

  it('a request for several queues goes on without those of a frozen node, and none of their jobs is lost', async () => {
    const redis = await during(Cluster.start({ nodeTimeoutMs: 60_000 }));
    const served = await during(serve(redis.url));
    const nodeOf = (queue: string) => redis.ownerOf(key(`ns.${queue}`, 'pending'));
    const listed = await redis.ownerOf('delayq:queues');
    const named = async (isRight: (node: Server) => boolean) => {
      for (;;) {
        const name = freshName();
        if (isRight(await nodeOf(name))) return name;
      }
    };
    const frozen = await named((node) => node !== listed);
    const node = await nodeOf(frozen);
    const other = await named((one) => one !== node);
    for (const queue of [frozen, other, other, other])
      expect((await served.call('PUT', `/api/ns/${queue}`, { body: queue })).status).toBe(201);
    node.signal('SIGSTOP');
    // Before the node's time limit of 5 s is over. The first finds out that it is silent; the others do not ask it.
    for (let n = 0; n < 3; n++) {
      const job = await served.call('GET', `/api/ns/${frozen},${other}?timeout=4`);
      expect(job).toMatchObject({ status: 200, json: { queue: other } });
    }
    expect((await served.call('GET', `/api/ns/${frozen},${other}`)).status).toBe(503);
    node.signal('SIGCONT');
    // What the node had taken for them is given back.
    await until(async () => (await served.call('GET', `/api/ns/${frozen},${other}?timeout=1`)).status === 200);
  });
});
