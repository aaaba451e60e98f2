import { defineConfig } from 'vitest/config';
import { longestFirst } from './test/support/longest-first.js';

const report = process.env.DELAYQ_TEST_REPORT;

/** Files that take long although they are small. The others start by their size. */
const LONG = [
  ...['incident', 'store/conformance', 'consume/wait', 'redis/sentinel', 'store/durability', 'cli/drain/frozen'],
  ...['cli/commands/frozen-node', 'cli/commands/demo', 'cli/completion/completion', 'package', 'cli/passwords'],
  ...['producers'],
].map((name) => `test/${name}.test.ts`);

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: 'test/support/shared-server.ts',
    setupFiles: 'test/support/setup.ts',
    // A worker keeps the modules that its files import: importing them anew took a quarter of the time.
    isolate: false,
    // Real processes on few cores may be slow. Tests wait for conditions, never for a fixed time.
    testTimeout: 120_000,
    // Tests spend most of their time waiting for processes.
    maxWorkers: 6,
    sequence: { sequencer: longestFirst(...LONG) },
    hookTimeout: 60_000,
    reporters: report ? ['default', ['json', { outputFile: report }]] : ['default'],
    env: { TZ: 'UTC' },
  },
});
