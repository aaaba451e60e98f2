// Prints what a JSON report of vitest counts: passed, failed, skipped. Then each test that failed, with its messages:
// .ci/report.js [--complete] FILE. With --complete, a test that was skipped without one of the reasons below has failed.
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { stripVTControlCharacters } from 'node:util';

/** What is skipped although every program is installed, by the beginning of its name, and who runs it. */
const EXPECTED = {
  'test/store/durability.test.ts > --durable': 'needs Redis 7.2: .ci/servers',
  'test/migrate.test.ts > sorted-set.sh > moves 1,000,000 members': 'takes a minute: .ci/long',
  'test/model/payload.test.ts > JSON text > of JSON.rawJSON': 'needs Node 22: .ci/node',
  'test/store/growth-protocol.test.ts > growth, in larger instances': 'takes minutes: .ci/long',
  'test/store/growth-protocol.test.ts > the search finds': 'is about the model: .ci/long',
};

/** The most lines of one message: the rest is in the output above. */
const MAX_LINES = 5;

const args = process.argv.slice(2);
const isComplete = args[0] === '--complete';
const report = JSON.parse(readFileSync(args.at(-1), 'utf8'));
const failed = [];
let skipped = 0;
for (const { name, status, message, assertionResults } of report.testResults) {
  const file = relative(process.cwd(), name);
  const before = failed.length;
  for (const { ancestorTitles, title, status: outcome, failureMessages } of assertionResults) {
    const test = [file, ...ancestorTitles, title].join(' > ');
    if (outcome === 'failed') failed.push([test, failureMessages]);
    if (outcome === 'passed' || outcome === 'failed') continue;
    skipped += 1;
    if (isComplete && !Object.keys(EXPECTED).some((begin) => test.startsWith(begin)))
      failed.push([test, ['skipped: a program is missing; .ci/packages installs them']]);
  }
  // A hook or an import failed, not a test.
  if (status === 'failed' && failed.length === before) failed.push([file, [message]]);
}
console.log(report.numPassedTests, failed.length, skipped);
for (const [test, messages] of failed) {
  const texts = messages.length > 0 ? messages.map(textOf) : [textOf('')];
  console.log([`FAILED ${test}`, ...texts].join('\n      '));
}

/** The first lines of a message, without where it was thrown. */
function textOf(message) {
  const [text] = stripVTControlCharacters(message || 'a hook failed: see the output above')
    // What vitest calls a test that reached its time limit.
    .replace('STACK_TRACE_ERROR', 'timed out')
    .split(/\n +at /);
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return lines.slice(0, MAX_LINES).join('\n      ');
}
