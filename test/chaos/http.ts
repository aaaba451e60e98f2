import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Connection, Inspector } from '../../src/index.js';
import { binary } from '../support/cli.js';
import { FaultyProxy } from '../support/proxy.js';
import { key } from '../support/redis.js';
import { within } from '../support/until.js';
import type { Form } from './consumers.js';
import { type Deployment, oneServer } from './deployments.js';
import type { FaultName } from './faults.js';
import { Books } from './http-books.js';
import { Commander, CurlPoller, NAMESPACE, Poller, Publisher, QUEUE_TRIES, type Using } from './http-clients.js';
import { HttpServer } from './http-servers.js';
import { type Balance, readLog, remainsOf } from './ledger.js';
import type { Random } from './random.js';
import { LOOK_MS, Stage } from './stage.js';

/** One queue that HTTP alone uses, and one that commands use too. */
const QUEUES = ['raw', 'both'] as const;
const nameOf = (queue: string) => `${NAMESPACE}.${queue}`;

const FORMS: readonly Form[] = ['lease', 'exec', 'pipe'];

/** What strikes the servers, and clients and commands beside them, as weights. */
export const SERVER_STORM = { 'kill server': 3, 'stop server': 3, 'freeze server': 2 };
export const CLIENT_STORM = {
  'kill consumer': 4,
  'stop consumer': 2,
  'freeze consumer': 2,
  'kill enqueue': 2,
  'cut connections': 3,
  'cut before replies': 4,
  'drop replies': 2,
  'drop requests': 2,
  'half-open connections': 2,
  'delay the network': 3,
  'grow queue': 4,
} satisfies Partial<Record<FaultName, number>>;

/** Two HTTP servers on one Redis, their clients, and commands on the same queues, while faults strike. */
export class HttpStorm extends Stage {
  readonly #servers: HttpServer[] = [];
  readonly #proxies: FaultyProxy[] = [];
  readonly #books = new Books();
  readonly #publishers: (Publisher | Commander)[] = [];
  readonly #pollers: Poller[] = [];
  #token: string | undefined;
  #isStormy = true;
  /** Redis does not always answer: a stop may cut requests off. */
  #mayCut = false;

  private constructor(seed: number, redis: Deployment) {
    super({ seed, redis, queues: QUEUES.map(nameOf) });
  }

  /**
   * `graceMs`: how long requests that run at a stop may take; by default a slow machine has time for all of them.
   * `hasTokens`: clients need a token, and have one.
   */
  static async begin(seed: number, { graceMs = 20_000, hasTokens = false } = {}): Promise<HttpStorm> {
    const storm = new HttpStorm(seed, await oneServer());
    return storm.begun(storm.#populate(graceMs, hasTokens));
  }

  #using(): Using {
    const direct = this.#servers.map(({ port }) => ({ port, isDirect: true }));
    return {
      doors: [...direct, ...direct, ...this.#proxies.map(({ port }) => ({ port, isDirect: false }))],
      queues: QUEUES,
      books: this.#books,
      random: this.random.branch(),
      token: this.#token,
      isNaughty: () => this.#isStormy,
    };
  }

  async #populate(graceMs: number, hasTokens: boolean): Promise<void> {
    if (hasTokens) {
      const made = await binary(['token', 'add', NAMESPACE], { env: { DELAYQ_REDIS_URL: this.redis.directUrl } });
      this.#token = made.stdout.trim();
    }
    for (const name of ['server-0', 'server-1']) {
      const server = await HttpServer.start(this.url, join(this.directory, name), graceMs);
      this.#servers.push(server);
      this.#proxies.push(await FaultyProxy.start(server.port));
    }
    const client = await this.redis.client();
    const settings = { tries: QUEUE_TRIES, maxLost: QUEUE_TRIES, backoff: '200 1000', lease: 2_000 };
    for (const queue of QUEUES) await client.hset(key(nameOf(queue), 'config'), settings);
    for (let n = 0; n < 4; n++) this.#publishers.push(new Publisher(this.#using()).begin());
    for (let n = 0; n < 5; n++) this.#pollers.push(new Poller(this.#using()).begin());
    this.#pollers.push(new CurlPoller(this.#using()).begin());
    this.#publishers.push(new Commander({ ...this.#using(), queues: ['both'] }, this.url, this.errors).begin());
    const random = this.random.branch();
    const next = () => ({ flags: random.pick(['--watch --for 2s', '']) });
    this.consume(() => random.pick(FORMS), nameOf('both'), next);
  }

  protected get producers(): number[] {
    return this.#publishers.flatMap((one) => (one instanceof Commander && one.pid) || []);
  }

  protected override get proxies(): FaultyProxy[] {
    return [...this.redis.proxies, ...this.#proxies];
  }

  /** Lets faults strike until `done`, each at least once. */
  rage(faults: Readonly<Record<string, number>>, done: () => boolean): Promise<void> {
    this.#mayCut = Object.keys(faults).some((name) => name in this.redis.faults);
    // Redis must also be well for a while.
    return this.rageWith(faults, { redis: 2_500, others: 800 }, done);
  }

  override async strike(name: string, random: Random): Promise<boolean> {
    const server = random.pick(this.#servers);
    const ofServers: Record<string, () => Promise<unknown>> = {
      'kill server': () => server.kill().then(() => this.#again(server, random)),
      'stop server': () => server.stop(this.#mayCut).then(() => this.#again(server, random)),
      // Longer than some leases.
      'freeze server': () => server.freeze(random.whole(200, 4_000)),
    };
    const fault = ofServers[name];
    if (!fault) return super.strike(name, random);
    await fault();
    this.struck[name] = (this.struck[name] ?? 0) + 1;
    return true;
  }

  /** Starts a server again, as systemd would. */
  async #again(server: HttpServer, random: Random): Promise<void> {
    await sleep(random.whole(0, 500));
    await server.run();
  }

  /** How often each status came, and each reason why none came. */
  get answers(): Readonly<Record<string, number>> {
    return this.#books.counts;
  }

  /** How many deliveries HTTP clients have had. */
  get delivered(): number {
    return this.#books.deliveries.length;
  }

  protected producersEnd(): Promise<unknown> {
    return Promise.all(this.#publishers.map((one) => one.stop()));
  }

  /** Ends the storm: the remaining jobs are handled without faults, and the books are balanced. */
  async end(): Promise<Balance[]> {
    await this.producersEnd();
    await this.growersEnd();
    this.#isStormy = false;
    await this.allDone();
    await Promise.all(this.#pollers.map((poller) => poller.stop()));
    await this.consumersEnd();
    for (const server of this.#servers) await server.stop(false);
    return within(LOOK_MS, 'the balance of the books', this.#balance());
  }

  async #balance(): Promise<Balance[]> {
    const { handlings, corrupt } = readLog(readFileSync(this.log, 'utf8'));
    const client = await this.redis.client();
    const connection = new Connection(this.redis.directUrl);
    const inspector = new Inspector(connection);
    const balances: Balance[] = [];
    for (const queue of QUEUES) {
      const left = await remainsOf(client, nameOf(queue));
      const stored = await inspector.show(nameOf(queue), [...left.present, ...left.dead]);
      const isShared = queue === 'both';
      const jobs = stored.flatMap((job) => job ?? []);
      balances.push(this.#books.balance(queue, isShared ? handlings : [], left, jobs, isShared));
    }
    connection.close();
    balances[0]?.violations.push(
      ...this.bugs,
      ...this.#books.bugs,
      ...this.#servers.flatMap(({ bugs }) => bugs),
      ...this.tracesIn(...this.#servers.map(({ log }) => log)),
      ...(corrupt.length > 0 ? [`payloads were not whole: ${corrupt.slice(0, 3)}`] : []),
    );
    console.log('answers:', this.#books.counts);
    return balances;
  }

  override async stop(): Promise<void> {
    const polling = this.#pollers.map((poller) => poller.stop());
    for (const server of this.#servers) await server.kill();
    await super.stop();
    for (const proxy of this.#proxies) await proxy.stop();
    await Promise.all(polling);
  }
}
