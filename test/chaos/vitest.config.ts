import { defineConfig } from 'vitest/config';
import { longestFirst } from '../support/longest-first.js';

const report = process.env.DELAYQ_TEST_REPORT;

// Commands that are killed leave temporary files behind.
process.env.DELAYQ_TEST_KILLS = '1';

const LONG = ['cluster', 'storm', 'readers', 'http', 'steps'].map((name) => `${name}.chaos.ts`);

export default defineConfig({
  test: {
    include: ['test/chaos/*.chaos.ts'],
    globalSetup: 'test/support/shared-server.ts',
    setupFiles: 'test/support/setup.ts',
    isolate: false,
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
