// Starts, times and inspects processes. None outlives the bench.
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

const execute = promisify(execFile);

/** Child processes that may still run. @type {Set<import('node:child_process').ChildProcess>} */
const running = new Set();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** NODE_EXTRA_CA_CERTS adds tens of ms to each start of Node; the others would change what is measured. */
const { NODE_EXTRA_CA_CERTS: _, NODE_OPTIONS: __, DELAYQ_PREFIX: ___, ...environment } = process.env;

/**
 * @param {string[]} command
 * @param {object} options of spawn(); `env` is added to a clean environment
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

/** Runs a program and returns its stdout, trimmed, while others go on. Throws if it fails. @param {string[]} command @param {object} [options] */
export async function printed([program, ...args], options = {}) {
  const { stdout } = await execute(program, args, { env: environment, ...options });
  return stdout.trim();
}

/** The same, while nothing goes on: for what takes a moment. @param {string[]} command @param {object} [options] */
export function output([program, ...args], options = {}) {
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    encoding: 'utf8',
    env: environment,
    ...options,
  });
  if (status !== 0) throw new Error(`${program} ${args.join(' ')} failed: ${error?.message ?? stderr}`);
  return stdout.trim();
}

/** A process's peak resident memory, MiB, and its CPU time, s. NaN without /proc. @param {number} pid */
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

/** The CPU time of a process and of its descendants that still run, µs. NaN without /proc. @param {number | string} pid */
export function treeCpu(pid) {
  try {
    const own = Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[0]) / 1_000;
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean);
    return children.reduce((sum, child) => sum + treeCpu(child), own);
  } catch {
    return Number.NaN;
  }
}

/**
 * Runs a program to its end. stdin is the concatenated files `from`; stdout goes to the file `to`. Returns the seconds from
 * start to exit and the peak memory, MiB, sampled every 20 ms. Throws if the program fails or exceeds `timeout`, ms.
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

/** Like `timed`, for a shell line whose "$@" are `args`. @param {string} line @param {string[]} args @param {object} [options] */
export function timedShell(line, args, options) {
  return timed(['sh', '-c', line, 'sh', ...args], options);
}

/**
 * Starts a server that stops with the bench, even if the bench is killed: a shell stops it when the pipe from the bench is
 * closed. The shell ignores the signals that a terminal sends to the whole group; SIGTERM ends its `cat`.
 *
 * @param {string[]} command
 * @param {object} [options] of spawn(); `signal` stops the server, and the directory `remove` is removed when it has stopped
 */
export function serve(command, { signal = 'TERM', remove = '', ...options } = {}) {
  const stop = 'kill -s "$SIGNAL" $!; wait; if [ "$REMOVE" ]; then rm -rf "$REMOVE"; fi';
  const line = `trap "" INT HUP QUIT; trap : TERM; "$@" </dev/null & cat >/dev/null; ${stop}`;
  const env = { SIGNAL: signal, REMOVE: remove };
  const shell = start(['sh', '-c', line, 'sh', ...command], { stdio: ['pipe', 'ignore', 'ignore'], env, ...options });
  // A shell that is killed could not stop the server.
  running.delete(shell);
  return shell;
}

/**
 * Starts a program that keeps running. Closing its stdin and SIGTERM stop it. `lines` is its output, and `next` the next
 * line of it.
 *
 * @param {string[]} command
 * @param {object} [env]
 */
export function live(command, env) {
  const child = start(command, { env, stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout });
  const gone = once(child, 'exit');
  const closed = once(lines, 'close');
  return {
    pid: /** @type {number} */ (child.pid),
    lines,
    /** @param {string} [text] written to its stdin before @returns {Promise<string>} rejects if the program ends */
    next: (text = '') =>
      new Promise((resolve, reject) => {
        lines.once('line', resolve);
        closed.then(() => reject(new Error(`${command.join(' ')} ended`)));
        child.stdin.write(text);
      }),
    /** Stops it; kills it after 10 s. */
    async end() {
      child.stdin.end();
      child.kill('SIGTERM');
      const late = setTimeout(() => child.kill('SIGKILL'), 10_000);
      await gone;
      clearTimeout(late);
    },
  };
}
