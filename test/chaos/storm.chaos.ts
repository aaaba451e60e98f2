import { afterEach, describe, expect, it } from 'vitest';
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
  it(
    'of everything at once loses nothing, and every repeat has its reason',
    async () => {
      const storm = await begin({ faults: STORM });
      const end = performance.now() + minutes * 60_000;
      await storm.rage(() => performance.now() > end);
      expectBalanced(await storm.end(), storm.struck);
    },
    minutes * 60_000 + 240_000,
  );
});
