import { expect, it } from 'vitest';
import { Connection, Inspector, Operator, Queue } from '../../../src/index.js';
import { afterwards, during } from '../../support/afterwards.js';
import { FaultyProxy } from '../../support/proxy.js';
import { onCluster } from '../../support/redis.js';
import { ownRedis, type Served, serve } from '../../support/serve.js';
import type { Server } from '../../support/server.js';
import { until } from '../../support/until.js';
import { request, Wire } from '../../support/wire.js';

const redis = await ownRedis();
const shared = await serve(redis.url);
const connection = new Connection(redis.url);
const inspector = new Inspector(connection);
let last = 0;

/** A queue of its own for a test: its name here and there, and its path in the API. */
function place() {
  const name = `q${++last}`;
  return { name, path: `/api/ns/${name}`, queue: new Queue(connection, `ns.${name}`) };
}

const publish = (path: string, body = 'x', query = '') => shared.call('PUT', `${path}${query}`, { body });

/** A client that asks for jobs, on a connection of its own. */
async function asking(path: string, { api } = shared): Promise<Wire> {
  const wire = await Wire.to(api);
  wire.write(request(`GET ${path}`, ['Host: localhost']));
  return wire;
}

async function metric(name: string, { admin } = shared): Promise<number> {
  const text = await (await fetch(`${admin}/metrics`)).text();
  return Number(new RegExp(`^delayq_http_${name} (\\d+)$`, 'm').exec(text)?.[1]);
}

/** Waits until so many requests wait for jobs. */
const untilWaiting = (count: number, served = shared) =>
  until(async () => (await metric('waiting_requests', served)) === count);

/** The jobs of a queue that can be taken, each with how often it was delivered. */
async function ready(queue: Queue): Promise<{ id: string; attempts: number }[]> {
  const jobs = [];
  for await (const { id, attempts } of inspector.list(queue.name, { states: ['pending'] })) jobs.push({ id, attempts });
  return jobs;
}

const bodyOf = (json: unknown) => Buffer.from((json as { data: string }).data, 'base64').toString();

it('a request that waits gets a job as soon as it is published', async () => {
  const { path } = place();
  const client = await asking(`${path}?timeout=30`);
  await untilWaiting(1);
  // The first job is found by a poll at the latest; by then the channel of the queue is heard.
  await publish(path, 'first');
  expect(bodyOf((await client.answer()).json)).toBe('first');
  // By polls it would take a second each time.
  await until(async () => {
    const again = await asking(`${path}?timeout=30`);
    await untilWaiting(1);
    const began = performance.now();
    await publish(path, 'second');
    expect(bodyOf((await again.answer()).json)).toBe('second');
    return performance.now() - began < 500;
  });
});

it('a request that waits gets a job when it falls due', async () => {
  const { path } = place();
  const client = await asking(`${path}?timeout=30`);
  await untilWaiting(1);
  await publish(path, 'later', '?delay=1200ms');
  const { json } = await client.answer();
  expect((json as { elapsed_ms: number }).elapsed_ms).toBeGreaterThanOrEqual(1_190);
});

it('the request that has waited longest gets the first job, and the others go on waiting', async () => {
  const { path } = place();
  const clients: Wire[] = [];
  for (let i = 1; i <= 3; i++) {
    clients.push(await asking(`${path}?timeout=30`));
    await untilWaiting(i);
  }
  for (const [i, client] of clients.entries()) {
    await publish(path, String(i));
    expect(bodyOf((await client.answer()).json)).toBe(String(i));
    await untilWaiting(2 - i);
  }
});

it('many requests that wait for a queue cost one call in a poll interval', async () => {
  const { path, queue } = place();
  await Promise.all(Array.from({ length: 300 }, () => asking(`${path}?timeout=60`)));
  await untilWaiting(300);
  const calls = async () => Number(/evalsha:calls=(\d+)/.exec(await (redis as Server).admin.info('commandstats'))?.[1]);
  if (!onCluster) {
    const before = await calls();
    await until(async () => (await calls()) > before + 3, 10_000).catch(() => {});
    const began = performance.now();
    const from = await calls();
    await until(() => performance.now() - began > 3_000);
    expect((await calls()) - from).toBeLessThanOrEqual(6);
  }
  // They do wait: each job comes to one of them.
  await queue.enqueue(Array.from({ length: 300 }, (_, i) => ({ payload: i })));
  await untilWaiting(0);
  expect(await ready(queue)).toEqual([]);
});

it.each([1, 8])('requests on %i connections get as many jobs as the rate of the queue allows', async (clients) => {
  const { name, path, queue } = place();
  await new Operator(connection).configure(`ns.${name}`, { rate: { jobs: 4, perMs: 1_000 }, burst: 1 });
  await queue.enqueue(Array.from({ length: 40 }, (_, i) => ({ payload: i })));
  const wires = await Promise.all(Array.from({ length: clients }, () => Wire.to(shared.api)));
  const began = performance.now();
  let got = 0;
  const ask = async (wire: Wire) => {
    while (got < 12) {
      const { status } = await wire.ask(request(`GET ${path}?timeout=1`, ['Host: localhost']));
      if (status === 200) got++;
    }
  };
  await Promise.all(wires.map(ask));
  // 2.75 s; asked for in vain each other time, twice as long.
  expect(performance.now() - began).toBeLessThan(5_200);
});

it('requests that do not wait leave the rate of a queue to those that do', async () => {
  const { name, path, queue } = place();
  await new Operator(connection).configure(`ns.${name}`, { rate: { jobs: 2, perMs: 1_000 }, burst: 1 });
  await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
  const statuses = [];
  for (let n = 0; n < 5; n++) statuses.push((await shared.call('GET', path)).status);
  expect(statuses).toEqual([200, 404, 404, 404, 404]);
  const began = performance.now();
  expect((await shared.call('GET', `${path}?timeout=5`)).status).toBe(200);
  // Half a second; each request before it that had a turn would add as much.
  expect(performance.now() - began).toBeLessThan(2_200);
});

it('a request with the longest ttr is served, and ends the wait of nobody else', async () => {
  const { path } = place();
  const client = await Wire.to(shared.api);
  const asked = ['ttr=4294967295', 'ttr=60'].map((ttr) =>
    request(`GET ${path}?timeout=30&${ttr}`, ['Host: localhost']),
  );
  client.write(...asked);
  await untilWaiting(2);
  await publish(path, 'x');
  expect(bodyOf((await client.answer()).json)).toBe('x');
  await publish(path, 'y');
  expect(bodyOf((await client.answer()).json)).toBe('y');
});

it('a job that is taken with a ttr of 0 is there again at once', async () => {
  const { path } = place();
  await publish(path, 'x', '?tries=2');
  expect((await shared.call('GET', `${path}?ttr=0`)).status).toBe(200);
  expect((await shared.call('GET', `${path}?timeout=5`)).json).toMatchObject({ remain_tries: 0 });
});

it('a request waits for several queues, and is answered by the one that has a job', async () => {
  const [a, b, c] = [place(), place(), place()];
  const client = await asking(`${a.path},${b.name},${c.name}?timeout=30`);
  await untilWaiting(1);
  await publish(b.path, 'x');
  expect((await client.answer()).json).toMatchObject({ queue: b.name });
});

it('a queue that grows partitions goes on waking those who wait', async () => {
  const { path, queue } = place();
  await publish(path);
  const { json } = await shared.call('GET', path);
  // A growth waits for jobs under a lease.
  expect((await shared.call('DELETE', `${path}/job/${(json as { job_id: string }).job_id}`)).status).toBe(204);
  for await (const _ of new Operator(connection).partition(queue.name, 3));
  const clients = await Promise.all(Array.from({ length: 20 }, () => asking(`${path}?timeout=30`)));
  await untilWaiting(20);
  for (let i = 0; i < 20; i++) await publish(path, String(i));
  const bodies = await Promise.all(clients.map(async (client) => bodyOf((await client.answer()).json)));
  expect(bodies.map(Number).sort((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, i) => i));
});

it('a job goes to the next in line when the first has disconnected', async () => {
  const { path } = place();
  const first = await asking(`${path}?timeout=30`);
  await untilWaiting(1);
  const second = await asking(`${path}?timeout=30`);
  await untilWaiting(2);
  first.close();
  await untilWaiting(1);
  await publish(path, 'x');
  expect((await second.answer()).json).toMatchObject({ remain_tries: 0 });
});

/** A server whose calls to Redis go through a proxy. */
async function proxied(): Promise<{ served: Served; proxy: FaultyProxy }> {
  const proxy = await during(FaultyProxy.start((redis as Server).socket));
  const served = await serve(proxy.url);
  afterwards(() => served.stop());
  return { served, proxy };
}

/** The next call for a queue arrives, and its reply comes a while later. */
function holdNextReply(proxy: FaultyProxy, { name }: Queue): void {
  proxy.fault = { word: `{${name}}:pending`, kind: 'pass', times: 1, before: () => proxy.delay(1_500) };
}

it.skipIf(onCluster)('a job that was being taken for a client that disconnects is ready at once', async () => {
  const { path, queue } = place();
  const { served, proxy } = await proxied();
  expect((await served.call('GET', path)).status).toBe(404);
  const { json } = await publish(path, 'x', '?tries=1');
  holdNextReply(proxy, queue);
  const client = await asking(path, served);
  await until(async () => (await queue.counts()).active === 1);
  client.close();
  await until(async () => (await ready(queue)).length === 1);
  expect(await ready(queue)).toEqual([{ id: (json as { job_id: string }).job_id, attempts: 0 }]);
});

it.skipIf(onCluster)('a job that was being taken for a client that disconnects goes to the next in line', async () => {
  const { path, queue } = place();
  const { served, proxy } = await proxied();
  const client = await asking(`${path}?timeout=30`, served);
  await untilWaiting(1, served);
  const next = await asking(`${path}?timeout=30`, served);
  await untilWaiting(2, served);
  holdNextReply(proxy, queue);
  await publish(path, 'x', '?tries=1');
  await until(async () => (await queue.counts()).active === 1);
  client.close();
  expect((await next.answer()).json).toMatchObject({ remain_tries: 0 });
  expect(await metric('released_jobs_total', served)).toBe(0);
});

it.skipIf(onCluster)('jobs for a request whose body turns out to be broken are ready at once', async () => {
  const [a, b] = [place(), place()];
  const { served, proxy } = await proxied();
  expect((await served.call('GET', `${a.path},${b.name}`)).status).toBe(404);
  await publish(a.path, 'x', '?tries=1');
  holdNextReply(proxy, b.queue);
  const client = await Wire.to(served.api);
  const headers = ['Host: localhost', 'Transfer-Encoding: chunked'];
  client.write(request(`GET ${a.path},${b.name}?count=2`, headers, '1\r\nx\r\n'));
  await until(async () => (await a.queue.counts()).active === 1);
  client.write('no chunk\r\n');
  expect(await client.answer()).toMatchObject({ status: 400 });
  await until(async () => (await ready(a.queue)).length === 1);
  expect(await ready(a.queue)).toMatchObject([{ attempts: 0 }]);
});

it.skipIf(onCluster)('a queue is looked at again that could not be while a take of another one asked', async () => {
  const [a, b] = [place(), place()];
  const { served, proxy } = await proxied();
  await publish(b.path, 'later', '?delay=3600');
  const client = await asking(`${a.path},${b.name}?timeout=30`, served);
  await untilWaiting(1, served);
  const drained = async () => Number((await b.queue.counts()).stats.drained);
  const changed = async (before: number) => until(async () => (await drained()) !== before);
  await changed(await drained());
  // For longer than a poll interval: the request goes on without it.
  holdNextReply(proxy, b.queue);
  await changed(await drained());
  await publish(a.path, 'x');
  expect((await client.answer()).json).toMatchObject({ queue: a.name });
});

it('jobs of answers that a client does not take are ready at once when it disconnects', async () => {
  const { path, queue } = place();
  const total = 40;
  for (let i = 0; i < total; i++) await publish(path, 'x'.repeat(500_000), '?tries=1');
  const before = await metric('released_jobs_total');
  const client = await Wire.to(shared.api);
  client.pause();
  // More than the kernel takes: what it has taken counts as delivered.
  for (let i = 0; i < total; i++) client.write(request(`GET ${path}`, ['Host: localhost']));
  await until(async () => (await queue.counts()).active === total);
  client.close();
  await until(async () => (await queue.counts()).active < total / 2);
  await until(async () => {
    const { active, pending } = await queue.counts();
    return active + pending === total && pending === (await metric('released_jobs_total')) - before;
  });
  expect((await ready(queue)).every(({ attempts }) => attempts === 0)).toBe(true);
});

it('clients that disconnect at any moment cost no job and no attempt', async () => {
  const [a, b] = [place(), place()];
  const total = 200;
  const got: string[] = [];
  let isOver = false;
  const producer = (async () => {
    for (let i = 0; i < total; i++) await publish(i % 2 ? a.path : b.path, String(i), '?tries=1');
  })();
  // Half of them go away after a few turns of the event loop, the others take what there is.
  const consumer = async (n: number) => {
    for (let i = 0; got.length < total && !isOver; i++) {
      const wire = await asking(`${a.path},${b.name}?timeout=1&ttr=60&count=${1 + (i % 3)}`);
      if ((i + n) % 2 === 0) {
        for (let turns = (i * 7 + n * 3) % 20; turns > 0; turns--) await new Promise(setImmediate);
        if (wire.rest === '') {
          wire.close();
          continue;
        }
      }
      const { status, json } = await wire.answer();
      wire.close();
      for (const job of status === 200 ? [json].flat() : []) got.push(bodyOf(job));
    }
  };
  const consumers = Array.from({ length: 6 }, (_, n) => consumer(n));
  await producer;
  await until(async () => (await ready(a.queue)).length + (await ready(b.queue)).length === 0);
  isOver = true;
  await Promise.all(consumers);
  // What came back from the last ones that went away.
  for (;;) {
    const { status, json } = await shared.call('GET', `${a.path},${b.name}?timeout=1&ttr=60&count=20`);
    if (status !== 200) break;
    got.push(...(json as unknown[]).map(bodyOf));
  }
  // A client that closes may have been sent a job that it did not read: the kernel had taken it.
  const left = [await a.queue.counts(), await b.queue.counts()];
  const inKernel = total - new Set(got).size;
  expect(got.length).toBe(new Set(got).size);
  expect(left.reduce((sum, { pending, dead }) => sum + pending + dead, 0)).toBe(0);
  expect(inKernel).toBeLessThan(total / 10);
});

it('a long poll ends at once when the server stops, and nothing is taken any more', async () => {
  const { path, queue } = place();
  const served = await serve(redis.url);
  const client = await asking(`${path}?timeout=60`, served);
  await untilWaiting(1, served);
  const began = performance.now();
  const ended = served.stop();
  expect((await client.answer()).status).toBe(404);
  expect(await ended).toMatchObject({ code: 0 });
  expect(performance.now() - began).toBeLessThan(30_000);
  await queue.enqueue({ payload: 1 });
  expect(await ready(queue)).toHaveLength(1);
});
