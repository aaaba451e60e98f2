import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Connection, Queue } from '../../src/index.js';
import { clusterFindings, parseMembers } from '../../src/server/cluster.js';
import { tagFor } from '../../src/store/tags.js';
import { afterwards, during } from '../support/afterwards.js';
import { delayq, sh } from '../support/cli.js';
import { Cluster } from '../support/cluster.js';
import { limitedUrl, refusals } from '../support/limited-user.js';
import { key } from '../support/redis.js';
import type { Server } from '../support/server.js';
import { nameAt } from '../support/slots.js';
import { until } from '../support/until.js';

interface Told {
  level: string;
  check: string;
  queue?: string;
  nodes?: string[];
  what: string;
  why?: string;
  next?: string;
}

// What a busy machine makes slow is no fault here.
const SOUND = [
  ...['--appendonly', 'yes', '--cluster-require-full-coverage', 'no'],
  ...['--slowlog-log-slower-than', '60000000'],
];

async function doctor(url: string, ...args: string[]): Promise<{ code: number | null; findings: Told[] }> {
  const { code, stdout, stderr } = await delayq(['doctor', '--json', '--redis', url, ...args]);
  expect(stderr).toBe('');
  return { code, findings: JSON.parse(stdout).findings };
}

const faults = (findings: Told[]) => findings.filter(({ level, check }) => level !== 'ok' && check !== 'round-trip');
const of = (findings: Told[], check: string) => findings.filter((one) => one.check === check);

/** What doctor finds when no replica is behind, and each answers at once: a busy machine may be late for a moment. */
async function doctorInSync(url: string): ReturnType<typeof doctor> {
  for (;;) {
    const told = await doctor(url);
    const momentary = ['replicas', 'round-trip'].flatMap((check) => of(told.findings, check));
    // One about the replicas for all nodes: none is behind, not even by a second.
    if (of(told.findings, 'replicas').length === 1 && faults(momentary).length === 0) return told;
  }
}

describe.concurrent('a cluster', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start({ replicas: 1, args: SOUND });
  });
  afterAll(() => cluster.stop());

  it.sequential('that is in order has a line for what all nodes have in common, and names the node of each figure', async () => {
    await sh('for q in a b c; do delayq enqueue -q --in 1h $q 1; done', { env: { DELAYQ_REDIS_URL: cluster.url } });
    const { code, findings } = await doctorInSync(cluster.url);
    expect(faults(findings)).toEqual([]);
    expect(code).toBe(of(findings, 'round-trip')[0]?.level === 'ok' ? 0 : 1);
    const common = findings.filter(({ queue, nodes }) => queue === undefined && nodes === undefined);
    expect(common.map(({ check }) => check)).toEqual([...new Set(common.map(({ check }) => check))]);
    expect(common.map(({ check }) => check)).toEqual(expect.arrayContaining(['version', 'eviction', 'aof', 'rights']));
    expect(of(findings, 'slots')[0]?.what).toBe(
      '3 primaries and 3 replicas serve all slots; a primary that is silent for 2s is replaced (cluster-node-timeout)',
    );
    // One line if they are equal by chance.
    expect(of(findings, 'round-trip').flatMap(({ nodes = ['a', 'b', 'c'] }) => nodes)).toHaveLength(3);
    expect(findings.filter(({ check }) => check === 'jobs').map(({ queue }) => queue)).toEqual(['a', 'b', 'c']);
  });

  it.sequential('has the node named that differs, and --set-noeviction sets it right on each', async () => {
    const [one, two] = cluster.nodes;
    await one?.admin.config('SET', 'maxmemory-policy', 'allkeys-lru');
    const only = of((await doctor(cluster.url)).findings, 'eviction').find(({ level }) => level === 'fail');
    expect(only).toMatchObject({ nodes: [`redis://127.0.0.1:${one?.port}`] });
    const { stdout } = await delayq(['doctor', '--redis', cluster.url]);
    expect(stdout).toMatch(new RegExp(`^fail  redis {8}127.0.0.1:${one?.port}: maxmemory-policy is allkeys-lru$`, 'm'));
    await two?.admin.config('SET', 'maxmemory-policy', 'allkeys-lru');
    expect((await doctor(cluster.url)).findings.find(({ level }) => level === 'fail')?.nodes).toHaveLength(2);
    expect((await delayq(['doctor', '--set-noeviction', '--redis', cluster.url])).code).toBe(0);
  });

  it.sequential('has a command for each node that has the same fault', async () => {
    for (const { admin } of cluster.nodes) await admin.config('SET', 'appendfsync', 'no');
    const told = of((await doctor(cluster.url)).findings, 'aof');
    expect(told).toHaveLength(3);
    for (const { what, next } of told) {
      expect(what).toBe('the AOF is on, with appendfsync no');
      expect(await sh(String(next))).toMatchObject({ code: 0, stdout: 'OK\n' });
    }
    expect(faults((await doctorInSync(cluster.url)).findings)).toEqual([]);
  });

  it.sequential('is a warning with full coverage, with the command that ends it on every node', async () => {
    for (const { admin } of cluster.nodes) await admin.config('SET', 'cluster-require-full-coverage', 'yes');
    const { code, findings } = await doctor(cluster.url);
    expect(code).toBe(1);
    await sh(String(of(findings, 'full-coverage')[0]?.next));
    for (const { admin } of cluster.nodes)
      expect(await admin.config('GET', 'cluster-require-full-coverage')).toContain('no');
  });

  it.sequential('has its queues found on every node, and listed again', async () => {
    await cluster.admin.del('delayq:queues');
    const { stdout } = await delayq(['doctor', '--fix', '--yes', '--redis', cluster.url]);
    expect(stdout.match(/added to the list of queues/g)).toHaveLength(3);
    expect((await cluster.admin.smembers('delayq:queues')).sort()).toEqual(['a', 'b', 'c']);
  });

  it.sequential('has commands for redis-cli that find the node of the key', async () => {
    for (const queue of ['a', 'b', 'c']) await cluster.admin.expire(`delayq:{${queue}}:payload`, 1_000);
    const told = of((await doctor(cluster.url)).findings, 'expiring-key');
    expect(told).toHaveLength(3);
    for (const { next } of told) expect((await sh(String(next))).stdout).toMatch(/1\n$/);
    expect(faults((await doctorInSync(cluster.url)).findings)).toEqual([]);
  });

  it.sequential('needs no more permissions than doctor --acl prints', async () => {
    const url = await limitedUrl(cluster.url, cluster.nodes);
    const env = { DELAYQ_REDIS_URL: url };
    const { code, stderr } = await sh(
      'for q in a b c; do delayq enqueue -q $q 1 && delayq drain -q $q -- true; done; delayq drain --for 1500ms a,b,c',
      { env },
    );
    expect({ code, stderr }).toMatchObject({ code: 0 });
    await delayq(['inspect'], { env });
    await delayq(['enqueue', '-q', '--in', '1h', '--replicas', '1', 'a', '1'], { env });
    expect((await delayq(['doctor'], { env })).stdout).toMatch(/^ok {4}redis +user app has all permissions/m);
    expect(await refusals(cluster.nodes)).toEqual([]);
  });

  it.sequential('of which a user may not learn the slots is told: the right is missing', async () => {
    for (const { admin } of cluster.nodes)
      await admin.call('ACL', 'SETUSER', 'lame', 'on', '>secret', '~*', '&*', '+@all', '-asking');
    const { findings } = await doctor(cluster.url.replace('://', '://lame:secret@'));
    const lacking = { level: 'fail', what: 'user lame may not asking' };
    expect(of(findings, 'rights')).toMatchObject([lacking, lacking, lacking]);
  });
});

describe.concurrent('a cluster that has lost a node without a replica', () => {
  it('has the node and its queues named, and the others are checked', async () => {
    const cluster = await during(Cluster.start({ args: SOUND }));
    const [dead, ...rest] = cluster.nodes as [Server, ...Server[]];
    // Doctor looks whether a queue has a second partition, too: where a node answers.
    const isUsable = async (queue: string) => (await cluster.ownerOf(key(tagFor(queue, 1), 'config'))) !== dead;
    const alive: string[] = [];
    for (const node of rest) {
      let queue = await nameAt(cluster, node);
      while (!(await isUsable(queue))) queue = await nameAt(cluster, node);
      alive.push(queue);
    }
    const lost = [await nameAt(cluster, dead), await nameAt(cluster, dead)];
    const redis = new Connection(cluster.url);
    afterwards(() => redis.close());
    for (const queue of [...lost, ...alive]) await new Queue(redis, queue).enqueue({ payload: 1, in: '1h' });
    await dead.end('SIGKILL');
    for (const { admin } of rest)
      await until(async () => / master,fail /.test(String(await admin.call('CLUSTER', 'NODES'))));
    const { code, findings } = await doctor(cluster.url, ...lost, ...alive);
    expect(code).toBe(2);
    expect(of(findings, 'node')).toMatchObject([{ what: `127.0.0.1:${dead.port}, a primary, is down` }]);
    expect(of(findings, 'slots')).toMatchObject([
      { level: 'fail', why: expect.stringContaining(`cannot be used: ${lost.join(', ')}`) },
    ]);
    expect(of(findings, 'unserved').map(({ queue }) => queue)).toEqual(lost);
    expect(of(findings, 'jobs').map(({ queue }) => queue)).toEqual(alive);
    expect(of(findings, 'version')).toMatchObject([{ level: 'ok' }]);
    expect(of(findings, 'replicas-missing')[0]?.what).toMatch(
      new RegExp(rest.map(({ port }) => `(?=.*${port})`).join('')),
    );
  });
});

describe('the queues of a cluster', () => {
  const members = parseMembers(
    [
      'aaa 10.0.0.1:7000@17000,one.example myself,master - 0 0 1 connected 0-8191 [77->-bbb]',
      'bbb [fe80::1]:7001@17001 master - 0 0 2 connected 8192-16383',
      'ccc 10.0.0.3:7002@17002,,shard-id=x slave,fail? aaa 0 0 1 connected',
      '',
    ].join('\n'),
  );
  const known = { place: 'one.example:7000', timeoutMs: 15_000, lost: [], isUp: true };

  it('are on nodes with names, addresses and states as CLUSTER NODES writes them', () => {
    expect(members.map(({ place }) => place)).toEqual(['one.example:7000', '[fe80::1]:7001', '10.0.0.3:7002']);
    expect(clusterFindings(members, known).filter(({ level }) => level === 'warn')).toMatchObject([
      { check: 'node', what: '10.0.0.3:7002, a replica, does not answer at the moment' },
      { check: 'replicas-missing', what: '1 of 2 primaries has no replica: [fe80::1]:7001' },
      { check: 'open-slots', what: '1 slot is being moved: 77' },
    ]);
  });
});
