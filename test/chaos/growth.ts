import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Connection, Queue } from '../../src/index.js';
import { placesOf } from '../support/partitions.js';
import { key } from '../support/redis.js';
import { temporaryDirectory } from '../support/temporary.js';
import { within } from '../support/until.js';
import { Caller, type Calling, Commander } from './callers.js';
import { Consumer, FORMS } from './consumers.js';
import type { Deployment } from './deployments.js';
import { judge, storedOf, TELLING } from './events.js';
import { Grower } from './grower.js';
import { Histories, now } from './histories.js';
import { readLog } from './ledger.js';
import { STRIKE_MS } from './rage.js';
import { Random } from './random.js';
import { Handler, Taker } from './takers.js';

const QUEUE = 'grown';

/** Limits that no job reaches: a nack never makes it dead. */
const SETTINGS = { tries: '100000', maxLost: '100000', backoff: '20 50', lease: '2000' };

/** How long a step of a growth may take, ms; one more for each job that waits. */
const GROWTH_MS = 240_000;

/** The options of a storm in which a queue grows. */
export interface GrowthWeather {
  readonly seed: number;
  readonly redis: Deployment;
  /** How many jobs wait for an hour meanwhile. */
  readonly waiting: number;
  /** By how many ids callers call. Few, so that they meet. */
  readonly ids?: number;
  /** Whether there are consumers of every form. What they fetch ahead nobody sees, so less is certain. */
  readonly everyForm?: boolean;
  readonly replicas?: number | undefined;
  /** To how many partitions it grows, one step after the other, and how long the process of a step lives at most, ms. */
  readonly steps?: number[];
  readonly livesMs?: number;
}

/** Callers by id, and consumers, of a queue that grows meanwhile. */
export class GrowthStorm {
  readonly histories = new Histories();
  readonly grower: Grower;
  readonly struck: Record<string, number> = {};
  readonly #weather: GrowthWeather;
  readonly #random: Random;
  readonly #directory = temporaryDirectory();
  readonly #ids: readonly string[];
  readonly #callers: (Caller | Commander)[] = [];
  readonly #takers: (Taker | Handler)[] = [];
  readonly #consumers: { consumer: Consumer; from: number }[] = [];
  readonly #waiting: string[] = [];

  private constructor(weather: GrowthWeather) {
    const { seed, redis, ids = 24, ...growing } = weather;
    this.#weather = weather;
    this.#random = new Random(seed);
    this.#ids = Array.from({ length: ids }, (_, i) => `id-${i}`);
    this.grower = new Grower(redis.url, QUEUE, this.#errors, growing);
  }

  static async begin(weather: GrowthWeather): Promise<GrowthStorm> {
    const storm = new GrowthStorm(weather);
    await storm.#populate();
    return storm;
  }

  get #errors(): string {
    return join(this.#directory, 'errors');
  }

  get #log(): string {
    return join(this.#directory, 'log');
  }

  async #populate(): Promise<void> {
    const { redis, waiting, replicas, everyForm = false } = this.#weather;
    writeFileSync(this.#log, '');
    writeFileSync(this.#errors, '');
    const { admin } = await redis.ownerOf(QUEUE);
    const layout = '1 0/1 uses settings events results';
    await admin.hset(key(QUEUE, 'config'), { layout, ...SETTINGS, ...TELLING });
    const connection = new Connection(redis.url);
    const queue = new Queue(connection, QUEUE);
    while (this.#waiting.length < waiting) {
      const left = Math.min(10_000, waiting - this.#waiting.length);
      const jobs = Array.from({ length: left }, (_, i) => {
        const n = this.#waiting.length + i;
        return { id: `waiting-${n}`, in: '1h', payload: n };
      });
      for (const { id } of await queue.enqueue(jobs, { replicas })) this.#waiting.push(id);
    }
    connection.close();

    for (let n = 0; n < 4; n++) this.#callers.push(new Caller(this.#calling()).begin());
    for (let n = 0; n < 2; n++) this.#callers.push(new Commander(this.#calling(), this.#errors).begin());
    for (let n = 0; n < 3; n++) this.#takers.push(new Taker(this.#calling()).begin());
    if (!everyForm) return;
    for (let n = 0; n < 2; n++) this.#takers.push(new Handler(this.#calling()).begin());
    for (const form of FORMS) this.#consume(form);
  }

  #calling(): Calling {
    const { redis, replicas } = this.#weather;
    const { histories } = this;
    return { url: redis.url, queue: QUEUE, ids: this.#ids, histories, replicas, random: this.#random.branch() };
  }

  #consume(form: (typeof FORMS)[number]): void {
    const from = now();
    this.histories.unseen(from);
    const consumer = new Consumer(form, {
      queue: QUEUE,
      url: this.#weather.redis.url,
      log: this.#log,
      errors: this.#errors,
      label: `run-${this.#consumers.length}`,
      flags: '--watch',
      lease: '2s',
    });
    this.#consumers.push({ consumer, from });
  }

  /** Lets a fault of Redis strike. */
  async strike(name: string): Promise<void> {
    const fault = this.#weather.redis.faults[name];
    if (!fault) throw new Error(`nothing here strikes ${name}`);
    const isForgotten = fault.forgets ? this.#watchServers() : undefined;
    await within(STRIKE_MS, `the fault "${name}"`, fault.strike(this.#random.branch()));
    isForgotten?.();
    this.struck[name] = (this.struck[name] ?? 0) + 1;
  }

  /** Notes when servers die and come back, until the function that it returns is called. */
  #watchServers(): () => void {
    const { servers } = this.#weather.redis;
    let before = servers.map(({ isAwake }) => isAwake);
    let looked = now();
    const look = setInterval(() => {
      const awake = servers.map(({ isAwake }) => isAwake);
      if (awake.some((is, i) => is !== before[i])) this.histories.forgets(looked);
      before = awake;
      looked = now();
    }, 5);
    return () => clearInterval(look);
  }

  /** Grows by one step, while all else goes on. Returns how long that took, ms. */
  async grow(): Promise<number> {
    const begin = performance.now();
    await within(GROWTH_MS + this.#weather.waiting, 'a growth', this.grower.step(this.#random.branch()));
    return performance.now() - begin;
  }

  /** Ends all calls, looks at all ids, and returns what cannot be explained. */
  async end(): Promise<{ readonly figures: Record<string, unknown>; readonly violations: string[] }> {
    await Promise.all(this.#callers.map((caller) => caller.stop()));
    await Promise.all(this.#takers.map((taker) => taker.stop()));
    for (const { consumer } of this.#consumers) consumer.signal('drain', 'SIGTERM');
    await Promise.race([Promise.all(this.#consumers.map(({ consumer }) => consumer.ended)), sleep(20_000)]);
    for (const { consumer } of this.#consumers) await consumer.kill();
    this.#readLog();
    const last = new Caller(this.#calling());
    await last.showAll();
    await last.stop();
    const { figures, violations } = this.histories.judge();
    const told = judge(QUEUE, await storedOf(await this.#weather.redis.client(), QUEUE));
    const longest = (all: readonly (Caller | Commander | Taker | Handler)[]) =>
      Math.round(Math.max(...all.map(({ seen }) => seen.longestPauseMs)));
    return {
      figures: {
        ...figures,
        ...told.figures,
        'grower killed': this.grower.killed,
        'grower stopped': this.grower.stopped,
        'longest pause of a caller, ms': longest(this.#callers.filter((caller) => caller instanceof Caller)),
        'longest pause of a taker, ms': longest(this.#takers),
        'calls that failed': this.#failures(),
        struck: this.struck,
      },
      violations: [...violations, ...told.violations, ...(await this.#torn()), ...this.#traces()],
    };
  }

  #failures(): Record<string, number> {
    const sum: Record<string, number> = {};
    for (const { seen } of [...this.#callers, ...this.#takers])
      for (const [code, n] of Object.entries(seen.errors)) sum[code] = (sum[code] ?? 0) + n;
    return sum;
  }

  /** What handlers did that are processes of their own. */
  #readLog(): void {
    const { handlings, corrupt } = readLog(readFileSync(this.#log, 'utf8'));
    if (corrupt.length > 0) throw new Error(`payloads were not whole: ${corrupt}`);
    for (const { id, start, receipt, run, version } of handlings) {
      const { from } = this.#consumers[Number(run.replace('run-', ''))] as { from: number };
      this.histories.record(id, { act: 'take', from, to: start + 2, answer: 'taken', receipt, version });
      // A reader may log a job after its drain has acked it.
      this.histories.record(id, { act: 'ack', from, to: Number.POSITIVE_INFINITY, receipt });
    }
  }

  /** Ids that stand in several places of Redis, and waiting jobs that stand in none. */
  async #torn(): Promise<string[]> {
    const { redis } = this.#weather;
    const places = await placesOf(await redis.client(), QUEUE);
    const twice = [...places]
      .filter(([, all]) => all.length > 1)
      .map(([id, all]) => `${id} is in ${all.join(' and ')}`);
    const lost = this.#waiting.filter((id) => !places.has(id));
    return [...twice, ...(lost.length > 0 ? [`${lost.length} waiting jobs are lost: ${lost.slice(0, 5)}`] : [])];
  }

  #traces(): string[] {
    const traces = readFileSync(this.#errors, 'utf8').match(/^ +at .*/gm) ?? [];
    return traces.slice(0, 3).map((line) => `a stack trace:${line}`);
  }

  async stop(): Promise<void> {
    const ended = Promise.all([...this.#callers, ...this.#takers].map((one) => one.stop()));
    await Promise.race([ended, sleep(10_000, undefined, { ref: false })]);
    for (const { consumer } of this.#consumers) await consumer.kill();
    await this.#weather.redis.stop();
  }
}
