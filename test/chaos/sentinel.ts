import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { freePort } from '../support/server.js';
import { temporaryDirectory } from '../support/temporary.js';
import { until } from '../support/until.js';

/** A Sentinel of the test's own: monitors one primary, and promotes its replica if the primary is down. */
export class Sentinel {
  readonly #process: ChildProcess;
  readonly #client: Redis;

  private constructor(process: ChildProcess, client: Redis) {
    this.#process = process;
    this.#client = client;
  }

  static async start(primary: number): Promise<Sentinel> {
    const port = await freePort();
    const directory = temporaryDirectory();
    const config = join(directory, 'sentinel.conf');
    writeFileSync(
      config,
      `port ${port}
bind 127.0.0.1
dir ${directory}
sentinel monitor delayq 127.0.0.1 ${primary} 1
sentinel down-after-milliseconds delayq 2000
sentinel failover-timeout delayq 5000
`,
    );
    const process = spawn('redis-server', [config, '--sentinel'], { stdio: 'ignore' });
    const client = new Redis(port, '127.0.0.1', { protocol: 2, retryStrategy: () => 20, maxRetriesPerRequest: null });
    client.on('error', () => {});
    return new Sentinel(process, client);
  }

  /** Resolves when it knows a replica that it can promote. */
  async ready(): Promise<void> {
    await until(async () => {
      const replicas = (await this.#client.call('SENTINEL', 'REPLICAS', 'delayq').catch(() => [])) as string[][];
      return replicas.some((of) => of[of.indexOf('flags') + 1] === 'slave' && of.includes('ok'));
    });
  }

  /** The port of the current primary. */
  async primary(): Promise<number> {
    const [, port] = (await this.#client.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'delayq')) as [string, string];
    return Number(port);
  }

  async stop(): Promise<void> {
    this.#client.disconnect();
    const gone = once(this.#process, 'exit');
    this.#process.kill('SIGKILL');
    await gone;
  }
}
