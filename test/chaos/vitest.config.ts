import { defineConfig } from 'vitest/config';
import { longestFirst } from '../support/longest-first.js';

const report = process.env.DELAYQ_TEST_REPORT;

/**
 * What a machine that stands still can break: the errors of `until` and `within`, and the time limit of a test. Only at
 * the begin of a message: books that do not balance may quote them, and so may a clean-up after such books.
 */
const TOO_SLOW = /^(did not (come true|end) within|Test timed out in) \d+ ?ms/;

const LONG = ['cluster', 'storm', 'readers', 'http', 'steps'].map((name) => `${name}.chaos.ts`);

export default defineConfig({
  test: {
    include: ['test/chaos/*.chaos.ts'],
    globalSetup: 'test/support/shared-server.ts',
    setupFiles: 'test/support/setup.ts',
    isolate: false,
    // In CI, these run once more, from a fresh start. Lost jobs, books that do not balance and all else never do.
    retry: report ? { count: 1, condition: TOO_SLOW } : 0,
    // Whatever tests wait for has a limit of its own, which says what did not come.
    testTimeout: 400_000,
    hookTimeout: 120_000,
    sequence: { sequencer: longestFirst(...LONG) },
    // More than half of each storm is waiting: for failovers, leases and time limits.
    maxWorkers: 4,
    reporters: report ? ['verbose', ['json', { outputFile: report }]] : ['verbose'],
    env: { TZ: 'UTC' },
  },
});
