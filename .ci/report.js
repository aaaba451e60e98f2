// Prints what a JSON report of vitest counts: passed, failed, skipped. Then each test that failed, or passed only when it
// was run again, with its messages: .ci/report.js FILE
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { stripVTControlCharacters } from 'node:util';

/** The most lines of one message: the rest is in the output above. */
const MOST_LINES = 5;

const report = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const failed = [];
const retried = [];
for (const { name, status, message, assertionResults } of report.testResults) {
  const file = relative(process.cwd(), name);
  const before = failed.length;
  for (const { ancestorTitles, title, status: outcome, failureMessages } of assertionResults) {
    const told = [[file, ...ancestorTitles, title].join(' > '), failureMessages];
    if (outcome === 'failed') failed.push(told);
    // Messages of its first run.
    else if (failureMessages.length > 0) retried.push(told);
  }
  // A hook or an import failed, not a test.
  if (status === 'failed' && failed.length === before) failed.push([file, [message]]);
}
console.log(report.numPassedTests, failed.length, report.numPendingTests);
print('FAILED', failed);
print('RETRIED', retried);

/** Prints tests with their messages, each once: a test that was run twice has two. */
function print(what, tests) {
  for (const [title, messages] of tests) {
    const texts = new Set(messages.length > 0 ? messages.map(textOf) : [textOf('')]);
    console.log([`${what} ${title}`, ...texts].join('\n      '));
  }
}

/** The first lines of a message, without where it was thrown. */
function textOf(message) {
  const [text] = stripVTControlCharacters(message || 'a hook failed: see the output above')
    // What vitest calls a test that reached its time limit.
    .replace('STACK_TRACE_ERROR', 'timed out')
    .split(/\n +at /);
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return lines.slice(0, MOST_LINES).join('\n      ');
}
