// Prints what a JSON report of vitest counts: passed, failed, skipped. Then each failure on lines of its own: .ci/report.js FILE
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { stripVTControlCharacters } from 'node:util';

/** The most lines of one message: the rest is in the output above. */
const MOST_LINES = 5;

const report = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const failures = [];
for (const { name, status, message, assertionResults } of report.testResults) {
  const file = relative(process.cwd(), name);
  const failed = assertionResults.filter((one) => one.status === 'failed');
  for (const { ancestorTitles, title, failureMessages } of failed)
    failures.push([[file, ...ancestorTitles, title].join(' > '), failureMessages[0]]);
  // A hook or an import failed, not a test.
  if (status === 'failed' && failed.length === 0) failures.push([file, message]);
}
console.log(report.numPassedTests, failures.length, report.numPendingTests);
for (const [title, message] of failures) {
  // Without where it was thrown.
  const [text] = stripVTControlCharacters(message || 'a hook failed: see the output above').split(/\n +at /);
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  console.log(`  ${[title, ...lines.slice(0, MOST_LINES)].join('\n      ')}`);
}
