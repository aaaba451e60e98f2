import { execFileSync, spawnSync } from 'node:child_process';
import { describe, expect, inject, it } from 'vitest';
import { type Job, Queue } from '../../../src/index.js';
import { Adoption } from '../../../src/store/adopt.js';
import { ForeignJobs } from '../../../src/store/foreign.js';
import { Store } from '../../../src/store/store.js';
import { during } from '../../support/afterwards.js';
import { delayq, type Ended, linesOf, sh } from '../../support/cli.js';
import { admin, connection, freshName, key, keysLike, newClient, onCluster } from '../../support/redis.js';
import { Server } from '../../support/server.js';

const hasRedisPy = spawnSync('/usr/bin/python3', ['-c', 'import redis']).status === 0;

const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);

/** Keys that no other test has. */
function fresh() {
  const name = freshName();
  // On a cluster, the keys must be in the queue's slot.
  const [zset, hash] = [`later:{${name}}`, `data:{${name}}`];
  return { name, zset, hash, args: ['adopt', '--zset', zset, '--hash', hash] };
}

async function put({ zset, hash }: { zset: string; hash: string }, id: string, score: number | string, value: string) {
  await admin.hset(hash, id, value);
  await admin.zadd(zset, String(score), id);
}

const pending = (name: string) => admin.zrange(key(name, 'pending'), '0', '-1', 'WITHSCORES');
const payloads = (name: string) => admin.hgetall(key(name, 'payload'));

/** Adopts again and again until `over`, and then once more. */
async function adoptUntil(over: Promise<unknown>, args: string[]): Promise<Ended[]> {
  let more = true;
  over.then(() => {
    more = false;
  });
  const runs: Ended[] = [];
  while (more) runs.push(await delayq(args));
  runs.push(await delayq(args));
  return runs;
}

describe('delayq adopt', () => {
  it('takes over what a sorted set in seconds and a hash hold, to the millisecond, earliest first', async () => {
    const foreign = fresh();
    const { name, zset, hash, args } = foreign;
    await put(foreign, 'b', 4_000_000_000.25, '{"big":12345678901234567890, "x":"\\/"}');
    await put(foreign, 'a', 1_700_000_000, ' [1,\n2] ');
    await put(foreign, 'order:42', '4000000000.1239', '"x"');
    const { code, stdout, stderr } = await delayq([...args, name]);
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: '', stderr: `delayq: 3 jobs adopted into ${name}\n` });
    expect(await pending(name)).toEqual(['a', '1700000000000', 'order:42', '4000000000124', 'b', '4000000000250']);
    expect(await payloads(name)).toEqual({
      a: '[1, 2]',
      b: '{"big":12345678901234567890, "x":"\\/"}',
      'order:42': '"x"',
    });
    expect(await admin.exists(zset, hash)).toBe(0);
    expect(await admin.hgetall(key(name, 'stats'))).toEqual({ adopted: '3' });
    expect((await delayq(['drain', name])).stdout).toBe('[1, 2]\n');
    expect(await admin.sismember('delayq:queues', name)).toBe(1);
    const again = await delayq([...args, name]);
    expect(again.code).toBe(0);
    expect(again.stderr).toContain(`there is no key ${zset} any more: its jobs were adopted before`);
  });

  it('refuses a sorted set that does not exist, exit 3, and changes nothing', async () => {
    const { name, args } = fresh();
    for (const dryRun of [[], ['--dry-run']]) {
      const { code, stdout, stderr } = await delayq([...args, ...dryRun, name]);
      expect({ code, stdout }).toEqual({ code: 3, stdout: '' });
      expect(stderr).toMatch(/^delayq: there is no key ".*"\n {2}why: .*\n {2}next: check its name/);
    }
    expect(await admin.exists(key(name, 'stats'))).toBe(0);
  });

  it('changes nothing if the sorted set has not as many members as expected', async () => {
    const foreign = fresh();
    const { name, zset, hash, args } = foreign;
    for (const n of [1, 2]) await put(foreign, `j${n}`, 4e9, '1');
    for (const n of ['1', '3']) {
      const { code, stdout, stderr } = await delayq([...args, '--expect', n, name]);
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
      expect(stderr).toBe(`delayq: ${zset} has 2 members, not ${n}: nothing was changed\n`);
    }
    expect([await admin.zcard(zset), await admin.hlen(hash), await pending(name)]).toEqual([2, 2, []]);
    expect(await delayq([...args, '--expect', '0', name])).toMatchObject({ code: 64 });
    expect(await delayq([...args, '--expect', '2', name])).toMatchObject({ code: 0 });
    expect(await pending(name)).toHaveLength(4);
  });

  it('reads milliseconds when told to', async () => {
    const foreign = fresh();
    await put(foreign, 'a', 4_000_000_000_123.4, '1');
    expect(await delayq([...foreign.args, '--unit', 'ms', foreign.name])).toMatchObject({ code: 0 });
    expect(await pending(foreign.name)).toEqual(['a', '4000000000123']);
  });

  it.each([
    ['ms', 's', 1_795_266_000],
    ['s', 'ms', 1_795_266_000_000],
  ])('changes nothing when the times do not look like %s, and names %s', async (unit, other, time) => {
    const foreign = fresh();
    for (const n of upTo(5)) await put(foreign, `j${n}`, time + n, '1');
    await put(foreign, 'zero', 0, '1');
    const { code, stderr } = await delayq([...foreign.args, '--unit', unit, foreign.name]);
    expect(code).toBe(64);
    expect(stderr).toMatch(/do not look like (milli)?seconds/);
    expect(stderr).toContain(`set the unit to ${other}`);
    expect(await admin.zcard(foreign.zset)).toBe(6);
    expect(await admin.exists(key(foreign.name, 'pending'))).toBe(0);
    expect(await admin.sismember('delayq:queues', foreign.name)).toBe(0);
  });

  it('leaves what cannot be a job, names each with the reason, exit 1, and takes the rest', async () => {
    const foreign = fresh();
    const { name, zset, hash, args } = foreign;
    await put(foreign, 'serialized', 1, 'a:1:{i:0;i:1;}');
    await put(foreign, 'two words', 1, '1');
    await put(foreign, 'never', 'inf', '1');
    await put(foreign, 'good', 1, '1');
    await admin.zadd(zset, 2, 'half');
    await admin.hset(hash, 'stray', '1');
    const { code, stderr } = await delayq([...args, name]);
    expect(code).toBe(1);
    for (const said of [
      'serialized has a value that is not a valid payload (the payload is not JSON: ',
      '"two words" is not a valid id',
      'never has an invalid time (inf)',
      'half has no value: half-written, or long gone',
      '1 job adopted',
      '4 jobs stayed',
      `without a member in ${zset}: stray`,
      '--wrap',
      'run it again when the producers write to delayq',
    ])
      expect(stderr).toContain(said);
    expect(await payloads(name)).toEqual({ good: '1' });
    expect(await admin.zrange(zset, '0', '-1')).toEqual(['serialized', 'two words', 'half', 'never']);
    expect(Object.keys(await admin.hgetall(hash)).sort()).toEqual(['never', 'serialized', 'stray', 'two words']);

    const wrapped = await delayq([...args, '--wrap', '--json', name]);
    expect(wrapped.code).toBe(1);
    expect(JSON.parse(wrapped.stdout)).toEqual({
      ...{ schema: 1, queue: name, adopted: 1, replaced: 0, kept: 0 },
      left: { 'no-value': 1, changed: 0, exists: 0, id: 1, time: 1, payload: 0 },
      rest: { members: 3, fields: 3, fieldsWithoutMember: ['stray'] },
    });
    expect(await payloads(name)).toEqual({ good: '1', serialized: '"a:1:{i:0;i:1;}"' });
  });

  it('leaves a job whose id the queue has with another time or payload, and drops one that stands there just so', async () => {
    const foreign = fresh();
    for (const [id, score] of [
      ['same', 4e9],
      ['later', 4e9 + 1],
      ['other', 4e9],
    ] as const)
      await put(foreign, id, score, '1');
    const jobs = ['same', 'later', 'other'].map((id) => ({ id, at: '@4000000000', payload: id === 'other' ? 2 : 1 }));
    const input = jobs.map((job) => JSON.stringify(job)).join('\n');
    await delayq(['enqueue', '--jobs', foreign.name, '-'], { input });
    const { code, stderr } = await delayq([...foreign.args, foreign.name]);
    expect(code).toBe(1);
    expect(linesOf(stderr)).toEqual([
      'delayq: other is in the queue already, with another time or payload',
      'delayq: later is in the queue already, with another time or payload',
      `delayq: 0 jobs adopted into ${foreign.name}`,
      `delayq: 1 job already in ${foreign.name}, removed from ${foreign.zset}`,
      `delayq: 2 jobs stayed in ${foreign.zset}`,
    ]);
    expect(await admin.zrange(foreign.zset, '0', '-1')).toEqual(['other', 'later']);
    expect(await payloads(foreign.name)).toEqual({ same: '1', later: '1', other: '2' });
  });

  it('says with --dry-run of what stands in the queue already what it says without', async () => {
    const foreign = fresh();
    const { name, args } = foreign;
    for (const id of ['new', 'same', 'other']) await put(foreign, id, 4_000_000_000, '1');
    const queue = new Queue(connection, name);
    await queue.enqueue([
      { id: 'same', payload: 1, at: 4e12 },
      { id: 'other', payload: 2, at: 4e12 },
    ]);
    const dry = await delayq([...args, '--dry-run', '--json', name]);
    const wet = await delayq([...args, '--json', name]);
    const told = { adopted: 1, kept: 1, left: { exists: 1 } };
    expect({ ...JSON.parse(dry.stdout), code: dry.code }).toMatchObject({ ...told, code: 1 });
    expect({ ...JSON.parse(wet.stdout), code: wet.code }).toMatchObject({ ...told, code: 1 });
  });

  it('says what it would do with --dry-run, and does nothing', async () => {
    const foreign = fresh();
    for (const n of upTo(250)) await put(foreign, `j${n}`, 4e9 + n, n % 50 ? '1' : 'no');
    const { code, stderr } = await delayq([...foreign.args, '--dry-run', foreign.name]);
    expect(code).toBe(1);
    expect(stderr).toContain(`245 jobs would be adopted into ${foreign.name}`);
    expect(stderr).toContain(`5 jobs would stay in ${foreign.zset}`);
    expect(await admin.zcard(foreign.zset)).toBe(250);
    expect(await keysLike(key(foreign.name, '*'))).toEqual([]);
  });

  it('takes over string keys, one for each job, and leaves what has none or one of another type', async () => {
    const { name, zset } = fresh();
    const strings = (id: string) => `job:{${name}}:${id}`;
    const args = ['adopt', '--zset', zset, '--string-keys', `job:{${name}}:{id}`];
    await admin.zadd(zset, 4e9, 'a', 4e9 + 1, 'b', 4e9 + 2, 'text', 1, 'gone', 2, 'odd');
    for (const [id, value] of Object.entries({ a: ' {"a":1}', b: '2', text: 'order 7', other: '3' }))
      await admin.set(strings(id), value);
    await admin.hset(strings('odd'), 'a', '1');
    const dry = await delayq([...args, '--dry-run', '--json', name]);
    expect(JSON.parse(dry.stdout)).toMatchObject({ adopted: 2, left: { 'no-value': 2, payload: 1 } });
    const { code, stderr } = await delayq([...args, name]);
    expect(code).toBe(1);
    expect(linesOf(stderr)).toEqual([
      'delayq: gone has no value: half-written, or long gone',
      'delayq: odd has no value: half-written, or long gone',
      'delayq: text has a value that is not a valid payload (the payload is not JSON: it is not a JSON value)',
      `delayq: 2 jobs adopted into ${name}`,
      `delayq: 3 jobs stayed in ${zset}`,
      'delayq: --wrap stores values that are not JSON as JSON strings',
      'delayq: run it again when the producers write to delayq: half-written jobs are complete by then',
    ]);
    const wrapped = await delayq([...args, '--wrap', '--json', name]);
    expect(JSON.parse(wrapped.stdout)).toMatchObject({ adopted: 1, rest: { members: 2 } });
    expect(await payloads(name)).toEqual({ a: '{"a":1}', b: '2', text: '"order 7"' });
    expect(await pending(name)).toEqual(['a', '4000000000000', 'b', '4000000001000', 'text', '4000000002000']);
    expect(await Promise.all(['a', 'b', 'text', 'other', 'odd'].map((id) => admin.exists(strings(id))))).toEqual([
      ...[0, 0, 0, 1, 1],
    ]);
    expect(await admin.hgetall(key(name, 'lease'))).toEqual({});
  });

  it.each([
    ['neither', [], 'no hash is given'],
    ['both', ['--hash', 'h', '--string-keys', 'k:{id}'], 'both a hash and string keys are given'],
    ['string keys without {id}', ['--string-keys', 'k'], '"k" does not name string keys'],
    ['string keys with two', ['--string-keys', '{id}:{id}'], 'does not name string keys'],
  ])('refuses %s, and changes nothing', async (_, values, said) => {
    const { name, zset } = fresh();
    await admin.zadd(zset, 4e9, 'a');
    const { code, stderr } = await delayq(['adopt', '--zset', zset, ...values, name]);
    expect({ code, stderr }).toMatchObject({ code: 64, stderr: expect.stringContaining(said) });
    expect(await admin.zcard(zset)).toBe(1);
  });

  it.each(['string keys', 'a hash, into partitions'])('of %s by a user who may not add loses nothing', async (kind) => {
    const server = await during(Server.start());
    const { name, zset, hash } = fresh();
    const isHash = kind !== 'string keys';
    const args = ['adopt', '--zset', zset, ...(isHash ? ['--hash', hash] : ['--string-keys', `${hash}:{id}`]), name];
    if (isHash) await delayq(['config', '--create', name, 'partitions=2', '--redis', server.url]);
    for (const id of ['a', 'b', 'c']) {
      await server.admin.zadd(zset, 4e9, id);
      await (isHash ? server.admin.hset(hash, id, '1') : server.admin.set(`${hash}:${id}`, '1'));
    }
    await server.admin.call('ACL', 'SETUSER', 'someone', 'on', '>secret', '~*', '&*', '+@all', '-zadd');
    const as = server.url.replace('unix://', 'unix://someone:secret@');
    expect(await delayq([...args, '--redis', as])).toMatchObject({ code: 77 });
    await server.admin.call('ACL', 'SETUSER', 'someone', '+zadd');
    expect(await delayq([...args, '--redis', as])).toMatchObject({ code: 0 });
    const snapshot = JSON.parse((await delayq(['inspect', '--json', name, '--redis', server.url])).stdout).queues[0];
    expect(snapshot).toMatchObject({ pending: 3, stats: { adopted: 3 } });
    expect(await server.admin.exists(zset, hash, `${hash}:a`)).toBe(0);
  });

  it.each(['a hash', 'string keys', 'a hash, into partitions'])(
    'with --if-exists replace puts jobs of %s in place of others',
    async (kind) => {
      const foreign = fresh();
      const { name, zset, hash } = foreign;
      const ids = ['new', 'same', 'later', 'other', 'dead', 'active'];
      const isHash = kind !== 'string keys';
      const args = ['adopt', '--if-exists', 'replace', '--zset', zset];
      args.push(...(isHash ? ['--hash', hash] : ['--string-keys', `${hash}:{id}`]));
      if (kind.endsWith('partitions')) await delayq(['config', '--create', name, 'partitions=2']);
      const queue = new Queue(connection, name);
      await queue.enqueue(['dead', 'active'].map((id) => ({ id, payload: 0, tries: 9 })));
      const held: Job[] = [];
      while (held.length < 2) held.push(...(await queue.drain()).jobs);
      const [active] = held.filter(({ id }) => id === 'active') as [Job];
      await queue.nack(
        held.filter(({ id }) => id === 'dead'),
        { mode: 'dead' },
      );
      for (const [id, at, payload] of [
        ['same', 4e12, 1],
        ['later', 4e12 + 1, 1],
        ['other', 4e12, 2],
      ] as const)
        await queue.enqueue({ id, payload, at, tries: 7 });
      for (const id of ids) {
        await admin.zadd(zset, 4e9, id);
        await (isHash ? admin.hset(hash, id, '1') : admin.set(`${hash}:${id}`, '1'));
      }
      const dry = await delayq([...args, '--dry-run', '--json', name]);
      const wet = await delayq([...args, '--json', name]);
      const told = { adopted: 1, replaced: 4, kept: 1, left: { exists: 0 } };
      expect({ ...JSON.parse(dry.stdout), code: dry.code }).toMatchObject({ ...told, code: 0 });
      expect({ ...JSON.parse(wet.stdout), code: wet.code }).toMatchObject({ ...told, code: 0 });
      expect(await admin.exists(zset, hash, `${hash}:dead`)).toBe(0);
      const lines = linesOf((await delayq(['export', name])).stdout).map((line) => JSON.parse(line));
      expect(lines.sort((a, b) => a.id.localeCompare(b.id))).toEqual(
        [...ids]
          .sort()
          .map((id) => ({ id, at: '@4000000000.000', ...(id === 'same' ? { tries: 7 } : {}), payload: 1 })),
      );
      expect(await queue.ack([active])).toEqual(['superseded']);
      const { enqueued, adopted = 0, replaced = 0 } = (await queue.counts()).stats;
      // A copy takes the place of a job that was cancelled.
      expect({ enqueued, both: adopted + replaced }).toEqual({ enqueued: 5, both: 5 });
      if (!onCluster) expect(replaced).toBe(4);
      expect((await delayq(['doctor', '-q', name])).stdout).not.toContain(name);
    },
  );

  it('refuses keys that are missing, of another kind, or of the queue itself', async () => {
    const { name, zset, hash } = fresh();
    await put({ zset, hash }, 'a', 1, '1');
    const run = (...args: string[]) => delayq(['adopt', ...args, name]);
    expect(await run('--zset', zset)).toMatchObject({ code: 64, stderr: expect.stringContaining('no hash is given') });
    expect(await run('--zset', hash, '--hash', zset)).toMatchObject({
      ...{ code: 64, stderr: expect.stringContaining('is not a sorted set') },
    });
    expect(await run('--zset', key(name, 'pending'), '--hash', hash)).toMatchObject({ code: 64 });
    expect(await run('--zset', zset, '--hash', hash, '--unit', 'h')).toMatchObject({ code: 64 });
  });

  it('takes values of 1 MiB a few at a time, and goes on when Redis is full', async () => {
    const server = await during(Server.start());
    const { name, zset, hash, args } = fresh();
    for (const n of upTo(40)) {
      await server.admin.hset(hash, `j${n}`, JSON.stringify('x'.repeat(1024 * 1024)));
      await server.admin.zadd(zset, n, `j${n}`);
    }
    await server.admin.config('SET', 'maxmemory', '1');
    expect(await delayq([...args, name, '--redis', server.url])).toMatchObject({ code: 0 });
    expect(await server.admin.hlen(key(name, 'payload'))).toBe(40);
    expect(await server.admin.zcard(key(name, 'pending'))).toBe(40);
  });

  it('takes nothing that is no longer as it was read', async () => {
    const foreign = fresh();
    const { name } = foreign;
    for (const id of ['time', 'value', 'gone', 'half', 'same']) await put(foreign, id, 4e9, '1');
    await admin.zadd(foreign.zset, 4e9 + 1, 'time');
    await admin.hset(foreign.hash, 'value', '2');
    await admin.zrem(foreign.zset, 'gone');
    await admin.hdel(foreign.hash, 'half');
    const read = (id: string) => ({
      id,
      score: Buffer.from('4000000000'),
      value: Buffer.from('1'),
      due: 4e12,
      payload: undefined,
    });
    const jobs = ['time', 'value', 'gone', 'half', 'same', 'same'].map(read);
    const store = Store.of(connection, 'delayq', name);
    const adoption = new Adoption(store, new ForeignJobs(connection, { ...foreign, unit: 's' }), false);
    const answers = await adoption.take(jobs);
    expect(answers).toEqual(['changed', 'changed', 'changed', 'changed', 'adopted', 'changed']);
    expect(await pending(name)).toEqual(['same', '4000000000000']);
    expect(await admin.zrange(foreign.zset, '0', '-1')).toEqual(['half', 'value', 'time']);
    expect(await admin.hgetall(foreign.hash)).toEqual({ time: '1', value: '2', gone: '1' });
  });

  it('on one node of a cluster takes over keys of other slots', async () => {
    const server = await during(Server.start({ tcp: true, args: ['--cluster-enabled', 'yes'] }));
    await server.admin.call('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
    const ok = async () => String(await server.admin.call('CLUSTER', 'INFO')).includes('cluster_state:ok');
    while (!(await ok()));
    const run = (tag: string, queue: string) =>
      delayq(['adopt', '--zset', `${tag}z`, '--hash', `${tag}h`, queue, '--redis', server.tcpUrl]);
    for (const tag of ['', '{tag}:', '}']) {
      await server.admin.hset(`${tag}h`, 'a', '1');
      await server.admin.zadd(`${tag}z`, 1, 'a');
    }
    for (const [tag, queue] of [
      ['', 'q'],
      ['{tag}:', 'tag'],
      ['}', 'brace'],
    ] as const) {
      expect(await run(tag, queue)).toMatchObject({ code: 0, stderr: `delayq: 1 job adopted into ${queue}\n` });
      expect(await server.admin.zrange(key(queue, 'pending'), '0', '-1')).toEqual(['a']);
      expect(await server.admin.hgetall(key(queue, 'stats'))).toEqual({ adopted: '1' });
    }
    const own = /^delayq:(queues|\{(q|tag|brace)\}:(pending|payload|stats))$/;
    expect((await server.admin.keys('*')).filter((name) => !own.test(name))).toEqual([]);
    // A script can reach the keys of one of the partitions.
    await delayq(['config', '--create', 'many', 'partitions=4', '--redis', server.tcpUrl]);
    for (let id = 0; id < 20; id++) {
      await server.admin.hset('{many}h', id, '1');
      await server.admin.zadd('{many}z', 1, id);
    }
    const { stdout } = await delayq([
      ...['adopt', '--json', '--zset', '{many}z', '--hash', '{many}h'],
      ...['many', '--redis', server.tcpUrl],
    ]);
    expect(JSON.parse(stdout)).toMatchObject({ adopted: 20, replaced: 0, kept: 0 });
  });
});

describe('while its producers go on writing, delayq adopt brings every job once, whole', () => {
  const JOBS = 2_500;

  /**
   * Adopts until the producer is done; a consumer takes what is due from the first moment. `there`: what the consumer of
   * the other software has handled.
   */
  async function check(
    foreign: ReturnType<typeof fresh>,
    over: Promise<unknown>,
    there: Promise<string[]> = Promise.resolve([]),
  ): Promise<void> {
    const { name, zset, hash, args } = foreign;
    let working = true;
    const handled: string[] = [];
    const consumer = (async () => {
      const queue = new Queue(connection, name);
      for (let last = false; ; last = !working) {
        const { jobs } = await queue.drain();
        handled.push(...jobs.map(({ id, due, payload }) => `${id} ${due} ${payload}`));
        await queue.ack(jobs);
        if (last && jobs.length === 0) return;
      }
    })();
    const runs = await adoptUntil(over, [...args, name]);
    working = false;
    await consumer;
    expect(await admin.exists(zset, hash)).toBe(0);
    expect(runs.at(-1)).toMatchObject({ code: 0 });
    const rest = await pending(name);
    const bodies = await payloads(name);
    const elsewhere = await there;
    const all = [
      ...[...elsewhere, ...handled],
      ...upTo(rest.length / 2).map((i) => `${rest[2 * i]} ${rest[2 * i + 1]} ${bodies[rest[2 * i] as string]}`),
    ];
    // Every payload names its id and the ms at which it is due: a job is whole when they agree.
    const whole = all.map((line) => {
      const [, id = '', due, at, body] = /^(\S+) (\d+) \{"id":"\S+?","at":(\d+),"n":(\d+)/.exec(line) ?? [];
      expect({ line, same: due === at && line.includes(`"id":"${id}"`) && id === `o${body}` }).toEqual({
        line,
        same: true,
      });
      return Number(body);
    });
    expect(whole.sort((a, b) => a - b)).toEqual(upTo(JOBS));
    expect(handled.length).toBeGreaterThan(0);
    expect(rest.length).toBeGreaterThan(0);
    expect(await admin.hget(key(name, 'stats'), 'adopted')).toBe(String(JOBS - elsewhere.length));
  }

  it('from Node, in two commands a job', async () => {
    const foreign = fresh();
    const producer = newClient();
    const over = (async () => {
      for (const n of upTo(JOBS)) {
        const at = n % 2 ? 4_000_000_000_000 + n : 1_700_000_000_000 + n;
        // Both orders: a field without a member, or a member without a field, is seen for a moment.
        const steps = [
          () => producer.hset(foreign.hash, `o${n}`, JSON.stringify({ id: `o${n}`, at, n })),
          () => producer.zadd(foreign.zset, String(at / 1000), `o${n}`),
        ];
        for (const step of n % 3 ? steps : steps.reverse()) await step();
      }
    })();
    await check(foreign, over);
    producer.disconnect();
  });

  const php = (() => {
    try {
      return execFileSync('php', ['-r', 'echo extension_loaded("redis") ? "redis" : "";'], { encoding: 'utf8' });
    } catch {
      return '';
    }
  })();

  // The producer connects to one server.
  it.runIf(php === 'redis' && !onCluster)('from PHP with php-redis', async () => {
    const foreign = fresh();
    const script = `
      $redis = new Redis();
      $redis->connect(getenv("SOCKET"));
      for ($n = 0; $n < ${JOBS}; $n++) {
        $at = $n % 2 ? 4000000000000 + $n : 1700000000000 + $n;
        $redis->hSet(getenv("HASH"), "o$n", json_encode(["id" => "o$n", "at" => $at, "n" => $n, "note" => "a/é"]));
        $redis->zAdd(getenv("ZSET"), $at / 1000, "o$n");
      }`;
    const env = { SOCKET: inject('redisSocket'), HASH: foreign.hash, ZSET: foreign.zset, SCRIPT: script };
    const over = sh('php -r "$SCRIPT"', { env });
    await check(foreign, over);
    expect(await over).toMatchObject({ code: 0, stderr: '' });
  });

  it.runIf(hasRedisPy && !onCluster)(
    'from Python, with a string key for each job and a consumer that goes on',
    async () => {
      const { name, zset } = fresh();
      const args = ['adopt', '--zset', zset, '--string-keys', `job:${name}:{id}`];
      const script = `
import json, os, threading, redis
r = redis.Redis(unix_socket_path=os.environ["SOCKET"])
zset, name, jobs = os.environ["ZSET"], os.environ["NAME"], ${JOBS}
ended = threading.Event()
def consume():
    while True:
        last = ended.is_set()
        ids = r.zrangebyscore(zset, 0, 1800000000, 0, 1)
        if not ids and last:
            return
        for job in ids:
            if r.zrem(zset, job):
                key = b"job:" + name.encode() + b":" + job
                body = json.loads(r.get(key))
                print(job.decode(), body["at"], json.dumps(body, separators=(",", ":")), flush=True)
                r.delete(key)
consumer = threading.Thread(target=consume)
consumer.start()
for n in range(jobs):
    at = 4000000000000 + n if n % 2 else 1700000000000 + n
    r.set(f"job:{name}:o{n}", json.dumps({"id": f"o{n}", "at": at, "n": n}, separators=(",", ":")))
    r.zadd(zset, {f"o{n}": at / 1000})
ended.set()
consumer.join()`;
      const env = { SOCKET: inject('redisSocket'), NAME: name, ZSET: zset, SCRIPT: script };
      const over = sh('/usr/bin/python3 -c "$SCRIPT"', { env });
      const handledThere = over.then(({ stdout }) => linesOf(stdout));
      await check({ name, zset, hash: zset, args }, over, handledThere);
      expect(await over).toMatchObject({ code: 0, stderr: '' });
      expect(await keysLike(`job:${name}:*`)).toEqual([]);
    },
  );
});
