import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError } from '../index.js';
import { RefusalCounter } from './access/failures.js';
import { Gate } from './access/gate.js';
import { Guard } from './access/guard.js';
import { isLoopback, Origin } from './access/origin.js';
import { Watch } from './access/watch.js';
import { ADMIN_ROUTES, type Admin, type AdminCall } from './admin/routes.js';
import type { ApiCall, ApiRoute } from './api/call.js';
import { API_ROUTES } from './api/routes.js';
import { CLOCK, type Clock } from './http/clock.js';
import type { Exchange } from './http/exchange.js';
import { Figures } from './http/figures.js';
import { type HostPort, Listener } from './http/listener.js';
import { Log, type LogLevel } from './http/log.js';
import { Memory } from './http/memory.js';
import type { Patience } from './http/patience.js';
import { Refusal } from './http/refusal.js';
import { Router } from './http/router.js';
import { Pool, type PoolPlace } from './queues/pool.js';

/** The most bytes of bodies in memory. */
export const MAX_IN_FLIGHT = 256 * 1024 * 1024;

/** How long idle connections stay at the end, ms: clients may be writing to them, and do not repeat a PUT. */
const LAST_REQUESTS_MS = 200;

export interface ServerOptions {
  /** Each Redis by the name of its pool; the first is the default. */
  readonly pools: ReadonlyMap<string, PoolPlace>;
  readonly prefix: string;
  readonly listen: HostPort;
  readonly adminListen: HostPort;
  /** Further names by which clients on this machine may call the server. */
  readonly allowHosts: readonly string[];
  /** All requests come through a proxy that adds to X-Forwarded-For. */
  readonly trustProxy: boolean;
  readonly maxConnections: number;
  /** The most bytes of bodies in memory; default: 256 MiB. */
  readonly maxInFlight?: number | undefined;
  /** How long clients may take. */
  readonly patience?: Partial<Patience> | undefined;
  /** How long requests that run at the stop may take, ms. */
  readonly graceMs: number;
  readonly version: string;
  readonly logLevel: LogLevel;
  /** Writes to the log; false: nobody reads at the moment. */
  readonly log: (line: string) => boolean;
  readonly signal: AbortSignal;
  /** Called when both listeners accept connections. */
  readonly onReady?: (() => void) | undefined;
  /** The time by which tokens and clients are judged. */
  readonly clock?: Clock | undefined;
}

/** Both listeners, and what they share. */
export class Server {
  readonly #options: ServerOptions;
  readonly #log: Log;
  readonly #memory: Memory;
  readonly #figures = new Figures();
  readonly #pools: ReadonlyMap<string, Pool>;
  readonly #guard: Guard;
  readonly #watch: Watch;
  readonly #admin: Admin;
  readonly #apiRouter = new Router<ApiCall, ApiRoute>(API_ROUTES);
  readonly #adminRouter = new Router<AdminCall>(ADMIN_ROUTES);
  readonly #listeners = new Map<string, Listener>();

  constructor(options: ServerOptions) {
    this.#options = options;
    const { pools, prefix, allowHosts, trustProxy, signal, clock = CLOCK } = options;
    this.#memory = new Memory(options.maxInFlight ?? MAX_IN_FLIGHT);
    const log = new Log(options.log, options.logLevel, clock);
    const say = (text: string) => log.say(text);
    const shared = { prefix, figures: this.#figures, memory: this.#memory, signal };
    const pool = (name: string, place: PoolPlace) => new Pool(name, place, shared);
    this.#log = log;
    this.#pools = new Map([...pools].map(([name, place]) => [name, pool(name, place)]));
    const refused = new RefusalCounter(log);
    this.#guard = new Guard(this.#pools, new Origin(allowHosts, trustProxy), refused, clock);
    this.#watch = new Watch(this.#guard.rings.values(), say, clock);
    this.#admin = {
      guard: this.#guard,
      watch: this.#watch,
      refused,
      figures: this.#figures,
      memory: this.#memory,
      listeners: this.#listeners,
      running: () => this.#running.length,
      clock,
      version: options.version,
    };
  }

  /** Serves until the signal aborts, then stops. Resolves to the number of requests that were cut off. */
  async run(): Promise<number> {
    const { signal, listen, adminListen } = this.#options;
    await this.#watch.start();
    const [isLocal, adminIsLocal] = await Promise.all([listen, adminListen].map(isLocalPlace));
    if (!isLocal) await this.#requireToken('API', '--listen');
    if (!adminIsLocal) await this.#requireToken('admin', '--admin-listen');
    const gate = new Gate(this.#guard, isLocal === true);
    const adminGate = new Gate(this.#guard, adminIsLocal === true);
    await this.#listen('API', listen, (exchange) => this.#callApi(exchange, gate));
    await this.#listen('admin', adminListen, (exchange) => this.#callAdmin(exchange, adminGate));
    this.#options.onReady?.();
    if (!signal.aborted) await once(signal, 'abort');
    return this.#stop();
  }

  /** Throws `config` if a listener that others can reach would refuse them all, or let them all in. */
  async #requireToken(name: 'API' | 'admin', option: string): Promise<void> {
    // A Redis that does not answer may have tokens.
    if ([...this.#guard.rings.values()].some(({ count }) => count === undefined)) return;
    const right = name === 'admin' ? 'operate' : undefined;
    for (const { tokens } of this.#guard.rings.values()) {
      const all = await tokens.list();
      if (all.some(({ rights }) => right === undefined || rights.includes(right))) return;
    }
    throw new DelayqError('config', `the ${name} listener needs a token first`, {
      why: `other machines can reach it, and there is no token${right ? ` with the right ${right}` : ''}`,
      next: `make one with delayq token add ${right ? "'*' --rights operate" : 'NAMESPACE'}, or let ${option} be 127.0.0.1:PORT`,
    });
  }

  async #listen(
    name: 'API' | 'admin',
    place: HostPort,
    act: (exchange: Exchange) => Promise<void> | void,
  ): Promise<void> {
    const { maxConnections, signal, patience, clock } = this.#options;
    const listener = new Listener(
      { place, memory: this.#memory, maxConnections, signal, patience, clock },
      {
        handle: (exchange, refusal) => (refusal ? exchange.refuse(refusal) : exchange.attempt(() => act(exchange))),
        ended: (exchange) => {
          const delivered = !exchange.isGone;
          this.#figures.add(exchange, delivered);
          this.#log.request(exchange, delivered);
        },
        dropped: (address) => this.#admin.refused.add('connections', address),
      },
    );
    this.#listeners.set(name, listener);
    await listener.start().catch((cause: NodeJS.ErrnoException) => {
      // The port may be free soon, as of a server that is about to end: whoever restarts this one should try again.
      const code = cause.code === 'EADDRINUSE' ? 'temporary' : 'config';
      throw new DelayqError(code, `cannot listen for ${name} requests`, {
        why: cause.message,
        next: 'choose another address with --listen or --admin-listen',
      });
    });
    this.#log.say(`${name} on ${listener.url}`);
  }

  /**
   * Both listeners go on while what runs ends, so that load balancers see that /healthz is 503; then they close. New
   * requests do not make it longer.
   */
  async #stop(): Promise<number> {
    const { graceMs } = this.#options;
    this.#log.say(`stopping; requests that are running: ${this.#running.length}`);
    const listeners = [...this.#listeners.values()];
    const running = this.#running.map((exchange) => new Promise<unknown>((end) => exchange.onEnd(end)));
    const ended = Promise.all([...running, sleep(LAST_REQUESTS_MS)])
      .then(() => Promise.all(listeners.map((listener) => listener.stop())))
      .then(() => true);
    const isWhole = await Promise.race([ended, sleep(graceMs, false, { ref: false })]);
    const cut = isWhole ? 0 : this.#running.length;
    if (cut > 0)
      this.#log.say(`requests that had not ended after ${graceMs / 1000} s (--grace) and were cut off: ${cut}`);
    return cut;
  }

  /** Closes everything at once; the connections to Redis when the jobs that nobody has got are back. */
  async cut(): Promise<void> {
    this.#watch.stop();
    const listeners = [...this.#listeners.values()];
    const closed = Promise.all(listeners.map((listener) => listener.stop()));
    for (const listener of listeners) listener.cut();
    await closed;
    await Promise.all([...this.#pools.values()].map((pool) => pool.close()));
  }

  /** The requests that have not ended. */
  get #running(): Exchange[] {
    return [...this.#listeners.values()].flatMap(({ running }) => running);
  }

  /** Not async: 10,000 requests may wait, and would each keep its state. */
  #callApi(exchange: Exchange, gate: Gate): Promise<void> | void {
    if (exchange.path === '/healthz') return this.#health(exchange);
    const found = this.#apiRouter.match(exchange.method, exchange.path);
    if (!found) throw new Refusal(404, 'api not found');
    const { route, params } = found;
    exchange.route = route.path;
    if (exchange.method === 'GET' || exchange.method === 'DELETE') exchange.dropBody();
    const { health } = gate.poolOf(exchange, route);
    exchange.onFailure = health.failed;
    const act = () => {
      const admitted = gate.admit(exchange, params.ns, route);
      const handle = (pool: Pool) => route.handle({ exchange, params, pool });
      return admitted instanceof Promise ? admitted.then(handle) : handle(admitted);
    };
    if (!health.isDown || !route.right) return act();
    // Before its token is looked at, which may need Redis, too.
    return health.check(Number.parseInt(exchange.query.get('timeout') ?? '', 10) > 0).then(act);
  }

  async #callAdmin(exchange: Exchange, gate: Gate): Promise<void> {
    if (exchange.path === '/healthz') return this.#health(exchange);
    const found = this.#adminRouter.match(exchange.method, exchange.path.replace(/(.)\/$/, '$1'));
    if (!found) throw new Refusal(404, 'api not found');
    exchange.route = found.route.path;
    if (exchange.method === 'GET' || exchange.method === 'DELETE') exchange.dropBody();
    const only = await gate.admitOperator(exchange, found.params.ns);
    await found.route.handle({ exchange, params: found.params, admin: this.#admin, only });
  }

  /** 200 as long as the server takes requests; 503 once it stops. */
  #health(exchange: Exchange): void {
    exchange.route = '/healthz';
    const isStopping = this.#options.signal.aborted;
    exchange.answer(isStopping ? 503 : 200, { status: isStopping ? 'stopping' : 'ok' });
  }
}

/** Whether only this machine can reach a place. A name that has no address is reported when it is listened on. */
async function isLocalPlace({ host }: HostPort): Promise<boolean> {
  const addresses = await lookup(host, { all: true }).catch(() => []);
  return addresses.length > 0 && addresses.every(({ address }) => isLoopback(address));
}
