import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { until } from './until.js';

const run = promisify(execFile);

/** Debian keeps the server's programs outside of PATH. */
const DEBIAN = '/usr/lib/postgresql';
/** PostgreSQL does not run as root: then it runs as nobody. */
const NOBODY = 65_534;
const USER = 'test';
/** No durability, and no shared memory outside of its directory. */
const SETTINGS = ['fsync=off', 'listen_addresses=', 'dynamic_shared_memory_type=mmap', 'max_worker_processes=0'];

/** The directory of the newest server's programs; undefined without a server. */
function programs(): string | undefined {
  const versions = existsSync(DEBIAN) ? readdirSync(DEBIAN) : [];
  const [newest] = versions.sort((a, b) => Number(b) - Number(a)).map((version) => join(DEBIAN, version, 'bin'));
  return newest !== undefined && existsSync(join(newest, 'initdb')) ? newest : undefined;
}

/** A PostgreSQL server for the tests of a file, on a Unix socket in a directory of its own. */
export class Postgres {
  static readonly isInstalled = programs() !== undefined;

  readonly #directory: string;
  readonly #process: ChildProcess;

  private constructor(directory: string, process: ChildProcess) {
    this.#directory = directory;
    this.#process = process;
  }

  static async start(): Promise<Postgres> {
    const bin = programs() as string;
    const directory = mkdtempSync(join(tmpdir(), 'p-'));
    const isRoot = process.getuid?.() === 0;
    if (isRoot) chownSync(directory, NOBODY, NOBODY);
    const how = { cwd: directory, ...(isRoot && { uid: NOBODY, gid: NOBODY }) };
    const data = join(directory, 'data');
    const format = ['-D', data, '-U', USER, '-A', 'trust', '-E', 'UTF8', '--no-locale', '--no-sync'];
    await run(join(bin, 'initdb'), format, how);
    const settings = [...SETTINGS, `unix_socket_directories=${directory}`].flatMap((setting) => ['-c', setting]);
    const server = new Postgres(
      directory,
      spawn(join(bin, 'postgres'), ['-D', data, ...settings], { ...how, stdio: 'ignore' }),
    );
    const answers = () =>
      run('psql', ['-c', ''], { env: { ...process.env, ...server.env } }).then(
        () => true,
        () => server.#process.exitCode !== null,
      );
    await until(answers);
    return server;
  }

  /** Where psql finds it. */
  get env(): Record<string, string> {
    return { PGHOST: this.#directory, PGUSER: USER, PGDATABASE: 'postgres' };
  }

  async stop(): Promise<void> {
    const gone = this.#process.exitCode === null ? once(this.#process, 'exit') : undefined;
    // It ends its own processes, and removes its shared memory.
    this.#process.kill('SIGINT');
    await gone;
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
