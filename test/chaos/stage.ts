import { cpSync, existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { tagsOf } from '../support/partitions.js';
import type { FaultyProxy } from '../support/proxy.js';
import { key } from '../support/redis.js';
import { temporaryDirectory } from '../support/temporary.js';
import { until, within } from '../support/until.js';
import { Consumer, type Form, type Options } from './consumers.js';
import type { Deployment } from './deployments.js';
import { FAULTS, type FaultName, type Victims } from './faults.js';
import { Growers } from './grower.js';
import { rage } from './rage.js';
import { Random } from './random.js';

/** The exit statuses allowed under faults: documented ones, SIGKILL, and SIGTERM before it can be handled. */
const EXITS = new Set([0, 1, 69, 75, 137, 143]);

/** How long the last jobs may take after the storm, ms. After that they count as stuck. */
const CALM_MS = 120_000;

/** How long it may take to look at a Redis that is well, or to fill it, ms. */
export const LOOK_MS = 60_000;

/** How long consumers may take to end, ms. */
const END_MS = 20_000;

/** What a killed Redis may lose at most, ms: with everysec, an fsync may take a second longer. */
const FORGETS_MS = 2_000;

/** How to set the scene. */
interface Setting {
  readonly seed: number;
  readonly redis: Deployment;
  readonly queues: readonly string[];
  /** Consumers and growers connect to Redis without the proxy. */
  readonly direct?: boolean | undefined;
}

/** What all storms have: a Redis, consumers of every form, queues that grow, and the faults that strike them. */
export abstract class Stage {
  protected readonly redis: Deployment;
  protected readonly random: Random;
  protected readonly directory = temporaryDirectory();
  protected readonly url: string;
  readonly #seed: number;
  readonly #queues: readonly string[];
  readonly #consumers = new Set<Consumer>();
  readonly #slots: Promise<void>[] = [];
  readonly #growers: Growers;
  /** How often each fault struck. */
  readonly struck: Record<string, number> = {};
  /** What no fault explains, as it is seen. */
  protected readonly bugs: string[] = [];
  /** The runs of consumers that were struck or failed: their jobs may come again before a lease expires. */
  protected readonly disturbed = new Set<string>();
  /** When Redis was killed or replaced: from when on until when it may have lost what it did, ms. */
  protected readonly forgot: [number, number][] = [];
  protected isOver = false;
  #runs = 0;

  constructor({ seed, redis, queues, direct = false }: Setting) {
    this.#seed = seed;
    this.redis = redis;
    this.random = new Random(seed);
    this.url = direct ? redis.directUrl : redis.url;
    this.#queues = queues;
    this.#growers = new Growers(this.url, queues, this.errors);
    for (const file of [this.log, this.errors]) writeFileSync(file, '');
  }

  /** Waits until the storm is populated. Ends everything if that fails. */
  protected async begun(populating: Promise<void>): Promise<this> {
    try {
      await within(LOOK_MS, 'the begin of a storm', populating);
      return this;
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  /** What handlers log. */
  protected get log(): string {
    return join(this.directory, 'log');
  }

  /** The stderr of all commands. */
  protected get errors(): string {
    return join(this.directory, 'errors');
  }

  /** The processes that are enqueuing. */
  protected abstract get producers(): readonly number[];

  protected get proxies(): readonly FaultyProxy[] {
    return this.redis.proxies;
  }

  /** Starts one consumer after another, as cron or systemd would. */
  protected consume(form: Form | (() => Form), queue: string, next: () => Partial<Options>): void {
    this.#slots.push(this.#consume(typeof form === 'function' ? form : () => form, queue, next, this.random.branch()));
  }

  async #consume(formOf: () => Form, queue: string, next: () => Partial<Options>, random: Random): Promise<void> {
    while (!this.isOver) {
      const [form, { url, log, errors }] = [formOf(), this];
      const label = `${queue}/${form}/${this.#runs++}`;
      const consumer = new Consumer(form, { queue, url, log, errors, label, ...next() });
      this.#consumers.add(consumer);
      const statuses = await consumer.ended;
      this.#consumers.delete(consumer);
      // Whatever the reason: something went wrong.
      if ([...statuses.values()].some((status) => status !== 0)) this.disturbed.add(label);
      for (const [member, status] of statuses) {
        // xargs exits with 123 if its command was interrupted, or refused a line that a drain was killed in the middle of.
        const isCut = status === 123 && statuses.get('drain') !== 0;
        const expected = EXITS.has(status) || isCut || ([123, 130].includes(status) && consumer.hurried.has(member));
        if (!expected) this.bugs.push(`${label}: ${member} ended with ${status}`);
      }
      await sleep(random.whole(20, 300));
    }
  }

  /** Sends SIGTERM to the drains, also to those that are about to start, but not to those that `spared` selects. */
  protected async stopDrains(spared: (form: Form) => boolean = () => false): Promise<void> {
    const stop = async (consumer: Consumer) => {
      await until(() => consumer.over || consumer.members.has('drain'));
      if (consumer.form === 'stdout') this.disturbed.add(consumer.label);
      consumer.signal('drain', 'SIGTERM');
    };
    await Promise.all([...this.#consumers].filter(({ form }) => !spared(form)).map(stop));
  }

  #victims(random: Random): Victims {
    return {
      proxies: this.proxies,
      random,
      consumers: () => [...this.#consumers],
      producers: () => this.producers,
      mayKillReader: ({ form, label, feeds }) => form === 'lease' || (label.startsWith('readers/') && feeds),
      disturbed: ({ label }) => this.disturbed.add(label),
      grow: () => this.#growers.begin(random.branch()),
    };
  }

  /**
   * Lets faults strike until `done`, each at least once: those of one kind one by one, all kinds at the same time.
   * `pauses`: the longest between two of one kind, ms.
   */
  protected async rageWith(
    faults: Readonly<Record<string, number>>,
    pauses: { readonly redis: number; readonly others: number },
    done: () => boolean,
  ): Promise<void> {
    const kindOf = (name: string) =>
      name in this.redis.faults ? 'redis' : (/server$/.exec(name) ?? /^kill /.exec(name) ?? ['others'])[0];
    const names = Object.keys(faults);
    await Promise.all(
      [...new Set(names.map(kindOf))].map((kind) => {
        const some = Object.fromEntries(Object.entries(faults).filter(([name]) => kindOf(name) === kind));
        const longest = kind === 'redis' ? pauses.redis : pauses.others;
        return rage(some, this.random.branch(), longest, (name, random) => this.strike(name, random), done);
      }),
    );
  }

  /** Lets one fault strike now. Resolves with false if there was nothing to strike. */
  async strike(name: string, random = this.random.branch()): Promise<boolean> {
    const ofRedis = this.redis.faults[name];
    const from = Date.now() - FORGETS_MS;
    const found = ofRedis
      ? await ofRedis.strike(random).then(() => true)
      : await FAULTS[name as FaultName](this.#victims(random));
    if (ofRedis?.forgets) this.forgot.push([from, Date.now() + 100]);
    if (found) this.struck[name] = (this.struck[name] ?? 0) + 1;
    return found;
  }

  /** Waits until growths that were begun are done. */
  protected async growersEnd(): Promise<void> {
    this.bugs.push(...(await this.#growers.ended(CALM_MS)));
  }

  /** Waits until no job waits in some queues. What takes too long is stuck. */
  protected async allDone(queues = this.#queues): Promise<void> {
    const waiting = async () => {
      const client = await this.redis.client();
      const tags = (await Promise.all(queues.map((queue) => tagsOf(client, queue)))).flat();
      const counts = tags.flatMap((tag) => ['pending', 'active'].map((set) => client.zcard(key(tag, set))));
      return (await Promise.all(counts)).reduce((sum, n) => sum + n, 0);
    };
    let left = Number.NaN;
    const isDone = async () => {
      left = await waiting();
      return left === 0;
    };
    await until(isDone, CALM_MS).catch((error: Error) => {
      this.bugs.push(
        `${left} jobs are still there although all has been calm for ${CALM_MS / 1000} s (${error.message})`,
      );
    });
  }

  /** Ends the consumers: with SIGTERM, and what that does not end with SIGKILL. */
  protected async consumersEnd(spared?: (form: Form) => boolean): Promise<void> {
    this.isOver = true;
    await this.stopDrains(spared);
    const ended = Promise.all(this.#slots);
    await Promise.race([ended, sleep(END_MS, undefined, { ref: false })]);
    for (const consumer of this.#consumers) await consumer.kill();
    await within(END_MS, 'what starts consumers', ended);
  }

  /** The first lines of stack traces: no command prints one, whatever happens. */
  protected tracesIn(...files: readonly string[]): string[] {
    const lines = [this.errors, ...files].flatMap((file) => readFileSync(file, 'utf8').match(/^ +at .*/gm) ?? []);
    return lines.slice(0, 3).map((line) => `a stack trace:${line}`);
  }

  /** Copies the logs, the stderr and Redis's files to a directory that stays. Returns the directory. */
  keep(): string {
    const directory = mkdtempSync(join(tmpdir(), `delayq-chaos-${this.#seed}-`));
    cpSync(this.directory, directory, { recursive: true });
    for (const [n, server] of this.redis.servers.entries()) {
      const written = join(server.directory, 'appendonlydir');
      if (existsSync(written)) cpSync(written, join(directory, `appendonlydir-${n}`), { recursive: true });
    }
    return directory;
  }

  /** Stops what produces. Resolves when what was sent is answered. */
  protected abstract producersEnd(): Promise<unknown>;

  /** Ends everything, also in the middle of a storm. */
  async stop(): Promise<void> {
    this.isOver = true;
    const ended = this.producersEnd().catch(() => {});
    for (const consumer of this.#consumers) await consumer.kill();
    await Promise.race([ended, sleep(5_000, undefined, { ref: false })]);
    await this.redis.stop();
  }
}
