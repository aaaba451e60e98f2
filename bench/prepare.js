// Installs and builds what the bench needs, if it is missing or outdated. Uses npm's registry only then.
import { spawnSync } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** The modification time of a file, ms; 0 if it does not exist. @param {string} path relative to the project */
const written = (path) => statSync(ROOT + path, { throwIfNoEntry: false })?.mtimeMs ?? 0;

/** @param {string} directory */
function newest(directory) {
  return Math.max(...readdirSync(ROOT + directory, { recursive: true }).map((file) => written(`${directory}/${file}`)));
}

/** @param {{ peers?: boolean }} [options] peers: whether to install them */
export function prepare({ peers = true } = {}) {
  // npm writes the hidden lock file last.
  if (peers && written('bench/node_modules/.package-lock.json') < written('bench/package-lock.json')) {
    must('bench', 'npm', ['ci', '--no-audit', '--no-fund', '--prefer-offline']);
  }
  const old = written('dist/cli/main.cjs') < Math.max(newest('src'), newest('lua'), written('package-lock.json'));
  const server = spawnSync('redis-server', ['--version']).status === 0;
  if (old || !server) must('', 'sh', ['scripts/setup.sh']);
}

/** @param {string} directory @param {string} command @param {string[]} args */
function must(directory, command, args) {
  console.error(`bench: ${command} ${args.join(' ')}`);
  const { status } = spawnSync(command, args, { cwd: ROOT + directory, stdio: ['ignore', 2, 2] });
  if (status !== 0) process.exit(1);
}
