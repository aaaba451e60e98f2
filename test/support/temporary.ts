import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterFile } from './afterwards.js';

/** A directory for the tests of a file, removed after them. */
export function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'delayq-test-'));
  afterFile(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}
