import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { UnderWay } from '../../consume/under-way.js';
import type { WaitlistHost } from '../../consume/waitlist.js';
import { Wakes } from '../../consume/wakes.js';
import { Connection, type ConnectOptions, Inspector, Operator, Queue } from '../../index.js';
import { realClock } from '../../model/time.js';
import type { Figures } from '../http/figures.js';
import type { Memory } from '../http/memory.js';
import { unavailable } from '../http/refusal.js';
import { Health } from './health.js';
import { BY, SharedQueue } from './shared-queue.js';

/** This process as a consumer. */
const CONSUMER = `${BY}${hostname()
  .replace(/[^!-~]/g, '-')
  .slice(0, 80)}:${process.pid}`;

/** The most idle queues to keep: their names come from clients. */
const MAX_IDLE = 1_000;

/** How long to wait at the end for jobs on their way back, ms. */
const LONGEST_CLOSE_MS = 2_000;

/** What the pools of a server share. */
interface PoolOptions {
  readonly prefix: string;
  readonly figures: Figures;
  readonly memory: Memory;
  /** Aborts when the server stops. */
  readonly signal: AbortSignal;
}

/** Where a Redis is. */
export interface PoolPlace {
  readonly to: ConnectOptions;
  /** What its settings are called, for errors. */
  readonly names: ConstructorParameters<typeof Connection>[1];
}

/** A Redis by its name, which stands before the colon of a token, and its queues. */
export class Pool {
  readonly name: string;
  readonly prefix: string;
  readonly redis: Connection;
  readonly inspector: Inspector;
  readonly operator: Operator;
  readonly figures: Figures;
  readonly health: Health;
  /** In the order of their last use. */
  readonly #queues = new Map<string, SharedQueue>();
  /** What its waitlists share. */
  readonly host: WaitlistHost;

  /** Connects on the first call. When `signal` aborts, all waits end, and nothing is taken any more. */
  constructor(name: string, { to, names }: PoolPlace, { prefix, figures, memory, signal }: PoolOptions) {
    this.name = name;
    this.prefix = prefix;
    this.figures = figures;
    this.redis = new Connection(to, names);
    this.inspector = new Inspector(this.redis, { prefix });
    this.operator = new Operator(this.redis, { prefix });
    this.health = new Health(this.redis);
    const { health } = this;
    const wakes = new Wakes(this.redis, realClock);
    this.host = {
      ...{ clock: realClock, wakes, figures, signal, consumer: CONSUMER, underWay: new UnderWay() },
      hasMemory: () => memory.used < memory.limit,
      failed: (error) => {
        health.failed(error);
        return Health.holdMs();
      },
      silent: () => unavailable(),
    };
    signal.addEventListener('abort', () => {
      for (const queue of this.#queues.values()) queue.stop();
    });
  }

  queue(name: string): Queue {
    return this.shared(name).queue;
  }

  /** The queue, for calls that requests share. */
  shared(name: string): SharedQueue {
    const found = this.#queues.get(name);
    const queue =
      found ?? new SharedQueue(new Queue(this.redis, name, { prefix: this.prefix }), this.host, this.figures);
    if (found) this.#queues.delete(name);
    this.#queues.set(name, queue);
    if (this.#queues.size > MAX_IDLE) this.#forgetOne();
    return queue;
  }

  /** Forgets the queue that has not been used for longest, unless requests wait for it: then it counts as used. */
  #forgetOne(): void {
    const [name, queue] = this.#queues.entries().next().value as [string, SharedQueue];
    this.#queues.delete(name);
    if (!queue.isIdle) this.#queues.set(name, queue);
  }

  /** Closes the connections when all undelivered jobs are back, or soon if Redis does not take them. */
  async close(): Promise<void> {
    // A take that is under way may bring jobs that go back.
    const ended = this.host.underWay.ended();
    await Promise.race([ended, sleep(LONGEST_CLOSE_MS, undefined, { ref: false })]);
    this.host.wakes.close();
    this.redis.close();
  }
}
