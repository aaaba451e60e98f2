import { describe, expect, it } from 'vitest';
import { Inspector, Operator, Queue } from '../../src/internal.js';
import { Connection } from '../../src/redis/connection.js';
import { grow as growing } from '../../src/store/grow.js';
import { PartitionMap } from '../../src/store/map.js';
import { shaOf } from '../../src/store/script.js';
import { Store } from '../../src/store/store.js';
import { afterwards, during } from '../support/afterwards.js';
import { begin, delayq } from '../support/cli.js';
import { upTo } from '../support/jobs.js';
import { type FaultKind, FaultyProxy } from '../support/proxy.js';
import { admin, connection, freshName, key, onCluster, redisTargets, redisUrl } from '../support/redis.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

/** A queue with 300 pending jobs, due in an hour, and 30 dead ones. */
async function filled(redis = connection) {
  const queue = new Queue(redis, freshName());
  await queue.enqueue(upTo(330).map((i) => ({ id: `o:${i}`, payload: i, in: '1h' })));
  await new Operator(redis).bury(
    queue.name,
    upTo(30).map((i) => `o:${i}`),
  );
  return { queue, name: queue.name, ids: upTo(330).map((i) => `o:${i}`) };
}

async function grow(name: string, count: number, redis = connection): Promise<void> {
  for await (const _ of new Operator(redis).partition(name, count));
}

async function mapOf(name: string): Promise<PartitionMap> {
  return Store.of(connection, 'delayq', name).look();
}

/** Expects that these are the ids of the queue, each once, in the partition where it belongs, with its payload. */
async function expectAtHome(name: string, ids: readonly string[]): Promise<void> {
  const map = await mapOf(name);
  const found: string[] = [];
  const away: string[] = [];
  for (const [i, tag] of map.tags.entries()) {
    const at = (set: string) => key(tag || name, set);
    for (const set of ['pending', 'active', 'dead']) {
      for (const id of await admin.zrange(at(set), '0', '-1')) {
        found.push(id);
        if (map.ownerOf(id) !== i || !(await admin.hexists(at('payload'), id))) away.push(`${id} in ${tag}`);
      }
    }
    // What was interrupted leaves marks there, which doctor removes a day later.
    const leases = (await admin.hkeys(at('lease'))).filter((field) => !field.includes(' '));
    expect(leases, `leases of ${tag}`).toEqual([]);
  }
  expect(away).toEqual([]);
  expect(found.sort()).toEqual([...ids].sort());
}

/** The calls of a growth from 1 to 4, each by a word of its request, and how many such calls come before. */
const STEPS: [step: string, word: string, after?: number][] = [
  ['the first new partition', shaOf('transfer/advance')],
  ['its settings', shaOf('edit/settings')],
  ['the second new partition', shaOf('transfer/advance'), 1],
  ['partition 0: the growth is public', '1 0/4 from 1'],
  ['the first hold', shaOf('transfer/hold')],
  ['the first copy', shaOf('transfer/restore')],
  ['the first removal', shaOf('transfer/end')],
  ['the first mark', 'HDEL'],
  ['the layout of a clean partition', shaOf('transfer/advance')],
  ['partition 0: the growth is done', shaOf('transfer/advance'), 1],
  ['the layout of another partition', shaOf('transfer/advance'), 2],
];

describe('a growth whose process is killed', () => {
  const faults = (['deaf', 'silent'] satisfies FaultKind[]).map((kind) => [kind === 'deaf' ? 'before' : 'after', kind]);
  // On a cluster, what is sent together depends on which node is known when; the storms kill growers there.
  describe.skipIf(onCluster).concurrent.each(faults as [string, FaultKind][])('%s', (_, kind) => {
    it.each(STEPS)('%s is finished by a repeat, with each job once', async (_, word, after = 0) => {
      const { name, ids } = await filled();
      await new Operator(connection).configure(name, { tries: 3 });
      const proxy = await during(FaultyProxy.start(...redisTargets));
      proxy.fault = { word, kind, times: 1, after };
      const dying = begin(['config', '--redis', proxy.url, name, 'partitions=4']);
      await until(() => proxy.struck === 1);
      dying.child.kill('SIGKILL');
      await dying.ended;
      await grow(name, 4);
      expect(await mapOf(name)).toMatchObject({ count: 4, from: undefined });
      await expectAtHome(name, ids);
      for (const tag of (await mapOf(name)).tags)
        expect(await admin.hget(key(tag || name, 'config'), 'tries')).toBe('3');
    });
  });
});

/** A queue that has grown from 1 to 2. */
const HALVED = new PartitionMap(2, undefined, ['', '']);

describe.concurrent('growth', () => {
  it('is the same for two that run at once, also to different numbers', async () => {
    for (const counts of [
      [4, 4],
      [3, 8],
      [5, 2],
    ]) {
      const { name, ids } = await filled();
      const ended = await Promise.all(counts.map((count) => delayq(['config', '--json', name, `partitions=${count}`])));
      // One that began when the queue had more already was refused, and changed nothing.
      expect(ended.filter(({ code }) => code !== 0 && code !== 64)).toEqual([]);
      const most = Math.max(...counts);
      expect(await mapOf(name)).toMatchObject({ count: most, from: undefined });
      await expectAtHome(name, ids);
    }
  });

  it('goes on from any number to any larger one', async () => {
    const { name, ids } = await filled();
    for (const count of [3, 3, 4, 7, 16]) {
      await grow(name, count);
      expect(await mapOf(name)).toMatchObject({ count, from: undefined });
      await expectAtHome(name, ids);
    }
    await expect(grow(name, 15)).rejects.toMatchObject({ code: 'usage' });
  });

  it('keeps how often its jobs were released', async () => {
    const queue = new Queue(connection, freshName());
    const ids = upTo(20).map((i) => `o:${i}`);
    await queue.enqueue(ids.map((id) => ({ id, payload: 1 })));
    for (let i = 0; i < 2; i++) await queue.nack((await queue.drain()).jobs, { mode: 'release' });
    await grow(queue.name, 4);
    const jobs = await new Inspector(connection).show(queue.name, ids);
    expect(jobs.map((job) => job?.releases)).toEqual(ids.map(() => 2));
    expect((await queue.counts()).stats.released).toBe(40);
  });

  it('takes over settings and a pause that have no version', async () => {
    const { name } = await filled();
    await admin.hset(key(name, 'config'), 'tries', '7', 'paused', 'inf');
    await grow(name, 3);
    for (const tag of (await mapOf(name)).tags) {
      expect(await admin.hgetall(key(tag || name, 'config'))).toMatchObject({ tries: '7', paused: 'inf' });
    }
  });

  it('gives new partitions the settings that hold at its end, whenever they change', async () => {
    const { name } = await filled();
    const other = new Connection(redisUrl);
    afterwards(() => other.close());
    let grown = false;
    const growing = grow(name, 32).finally(() => {
      grown = true;
    });
    let tries = 0;
    while (!grown && tries < 25) {
      tries++;
      await new Operator(other).configure(name, { tries });
      if (tries % 2 === 1) await new Operator(other).pause(name);
      else await new Operator(other).resume(name);
    }
    await growing;
    expect(tries).toBeGreaterThan(1);
    for (const tag of (await mapOf(name)).tags) {
      const config = await admin.hgetall(key(tag || name, 'config'));
      expect([tag, config.tries, config.paused]).toEqual([tag, String(tries), tries % 2 === 1 ? 'inf' : undefined]);
    }
  });

  it('can be paused, all of it, when Redis is full', async () => {
    const server = await during(Server.start());
    const redis = new Connection(server.url);
    afterwards(() => redis.close());
    await grow('q', 4, redis);
    await server.admin.config('SET', 'maxmemory', '1');
    await new Operator(redis).pause('q');
    const paused = await Store.of(redis, 'delayq', 'q').each(({ config }) => server.admin.hget(config, 'paused'));
    expect(paused).toEqual(['inf', 'inf', 'inf', 'inf']);
  });

  it('stops when Redis is full, loses nothing, and is finished by a repeat', async () => {
    const server = await during(Server.start());
    const { url } = server;
    const redis = new Connection(url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, 'q');
    await queue.enqueue(upTo(250).map((i) => ({ id: `o:${i}`, payload: 'x'.repeat(2_000), in: '1h' })));
    const proxy = await during(FaultyProxy.start(server.socket));
    proxy.fault = { word: shaOf('transfer/restore'), kind: 'deaf', times: 1, after: 1 };
    const dying = begin(['config', '--redis', proxy.url, 'q', 'partitions=4']);
    await until(() => proxy.struck === 1);
    dying.child.kill('SIGKILL');
    await dying.ended;
    await server.admin.config('SET', 'maxmemory', '1');
    const growth = async () => {
      for await (const _ of growing(Store.of(redis, 'delayq', 'q'), 4, { patienceMs: 300 }));
    };
    await expect(growth()).rejects.toMatchObject({ code: 'temporary', why: expect.stringContaining('memory') });
    await server.admin.config('SET', 'maxmemory', '0');
    expect(await delayq(['config', '--redis', url, 'q', 'partitions=4'])).toMatchObject({ code: 0, stderr: '' });
    const store = Store.of(redis, 'delayq', 'q');
    const map = await store.look();
    const found = await store.each(async ({ pending }) => (await server.admin.zrange(pending, '0', '-1')).sort());
    for (const [i, ids] of found.entries()) expect(ids.map((id) => map.ownerOf(id))).toEqual(ids.map(() => i));
    expect(found.flat().length).toBe(250);
  });

  it('that cannot begin says what to do', async () => {
    const proxy = await during(FaultyProxy.start(...redisTargets));
    proxy.fault = { word: shaOf('transfer/advance'), kind: 'cut', times: 1_000 };
    const { name } = await filled();
    const { code, stdout, stderr } = await delayq(['config', '--redis', proxy.url, name, 'partitions=4']);
    expect({ code, stdout }).toEqual({ code: 75, stdout: '' });
    expect(stderr).toMatch(
      new RegExp(
        `^delayq: the growth of ${name} is not done\\n {2}why: {2}.*connection was closed\\n {2}next: repeat the command`,
      ),
    );
  });

  it('takes back leases that have expired: perhaps no drain does', async () => {
    const { name, queue } = await filled();
    const ids = upTo(8).map((i) => `due:${i}`);
    await queue.enqueue(ids.map((id) => ({ id, payload: 1 })));
    await queue.drain({ limit: 8, leaseMs: 1 });
    for await (const _ of new Operator(connection).partition(name, 2));
    const { active, due, stats } = await queue.counts();
    expect({ active, due, lost: stats.lost }).toEqual({ active: 0, due: 8, lost: 8 });
  });

  it('waits for active jobs, and for those that an unfinished move to another queue holds', async () => {
    const { name, queue } = await filled();
    const ids = upTo(8).map((i) => `due:${i}`);
    await queue.enqueue(ids.map((id) => ({ id, payload: 1 })));
    const { jobs } = await queue.drain({ limit: 8 });
    const away = upTo(330)
      .map((i) => `o:${i}`)
      .find((id, i) => i >= 30 && HALVED.ownerOf(id) === 1) as string;
    // As a move that died after its first step.
    await admin.zadd(key(name, 'active'), 'inf', away);
    await admin.hset(key(name, 'lease'), away, `receipt 1795266000000 ${Date.now()} move:other p token`);
    await admin.zrem(key(name, 'pending'), away);
    const seen: number[] = [];
    for await (const { active } of new Operator(connection).partition(name, 2)) {
      if (active > 0 && seen.length < 10) seen.push(active);
      else continue;
      // Long enough to be looked at twice.
      if (seen.length !== 10) continue;
      await queue.ack(jobs);
      // That move is finished.
      await admin.zrem(key(name, 'active'), away);
      await admin.hdel(key(name, 'lease'), away);
      await admin.hdel(key(name, 'payload'), away);
    }
    const movers = [...jobs.map(({ id }) => String(id)), away].filter((id) => HALVED.ownerOf(id) === 1);
    expect(movers.length).toBeGreaterThan(1);
    expect(new Set(seen)).toEqual(new Set([movers.length]));
    await expectAtHome(
      name,
      upTo(330)
        .map((i) => `o:${i}`)
        .filter((id) => id !== away),
    );
  });
});
