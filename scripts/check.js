// Checks a change quickly: format, lint, types, and the tests of the files that changed since a commit (default: HEAD).
// npm run check [-- COMMIT]
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

process.chdir(fileURLToPath(new URL('..', import.meta.url)));
const begin = performance.now();
const [base = 'HEAD'] = process.argv.slice(2);

const git = (...args) => execFileSync('git', args, { encoding: 'utf8' }).split('\n').filter(Boolean);
const changed = [...git('diff', '--name-only', base), ...git('ls-files', '--others', '--exclude-standard')];
const tests = [...new Set(['test/structure.test.ts', ...changed.flatMap(testOf)])].filter(existsSync);
// The binary that tests run is built from these.
const mustBuild = changed.some((file) => /^(src|lua|bin|scripts)\//.test(file)) || !existsSync('dist/cli/main.cjs');

const steps = [
  ['format and lint', 'node_modules/.bin/biome', 'check', '.'],
  ['unused code', 'node_modules/.bin/knip'],
  ['types', process.execPath, 'node_modules/typescript/bin/tsc', '--noEmit'],
  ...(mustBuild ? [['build', 'npm', 'run', '--silent', 'build']] : []),
  [`tests: ${tests.join(' ')}`, process.execPath, 'node_modules/vitest/vitest.mjs', 'run', ...tests],
];
for (const [what, command, ...args] of steps) {
  console.log(`== ${what}`);
  if (spawnSync(command, args, { stdio: 'inherit' }).status !== 0) {
    console.error(`check: failed: ${what}`);
    process.exit(1);
  }
}
console.log(`check: all is well, after ${Math.round((performance.now() - begin) / 1_000)} s; npm test runs all tests`);

/** The tests that stand for a file: it itself, or the one at the same place in test/. */
function testOf(file) {
  if (/^test\/.*\.test\.ts$/.test(file)) return [file];
  if (file.endsWith('.md')) return ['test/docs.test.ts'];
  if (file.startsWith('lua/')) return ['test/store/model.test.ts'];
  return [file.replace(/^src\//, 'test/').replace(/\.[jt]s$/, '.test.ts')];
}
