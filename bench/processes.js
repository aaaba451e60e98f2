// Starts processes, times them and looks into them; none outlives the bench.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

/** All that was started here and may still run. @type {Set<import('node:child_process').ChildProcess>} */
const running = new Set();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** NODE_EXTRA_CA_CERTS costs each start of Node tens of ms; the others would change what is measured. */
const { NODE_EXTRA_CA_CERTS: _, NODE_OPTIONS: __, DELAYQ_PREFIX: ___, ...environment } = process.env;

/**
 * @param {string[]} command
 * @param {object} options as spawn has them; `env` is added to a clean environment
 */
function start([program, ...args], { env = {}, ...options }) {
  const child = spawn(program, args, { env: { ...environment, ...env }, ...options });
  running.add(child);
  child.once('exit', () => running.delete(child));
  return child;
}

/** Whether a program is on the PATH. @param {string} program */
export function installed(program) {
  return spawnSync('sh', ['-c', 'command -v "$0"', program]).status === 0;
}

/** What a program prints. Throws when it fails. @param {string[]} command @param {object} [options] */
export function output([program, ...args], options = {}) {
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    encoding: 'utf8',
    env: environment,
    ...options,
  });
  if (status !== 0) throw new Error(`${program} ${args.join(' ')} failed: ${error?.message ?? stderr}`);
  return stdout.trim();
}

/** Most memory a process ever had resident, MiB, and CPU time it has used, s; NaN where there is no /proc. @param {number} pid */
export function usage(pid) {
  try {
    const hwm = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /, '')
      .split(' ');
    return { peakMiB: hwm, cpu: (Number(fields[11]) + Number(fields[12])) / 100 };
  } catch {
    return { peakMiB: Number.NaN, cpu: Number.NaN };
  }
}

/**
 * Runs a program to its end. stdin is the files `from`, one after the other; stdout goes to the file `to`. Seconds from
 * its start to its exit, and the most memory it had, looked at every 20 ms. Throws when it fails or takes too long.
 *
 * @param {string[]} command
 * @param {{ env?: object, from?: string[], to?: string, timeout?: number }} [options]
 */
export async function timed(command, { env, from = [], to = '/dev/null', timeout = 300_000 } = {}) {
  const stdin = from.length === 1 ? openSync(from[0], 'r') : from.length === 0 ? 'ignore' : 'pipe';
  const stdout = openSync(to, 'w');
  let peakMiB = Number.NaN;
  const begin = performance.now();
  const child = start(command, { env, timeout, stdio: [stdin, stdout, 'pipe'] });
  const look = setInterval(() => {
    peakMiB = usage(child.pid).peakMiB || peakMiB;
  }, 20);
  if (stdin === 'pipe') {
    start(['cat', ...from], { stdio: ['ignore', child.stdin, 'ignore'] });
    child.stdin.destroy();
  }
  let errors = '';
  child.stderr.on('data', (text) => {
    errors += text;
  });
  try {
    const [status] = await once(child, 'exit');
    const seconds = (performance.now() - begin) / 1_000;
    if (status !== 0) throw new Error(`${command.join(' ')} failed (${status}): ${errors}`);
    return { seconds, peakMiB };
  } finally {
    clearInterval(look);
    closeSync(stdout);
    if (typeof stdin === 'number') closeSync(stdin);
  }
}

/** Like `timed`, of a line of shell, in which "$@" are the arguments. @param {string} line @param {string[]} args @param {object} [options] */
export function timedShell(line, args, options) {
  return timed(['sh', '-c', line, 'sh', ...args], options);
}

/**
 * Starts a server that ends with the bench, however that ends: its shell waits for the end of a pipe that only we hold, and
 * outlives what a terminal sends to all (SIGTERM ends cat alone).
 *
 * @param {string[]} command
 */
export function serve(command) {
  const line = 'trap "" INT HUP QUIT; trap : TERM; "$@" </dev/null & cat >/dev/null; kill $!; wait';
  const shell = start(['sh', '-c', line, 'sh', ...command], { stdio: ['pipe', 'ignore', 'ignore'] });
  // Killed, it could end nothing.
  running.delete(shell);
  return shell;
}

/**
 * Starts a program that goes on; it is told to end by the end of its stdin, or by SIGTERM. `lines` are what it prints.
 *
 * @param {string[]} command
 * @param {object} [env]
 */
export function live(command, env) {
  const child = start(command, { env, stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout });
  const gone = once(child, 'exit');
  return {
    pid: /** @type {number} */ (child.pid),
    lines,
    /** Ends it, and kills it when it takes longer than 10 s. */
    async end() {
      child.stdin.end();
      child.kill('SIGTERM');
      const late = setTimeout(() => child.kill('SIGKILL'), 10_000);
      await gone;
      clearTimeout(late);
    },
  };
}
