import { expect, it } from 'vitest';
import { during } from '../support/afterwards.js';
import { ONE_SERVER_STORM, oneServer } from './deployments.js';
import { STORM } from './faults.js';
import { FeatureStorm } from './features.js';
import { minutes, seed } from './options.js';

const EVERYTHING = { ...STORM, ...ONE_SERVER_STORM };

it(
  `a storm over limits, windows and recurring jobs (seed ${seed}): limits hold and are reached, each occurrence makes one job, and each id is done once`,
  async () => {
    const storm = await during(FeatureStorm.begin(seed, await oneServer()));
    const end = performance.now() + minutes * 60_000;
    await storm.rage(EVERYTHING, () => performance.now() > end);
    const { figures, violations } = await storm.end();
    for (const [name, value] of Object.entries(figures)) console.log(name.padEnd(30), value);
    expect(violations).toEqual([]);
  },
  minutes * 60_000 + 240_000,
);
