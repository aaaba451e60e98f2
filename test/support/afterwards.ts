import { AsyncLocalStorage } from 'node:async_hooks';

type CleanUp = () => unknown;

/** What the running test has to clean up. Tests of a file may run at the same time: each has its own. */
const running = new AsyncLocalStorage<{ cleanUps: CleanUp[]; isOver: boolean }>();

/** What the file that runs has to clean up. A worker runs one file after the other, and keeps its modules. */
let ofFile: CleanUp[] = [];

/** Runs a test, then what it gave to {@link afterwards}. For setup.ts. */
export async function cleanedUp(run: () => Promise<void>): Promise<void> {
  const test = { cleanUps: [] as CleanUp[], isOver: false };
  await running.run(test, run);
  test.isOver = true;
  await all(test.cleanUps);
}

/** Runs what the file gave to {@link afterFile}. For setup.ts. */
export async function fileIsOver(): Promise<void> {
  const cleanUps = ofFile;
  ofFile = [];
  await all(cleanUps);
}

async function all(cleanUps: CleanUp[]): Promise<void> {
  const failures: unknown[] = [];
  for (const clean of cleanUps.reverse()) {
    try {
      await clean();
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw new Error(`could not clean up: ${failures.join('; ')}`, { cause: failures[0] });
}

/** Calls `clean` after the test, in reverse order. Throws outside of a test. */
export function afterwards(clean: CleanUp): void {
  const test = running.getStore();
  if (!test) throw new Error('afterwards() and during() work within a test only');
  test.cleanUps.push(clean);
}

/** Calls `clean` after all tests of the file, in reverse order. Works everywhere. */
export function afterFile(clean: CleanUp): void {
  ofFile.push(clean);
}

/** Stops what `making` resolves to after the test. */
export async function during<T extends { stop(): unknown }>(making: T | Promise<T>): Promise<T> {
  const made = await making;
  // A test that timed out goes on.
  if (running.getStore()?.isOver) {
    await made.stop();
    throw new Error('the test is over');
  }
  afterwards(() => made.stop());
  return made;
}
