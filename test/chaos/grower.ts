import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { cronEnv } from '../support/cli.js';
import type { Random } from './random.js';

/** How often the process of a step is killed, at most, and how long it may live until then, ms. */
const MAX_KILLS = 2;
const LIVES_MS = 600;

/** How often it may say that it could not go on. */
const MAX_STOPS = 50;

/** Statuses after which a growth is repeated: Redis could not be reached, or could not do it now. */
const AGAIN = new Set([69, 75]);

/** Grows a queue with the command line. Its process is killed at random moments, and started again until it is done. */
export class Grower {
  readonly #url: string;
  readonly #queue: string;
  readonly #errors: string;
  readonly #livesMs: number;
  readonly #steps: number[];
  #isBusy = false;
  killed = 0;
  /** How often it could not finish, and said so. */
  stopped = 0;

  /** `steps`: to how many partitions, one step after the other. `livesMs`: for how long its process may live. */
  constructor(url: string, queue: string, errors: string, { steps = [4, 16], livesMs = LIVES_MS } = {}) {
    this.#steps = [...steps];
    this.#livesMs = livesMs;
    this.#url = url;
    this.#queue = queue;
    this.#errors = errors;
  }

  get mayGrow(): boolean {
    return !this.#isBusy && this.#steps.length > 0;
  }

  /** Grows by one step. Throws if the command ends in a way that no fault explains. */
  async step(random: Random): Promise<void> {
    this.#isBusy = true;
    const n = this.#steps.shift() as number;
    for (let kills = random.whole(1, MAX_KILLS); ; kills--) {
      const child = spawn('delayq', ['config', '--create', this.#queue, `partitions=${n}`], {
        env: cronEnv({ DELAYQ_REDIS_URL: this.#url }),
        stdio: ['ignore', 'ignore', 'pipe'],
      });
      let said = '';
      child.stderr.on('data', (data: Buffer) => {
        said += data;
        appendFileSync(this.#errors, data);
      });
      const closed = once(child, 'close');
      if (kills > 0) {
        await Promise.race([closed, sleep(random.whole(100, this.#livesMs))]);
        child.kill('SIGKILL');
      }
      await closed;
      if (child.exitCode === 0) break;
      if (child.signalCode === 'SIGKILL') this.killed += 1;
      else if (AGAIN.has(child.exitCode ?? 0) && this.stopped < MAX_STOPS) this.stopped += 1;
      else throw new Error(`the growth of ${this.#queue} to ${n} partitions ended with ${child.exitCode}: ${said}`);
    }
    this.#isBusy = false;
  }
}

/** Grow several queues at the same time, while other things go on. */
export class Growers {
  readonly #growers: readonly Grower[];
  readonly #growing: Promise<void>[] = [];
  readonly #bugs: string[] = [];

  constructor(url: string, queues: readonly string[], errors: string) {
    this.#growers = queues.map((queue) => new Grower(url, queue, errors));
  }

  /** Begins a step of a queue that is not as large as it may become. Returns false if there is none. */
  begin(random: Random): boolean {
    const grower = random.shuffled(this.#growers).find(({ mayGrow }) => mayGrow);
    const growing = grower?.step(random).catch((error: Error) => void this.#bugs.push(error.message));
    if (growing) this.#growing.push(growing);
    return growing !== undefined;
  }

  /** Waits for the steps that were begun. Returns what went wrong: also that they do not end within `ms`. */
  async ended(ms: number): Promise<string[]> {
    const all = Promise.all(this.#growing).then(() => []);
    const late = sleep(ms, ['a growth does not end'], { ref: false });
    return [...(await Promise.race([all, late])), ...this.#bugs];
  }
}
