import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, inject, it } from 'vitest';
import { Inspector, type StoredJob } from '../src/index.js';
import { sh } from './support/cli.js';
import { LONG } from './support/property.js';
import { admin, connection, freshName, key, onCluster } from './support/redis.js';
import { temporaryDirectory } from './support/temporary.js';

const has = (command: string, ...args: string[]) => spawnSync(command, args).status === 0;

const SCRIPTS = fileURLToPath(new URL('../examples/migrate/', import.meta.url));
const REDIS_CLI = `redis-cli -s ${inject('redisSocket')}`;

/** Runs the commands of a step of a page of the guide. */
function follow(step: 'Step 4' | 'Steps 5 and 6', page: string, replace: Record<string, string>, directory: string) {
  const guide = readFileSync(new URL(`../docs/guide/migrate/${page}.md`, import.meta.url), 'utf8');
  let [, commands = ''] = new RegExp(`^${step}(?:.|\\n)*?\`\`\`sh\\n(.*?)\`\`\``, 'ms').exec(guide) ?? [];
  for (const [from, to] of Object.entries(replace)) {
    expect(guide).toContain(from);
    commands = commands.replaceAll(from, to);
  }
  commands = commands
    .replace(/cat ([\w-]+\.lua)/g, `cat ${SCRIPTS}$1`)
    .replaceAll('sh delete.sh', `sh ${SCRIPTS}delete.sh`)
    .replaceAll('redis-cli', REDIS_CLI);
  return sh(`set -e; cd ${directory}; export TMPDIR=$PWD REDIS_CLI='${REDIS_CLI}'\n${commands}`);
}

const deleteCopied = (args: string, directory: string, before = '') =>
  sh(`cd ${directory}; export TMPDIR=$PWD REDIS_CLI='${REDIS_CLI}'; ${before}exec sh ${SCRIPTS}delete.sh ${args}`);

/** Copies a queue by the commands of a page of the guide, and returns what `queue` has then, by id. */
async function migrated(
  page: string,
  replace: Record<string, string>,
  queue: string,
  directory = temporaryDirectory(),
) {
  expect(await follow('Step 4', page, replace, directory)).toMatchObject({ code: 0, stderr: '' });
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
  it('of BullMQ: delayed, prioritized and waiting ones, but neither the next run of a scheduler nor flows', async () => {
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
    await admin.hset(`${old}:child`, { name: 'close', data: '6', opts: '{}', parentKey: 'bull:other:7' });
    await admin.hset(`${old}:parent`, { name: 'close', data: '8', opts: '{}' });
    await admin.hset(`${old}:parent:processed`, 'bull:other:9', '1');
    await admin.zadd(`${old}:delayed`, due * 4_096 + 1, '1', due * 4_096, repeated);
    await admin.zadd(`${old}:prioritized`, 3, '3');
    await admin.lpush(`${old}:wait`, '4', 'order-2', 'child', 'parent');
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

  it.each(['dp:Q', '{dp:Q}'])(
    'of delayqueue for Go in %s: waiting and held ones, with what is left of them',
    async (form) => {
      const [old, queue] = [form.replace('Q', freshName()), freshName()];
      const at = await inSeconds(900);
      await delayqueueMessage(old, 'a', { payload: '{"orderId":12345678901234567890}', at });
      await delayqueueMessage(old, 'b', { payload: 'plain "text"', at: at - 1_000, retries: 0, ttl: 0 });
      await delayqueueMessage(old, 'c', { list: 'ready', retries: 2 });
      await delayqueueMessage(old, 'd', { list: 'retry', retries: 0 });
      await delayqueueMessage(old, 'e', { set: 'unack', at, retries: 1 });
      await delayqueueMessage(old, 'f', { set: 'unack', at: at - 1_000, retries: 0 });
      // Intercepted while a worker held it: its count is gone.
      await delayqueueMessage(old, 'g', { set: 'unack', at });
      await admin.hdel(`${old}:retry:cnt`, 'g');
      // Its deadline passed, and then its callback failed: it is in two places.
      await delayqueueMessage(old, 'd', { set: 'unack', at, retries: 0 });
      await delayqueueMessage(old, 'h', { at });
      await admin.del(`${old}:msg:h`);
      await delayqueueMessage(old, 'i', { at, ttl: -100 });
      const renamed = { 'dp:order-close': `'${old}'`, 'order-close': queue };
      const directory = temporaryDirectory();
      const jobs = await migrated('delayqueue-go', renamed, queue, directory);
      expect(Object.fromEntries(Object.entries(jobs).map(([id, { tries }]) => [id, tries]))).toEqual({
        'delayqueue:a': 4,
        'delayqueue:b': 1,
        'delayqueue:c': 3,
        'delayqueue:d': 1,
        'delayqueue:e': 1,
      });
      expect(payloads(jobs)).toMatchObject({
        'delayqueue:a': '{"orderId":12345678901234567890}',
        'delayqueue:b': '"plain \\"text\\""',
      });
      expect([jobs['delayqueue:a']?.due, jobs['delayqueue:e']?.due]).toEqual([at * 1_000, at * 1_000]);
      expect((jobs['delayqueue:a']?.ttl ?? 0) / 1_000).toBeCloseTo(3_600, -2);
      expect(jobs['delayqueue:b']?.ttl).toBeUndefined();
      const { stdout } = await follow('Step 4', 'delayqueue-go', renamed, directory);
      expect(stdout).toMatch(/^5 to copy\n2 expired\n2 without a retry left\n/);
    },
  );

  it('of delayqueue for Go with a prefix of its own, whose payloads are under dp:', async () => {
    const [name, queue] = [freshName(), freshName()];
    const messages = `dp:${name}`;
    await delayqueueMessage(`shop:${name}`, 'a', { list: 'ready', payload: '1', messages });
    const keys = `2 shop:${name} ${messages}`;
    const directory = temporaryDirectory();
    const renamed = { '1 dp:order-close': keys, 'order-close': queue };
    expect(payloads(await migrated('delayqueue-go', renamed, queue, directory))).toEqual({ 'delayqueue:a': '1' });
    const run = await deleteCopied(`${queue} jobs.jsonl delayqueue shop:${name} ${messages}`, directory);
    expect(run).toMatchObject({ code: 0, stdout: `1 of 1 jobs deleted from shop:${name}\n` });
    expect(await admin.exists(`shop:${name}:ready`, `shop:${name}:retry:cnt`, `${messages}:msg:a`)).toBe(0);
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

interface Old {
  readonly page: string;
  /** How the names on the page become those of the test. */
  readonly names: (old: string, queue: string) => Record<string, string>;
  /** What delete.sh is given. */
  readonly key: (old: string, queue: string) => string;
  /** Adds a waiting job, not due yet or due, as the other system does. */
  readonly add: (old: string, id: string, payload: string | Buffer, at?: number) => Promise<unknown>;
  /** What a job leaves when it is gone. */
  readonly gone: (old: string, id: string) => string[];
  readonly id: (id: string) => string;
}

const delayqueue: Old = {
  page: 'delayqueue-go',
  names: (old, queue) => ({ 'dp:order-close': `dp:${old}`, 'order-close': queue }),
  key: (old) => `dp:${old}`,
  add: (old, id, payload, at) => delayqueueMessage(`dp:${old}`, id, at ? { payload, at } : { payload, list: 'ready' }),
  gone: (old, id) => [`dp:${old}:msg:${id}`],
  id: (id) => `delayqueue:${id}`,
};

const olds: Old[] = [
  {
    page: 'asynq',
    names: (old, queue) => ({ 'asynq:{default}': `asynq:{${old}}`, 'order-close': queue }),
    key: (old) => `asynq:{${old}}`,
    add: async (old, id, payload, at) => {
      const key = `asynq:{${old}}`;
      await asynqTask(key, id, { payload, retry: 5 }, at);
      await admin.hset(`${key}:t:${id}`, 'unique_key', `${key}:unique:${id}`);
      await admin.set(`${key}:unique:${id}`, id);
    },
    gone: (old, id) => [`asynq:{${old}}:t:${id}`, `asynq:{${old}}:unique:${id}`],
    id: (id) => `asynq:${id}`,
  },
  {
    page: 'bullmq',
    names: (old, queue) => ({ 'bull:order-close': `bull:${old}`, 'order-close': queue }),
    key: (old) => `bull:${old}`,
    add: async (old, id, data, at) => {
      await admin.hset(`bull:${old}:${id}`, { name: 'close', data, opts: '{}', deid: `once-${id}` });
      await admin.set(`bull:${old}:de:once-${id}`, id);
      if (at) await admin.zadd(`bull:${old}:delayed`, at * 1_000 * 4_096, id);
      else await admin.lpush(`bull:${old}:wait`, id);
    },
    gone: (old, id) => [`bull:${old}:${id}`, `bull:${old}:de:once-${id}`],
    id: (id) => `bullmq:${id}`,
  },
  delayqueue,
  {
    page: 'lmstfy',
    names: (old, queue) => ({
      'timer_set shop': `timer-${old} ${old}`,
      'shop.order-close': queue,
      'shop/order-close': `${old}/${queue}`,
      'order-close': queue,
    }),
    key: (old, queue) => `${old}/${queue}`,
    add: async (old, id, body, at) => {
      const [queue = ''] = id.split('!');
      await admin.set(`j/${old}/${queue}/${id}`, body);
      const member = Buffer.concat([counted(old), counted(queue), uint16(3), counted(id)]);
      if (at) await admin.zadd(`timer-${old}`, at, member);
      else await admin.lpush(`q/${old}/${queue}`, Buffer.concat([uint16(2), counted(id)]));
    },
    gone: (old, id) => [`j/${old}/${id.split('!')[0]}/${id}`],
    id: (id) => id,
  },
  {
    page: 'sidekiq',
    names: (old, queue) => ({
      'in schedule retry': `in ${old}:schedule ${old}:retry`,
      'queue:default': `${old}:queue:default`,
      'close-order': queue,
    }),
    key: (old) => `${old}:queue:default`,
    add: async (old, jid, payload, at) => {
      const job = JSON.stringify({ class: 'CloseOrder', args: [JSON.parse(String(payload))], jid, queue: 'default' });
      if (at) await admin.zadd(`${old}:schedule`, at, job);
      else await admin.lpush(`${old}:queue:default`, job);
    },
    gone: () => [],
    id: (id) => id,
  },
];

/** A queue of another system with four jobs, and a copy of it. */
async function copied({ page, names, key: keyOf, add }: Old) {
  const [old, queue, directory, at] = [freshName(), freshName(), temporaryDirectory(), await inSeconds(900)];
  const [replace, key] = [names(old, queue), keyOf(old, queue)];
  // The ids name the queue for lmstfy.
  const put = (name: string, payload: string | Buffer, due?: number) => add(old, `${queue}!${name}`, payload, due);
  const [file, copy] = [`${directory}/jobs.jsonl`, () => follow('Step 4', page, replace, directory)];
  await put('a', '1', at);
  await put('b', '2', at);
  await put('c', '3');
  await put('d', '4');
  expect(await copy()).toMatchObject({ code: 0, stderr: '' });
  /** The ids that are left: those that another copy has. */
  const left = async () => {
    const again = temporaryDirectory();
    await follow('Step 4', page, replace, again);
    const lines = readFileSync(`${again}/jobs.jsonl`, 'utf8').split('\n').filter(Boolean);
    return lines.map((line) => JSON.parse(line).id.replace(/^.*!/, '')).sort();
  };
  const run = (flag = '', before = '', to = queue) =>
    deleteCopied(`${flag} ${to} jobs.jsonl ${page.replace('-go', '')} '${key}'`, directory, before);
  return { old, queue, directory, at, file, copy, key, replace, put, left, run };
}

describe.skipIf(onCluster || !has('jq', '--version')).concurrent('delete.sh', () => {
  it.each(olds)('deletes what was copied from $page, and not what a producer adds meanwhile', async (system) => {
    const { old, queue, directory, at, key, replace, put, left } = await copied(system);
    await put('late', '5', at);
    await put('later', '6');
    const follows = () => follow('Steps 5 and 6', system.page, replace, directory);
    expect(await follows()).toMatchObject({
      code: 0,
      stderr: '',
      stdout: `4 of 4 jobs would be deleted from ${key}\n4 of 4 jobs deleted from ${key}\n`,
    });
    const rest = ['a', 'c'].flatMap((name) => system.gone(old, `${queue}!${name}`));
    if (rest.length > 0) expect(await admin.exists(...rest)).toBe(0);
    expect(await left()).toEqual(['late', 'later']);
    expect(await follows()).toMatchObject({
      code: 3,
      stdout: `0 of 4 jobs would be deleted from ${key}\n`,
      stderr: `${key} has none of them: they were deleted before, or SYSTEM or KEY is wrong\n`,
    });
  });

  it.each(olds)('deletes nothing of $page that the queue does not have', async (system) => {
    const { queue, file, key, put, left, run } = await copied(system);
    await put('e', '5');
    const id = system.id(`${queue}!e`);
    writeFileSync(file, `${readFileSync(file, 'utf8')}{"id":"${id}","payload":5}\n`);
    const refused = {
      code: 1,
      stdout: '',
      stderr: `1 of 5 jobs are not in ${queue}, such as ${id}: nothing was deleted\n`,
    };
    expect(await run('--dry-run')).toMatchObject(refused);
    expect(await run()).toMatchObject(refused);
    expect(await left()).toEqual(['a', 'b', 'c', 'd', 'e']);
    // The copy for "left" has enqueued it.
    expect(await run()).toMatchObject({ code: 0, stdout: `5 of 5 jobs deleted from ${key}\n` });
  });

  it('keeps a message that enqueue refuses, until its line is taken out of the file', async () => {
    const { queue, directory, file, copy, key, put, run } = await copied(delayqueue);
    await put('e', Buffer.from([0xff]));
    expect(await copy()).toMatchObject({ code: 1, stderr: expect.stringContaining('line 5') });
    expect(await run()).toMatchObject({ code: 1, stdout: '', stderr: expect.stringContaining('1 of 5 jobs are not') });
    await sh(`cd ${directory} && sed -i '$d' jobs.jsonl`);
    expect(readFileSync(file, 'utf8').trim().split('\n')).toHaveLength(4);
    expect(await run()).toMatchObject({ code: 0, stdout: `4 of 4 jobs deleted from ${key}\n` });
    expect(await admin.lrange(`${key}:ready`, 0, -1)).toEqual([`${queue}!e`]);
  });

  it('deletes nothing if the file or the queue is not what it should be', async () => {
    const { file, key, left, run } = await copied(delayqueue);
    const good = readFileSync(file, 'utf8');
    // Enqueue got nothing: there is no such queue.
    expect(await run('', '', freshName())).toMatchObject({ code: 3, stdout: '' });
    for (const [text, stderr] of [
      ['', 'jobs.jsonl has no jobs: nothing was deleted\n'],
      [`${good}{"payload":1}\n`, 'a line without an id'],
      [`${good}(error) ERR\n`, 'parse error'],
    ] as const) {
      writeFileSync(file, text);
      const { code, ...output } = await run();
      expect(code).not.toBe(0);
      expect(output).toMatchObject({ stdout: '', stderr: expect.stringContaining(stderr) });
    }
    writeFileSync(file, good);
    expect(await run('', 'export REDIS_CLI="redis-cli -s /nowhere"; ')).toMatchObject({ code: 1, stdout: '' });
    expect(await left()).toEqual(['a', 'b', 'c', 'd']);
    writeFileSync(file, `${good}${good}`);
    expect(await run()).toMatchObject({ code: 0, stdout: `4 of 4 jobs deleted from ${key}\n` });
  });

  it('can be killed at any step, while a producer writes', async () => {
    const { copy, key, put, left, run } = await copied(delayqueue);
    const many = Array.from({ length: 5_500 }, (_, i) => `m${i}`);
    await Promise.all(many.map((name) => put(name, '1')));
    await copy();
    // Kills the script before and after each of its programs.
    for (const [i, program] of ['jq', 'delayq', 'split', 'redis-cli'].entries()) {
      for (const line of ['kill -9 $PPID', `${program} "$@"; kill -9 $PPID`]) {
        const path = temporaryDirectory();
        writeFileSync(`${path}/${program}`, `#!/bin/sh\nPATH=\${PATH#*:}\n${line}\n`, { mode: 0o755 });
        expect((await run('', `export PATH=${path}:"$PATH"; `)).code).not.toBe(0);
      }
      await put(`late${i}`, '5');
    }
    expect(await run()).toMatchObject({ code: 0, stdout: `504 of 5504 jobs deleted from ${key}\n` });
    expect(await left()).toEqual(['late0', 'late1', 'late2', 'late3']);
  });

  it('says how it is called', async () => {
    for (const args of ['', 'q f asynq', 'q f celery k', 'q f asynq k more', '--force q f asynq k']) {
      const run = await sh(`sh ${SCRIPTS}delete.sh ${args}`);
      expect(run).toMatchObject({ code: 64, stderr: expect.stringContaining('usage: ') });
    }
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

  it.runIf(LONG)('moves 1,000,000 members', { timeout: 600_000 }, async () => {
    const [set, queue] = [freshName(), freshName()];
    const at = await inSeconds(86_400);
    for (let n = 0; n < 1_000_000; n += 10_000) {
      const some = Array.from({ length: 10_000 }, (_, i) => [String(at + (i % 100)), `m${n + i}`]);
      await admin.zadd(set, ...some.flat());
    }
    const { code, stdout } = await move(`${set} s ${queue}`);
    expect({ code, stdout }).toEqual({ code: 0, stdout: `1000000 moved to ${queue}, 0 left in ${set}\n` });
    expect(await new Inspector(connection).count(queue, { states: ['pending'] })).toBe(1_000_000);
    await admin.unlink(key(queue, 'pending'), key(queue, 'payload'), key(queue, 'meta'));
  });

  it('of two at once drops only what it has enqueued itself', async () => {
    const [set, queue] = [freshName(), freshName()];
    const at = await inSeconds(900);
    const members = Array.from({ length: 10_000 }, (_, i) => [String(at), `m${i}`]).flat();
    await admin.zadd(set, ...members);
    const path = temporaryDirectory();
    // This one has enqueued the first slice when the other has dropped it, and enqueues the second one to no avail.
    const other = `delayq "$@"; REDIS_CLI='redis-cli -s ${inject('redisSocket')}' PATH=${path}/failing:$PATH sh ${script} ${set} s ${queue}`;
    writeFileSync(`${path}/delayq`, `#!/bin/sh\nPATH=\${PATH#*:}\n${other}\nexit 0\n`, { mode: 0o755 });
    mkdirSync(`${path}/failing`);
    // The first slice goes, the second fails.
    const once = `if mkdir ${path}/done 2>/dev/null; then PATH=\${PATH#*:}; exec delayq "$@"; fi; exit 75`;
    writeFileSync(`${path}/failing/delayq`, `#!/bin/sh\n${once}\n`, { mode: 0o755 });
    expect(await move(`${set} s ${queue}`, `export PATH=${path}:"$PATH"; `)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`another move of ${set} runs`),
    });
    expect(await move(`${set} s ${queue}`)).toMatchObject({ code: 0 });
    expect((await stored(queue)).length).toBe(10_000);
  });

  it('leaves what enqueue would refuse, and says that there is no such set', async () => {
    const [set, queue] = [freshName(), freshName()];
    await admin.zadd(
      set,
      4e12,
      'good',
      253402300800000,
      'year 10000',
      999999999999999,
      'never',
      4e12,
      'x'.repeat(8_400_000),
    );
    expect(await move(`${set} ms ${queue}`)).toMatchObject({
      code: 1,
      stdout: `1 moved to ${queue}, 3 left in ${set}\n`,
    });
    expect(await stored(queue)).toEqual([['"good"', 4e12]]);
    expect(await move(`${set}x ms ${queue}`)).toMatchObject({
      code: 0,
      stdout: `0 moved to ${queue}, 0 left in ${set}x\n`,
      stderr: `there is no key ${set}x: it was moved before, or this is not its name\n`,
    });
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

  it('of delayqueue for Go becomes a string, and JSON stays what it is', async () => {
    const [old, queue] = [`dp:${freshName()}`, freshName()];
    for (const [i, payload] of bodies.entries()) await delayqueueMessage(old, String(i), { list: 'ready', payload });
    const renamed = { 'dp:order-close': old, 'order-close': queue };
    expect(parsed(await migrated('delayqueue-go', renamed, queue))).toEqual(expected);
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
  { type = 'order:close', payload = '' as string | Buffer, retry = 0, retried = 0 },
  at?: number,
  set = 'scheduled',
) {
  const varint = (n: number): number[] => (n < 128 ? [n] : [(n % 128) + 128, ...varint(Math.floor(n / 128))]);
  const bytes = (field: number, text: string | Buffer) => {
    const value = Buffer.from(text as string);
    return value.length > 0 ? [...varint(field * 8 + 2), ...varint(value.length), ...value] : [];
  };
  const number = (field: number, value: number) => (value > 0 ? [...varint(field * 8), ...varint(value)] : []);
  const message = [bytes(1, type), bytes(2, payload), bytes(3, id), bytes(4, 'default'), number(5, retry)];
  message.push(number(6, retried), bytes(7, 'boom'), number(8, 1_800), bytes(15, '\n\u0003key\u0012\u0001v'));
  await admin.hset(`${queue}:t:${id}`, { msg: Buffer.from(message.flat()), state: at ? set : 'pending' });
  if (at) await admin.zadd(`${queue}:${set}`, at, id);
  else await admin.lpush(`${queue}:pending`, id);
}

/** Writes a message as delayqueue for Go does. Its key expires a time after it is due; `ttl` 0: not at all. */
async function delayqueueMessage(
  queue: string,
  id: string,
  { payload = '1' as string | Buffer, retries = 3, at = 0, set = 'pending', list = '', ttl = 3_600, messages = queue },
) {
  const wait = at ? Math.max(0, at * 1_000 - (await connection.now())) : 0;
  const left = Math.round(wait + ttl * 1_000);
  await (ttl ? admin.set(`${messages}:msg:${id}`, payload, 'PX', left) : admin.set(`${messages}:msg:${id}`, payload));
  await admin.hset(`${queue}:retry:cnt`, id, retries);
  if (list) await admin.lpush(`${queue}:${list}`, id);
  else await admin.zadd(`${queue}:${set}`, at, id);
}
