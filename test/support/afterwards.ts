import { AsyncLocalStorage } from 'node:async_hooks';
import type { RunnerTask, TestContext } from 'vitest';

type CleanUp = () => unknown;

/** What a test has to clean up. */
interface Running {
  readonly cleanUps: CleanUp[];
  isOver: boolean;
}

/** The test that runs, if it runs alone. */
let alone: Running | undefined;

/** Those that run at the same time. Used by them only: before Node 24 it makes every promise slower. */
const together = new AsyncLocalStorage<Running>();
let concurrent = 0;

const running = () => together.getStore() ?? alone;

/** What the file that runs has to clean up. A worker runs one file after the other, and keeps its modules. */
let ofFile: CleanUp[] = [];

/** Runs a test, then what it gave to {@link afterwards}. For setup.ts. */
export async function cleanedUp(run: () => Promise<void>, { task }: Pick<TestContext, 'task'>): Promise<void> {
  const test: Running = { cleanUps: [], isOver: false };
  try {
    await (mayBeTogether(task) ? runTogether(test, run) : runAlone(test, run));
  } finally {
    test.isOver = true;
    await all(test.cleanUps);
  }
}

/** Whether other tests may run at the same time: also beside a sequential one, if its suite is concurrent. */
function mayBeTogether(task: Pick<RunnerTask, 'concurrent' | 'suite'>): boolean {
  return task.concurrent === true || (task.suite !== undefined && mayBeTogether(task.suite));
}

async function runAlone(test: Running, run: () => Promise<void>): Promise<void> {
  alone = test;
  await run();
}

async function runTogether(test: Running, run: () => Promise<void>): Promise<void> {
  concurrent++;
  try {
    await together.run(test, run);
  } finally {
    concurrent--;
    if (concurrent === 0) together.disable();
  }
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
  const test = running();
  if (!test || test.isOver) throw new Error('afterwards() and during() work within a test only');
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
  if (running()?.isOver) {
    await made.stop();
    throw new Error('the test is over');
  }
  afterwards(() => made.stop());
  return made;
}
