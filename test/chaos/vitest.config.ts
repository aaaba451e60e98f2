import { defineConfig } from 'vitest/config';

const report = process.env.DELAYQ_TEST_REPORT;

/** What a machine that stands still can break: the first line of `until`'s error, or vitest's time limit of a test. */
const TOO_SLOW = /^(did not come true within|Test timed out in) \d+ ?ms/;

export default defineConfig({
  test: {
    include: ['test/chaos/*.chaos.ts'],
    globalSetup: 'test/support/shared-server.ts',
    testTimeout: 180_000,
    // In CI, these run once more, from a fresh start. Lost jobs, books that do not balance and all else never do.
    retry: report ? { count: 1, condition: TOO_SLOW } : 0,
    hookTimeout: 30_000,
    // More than half of each storm is waiting: for failovers, leases and time limits.
    maxWorkers: 3,
    reporters: report ? ['verbose', ['json', { outputFile: report }]] : ['verbose'],
    env: { TZ: 'UTC' },
  },
});
