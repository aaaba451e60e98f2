import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

const report = process.env.DELAYQ_TEST_REPORT;

/**
 * What a machine that stands still can break: the errors of `until` and `within`, and the time limit of a test. Only at
 * the begin of a message: books that do not balance may quote them, and so may a clean-up after such books.
 */
const TOO_SLOW = /^(did not (come true|end) within|Test timed out in) \d+ ?ms/;

/** The files that take longest, the longest first: none runs alone in the end. */
const LONG = ['cluster', 'storm', 'readers', 'http', 'steps'];
const isAt = ({ moduleId }: TestSpecification, i: number) => moduleId.endsWith(`/${LONG[i]}.chaos.ts`);
const placeOf = (file: TestSpecification) => [...LONG.keys()].find((i) => isAt(file, i)) ?? LONG.length;

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return files.sort((a, b) => placeOf(a) - placeOf(b));
  }
}

export default defineConfig({
  test: {
    include: ['test/chaos/*.chaos.ts'],
    globalSetup: 'test/support/shared-server.ts',
    // In CI, these run once more, from a fresh start. Lost jobs, books that do not balance and all else never do.
    retry: report ? { count: 1, condition: TOO_SLOW } : 0,
    // Whatever tests wait for has a limit of its own, which says what did not come.
    testTimeout: 400_000,
    hookTimeout: 120_000,
    sequence: { sequencer: LongestFirst },
    // More than half of each storm is waiting: for failovers, leases and time limits.
    maxWorkers: 3,
    reporters: report ? ['verbose', ['json', { outputFile: report }]] : ['verbose'],
    env: { TZ: 'UTC' },
  },
});
