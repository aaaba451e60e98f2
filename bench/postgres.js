// A private PostgreSQL server without durability, as Redis has none here either.
import { chownSync, existsSync, mkdtempSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { installed, output, serve } from './processes.js';

/** Debian keeps the server's programs outside of PATH. */
const DEBIAN = '/usr/lib/postgresql';
/** PostgreSQL does not run as root: it then runs as nobody. */
const NOBODY = 65_534;
const FAST = [
  'fsync=off',
  'synchronous_commit=off',
  'full_page_writes=off',
  'jit=off',
  'shared_buffers=512MB',
  'max_wal_size=4GB',
];
const SUPERUSER = 'bench';

/** The directory of the newest server's programs, with a slash; '' if they are on PATH, undefined without a server. */
function programs() {
  if (installed('initdb')) return '';
  const versions = existsSync(DEBIAN) ? readdirSync(DEBIAN) : [];
  const there = versions.filter((version) => existsSync(`${DEBIAN}/${version}/bin/initdb`)).sort((a, b) => b - a);
  return there.length > 0 ? `${DEBIAN}/${there[0]}/bin/` : undefined;
}

export class Postgres {
  #bin;
  #host;
  #port;
  #shell;

  /** Starts one; undefined if it is not installed. @param {string} host @param {number} port */
  static async start(host, port) {
    const bin = programs();
    if (bin === undefined) return;
    const server = new Postgres(bin, host, port);
    await server.#start();
    return server;
  }

  /** @param {string} bin @param {string} host @param {number} port */
  constructor(bin, host, port) {
    this.#bin = bin;
    this.#host = host;
    this.#port = port;
  }

  async #start() {
    const directory = mkdtempSync(join(tmpdir(), 'delayq-bench-postgres-'));
    const user = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};
    if (user.uid) chownSync(directory, NOBODY, NOBODY);
    const how = { ...user, cwd: directory };
    const data = join(directory, 'data');
    output([`${this.#bin}initdb`, '-D', data, '-U', SUPERUSER, '-A', 'trust', '-E', 'UTF8', '--no-locale', '-N'], how);
    const settings = [...FAST, `listen_addresses=${this.#host}`, `port=${this.#port}`, 'unix_socket_directories='];
    const flags = settings.flatMap((setting) => ['-c', setting]);
    this.#shell = serve([`${this.#bin}postgres`, '-D', data, ...flags], { ...how, signal: 'QUIT', remove: directory });
    for (let tries = 1; ; tries += 1) {
      try {
        return this.empty();
      } catch (error) {
        if (tries === 100) throw error;
        await sleep(50);
      }
    }
  }

  get pid() {
    return this.#shell.pid;
  }

  get url() {
    return `postgres://${SUPERUSER}@${this.#host}:${this.#port}/bench`;
  }

  /** Removes all data. */
  empty() {
    this.#query('DROP DATABASE IF EXISTS bench WITH (FORCE)', 'CREATE DATABASE bench');
  }

  version() {
    return `PostgreSQL ${this.#query('SHOW server_version').split(' ')[0]}`;
  }

  /** @param {string[]} statements */
  #query(...statements) {
    const to = ['-h', this.#host, '-p', String(this.#port), '-U', SUPERUSER, '-d', 'postgres'];
    return output([`${this.#bin}psql`, ...to, '-qAtX', ...statements.flatMap((statement) => ['-c', statement])]);
  }

  stop() {
    this.#shell.stdin.end();
  }
}
