import { afterEach, describe, expect, it } from 'vitest';
import { CLUSTER_STORM, cluster, type Deployment, SENTINEL_STORM, withSentinels } from './deployments.js';
import { STORM } from './faults.js';
import { minutes, seed } from './options.js';
import { expectBalanced } from './report.js';
import { QUEUES, Storm } from './storm.js';

let storm: Storm | undefined;
afterEach(async () => {
  await storm?.stop();
  storm = undefined;
});

const DEPLOYMENTS: [string, () => Promise<Deployment>, Record<string, number>, number][] = [
  ['a cluster of three masters with a replica each', () => cluster(QUEUES), CLUSTER_STORM, 1],
  ['a primary with two replicas and three Sentinels', withSentinels, SENTINEL_STORM, 2],
];

describe.each(DEPLOYMENTS)(`a storm over %s (seed ${seed})`, (_, redis, ofRedis, all) => {
  it.each([
    ['that all replicas have', all],
    ['but what was written around a failover', undefined],
  ])(
    'loses no job %s',
    async (_, replicas) => {
      const faults = { ...STORM, ...ofRedis };
      storm = await Storm.begin({ seed, redis, faults, ...(replicas === undefined ? {} : { replicas }) });
      const end = performance.now() + minutes * 60_000;
      await storm.rage(() => performance.now() > end);
      expectBalanced(await storm.end(), storm);
      expect(new Set(Object.keys(storm.struck))).toEqual(new Set(Object.keys(faults)));
    },
    minutes * 60_000 + 600_000,
  );
});
