// Processes that handle a job at a time take turns, a few hundred jobs each, so that a load of the machine that comes and
// goes affects all alike. After its turn, each prints what a job cost.
import { Redis } from 'ioredis';
import { treeCpu } from './processes.js';

/** Turns' worth of jobs before the first turn, so that V8's optimizing compiler is done. */
export const WARM_TURNS = 6;

/**
 * What a job costs, µs: time, CPU time of the server and of this process, and time inside Redis's scripts.
 *
 * @typedef {{ wall: number, server: number, script: number, node: number }} Cost
 */

export class Turns {
  #redis;
  #server;
  #size;
  /** Jobs until the turn ends. */
  #left;
  /** @type {Cost | undefined} */
  #before;

  /** @param {number} size jobs a turn @param {import('./peers/peer.js').Where} where */
  static async open(size, { redis, server }) {
    const turns = new Turns(size, new Redis(redis), server);
    await turns.#redis.ping();
    return turns;
  }

  /** @param {number} size @param {Redis} redis @param {number} server the server's process */
  constructor(size, redis, server) {
    this.#size = size;
    this.#left = WARM_TURNS * size;
    this.#redis = redis;
    this.#server = server;
  }

  /** Called before each job. After a turn it resolves when the next one begins; within a turn it returns undefined. */
  job() {
    if (this.#left > 0) {
      this.#left -= 1;
      return;
    }
    this.#left = this.#size - 1;
    return this.#next();
  }

  async #next() {
    const now = await this.#used();
    const cost =
      this.#before && Object.entries(now).map(([name, us]) => [name, (us - this.#before[name]) / this.#size]);
    process.stdout.write(`${JSON.stringify(Object.fromEntries(cost ?? []))}\n`);
    await new Promise((resolve) => process.stdin.once('data', resolve));
    this.#before = await this.#used();
  }

  /** @returns {Promise<Cost>} */
  async #used() {
    const { user, system } = process.cpuUsage();
    const wall = performance.now() * 1_000;
    const stats = await this.#redis.info('commandstats');
    const scripts = [...stats.matchAll(/cmdstat_(?:eval|evalsha|fcall):calls=\d+,usec=(\d+)/g)];
    const script = scripts.reduce((sum, [, us]) => sum + Number(us), 0);
    return { wall, server: treeCpu(this.#server), script, node: user + system };
  }
}
