import { beforeAll, describe, expect, it, vi } from 'vitest';
import { Connection, Queue } from '../../src/index.js';
import { queueKeys } from '../../src/store/keys.js';
import { run, SCRIPTS } from '../../src/store/script.js';
import { afterwards, during } from '../support/afterwards.js';
import { begin, delayq } from '../support/cli.js';
import { Cluster } from '../support/cluster.js';
import { Load } from '../support/load.js';
import type { FaultyProxy } from '../support/proxy.js';
import { freshName, key } from '../support/redis.js';
import { Server } from '../support/server.js';
import { nameAt, namesOfAll } from '../support/slots.js';
import { until } from '../support/until.js';

/** Connected at one node only, unless `url` is given. */
const connect = (cluster: Cluster, url = cluster.urlOf(cluster.nodes[0] as Server)) => {
  const redis = new Connection(url);
  afterwards(() => redis.close());
  return redis;
};

const load = (...args: ConstructorParameters<typeof Load>) => during(new Load(...args));

describe.concurrent('a cluster of three masters', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start();
    return () => cluster.stop();
  });

  it.sequential('is used from any of its nodes, whichever owns the queue', async () => {
    const names = await namesOfAll(cluster);
    for (const node of cluster.nodes) {
      for (const name of names) {
        // What a new connection does not know yet, it has to find.
        const queue = new Queue(connect(cluster, cluster.urlOf(node)), name);
        await queue.enqueue({ id: 'a', payload: 1 });
        const { jobs } = await queue.drain();
        expect(jobs.map(({ id }) => id)).toEqual(['a']);
        expect(await queue.ack(jobs)).toEqual(['held']);
      }
    }
    const [name = ''] = names.slice(-1);
    const env = { DELAYQ_REDIS_URL: cluster.urlOf(cluster.nodes[0] as Server) };
    expect(await delayq(['enqueue', name, '{"n":1}'], { env })).toMatchObject({ code: 0, stderr: '' });
    expect(await delayq(['drain', name], { env })).toMatchObject({ code: 0, stdout: '{"n":1}\n', stderr: '' });
  });

  it.sequential('is used by a URL whose first node has left it, or came back empty, and knows of no slots', async () => {
    const stray = await during(
      Server.start({ tcp: true, args: ['--cluster-enabled', 'yes', '--cluster-require-full-coverage', 'no'] }),
    );
    const [name = ''] = await namesOfAll(cluster);
    const first = cluster.urlOf(cluster.nodes[1] as Server).replace('redis://', `redis://${stray.host}:${stray.port},`);
    for (const url of [first, first.replace('redis:', 'redis+cluster:')]) {
      const env = { DELAYQ_REDIS_URL: url };
      expect(await delayq(['enqueue', '-q', name, '1'], { env })).toMatchObject({ code: 0, stderr: '' });
      expect(await delayq(['inspect', '--json', name], { env })).toMatchObject({ code: 0, stderr: '' });
      expect(await delayq(['metrics'], { env })).toMatchObject({ code: 0, stderr: '' });
      expect(await delayq(['drain', name], { env })).toMatchObject({ code: 0, stdout: '1\n', stderr: '' });
    }
  });

  it.sequential('goes on without a node that leaves it while it is used', async () => {
    const name = await nameAt(cluster, cluster.nodes[0] as Server);
    const slot = await cluster.slotOf(key(name, 'pending'));
    const queue = new Queue(connect(cluster, cluster.url), name);
    await queue.enqueue({ payload: 1 });
    await queue.drain({ leaseMs: 0 });
    const [from, to] = cluster.nodes as [Server, Server];
    await cluster.migrate(slot, to, 3);
    // What redis-cli --cluster del-node does to the node, for one slot: it serves it no more, and does not know who does.
    await from.admin.call('CLUSTER', 'DELSLOTS', slot);
    expect(await queue.enqueue({ payload: 2 })).toMatchObject({ outcome: 'created' });
    await from.admin.call('CLUSTER', 'SETSLOT', slot, 'NODE', cluster.idOf(to));
  });

  it.sequential('drains queues of different nodes in one run, in their order', async () => {
    const names = await namesOfAll(cluster);
    const redis = connect(cluster);
    for (const name of names) await new Queue(redis, name).enqueue([{ payload: name }, { payload: name }]);
    const env = { DELAYQ_REDIS_URL: cluster.url };
    const { stdout, code } = await delayq(['drain', [...names].reverse().join(',')], { env });
    expect(code).toBe(0);
    expect(stdout).toBe(
      [...names]
        .reverse()
        .map((name) => `"${name}"\n"${name}"\n`)
        .join(''),
    );
  });

  it.sequential('wakes a watching drain on every node, whether the producer knows of the cluster or not', async () => {
    const names = await namesOfAll(cluster);
    const env = { DELAYQ_REDIS_URL: cluster.urlOf(cluster.nodes[0] as Server) };
    const running = begin(['drain', '--watch', names.join(',')], { env });
    const redis = connect(cluster);
    for (const name of names) {
      const owner = await cluster.ownerOf(key(name, 'pending'));
      // Subscribed by now at the owner: with SSUBSCRIBE, and with SUBSCRIBE for those who publish without knowing.
      await until(
        async () => ((await owner.admin.call('PUBSUB', 'SHARDNUMSUB', key(name, 'wake'))) as number[])[1] === 1,
      );
      await new Queue(redis, name).enqueue({ payload: name });
      await until(() => running.stdout.includes(name));
    }
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
  });

  it.sequential('has a node that stalls for a moment: who asks for its map ends no call of others on it', async () => {
    const [name = '', ...others] = await namesOfAll(cluster);
    const redis = connect(cluster, cluster.url.replace('redis:', 'redis+cluster:'));
    for (const each of [name, ...others]) await new Queue(redis, each).counts();
    const nodes = await cluster.masters();
    for (const node of nodes) node.signal('SIGSTOP');
    const asked = redis.nodes();
    const calls = [...others.map((each) => new Queue(redis, each).counts()), new Queue(redis, name).counts()];
    // Who asks gives up first.
    await asked;
    for (const node of nodes) node.signal('SIGCONT');
    await Promise.all(calls);
  });

  it.sequential('keeps hints within the shard: SPUBLISH, as soon as the producer knows of the cluster', async () => {
    const [name = ''] = (await namesOfAll(cluster)).slice(-1);
    const queue = new Queue(connect(cluster), name);
    await queue.enqueue({ payload: 1 });
    const owner = await cluster.ownerOf(key(name, 'pending'));
    await owner.admin.call('CONFIG', 'RESETSTAT');
    await queue.drain({ leaseMs: 0 });
    await queue.enqueue({ payload: 2 });
    const stats = String(await owner.admin.info('commandstats'));
    expect(stats).toMatch(/cmdstat_spublish:calls=1,/);
    expect(stats).not.toMatch(/cmdstat_publish:/);
  });

  it.sequential('whose slot moves while it is empty: nobody sees an error, and hints resume', async () => {
    const redis = connect(cluster);
    const name = freshName();
    const working = await load(redis, name);
    const slot = await cluster.slotOf(key(name, 'pending'));
    for (const _ of [1, 2, 3]) {
      await working.goesOn();
      const owner = await cluster.ownerOfSlot(slot);
      const [other] = (await cluster.masters()).filter((node) => node !== owner);
      await cluster.migrate(slot, other as Server, 3);
    }
    await working.goesOn();
    expect(await working.end()).toEqual([]);
    expect([...working.producer.reasons, ...working.consumer.reasons]).toEqual([]);
    expect(working.twice).toEqual([]);
    const messages: string[] = [];
    const listener = redis.listen([key(name, 'wake')], (_, message) => messages.push(message));
    const owner = await cluster.ownerOfSlot(slot);
    await until(
      async () => ((await owner.admin.call('PUBSUB', 'SHARDNUMSUB', key(name, 'wake'))) as number[])[1] === 1,
    );
    await working.queue.enqueue({ payload: 1 });
    await until(() => messages.length === 1);
    const [next] = (await cluster.masters()).filter((node) => node !== owner);
    await cluster.migrate(slot, next as Server);
    // The next call tells who owns it now.
    await until(async () => (await working.queue.counts()) && !listener.alive());
    listener.close();
  });

  it('with a slot that was moved in part, when the rest was given up: exit 75, and no job is taken for an orphan', async () => {
    const name = freshName();
    const queue = new Queue(connect(cluster), name);
    await queue.enqueue(Array.from({ length: 5 }, (_, n) => ({ id: `a${n}`, payload: n })));
    const slot = await cluster.slotOf(key(name, 'pending'));
    const owner = await cluster.ownerOfSlot(slot);
    const to = (await cluster.masters()).find((node) => node !== owner) as Server;
    const migration = await cluster.migration(slot, to);
    await migration.begin();
    await migration.move(1, [key(name, 'payload')]);
    const drain = () => delayq(['drain', name], { env: { DELAYQ_REDIS_URL: cluster.url } });
    expect(await drain()).toMatchObject({ code: 75, stdout: '' });
    // As a replica does that becomes the owner meanwhile: it does not know of the migration.
    await migration.abort();
    expect(await drain()).toMatchObject({ code: 75, stdout: '', stderr: expect.stringContaining('not moved whole') });
    await migration.begin();
    while ((await migration.move(1)).length > 0);
    await migration.finish();
    expect(await drain()).toMatchObject({ code: 0, stdout: '0\n1\n2\n3\n4\n' });
  });

  it('that migrates a queue refuses calls until it is over: exit 75, never a part of a batch', async () => {
    const name = freshName();
    const redis = connect(cluster);
    const queue = new Queue(redis, name);
    await queue.enqueue(Array.from({ length: 100 }, (_, n) => ({ id: `a${n}`, payload: n })));
    const slot = await cluster.slotOf(key(name, 'pending'));
    const owner = await cluster.ownerOfSlot(slot);
    const to = (await cluster.masters()).find((node) => node !== owner) as Server;
    const migration = await cluster.migration(slot, to);
    await migration.begin();
    await migration.move(1);
    const env = { DELAYQ_REDIS_URL: cluster.url };
    const commands = [
      ['enqueue', name, '1'],
      ['drain', name],
      ['inspect', name],
      ['enqueue', '--jobs', name, '-'],
    ];
    const input = '{"payload":1}\n{"payload":2}\n';
    for (const ended of await Promise.all(commands.map((args) => delayq(args, { env, input })))) {
      expect(ended).toMatchObject({ stdout: '', stderr: expect.stringMatching(/TRYAGAIN.*\n {2}next: /) });
      expect([75, 1]).toContain(ended.code);
    }
    // What is asked meanwhile waits.
    const waiting = queue.drain({ limit: 100 });
    while ((await migration.move(1)).length > 0);
    await migration.finish();
    expect((await waiting).jobs.map(({ id }) => id).sort()).toEqual(
      Array.from({ length: 100 }, (_, n) => `a${n}`).sort(),
    );
  });
});

describe.concurrent('a cluster of three masters with replicas', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start({ replicas: 1, args: ['--appendonly', 'yes'] });
    return () => cluster.stop();
  });

  it.sequential('confirms --replicas by way of a replica, which refuses WAIT: alone in the URL, or before its primary', async () => {
    const [name = ''] = await namesOfAll(cluster);
    const owner = await cluster.ownerOf(key(name, 'pending'));
    const [replica] = (await cluster.replicasOf(owner)) as [Server];
    const other = cluster.nodes.find((node) => node !== owner && node !== replica) as Server;
    const alone = cluster.urlOf(replica);
    for (const url of [alone, `${alone},${cluster.urlOf(other).replace(/.*[/@]/, '')}`]) {
      for (const either of [url, url.replace('redis:', 'redis+cluster:')]) {
        const env = { DELAYQ_REDIS_URL: either };
        expect(await delayq(['enqueue', '-q', '--replicas', '1', name, '1'], { env })).toMatchObject({
          code: 0,
          stderr: '',
        });
      }
    }
  });

  it.sequential('asks the owner of a queue for its replicas, not the node in the URL, whose replica is down', async () => {
    const [name = '', nameBeside = ''] = await namesOfAll(cluster);
    const beside = await cluster.ownerOf(key(nameBeside, 'pending'));
    const [replica] = (await cluster.replicasOf(beside)) as [Server];
    await replica.end('SIGKILL');
    try {
      const url = cluster.urlOf(beside);
      expect(await delayq(['enqueue', '-q', '--replicas', '1', name, '1', '--redis', url])).toMatchObject({ code: 0 });
      expect(await delayq(['enqueue', '--replicas', '1', nameBeside, '1', '--redis', url])).toMatchObject({
        code: 75,
        stderr: expect.stringMatching(/^delayq: too few replicas\n/),
      });
    } finally {
      await replica.run();
      await cluster.settled();
    }
  });

  it.sequential('has lost a node that it replaced: who still asks that node finds it unreachable, and may go on', async () => {
    const [name = ''] = await namesOfAll(cluster);
    const owner = await cluster.ownerOf(key(name, 'pending'));
    const [replica] = (await cluster.replicasOf(owner)) as [Server];
    const redis = connect(cluster, cluster.urlOf(replica));
    const { port } = cluster.addressOf(owner);
    const held = (await redis.nodes()).find(({ address }) => address.endsWith(`:${port}`));
    owner.signal('SIGSTOP');
    try {
      await replica.admin.call('CLUSTER', 'FAILOVER', 'TAKEOVER');
      await until(async () => !(await redis.nodes()).some(({ address }) => address.endsWith(`:${port}`)));
      await expect(held?.call('PING')).rejects.toMatchObject({
        code: 'unreachable',
        why: 'it serves no slots any more',
      });
    } finally {
      owner.signal('SIGCONT');
      await cluster.settled();
    }
  });

  it.sequential('CLUSTER FAILOVER and SCRIPT FLUSH under load: no error that anybody sees, nothing twice', async () => {
    const redis = connect(cluster);
    // Each master once: a second failover of a shard soon after the first may fail, and then its master is paused for 5 s.
    for (const name of await namesOfAll(cluster)) {
      const working = await load(redis, name);
      await working.goesOn();
      const master = await cluster.ownerOf(key(name, 'pending'));
      await master.admin.script('FLUSH');
      await working.goesOn();
      const [replica] = await cluster.replicasOf(master);
      await cluster.failover(replica as Server);
      await working.goesOn();
      expect(await working.end()).toEqual([]);
      expect([...working.producer.reasons, ...working.consumer.reasons]).toEqual([]);
      expect(working.twice).toEqual([]);
      await cluster.settled();
    }
  });
});

describe.concurrent('a cluster of three masters with replicas that loses a master', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start({ replicas: 1, args: ['--appendonly', 'yes'] });
    return () => cluster.stop();
  });

  it.sequential('kill -9 of a master under load: others go on, it recovers, and with --replicas nothing is lost', async () => {
    const [one, ...others] = await namesOfAll(cluster);
    const redis = connect(cluster);
    const working = await load(redis, one as string, { replicas: 1 });
    const beside = await Promise.all(others.map((name) => load(redis, name)));
    await Promise.all([working, ...beside].map((each) => each.goesOn()));
    const master = await cluster.ownerOf(key(one as string, 'pending'));
    await master.end('SIGKILL');
    await working.queue.enqueue({ payload: 'after' }).catch(() => {});
    await until(async () => (await cluster.ownerOf(key(one as string, 'pending')).catch(() => master)) !== master);
    await master.run();
    await working.goesOn();
    for (const each of beside) expect(await each.end()).toEqual([]);
    expect(await working.end()).toEqual([]);
    await cluster.settled();
  });

  it.sequential('SIGSTOP of a master: other queues are not affected, later calls recover before their deadline', async () => {
    const [one, ...others] = await namesOfAll(cluster);
    const redis = connect(cluster);
    const working = await load(redis, one as string);
    const beside = await Promise.all(others.map((name) => load(redis, name)));
    await Promise.all([working, ...beside].map((each) => each.goesOn()));
    const master = await cluster.ownerOf(key(one as string, 'pending'));
    const early = await working.copied(master, 1);
    master.signal('SIGSTOP');
    await until(async () => (await cluster.ownerOf(key(one as string, 'pending')).catch(() => master)) !== master);
    await working.goesOn();
    for (const each of beside) expect(await each.end()).toEqual([]);
    master.signal('SIGCONT');
    // Only what had not reached the replica is lost.
    expect((await working.end()).filter((id) => early.has(id))).toEqual([]);
  });
});

describe.concurrent('a cluster whose nodes stand behind faulty proxies', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start({ proxied: true });
    return () => cluster.stop();
  });

  it.sequential.each(SCRIPTS)('a lost reply of %s is told as unknown, and it ran once', async (script) => {
    const redis = connect(cluster, cluster.url);
    const name = freshName();
    const keys = queueKeys('delayq', name);
    const foreign = script === 'transfer/adopt' ? [`{${name}}z`, `{${name}}h`] : [];
    const call = () => run(redis, script, keys, [], foreign);
    // The client learns that it is a cluster, and the owner learns the script.
    for (let n = 0; n < 2; n++) await call().catch(() => {});
    const owner = await cluster.ownerOf(keys.pending);
    await owner.admin.call('CONFIG', 'RESETSTAT');
    const before = cluster.proxyOf(owner).struck;
    cluster.proxyOf(owner).fault = { word: 'EVALSHA', kind: 'cut', times: 1 };
    await expect(call()).rejects.toMatchObject({ code: 'unknown' });
    expect(String(await owner.admin.info('commandstats'))).toMatch(/cmdstat_evalsha:calls=1,/);
    expect(cluster.proxyOf(owner).struck).toBe(before + 1);
  });
});

it.concurrent('a cluster of one master is waited for when it is slow: there is no other node to ask', async () => {
  const cluster = await during(Cluster.start({ masters: 1, proxied: true }));
  const [node] = cluster.nodes as [Server];
  const [proxy] = cluster.proxies as [FaultyProxy];
  const redis = connect(cluster, cluster.url.replace('redis:', 'redis+cluster:'));
  // When it connects.
  proxy.fault = { word: 'SLOTS', kind: 'pass', times: 1 };
  await redis.call('SET', 'key', 'here');
  expect(proxy.struck).toBe(1);
  // On a busy machine a call before was slow, too: the answer to what it has asked must not be waited for below.
  await until(async () => {
    const begun = performance.now();
    await redis.call('GET', 'key');
    return performance.now() - begun < 20;
  });
  node.signal('SIGSTOP');
  // The map is asked for because the call is slow.
  proxy.fault = { word: 'SLOTS', kind: 'pass', times: 1, before: () => node.signal('SIGCONT') };
  expect(String(await redis.call('GET', 'key'))).toBe('here');
  expect(proxy.struck).toBe(2);
});

it('a slot that stays between two nodes: all calls for it are refused at their limit, none is in doubt, and others go on', async () => {
  const cluster = await during(Cluster.start({ masters: 2 }));
  const redis = connect(cluster);
  const queue = new Queue(redis, freshName());
  await queue.enqueue([{ payload: 1, in: '1h' }, { payload: 2 }]);
  const slot = await cluster.slotOf(key(queue.name, 'pending'));
  const owner = await cluster.ownerOfSlot(slot);
  const to = cluster.nodes.find((node) => node !== owner) as Server;
  const beside = new Queue(redis, await nameAt(cluster, owner));
  const migration = await cluster.migration(slot, to);
  await migration.begin();
  await migration.move(1);
  // Only the clock stands still: attempts go on, however long a busy machine takes for them.
  vi.useFakeTimers({ toFake: ['performance'] });
  afterwards(() => vi.useRealTimers());
  const codes: string[] = [];
  const refused: Promise<unknown>[] = [];
  // Each of them is sent again until its own time limit: the limits lie close together.
  for (let n = 0; n < 300; n++) {
    refused.push(queue.enqueue({ payload: 3 }).catch(({ code }) => codes.push(code)));
    if (n % 10 === 0) await beside.enqueue({ payload: 1 });
    vi.advanceTimersByTime(3);
  }
  for (; codes.length < refused.length; vi.advanceTimersByTime(20)) await beside.enqueue({ payload: 1 });
  vi.useRealTimers();
  while ((await migration.move(1)).length > 0);
  await migration.finish();
  expect(new Set(codes)).toEqual(new Set(['temporary']));
});
