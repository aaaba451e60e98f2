// Runs the chaos suite, or proves that it can fail: npm run test:chaos -- --help
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const MUTATIONS = fileURLToPath(new URL('mutations/', import.meta.url));

const HELP = `Usage: npm run test:chaos -- [options] [file…]

Kills, cuts and freezes real processes and servers, and balances the books. Files: ledger, steps, readers, servers, large, storm
(default: all).

  --seed N       what chance begins with (default: a new one, printed)
  --minutes M    how long the storm of everything lasts (default: 1)
  --repeat N     how often each step is gone through, with seeds N, N+1 … (default: 1)
  -t TEXT        only tests whose names match
  --mutations    see the suite fail, once for each patch in test/chaos/mutations, applied to a copy of the project

Examples:
  npm run test:chaos -- --minutes 30 storm
  npm run test:chaos -- --seed 7 -t 'killed after it took'`;

function fail(why) {
  console.error(`chaos: ${why}; npm run test:chaos -- --help says more`);
  process.exit(64);
}

function optionsOf(args) {
  try {
    return parseArgs({
      args,
      allowPositionals: true,
      options: {
        seed: { type: 'string', default: String(Math.floor(Math.random() * 1_000_000)) },
        minutes: { type: 'string', default: '1' },
        repeat: { type: 'string', default: '1' },
        t: { type: 'string', short: 't' },
        mutations: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
  } catch (error) {
    return fail(error.message);
  }
}

const { values, positionals: files } = optionsOf(process.argv.slice(2));
const { seed, minutes, repeat, t: name } = values;
if (values.help) {
  console.log(HELP);
  process.exit();
}
if (!/^\d{1,9}$/.test(seed)) fail(`--seed is a whole number, not ${JSON.stringify(seed)}`);
if (!(Number(minutes) > 0)) fail(`--minutes is a number above zero, not ${JSON.stringify(minutes)}`);
if (!/^[1-9]\d{0,4}$/.test(repeat)) fail(`--repeat counts from 1, not ${JSON.stringify(repeat)}`);
for (const file of files) {
  if (!['ledger', 'steps', 'readers', 'servers', 'large', 'storm'].includes(file))
    fail(`there is no file ${JSON.stringify(file)}`);
}
// It looks into /proc, sets clocks with libfaketime and mounts a tmpfs.
if (process.platform !== 'linux') fail('the chaos suite runs on Linux only');
must(ROOT, 'sh', ['scripts/setup.sh', 'faketime'], { stdio: 'inherit' });
process.exitCode = values.mutations ? mutate() : suite();

function suite() {
  console.log(`chaos: seed ${seed}`);
  const { failed, passed } = vitest(ROOT, [...files, ...(name ? ['-t', name] : [])], { stdio: 'inherit' });
  if (passed + failed.length === 0) fail('no test ran');
  if (failed.length === 0) return 0;
  const args = [
    '--seed',
    seed,
    '--minutes',
    minutes,
    '--repeat',
    repeat,
    ...(name ? ['-t', `'${name}'`] : []),
    ...files,
  ];
  console.log(`chaos: to do that again: npm run test:chaos -- ${args.join(' ')}`);
  return 1;
}

/** Runs the suite in `directory`; which tests failed, and how many passed. A file that could not be run has failed. */
function vitest(directory, args, options, more = {}) {
  const report = process.env.DELAYQ_TEST_REPORT ?? join(mkdtempSync(join(tmpdir(), 'delayq-chaos-')), 'report.json');
  const chance = { DELAYQ_CHAOS_SEED: seed, DELAYQ_CHAOS_MINUTES: minutes, DELAYQ_CHAOS_REPEAT: repeat };
  const { status } = spawnSync(
    process.execPath,
    ['node_modules/vitest/vitest.mjs', 'run', '--config', 'test/chaos/vitest.config.ts', ...args],
    { cwd: directory, env: { ...process.env, ...chance, DELAYQ_TEST_REPORT: report, ...more }, ...options },
  );
  const { testResults, numPassedTests } = JSON.parse(readFileSync(report, 'utf8'));
  if (!process.env.DELAYQ_TEST_REPORT) rmSync(join(report, '..'), { recursive: true });
  const tests = testResults.flatMap((file) => file.assertionResults.filter(({ status }) => status === 'failed'));
  const failed = tests.map(({ fullName }) => fullName);
  if (status !== 0 && failed.length === 0) failed.push('the suite itself');
  return { failed, passed: numPassedTests };
}

/** Wants the suite to be green, and red in a copy of the project to which a patch was applied. */
function mutate() {
  const args = ['--bail=1', ...(files.length > 0 ? files : ['steps'])];
  if (vitest(ROOT, args, { stdio: 'ignore' }).failed.length > 0) fail('the suite is red as it is');
  console.log('green: as it is');
  let blind = 0;
  for (const patch of readdirSync(MUTATIONS).filter((file) => file.endsWith('.patch'))) {
    const copy = mkdtempSync(join(tmpdir(), 'delayq-mutation-'));
    try {
      const parts = ['bin', 'lua', 'scripts', 'src', 'test', 'package.json', 'tsconfig.json', 'tsconfig.build.json'];
      for (const part of parts) cpSync(join(ROOT, part), join(copy, part), { recursive: true });
      symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
      must(copy, 'git', ['apply', join(MUTATIONS, patch)]);
      must(copy, 'npm', ['run', '--silent', 'build']);
      const [, expected] = /^red: (.*)$/m.exec(readFileSync(join(MUTATIONS, patch), 'utf8'));
      // What a run that was broken off leaves behind goes with the copy.
      const { failed } = vitest(copy, args, { stdio: 'ignore' }, { TMPDIR: copy });
      const seen = failed.some((test) => new RegExp(expected).test(test));
      console.log(`${seen ? 'red' : 'NOT SEEN'}: ${patch}${failed.map((test) => `\n  ${test}`).join('')}`);
      if (!seen) blind += 1;
    } finally {
      rmSync(copy, { recursive: true, force: true });
    }
  }
  return blind > 0 ? 1 : 0;
}

function must(cwd, command, args, options = {}) {
  const { status, stdout = '', stderr = '' } = spawnSync(command, args, { cwd, encoding: 'utf8', ...options });
  if (status !== 0) fail(`${command} ${args.join(' ')} failed\n${stdout ?? ''}${stderr ?? ''}`);
}
