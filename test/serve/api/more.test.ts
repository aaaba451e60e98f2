import { expect, it } from 'vitest';
import { Connection, Operator, Queue } from '../../../src/index.js';
import { timePasses } from '../../support/redis.js';
import { ownRedis, serve } from '../../support/serve.js';

/* What the API has more than lmstfy's: ids of callers, ms, receipts. */

const redis = await ownRedis();
const served = await serve(redis.url);
const connection = new Connection(redis.url);
let last = 0;

function place() {
  const name = `q${++last}`;
  return { path: `/api/ns/${name}`, queue: new Queue(connection, `ns.${name}`) };
}

const put = (path: string, body = 'x') => served.call('PUT', path, { body });

it('a publish with an id that exists keeps the job, and says so', async () => {
  const { path, queue } = place();
  const first = await put(`${path}?id=order-7`, 'first');
  expect(first).toMatchObject({ status: 201, json: { msg: 'published', job_id: 'order-7', outcome: 'created' } });
  const again = await put(`${path}?id=order-7`, 'second');
  expect(again).toMatchObject({ status: 200, json: { msg: 'kept', job_id: 'order-7', outcome: 'kept' } });
  expect((await queue.drain({ leaseMs: 60_000 })).jobs.map(({ payload }) => String(payload))).toEqual(['first']);
});

it('with if_exists=replace it replaces the job', async () => {
  const { path, queue } = place();
  await put(`${path}?id=a`, 'first');
  expect(await put(`${path}?id=a&if_exists=replace`, 'second')).toMatchObject({
    status: 201,
    json: { job_id: 'a', outcome: 'replaced' },
  });
  expect((await queue.drain({ leaseMs: 60_000 })).jobs.map(({ payload }) => String(payload))).toEqual(['second']);
});

it.each(['id=', 'id=%20', 'id=-x', 'id=a&if_exists=maybe', 'delay=5m5', 'delay=1.5s', 'delay=99999999999d'])(
  '%s is refused, and nothing is stored',
  async (query) => {
    const { path, queue } = place();
    expect(await put(`${path}?${query}`)).toMatchObject({ status: 400, json: { error: expect.any(String) } });
    expect((await queue.counts()).payload).toBe(0);
  },
);

it('many publishes at once fail and succeed each for itself', async () => {
  const { path, queue } = place();
  const calls = Array.from({ length: 60 }, (_, i) => put(`${path}?id=${i % 3 === 0 ? '-' : ''}${i}`, String(i)));
  const statuses = (await Promise.all(calls)).map(({ status }) => status);
  expect(statuses).toEqual(Array.from({ length: 60 }, (_, i) => (i % 3 === 0 ? 400 : 201)));
  expect((await queue.counts()).pending).toBe(40);
});

it('elapsed_ms counts from the publish on, also under an id of the caller', async () => {
  const { path } = place();
  const began = performance.now();
  await put(`${path}?id=mine&delay=300ms`);
  const { json } = await served.call('GET', `${path}?timeout=10`);
  expect((json as { elapsed_ms: number }).elapsed_ms).toBeGreaterThanOrEqual(290);
  expect((json as { elapsed_ms: number }).elapsed_ms).toBeLessThan(performance.now() - began + 50);
});

it('a job may be hidden for less than a second', async () => {
  const { path } = place();
  await put(`${path}?tries=2`);
  expect((await served.call('GET', `${path}?ttr=50ms`)).status).toBe(200);
  expect(await served.call('GET', `${path}?timeout=10`)).toMatchObject({ status: 200, json: { remain_tries: 0 } });
});

it('a DELETE with the receipt of a delivery is done as long as its lease is held', async () => {
  const { path, queue } = place();
  const { json } = await put(`${path}?tries=5`);
  const url = `${path}/job/${(json as { job_id: string }).job_id}`;
  const receipt = async (query = '') => (await served.call('GET', `${path}${query}`)).headers.get('x-receipt') ?? '';
  const remove = (receipt: string) => served.call('DELETE', url, { headers: { 'X-Receipt': receipt } });
  const first = await receipt('?ttr=1ms');
  expect(first).not.toBe('');
  const second = await receipt('?timeout=10');
  expect(await remove(first)).toMatchObject({ status: 409, json: { lease: 'lost' } });
  expect((await queue.counts()).active).toBe(1);
  expect((await remove(second)).status).toBe(204);
  expect((await queue.counts()).payload).toBe(0);
  expect((await remove(second)).status).toBe(409);
});

it('a DELETE takes the receipt as a parameter, too', async () => {
  const { path } = place();
  await put(`${path}?id=a&tries=3`);
  const take = async (query: string) => (await served.call('GET', `${path}?${query}`)).headers.get('x-receipt') ?? '';
  const first = await take('ttr=1ms');
  const second = await take('timeout=10');
  expect(await served.call('DELETE', `${path}/job/a?receipt=${first}`)).toMatchObject({ status: 409 });
  expect(await served.call('DELETE', `${path}/job/a?receipt=${second}`)).toMatchObject({ status: 204 });
});

it('the longest durations of lmstfy are taken, as 100 years', async () => {
  const { path, queue } = place();
  const most = 2 ** 32 - 1;
  await put(`${path}?id=a&tries=3`);
  const taken = await served.call('GET', `${path}?ttr=${most}`);
  expect(taken).toMatchObject({ status: 200, json: { job_id: 'a' } });
  const receipt = `receipt=${taken.headers.get('x-receipt')}`;
  const renewed = await served.call('POST', `${path}/job/a/renew?ttr=${most}&${receipt}`);
  expect(renewed).toMatchObject({ status: 200, json: { ttr_ms: 100 * 365 * 86_400_000 } });
  expect(await served.call('POST', `${path}/job/a/nack?delay=${most}&${receipt}`)).toMatchObject({ status: 200 });
  expect(await served.call('POST', `${path}/job/a/reschedule?delay=${most}`)).toMatchObject({ status: 200 });
  expect(await put(`${path}?id=b&delay=${most}&ttl=${most}`)).toMatchObject({ status: 201 });
  expect((await queue.counts()).pending).toBe(2);
});

it('a job published, or respawned, with ttl=0 stays for ever, whatever the ttl of its queue', async () => {
  const { path, queue } = place();
  await new Operator(connection).configure(queue.name, { ttl: 10 });
  const pass = () => timePasses(queue.name, 60_000, redis.admin);
  const job = { status: 200, json: { job_id: 'a', ttl: 0 } };
  await put(`${path}?id=a&ttl=0`);
  await pass();
  expect(await served.call('GET', `${path}/job/a`)).toMatchObject(job);
  expect(await served.call('GET', `${path}/peek`)).toMatchObject(job);
  expect(await served.call('GET', `${path}?ttr=1`)).toMatchObject(job);
  await pass();
  await served.call('PUT', `${path}/deadletter?ttl=0`);
  await pass();
  expect(await served.call('GET', path)).toMatchObject(job);
});

it('an array has receipts if they are asked for', async () => {
  const { path } = place();
  await put(`${path}/bulk`, '[1,2,3]');
  const { json } = await served.call('GET', `${path}?count=2&receipts=1`);
  const jobs = json as { job_id: string; receipt: string }[];
  expect(jobs).toHaveLength(2);
  for (const { job_id, receipt } of jobs) {
    const answer = await served.call('DELETE', `${path}/job/${job_id}`, { headers: { 'X-Receipt': receipt } });
    expect(answer.status).toBe(204);
  }
  const [plain] = (await served.call('GET', `${path}?count=2`)).json as object[];
  expect(plain).not.toHaveProperty('receipt');
});

it('an ack of many removes the jobs, and says what became of each that was not acked', async () => {
  const { path, queue } = place();
  const ack = async (body: unknown) => served.call('POST', `${path}/ack`, { body: JSON.stringify(body) });
  await put(`${path}/bulk?tries=5`, '[0,1,2,3,4]');
  type Delivery = { job_id: string; receipt: string };
  const { json: lost } = await served.call('GET', `${path}?ttr=1ms&count=1&receipts=1`);
  const { json } = await served.call('GET', `${path}?count=5&timeout=10&receipts=1`);
  const jobs = json as Delivery[];
  // The one whose lease is over may come alone, and later.
  while (jobs.length < 5) jobs.push(...((await served.call('GET', `${path}?count=5&receipts=1`)).json as Delivery[]));
  const old = lost as Delivery;
  const [a, b, c] = jobs.filter(({ job_id }) => job_id !== old.job_id) as [Delivery, Delivery, Delivery];
  const { json: waiting } = await put(`${path}?delay=60`);
  const pending = (waiting as { job_id: string }).job_id;
  const held = { id: c.job_id, receipt: c.receipt };
  expect(
    await ack([a.job_id, b.job_id, held, pending, 'none', { id: old.job_id, receipt: old.receipt }]),
  ).toMatchObject({
    status: 200,
    json: {
      acked: 3,
      not_acked: [
        { job_id: pending, state: 'cancelled' },
        { job_id: 'none', state: 'missing' },
        { job_id: old.job_id, state: 'lost' },
      ],
    },
  });
  expect(await queue.counts()).toMatchObject({ pending: 0, active: 2, payload: 2 });
});

it.each([[[]], [{}], [Array(251).fill('a')], [['a', '']], [['a', 7]], [['a', null]], [['a', { id: 'a' }]]])(
  'an ack of %j is refused, and nothing is acked',
  async (body) => {
    const { path, queue } = place();
    await put(`${path}?id=a`);
    await served.call('GET', path);
    expect((await served.call('POST', `${path}/ack`, { body: JSON.stringify(body) })).status).toBe(400);
    expect((await queue.counts()).active).toBe(1);
  },
);

it('many acks at once share calls, and are all done', async () => {
  const { path, queue } = place();
  const { json } = await put(`${path}/bulk?tries=1`, `[${Array.from({ length: 64 }, (_, i) => i)}]`);
  const { job_ids: ids } = json as { job_ids: string[] };
  expect((await served.call('GET', `${path}?count=64`)).status).toBe(200);
  const answers = await Promise.all(ids.map((id) => served.call('DELETE', `${path}/job/${id}`)));
  expect(answers.map(({ status }) => status)).toEqual(Array(64).fill(204));
  expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, dead: 0, payload: 0 });
});
