import { expect, it } from 'vitest';
import { Connection, Inspector, Operator, Queue } from '../../../src/index.js';
import { during } from '../../support/afterwards.js';
import { FaultyProxy } from '../../support/proxy.js';
import { onCluster, timePasses } from '../../support/redis.js';
import { figure, ownRedis, type Served, serve } from '../../support/serve.js';
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

/** Waits until so many requests wait for jobs. */
const untilWaiting = (count: number, served = shared) =>
  until(async () => (await figure(served, 'waiting_requests')) === count);

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
  // By polls it would take a second: a request that comes looks at once, and then a poll interval later.
  await until(async () => {
    const began = performance.now();
    const again = await asking(`${path}?timeout=30`);
    await untilWaiting(1);
    await publish(path, 'second');
    expect(bodyOf((await again.answer()).json)).toBe('second');
    return performance.now() - began < 800;
  }, 90_000);
});

it('no request misses a job that is published just before, while or just after it looks', async () => {
  const { path } = place();
  for (let i = 0; i < 400; i++) {
    const client = await asking(`${path}?timeout=8`);
    if (i % 3 > 0) await untilWaiting(1);
    await publish(path, `job ${i}`);
    expect(bodyOf((await client.answer()).json)).toBe(`job ${i}`);
  }
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

/** How many calls of scripts the shared Redis has run. */
const calls = async () => Number(/evalsha:calls=(\d+)/.exec(await (redis as Server).admin.info('commandstats'))?.[1]);

it('many requests that wait for a queue cost one call in a poll interval', async () => {
  const { path, queue } = place();
  await Promise.all(Array.from({ length: 300 }, () => asking(`${path}?timeout=60`)));
  await untilWaiting(300);
  if (!onCluster) {
    const before = await calls();
    const began = performance.now();
    await until(async () => (await calls()) >= before + 3);
    // A slow machine makes it fewer, never more.
    expect((await calls()) - before).toBeLessThanOrEqual(3 + (performance.now() - began) / 1_000);
  }
  // They do wait: each job comes to one of them.
  await queue.enqueue(Array.from({ length: 300 }, (_, i) => ({ payload: i })));
  await untilWaiting(0);
  expect(await ready(queue)).toEqual([]);
});

it.skipIf(onCluster).each([1, 8])(
  'requests on %i connections ask no more often than the rate allows',
  async (clients) => {
    const { name, path, queue } = place();
    await new Operator(connection).configure(`ns.${name}`, { rate: { jobs: 4, perMs: 1_000 }, burst: 1 });
    await queue.enqueue(Array.from({ length: 40 }, (_, i) => ({ payload: i })));
    const wires = await Promise.all(Array.from({ length: clients }, () => Wire.to(shared.api)));
    const before = await calls();
    let got = 0;
    const ask = async (wire: Wire) => {
      while (got < 8) {
        const { status } = await wire.ask(request(`GET ${path}?timeout=1`, ['Host: localhost']));
        if (status === 200) got++;
      }
    };
    await Promise.all(wires.map(ask));
    // One that asks in vain gets a later turn: the jobs would come at half the rate.
    expect((await calls()) - before).toBeLessThan(got + 4);
  },
);

it.skipIf(onCluster)('requests that do not wait leave the rate of a queue to those that do', async () => {
  const { name, path, queue } = place();
  await new Operator(connection).configure(`ns.${name}`, { rate: { jobs: 1, perMs: 60_000 }, burst: 1 });
  await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
  const before = await calls();
  const began = performance.now();
  expect((await shared.call('GET', path)).status).toBe(200);
  for (let n = 0; n < 20; n++) expect((await shared.call('GET', path)).status).toBe(404);
  // Each call would have a turn, and the next one a later turn: at most one a second.
  expect((await calls()) - before).toBeLessThanOrEqual(2 + (performance.now() - began) / 1_000);
  const waiting = shared.call('GET', `${path}?timeout=60`);
  await untilWaiting(1);
  await timePasses(queue.name, 60_000 * 30, (redis as Server).admin);
  expect((await waiting).status).toBe(200);
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
  const served = await during(serve(proxy.url));
  return { served, proxy };
}

/** The next call for a queue arrives, and its reply comes a while later. */
function holdNextReply(proxy: FaultyProxy, { name }: Queue): void {
  proxy.fault = { word: `{${name}}:pending`, kind: 'pass', times: 1, before: () => proxy.delay(1_500) };
}

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
  const before = await figure(shared, 'released_jobs_total');
  const client = await Wire.to(shared.api);
  client.pause();
  // More than the kernel takes: what it has taken counts as delivered.
  for (let i = 0; i < total; i++) client.write(request(`GET ${path}`, ['Host: localhost']));
  await until(async () => (await queue.counts()).active === total);
  client.close();
  await until(async () => (await queue.counts()).active < total / 2);
  await until(async () => {
    const { active, pending } = await queue.counts();
    return active + pending === total && pending === (await figure(shared, 'released_jobs_total')) - before;
  });
  expect((await ready(queue)).every(({ attempts }) => attempts === 0)).toBe(true);
});

it('clients that disconnect at any moment cost no job and no attempt', async () => {
  const [a, b] = [place(), place()];
  const total = 100;
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
  const served = await during(serve(redis.url));
  const client = await asking(`${path}?timeout=600`, served);
  await untilWaiting(1, served);
  const ended = served.stop();
  expect((await client.answer()).status).toBe(404);
  expect(await ended).toMatchObject({ code: 0 });
  await queue.enqueue({ payload: 1 });
  expect(await ready(queue)).toHaveLength(1);
});
