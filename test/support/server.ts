import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { until } from './until.js';

/** Whether a server program is installed, and is Redis 7.2 or newer, or Valkey. */
export function knowsWaitaof(binary: string): boolean {
  try {
    const [, major, minor] = /v=(\d+)\.(\d+)/.exec(execFileSync(binary, ['--version'], { encoding: 'utf8' })) ?? [];
    return Number(major) + Number(minor) / 100 >= 7.02;
  } catch {
    return false;
  }
}

/** A real redis-server for one test: on a socket in a directory of its own, and optionally on a port. */
export class Server {
  readonly directory: string;
  readonly port: number;
  readonly #binary: string;
  readonly #args: string[];
  #process: ChildProcess | undefined;
  #admin: Redis | undefined;

  private constructor(directory: string, port: number, binary: string, args: string[]) {
    this.directory = directory;
    this.port = port;
    this.#binary = binary;
    this.#args = args;
  }

  static async start({
    tcp = false,
    binary = 'redis-server',
    args = [],
  }: {
    tcp?: boolean;
    binary?: string;
    args?: string[];
  } = {}): Promise<Server> {
    const directory = await mkdtemp(join(tmpdir(), 'delayq-test-'));
    const server = new Server(directory, tcp ? await freePort() : 0, binary, args);
    await server.run();
    return server;
  }

  get url(): string {
    return `unix://${this.socket}`;
  }

  get tcpUrl(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  get socket(): string {
    return join(this.directory, 'redis.sock');
  }

  /** A plain client, to look at Redis without delayq. */
  get admin(): Redis {
    // Tests restart the server: reconnect silently.
    this.#admin ??= new Redis(this.socket, { protocol: 2, retryStrategy: () => 20, maxRetriesPerRequest: null }).on(
      'error',
      () => {},
    );
    return this.#admin;
  }

  async run({ wait = true, args = [] }: { wait?: boolean; args?: string[] } = {}): Promise<void> {
    await rm(this.socket, { force: true });
    this.#process = spawn(
      this.#binary,
      [
        '--port',
        String(this.port),
        '--bind',
        '127.0.0.1',
        '--unixsocket',
        this.socket,
        '--dir',
        this.directory,
        '--save',
        '',
        '--loglevel',
        'warning',
        ...this.#args,
        ...args,
      ],
      { stdio: 'ignore' },
    );
    // On a busy machine, loading the AOF takes a while.
    if (wait) await until(async () => /PONG|NOAUTH/.test(await ping(this.socket)), 90_000);
  }

  /** Ends the server, by SIGTERM (which saves) or SIGKILL. */
  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const process = this.#process;
    if (!process || process.exitCode !== null || process.signalCode !== null) return;
    const gone = once(process, 'exit');
    process.kill('SIGCONT');
    process.kill(signal);
    await gone;
  }

  signal(signal: NodeJS.Signals): void {
    this.#process?.kill(signal);
  }

  async stop(): Promise<void> {
    this.#admin?.disconnect();
    await this.end('SIGKILL');
    await rm(this.directory, { recursive: true, force: true });
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

export async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}
