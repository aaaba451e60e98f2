import { setTimeout as sleep } from 'node:timers/promises';

/** Waits until `condition` is true, and checks often. Fails after `ms`. */
export async function until(condition: () => unknown, ms = 30_000): Promise<void> {
  const end = performance.now() + ms;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`did not come true within ${ms} ms: ${condition}`);
    await sleep(5);
  }
}
