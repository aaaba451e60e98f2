import { cpSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Connection, Inspector } from '../../src/index.js';
import { FaultyProxy } from '../support/proxy.js';
import { key } from '../support/redis.js';
import { temporaryDirectory } from '../support/temporary.js';
import { until } from '../support/until.js';
import { Consumer, type Form } from './consumers.js';
import { type Deployment, oneServer } from './deployments.js';
import { FAULTS, type FaultName, type Victims } from './faults.js';
import { Growers } from './grower.js';
import { Books } from './http-books.js';
import { Commander, CurlPoller, NAMESPACE, Poller, Publisher, QUEUE_TRIES, type Using } from './http-clients.js';
import { HttpServer } from './http-servers.js';
import { type Balance, type Remains, readLog, remainsOf } from './ledger.js';
import { rage } from './rage.js';
import { Random } from './random.js';

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

/** The exit statuses allowed under faults: documented ones, SIGKILL, and SIGTERM before it can be handled. */
const EXITS = new Set([0, 1, 69, 75, 130, 137, 143]);

/** How long the last jobs may take after the storm, ms. */
const CALM_MS = 120_000;

/** Two HTTP servers on one Redis, their clients, and commands on the same queues, while faults strike. */
export class HttpStorm {
  readonly #redis: Deployment;
  readonly #random: Random;
  readonly #servers: readonly HttpServer[];
  readonly #proxies: readonly FaultyProxy[];
  readonly #directory = temporaryDirectory();
  readonly #books = new Books();
  readonly #growers: Growers;
  readonly #commander: Commander;
  readonly #publishers: Publisher[] = [];
  readonly #pollers: Poller[] = [];
  readonly #consumers = new Set<Consumer>();
  readonly #slots: Promise<void>[] = [];
  /** How often each fault struck. */
  readonly struck: Record<string, number> = {};
  #isStormy = true;
  /** Redis does not always answer: a stop may cut requests off. */
  #mayCut = false;
  #isOver = false;
  #runs = 0;

  private constructor(
    seed: number,
    redis: Deployment,
    servers: readonly HttpServer[],
    proxies: readonly FaultyProxy[],
  ) {
    this.#random = new Random(seed);
    this.#redis = redis;
    this.#servers = servers;
    this.#proxies = proxies;
    this.#growers = new Growers(redis.url, QUEUES.map(nameOf), this.#errors);
    this.#commander = new Commander({ ...this.#using(), queues: ['both'] }, redis.url, this.#errors);
  }

  static async begin(seed: number): Promise<HttpStorm> {
    const redis = await oneServer();
    const directory = temporaryDirectory();
    const servers = [0, 1].map((n) => HttpServer.start(redis.url, join(directory, `server-${n}`)));
    const proxies = (await Promise.all(servers)).map(({ port }) => FaultyProxy.start(port));
    const storm = new HttpStorm(seed, redis, await Promise.all(servers), await Promise.all(proxies));
    await storm.#populate();
    return storm;
  }

  get #log(): string {
    return join(this.#directory, 'log');
  }

  get #errors(): string {
    return join(this.#directory, 'errors');
  }

  #using(): Using {
    const direct = this.#servers.map(({ port }) => ({ port, isDirect: true }));
    return {
      doors: [...direct, ...direct, ...this.#proxies.map(({ port }) => ({ port, isDirect: false }))],
      queues: QUEUES,
      books: this.#books,
      random: this.#random.branch(),
      isNaughty: () => this.#isStormy,
    };
  }

  async #populate(): Promise<void> {
    for (const file of [this.#log, this.#errors]) writeFileSync(file, '');
    const client = await this.#redis.client();
    const settings = { tries: QUEUE_TRIES, maxLost: QUEUE_TRIES, backoff: '200 1000', lease: 2_000 };
    for (const queue of QUEUES) await client.hset(key(nameOf(queue), 'config'), settings);
    for (let n = 0; n < 4; n++) this.#publishers.push(new Publisher(this.#using()).begin());
    for (let n = 0; n < 5; n++) this.#pollers.push(new Poller(this.#using()).begin());
    this.#pollers.push(new CurlPoller(this.#using()).begin());
    this.#commander.begin();
    this.#slots.push(this.#consume());
  }

  /** One drain after another, as cron would start them. */
  async #consume(): Promise<void> {
    const random = this.#random.branch();
    while (!this.#isOver) {
      const consumer = new Consumer(random.pick(FORMS), {
        queue: nameOf('both'),
        url: this.#redis.url,
        log: this.#log,
        errors: this.#errors,
        label: `both/${this.#runs++}`,
        flags: random.pick(['--watch --for 2s', '']),
      });
      this.#consumers.add(consumer);
      const statuses = await consumer.ended;
      this.#consumers.delete(consumer);
      for (const [member, status] of statuses)
        if (!EXITS.has(status)) this.#books.bug(`${consumer.form}: ${member} ended with ${status}`);
      await sleep(random.whole(20, 300));
    }
  }

  /**
   * Lets faults strike until `done`: those of Redis, of the servers, and others, each kind one by one, and all kinds at the
   * same time.
   */
  async rage(faults: Readonly<Record<string, number>>, done: () => boolean): Promise<void> {
    const kinds = [this.#redis.faults, SERVER_STORM, CLIENT_STORM];
    await Promise.all(
      kinds.map((kind) => {
        const some = Object.fromEntries(Object.entries(faults).filter(([name]) => name in kind));
        // Redis must also be well for a while.
        const longestMs = kind === this.#redis.faults ? 2_500 : 800;
        this.#mayCut ||= kind === this.#redis.faults && Object.keys(some).length > 0;
        return rage(some, this.#random.branch(), longestMs, (name) => this.#strike(name), done);
      }),
    );
  }

  async #strike(name: string): Promise<boolean> {
    const random = this.#random.branch();
    const server = random.pick(this.#servers);
    const ofServers: Record<string, () => Promise<unknown>> = {
      'kill server': () => server.kill().then(() => this.#again(server, random)),
      'stop server': () => server.stop(this.#mayCut).then(() => this.#again(server, random)),
      // Longer than some leases.
      'freeze server': () => server.freeze(random.whole(200, 4_000)),
    };
    const fault = ofServers[name] ?? this.#redis.faults[name]?.strike;
    const found = fault ? await fault(random).then(() => true) : await FAULTS[name as FaultName](this.#victims(random));
    if (found) this.struck[name] = (this.struck[name] ?? 0) + 1;
    return found;
  }

  /** Starts a server again, as systemd would. */
  async #again(server: HttpServer, random: Random): Promise<void> {
    await sleep(random.whole(0, 500));
    await server.run();
  }

  #victims(random: Random): Victims {
    return {
      proxies: [...this.#redis.proxies, ...this.#proxies],
      random,
      consumers: () => [...this.#consumers],
      producers: () => (this.#commander.pid === undefined ? [] : [this.#commander.pid]),
      mayKillReader: ({ form }) => form === 'lease',
      disturbed: () => {},
      grow: () => this.#growers.begin(random.branch()),
    };
  }

  /** How often each status came, and each reason why none came. */
  get answers(): Readonly<Record<string, number>> {
    return this.#books.counts;
  }

  /** How many deliveries HTTP clients have had. */
  get delivered(): number {
    return this.#books.deliveries.length;
  }

  /** Ends the storm: the remaining jobs are handled without faults, and the books are balanced. */
  async end(): Promise<Balance[]> {
    await Promise.all([...this.#publishers, this.#commander].map((one) => one.stop()));
    for (const bug of await this.#growers.ended(CALM_MS)) this.#books.bug(bug);
    this.#isStormy = false;
    const client = await this.#redis.client();
    const remains = () => Promise.all(QUEUES.map((queue) => remainsOf(client, nameOf(queue))));
    await until(async () => (await remains()).every(({ present }) => present.size === 0), CALM_MS).catch(async () => {
      const left = (await remains()).map(({ present }) => present.size);
      this.#books.bug(`${left} jobs are still there although all is calm`);
    });
    this.#isOver = true;
    await Promise.all(this.#pollers.map((poller) => poller.stop()));
    for (const consumer of this.#consumers) consumer.signal('drain', 'SIGTERM');
    await Promise.race([Promise.all(this.#slots), sleep(10_000)]);
    for (const consumer of this.#consumers) await consumer.kill();
    await Promise.all(this.#slots);
    for (const server of this.#servers) await server.stop(false);
    return this.#balance(await remains());
  }

  async #balance(remains: readonly Remains[]): Promise<Balance[]> {
    const { handlings, corrupt } = readLog(readFileSync(this.#log, 'utf8'));
    if (corrupt.length > 0) this.#books.bug(`payloads were not whole: ${corrupt.slice(0, 3)}`);
    const connection = new Connection(this.#redis.directUrl);
    const inspector = new Inspector(connection);
    const balances: Balance[] = [];
    for (const [i, queue] of QUEUES.entries()) {
      const left = remains[i] as Remains;
      const stored = await inspector.show(nameOf(queue), [...left.present, ...left.dead]);
      const isShared = queue === 'both';
      const jobs = stored.flatMap((job) => job ?? []);
      balances.push(this.#books.balance(queue, isShared ? handlings : [], left, jobs, isShared));
    }
    connection.close();
    const logs = [this.#errors, ...this.#servers.map(({ log }) => log)];
    const traces = logs.flatMap((file) => readFileSync(file, 'utf8').match(/^ +at .*/gm) ?? []);
    balances[0]?.violations.push(
      ...this.#books.bugs,
      ...this.#servers.flatMap(({ bugs }) => bugs),
      ...traces.slice(0, 3).map((line) => `a stack trace:${line}`),
    );
    console.log('answers:', this.#books.counts);
    return balances;
  }

  /** Copies the logs to a directory that stays. Returns the directory. */
  keep(): string {
    const directory = mkdtempSync(join(tmpdir(), 'delayq-chaos-http-'));
    cpSync(this.#directory, directory, { recursive: true });
    for (const [n, { log }] of this.#servers.entries()) cpSync(log, join(directory, `server-${n}`));
    return directory;
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    for (const consumer of this.#consumers) await consumer.kill();
    for (const server of this.#servers) await server.kill();
    for (const proxy of this.#proxies) await proxy.stop();
    await this.#redis.stop();
  }
}
