import { parseUrl } from '../../src/internal.js';
import { Server as HttpServer, type ServerOptions } from '../../src/serve/server.js';
import { afterFile } from './afterwards.js';
import { begin, type Ended, type Running } from './cli.js';
import { Cluster } from './cluster.js';
import { onCluster } from './redis.js';
import { Server } from './server.js';
import { until } from './until.js';

/** What an HTTP server answered. */
interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The body as JSON; undefined if it is none. */
  readonly json: unknown;
}

/** A running server. */
export interface Serving {
  /** Where the API and the admin listener are, as `http://127.0.0.1:PORT`. */
  readonly api: string;
  readonly admin: string;
  /** Calls the API, or with a full URL any listener, as curl does. */
  call(method: string, path: string, init?: Omit<RequestInit, 'method'>): Promise<Answer>;
}

/** A running `delayq serve`. */
export interface Served extends Serving {
  readonly running: Running;
  /** Stops it with SIGTERM. Resolves when it has ended. */
  stop(): Promise<Ended>;
}

/** A server in the process of the test. */
export interface ServedHere extends Serving {
  /** What it has logged so far. */
  readonly log: string;
  /** Stops it. Resolves when it has ended. */
  stop(): Promise<void>;
}

/** The Redis of one test file, a cluster if the tests run on one: tokens of others would lock its servers. */
export async function ownRedis(): Promise<Server | Cluster> {
  const redis = await (onCluster ? Cluster : Server).start();
  afterFile(() => redis.stop());
  return redis;
}

/** Starts `delayq serve` on free ports, and waits until it is healthy. */
export async function serve(redisUrl: string, args: string[] = []): Promise<Served> {
  const places = ['--listen', '127.0.0.1:0', '--admin-listen', '127.0.0.1:0'];
  const running = begin(['serve', ...places, ...args], { env: { DELAYQ_REDIS_URL: redisUrl }, input: '' });
  await until(() => {
    if (running.child.exitCode !== null) throw new Error(`delayq serve has ended: ${running.stderr}`);
    return isReady(running.stderr);
  });
  const served = servingAt(running.stderr);
  await until(async () => (await fetch(`${served.api}/healthz`)).ok);
  return {
    ...served,
    running,
    stop() {
      running.child.kill('SIGTERM');
      return running.ended;
    },
  };
}

/**
 * Starts a server in the process of the test: with what the command has no options for, such as a clock that the test
 * moves. What it says is what it would write to stderr.
 */
export async function serveHere(redisUrl: string, more: Partial<ServerOptions> = {}): Promise<ServedHere> {
  const stopping = new AbortController();
  let log = '';
  const server = new HttpServer({
    pools: new Map([['default', { to: parseUrl(redisUrl), names: undefined }]]),
    prefix: 'delayq',
    listen: { host: '127.0.0.1', port: 0 },
    adminListen: { host: '127.0.0.1', port: 0 },
    allowHosts: [],
    trustProxy: false,
    defaults: { tries: 1, ttl: 86_400_000 },
    maxConnections: 20_000,
    graceMs: 30_000,
    version: '0.0.0',
    logLevel: 'all',
    log(line) {
      log += line;
      return true;
    },
    signal: stopping.signal,
    ...more,
  });
  let failure: unknown;
  const ended = server
    .run()
    .catch((error: unknown) => {
      failure = error;
    })
    .finally(() => server.cut());
  const stop = async () => {
    stopping.abort();
    await ended;
  };
  afterFile(stop);
  await until(() => {
    if (failure) throw failure;
    return isReady(log);
  });
  return {
    ...servingAt(log),
    get log() {
      return log;
    },
    stop,
  };
}

const urlIn = (log: string, listener: 'API' | 'admin') =>
  new RegExp(`^delayq serve: ${listener} on (http://\\S+)$`, 'm').exec(log)?.[1];
const isReady = (log: string) => urlIn(log, 'admin') !== undefined;

/** The server that has logged where it listens. */
function servingAt(log: string): Serving {
  const [api = '', admin = ''] = [urlIn(log, 'API'), urlIn(log, 'admin')];
  return {
    api,
    admin,
    async call(method, path, init = {}) {
      const response = await fetch(new URL(path, api), { method, ...init });
      const text = await response.text();
      return { status: response.status, headers: response.headers, text, json: jsonOf(text) };
    },
  };
}

/** A figure of a server about itself: a metric whose name begins with delayq_http_. */
export async function figure({ call, admin }: Serving, name: string): Promise<number> {
  const { text } = await call('GET', `${admin}/metrics`);
  return Number(new RegExp(`^delayq_http_${name} (\\d+)$`, 'm').exec(text)?.[1]);
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
