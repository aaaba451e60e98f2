import { defineConfig } from 'vitest/config';

const report = process.env.DELAYQ_TEST_REPORT;

export default defineConfig({
  test: {
    include: ['test/chaos/*.chaos.ts'],
    globalSetup: 'test/support/shared-server.ts',
    testTimeout: 180_000,
    hookTimeout: 30_000,
    // More than half of each storm is waiting: for failovers, leases and time limits.
    maxWorkers: 3,
    reporters: report ? ['verbose', ['json', { outputFile: report }]] : ['verbose'],
    env: { TZ: 'UTC' },
  },
});
