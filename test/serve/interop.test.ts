import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { type Ended, linesOf, sh } from '../support/cli.js';
import { idOf, jobOf } from '../support/lmstfy.js';
import { tagsOf } from '../support/partitions.js';
import { freshName, timePasses } from '../support/redis.js';
import { ownRedis, type Served, serve } from '../support/serve.js';
import { temporaryDirectory } from '../support/temporary.js';

let redis: Awaited<ReturnType<typeof ownRedis>>;
let served: Served;

beforeAll(async () => {
  redis = await ownRedis();
  served = await serve(redis.url);
});

const call: Served['call'] = (...args) => served.call(...args);

/** A queue under both of its names. In shell lines, `$Q` is that of the command line. */
function freshPlace() {
  const namespace = freshName();
  const queue = `${namespace}.q`;
  return {
    path: `/api/${namespace}/q`,
    queue,
    /** Lets time pass for the queue, in all its partitions. */
    async pass(ms: number) {
      for (const tag of await tagsOf(redis.admin, queue)) await timePasses(tag, ms, redis.admin);
    },
    run: (line: string, env: Record<string, string> = {}): Promise<Ended> =>
      sh(line, { env: { DELAYQ_REDIS_URL: redis.url, Q: queue, ...env } }),
  };
}

const publish = async (path: string, body: string | Buffer, query = '', headers = {}) =>
  idOf((await call('PUT', `${path}${query}`, { body, headers })).json);

async function consume(path: string, query = '') {
  const { status, json } = await call('GET', `${path}${query}`);
  expect({ status, json }).toMatchObject({ status: 200 });
  return jobOf(json);
}

const sizeOf = async (path: string) => ((await call('GET', `${path}/size`)).json as { size: number }).size;

/** Bodies as HTTP producers send them. */
const BODIES = {
  json: Buffer.from('{"orderId":42, "big":12345678901234567890}'),
  form: Buffer.from('orderId=42&note=a%20b'),
  binary: Buffer.from([0, 255, 254, 10, 13, 0, 128]),
  empty: Buffer.alloc(0),
  lines: Buffer.from('[1,\n2]\n'),
};

describe('jobs published over HTTP', () => {
  it('reach a handler with their attributes: JSON as a line, all else byte for byte', async () => {
    const { path, run } = freshPlace();
    const directory = temporaryDirectory();
    mkdirSync(join(directory, 'got'));
    const headers = { 'Enable-Job-Version': 'YES', 'Job-Attr-Tenant': 'acme' };
    const ids = new Map<string, Buffer>();
    for (const body of Object.values(BODIES)) ids.set(await publish(path, body, '?tries=3', headers), body);
    const line = `delayq drain "$Q" -- sh -c 'cat > "$OUT/$DELAYQ_ATTR_TENANT-$DELAYQ_ID"'`;
    expect(await run(line, { OUT: join(directory, 'got') })).toMatchObject({ code: 0 });
    const got = readdirSync(join(directory, 'got'));
    expect(got.sort()).toEqual([...ids.keys()].map((id) => `acme-${id}`).sort());
    for (const [id, body] of ids) {
      const input = readFileSync(join(directory, 'got', `acme-${id}`));
      // JSON is a line, as always.
      if (body === BODIES.json) expect(input).toEqual(Buffer.concat([body, Buffer.from('\n')]));
      else if (body === BODIES.lines) expect(JSON.parse(input.toString())).toEqual([1, 2]);
      else expect(input).toEqual(body);
    }
    expect(await sizeOf(path)).toBe(0);
  });

  it('stand in envelopes as payload, or as payloadBase64 if they are no JSON of one line', async () => {
    const { path, run } = freshPlace();
    const ids = new Map<string, string>();
    for (const [name, body] of Object.entries(BODIES)) ids.set(await publish(path, body), name);
    const { code, stdout } = await run('delayq drain --lease 60s --envelope "$Q"');
    expect(code).toBe(0);
    const seen = linesOf(stdout).map((line): Record<string, string> => ({ line, ...JSON.parse(line) }));
    expect(seen.map(({ id }) => ids.get(id as string)).sort()).toEqual(Object.keys(BODIES).sort());
    for (const { id, line, payloadBase64 } of seen) {
      const name = ids.get(id as string) as keyof typeof BODIES;
      if (name === 'json') expect(line).toContain(`"payload":${BODIES.json}`);
      else if (payloadBase64 !== undefined) expect(Buffer.from(payloadBase64, 'base64')).toEqual(BODIES[name]);
      else expect({ name, line }).toMatchObject({ name: 'lines', line: expect.stringMatching(/"payload":\[1, ?2\]/) });
    }
  });

  it('reach the reader of a pipe one a line; what is no JSON is buried, not lost', async () => {
    const { path, run } = freshPlace();
    const good = await publish(path, '{"orderId":42}');
    const bad = await publish(path, BODIES.binary);
    const { stdout } = await run('delayq drain "$Q" | cat');
    expect(linesOf(stdout)).toEqual(['{"orderId":42}']);
    expect(await call('GET', `${path}/job/${good}`)).toMatchObject({ status: 404 });
    expect(await call('GET', `${path}/deadletter`)).toMatchObject({
      json: { deadletter_size: 1, deadletter_head: bad },
    });
    expect(jobOf((await call('GET', `${path}/job/${bad}`)).json).data).toEqual(BODIES.binary);
    expect((await run(`delayq show "$Q" ${bad}`)).stdout).toContain('not a line');
  });

  it('are delivered as often over both sides together as `tries` says', async () => {
    const { path, pass, run } = freshPlace();
    const id = await publish(path, '{}', '?tries=2');
    expect(await consume(path, '?ttr=5')).toMatchObject({ remainTries: 1 });
    await pass(6_000);
    await run('delayq drain --backoff 1s "$Q" -- false');
    await pass(2_000);
    expect(await call('GET', path)).toMatchObject({ status: 404 });
    expect(await call('GET', `${path}/deadletter`)).toMatchObject({ json: { deadletter_head: id } });
  });

  it('are listed, shown, rescheduled and cancelled on the command line', async () => {
    const { path, queue, run } = freshPlace();
    const [first, second] = [await publish(path, '1', '?delay=600'), await publish(path, 'a=b', '?delay=60')];
    const listed = linesOf((await run('delayq list --json "$Q"')).stdout).map((line) => JSON.parse(line) as object);
    expect(listed).toHaveLength(2);
    const shown = await run(`delayq show --json "$Q" ${second}`);
    expect(JSON.parse(shown.stdout)).toMatchObject({ queue, id: second, state: 'pending' });
    expect(await run(`delayq cancel --yes "$Q" ${second}`)).toMatchObject({ code: 0 });
    expect(await call('GET', `${path}/job/${second}`)).toMatchObject({ status: 404 });
    expect(await run(`delayq reschedule --in 0s --yes "$Q" ${first}`)).toMatchObject({ code: 0 });
    expect(await consume(path)).toMatchObject({ id: first, data: Buffer.from('1') });
  });
});

describe('jobs enqueued on the command line', () => {
  it('are consumed and acked over HTTP, and count as done', async () => {
    const { path, queue, run } = freshPlace();
    await run(`delayq enqueue --id order-7 --attr tenant=acme "$Q" '{"orderId":42}'`);
    expect(await consume(path)).toMatchObject({
      id: 'order-7',
      data: Buffer.from('{"orderId":42}'),
      ttl: 0,
      attributes: { tenant: 'acme' },
    });
    expect(await call('DELETE', `${path}/job/order-7`)).toMatchObject({ status: 204 });
    const told = JSON.parse((await run('delayq inspect --json "$Q"')).stdout) as unknown;
    expect(told).toMatchObject({ queues: [{ queue, pending: 0, active: 0, dead: 0 }] });
  });

  it('wake a long poll', async () => {
    const { path, run } = freshPlace();
    const waiting = consume(path, '?timeout=30');
    await run(`delayq enqueue "$Q" '"now"'`);
    expect(await waiting).toMatchObject({ data: Buffer.from('"now"') });
  });

  it('wait for a long poll while the queue is paused', async () => {
    const { path, run } = freshPlace();
    await run(`delayq enqueue "$Q" 1 && delayq pause "$Q"`);
    expect(await call('GET', `${path}?timeout=1`)).toMatchObject({ status: 404 });
    const waiting = consume(path, '?timeout=30');
    await run('delayq resume "$Q"');
    await waiting;
  });

  it('become dead letters by bury, and ready by requeue, on either side', async () => {
    const { path, run } = freshPlace();
    await run(`delayq enqueue --id a "$Q" 1 && delayq enqueue --id b "$Q" 2 && delayq bury --yes "$Q" a b`);
    expect(await call('GET', `${path}/deadletter/size`)).toMatchObject({ json: { size: 2 } });
    await run('delayq requeue --yes "$Q" b');
    expect(await consume(path)).toMatchObject({ id: 'b' });
    expect(await call('PUT', `${path}/deadletter`)).toMatchObject({ json: { count: 1 } });
    expect((await run('delayq drain "$Q" | cat')).stdout).toBe('1\n');
  });

  it('that a handler holds may be deleted over HTTP: the handler is told, and they do not come back', async () => {
    const { path, run } = freshPlace();
    const line = `delayq enqueue --id held "$Q" 1
      delayq drain --backoff 0s "$Q" -- sh -c 'curl -s -X DELETE "$API/job/held"; exit 1'`;
    await run(line, { API: `${served.api}${path}` });
    expect(await call('GET', `${path}/job/held`)).toMatchObject({ status: 404 });
    expect(await call('GET', `${path}/deadletter/size`)).toMatchObject({ json: { size: 0 } });
  });
});

describe('a queue with partitions', () => {
  it('serves every route from all of them', async () => {
    const { path, pass, run } = freshPlace();
    expect(await run('delayq config --create "$Q" partitions=4')).toMatchObject({ code: 0 });
    const { json } = await call('PUT', `${path}/bulk?tries=2`, { body: JSON.stringify([...Array(60).keys()]) });
    const { job_ids } = json as { job_ids: string[] };
    for (let n = 60; n < 80; n++) job_ids.push(await publish(path, `${n}`, '?tries=2'));
    expect(await sizeOf(path)).toBe(80);
    expect(job_ids).toContain(jobOf((await call('GET', `${path}/peek`)).json).id);
    const taken: string[] = [];
    for (let status = 200; status === 200; ) {
      const answer = await call('GET', `${path}?count=30&ttr=5`);
      status = answer.status;
      if (status === 200) taken.push(...(answer.json as unknown[]).map((job) => jobOf(job).id));
    }
    expect(taken.sort()).toEqual([...job_ids].sort());
    for (const id of taken.slice(0, 40))
      expect(await call('DELETE', `${path}/job/${id}`)).toMatchObject({ status: 204 });
    await pass(6_000);
    expect(await sizeOf(path)).toBe(40);
    const swapped = await call('PUT', `${path}/job/${taken[40]}`, { body: 'new' });
    expect(jobOf((await call('GET', `${path}/job/${idOf(swapped.json)}`)).json).data.toString()).toBe('new');
    expect(await call('GET', `${path}/job/${taken[40]}`)).toMatchObject({ status: 404 });
    expect(await call('DELETE', path)).toMatchObject({ status: 204 });
    expect(await sizeOf(path)).toBe(0);
  });

  it('keeps and respawns dead letters in all of them', async () => {
    const { path, pass, run } = freshPlace();
    await run('delayq config --create "$Q" partitions=4');
    await call('PUT', `${path}/bulk`, { body: JSON.stringify([...Array(20).keys()]) });
    let taken = 0;
    while (taken < 20) taken += ((await call('GET', `${path}?count=20&ttr=1&timeout=1`)).json as unknown[]).length;
    await pass(2_000);
    expect(await call('GET', `${path}/deadletter/size`)).toMatchObject({ json: { size: 20 } });
    expect(await call('PUT', `${path}/deadletter?limit=7`)).toMatchObject({ json: { count: 7 } });
    expect(await sizeOf(path)).toBe(7);
    expect(await call('DELETE', `${path}/deadletter?limit=5`)).toMatchObject({ status: 204 });
    expect(await call('GET', `${path}/deadletter/size`)).toMatchObject({ json: { size: 8 } });
  });

  it('may grow while the server runs: nothing is lost, and long polls go on', async () => {
    const { path, run } = freshPlace();
    const ids = [];
    for (let n = 0; n < 20; n++) ids.push(await publish(path, `${n}`));
    const growing = run('delayq config "$Q" partitions=8');
    for (let n = 20; n < 60; n++) ids.push(await publish(path, `${n}`));
    expect(await growing).toMatchObject({ code: 0 });
    for (let n = 60; n < 80; n++) ids.push(await publish(path, `${n}`));
    const taken: string[] = [];
    while (taken.length < 80) {
      const { status, json } = await call('GET', `${path}?count=100&timeout=5`);
      expect({ status, taken: taken.length }).toMatchObject({ status: 200 });
      taken.push(...(json as unknown[]).map((job) => jobOf(job).id));
    }
    expect(taken.sort()).toEqual(ids.sort());
    const waiting = consume(path, '?timeout=30');
    await run(`delayq enqueue "$Q" '"now"'`);
    expect(await waiting).toMatchObject({ data: Buffer.from('"now"') });
  });
});
