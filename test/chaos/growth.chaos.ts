import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { during } from '../support/afterwards.js';
import { cluster, oneServer } from './deployments.js';
import { GrowthStorm } from './growth.js';
import { seed } from './options.js';

async function expectExplained(storm: GrowthStorm): Promise<void> {
  const { figures, violations } = await storm.end();
  console.log(figures);
  expect(violations).toEqual([]);
}

describe(`a queue that grows while it is called by id (seed ${seed})`, () => {
  it('answers as one without partitions would, on one server', async () => {
    const storm = await during(GrowthStorm.begin({ seed, redis: await oneServer(), waiting: 500 }));
    await sleep(3_000);
    await expectExplained(storm);
  });

  it('and with consumers of every form', async () => {
    const storm = await during(GrowthStorm.begin({ seed, redis: await oneServer(), waiting: 500, everyForm: true }));
    await sleep(3_000);
    await expectExplained(storm);
  });

  it('loses nothing that all replicas have, on a cluster whose masters are replaced', async () => {
    const storm = await during(GrowthStorm.begin({ seed, redis: await cluster(['grown']), waiting: 500, replicas: 1 }));
    await storm.strike('CLUSTER FAILOVER');
    await storm.strike('kill master');
    await expectExplained(storm);
  });
});
