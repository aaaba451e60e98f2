// What jobs cost: time, CPU time of this process and of its server, and time inside Redis's scripts.
import { Redis } from 'ioredis';
import { treeCpu } from './processes.js';

/** @typedef {{ wall: number, node: number, server: number, script: number }} Cost µs */

export class Meter {
  #redis;
  #server;
  /** @type {Cost} */
  #before;

  /** @param {import('./peers/peer.js').Where} where */
  static async open({ redis, server }) {
    const meter = new Meter(new Redis(redis), server);
    await meter.#redis.ping();
    return meter;
  }

  /** @param {Redis} redis @param {number} server the server's process */
  constructor(redis, server) {
    this.#redis = redis;
    this.#server = server;
  }

  async start() {
    this.#before = await this.#used();
  }

  /** The costs since the start, divided by the number of jobs. @param {number} jobs @returns {Promise<Cost>} */
  async perJob(jobs) {
    const used = await this.#used();
    this.#redis.disconnect();
    return Object.fromEntries(Object.entries(used).map(([name, us]) => [name, (us - this.#before[name]) / jobs]));
  }

  /** @returns {Promise<Cost>} */
  async #used() {
    const { user, system } = process.cpuUsage();
    const wall = performance.now() * 1_000;
    const stats = await this.#redis.info('commandstats');
    const scripts = [...stats.matchAll(/cmdstat_(?:eval|evalsha|fcall):calls=\d+,usec=(\d+)/g)];
    const script = scripts.reduce((sum, [, us]) => sum + Number(us), 0);
    return { wall, node: user + system, server: treeCpu(this.#server), script };
  }
}
