// The environment of a run: private servers, a temporary directory, sizes and rounds.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { writeLines } from './jobs.js';
import { PACKAGED, PEERS, SERVERS } from './peers/names.js';
import { Postgres } from './postgres.js';
import { installed, live, output, serve, timed } from './processes.js';

const HOST = '127.0.0.1';
export const DELAYQ = fileURLToPath(new URL('../bin/delayq', import.meta.url));
const ACTOR = fileURLToPath(new URL('actor.js', import.meta.url));

/** The sizes of each kind of run are divided by this. */
const PARTS = { full: 1, quick: 10, smoke: 1_000 };

/** An act that takes longer is stuck. */
const LONGEST_ACT_MS = 180_000;

/** A port of 127.0.0.1 that nobody listens on. */
export async function freePort() {
  const server = createServer().listen(0, HOST);
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export class Rig {
  #directory = mkdtempSync(join(tmpdir(), 'delayq-bench-'));
  #redis;
  #beanstalkd;
  /** @type {Postgres | undefined} */
  #postgres;
  /** The servers besides Redis that hold jobs. @type {Set<string>} */
  #used = new Set();
  /** @type {Map<number, string>} */
  #lines = new Map();

  /**
   * @param {{ kind?: keyof typeof PARTS, runs?: number }} [options] kind: how much is measured; runs: rounds per case
   */
  constructor({ kind = 'full', runs } = {}) {
    this.kind = kind;
    this.runs = runs;
    process.on('exit', () => rmSync(this.#directory, { recursive: true, force: true }));
  }

  async open() {
    this.port = await freePort();
    const flags = ['--bind', HOST, '--port', String(this.port), '--save', '', '--appendonly', 'no'];
    this.#redis = serve(['redis-server', ...flags, '--dir', this.#directory, '--loglevel', 'warning']);
    /** For inspecting and emptying the server; never timed. */
    this.admin = new Redis({ host: HOST, port: this.port, retryStrategy: () => 50, maxRetriesPerRequest: 100 });
    this.admin.on('error', () => {});
    await this.admin.ping();
    if (installed('beanstalkd')) {
      this.beanstalkdPort = await freePort();
      await this.#startBeanstalkd();
    }
    // A smoke run leaves out its peers.
    if (this.kind !== 'smoke') this.#postgres = await Postgres.start(HOST, await freePort());
  }

  async #startBeanstalkd() {
    this.#beanstalkd = serve(['beanstalkd', '-l', HOST, '-p', String(this.beanstalkdPort)]);
    for (let tries = 1; ; tries += 1) {
      const socket = connect(this.beanstalkdPort, HOST);
      try {
        await once(socket, 'connect');
        return;
      } catch (error) {
        if (tries === 100) throw error;
        await sleep(20);
      } finally {
        socket.destroy();
      }
    }
  }

  close() {
    this.admin?.disconnect();
    this.#redis?.stdin.end();
    this.#beanstalkd?.stdin.end();
    this.#postgres?.stop();
  }

  get url() {
    return `redis://${HOST}:${this.port}`;
  }

  /** Where the peers find the servers. */
  get where() {
    return { redis: { host: HOST, port: this.port }, beanstalkd: this.beanstalkdPort, postgres: this.#postgres?.url };
  }

  get env() {
    return { DELAYQ_REDIS_URL: this.url };
  }

  /** n, or the part of it that a smaller run takes. @param {number} n */
  size(n) {
    return Math.ceil(n / PARTS[this.kind]);
  }

  /** What this kind of run takes. @template T @param {Record<keyof typeof PARTS, T>} values */
  of(values) {
    return values[this.kind];
  }

  /** The part of n jobs that a peer gets: a tenth with PostgreSQL, which takes ten times as long. @param {string} peer @param {number} n */
  share(peer, n) {
    return SERVERS[peer] === 'postgres' ? Math.ceil(n / 10) : n;
  }

  /** The rounds of a case; --runs overrides them. @param {number} usual */
  rounds(usual) {
    return this.runs ?? this.of({ full: usual, quick: 2, smoke: 1 });
  }

  /** Whether a peer takes part: its server is installed, and a smoke run needs no packages. @param {string} peer */
  has(peer) {
    return this.serverOf(peer) !== undefined && !(this.kind === 'smoke' && PACKAGED.includes(peer));
  }

  /** The names of the peers that do not. */
  get missing() {
    return Object.entries(PEERS).flatMap(([peer, name]) => (this.has(peer) ? [] : [name]));
  }

  /** The process that starts and stops the server of a peer. @param {string} peer */
  serverOf(peer) {
    const servers = { redis: this.#redis, beanstalkd: this.#beanstalkd, postgres: this.#postgres };
    return servers[SERVERS[peer] ?? 'redis']?.pid;
  }

  /** Calls `run` with each installed peer and with delayq; returns the results by name. @template T @param {(peer: string) => T} run @returns {Record<string, T>} */
  contenders(run) {
    const there = Object.keys(PEERS).filter((peer) => this.has(peer));
    return Object.fromEntries([...there, 'delayq'].map((peer) => [peer, run(peer)]));
  }

  /** @param {string} name */
  file(name) {
    return join(this.#directory, name);
  }

  /** Empties the servers. Redis keeps its script cache. */
  async flush() {
    await this.admin.flushall('SYNC');
    if (this.#used.delete('postgres')) this.#postgres.empty();
    // It has no command that removes all jobs.
    if (!this.#used.delete('beanstalkd')) return;
    this.#beanstalkd.stdin.end();
    await once(this.#beanstalkd, 'exit');
    await this.#startBeanstalkd();
  }

  /** The path of a file with n payloads of 115 bytes, one per line. @param {number} n */
  async lines(n) {
    const name = this.#lines.get(n) ?? this.file(`payloads-${n}.jsonl`);
    if (!this.#lines.has(n)) await writeLines(name, n);
    this.#lines.set(n, name);
    return name;
  }

  /** Runs the built delayq. @param {string[]} args @param {object} [options] */
  delayq(args, options) {
    return timed([DELAYQ, ...args], { env: this.env, ...options });
  }

  /** Enqueues n jobs to queue `bench` with the command line. @param {number} n @param {string[]} when options such as `--in 1h`; default: due now */
  async fill(n, when = []) {
    for (let left = n; left > 0; left -= 1_000_000) {
      await this.delayq(['enqueue', '-q', ...when, 'bench', '-'], {
        from: [await this.lines(Math.min(left, 1_000_000))],
      });
    }
  }

  /** Runs an act of actor.js with `peer` in a process of its own and returns its result. @param {string} peer @param {string} act @param {object} [options] */
  async act(peer, act, options = {}) {
    const actor = this.actor(peer, act, options);
    const late = setTimeout(() => actor.end(), LONGEST_ACT_MS);
    let answer;
    for await (const line of actor.lines) answer = line;
    clearTimeout(late);
    await actor.end();
    if (!answer) throw new Error(`${peer} ${act} printed no result`);
    return JSON.parse(answer);
  }

  /** @param {string} peer @param {string} act @param {object} [options] */
  actor(peer, act, options = {}) {
    this.#used.add(SERVERS[peer]);
    const to = { ...this.where, server: this.serverOf(peer), ...options };
    return live([process.execPath, ACTOR, peer, act, JSON.stringify(to)]);
  }

  /** Redis's counts for a command since the last reset: calls, and total µs. @param {string} command */
  async commandStats(command) {
    const info = await this.admin.info('commandstats');
    const [, calls = 0, usec = 0] = new RegExp(`cmdstat_${command}:calls=(\\d+),usec=(\\d+)`).exec(info) ?? [];
    return { calls: Number(calls), usec: Number(usec) };
  }

  /** Bytes that Redis uses for data. */
  async memory() {
    return Number(/used_memory:(\d+)/.exec(await this.admin.info('memory'))?.[1]);
  }

  /** The versions of Node and the servers, as text. */
  async versions() {
    const redis = /redis_version:(\S+)/.exec(await this.admin.info('server'))?.[1];
    const beanstalkd = this.beanstalkdPort ? [`beanstalkd ${output(['beanstalkd', '-v']).split(' ').at(-1)}`] : [];
    const postgres = this.#postgres ? [this.#postgres.version()] : [];
    return [`Node ${process.versions.node}`, `Redis ${redis}`, ...beanstalkd, ...postgres];
  }
}
