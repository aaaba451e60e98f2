// Runs the chaos suite, or proves that it can fail: npm run test:chaos -- --help
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const root = fileURLToPath(new URL('../..', import.meta.url));
const mutations = fileURLToPath(new URL('mutations/', import.meta.url));

const HELP = `Usage: npm run test:chaos -- [options] [file…]

Kills, cuts and freezes real processes and servers, and balances the books.

  --seed N       what chance begins with (default: a new one, printed)
  --minutes M    how long the storm of everything lasts (default: 1)
  --repeat N     how often each scenario is gone through, with seed N, N+1 … (default: 1)
  -t TEXT        only tests whose names match
  --mutations    see the suite fail: once for each patch in test/chaos/mutations, applied to a copy of the project

Files: steps, storm, servers. Examples:
  npm run test:chaos -- --minutes 30 storm
  npm run test:chaos -- --seed 7 -t 'killed after it took'`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seed: { type: 'string' },
    minutes: { type: 'string', default: '1' },
    repeat: { type: 'string', default: '1' },
    t: { type: 'string', short: 't' },
    mutations: { type: 'boolean', default: false },
    help: { type: 'boolean', short: 'h', default: false },
  },
});
const { minutes, repeat, t: name } = values;
const seed = values.seed ?? String(Math.floor(Math.random() * 1_000_000));
for (const [option, value] of Object.entries({ seed, minutes, repeat })) {
  if (!(Number(value) >= 0)) fail(`--${option} is a number, not ${JSON.stringify(value)}`);
}
if (values.help) console.log(HELP);
else if (values.mutations) mutate();
else {
  console.log(`chaos: seed ${seed}`);
  const status = vitest(root, [...positionals, ...(name ? ['-t', name] : [])]);
  if (status !== 0) console.log(`chaos: to do that again: npm run test:chaos -- --seed ${seed} --minutes ${minutes}`);
  process.exitCode = status;
}

function fail(why) {
  console.error(`chaos: ${why}`);
  process.exit(64);
}

function vitest(directory, args, options = { stdio: 'inherit' }) {
  const { status } = spawnSync(
    process.execPath,
    ['node_modules/vitest/vitest.mjs', 'run', '--config', 'test/chaos/vitest.config.ts', ...args],
    {
      cwd: directory,
      env: { ...process.env, DELAYQ_CHAOS_SEED: seed, DELAYQ_CHAOS_MINUTES: minutes, DELAYQ_CHAOS_REPEAT: repeat },
      ...options,
    },
  );
  return status ?? 1;
}

/** Applies each patch to a copy of the project, and wants the suite to find it. */
function mutate() {
  for (const patch of readdirSync(mutations).filter((file) => file.endsWith('.patch'))) {
    const copy = mkdtempSync(join(tmpdir(), 'delayq-mutation-'));
    try {
      for (const part of [
        'bin',
        'lua',
        'scripts',
        'src',
        'test',
        'package.json',
        'tsconfig.json',
        'tsconfig.build.json',
      ])
        cpSync(join(root, part), join(copy, part), { recursive: true });
      symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
      run(copy, 'git', ['apply', join(mutations, patch)]);
      run(copy, 'npm', ['run', '--silent', 'build']);
      const report = join(copy, 'report.json');
      // What a run that was broken off leaves behind goes with the copy.
      const own = { DELAYQ_TEST_REPORT: report, DELAYQ_CHAOS_SEED: seed, DELAYQ_CHAOS_MINUTES: '0.5', TMPDIR: copy };
      const env = { ...process.env, ...own };
      vitest(copy, ['--bail=1', ...(positionals.length > 0 ? positionals : ['steps'])], { stdio: 'ignore', env });
      const { testResults } = JSON.parse(readFileSync(report, 'utf8'));
      const failed = testResults.flatMap((file) => file.assertionResults.filter(({ status }) => status === 'failed'));
      console.log(`${failed.length > 0 ? 'red, as it should be' : 'GREEN: the suite is blind to it'}: ${patch}`);
      for (const { fullName } of failed.slice(0, 5)) console.log(`  ${fullName}`);
      if (failed.length === 0) process.exitCode = 1;
    } finally {
      rmSync(copy, { recursive: true, force: true });
    }
  }
}

function run(cwd, command, args) {
  const { status, stderr, stdout } = spawnSync(command, args, { cwd, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} failed:\n${stdout}${stderr}`);
}
