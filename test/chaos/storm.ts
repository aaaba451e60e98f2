import { readFileSync } from 'node:fs';
import { canSetClocks } from '../support/clock.js';
import { key } from '../support/redis.js';
import { within } from '../support/until.js';
import { FORMS, type Form, READERS } from './consumers.js';
import { type Deployment, oneServer } from './deployments.js';
import { judge, storedOf, TELLING } from './events.js';
import { Follower } from './follower.js';
import { type Balance, Ledger, readLog, remainsOf } from './ledger.js';
import { Bulk, InProcess, OneByOne, type Producing } from './producers.js';
import { LOOK_MS, Stage } from './stage.js';

/** The options of a storm. */
export interface Weather {
  readonly seed: number;
  /** The Redis to use; by default one server. */
  readonly redis?: () => Promise<Deployment>;
  /** The faults and their weights, those of Redis included; none: calm. */
  readonly faults: Readonly<Record<string, number>>;
  /** The longest pause between two faults of one kind, ms. */
  readonly pauses?: { readonly redis: number; readonly others: number };
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

/** A queue for all forms, one for at most once, and one whose readers are killed too. */
export const QUEUES = ['all', 'once', 'readers'] as const;

/** What queues keep of what happens: all, events alone, nothing. */
const KEPT: Record<string, { uses: string; settings: object }> = {
  all: { uses: 'events results', settings: TELLING },
  once: { uses: 'events', settings: { events: TELLING.events } },
};

/** Producers and consumers of every form, all real processes, on a Redis of their own, while faults strike. */
export class Storm extends Stage {
  readonly #weather: Weather;
  readonly #ledgers = QUEUES.map((queue) => new Ledger(queue));
  readonly #producers: (OneByOne | Bulk | InProcess)[] = [];
  readonly #followers = new Map<string, Follower>();
  /** The faults are over. Consumers no longer watch: those to stdout would keep the last jobs in the pipe. */
  #calm = false;

  private constructor(weather: Weather, redis: Deployment) {
    super({ ...weather, redis, queues: QUEUES });
    this.#weather = weather;
  }

  static async begin(weather: Weather): Promise<Storm> {
    const storm = new Storm(weather, await (weather.redis ?? oneServer)());
    return storm.begun(storm.#populate());
  }

  #ledger(queue: string): Ledger {
    return this.#ledgers.find((ledger) => ledger.queue === queue) as Ledger;
  }

  async #populate(): Promise<void> {
    const { leaseMs: lease = LEASE_MS, ttl = '1s', replicas } = this.#weather;
    for (const queue of QUEUES) {
      const { admin } = await this.redis.ownerOf(queue);
      const { uses = '', settings } = KEPT[queue] ?? {};
      const layout = `1 0/1 uses settings ${uses}`.trim();
      await admin.hset(key(queue, 'config'), { layout, ...SETTINGS, lease, ...settings });
    }
    await Promise.all(Object.keys(KEPT).map((queue) => this.#follow(queue)));
    const producing = (): Producing => ({
      url: this.url,
      // Most jobs go into the first queue, which all forms share. Some readers start processes for each job.
      ledgers: [...Array<Ledger>(3).fill(this.#ledger('all')), ...this.#ledgers],
      random: this.random.branch(),
      errors: this.errors,
      aheadMs: AHEAD_MS,
      ttl,
      replicas,
    });
    this.#producers.push(
      new OneByOne(producing()).begin(),
      new Bulk(producing()).begin(),
      new InProcess(producing()).begin(),
    );
    for (const form of FORMS) this.#consumeAs(form, 'all');
    this.#consumeAs('once', 'once');
    this.#consumeAs('stdout', 'readers');
  }

  async #follow(queue: string): Promise<void> {
    const follower = new Follower(queue, this.url, this.errors, this.random.branch());
    this.#followers.set(queue, follower);
    await follower.begin(async () => (await this.redis.client()).call('XINFO', 'GROUPS', key(queue, 'events')));
  }

  #consumeAs(form: Form, queue: string): void {
    const random = this.random.branch();
    const watching =
      form === 'worker'
        ? ['--watch', '']
        : this.#endsAlone(form)
          ? ['--for 2s', '']
          : ['--watch', '--watch', '--for 2s', ''];
    const behindClock = form === 'stdout' || form === 'lease' || form === 'once';
    this.consume(form, queue, () => ({
      lease: `${this.#weather.leaseMs ?? LEASE_MS}ms`,
      flags: this.#calm ? '' : random.pick(watching),
      reader: random.pick(READERS),
      clock: behindClock && canSetClocks && random.chance(0.15) ? random.pick(['+300s', '-300s']) : undefined,
    }));
  }

  /** In calm, drains to a reader are not stopped: a stop makes the latest jobs come again. */
  readonly #endsAlone = (form: Form) => form === 'stdout' && Object.keys(this.#weather.faults).length === 0;

  protected get producers(): number[] {
    return this.#producers.flatMap(({ pid }) => pid ?? []);
  }

  protected producersEnd(): Promise<unknown> {
    return Promise.all(this.#producers.map((producer) => producer.stop()));
  }

  /** Lets faults strike until `done`, each at least once. */
  rage(done: () => boolean): Promise<void> {
    const { faults, pauses = { redis: 3_500, others: 1_500 } } = this.#weather;
    return this.rageWith(faults, pauses, done);
  }

  /** How many lines handlers have logged so far. */
  get handled(): number {
    return readFileSync(this.log, 'latin1').split('\n').length - 1;
  }

  /** Whether each form has handled something. */
  get allAtWork(): boolean {
    const log = readFileSync(this.log, 'latin1');
    return [...FORMS.map((form) => `all/${form}/`), 'once/', 'readers/'].every((run) => log.includes(` ${run}`));
  }

  /**
   * Ends the storm: the remaining jobs are handled without faults, then all processes end, and the books are balanced.
   */
  async end(): Promise<Balance[]> {
    await this.producersEnd();
    this.#calm = true;
    for (const follower of this.#followers.values()) follower.calm();
    await this.stopDrains(this.#endsAlone);
    await this.growersEnd();
    await this.allDone();
    await this.consumersEnd(this.#endsAlone);
    return within(2 * LOOK_MS, 'the balance of the books', this.#balance());
  }

  override async stop(): Promise<void> {
    const followed = [...this.#followers.values()].map((follower) => follower.stop());
    await super.stop();
    await Promise.all(followed);
  }

  async #balance(): Promise<Balance[]> {
    const log = readLog(readFileSync(this.log, 'utf8'));
    const calm = Object.keys(this.struck).length === 0;
    const client = await this.redis.client();
    const balances: Balance[] = [];
    const mayForget =
      this.forgot.length > 0
        ? (at: number) => this.forgot.some(([from, until]) => at > from && at <= until)
        : undefined;
    for (const ledger of this.#ledgers) {
      const { queue } = ledger;
      const mayLose = queue === 'once';
      const terms = { calm, mayLose, atMostOnce: mayLose, mayForget, replicated: this.#weather.replicas !== undefined };
      const disturbed = (run: string) => this.disturbed.has(run);
      const balance = ledger.balance(log, await remainsOf(client, queue), { ...terms, disturbed });
      const stored = await storedOf(client, queue);
      const seen = { confirmed: ledger.surely(terms), log, mayLose, mayForget };
      const { figures, violations } = queue in KEPT ? judge(queue, stored, seen) : { figures: {}, violations: [] };
      const follower = this.#followers.get(queue);
      const missed = (await follower?.end(stored.events, mayForget !== undefined)) ?? [];
      balances.push({
        ...balance,
        figures: { ...balance.figures, ...figures, 'follower killed': follower?.killed ?? 0 },
        violations: [...balance.violations, ...violations, ...missed],
      });
    }
    const strays = log.handlings.filter(({ id, run }) => id.replace(/-\d+$/, '') !== run.replace(/\/.*/, ''));
    const idle = FORMS.filter((form) => !log.handlings.some(({ run }) => run.startsWith(`all/${form}/`)));
    balances[0]?.violations.push(
      ...this.bugs,
      ...this.tracesIn(),
      ...strays.slice(0, 3).map(({ id, run }) => `${id} was handled by ${run}`),
      ...idle.map((form) => `no job was handled by the form ${form}`),
    );
    return balances;
  }
}
