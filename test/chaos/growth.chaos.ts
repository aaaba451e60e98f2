import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { during } from '../support/afterwards.js';
import { cluster, oneServer } from './deployments.js';
import { GrowthStorm, type GrowthWeather } from './growth.js';
import { jobs, seed } from './options.js';

const begin = async (weather: Omit<GrowthWeather, 'seed'>) => during(GrowthStorm.begin({ seed, ...weather }));

async function expectExplained(storm: GrowthStorm): Promise<void> {
  const { figures, violations } = await storm.end();
  console.log(figures);
  expect(violations).toEqual([]);
}

describe(`a queue that grows from 1 to 4 to 16 partitions while it is called by id (seed ${seed})`, () => {
  it('answers as one without partitions would, on one server', async () => {
    const storm = await begin({ redis: await oneServer(), waiting: 500 });
    await storm.grow();
    await storm.grow();
    await expectExplained(storm);
  });

  it('and with consumers of every form', async () => {
    const storm = await begin({ redis: await oneServer(), waiting: 500, everyForm: true });
    await storm.grow();
    await storm.grow();
    await expectExplained(storm);
  });

  it('loses nothing that all replicas have, on a cluster whose masters are replaced', async () => {
    const storm = await begin({ redis: await cluster(['grown']), waiting: 500, replicas: 1 });
    const growing = storm.grow();
    await storm.strike('CLUSTER FAILOVER');
    await growing;
    await Promise.all([storm.grow(), storm.strike('kill master')]);
    await expectExplained(storm);
  });
});

describe.runIf(jobs > 0)(`a large queue: ${jobs} jobs (seed ${seed})`, () => {
  it('grows from 1 to 16 partitions under all of that, with a failover, a killed master and a killed grower', async () => {
    const redis = await cluster(['grown']);
    const large = { waiting: jobs, ids: 200, everyForm: true, replicas: 1, steps: [16], livesMs: 8_000 };
    const storm = await begin({ redis, ...large });
    await sleep(1_000);
    const growing = storm.grow();
    await storm.strike('CLUSTER FAILOVER');
    await storm.strike('kill master');
    const ms = await growing;
    const seconds = `${(ms / 1000).toFixed(1)} s`;
    console.log(`the growth took ${seconds}: ${Math.round((jobs * 15) / 16 / (ms / 1000))} jobs a second`);
    await expectExplained(storm);
  }, 900_000);
});
