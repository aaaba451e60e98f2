import { createServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { beforeAll, describe, expect, it } from 'vitest';
import { Connection, Queue } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { Authority } from '../support/certificates.js';
import { begin, delayq, GAVE_BACK, type Running } from '../support/cli.js';
import { Cluster } from '../support/cluster.js';
import { limitedUrl, refusals } from '../support/limited-user.js';
import { Load } from '../support/load.js';
import { key } from '../support/redis.js';
import type { Server } from '../support/server.js';
import { nameAt, namesOfAll } from '../support/slots.js';
import { until } from '../support/until.js';

const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'));

type Environment = Record<string, string>;

/** The URL of a user who may do only what `doctor --acl` prints, at one node. */
const urlAt = (limited: string, cluster: Cluster, node: Server) =>
  cluster.urlOf(node).replace('://', `://${limited.split('//')[1]?.split('@')[0]}@`);

/** A connection until the end of the test. */
function connect(url: string, ca?: string): Connection {
  const redis = new Connection(ca === undefined ? url : `${url}?ca=${ca}`);
  afterwards(() => redis.close());
  return redis;
}

/** Uses queues of all nodes with each of `urls`. */
async function usesAll(cluster: Cluster, urls: readonly string[], ca?: string): Promise<void> {
  for (const name of await namesOfAll(cluster)) {
    for (const url of urls) {
      // What a new connection does not know yet, it has to find.
      const queue = new Queue(connect(url, ca), name);
      await queue.enqueue({ id: url, payload: 1 });
      const { jobs } = await queue.drain();
      expect(jobs.map(({ id }) => id)).toEqual([url]);
      expect(await queue.ack(jobs)).toEqual(['held']);
    }
  }
}

/** Starts a drain that watches queues of all nodes, and waits until each of them has woken it. */
async function watching(cluster: Cluster, url: string, ca?: string): Promise<Running> {
  const env: Environment = { DELAYQ_REDIS_URL: url, ...(ca !== undefined && { DELAYQ_TLS_CA: ca }) };
  const names = await namesOfAll(cluster);
  const running = begin(['drain', '--watch', names.join(',')], { env });
  for (const name of names) {
    const { admin } = await cluster.ownerOf(key(name, 'pending'));
    await until(async () => ((await admin.call('PUBSUB', 'SHARDNUMSUB', key(name, 'wake'))) as number[])[1] === 1);
    expect(await delayq(['enqueue', name, JSON.stringify(name)], { env })).toMatchObject({ code: 0, stderr: '' });
    await until(() => running.stdout.includes(name));
  }
  return running;
}

async function stopped(running: Running): Promise<void> {
  running.child.kill('SIGTERM');
  expect(await running.ended).toMatchObject({ code: 0, stderr: expect.stringMatching(GAVE_BACK) });
}

describe.concurrent('a TLS cluster whose nodes have a certificate each, for their own addresses', () => {
  const authority = new Authority();
  const { ca } = authority;
  const env = { DELAYQ_TLS_CA: ca };
  const places = ['127.0.0.2', '127.0.0.3', '127.0.0.4'].map((host) => ({
    host,
    tls: { ca, ...authority.issue(host, { san: `IP:${host}` }) },
  }));
  let cluster: Cluster;
  let limited: string;
  beforeAll(async () => {
    cluster = await Cluster.start({ places });
    limited = await limitedUrl(cluster.url, cluster.nodes);
    return () => cluster.stop();
  });

  /** Gives a node another certificate, which counts for new connections. */
  const certify = (node: Server, { cert, key }: { cert: string; key: string }) =>
    node.admin.call('CONFIG', 'SET', 'tls-cert-file', cert, 'tls-key-file', key);

  it.sequential('is used from any of its nodes, with no more rights than doctor --acl prints', async () => {
    await usesAll(cluster, [limited, urlAt(limited, cluster, cluster.nodes[0] as Server)], ca);
    await stopped(await watching(cluster, limited, ca));
    expect(await refusals(cluster.nodes)).toEqual([]);
  });

  it.sequential('has each node verified by its own address: one with the certificate of another is refused, the rest are used', async () => {
    const [first, last] = [cluster.nodes[0] as Server, cluster.nodes[2] as Server];
    const [near, far] = [await nameAt(cluster, first), await nameAt(cluster, last)];
    const to = { ...env, DELAYQ_REDIS_URL: urlAt(limited, cluster, first) };
    const running = begin(['drain', '--watch', `${near},${far}`], { env: to });
    await certify(last, authority.issue('other', { san: `IP:${first.host}` }));
    // The drain, too, has to connect anew.
    await last.admin.call('CLIENT', 'KILL', 'TYPE', 'NORMAL', 'SKIPME', 'yes');
    expect(await delayq(['enqueue', far, '1'], { env: to })).toMatchObject({
      code: 69,
      stdout: '',
      stderr: expect.stringMatching(
        RegExp(
          `^delayq: cannot reach .*${last.host}.*\\n {2}why:.*${first.host}.*, not for ${last.host} .*\\n {2}next: `,
        ),
      ),
    });
    expect(await delayq(['enqueue', near, '"near"'], { env: to })).toMatchObject({ code: 0, stderr: '' });
    await until(() => running.stdout.includes('near'));
    // Its own again, renewed: nothing is restarted.
    await certify(last, authority.issue('renewed', { san: `IP:${last.host}` }));
    expect(await delayq(['enqueue', far, '"far"'], { env: to })).toMatchObject({ code: 0, stderr: '' });
    await until(() => running.stdout.includes('far'));
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
  });
});

it.concurrent('a TLS cluster that announces host names has its nodes verified by those', async () => {
  const authority = new Authority();
  const { ca } = authority;
  const env = { DELAYQ_TLS_CA: ca };
  const { cert, key } = authority.issue('named', { san: 'DNS:localhost' });
  const named = await during(Cluster.start({ tls: { ca, cert, key } }));
  const url = await limitedUrl(named.url, named.nodes);
  const toOne = urlAt(url, named, named.nodes[0] as Server).replace('127.0.0.1', 'localhost');
  const [here, there] = [await nameAt(named, named.nodes[0] as Server), await nameAt(named, named.nodes[2] as Server)];
  const ask = (name: string) => delayq(['enqueue', name, '1'], { env: { ...env, DELAYQ_REDIS_URL: toOne } });
  expect(await ask(here)).toMatchObject({ code: 0, stderr: '' });
  expect(await ask(there)).toMatchObject({
    code: 69,
    stderr: expect.stringMatching(/\n {2}why:.*localhost.*, not for 127\.0\.0\.1 .*\n {2}next: /),
  });
  for (const { admin } of named.nodes) {
    await admin.config('SET', 'cluster-announce-hostname', 'localhost');
    await admin.config('SET', 'cluster-preferred-endpoint-type', 'hostname');
  }
  // Each node tells the others in its next messages.
  for (const { admin } of named.nodes)
    await until(async () => String(await admin.call('CLUSTER', 'NODES')).match(/,localhost /g)?.length === 3);
  await usesAll(named, [toOne], ca);
  await stopped(await watching(named, toOne, ca));
  expect(await refusals(named.nodes)).toEqual([]);
});

describe.skipIf(!hasIpv6).concurrent('an IPv6 cluster', () => {
  let cluster: Cluster;
  let limited: string;
  beforeAll(async () => {
    cluster = await Cluster.start({ places: [{ host: '::1' }] });
    limited = await limitedUrl(cluster.url, cluster.nodes);
    return () => cluster.stop();
  });

  it('is used from any of its nodes, and looked at', async () => {
    await usesAll(cluster, [limited, urlAt(limited, cluster, cluster.nodes[0] as Server)]);
    await stopped(await watching(cluster, limited));
    const env = { DELAYQ_REDIS_URL: urlAt(limited, cluster, cluster.nodes[0] as Server) };
    expect(await delayq(['inspect'], { env })).toMatchObject({ code: 0, stderr: '' });
    const { stdout } = await delayq(['doctor'], { env });
    expect(stdout).toMatch(/3 primaries/);
    expect(await refusals(cluster.nodes)).toEqual([]);
  });
});

describe.concurrent('a cluster whose nodes do not know their addresses: MOVED without a host', () => {
  let cluster: Cluster;
  let limited: string;
  beforeAll(async () => {
    cluster = await Cluster.start({
      replicas: 1,
      places: [{ host: hasIpv6 ? '::1' : '127.0.0.1' }],
      args: ['--cluster-preferred-endpoint-type', 'unknown-endpoint'],
    });
    limited = await limitedUrl(cluster.url, cluster.nodes);
    return () => cluster.stop();
  });

  it.sequential('is used under the host of the node that answered', async () => {
    const name = await nameAt(cluster, cluster.nodes[2] as Server);
    const moved = cluster.nodes[0]?.admin.call('GET', key(name, 'pending'));
    await expect(moved).rejects.toThrow(/^MOVED \d+ :\d+$/);
    await usesAll(cluster, [limited, urlAt(limited, cluster, cluster.nodes[0] as Server)]);
    await stopped(await watching(cluster, limited));
    expect(await refusals(cluster.nodes)).toEqual([]);
  });

  it.sequential('and its new masters are found, when the old one is gone', async () => {
    const master = cluster.nodes[0] as Server;
    const name = await nameAt(cluster, master);
    const redis = connect(limited);
    const queue = new Queue(redis, name);
    await queue.enqueue({ payload: 1 });
    await master.end('SIGKILL');
    await until(async () => (await cluster.ownerOf(key(name, 'pending')).catch(() => master)) !== master);
    await queue.enqueue({ payload: 2 });
    await master.run();
    await cluster.settled();
  });
});

it.concurrent('a node that cannot be reached is told with the last reason that it gave, not with that of an attempt cut short', async () => {
  const cluster = await during(Cluster.start());
  const [one, two] = cluster.nodes as [Server, Server];
  const name = await nameAt(cluster, two);
  const { host, port } = two;
  await two.end('SIGKILL');
  const redis = connect(cluster.urlOf(one).replace('redis:', 'redis+cluster:'));
  await redis.connect();
  const started = performance.now();
  const call = redis.call('GET', key(name, 'payload')).catch((error) => error);
  // For its last attempts, which have less than a second: connections are accepted, and nothing is said.
  await until(() => performance.now() > started + 4_100);
  const silent = createServer((socket) => afterwards(() => socket.destroy())).listen(port, host);
  afterwards(() => silent.close());
  expect(await call).toMatchObject({ code: 'unreachable', why: expect.stringContaining('nothing listens there') });
});

describe.concurrent('a black hole before a node of a cluster', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start({ replicas: 1, proxied: true });
    return () => cluster.stop();
  });

  it('other queues are not affected, and later calls recover before their deadline', async () => {
    const [one = '', ...others] = await namesOfAll(cluster);
    const redis = connect(await limitedUrl(cluster.url, cluster.nodes));
    const working = await during(new Load(redis, one));
    const beside = await Promise.all(others.map((name) => during(new Load(redis, name))));
    await Promise.all([working, ...beside].map((each) => each.goesOn()));
    const master = await cluster.ownerOf(key(one, 'pending'));
    const [replica] = await cluster.replicasOf(master);
    const proxy = cluster.proxyOf(master);
    const early = await working.copied(master, 1);
    // What is open, and what is opened later: packets vanish.
    proxy.fault = { word: '', kind: 'half-open', times: Number.POSITIVE_INFINITY };
    proxy.strike('half-open');
    await Promise.all(beside.map((each) => each.goesOn(100)));
    // The nodes still hear each other: somebody has to decide.
    await cluster.failover(replica as Server, 'FORCE');
    // What waits since before may end as unknown; this call was made later.
    await working.queue.enqueue({ payload: 'later' });
    await working.goesOn();
    for (const each of beside) {
      expect(await each.end()).toEqual([]);
      expect([...each.producer.reasons, ...each.consumer.reasons]).toEqual([]);
      expect(each.twice).toEqual([]);
    }
    proxy.fault = undefined;
    // Only what had not reached the replica is lost.
    expect((await working.end()).filter((id) => early.has(id))).toEqual([]);
    expect(await refusals(cluster.nodes)).toEqual([]);
  });
});
