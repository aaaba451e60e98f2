import { AsyncLocalStorage } from 'node:async_hooks';
import { aroundEach } from 'vitest';

type CleanUp = () => unknown;

/** What the running test has to clean up. Tests of a file may run at the same time: each has its own. */
const running = new AsyncLocalStorage<{ cleanUps: CleanUp[]; isOver: boolean }>();

aroundEach(async (run) => {
  const test = { cleanUps: [] as CleanUp[], isOver: false };
  await running.run(test, run);
  test.isOver = true;
  const failures: unknown[] = [];
  for (const clean of test.cleanUps.reverse()) {
    try {
      await clean();
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw new Error(`could not clean up: ${failures.join('; ')}`, { cause: failures[0] });
});

/** Calls `clean` after the test, in reverse order. Throws outside of a test. */
export function afterwards(clean: CleanUp): void {
  const test = running.getStore();
  if (!test) throw new Error('afterwards() and during() work within a test only');
  test.cleanUps.push(clean);
}

/** Stops what `making` resolves to after the test. */
export async function during<T extends { stop(): unknown }>(making: T | Promise<T>): Promise<T> {
  const made = await making;
  // A test that timed out goes on, and may be running again.
  if (running.getStore()?.isOver) {
    await made.stop();
    throw new Error('the test is over');
  }
  afterwards(() => made.stop());
  return made;
}
