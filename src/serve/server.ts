import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Clock, DelayqError, realClock } from '../internal.js';
import { RefusalCounter } from './access/failures.js';
import { Gate } from './access/gate.js';
import { Keyring } from './access/keyring.js';
import { isLoopback, Origin } from './access/origin.js';
import type { Admin, AdminCall } from './admin/call.js';
import type { ApiCall, ApiRoute, Defaults } from './api/call.js';
import type { Exchange, Patience } from './http/exchange.js';
import { Figures } from './http/figures.js';
import { type HostPort, Listener } from './http/listener.js';
import { framesOf, Log, type LogLevel } from './http/log.js';
import { Memory } from './http/memory.js';
import { Refusal } from './http/refusal.js';
import { checkQuery, type Route, Router } from './http/router.js';
import { Pool, type PoolPlace } from './queues/pool.js';
import { ADMIN_ROUTES, API_ROUTES } from './routes.js';

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
  /** What publishes have that name none. */
  readonly defaults: Defaults;
  readonly maxConnections: number;
  /** The most bytes of bodies in memory; default: 256 MiB. */
  readonly maxInFlight?: number | undefined;
  /** How long clients may take. */
  readonly patience?: Partial<Patience> | undefined;
  /** How long requests that run at the stop may take, ms. */
  readonly graceMs: number;
  readonly version: string;
  readonly logLevel: LogLevel;
  /** Writes a line to the log; false: its reader is too slow at the moment. */
  readonly log: (line: string) => boolean;
  readonly signal: AbortSignal;
  /** Called when both listeners accept connections. */
  readonly onReady?: (() => void) | undefined;
  /** For all decisions by time; tests move it. */
  readonly clock?: Clock | undefined;
}

/** Both listeners, and what they share. */
export class Server {
  readonly #options: ServerOptions;
  readonly #log: Log;
  readonly #memory: Memory;
  readonly #figures = new Figures();
  readonly #pools: readonly Pool[];
  readonly #refused: RefusalCounter;
  readonly #gate: Gate;
  readonly #admin: Admin;
  readonly #apiRouter = new Router<ApiCall, ApiRoute>(API_ROUTES);
  readonly #adminRouter = new Router<AdminCall>(ADMIN_ROUTES);
  readonly #listeners = new Map<string, Listener>();

  constructor(options: ServerOptions) {
    this.#options = options;
    const { pools, prefix, allowHosts, trustProxy, signal, version, clock = realClock } = options;
    const memory = new Memory(options.maxInFlight ?? MAX_IN_FLIGHT);
    const figures = this.#figures;
    this.#memory = memory;
    this.#log = new Log(options.log, options.logLevel, clock);
    this.#pools = [...pools].map(([name, place]) => new Pool(name, place, { prefix, figures, memory, signal }));
    const rings = new Map(this.#pools.map((pool) => [pool.name, new Keyring(pool, clock)]));
    const refused = new RefusalCounter(this.#log);
    this.#refused = refused;
    this.#gate = new Gate(rings, new Origin(allowHosts, trustProxy), refused, clock);
    const [listeners, running] = [this.#listeners, () => this.#running.length];
    this.#admin = { rings, refused, figures, memory, listeners, running, clock, version };
  }

  /** Serves until the signal aborts, then stops. Resolves to the number of requests that were cut off. */
  async run(): Promise<number> {
    const { signal, listen, adminListen } = this.#options;
    const { rings, isLocal } = this.#gate;
    await Promise.all([...rings.values()].map((ring) => ring.watch((text) => this.#log.say(text))));
    for (const [name, place] of [['API', listen] as const, ['admin', adminListen] as const]) {
      isLocal[name] = await isLocalPlace(place);
      if (!isLocal[name]) await this.#requireToken(name);
    }
    await this.#listen('API', listen, (exchange) => this.#callApi(exchange));
    await this.#listen('admin', adminListen, (exchange) => this.#callAdmin(exchange));
    this.#options.onReady?.();
    if (!signal.aborted) await once(signal, 'abort');
    return this.#stop();
  }

  /** Throws `config` if a listener that others can reach would refuse them all, or let them all in. */
  async #requireToken(name: 'API' | 'admin'): Promise<void> {
    const rings = [...this.#gate.rings.values()];
    // A Redis that does not answer may have tokens.
    if (rings.some(({ count }) => count === undefined)) return;
    const [option, right] = name === 'admin' ? (['--admin-listen', 'operate'] as const) : ['--listen'];
    for (const { tokens } of rings) {
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
    const listener = new Listener({
      ...{ place, memory: this.#memory, maxConnections, signal, patience, clock },
      handle: (exchange, refusal) => (refusal ? exchange.refuse(refusal) : exchange.attempt(() => act(exchange))),
      ended: (exchange) => {
        const delivered = !exchange.isGone;
        this.#figures.add(exchange, delivered);
        this.#log.request(exchange, delivered);
      },
      dropped: (address) => this.#refused.add('connections', address),
    });
    this.#listeners.set(name, listener);
    await listener.start().catch((cause: NodeJS.ErrnoException) => {
      // The port may be free soon: another server may be about to end. So the service manager should try again.
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

  /** Closes everything at once; the connections to Redis when all undelivered jobs are back. */
  async cut(): Promise<void> {
    for (const ring of this.#gate.rings.values()) ring.stopWatching();
    const listeners = [...this.#listeners.values()];
    const closed = Promise.all(listeners.map((listener) => listener.stop()));
    for (const listener of listeners) listener.cut();
    await closed;
    await Promise.all(this.#pools.map((pool) => pool.close()));
  }

  /** The requests that have not ended. */
  get #running(): Exchange[] {
    return [...this.#listeners.values()].flatMap(({ running }) => running);
  }

  /** Finds the route of a request, and the parameters in its path. Throws a refusal (404) if there is none. */
  #routed<C, R extends Route<C>>(exchange: Exchange, router: Router<C, R>, path = exchange.path) {
    const found = router.match(exchange.method, path);
    if (!found) throw new Refusal(404, 'api not found');
    exchange.route = found.route.path;
    checkQuery(found.route, exchange.query);
    if (!found.route.readsBody) exchange.dropBody();
    return found;
  }

  /** Not async: 10,000 requests may wait, and would each keep its state. */
  #callApi(exchange: Exchange): Promise<void> | void {
    if (exchange.path === '/healthz') return this.#health(exchange);
    const { route, params } = this.#routed(exchange, this.#apiRouter);
    const { health } = this.#gate.poolOf(exchange, route);
    const { defaults } = this.#options;
    exchange.onFailure = health.failed;
    const act = () => {
      const pool = this.#gate.admit(exchange, params.ns, route);
      if (!(pool instanceof Promise)) return route.handle({ exchange, params, pool, defaults });
      return pool.then((admitted) => route.handle({ exchange, params, pool: admitted, defaults }));
    };
    if (!health.isDown || !route.right) return act();
    // Before the check of its token, which may need Redis, too.
    return health.check(Number.parseInt(exchange.query.get('timeout') ?? '', 10) > 0).then(act);
  }

  async #callAdmin(exchange: Exchange): Promise<void> {
    if (exchange.path === '/healthz') return this.#health(exchange);
    const { route, params } = this.#routed(exchange, this.#adminRouter, exchange.path.replace(/(.)\/$/, '$1'));
    const only = await this.#gate.admitOperator(exchange, params.ns);
    await route.handle({ exchange, params, admin: this.#admin, only });
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

/**
 * Serves until the signal aborts and what runs has ended. Resolves to the number of requests that were cut off because
 * they took too long. Throws `config` if it cannot listen, or must not without a token; `internal` for an error that
 * nothing has caught.
 */
export async function serve(options: ServerOptions): Promise<number> {
  const server = new Server(options);
  const { warn } = console;
  // On each connection, ioredis warns of a password that Redis does not ask for.
  const warned = new Set<string>();
  console.warn = (text: string) => {
    if (!warned.has(text)) options.log(`delayq serve: ${text.replace(/^\[\w+\] /, '')}\n`);
    warned.add(text);
  };
  const failed = new Promise<never>((_, reject) => {
    process.setUncaughtExceptionCaptureCallback((error) => {
      // Its message may hold what no log may.
      const next = 'please report this as a bug';
      reject(new DelayqError('internal', 'delayq serve itself failed', { why: framesOf(error), next }));
    });
  });
  try {
    return await Promise.race([server.run(), failed]);
  } finally {
    await server.cut();
    process.setUncaughtExceptionCaptureCallback(null);
    console.warn = warn;
  }
}
