import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { cronEnv } from '../support/cli.js';
import { freePort } from '../support/server.js';
import { until, within } from '../support/until.js';
import { send } from './consumers.js';

/** How much longer than its grace a busy machine needs to end a process, ms. */
const SLACK_MS = 10_000;

/** `delayq serve`, which is killed, stopped and frozen, and comes back on the same port. */
export class HttpServer {
  readonly port: number;
  readonly #adminPort: number;
  readonly #url: string;
  readonly #graceMs: number;
  /** The file with its stderr. */
  readonly log: string;
  #child: ChildProcess | undefined;
  /** Stops that did not go well. */
  readonly bugs: string[] = [];

  private constructor(port: number, adminPort: number, url: string, log: string, graceMs: number) {
    this.port = port;
    this.#adminPort = adminPort;
    this.#url = url;
    this.#graceMs = graceMs;
    this.log = log;
  }

  /** `url`: its Redis. `log`: the file for its stderr. `graceMs`: how long requests that run at a stop may take. */
  static async start(url: string, log: string, graceMs: number): Promise<HttpServer> {
    const server = new HttpServer(await freePort(), await freePort(), url, log, graceMs);
    await server.run();
    return server;
  }

  async run(): Promise<void> {
    const stderr = openSync(this.log, 'a');
    const places = ['--listen', `127.0.0.1:${this.port}`, '--admin-listen', `127.0.0.1:${this.#adminPort}`];
    const command = ['delayq', 'serve', ...places, '--grace', `${this.#graceMs}ms`];
    this.#child = spawn('setpriv', ['--pdeathsig', 'KILL', ...command], {
      env: cronEnv({ DELAYQ_REDIS_URL: this.#url }),
      stdio: ['ignore', 'ignore', stderr],
    });
    closeSync(stderr);
    await until(async () => {
      if (this.#child?.exitCode !== null) throw new Error(`delayq serve ended with ${this.#child?.exitCode}`);
      return (await fetch(`http://127.0.0.1:${this.port}/healthz`).catch(() => undefined))?.ok;
    });
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await within(20_000, 'delayq serve, after SIGKILL,', gone);
  }

  /**
   * Sends SIGTERM, and waits until it has ended, within its grace: with status 0, or `mayCut` with 1 if it says that it cut
   * requests off, as Redis did not answer them.
   */
  async stop(mayCut: boolean): Promise<void> {
    const child = this.#child as ChildProcess;
    if (child.exitCode !== null || child.signalCode !== null) {
      this.bugs.push(`a server had ended with ${child.exitCode ?? child.signalCode} before it was stopped`);
      return;
    }
    const gone = once(child, 'exit');
    child.kill('SIGTERM');
    const isInTime = await Promise.race([
      gone.then(() => true),
      sleep(this.#graceMs + SLACK_MS, false, { ref: false }),
    ]);
    if (!isInTime) {
      this.bugs.push(`a server did not end within ${this.#graceMs} ms and some more after SIGTERM`);
      child.kill('SIGKILL');
    }
    await gone;
    const hasCut = mayCut && /were cut off: \d+/.test(readFileSync(this.log, 'utf8'));
    if (isInTime && child.exitCode !== 0 && !(child.exitCode === 1 && hasCut))
      this.bugs.push(`a server ended with ${child.exitCode ?? child.signalCode} after SIGTERM`);
  }

  async freeze(ms: number): Promise<void> {
    const pid = this.#child?.pid as number;
    send(pid, 'SIGSTOP');
    await sleep(ms);
    send(pid, 'SIGCONT');
  }
}
