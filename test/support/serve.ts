import { afterAll } from 'vitest';
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

/** A running `delayq serve`. */
export interface Served {
  readonly running: Running;
  /** Where the API and the admin listener are, as `http://127.0.0.1:PORT`. */
  readonly api: string;
  readonly admin: string;
  /** Calls the API, or with a full URL any listener, as curl does. */
  call(method: string, path: string, init?: Omit<RequestInit, 'method'>): Promise<Answer>;
  /** Stops it with SIGTERM. Resolves when it has ended. */
  stop(): Promise<Ended>;
}

/** The Redis of one test file, a cluster if the tests run on one: tokens of others would lock its servers. */
export async function ownRedis(): Promise<Server | Cluster> {
  const redis = await (onCluster ? Cluster : Server).start();
  afterAll(() => redis.stop());
  return redis;
}

/** Starts `delayq serve` on free ports, and waits until it is healthy. */
export async function serve(redisUrl: string, args: string[] = []): Promise<Served> {
  const places = ['--listen', '127.0.0.1:0', '--admin-listen', '127.0.0.1:0'];
  const running = begin(['serve', ...places, ...args], { env: { DELAYQ_REDIS_URL: redisUrl }, input: '' });
  const urlOf = (listener: string) =>
    new RegExp(`^delayq serve: ${listener} on (http://\\S+)$`, 'm').exec(running.stderr);
  await until(() => {
    if (running.child.exitCode !== null) throw new Error(`delayq serve has ended: ${running.stderr}`);
    return urlOf('admin') !== null;
  });
  const [api = '', admin = ''] = ['API', 'admin'].map((listener) => urlOf(listener)?.[1]);
  await until(async () => (await fetch(`${api}/healthz`)).ok);
  return {
    running,
    api,
    admin,
    async call(method, path, init = {}) {
      const response = await fetch(new URL(path, api), { method, ...init });
      const text = await response.text();
      return { status: response.status, headers: response.headers, text, json: jsonOf(text) };
    },
    stop() {
      running.child.kill('SIGTERM');
      return running.ended;
    },
  };
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
