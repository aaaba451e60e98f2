import { beforeAll, describe, expect, it } from 'vitest';
import { idOf, jobOf, nearly } from '../support/lmstfy.js';
import { freshName, timePasses } from '../support/redis.js';
import { ownRedis, type Served, serve } from '../support/serve.js';

let redis: Awaited<ReturnType<typeof ownRedis>>;
let served: Served;

beforeAll(async () => {
  redis = await ownRedis();
  served = await serve(redis.url);
});

const NAMESPACE = 'shop';
const fresh = () => `/api/${NAMESPACE}/${freshName()}`;
const call: Served['call'] = (...args) => served.call(...args);
/** Lets time pass for the queue of a path. */
const pass = (path: string, ms: number) => timePasses(`${NAMESPACE}.${path.split('/')[3]}`, ms, redis.admin);

async function publish(path: string, body = 'hello', query = '') {
  return idOf((await call('PUT', `${path}${query}`, { body })).json);
}

async function consume(path: string, query = '') {
  const { status, json } = await call('GET', `${path}${query}`);
  expect({ status, json }).toMatchObject({ status: 200 });
  return jobOf(json);
}

/** Makes dead letters: their only delivery has not been acked in time. Returns their ids, the one dead longest first. */
async function bury(path: string, count = 1) {
  const ids: string[] = [];
  for (let n = 1; n <= count; n++) {
    ids.push(await publish(path, `dead ${n}`));
    await consume(path, '?ttr=1');
    await pass(path, 1_500);
    await call('GET', `${path}/deadletter/size`);
  }
  return ids;
}

const refused = (status: number, error: unknown = expect.any(String)) => ({ status, json: { error } });

/** Whole numbers of seconds that are none, or too large. */
const NO_SECONDS = ['x', '-1', '1.5', '1e3', '0x5', '+5', '', '4294967296'];

describe('PUT /api/:ns/:queue', () => {
  it('publishes a job that may be consumed once, within a day', async () => {
    const path = fresh();
    const answer = await call('PUT', path, { body: 'hello' });
    expect(answer).toMatchObject({ status: 201, json: { msg: 'published', job_id: expect.any(String) } });
    expect(Object.keys(answer.json as object)).toEqual(['msg', 'job_id']);
    expect(answer.headers.get('content-type')).toMatch(/^application\/json\b/);
    expect(await consume(path)).toMatchObject({ id: idOf(answer.json), ttl: nearly(86_400), remainTries: 0 });
  });

  it('gives a job to consumers after its delay, not before', async () => {
    const path = fresh();
    const id = await publish(path, 'later', '?delay=60');
    expect(await call('GET', path)).toMatchObject({ status: 404, json: { msg: 'no job available' } });
    await pass(path, 60_000);
    expect(await consume(path)).toMatchObject({ id });
  });

  it.each<[string, unknown]>([
    ['ttl=1000', nearly(1_000)],
    ['ttl=0', 0],
    ['ttl=3000000000', nearly(3_000_000_000)],
  ])('a job published with %s keeps it', async (query, ttl) => {
    const path = fresh();
    await publish(path, 'x', `?${query}`);
    expect(await consume(path)).toMatchObject({ ttl });
  });

  it('counts the ttl from the publish on, also while the delay lasts', async () => {
    const path = fresh();
    const id = await publish(path, 'x', '?delay=60&ttl=100');
    expect(jobOf((await call('GET', `${path}/job/${id}`)).json)).toMatchObject({ ttl: nearly(100) });
    await pass(path, 60_000);
    expect(jobOf((await call('GET', `${path}/peek`)).json)).toMatchObject({ ttl: nearly(40) });
  });

  it('delivers a job whose ttl is as long as its delay', async () => {
    const path = fresh();
    const id = await publish(path, 'x', '?delay=60&ttl=60');
    await pass(path, 59_000);
    // Its second begins when it is due: somebody must wait for it.
    expect(await consume(path, '?timeout=30')).toMatchObject({ id, ttl: 1 });
  });

  it('a job whose ttl is over is gone, before anything sweeps it', async () => {
    const path = fresh();
    const id = await publish(path, 'x', '?ttl=5');
    await pass(path, 5_500);
    expect(await call('GET', `${path}/job/${id}`)).toMatchObject(refused(404, 'job not found'));
    expect(await call('GET', `${path}/peek`)).toMatchObject(refused(404, 'the queue is empty'));
    expect(await call('GET', path)).toMatchObject({ status: 404 });
  });

  it('delivers a job `tries` times', async () => {
    const path = fresh();
    await publish(path, 'x', '?tries=2');
    expect(await consume(path, '?ttr=5')).toMatchObject({ remainTries: 1 });
    await pass(path, 6_000);
    expect(await consume(path, '?ttr=5')).toMatchObject({ remainTries: 0 });
    await pass(path, 6_000);
    expect(await call('GET', path)).toMatchObject({ status: 404 });
    expect(await call('GET', `${path}/deadletter/size`)).toMatchObject({ json: { size: 1 } });
  });

  it.each<[string, unknown]>([
    ...NO_SECONDS.map((text): [string, unknown] => [`delay=${encodeURIComponent(text)}`, 'invalid delay']),
    ...NO_SECONDS.map((text): [string, unknown] => [`ttl=${encodeURIComponent(text)}`, 'invalid ttl']),
    ...['x', '-1', '1.5', '', '65536'].map((text): [string, unknown] => [`tries=${text}`, 'invalid tries']),
    ['tries=0', expect.stringContaining('tries')],
    ['ttl=5&delay=6', expect.stringContaining('ttl')],
  ])('refuses %s, and stores nothing', async (query, error) => {
    const path = fresh();
    expect(await call('PUT', `${path}?${query}`, { body: 'x' })).toMatchObject(refused(400, error));
    expect(await call('GET', `${path}/size`)).toMatchObject({ json: { size: 0 } });
  });

  it.each([
    'ttl=5&delay=5',
    'ttl=4294967295&delay=4294967295',
    'tries=65535',
    'freeze_tries=true&priority=1&whatever&Array',
    'delay=0&delay=x',
    'ttl=007',
  ])('takes %s', async (query) => {
    expect(await call('PUT', `${fresh()}?${query}`, { body: 'x' })).toMatchObject({ status: 201 });
  });

  it.each([
    ['dely=5', 'unknown parameter "dely": did you mean delay?'],
    ['Delay=5', 'unknown parameter "Delay": did you mean delay?'],
    ['if_exist=replace', 'unknown parameter "if_exist": did you mean if_exists?'],
    ['timeout=5', 'unknown parameter "timeout": this takes delay, ttl, tries, id, if_exists'],
    ['%0a=5', expect.stringContaining('"\\n"')],
  ])('refuses %s, and publishes nothing', async (query, error) => {
    const path = fresh();
    expect(await call('PUT', `${path}?${query}`, { body: 'x' })).toMatchObject(refused(400, error));
    expect((await call('GET', `${path}/size`)).json).toMatchObject({ size: 0 });
  });

  it('says where the ttl comes from that is shorter than the delay', async () => {
    const late = await call('PUT', `${fresh()}?delay=2d`, { body: 'x' });
    expect(late).toMatchObject(refused(400, 'ttl is shorter than delay: without ttl= it is 86400 s'));
  });

  it('takes a body of 1 MiB, and refuses a byte more', async () => {
    const path = fresh();
    expect(await call('PUT', path, { body: Buffer.alloc(1024 * 1024, 'x') })).toMatchObject({ status: 201 });
    const large = Buffer.alloc(1024 * 1024 + 1, 'x');
    expect(await call('PUT', path, { body: large })).toMatchObject(refused(413, 'body too large'));
    expect(await call('GET', `${path}/size`)).toMatchObject({ json: { size: 1 } });
    expect((await consume(path)).data.length).toBe(1024 * 1024);
  });

  it.each([
    ['JSON', Buffer.from('{"n":12345678901234567890, "n":1}')],
    ['text', Buffer.from('a=1&b=2')],
    ['bytes that are no UTF-8', Buffer.from([0, 255, 254, 10, 13, 0, 128])],
    ['nothing', Buffer.alloc(0)],
    ['white space', Buffer.from(' \n {} \n')],
  ])('gives back %s byte for byte', async (_what, body) => {
    const path = fresh();
    const id = idOf((await call('PUT', path, { body, headers: { 'Content-Type': 'application/json' } })).json);
    expect(jobOf((await call('GET', `${path}/job/${id}`)).json).data).toEqual(body);
    expect((await consume(path)).data).toEqual(body);
  });
});

describe('names', () => {
  it.each(['a'.repeat(255), '-', '9', 'a_b-C', '-_-'])('a queue may be called %s', async (queue) => {
    const path = `/api/${freshName()}/${queue}`;
    await publish(path);
    expect(await consume(path)).toMatchObject({ queue });
  });

  it('a namespace may begin with _ and have 255 characters', async () => {
    const path = `/api/_${'n'.repeat(254)}/q`;
    await publish(path);
    expect(await consume(path)).toMatchObject({ namespace: `_${'n'.repeat(254)}` });
  });

  it('percent escapes mean the characters they stand for', async () => {
    const path = fresh();
    const id = await publish(`${path}%2D1`);
    expect(await consume(`${path}-1`)).toMatchObject({ id });
  });

  it.each(['_q', 'a.b', 'a%20b', 'a%2Fb', 'q'.repeat(256), '%00', 'é', 'a:b', 'a,b'])(
    'a publish to the queue %s is refused',
    async (queue) => {
      expect(await call('PUT', `/api/shop/${queue}`, { body: 'x' })).toMatchObject(refused(400));
    },
  );

  it.each(['a.b', 'a%20b', 'n'.repeat(256), 'a,b'])('the namespace %s is refused everywhere', async (namespace) => {
    for (const [method, rest] of [
      ['PUT', '/q'],
      ['PUT', '/q/bulk'],
      ['GET', '/q'],
      ['GET', '/q/size'],
      ['GET', '/q/peek'],
      ['GET', '/q/job/1'],
      ['DELETE', '/q/job/1'],
      ['DELETE', '/q'],
      ['GET', '/q/deadletter'],
      ['GET', '/q/deadletter/size'],
      ['PUT', '/q/deadletter'],
      ['DELETE', '/q/deadletter'],
    ] as const) {
      const body = method === 'PUT' ? '["x"]' : null;
      expect(await call(method, `/api/${namespace}${rest}`, { body }), `${method} ${rest}`).toMatchObject(refused(400));
    }
  });
});

describe('PUT /api/:ns/:queue/bulk', () => {
  it('publishes each value byte for byte, and answers with the ids in order', async () => {
    const path = fresh();
    const values = [
      '"hello msg"',
      '123456',
      '{ "msg":  "\\u003cok" }',
      '["foo",\n"bar"]',
      'true',
      '1.0',
      '{"a":1,"a":2}',
    ];
    const body = `[ ${values.join(' ,\r\n ')} ]`;
    const { status, json } = await call('PUT', `${path}/bulk?ttl=1000`, { body });
    expect({ status, json }).toEqual({ status: 201, json: { msg: 'published', job_ids: expect.any(Array) } });
    const { job_ids } = json as { job_ids: string[] };
    const { json: jobs } = await call('GET', `${path}?count=100`);
    const found = (jobs as unknown[]).map(jobOf);
    const places = new Map(found.map(({ id, data }) => [id, data.toString()]));
    expect(job_ids.map((id) => places.get(id))).toEqual(values);
    for (const { ttl } of found) expect(ttl).toEqual(nearly(1_000));
  });

  it('takes 64 values', async () => {
    const body = JSON.stringify(Array.from({ length: 64 }, (_, n) => n));
    const { status, json } = await call('PUT', `${fresh()}/bulk`, { body });
    expect(status).toBe(201);
    expect(new Set((json as { job_ids: string[] }).job_ids).size).toBe(64);
  });

  it.each([
    ['no array', '{"a":1}'],
    ['nothing', ''],
    ['half an array', '[1,2'],
    ['more after the array', '[1] 2'],
    ['a comma too many', '[1,]'],
    ['what only JavaScript takes', "['a']"],
    ['an empty array', '[]'],
    ['null', 'null'],
    ['65 values', JSON.stringify(Array(65).fill(1))],
  ])('refuses %s', async (_what, body) => {
    const path = fresh();
    expect(await call('PUT', `${path}/bulk`, { body })).toMatchObject(refused(400));
    expect(await call('GET', `${path}/size`)).toMatchObject({ json: { size: 0 } });
  });

  it('checks the parameters as a publish does', async () => {
    for (const query of ['delay=x', 'ttl=x', 'tries=x', 'tries=0', 'ttl=5&delay=6'])
      expect(await call('PUT', `${fresh()}/bulk?${query}`, { body: '[1]' }), query).toMatchObject(refused(400));
  });

  it('refuses all if one value is over 1 MiB', async () => {
    const path = fresh();
    const body = JSON.stringify(['small', 'x'.repeat(1024 * 1024)]);
    expect(await call('PUT', `${path}/bulk`, { body })).toMatchObject(refused(413));
    expect(await call('GET', `${path}/size`)).toMatchObject({ json: { size: 0 } });
  });

  it('refuses a body over 8 MiB', async () => {
    const body = JSON.stringify(Array(9).fill('x'.repeat(1000 * 1000)));
    expect(await call('PUT', `${fresh()}/bulk`, { body })).toMatchObject(refused(413));
  });
});

describe('PUT /api/:ns/:queue/job/:id', () => {
  it('replaces the job by a new one with a new id', async () => {
    const path = fresh();
    const old = await publish(path, 'old', '?tries=3');
    await consume(path, '?ttr=60');
    const { status, json } = await call('PUT', `${path}/job/${old}?ttl=1000&tries=2`, { body: 'new' });
    expect(status).toBe(201);
    expect(idOf(json)).not.toBe(old);
    expect(await call('GET', `${path}/job/${old}`)).toMatchObject(refused(404));
    expect(await consume(path)).toMatchObject({
      id: idOf(json),
      ttl: nearly(1_000),
      remainTries: 1,
      data: Buffer.from('new'),
    });
    expect(await call('GET', path)).toMatchObject({ status: 404 });
  });

  it('publishes also where the old job is not there any more', async () => {
    const path = fresh();
    expect(await call('PUT', `${path}/job/none`, { body: 'new' })).toMatchObject({ status: 201 });
    expect(await call('GET', `${path}/size`)).toMatchObject({ json: { size: 1 } });
  });

  it.each(['delay=x', 'ttl=x', 'tries=0', 'ttl=1&delay=2'])('keeps the old job where %s is refused', async (query) => {
    const path = fresh();
    const id = await publish(path);
    expect(await call('PUT', `${path}/job/${id}?${query}`, { body: 'new' })).toMatchObject(refused(400));
    expect(await consume(path)).toMatchObject({ id, data: Buffer.from('hello') });
  });

  it('keeps the old job where the new body is too large', async () => {
    const path = fresh();
    const id = await publish(path);
    const body = Buffer.alloc(1024 * 1024 + 1, 'x');
    expect(await call('PUT', `${path}/job/${id}`, { body })).toMatchObject(refused(413));
    expect(await consume(path)).toMatchObject({ id });
  });
});

describe('GET /api/:ns/:queue', () => {
  it('answers a job with all that clients read', async () => {
    const path = fresh();
    const id = await publish(path, 'hello', '?tries=3');
    const { json } = await call('GET', path);
    expect(json).toEqual({
      msg: 'new job',
      namespace: NAMESPACE,
      queue: path.split('/')[3],
      job_id: id,
      data: Buffer.from('hello').toString('base64'),
      ttl: nearly(86_400),
      elapsed_ms: expect.any(Number),
      remain_tries: 2,
      attributes: null,
    });
    expect(jobOf(json).elapsedMs).toBeLessThan(60_000);
  });

  it('hides a job for its ttr, by default two minutes', async () => {
    const path = fresh();
    const id = await publish(path, 'x', '?tries=3');
    await consume(path);
    await pass(path, 119_000);
    expect(await call('GET', path)).toMatchObject({ status: 404 });
    await pass(path, 1_100);
    expect(await consume(path)).toMatchObject({ id });
  });

  it('answers an array when count is over 1, also of a single job, and never an empty one', async () => {
    const path = fresh();
    for (let n = 0; n < 3; n++) await publish(path, `${n}`);
    const { json } = await call('GET', `${path}?count=2`);
    expect((json as unknown[]).map(jobOf)).toHaveLength(2);
    expect((await call('GET', `${path}?count=100`)).json).toHaveLength(1);
    expect(await call('GET', `${path}?count=2`)).toMatchObject({ status: 404, json: { msg: 'no job available' } });
  });

  it('answers an object when count is 1', async () => {
    const path = fresh();
    await publish(path);
    expect(Array.isArray((await call('GET', `${path}?count=1`)).json)).toBe(false);
  });

  it('takes from the queues in their order', async () => {
    const [first, second] = [fresh(), fresh()];
    const both = `${first},${second.split('/')[3]}`;
    await publish(second, 'second');
    await publish(first, 'first');
    expect(await consume(both)).toMatchObject({ queue: first.split('/')[3], data: Buffer.from('first') });
    expect(await consume(both)).toMatchObject({ queue: second.split('/')[3], data: Buffer.from('second') });
    expect(await call('GET', both)).toMatchObject({ status: 404 });
  });

  it('skips empty names among several, and takes an escaped comma', async () => {
    const path = fresh();
    await publish(path);
    await publish(path);
    await consume(`${path},,other`);
    await consume(`/api/${NAMESPACE}/other%2C${path.split('/')[3]}`);
  });

  it('a batch takes from several queues in their order', async () => {
    const [first, second] = [fresh(), fresh()];
    await publish(second, 'second');
    await publish(first, 'first');
    const { json } = await call('GET', `${first},${second.split('/')[3]}?count=5`);
    expect((json as unknown[]).map((job) => jobOf(job).data.toString())).toEqual(['first', 'second']);
  });

  it('waits for a job, and answers as soon as there is one', async () => {
    const path = fresh();
    const waiting = call('GET', `${path}?timeout=30`);
    const other = call('GET', `${path}?timeout=30&count=10`);
    await publish(path, 'one');
    await publish(path, 'two');
    const [one, two] = await Promise.all([waiting, other]);
    expect([jobOf(one.json).data.toString(), jobOf((two.json as unknown[])[0]).data.toString()].sort()).toEqual([
      'one',
      'two',
    ]);
  });

  it('answers 404 after its timeout, not before', async () => {
    const since = performance.now();
    const answers = ['timeout=1', 'timeout=1&count=3'].map(async (query) => {
      const answer = await call('GET', `${fresh()}?${query}`);
      expect(answer).toMatchObject({ status: 404, json: { msg: 'no job available' } });
      expect(performance.now() - since).toBeGreaterThanOrEqual(1_000);
    });
    await Promise.all(answers);
  });

  it.each([
    ...NO_SECONDS.map((text) => [`ttr=${encodeURIComponent(text)}`, 'invalid ttr']),
    ...NO_SECONDS.map((text) => [`timeout=${encodeURIComponent(text)}`, 'invalid timeout']),
    ...['0', '101', 'x', '', '-1'].map((text) => [`count=${text}`, 'invalid count']),
  ])('refuses %s, and takes nothing', async (query, error) => {
    const path = fresh();
    await publish(path);
    expect(await call('GET', `${path}?${query}`)).toMatchObject(refused(400, error));
    expect(await call('GET', `${path}/size`)).toMatchObject({ json: { size: 1 } });
  });

  it.each([',', ',,', 'a,_b', 'a,b.c', 'a%20b,c'])('refuses the names %s', async (names) => {
    expect(await call('GET', `/api/${NAMESPACE}/${names}`)).toMatchObject(refused(400));
  });
});

describe('DELETE /api/:ns/:queue/job/:id', () => {
  it('removes a job in whatever state, and answers 204 whether or not it was there', async () => {
    const path = fresh();
    const leased = await publish(path);
    await consume(path);
    const pending = await publish(path, 'x', '?delay=60');
    for (const id of [leased, pending, leased, 'none']) {
      const { status, text, headers } = await call('DELETE', `${path}/job/${id}`);
      expect({ id, status, text, type: headers.get('content-type') }).toEqual({
        id,
        status: 204,
        text: '',
        type: null,
      });
    }
    await pass(path, 300_000);
    expect(await call('GET', path)).toMatchObject({ status: 404 });
    expect(await call('GET', `${path}/deadletter/size`)).toMatchObject({ json: { size: 0 } });
  });

  it('removes nothing in the wrong queue', async () => {
    const [path, other] = [fresh(), fresh()];
    const id = await publish(path);
    expect(await call('DELETE', `${other}/job/${id}`)).toMatchObject({ status: 204 });
    expect(await consume(path)).toMatchObject({ id });
  });

  it('finds ids that hold a slash or an escape, as they stand in the path', async () => {
    const path = fresh();
    await call('PUT', `${path}?id=${encodeURIComponent('order/7%')}`, { body: 'x' });
    expect(await consume(path)).toMatchObject({ id: 'order/7%' });
    expect(await call('DELETE', `${path}/job/order/7%25`)).toMatchObject({ status: 204 });
    expect(await call('GET', `${path}/job/order%2F7%25`)).toMatchObject(refused(404, 'job not found'));
  });
});

describe('peek, job and sizes', () => {
  it('peek shows the job that is next, and does not take it', async () => {
    const path = fresh();
    const id = await publish(path, 'first', '?tries=2');
    await publish(path, 'second');
    const { status, json } = await call('GET', `${path}/peek`);
    expect(status).toBe(200);
    expect(jobOf(json)).toMatchObject({ id, data: Buffer.from('first'), remainTries: 2, ttl: nearly(86_400) });
    expect(await call('GET', `${path}/size`)).toMatchObject({ json: { size: 2 } });
  });

  it('peek does not show jobs that are not due', async () => {
    const path = fresh();
    await publish(path, 'x', '?delay=60');
    expect(await call('GET', `${path}/peek`)).toMatchObject(refused(404, 'the queue is empty'));
  });

  it('a job is found by its id while it waits, while it is leased, and when it is dead', async () => {
    const path = fresh();
    const id = await publish(path, 'x', '?delay=60');
    const job = async () => jobOf((await call('GET', `${path}/job/${id}`)).json);
    expect(await job()).toMatchObject({ id, namespace: NAMESPACE, data: Buffer.from('x') });
    await pass(path, 60_000);
    await consume(path, '?ttr=5');
    expect(await job()).toMatchObject({ id });
    await pass(path, 6_000);
    expect(await job()).toMatchObject({ id, remainTries: 0 });
    expect(await call('GET', `${path}/job/none`)).toMatchObject(refused(404, 'job not found'));
  });

  it('sizes count what is ready, and what is dead', async () => {
    const path = fresh();
    await bury(path);
    await publish(path);
    await publish(path, 'x', '?delay=60');
    const about = { namespace: NAMESPACE, queue: path.split('/')[3] };
    expect((await call('GET', `${path}/size`)).json).toEqual({ ...about, size: 1 });
    expect((await call('GET', `${path}/deadletter/size`)).json).toEqual({ ...about, size: 1 });
  });

  it('DELETE of a queue removes what is ready: not what is not due, leased or dead', async () => {
    const path = fresh();
    await bury(path);
    const leased = await publish(path);
    await consume(path, '?ttr=300');
    const later = await publish(path, 'x', '?delay=60');
    await publish(path);
    expect(await call('DELETE', path)).toMatchObject({ status: 204, text: '' });
    expect(await call('GET', `${path}/size`)).toMatchObject({ json: { size: 0 } });
    expect(await call('GET', `${path}/deadletter/size`)).toMatchObject({ json: { size: 1 } });
    for (const id of [leased, later]) expect(await call('GET', `${path}/job/${id}`)).toMatchObject({ status: 200 });
    expect(await call('DELETE', fresh())).toMatchObject({ status: 204 });
  });
});

describe('other requests', () => {
  it.each([
    ['GET', '?timout=5', 'did you mean timeout?'],
    ['GET', '/size?count=1', 'this takes none'],
    ['DELETE', '/deadletter?limits=9', 'did you mean limit?'],
    ['POST', '/job/x/nack?reason=busy', 'this takes receipt, mode, delay, error'],
  ])('%s %s is refused, with what was probably meant', async (method, more, error) => {
    expect(await call(method, `${fresh()}${more}`)).toMatchObject(refused(400, expect.stringContaining(error)));
  });
});

describe('dead letters', () => {
  it('the head is the one that is dead longest', async () => {
    const path = fresh();
    const about = { namespace: NAMESPACE, queue: path.split('/')[3] };
    const peek = async () => (await call('GET', `${path}/deadletter`)).json;
    expect(await peek()).toEqual({ ...about, deadletter_size: 0, deadletter_head: '' });
    const [first] = await bury(path, 2);
    expect(await peek()).toEqual({ ...about, deadletter_size: 2, deadletter_head: first });
  });

  it('a job is a dead letter as soon as its last ttr has ended, with nobody looking before', async () => {
    const path = fresh();
    const id = await publish(path);
    await consume(path, '?ttr=1');
    await pass(path, 1_000);
    expect((await call('GET', `${path}/deadletter`)).json).toMatchObject({ deadletter_size: 1, deadletter_head: id });
  });

  it('respawns one, by default, under its id, for one more try and a day', async () => {
    const path = fresh();
    const [first] = await bury(path, 2);
    expect(await call('PUT', `${path}/deadletter`)).toMatchObject({
      status: 200,
      json: { msg: 'respawned', count: 1 },
    });
    expect(await consume(path, '?ttr=5')).toMatchObject({ id: first, remainTries: 0, ttl: nearly(86_400) });
    await pass(path, 6_000);
    expect(await call('GET', `${path}/deadletter/size`)).toMatchObject({ json: { size: 2 } });
  });

  it('respawns as many as asked for, with the ttl asked for', async () => {
    const path = fresh();
    const ids = await bury(path, 3);
    expect((await call('PUT', `${path}/deadletter?limit=10&ttl=1000`)).json).toEqual({ msg: 'respawned', count: 3 });
    const jobs = ((await call('GET', `${path}?count=10`)).json as unknown[]).map(jobOf);
    expect(jobs.map(({ id }) => id).sort()).toEqual(ids.sort());
    for (const { ttl } of jobs) expect(ttl).toEqual(nearly(1_000));
    expect((await call('PUT', `${path}/deadletter?limit=10`)).json).toEqual({ msg: 'respawned', count: 0 });
  });

  it('respawned with ttl=0, a job stays for ever', async () => {
    const path = fresh();
    await bury(path);
    await call('PUT', `${path}/deadletter?ttl=0`);
    expect(await consume(path)).toMatchObject({ ttl: 0 });
  });

  it('DELETE removes one, or as many as asked for, those dead longest first', async () => {
    const path = fresh();
    const [first, second] = await bury(path, 4);
    expect(await call('DELETE', `${path}/deadletter`)).toMatchObject({ status: 204, text: '' });
    expect(await call('GET', `${path}/deadletter`)).toMatchObject({ json: { deadletter_head: second } });
    expect(await call('GET', `${path}/job/${first}`)).toMatchObject({ status: 404 });
    expect(await call('DELETE', `${path}/deadletter?limit=2`)).toMatchObject({ status: 204 });
    expect(await call('GET', `${path}/deadletter/size`)).toMatchObject({ json: { size: 1 } });
    expect(await call('DELETE', `${path}/deadletter?limit=100`)).toMatchObject({ status: 204 });
    expect(await call('DELETE', `${path}/deadletter?limit=100`)).toMatchObject({ status: 204 });
  });

  it.each([
    ['PUT', 'limit=0', 'invalid limit'],
    ['PUT', 'limit=-1', 'invalid limit'],
    ['PUT', 'limit=x', 'invalid limit'],
    ['PUT', 'ttl=-1', 'invalid ttl'],
    ['PUT', 'ttl=x', 'invalid ttl'],
    ['DELETE', 'limit=0', 'invalid limit'],
    ['DELETE', 'limit=', 'invalid limit'],
  ])('%s with %s is refused, and changes nothing', async (method, query, error) => {
    const path = fresh();
    await bury(path);
    expect(await call(method, `${path}/deadletter?${query}`)).toMatchObject(refused(400, error));
    expect(await call('GET', `${path}/deadletter/size`)).toMatchObject({ json: { size: 1 } });
  });
});

describe('every answer', () => {
  it('carries an id of its own, in the form of a ULID', async () => {
    const path = fresh();
    const ids = new Set<string | null>();
    const calls = [
      ['GET', '/nothing'],
      ['PUT', path],
      ['GET', `${path}?ttr=x`],
      ['DELETE', `${path}/job/1`],
      ['GET', path],
      ['GET', '/healthz'],
    ] as const;
    for (const [method, to] of calls) ids.add((await call(method, to)).headers.get('x-request-id'));
    expect([...ids]).toEqual(calls.map(() => expect.stringMatching(/^[0-9A-HJKMNP-TV-Z]{26}$/)));
  });

  it.each([
    ['GET', '/'],
    ['GET', '/api'],
    ['GET', '/api/ns'],
    ['POST', '/api/ns/q'],
    ['PATCH', '/api/ns/q'],
    ['GET', '/api/ns/q/nothing'],
    ['PUT', '/api/ns/q/peek'],
    ['GET', '/api/ns/q/job/'],
    ['GET', '/metrics'],
    ['GET', '/API/ns/q'],
    ['POST', '/token/ns?description=x'],
  ])('%s %s is no route of the API', async (method, path) => {
    expect(await call(method, path)).toMatchObject(refused(404, 'api not found'));
  });
});

describe('attributes', () => {
  const headers = { 'Enable-Job-Version': 'YES', 'Job-Attr-Trace_id': 'abc', 'Job-Attr-KIND': 'two  words' };

  it('are stored and given back under names in lower case', async () => {
    const path = fresh();
    const id = idOf((await call('PUT', path, { body: 'x', headers })).json);
    const attributes = { trace_id: 'abc', kind: 'two  words' };
    expect(jobOf((await call('GET', `${path}/peek`)).json)).toMatchObject({ attributes });
    expect(jobOf((await call('GET', `${path}/job/${id}`)).json)).toMatchObject({ attributes });
    expect(await consume(path)).toMatchObject({ attributes });
  });

  it('are left out without Enable-Job-Version: YES', async () => {
    const path = fresh();
    await call('PUT', path, { body: 'x', headers: { ...headers, 'Enable-Job-Version': 'NO' } });
    expect((await consume(path)).attributes).toBeNull();
  });

  it('belong to every job of a bulk, and to a republished one', async () => {
    const path = fresh();
    await call('PUT', `${path}/bulk`, { body: '[1,2]', headers: { 'enable-job-version': 'yes', 'job-attr-a': '1' } });
    for (let n = 0; n < 2; n++) expect(await consume(path)).toMatchObject({ attributes: { a: '1' } });
    await call('PUT', `${path}/job/none`, { body: 'x', headers });
    expect(await consume(path)).toMatchObject({ attributes: { trace_id: 'abc' } });
  });

  it('may be 16, with names of 32 and values of 128 bytes, and no more', async () => {
    const named = (count: number, name = 32, value = 128) =>
      Object.fromEntries([
        ['Enable-Job-Version', 'YES'],
        ...Array.from({ length: count }, (_, n) => [
          `Job-Attr-n${n}${'n'.repeat(name - 1 - String(n).length)}`,
          'v'.repeat(value),
        ]),
      ]);
    const path = fresh();
    expect(await call('PUT', path, { body: 'x', headers: named(16) })).toMatchObject({ status: 201 });
    expect(Object.keys((await consume(path)).attributes ?? {})).toHaveLength(16);
    for (const many of [named(17), named(1, 33), named(1, 32, 129)])
      expect(await call('PUT', path, { body: 'x', headers: many })).toMatchObject(refused(400));
    expect(await call('GET', `${path}/size`)).toMatchObject({ json: { size: 0 } });
  });
});
