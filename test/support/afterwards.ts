import { AsyncLocalStorage } from 'node:async_hooks';
import { aroundEach } from 'vitest';

/** What the running test has to clean up. Tests of a file may run at the same time: each has its own. */
const cleanUps = new AsyncLocalStorage<(() => unknown)[]>();

aroundEach(async (run) => {
  const last: (() => unknown)[] = [];
  await cleanUps.run(last, run);
  for (const clean of last.reverse()) await clean();
});

/** Calls `clean` after the test, in reverse order. Throws outside of a test. */
export function afterwards(clean: () => unknown): void {
  const last = cleanUps.getStore();
  if (!last) throw new Error('afterwards() and during() work within a test only');
  last.push(clean);
}

/** Stops what `making` resolves to after the test. */
export async function during<T extends { stop(): unknown }>(making: T | Promise<T>): Promise<T> {
  const made = await making;
  afterwards(() => made.stop());
  return made;
}
