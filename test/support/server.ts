import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { until, within } from './until.js';

/** Whether a server program is installed, and is Redis 7.2 or newer, or Valkey. */
export function knowsWaitaof(binary: string): boolean {
  try {
    const [, major, minor] = /v=(\d+)\.(\d+)/.exec(execFileSync(binary, ['--version'], { encoding: 'utf8' })) ?? [];
    return Number(major) + Number(minor) / 100 >= 7.02;
  } catch {
    return false;
  }
}

/**
 * For plain clients: a server that is frozen for ever fails a call before the test's own time is over, at the line that
 * waits for it.
 */
export const LIMITED = { commandTimeout: 100_000, showFriendlyErrorStack: true };

/** The name of a configuration file in a server's directory. */
const CONFIG = 'redis.conf';

/** How to start a server. */
export interface ServerOptions {
  /** Whether it listens on a port, too: on `port`, or on any free one. */
  readonly tcp?: boolean | undefined;
  readonly port?: number | undefined;
  /** The address on which it listens. */
  readonly host?: string | undefined;
  readonly binary?: string | undefined;
  readonly args?: readonly string[] | undefined;
  /** The text of its configuration file, which the server may rewrite. `args` count more. */
  readonly config?: string | undefined;
  /** The password that clients need, and that it uses as a replica. */
  readonly password?: string | undefined;
  /** The user that the password is for, if not the default one. `config` makes it. */
  readonly user?: string | undefined;
  /** A command that runs it elsewhere, such as in a network namespace. It must not fork. */
  readonly within?: readonly string[] | undefined;
}

/** A real redis-server for one test: on a socket in a directory of its own, and optionally on a port. */
export class Server {
  readonly directory: string;
  readonly port: number;
  readonly host: string;
  readonly password: string | undefined;
  readonly #user: string | undefined;
  readonly #command: readonly string[];
  #process: ChildProcess | undefined;
  #frozen = false;
  #admin: Redis | undefined;

  private constructor(directory: string, port: number, options: ServerOptions) {
    const { binary = 'redis-server', host = '127.0.0.1', args = [], config, password, within = [] } = options;
    this.directory = directory;
    this.port = port;
    this.host = host;
    this.password = password;
    this.#user = options.user;
    this.#command = [
      ...[...within, binary, ...(config === undefined ? [] : [join(directory, CONFIG)])],
      ...['--port', String(port), '--bind', host, '--unixsocket', this.socket],
      ...['--dir', directory, '--save', '', '--loglevel', 'warning', '--logfile', this.#log],
      ...['--protected-mode', 'no'],
      // Otherwise a new replica waits five seconds for others that may come.
      ...['--repl-diskless-sync-delay', '0'],
      ...(password === undefined || options.user !== undefined
        ? []
        : ['--requirepass', password, '--masterauth', password]),
      ...args,
    ];
  }

  static async start(options: ServerOptions = {}): Promise<Server> {
    const directory = await mkdtemp(join(tmpdir(), 's-'));
    const port = options.port ?? (options.tcp ? await freePort() : 0);
    if (options.config !== undefined) await writeFile(join(directory, CONFIG), options.config);
    const server = new Server(directory, port, options);
    await server.run();
    return server;
  }

  get url(): string {
    return `unix://${this.socket}`;
  }

  get tcpUrl(): string {
    return `redis://${this.host}:${this.port}`;
  }

  get socket(): string {
    return join(this.directory, 'redis.sock');
  }

  get #log(): string {
    return join(this.directory, 'log');
  }

  /** Whether its process runs and is not frozen. */
  get isAwake(): boolean {
    return this.#isRunning && !this.#frozen;
  }

  get #isRunning(): boolean {
    return this.#process !== undefined && this.#process.exitCode === null && this.#process.signalCode === null;
  }

  /** A plain client, to look at Redis without delayq. */
  get admin(): Redis {
    // Tests restart the server: reconnect silently.
    this.#admin ??= new Redis(this.socket, {
      protocol: 2,
      retryStrategy: () => 20,
      maxRetriesPerRequest: null,
      ...LIMITED,
      ...(this.password === undefined ? {} : { password: this.password }),
      ...(this.#user === undefined ? {} : { username: this.#user }),
    }).on('error', () => {});
    return this.#admin;
  }

  async run({ wait = true, args = [] }: { wait?: boolean; args?: string[] } = {}): Promise<void> {
    await rm(this.socket, { force: true });
    await this.#mendLog();
    const [program = '', ...rest] = this.#command;
    this.#process = spawn(program, [...rest, ...args], { stdio: 'ignore' });
    this.#frozen = false;
    if (!wait) return;
    // On a busy machine, loading the AOF takes a while.
    await until(async () => !this.#isRunning || /PONG|NOAUTH/.test(await ping(this.socket)), 90_000);
    if (this.#isRunning) return;
    const said = await readFile(this.#log, 'utf8').catch(() => 'nothing');
    throw new Error(`${this.#command.join(' ')} ended while it started, and said: ${said}`);
  }

  /**
   * Redis 7.0 that was killed while it wrote down a script cuts off only the last of its commands when it starts, and
   * runs the others at the start after that. Cuts off the whole script, as operators can.
   */
  async #mendLog(): Promise<void> {
    const manifest = join(this.directory, 'appendonlydir', 'appendonly.aof.manifest');
    if (!existsSync(manifest)) return;
    const mending = spawn('redis-check-aof', ['--fix', manifest], { stdio: ['pipe', 'ignore', 'ignore'] });
    const ended = new Promise((resolve) => mending.on('exit', resolve).on('error', resolve));
    mending.stdin.on('error', () => {}).end('y\n');
    await within(60_000, 'redis-check-aof', ended);
  }

  /** Ends the server, by SIGTERM (which saves) or SIGKILL. */
  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const process = this.#process;
    if (!process || !this.#isRunning) return;
    const gone = once(process, 'exit');
    process.kill('SIGCONT');
    process.kill(signal);
    await within(60_000, `redis-server, after ${signal},`, gone);
  }

  /** Resolves when so many replicas have all that was written so far: WAIT counts only writes of its own connection. */
  async copied(replicas: number, key = 'mark'): Promise<void> {
    await this.admin.set(key, 1);
    await this.admin.wait(replicas, 0);
  }

  /** Sends a signal. SIGSTOP freezes the server: its connections stay open, and nothing answers until SIGCONT. */
  signal(signal: NodeJS.Signals): void {
    this.#process?.kill(signal);
    if (signal === 'SIGSTOP') this.#frozen = true;
    if (signal === 'SIGCONT') this.#frozen = false;
  }

  async stop(): Promise<void> {
    this.#admin?.disconnect();
    await this.end('SIGKILL');
    // A child that it left behind, which saves or rewrites, may write a last file.
    await rm(this.directory, { recursive: true, force: true, maxRetries: 20 });
  }
}

async function ping(socket: string): Promise<string> {
  const client = new Redis(socket, {
    lazyConnect: true,
    protocol: 2,
    retryStrategy: () => null,
    enableReadyCheck: false,
  });
  client.on('error', () => {});
  try {
    await client.connect();
    return await client.ping();
  } catch (error) {
    return String(error);
  } finally {
    client.disconnect();
  }
}

/**
 * Returns a port on which nobody listens, below those that the system gives to clients: none of them takes it before it
 * is used. None is a port of a cluster's bus, which is 10,000 above that of its node. With `wanted`, that port; throws if
 * it is taken.
 */
export async function freePort(wanted?: number): Promise<number> {
  const port = wanted ?? 10_000 + Math.floor(Math.random() * 10_000);
  const server = createServer();
  server.listen(port, '127.0.0.1');
  try {
    await once(server, 'listening');
  } catch (error) {
    if (wanted !== undefined) throw error;
    return freePort();
  }
  server.close();
  await once(server, 'close');
  return port;
}
