import { afterEach, describe, expect, it } from 'vitest';
import { until } from '../support/until.js';
import { STORM } from './faults.js';
import type { Balance } from './ledger.js';
import { minutes, seed } from './options.js';
import { Storm, type Weather } from './storm.js';

let storm: Storm | undefined;
afterEach(async () => {
  await storm?.stop();
  storm = undefined;
});

async function begin(weather: Omit<Weather, 'seed'>): Promise<Storm> {
  storm = await Storm.begin({ seed, ...weather });
  return storm;
}

/** Prints what happened, and fails with all that cannot be explained. */
function expectBalanced(balances: readonly Balance[], struck: Storm['struck']): void {
  const figures = balances.map(({ figures }) => figures);
  const names = Object.keys(figures[0] ?? {});
  for (const name of names) console.log(name.padEnd(40), ...figures.map((of) => String(of[name]).padStart(9)));
  console.log(
    'faults:',
    Object.entries(struck)
      .map(([name, times]) => `${name} ${times}`)
      .join(', ') || 'none',
  );
  expect(balances.flatMap(({ violations }) => violations)).toEqual([]);
}

describe(`a storm (seed ${seed})`, () => {
  it('of nothing at all: without faults nothing is handled twice', async () => {
    const storm = await begin({ faults: {} });
    await until(() => storm.handled > 1_000);
    const balances = await storm.end();
    expectBalanced(balances, storm.struck);
    const [all] = balances;
    expect(all?.figures).toMatchObject({ 'leases lost': 0, 'handled again after a release': 0 });
  });

  it(
    'of everything at once loses nothing, and every repeat has its reason (failures 1, 4)',
    async () => {
      const storm = await begin({ faults: STORM });
      const end = performance.now() + minutes * 60_000;
      await storm.rage(() => performance.now() > end);
      expectBalanced(await storm.end(), storm.struck);
    },
    minutes * 60_000 + 240_000,
  );

  it('of kills of Redis, twenty of them with appendfsync always: the books balance exactly (failures 19)', async () => {
    const storm = await begin({ faults: {}, direct: true });
    await killRedis(storm, 20);
    expectBalanced(await storm.end(), storm.struck);
  });

  it('of kills of Redis with appendfsync everysec: at most what the two seconds before a kill confirmed is forgotten', async () => {
    const storm = await begin({ faults: {}, direct: true, appendfsync: 'everysec' });
    await killRedis(storm, 5);
    expectBalanced(await storm.end(), storm.struck);
  });

  it('of SCRIPT FLUSH, between any two calls, goes unnoticed (failures 18)', async () => {
    const storm = await begin({ faults: { 'SCRIPT FLUSH': 1 }, pauseMs: 60 });
    await storm.rage(() => (storm.struck['SCRIPT FLUSH'] ?? 0) >= 100);
    const balances = await storm.end();
    expectBalanced(balances, storm.struck);
    expect(balances[0]?.figures).toMatchObject({ 'leases lost': 0, 'of unknown outcome': 0 });
  });
});

/** Each time some more jobs have been handled since the last. */
async function killRedis(storm: Storm, times: number): Promise<void> {
  for (let kill = 0; kill < times; kill++) {
    const handled = storm.handled;
    await until(() => storm.handled > handled + 50);
    await storm.strike('kill Redis');
  }
}
