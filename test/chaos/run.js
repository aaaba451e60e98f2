// Runs the chaos suite, or checks that it fails on known bugs: npm run test:chaos -- --help
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const MUTATIONS = fileURLToPath(new URL('mutations/', import.meta.url));

const CONFIG = ['--config', 'test/chaos/vitest.config.ts', '--reporter=verbose', '--reporter=json'];

const FILES = [
  'ledger',
  'history',
  'events',
  'steps',
  'readers',
  'servers',
  'large',
  'stay',
  'storm',
  'features',
  'http',
  'cluster',
  'growth',
];

const HELP = `Usage: npm run test:chaos -- [options] [file…]

Kills, freezes and disconnects real processes and servers, then checks that no
job was lost. Files: ledger, history, events, steps, readers, servers, large, stay,
storm, features, http, cluster, growth (default: all)

  --seed N       seed of all random choices (default: a new one, which is printed)
  --minutes M    duration of each storm with all faults (default: 1)
  --repeat N     run each scenario N times, each with the next seed (default: 1)
  --jobs N       also grow a queue in which N jobs wait (default: 0, not at all)
  -t TEXT        run only tests whose names match
  --mutations    check that the suite fails on each patch in test/chaos/mutations,
                 applied to a copy of the project

Examples:
  npm run test:chaos -- --minutes 30 storm
  npm run test:chaos -- --jobs 1000000 -t 'large queue' growth
  npm run test:chaos -- --seed 7 -t 'killed after it took'`;

function fail(why) {
  console.error(`chaos: ${why}; see npm run test:chaos -- --help`);
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
        jobs: { type: 'string', default: '0' },
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
const { seed, minutes, repeat, jobs, t: name } = values;
if (values.help) {
  console.log(HELP);
  process.exit();
}
if (!/^\d{1,9}$/.test(seed)) fail(`--seed must be an integer, not ${JSON.stringify(seed)}`);
if (!(Number(minutes) > 0)) fail(`--minutes must be a number above zero, not ${JSON.stringify(minutes)}`);
if (!/^[1-9]\d{0,4}$/.test(repeat)) fail(`--repeat must be at least 1, not ${JSON.stringify(repeat)}`);
if (!/^\d{1,7}$/.test(jobs)) fail(`--jobs must be an integer below ten million, not ${JSON.stringify(jobs)}`);
for (const file of files) {
  if (!FILES.includes(file)) fail(`there is no file ${JSON.stringify(file)}`);
}
// It reads /proc, sets clocks with libfaketime and mounts a tmpfs.
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
    ...(jobs === '0' ? [] : ['--jobs', jobs]),
    ...(name ? ['-t', `'${name}'`] : []),
    ...files,
  ];
  console.log(`chaos: to repeat this run: npm run test:chaos -- ${args.join(' ')}`);
  return 1;
}

/** Runs the suite in `directory`. Returns the tests that failed, or files that could not run, and how many passed. */
function vitest(directory, args, options, more = {}) {
  const report = process.env.DELAYQ_TEST_REPORT ?? join(mkdtempSync(join(tmpdir(), 'delayq-chaos-')), 'report.json');
  const variables = {
    DELAYQ_CHAOS_SEED: seed,
    DELAYQ_CHAOS_MINUTES: minutes,
    DELAYQ_CHAOS_REPEAT: repeat,
    DELAYQ_CHAOS_JOBS: jobs,
  };
  const { status } = spawnSync(
    process.execPath,
    ['node_modules/vitest/vitest.mjs', 'run', ...CONFIG, `--outputFile=${report}`, ...args],
    { cwd: directory, env: { ...process.env, ...variables, ...more }, ...options },
  );
  const { testResults, numPassedTests } = JSON.parse(readFileSync(report, 'utf8'));
  if (!process.env.DELAYQ_TEST_REPORT) rmSync(join(report, '..'), { recursive: true });
  const tests = testResults.flatMap((file) => file.assertionResults.filter(({ status }) => status === 'failed'));
  const failed = tests.map(({ fullName }) => fullName);
  if (status !== 0 && failed.length === 0) failed.push('the suite itself');
  return { failed, passed: numPassedTests };
}

/** Checks that the suite passes, and that it fails in a copy of the project with each patch. */
function mutate() {
  const argsFor = (...some) => ['--bail=1', ...(files.length > 0 ? files : some)];
  if (vitest(ROOT, argsFor('steps', 'events'), { stdio: 'ignore' }).failed.length > 0)
    fail('the suite fails without any patch');
  console.log('green: without a patch');
  let blind = 0;
  for (const patch of readdirSync(MUTATIONS).filter((file) => file.endsWith('.patch'))) {
    const copy = mkdtempSync(join(tmpdir(), 'delayq-mutation-'));
    try {
      // All that the build reads.
      const parts = [
        'bin',
        'docs',
        'lua',
        'scripts',
        'src',
        'test',
        'package.json',
        'tsconfig.json',
        'tsconfig.build.json',
      ];
      for (const part of parts) cpSync(join(ROOT, part), join(copy, part), { recursive: true });
      symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
      must(copy, 'git', ['apply', join(MUTATIONS, patch)]);
      must(copy, 'npm', ['run', '--silent', 'build']);
      const text = readFileSync(join(MUTATIONS, patch), 'utf8');
      const [, expected] = /^red: (.*)$/m.exec(text);
      const [, file = 'steps'] = /^in: (.*)$/m.exec(text) ?? [];
      // Files that an interrupted run leaves behind are removed with the copy.
      const { failed } = vitest(copy, argsFor(file), { stdio: 'ignore' }, { TMPDIR: copy });
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
