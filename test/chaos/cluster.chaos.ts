import { describe, expect, it } from 'vitest';
import { during } from '../support/afterwards.js';
import { sh } from '../support/cli.js';
import { Cluster } from '../support/cluster.js';
import { canMakeNamespaces, type Host, Network } from '../support/namespaces.js';
import { freshName, key } from '../support/redis.js';
import { until } from '../support/until.js';
import { CLUSTER_STORM, cluster, type Deployment, SENTINEL_STORM, withSentinels } from './deployments.js';
import { STORM } from './faults.js';
import { minutes, seed } from './options.js';
import { expectBalanced } from './report.js';
import { QUEUES, Storm } from './storm.js';

/** Both ways for each Redis would take long, so the seed decides: what all replicas have, or not. */
const isSafe = seed % 2 === 0;

const DEPLOYMENTS: [string, () => Promise<Deployment>, Record<string, number>, number | undefined][] = [
  ['a cluster of three masters with a replica each', () => cluster(QUEUES), CLUSTER_STORM, isSafe ? 1 : undefined],
  ['a primary with two replicas and three Sentinels', withSentinels, SENTINEL_STORM, isSafe ? undefined : 2],
];

describe.each(DEPLOYMENTS)(`a storm over %s (seed ${seed})`, (_, redis, ofRedis, replicas) => {
  it(
    `loses no job ${replicas === undefined ? 'but what was written around a failover' : 'that all replicas have'} (failures 27)`,
    async () => {
      const faults = { ...STORM, ...ofRedis };
      const storm = await during(Storm.begin({ seed, redis, faults, ...(replicas === undefined ? {} : { replicas }) }));
      const end = performance.now() + minutes * 60_000;
      await storm.rage(() => performance.now() > end);
      expectBalanced(await storm.end(), storm);
      expect(new Set(Object.keys(storm.struck))).toEqual(new Set(Object.keys(faults)));
    },
    minutes * 60_000 + 600_000,
  );
});

describe.runIf(canMakeNamespaces)('a master that is cut off together with its clients', () => {
  const NODE_TIMEOUT_MS = 5_000;

  it('confirms plain enqueues for at most 1.5 node timeouts, and none with --replicas', async () => {
    const network = await during(Network.start(6));
    const places = network.hosts;
    const cluster = await during(Cluster.start({ replicas: 1, places, nodeTimeoutMs: NODE_TIMEOUT_MS }));
    // A queue beside the list of queues: for any other, an enqueue needs two masters.
    const master = await cluster.ownerOf('delayq:queues');
    let queue = '';
    await until(async () => {
      queue = freshName();
      return (await cluster.ownerOf(key(queue, 'pending'))) === master;
    });
    const host = network.hosts[cluster.nodes.indexOf(master)] as Host;
    const env = { DELAYQ_REDIS_URL: cluster.urlOf(master) };
    const enqueue = (flags = '') => sh(`${host.within.join(' ')} delayq enqueue ${flags} ${queue} 1`, { env });
    const safe = await enqueue('--replicas 1');
    expect(safe).toMatchObject({ code: 0, stderr: '' });

    network.partition([host]);
    const cut = Date.now();
    const lost: string[] = [];
    const doubted = enqueue('--replicas 1');
    // When the last one began that was confirmed: how long a command takes to end does not count.
    let [confirmed, begun] = [cut, cut];
    for (let last = await enqueue(); last.code === 0 && begun - cut < 60_000; last = await enqueue()) {
      lost.push(last.stdout.trim());
      confirmed = begun;
      begun = Date.now();
    }
    expect(await doubted).toMatchObject({ code: 75, stdout: '' });
    expect(lost.length).toBeGreaterThan(0);
    // Nodes count from a ping, which they send when one was silent for half of that. A second for a busy machine.
    expect(confirmed - cut).toBeLessThan(1.5 * NODE_TIMEOUT_MS + 1_000);

    await until(async () => (await cluster.masters()).length > 3);
    network.heal();
    await cluster.settled();
    const owner = await cluster.ownerOf(key(queue, 'pending'));
    expect(owner).not.toBe(master);
    const ids = await owner.admin.hkeys(key(queue, 'payload'));
    expect(ids).toEqual([safe.stdout.trim()]);
  });
});
