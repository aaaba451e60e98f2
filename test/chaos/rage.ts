import { setTimeout as sleep } from 'node:timers/promises';
import { within } from '../support/until.js';
import type { Random } from './random.js';

/** How long a fault may take until all is well again, ms. Some wait for a failover, and for all to agree, twice. */
export const STRIKE_MS = 200_000;

/** How long it may take until each has struck, ms. */
const FIRST_MS = 300_000;

/** Lets faults strike one by one until `done`, each at least once; `strike` resolves with false if it struck nothing. */
export async function rage(
  /** The faults, with their weights. */
  faults: Readonly<Record<string, number>>,
  random: Random,
  longestPauseMs: number,
  strike: (name: string, random: Random) => Promise<boolean>,
  done: () => boolean,
): Promise<void> {
  const names = Object.keys(faults);
  const [first, struck] = [random.shuffled(names), new Set<string>()];
  const end = performance.now() + FIRST_MS;
  while (first.length > 0 || !done()) {
    await sleep(random.whole(Math.min(50, longestPauseMs), longestPauseMs));
    const name = first.shift() ?? random.pickByWeight(names, (one) => faults[one] ?? 0);
    if (await within(STRIKE_MS, `the fault "${name}"`, strike(name, random.branch()))) struck.add(name);
    else if (!struck.has(name)) first.push(name);
    if (first.length > 0 && performance.now() > end)
      throw new Error(`after ${FIRST_MS} ms these have struck nothing: ${first}`);
  }
}
