import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';

const made: string[] = [];

afterAll(() => {
  for (const directory of made) rmSync(directory, { recursive: true, force: true });
});

/** A directory for the test, removed after its file. */
export function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'delayq-test-'));
  made.push(directory);
  return directory;
}
