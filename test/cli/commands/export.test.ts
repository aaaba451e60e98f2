import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { exportLine, importedOf } from '../../../src/cli/lines/export-line.js';
import { type Exported, JsonText, type Queue, Transfer } from '../../../src/internal.js';
import { during } from '../../support/afterwards.js';
import { begin, delayq, linesOf, sh } from '../../support/cli.js';
import { codePoint, slowRuns } from '../../support/property.js';
import { admin, connection, freshName, freshQueue, hearing, key, keysLike } from '../../support/redis.js';
import { Server } from '../../support/server.js';
import { temporaryDirectory } from '../../support/temporary.js';
import { until } from '../../support/until.js';

const transfer = new Transfer(connection);
const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);
const LARGE = JSON.stringify('é'.repeat(512 * 1024));

/** Payloads and records that a round trip through JSON, or through text, would change. */
const ODD: [string, string | Buffer][] = [
  ['big', '{"n":12345678901234567890, "x":1.0e2}'],
  ['slash', '"\\/\\u00e9"'],
  ['twice', '{"a":1,"a":2,"payload":{"payload":3}}'],
  ['separator', '"\u2028\u2029\u202e\u0085"'],
  ['large', LARGE],
  ['null', 'null'],
  ['spaced', ' {"a": 1} '],
  ['broken', '{"a":\r\n1}'],
  ['text', 'no JSON'],
  ['none', ''],
  ['binary', Buffer.from([0, 0xff, 0xfe, 10])],
];

/** Puts a job there as other software might. */
async function put(
  name: string,
  state: string,
  score: number | string,
  id: string | Buffer,
  payload: string | Buffer,
  record?: string | Buffer,
) {
  await admin.zadd(key(name, state), String(score), id);
  await admin.hset(key(name, 'payload'), new Map([[id, payload]]) as never);
  if (record !== undefined) await admin.hset(key(name, 'meta'), new Map([[id, record]]) as never);
}

/** All that Redis holds of jobs. */
async function contents(name: string, prefix = 'delayq') {
  const of = (which: string) => `${prefix}:{${name}}:${which}`;
  const hash = async (which: string) =>
    Object.entries(await admin.hgetallBuffer(of(which)))
      .map(([id, value]) => [Buffer.from(id).toString('hex'), value.toString('hex')].join())
      .sort();
  const set = async (which: string) =>
    (await admin.zrangeBuffer(of(which), '0', '-1', 'WITHSCORES')).map((part) => part.toString('hex'));
  return {
    pending: await set('pending'),
    dead: await set('dead'),
    payload: await hash('payload'),
    meta: await hash('meta'),
  };
}

async function withEverything(): Promise<Queue> {
  const queue = freshQueue();
  const { name } = queue;
  await queue.enqueue([
    { id: 'plain', payload: { n: 1 }, at: 4_000_000_000_123 },
    { id: 'limited', payload: 2, at: 4_000_000_000_000, tries: 3, deliveries: 4, ttl: '90s' },
    { id: 'lost', payload: 3, at: 4_000_000_000_000, maxLost: 2, created: 1_790_000_000_000, attributes: { a: 'x' } },
    { id: 'traced', payload: 3, at: 4_000_000_000_000, tries: 3, attributes: { traceparent: '00-4bf9', b: 'é"/' } },
    { id: 'dies', payload: 4, at: 5 },
  ]);
  await queue.nack((await queue.drain()).jobs, { mode: 'dead', error: 'exit 65: "no\nsuch" order\u2028' });
  for (const [i, [id, payload]] of ODD.entries()) {
    await put(
      name,
      i % 2 ? 'pending' : 'dead',
      4_100_000_000_000.125 + i,
      id,
      payload,
      i % 3 ? '{"failures":1.0}' : undefined,
    );
  }
  for (const score of ['-inf', 'inf', '1e+300', '-5', '0.1', '12', '1795266000123.4567'])
    await put(name, 'pending', score, `at ${score}`, '1');
  await put(name, 'dead', 7, '"id"\u0000\u202e', '1', Buffer.from([0xff, 1]));
  await put(name, 'pending', 7, Buffer.from([0xfe, 0xff]), '1', 'no JSON');
  return queue;
}

describe('a queue survives a trip through a file', () => {
  it('byte for byte: dead and pending, records, odd payloads, odd ids, times that are fractions or endless', async () => {
    const { name } = await withEverything();
    const prefix = freshName();
    const file = join(temporaryDirectory(), 'q.jsonl');
    const first = await sh(`delayq export ${name} > ${file}`);
    expect(first).toMatchObject({ code: 0, stderr: '' });
    const imported = await delayq(['import', '--prefix', prefix, name, file]);
    expect(imported).toMatchObject({ code: 0, stdout: '', stderr: `delayq: 25 jobs imported into ${name}\n` });
    expect(await contents(name, prefix)).toEqual(await contents(name));
    const second = await delayq(['export', '--prefix', prefix, name]);
    expect(second.stdout === readFileSync(file, 'utf8')).toBe(true);
    expect(linesOf(second.stdout)).toHaveLength(25);
  });

  it('into an empty server, where nothing but the jobs and their count is there', async () => {
    const { name } = await withEverything();
    const server = await during(Server.start());
    await sh(`delayq export ${name} | delayq import ${name} --redis ${server.url}`);
    expect((await server.admin.keys('*')).sort()).toEqual(
      [...['dead', 'meta', 'payload', 'pending', 'stats'].map((which) => key(name, which)), 'delayq:queues'].sort(),
    );
    expect(await server.admin.hgetall(key(name, 'stats'))).toEqual({ restored: '25' });
  });

  it('whatever ids, times, records and payloads are', async () => {
    const bytes = fc.oneof(
      fc.json().map((text) => Buffer.from(text)),
      fc.string({ unit: codePoint }).map((text) => Buffer.from(text)),
      fc.uint8Array().map((list) => Buffer.from(list)),
    );
    const ms = fc.integer({ min: 0, max: 9e12 });
    const count = fc.option(fc.integer({ min: 0, max: 1e10 }), { nil: undefined });
    const attribute = fc.option(fc.oneof(fc.string(), fc.string({ unit: codePoint }), fc.nat()), {
      ...{ nil: undefined, freq: 1 },
    });
    const parcel = fc.record({
      id: bytes.filter(({ length }) => length > 0),
      state: fc.constantFrom('pending' as const, 'dead' as const),
      score: fc.oneof(ms.map(String), fc.constantFrom('inf', '-inf', '-0', '1e+300', '1.5', '0', '999', '1000')),
      record: fc.oneof(
        fc.constant(undefined),
        bytes.filter(({ length }) => length > 0),
        fc
          .record({ tries: count, deliveries: count, ttl: count, 'a:b': attribute, 'a:a': attribute, 'a:A': attribute })
          .map((record) => Buffer.from(JSON.stringify(record))),
      ),
      payload: bytes,
      held: fc.constant(undefined),
    });
    fc.assert(
      fc.property(parcel, (job: Exported) => {
        const line = exportLine(job);
        expect(line).not.toMatch(/[\r\n]/);
        const { held: _, ...given } = job;
        expect(importedOf(line, 'UTC', 0)).toEqual({ parcel: given });
      }),
      slowRuns(5_000),
    );
  });

  it('with its settings, when they are asked for on both sides', async () => {
    const [from, to] = [freshQueue(), freshQueue()];
    await from.enqueue({ payload: 1, id: 'a' });
    await delayq(['config', from.name, 'tries=4', 'backoff=30s,1m', 'ttl=2d']);
    const { stdout } = await delayq(['export', '--config', from.name]);
    expect(JSON.parse(linesOf(stdout)[0] ?? '')).toEqual({
      ...{ delayq: 'export', schema: 1, queue: from.name },
      config: { tries: '4', backoff: '30000 60000', ttl: '172800000' },
    });
    const without = await delayq(['import', to.name], { input: stdout });
    expect(without.code).toBe(0);
    expect(without.stderr).toContain('line 1: settings ignored (tries, backoff, ttl): --config sets them');
    expect(await admin.hgetall(key(to.name, 'config'))).toEqual({});
    expect(await delayq(['import', '--config', to.name], { input: stdout })).toMatchObject({ code: 0 });
    expect(await admin.hgetall(key(to.name, 'config'))).toEqual(await admin.hgetall(key(from.name, 'config')));
  });
});

describe('delayq export', () => {
  it('writes a plain pending job as a line that enqueue --jobs takes', async () => {
    const [from, to] = [freshQueue(), freshQueue()];
    await from.enqueue([
      { id: 'a', payload: JsonText.parse('{"big":12345678901234567890}'), at: 4_000_000_000_123 },
      { id: 'b', payload: 'x', at: 4_000_000_000_124, tries: 3, deliveries: 2, ttl: '1h', attributes: { a: '7' } },
    ]);
    const { stdout } = await delayq(['export', from.name]);
    expect(linesOf(stdout)[0]).toBe('{"id":"a","at":"@4000000000.123","payload":{"big":12345678901234567890}}');
    expect(await delayq(['enqueue', '--jobs', '-q', to.name, '-'], { input: stdout })).toMatchObject({
      code: 0,
      stderr: '',
    });
    expect(await contents(to.name)).toEqual(await contents(from.name));
  });

  it('writes what a consumer holds as it was before, and says so', async () => {
    const queue = freshQueue();
    await queue.enqueue({ id: 'a', payload: 1, at: 1_234 });
    await queue.drain();
    const { code, stdout, stderr } = await delayq(['export', queue.name]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: '{"id":"a","at":"@1.234","payload":1}\n' });
    expect(stderr).toBe('delayq: 1 active job exported as pending\n');
  });

  it('leaves out an id without a payload, names it, and exits 1', async () => {
    const queue = freshQueue();
    await queue.enqueue({ id: 'a', payload: 1, at: 1_234 });
    await admin.zadd(key(queue.name, 'pending'), 1, 'orphan');
    const { code, stdout, stderr } = await delayq(['export', queue.name]);
    expect({ code, stderr }).toEqual({ code: 1, stderr: 'delayq: orphan has no payload and was left out\n' });
    expect(linesOf(stdout)).toHaveLength(1);
  });

  it('writes an empty id so that an import reads it', async () => {
    const [queue, other] = [freshQueue(), freshQueue()];
    await admin.hset(key(queue.name, 'payload'), '', '{"e":1}');
    await admin.zadd(key(queue.name, 'pending'), 1_000, '');
    const { stdout } = await delayq(['export', queue.name]);
    expect(await delayq(['import', other.name], { input: stdout })).toMatchObject({ code: 0 });
    expect(await admin.hgetall(key(other.name, 'payload'))).toEqual({ '': '{"e":1}' });
  });

  it('writes the jobs that a filter means', async () => {
    const { name } = await withEverything();
    const ids = async (...args: string[]) =>
      linesOf((await delayq(['export', ...args, name])).stdout)
        .map((line) => JSON.parse(line))
        .map(({ id, idBase64 }) => id ?? Buffer.from(idBase64, 'base64').toString());
    expect(await ids('--dead', '-n', '2')).toEqual(['"id"\u0000\u202e', expect.any(String)]);
    expect(await ids('--grep', 'no\nsuch')).toEqual(['dies']);
    expect(await ids('--pending', '--from', '@3999999999', '--to', '@4000000001')).toEqual([
      'limited',
      'lost',
      'traced',
      'plain',
    ]);
  });

  it('of a queue that is not there says so, exit 3, and ends when nobody reads on', async () => {
    expect(await delayq(['export', freshName()])).toMatchObject({ code: 3, stdout: '' });
    const queue = freshQueue();
    await queue.enqueue(upTo(20_000).map((n) => ({ payload: n, at: 4_000_000_000_000 })));
    const { stdout, stderr } = await sh(`{ delayq export ${queue.name}; echo "ended with $?" >&2; } | head -1`);
    expect({ lines: linesOf(stdout).length, stderr }).toEqual({ lines: 1, stderr: 'ended with 0\n' });
  });

  it('obeys nothing on a terminal (failures 30)', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: '\u009b31mred\u202e', id: 'a' });
    const { stdout } = await sh(`script -qec 'delayq export ${queue.name}' /dev/null`);
    for (const obeyed of ['\u009b', '\u202e']) expect(stdout).not.toContain(obeyed);
    expect(JSON.parse(stdout).payload).toBe('\u009b31mred\u202e');
  });
});

describe('delayq import', () => {
  const good = (id: string, payload: unknown = 1) => JSON.stringify({ id, at: '@4000000000', payload });

  it('takes the good lines, names the bad ones by number, exit 1', async () => {
    const { name } = freshQueue();
    const input = [
      good('a'),
      'no JSON',
      '',
      '{"at":"@1","payload":1}',
      '{"id":"x","payload":1}',
      '{"id":"x","at":"@1"}',
      '{"id":"x","at":"@1","payload":1,"payloadBase64":"MQ=="}',
      '{"id":"x","at":"@1","payloadBase64":"no"}',
      '{"id":"x","at":"@1","state":"active","payload":1}',
      '{"id":"x","score":"0x10","payload":1}',
      '{"id":"x","score":"nan","payload":1}',
      '{"id":"x","score":"1e400","payload":1}',
      '{"id":"x","at":"@1","tries":0,"payload":1}',
      '{"id":"x","at":"@1","tries":1,"record":"{}","payload":1}',
      '{"id":"x","at":"@1","deliveries":1,"record":"{}","payload":1}',
      '{"id":"x","at":"@1","attributes":{"a":"x"},"record":"{}","payload":1}',
      '{"id":"x","at":"@1","attributes":{"a":7},"payload":1}',
      '{"id":"x","at":"@1","paylod":1,"payload":1}',
      good('b'),
    ].join('\n');
    const { code, stderr } = await delayq(['import', name], { input });
    expect(code).toBe(1);
    expect([...stderr.matchAll(/line (\d+): /g)].map(([, n]) => Number(n))).toEqual([
      2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,
    ]);
    expect(stderr).toContain(`2 jobs imported into ${name}; 16 bad lines\n`);
    expect((await contents(name)).payload).toHaveLength(2);
  });

  it.each(['1e400', '1e-400'])('of a time that ZADD would refuse (%s) leaves no half of a job', async (score) => {
    const { name } = freshQueue();
    const job = { state: 'pending', record: undefined, payload: Buffer.from('1') } as const;
    const jobs = ['5', score].map((at, i) => ({ ...job, id: Buffer.from(`j${i}`), score: at }));
    expect(await transfer.restore(name, jobs)).toEqual(['created', 'created']);
    expect(await admin.zcard(key(name, 'pending'))).toBe(2);
  });

  it('keeps what is there, in any state; names what is there with another payload, exit 1', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { id: 'held', payload: 1 },
      { id: 'there', payload: 1, at: 4_000_000_000_000 },
      { id: 'other', payload: 2, at: 4_000_000_000_000 },
    ]);
    await queue.drain();
    const input = ['held', 'there', 'other', 'new', 'new'].map((id) => good(id)).join('\n');
    const before = await contents(queue.name);
    const first = await delayq(['import', '--json', queue.name], { input });
    expect(JSON.parse(first.stdout)).toEqual({
      ...{
        schema: 1,
        queue: queue.name,
        created: 1,
        kept: 3,
        keptDead: 0,
        keptDone: 0,
        differs: 1,
        held: 0,
        recurring: 0,
        refused: 0,
      },
    });
    expect(first).toMatchObject({
      code: 1,
      stderr: `delayq: line 3: other is in the queue as another job, and was left as it is\n`,
    });
    await admin.zrem(key(queue.name, 'pending'), 'new');
    await admin.hdel(key(queue.name, 'payload'), 'new');
    expect(await contents(queue.name)).toEqual(before);
  });

  it('tells of a job that is dead there and pending in the file, exit 1', async () => {
    const queue = freshQueue();
    await queue.enqueue({ id: 'a', payload: 1 });
    await queue.nack((await queue.drain()).jobs, { mode: 'dead' });
    const { code, stderr } = await delayq(['import', queue.name], { input: good('a') });
    expect(code).toBe(1);
    expect(linesOf(stderr)).toEqual([
      'delayq: line 1: a is dead in the queue, and was left as it is',
      `delayq: 0 jobs imported into ${queue.name}; 1 job dead there`,
    ]);
  });

  it('killed on its way and repeated has each job once', async () => {
    const { name } = freshQueue();
    const all = upTo(2_000).map((n) => good(`j${n}`));
    const running = begin(['import', name]);
    running.child.stdin?.write(`${all.slice(0, 700).join('\n')}\n`);
    await until(async () => (await admin.zcard(key(name, 'pending'))) > 0);
    running.child.kill('SIGKILL');
    await running.ended;
    const { code, stdout } = await delayq(['import', '--json', name], { input: all.join('\n') });
    const { created, kept } = JSON.parse(stdout);
    expect({ code, both: created + kept, someKept: kept > 0 }).toEqual({ code: 0, both: 2_000, someKept: true });
    expect(await admin.zcard(key(name, 'pending'))).toBe(2_000);
    expect(await admin.hget(key(name, 'stats'), 'restored')).toBe('2000');
  });

  it('mends an id without a payload', async () => {
    const { name } = freshQueue();
    await admin.zadd(key(name, 'dead'), 1, 'a');
    await admin.hset(key(name, 'meta'), 'a', '{"reason":"orphaned"}');
    expect(await delayq(['import', name], { input: good('a') })).toMatchObject({ code: 0 });
    expect(await contents(name)).toMatchObject({
      dead: [],
      meta: [],
      pending: [expect.any(String), expect.any(String)],
    });
  });

  it('does nothing but read with --dry-run', async () => {
    const { name } = freshQueue();
    const { code, stderr } = await delayq(['import', '--dry-run', name, '-'], { input: `${good('a')}\nbad` });
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: `delayq: line 2: the line is not a job: it is not JSON\ndelayq: 1 job would be imported into ${name}; 1 bad line\n`,
    });
    expect(await keysLike(key(name, '*'))).toEqual([]);
  });

  it('wakes a watcher when something is due', async () => {
    const queue = freshQueue();
    const { messages } = await hearing(queue.wakeChannel);
    await transfer.restore(queue.name, [
      { id: Buffer.from('a'), state: 'pending', score: '5', record: undefined, payload: Buffer.from('1') },
    ]);
    await until(() => messages.length > 0);
    expect(messages).toEqual(['5']);
  });

  it('of a file that is not there, or no file, says so, exit 66', async () => {
    expect(await delayq(['import', 'q', '/nowhere'])).toMatchObject({
      code: 66,
      stderr: expect.stringContaining('ENOENT'),
    });
    expect(await delayq(['import', 'q', '/'])).toMatchObject({
      code: 66,
      stderr: expect.stringContaining('directory'),
    });
  });

  it('is refused whole by a full server, exit 75, and done by a repeat (failures 4)', async () => {
    const server = await during(Server.start());
    const { name } = freshQueue();
    const file = join(temporaryDirectory(), 'q.jsonl');
    writeFileSync(
      file,
      upTo(1_000)
        .map((n) => good(`j${n}`, 'x'.repeat(2_000)))
        .join('\n'),
    );
    await server.admin.config('SET', 'maxmemory', '1');
    const full = await delayq(['import', name, file, '--redis', server.url]);
    expect(full.code).toBe(75);
    expect(full.stderr).toContain('then repeat the import: jobs that were imported are kept');
    await server.admin.config('SET', 'maxmemory', '0');
    expect(await delayq(['import', name, file, '--redis', server.url])).toMatchObject({ code: 0 });
    expect(await server.admin.zcard(key(name, 'pending'))).toBe(1_000);
    expect(await server.admin.hlen(key(name, 'payload'))).toBe(1_000);
  });
});
