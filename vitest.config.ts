import { defineConfig } from 'vitest/config';

const report = process.env.DELAYQ_TEST_REPORT;

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: 'test/support/shared-server.ts',
    // Real processes on few cores: patience is long, but no test waits for a while rather than for a condition.
    testTimeout: 60_000,
    // Most of the time a test waits for processes.
    maxWorkers: 3,
    hookTimeout: 30_000,
    reporters: report ? ['default', ['json', { outputFile: report }]] : ['default'],
    env: { TZ: 'UTC' },
  },
});
