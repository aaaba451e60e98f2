import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, inject, it } from 'vitest';
import { Inspector, type StoredJob } from '../src/index.js';
import { sh } from './support/cli.js';
import { admin, connection, freshName, onCluster } from './support/redis.js';
import { temporaryDirectory } from './support/temporary.js';

const has = (command: string, ...args: string[]) => spawnSync(command, args).status === 0;

/** Runs the commands of a page of the guide on the queue `old`, and returns what `queue` has then, by id. */
async function migrated(page: string, replace: Record<string, string>, queue: string) {
  const guide = readFileSync(new URL(`../docs/guide/migrate/${page}.md`, import.meta.url), 'utf8');
  const [, block = ''] = /^Step 4(?:.|\n)*?```sh\n(.*?)```/ms.exec(guide) ?? [];
  let commands = block;
  for (const [from, to] of Object.entries(replace)) {
    expect(commands).toContain(from);
    commands = commands.replaceAll(from, to);
  }
  const scripts = fileURLToPath(new URL('../examples/migrate/', import.meta.url));
  commands = commands
    .replace(/cat (\w+\.lua)/g, `cat ${scripts}$1`)
    .replaceAll('redis-cli', `redis-cli -s ${inject('redisSocket')}`);
  const run = await sh(`set -e; cd ${temporaryDirectory()}\n${commands}`);
  expect(run).toMatchObject({ code: 0, stderr: '' });
  const jobs: Record<string, StoredJob> = {};
  for await (const job of new Inspector(connection).list(queue, { states: ['pending'] })) jobs[job.id] = job;
  return jobs;
}

const payloads = (jobs: Record<string, StoredJob>) =>
  Object.fromEntries(Object.entries(jobs).map(([id, { payload }]) => [id, payload?.toString()]));

/** The time in so many seconds, whole seconds since 1970. */
const inSeconds = async (seconds: number) => Math.floor((await connection.now()) / 1_000) + seconds;

// Its commands for redis-cli are for one server, as the keys of other libraries are in several slots.
describe.skipIf(onCluster)('the guide takes over jobs', () => {
  it('of BullMQ: delayed, prioritized and waiting ones, but not the next run of a scheduler', async () => {
    const old = `bull:${freshName()}`;
    const queue = freshName();
    const due = (await inSeconds(900)) * 1_000 + 7;
    const opts = '{"attempts":3,"delay":900000,"backoff":{"type":"exponential","delay":1000}}';
    const data = '{"orderId":12345678901234567890,"s":"\\"é\\" {payload}"}';
    const repeated = `repeat:nightly:${due}`;
    await admin.hset(`${old}:1`, { name: 'close', data, opts, timestamp: due - 900_000, delay: 900_000, atm: 1 });
    await admin.hset(`${old}:order-2`, { name: 'close', data: '2', opts: '{"attempts":0}' });
    await admin.hset(`${old}:3`, { name: 'close', data: '3', opts: '{"priority":3}' });
    await admin.hset(`${old}:4`, { name: 'other', data: '4', opts: '{}' });
    await admin.hset(`${old}:${repeated}`, { name: 'close', data: '5', opts: '{}' });
    await admin.zadd(`${old}:delayed`, due * 4_096 + 1, '1', due * 4_096, repeated);
    await admin.zadd(`${old}:prioritized`, 3, '3');
    await admin.lpush(`${old}:wait`, '4', 'order-2');
    const jobs = await migrated('bullmq', { 'bull:order-close': old, 'order-close': queue }, queue);
    expect(payloads(jobs)).toEqual({ 'bullmq:1': data, 'bullmq:order-2': '2', 'bullmq:3': '3' });
    expect(jobs['bullmq:1']).toMatchObject({ due, tries: 2 });
    expect(jobs['bullmq:order-2']).toMatchObject({ tries: 1 });
  });

  it.runIf(has('jq', '--version'))(
    'of Sidekiq: scheduled, retried and enqueued ones of one class, never early',
    async () => {
      const [queue, list, schedule, retry] = [freshName(), freshName(), freshName(), freshName()];
      const at = (await inSeconds(900)) + 0.0014;
      const job = (jid: string, args: unknown, kind = 'CloseOrder') =>
        JSON.stringify({ retry: true, queue: 'default', class: kind, args, jid, created_at: 1795322427.9944718 });
      await admin.zadd(schedule, at, job('a', [42, { note: '"é"' }]), at, job('b', [], 'Remind'));
      await admin.zadd(retry, at + 1, job('c', [43]));
      await admin.lpush(`queue:${list}`, job('d', [44]));
      const jobs = await migrated(
        'sidekiq',
        { 'in schedule retry': `in ${schedule} ${retry}`, 'queue:default': `queue:${list}`, 'close-order': queue },
        queue,
      );
      expect(payloads(jobs)).toEqual({ a: '[42,{"note":"\\"é\\""}]', c: '[43]', d: '[44]' });
      expect(jobs.a?.due).toBe(Math.ceil(at * 1_000));
    },
  );

  it('of asynq: scheduled, retried and pending ones of one type', async () => {
    const old = `asynq:{${freshName()}}`;
    const queue = freshName();
    const at = await inSeconds(900);
    await asynqTask(old, 'a', { payload: '{"orderId":12345678901234567890}', retry: 300, retried: 40 }, at);
    await asynqTask(old, 'b', { payload: '[\n1\r\n]', retry: 25 }, at, 'retry');
    await asynqTask(old, 'c', { payload: 'plain "text"', retry: 0 });
    await asynqTask(old, 'd', { type: 'remind', payload: '1', retry: 25 }, at);
    await asynqTask(old, 'e', { payload: '', retry: 25 }, at);
    const jobs = await migrated('asynq', { 'asynq:{default}': old, 'order-close': queue }, queue);
    expect(payloads(jobs)).toEqual({
      'asynq:a': '{"orderId":12345678901234567890}',
      'asynq:b': '[ 1  ]',
      'asynq:c': '"plain \\"text\\""',
      'asynq:e': 'null',
    });
    expect(jobs['asynq:a']).toMatchObject({ due: at * 1_000, tries: 261 });
    expect(jobs['asynq:c']).toMatchObject({ tries: 1 });
  });

  it('of lmstfy: delayed and ready ones, with what is left of their time to live', async () => {
    const [queue, namespace, timer] = [freshName(), freshName(), freshName()];
    const at = await inSeconds(900);
    const delayed = async (name: string, id: string, tries: number, body: string, ttl: number) => {
      await admin.set(`j/${namespace}/${name}/${id}`, body);
      if (ttl) await admin.expire(`j/${namespace}/${name}/${id}`, ttl);
      const member = Buffer.concat([counted(namespace), counted(name), uint16(tries), counted(id)]);
      await admin.zadd(timer, at, member);
    };
    await delayed(queue, '01', 3, '{"orderId":42}', 1_000);
    await delayed(queue, '02', 1, 'text', 0);
    await delayed(queue, '03', 1, '"deleted before it is due"', 100);
    await delayed(queue, '04', 0, '"no tries left"', 0);
    await delayed('other', '05', 1, '5', 0);
    await admin.set(`j/${namespace}/${queue}/06`, '6');
    await admin.lpush(`q/${namespace}/${queue}`, Buffer.concat([uint16(2), counted('06')]));
    const jobs = await migrated(
      'lmstfy',
      { 'timer_set shop': `${timer} ${namespace}`, 'shop.order-close': queue, 'order-close': queue },
      queue,
    );
    expect(payloads(jobs)).toEqual({ '01': '{"orderId":42}', '02': '"text"', '06': '6' });
    expect(jobs['01']).toMatchObject({ due: at * 1_000, deliveries: 3 });
    expect((jobs['01']?.ttl ?? 0) / 1_000).toBeCloseTo(100, -1);
    expect(jobs['02']?.ttl).toBeUndefined();
  });
});

describe.skipIf(onCluster)('sorted-set.sh', () => {
  const script = fileURLToPath(new URL('../examples/migrate/sorted-set.sh', import.meta.url));
  const move = (args: string, before = '') =>
    sh(
      `${before}export TMPDIR=${temporaryDirectory()} REDIS_CLI='redis-cli -s ${inject('redisSocket')}'; exec sh ${script} ${args}`,
    );
  const stored = async (queue: string) => {
    const jobs = [];
    for await (const job of new Inspector(connection).list(queue, { states: ['pending'] })) jobs.push(job);
    return jobs.map(({ due, payload }) => [payload?.toString(), due]).sort();
  };

  it.each(['s', 'ms'])('moves members of any text, with times in %s, and leaves what cannot be a job', async (unit) => {
    const [set, queue] = [freshName(), freshName()];
    const at = await inSeconds(900);
    const score = (seconds: number) => (unit === 's' ? seconds : seconds * 1_000);
    await admin.zadd(
      set,
      score(at),
      'order:42',
      score(at + 0.0014),
      '{"a": "é\\n"}',
      score(at),
      '01',
      score(at),
      '"😀"',
    );
    const odd = [Buffer.from([0x62, 0xff]), Buffer.from([0xed, 0xa0, 0x80]), 'never', 'other unit'];
    await admin.zadd(set, score(at), odd[0] ?? '', score(at), odd[1] ?? '', 'inf', 'never');
    await admin.zadd(set, unit === 's' ? at * 1_000 : at, 'other unit');
    const looked = await move(`--dry-run ${set} ${unit} ${queue}`);
    expect(looked).toMatchObject({ code: 1, stdout: `4 would be moved to ${queue}, 4 left in ${set}\n`, stderr: '' });
    expect([await admin.zcard(set), await stored(queue)]).toEqual([8, []]);
    expect(await move(`${set} ${unit} ${queue}`)).toMatchObject({
      code: 1,
      stdout: `4 moved to ${queue}, 4 left in ${set}\n`,
    });
    const expected = [
      ['"01"', at * 1_000],
      ['"order:42"', at * 1_000],
      ['"😀"', at * 1_000],
      ['{"a": "é\\n"}', at * 1_000 + 2],
    ];
    expect(await stored(queue)).toEqual(expected);
    expect((await admin.zrangeBuffer(set, 0, '-1')).map(String).sort()).toEqual(odd.map(String).sort());
    expect(await move(`${set} ${unit} ${queue}`)).toMatchObject({ stdout: `0 moved to ${queue}, 4 left in ${set}\n` });
    expect(await stored(queue)).toEqual(expected);
  });

  it('loses nothing if it is killed at any step, or enqueue fails, while a producer writes', async () => {
    const [set, queue] = [freshName(), freshName()];
    const at = await inSeconds(900);
    const write = (from: number, to: number) =>
      admin.zadd(set, ...Array.from({ length: to - from }, (_, i) => [String(at), `m${from + i}`]).flat());
    await write(0, 6_000);
    const path = temporaryDirectory();
    // A delayq that enqueues, and then fails, or its script is killed; one that fails at once.
    const broken = [`delayq "$@"; exit 75`, `delayq "$@"; kill -9 $PPID; sleep 0.2`, 'exit 69', 'kill -9 $PPID'];
    for (const [i, line] of broken.entries()) {
      writeFileSync(`${path}/delayq`, `#!/bin/sh\nPATH=\${PATH#*:}\n${line}\n`, { mode: 0o755 });
      expect((await move(`${set} s ${queue}`, `export PATH=${path}:"$PATH"; `)).code).not.toBe(0);
      await write(6_000 + 10 * i, 6_010 + 10 * i);
    }
    expect(await move(`${set} s ${queue}`)).toMatchObject({ code: 0, stderr: '' });
    expect(await admin.exists(set, `{${set}}:delayq-move`)).toBe(0);
    expect((await stored(queue)).map(([payload]) => payload)).toEqual(
      Array.from({ length: 6_040 }, (_, i) => `"m${i}"`).sort(),
    );
  });

  it('stops at an error of Redis, and says how it is called', async () => {
    const set = freshName();
    await admin.set(set, 'text');
    expect(await move(`${set} s ${freshName()}`)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('WRONGTYPE'),
    });
    expect(await move(set)).toMatchObject({ code: 64, stderr: expect.stringContaining('usage: ') });
  });
});

describe.skipIf(onCluster)('text that is nearly JSON', () => {
  const texts = [
    ...['01', '-01', '1.', '.5', '+1', '0x10', '1e', '1-2', 'NaN', 'nan', '-inf', 'Infinity', 'true1', '', ' ', '[1,]'],
    ...['{"a":01}', '[1,NaN]', '"a\nb"', '["\t"]', '{"a\n":1}', '"\\u00zz"', "{'a':1}", '"a" 01', 'plain: [text]'],
  ];
  const json = [
    ...[
      '0',
      '-0',
      '10',
      '-1.50',
      '1e5',
      '1E-5',
      '1.5e+10',
      'true',
      'null',
      ' [1 ,\r\n2 ] ',
      '"01"',
      '""',
      '{}',
      '[[]]',
    ],
    ...['{"01":[0,false,"a\\"b, NaN \\\\"],"é\u007f":{"\\n":1e999}}', '12345678901234567890', '"NaN"'],
  ];
  const bodies = [...texts, ...json];
  const expected = Object.fromEntries([
    ...texts.map((text, i) => [i, text]),
    ...json.map((text, i) => [texts.length + i, JSON.parse(text)]),
  ]);
  const parsed = (jobs: Record<string, StoredJob>) =>
    Object.fromEntries(
      Object.entries(payloads(jobs)).map(([id, text]) => [id.replace(/^.*:/, ''), JSON.parse(String(text))]),
    );

  it('of lmstfy becomes a string, and JSON stays what it is', async () => {
    const [queue, namespace] = [freshName(), freshName()];
    for (const [i, body] of bodies.entries()) {
      await admin.set(`j/${namespace}/${queue}/${i}`, body);
      await admin.lpush(`q/${namespace}/${queue}`, Buffer.concat([uint16(2), counted(String(i))]));
    }
    const renamed = {
      'timer_set shop': `${freshName()} ${namespace}`,
      'shop.order-close': queue,
      'order-close': queue,
    };
    expect(parsed(await migrated('lmstfy', renamed, queue))).toEqual(expected);
  });

  it('of asynq becomes a string, and JSON stays what it is', async () => {
    const [old, queue] = [`asynq:{${freshName()}}`, freshName()];
    for (const [i, payload] of bodies.entries()) if (payload) await asynqTask(old, String(i), { payload, retry: 5 });
    const { [texts.indexOf('')]: _, ...others } = expected;
    expect(parsed(await migrated('asynq', { 'asynq:{default}': old, 'order-close': queue }, queue))).toEqual(others);
  });
});

const uint16 = (n: number) => Buffer.from([n % 256, n >> 8]);
const counted = (text: string) => Buffer.concat([uint16(text.length), Buffer.from(text)]);

/** Writes a task as asynq does: a protocol buffer in a hash, and its id in the set or list of its state. */
async function asynqTask(
  queue: string,
  id: string,
  { type = 'order:close', payload = '', retry = 0, retried = 0 },
  at?: number,
  set = 'scheduled',
) {
  const varint = (n: number): number[] => (n < 128 ? [n] : [(n % 128) + 128, ...varint(Math.floor(n / 128))]);
  const bytes = (field: number, text: string) => {
    const value = Buffer.from(text);
    return value.length > 0 ? [...varint(field * 8 + 2), ...varint(value.length), ...value] : [];
  };
  const number = (field: number, value: number) => (value > 0 ? [...varint(field * 8), ...varint(value)] : []);
  const message = [bytes(1, type), bytes(2, payload), bytes(3, id), bytes(4, 'default'), number(5, retry)];
  message.push(number(6, retried), bytes(7, 'boom'), number(8, 1_800), bytes(15, '\n\u0003key\u0012\u0001v'));
  await admin.hset(`${queue}:t:${id}`, { msg: Buffer.from(message.flat()), state: at ? set : 'pending' });
  if (at) await admin.zadd(`${queue}:${set}`, at, id);
  else await admin.lpush(`${queue}:pending`, id);
}
