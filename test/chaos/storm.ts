import { cpSync, existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { canSetClocks } from '../support/clock.js';
import { tagsOf } from '../support/partitions.js';
import { key } from '../support/redis.js';
import { temporaryDirectory } from '../support/temporary.js';
import { until } from '../support/until.js';
import { Consumer, FORMS, type Form, READERS } from './consumers.js';
import { type Deployment, oneServer } from './deployments.js';
import { FAULTS, type FaultName, type Victims } from './faults.js';
import { Growers } from './grower.js';
import { type Balance, Ledger, readLog, remainsOf } from './ledger.js';
import { Bulk, InProcess, OneByOne, type Producing } from './producers.js';
import { Random } from './random.js';

/** The options of a storm. */
export interface Weather {
  readonly seed: number;
  /** The Redis to use; by default one server. */
  readonly redis?: () => Promise<Deployment>;
  /** The faults and their weights, those of Redis included; none: calm. */
  readonly faults: Readonly<Record<string, number>>;
  /** The longest pause between faults, ms. */
  readonly pauseMs?: number;
  /** How many replicas must have a job before it is confirmed: all that there are. By default they are not waited for. */
  readonly replicas?: number;
  /** Consumers and producers connect to Redis without the proxy. */
  readonly direct?: boolean;
  /** The lease, and the time to live of jobs that may expire. */
  readonly leaseMs?: number;
  readonly ttl?: string;
}

/** Short delays, leases and backoffs: in minutes everything happens that takes days elsewhere. */
const AHEAD_MS = 3_000;
const LEASE_MS = 2_000;
const SETTINGS = { backoff: '200 1000', tries: '8' };

/** How long the last jobs may take after the storm, ms. After that they count as stuck. */
const CALM_MS = 120_000;

/** The exit statuses allowed under faults: documented ones, SIGKILL, and SIGTERM before it can be handled. */
const EXITS = new Set([0, 1, 69, 75, 137, 143]);

/** What a killed Redis may lose at most, ms: with everysec, an fsync may take a second longer. */
const FORGETS_MS = 2_000;

/** A queue for all forms, one for at most once, and one whose readers are killed too. */
export const QUEUES = ['all', 'once', 'readers'] as const;

/** Producers and consumers of every form, all real processes, on a Redis of their own, while faults strike. */
export class Storm {
  readonly #weather: Weather;
  readonly #random: Random;
  readonly #redis: Deployment;
  readonly #directory = temporaryDirectory();
  readonly #ledgers = QUEUES.map((queue) => new Ledger(queue));
  readonly #consumers = new Set<Consumer>();
  readonly #disturbed = new Set<string>();
  /** Exit statuses that no fault may cause. */
  readonly #bugs: string[] = [];
  readonly #slots: Promise<void>[] = [];
  readonly #producers: (OneByOne | Bulk | InProcess)[] = [];
  /** How often each fault struck. */
  readonly struck: Record<string, number> = {};
  readonly #growers: Growers;
  /** When Redis was killed or replaced: from when on until when it may have lost what it did, ms. */
  readonly #forgot: [number, number][] = [];
  /** The faults are over. Consumers no longer watch: those to stdout would keep the last jobs in the pipe. */
  #calm = false;
  #over = false;
  #runs = 0;

  private constructor(weather: Weather, redis: Deployment) {
    this.#weather = weather;
    this.#random = new Random(weather.seed);
    this.#redis = redis;
    this.#growers = new Growers(this.#url, QUEUES, this.#errors);
  }

  static async begin(weather: Weather): Promise<Storm> {
    const storm = new Storm(weather, await (weather.redis ?? oneServer)());
    await storm.#populate();
    return storm;
  }

  #ledger(queue: string): Ledger {
    return this.#ledgers.find((ledger) => ledger.queue === queue) as Ledger;
  }

  get #url(): string {
    return this.#weather.direct ? this.#redis.directUrl : this.#redis.url;
  }

  get #leaseMs(): number {
    return this.#weather.leaseMs ?? LEASE_MS;
  }

  get #log(): string {
    return join(this.#directory, 'log');
  }

  get #errors(): string {
    return join(this.#directory, 'errors');
  }

  async #populate(): Promise<void> {
    writeFileSync(this.#log, '');
    const lease = this.#leaseMs;
    for (const queue of QUEUES) {
      const { admin } = await this.#redis.ownerOf(queue);
      await admin.hset(key(queue, 'config'), { ...SETTINGS, lease });
    }
    const producing = (): Producing => ({
      url: this.#url,
      // Most jobs go into the first queue, which all forms share.
      ledgers: [this.#ledger('all'), this.#ledger('all'), ...this.#ledgers],
      random: this.#random.branch(),
      errors: this.#errors,
      aheadMs: AHEAD_MS,
      ttl: this.#weather.ttl ?? '1s',
      replicas: this.#weather.replicas,
    });
    this.#producers.push(
      new OneByOne(producing()).begin(),
      new Bulk(producing()).begin(),
      new InProcess(producing()).begin(),
    );
    for (const form of FORMS) this.#slots.push(this.#consume(form, 'all', this.#random.branch()));
    this.#slots.push(this.#consume('once', 'once', this.#random.branch()));
    this.#slots.push(this.#consume('stdout', 'readers', this.#random.branch()));
  }

  /** One consumer after another, as cron or systemd would start them. */
  async #consume(form: Form, queue: string, random: Random): Promise<void> {
    while (!this.#over) {
      const watching =
        form === 'worker'
          ? ['--watch', '']
          : this.#endsAlone(form)
            ? ['--for 2s', '']
            : ['--watch', '--watch', '--for 2s', ''];
      const behindClock = form === 'stdout' || form === 'lease' || form === 'once';
      const consumer = new Consumer(form, {
        queue,
        url: this.#url,
        log: this.#log,
        errors: this.#errors,
        lease: `${this.#leaseMs}ms`,
        label: `${queue}/${form}/${this.#runs++}`,
        flags: this.#calm ? '' : random.pick(watching),
        reader: random.pick(READERS),
        clock: behindClock && canSetClocks && random.chance(0.15) ? random.pick(['+300s', '-300s']) : undefined,
      });
      this.#consumers.add(consumer);
      const statuses = await consumer.ended;
      this.#consumers.delete(consumer);
      // Whatever the reason: something went wrong.
      if ([...statuses.values()].some((status) => status !== 0)) this.#disturbed.add(consumer.label);
      for (const [member, status] of statuses) {
        // xargs exits with 123 if its command was interrupted, or refused a line that a drain was killed in the middle of.
        const isCut = status === 123 && statuses.get('drain') !== 0;
        const expected = EXITS.has(status) || isCut || ([123, 130].includes(status) && consumer.hurried.has(member));
        if (!expected) this.#bugs.push(`${consumer.label}: ${member} ended with ${status}`);
      }
      await sleep(random.whole(20, 300));
    }
  }

  /** In calm, drains to a reader are not stopped: a stop makes the latest jobs come again. */
  #endsAlone(form: Form): boolean {
    return form === 'stdout' && Object.keys(this.#weather.faults).length === 0;
  }

  /** Sends SIGTERM to the drains. */
  #stopAll(): void {
    for (const consumer of this.#consumers) {
      if (this.#endsAlone(consumer.form)) continue;
      if (consumer.form === 'stdout') this.#disturbed.add(consumer.label);
      consumer.signal('drain', 'SIGTERM');
    }
  }

  #victims(random: Random): Victims {
    return {
      proxies: this.#redis.proxies,
      random,
      consumers: () => [...this.#consumers],
      producers: () => this.#producers.flatMap(({ pid }) => pid ?? []),
      mayKillReader: ({ form, label, feeds }) => form === 'lease' || (label.startsWith('readers/') && feeds),
      disturbed: ({ label }) => this.#disturbed.add(label),
      grow: () => this.#growers.begin(random.branch()),
    };
  }

  /** Lets faults strike until `done`, each at least once: those of Redis one by one, others at the same time. */
  async rage(done: () => boolean): Promise<void> {
    const names = Object.keys(this.#weather.faults);
    const ofRedis = names.filter((name) => name in this.#redis.faults);
    const others = names.filter((name) => !ofRedis.includes(name));
    await Promise.all([ofRedis, others].map((some) => this.#strikeWith(some, this.#random.branch(), done)));
  }

  async #strikeWith(names: readonly string[], random: Random, done: () => boolean): Promise<void> {
    if (names.length === 0) return;
    const weight = (name: string) => this.#weather.faults[name] ?? 0;
    const sum = (some: readonly string[]) => some.reduce((total, name) => total + weight(name), 0);
    // The group with fewer faults waits longer between them.
    const share = sum(names) / sum(Object.keys(this.#weather.faults));
    const { pauseMs = 1_500 } = this.#weather;
    const first = random.shuffled(names);
    while (first.length > 0 || !done()) {
      await sleep(random.whole(50, pauseMs) / share / 2);
      const name = first.shift() ?? random.pickByWeight(names, weight);
      if (!(await this.strike(name, random.branch())) && !this.struck[name]) first.push(name);
    }
  }

  /** Lets one fault strike now. Resolves with false if there was nothing to strike. */
  async strike(name: string, random = this.#random.branch()): Promise<boolean> {
    const ofRedis = this.#redis.faults[name];
    const from = Date.now() - FORGETS_MS;
    const found = ofRedis
      ? await ofRedis.strike(random).then(() => true)
      : await FAULTS[name as FaultName](this.#victims(random));
    if (ofRedis?.forgets) this.#forgot.push([from, Date.now() + 100]);
    if (found) this.struck[name] = (this.struck[name] ?? 0) + 1;
    return found;
  }

  /** How many lines handlers have logged so far. */
  get handled(): number {
    return readFileSync(this.#log, 'latin1').split('\n').length - 1;
  }

  /** Whether each form has handled something. */
  get allAtWork(): boolean {
    const log = readFileSync(this.#log, 'latin1');
    return [...FORMS.map((form) => `all/${form}/`), 'once/', 'readers/'].every((run) => log.includes(` ${run}`));
  }

  /**
   * Ends the storm: the remaining jobs are handled without faults, then all processes end, and the books are balanced.
   */
  async end(): Promise<Balance[]> {
    await Promise.all(this.#producers.map((producer) => producer.stop()));
    this.#calm = true;
    this.#stopAll();
    this.#bugs.push(...(await this.#growers.ended(CALM_MS)));
    const waiting = async () => {
      const client = await this.#redis.client();
      const tags = (await Promise.all(QUEUES.map((queue) => tagsOf(client, queue)))).flat();
      const counts = tags.flatMap((tag) => ['pending', 'active'].map((set) => client.zcard(key(tag, set))));
      return (await Promise.all(counts)).reduce((sum, n) => sum + n, 0);
    };
    let stuck = '';
    await until(async () => (await waiting()) === 0, CALM_MS).catch(async () => {
      stuck = `${await waiting()} jobs are still there although all has been calm for ${CALM_MS / 1000} s`;
    });
    this.#over = true;
    this.#stopAll();
    const ended = Promise.all(this.#slots);
    await Promise.race([ended, sleep(20_000)]);
    for (const consumer of this.#consumers) await consumer.kill();
    await ended;
    return this.#balance(stuck);
  }

  async #balance(stuck: string): Promise<Balance[]> {
    const log = readLog(readFileSync(this.#log, 'utf8'));
    const calm = Object.keys(this.struck).length === 0;
    const client = await this.#redis.client();
    const balances: Balance[] = [];
    for (const ledger of this.#ledgers) {
      const balance = ledger.balance(log, await remainsOf(client, ledger.queue), {
        calm,
        mayLose: ledger.queue === 'once',
        atMostOnce: ledger.queue === 'once',
        disturbed: (run) => this.#disturbed.has(run),
        mayForget:
          this.#forgot.length > 0 ? (at) => this.#forgot.some(([from, until]) => at > from && at <= until) : undefined,
        replicated: this.#weather.replicas !== undefined,
      });
      balances.push(balance);
    }
    const strays = log.handlings.filter(({ id, run }) => id.replace(/-\d+$/, '') !== run.replace(/\/.*/, ''));
    const idle = FORMS.filter((form) => !log.handlings.some(({ run }) => run.startsWith(`all/${form}/`)));
    const traces = readFileSync(this.#errors, 'utf8').match(/^ +at .*/gm) ?? [];
    balances[0]?.violations.push(
      ...this.#bugs,
      ...traces.slice(0, 3).map((line) => `a stack trace:${line}`),
      ...strays.slice(0, 3).map(({ id, run }) => `${id} was handled by ${run}`),
      ...idle.map((form) => `no job was handled by the form ${form}`),
      ...(stuck ? [stuck] : []),
    );
    return balances;
  }

  /** Copies the logs, the stderr and Redis's files to a directory that stays. Returns the directory. */
  keep(): string {
    const directory = mkdtempSync(join(tmpdir(), `delayq-chaos-${this.#weather.seed}-`));
    cpSync(this.#directory, directory, { recursive: true });
    for (const [n, server] of this.#redis.servers.entries()) {
      const written = join(server.directory, 'appendonlydir');
      if (existsSync(written)) cpSync(written, join(directory, `appendonlydir-${n}`), { recursive: true });
    }
    return directory;
  }

  async stop(): Promise<void> {
    this.#over = true;
    for (const consumer of this.#consumers) await consumer.kill();
    await this.#redis.stop();
  }
}
