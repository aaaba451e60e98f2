import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from './random.js';

/** Lets faults strike one by one until `done`, each at least once; `strike` resolves with false if it struck nothing. */
export async function rage(
  /** The faults, with their weights. */
  faults: Readonly<Record<string, number>>,
  random: Random,
  longestPauseMs: number,
  strike: (name: string) => Promise<boolean>,
  done: () => boolean,
): Promise<void> {
  const names = Object.keys(faults);
  const [first, struck] = [random.shuffled(names), new Set<string>()];
  while (names.length > 0 && (first.length > 0 || !done())) {
    await sleep(random.whole(50, longestPauseMs));
    const name = first.shift() ?? random.pickByWeight(names, (one) => faults[one] ?? 0);
    if (await strike(name)) struck.add(name);
    else if (!struck.has(name)) first.push(name);
  }
}
