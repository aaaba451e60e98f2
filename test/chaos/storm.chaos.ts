import { describe, expect, it } from 'vitest';
import { during } from '../support/afterwards.js';
import { until } from '../support/until.js';
import { ONE_SERVER_STORM, oneServer } from './deployments.js';
import { STORM } from './faults.js';
import { minutes, seed } from './options.js';
import { expectBalanced } from './report.js';
import { Storm, type Weather } from './storm.js';

/** A lease that is long enough for a busy machine, ms. */
const PATIENT_MS = 20_000;

const EVERYTHING = { ...STORM, ...ONE_SERVER_STORM };

const begin = (weather: Omit<Weather, 'seed'>) => during(Storm.begin({ seed, ...weather }));

describe(`a storm (seed ${seed})`, () => {
  it('of nothing at all: without faults nothing is handled twice', async () => {
    const storm = await begin({ faults: {}, leaseMs: PATIENT_MS, ttl: '1h' });
    await until(() => storm.handled > 500 && storm.allAtWork, 120_000);
    expectBalanced(await storm.end(), storm);
  });

  it(
    'of everything at once loses nothing, and every repeat has its reason (failures 1, 4, 35)',
    async () => {
      const storm = await begin({ faults: EVERYTHING });
      const end = performance.now() + minutes * 60_000;
      await storm.rage(() => performance.now() > end);
      expectBalanced(await storm.end(), storm);
      expect(new Set(Object.keys(storm.struck))).toEqual(new Set(Object.keys(EVERYTHING)));
    },
    minutes * 60_000 + 600_000,
  );

  it('of kills of Redis, twenty of them with appendfsync always: the books balance exactly (failures 19)', async () => {
    const storm = await begin({ faults: {}, direct: true });
    await killRedis(storm, 20);
    expectBalanced(await storm.end(), storm);
  });

  it('of kills of Redis with appendfsync everysec: only what it did in the two seconds before a kill may be forgotten', async () => {
    const storm = await begin({ faults: {}, direct: true, redis: () => oneServer('everysec') });
    await killRedis(storm, 5);
    expectBalanced(await storm.end(), storm);
  });

  it('of SCRIPT FLUSH, between any two calls, goes unnoticed (failures 18)', async () => {
    const storm = await begin({
      faults: { 'SCRIPT FLUSH': 1 },
      pauses: { redis: 30, others: 30 },
      leaseMs: PATIENT_MS,
    });
    await storm.rage(() => (storm.struck['SCRIPT FLUSH'] ?? 0) >= 100 && storm.allAtWork);
    const balances = await storm.end();
    expectBalanced(balances, storm);
    expect(balances[0]?.figures).toMatchObject({ 'leases lost': 0, 'of unknown outcome': 0 });
  });
});

/** Kills Redis `times` times, each time after some more jobs were handled. */
async function killRedis(storm: Storm, times: number): Promise<void> {
  await until(() => storm.allAtWork, 60_000);
  for (let kill = 0; kill < times; kill++) {
    const handled = storm.handled;
    await until(() => storm.handled > handled + 50, 60_000);
    await storm.strike('kill Redis');
  }
}
