import { randomBytes } from 'node:crypto';
import { FaultyProxy } from './proxy.js';
import { freePort, Server, type ServerOptions } from './server.js';
import { until } from './until.js';

/** The name that Sentinels give to the primary. */
const NAME = 'delayq';

/** How to start servers with Sentinels. */
export interface SentinelOptions extends Pick<ServerOptions, 'args' | 'password'> {
  readonly replicas?: number;
  readonly sentinels?: number;
  /** How many Sentinels must find the primary down; by default most of them. */
  readonly quorum?: number;
  /** How long the primary may be silent before a Sentinel thinks that it is down, ms. */
  readonly downAfterMs?: number;
  readonly failoverTimeoutMs?: number;
  /** The login that Sentinels ask of clients and of each other. */
  readonly login?: { readonly user?: string; readonly password: string } | undefined;
  /** Whether there is a proxy before each server, at the address that clients, replicas and Sentinels know. */
  readonly proxied?: boolean;
  /** Where each server, and then each Sentinel, runs; by default all on 127.0.0.1. */
  readonly places?: readonly Pick<ServerOptions, 'host' | 'within'>[] | undefined;
}

/** A primary with replicas, and Sentinels that replace it when it is down, for one test. */
export class Sentinels {
  readonly name = NAME;
  /** The first primary, then its replicas. */
  readonly servers: readonly Server[];
  readonly sentinels: readonly Server[];
  readonly #proxies: ReadonlyMap<Server, FaultyProxy>;

  private constructor(
    servers: readonly Server[],
    sentinels: readonly Server[],
    proxies: ReadonlyMap<Server, FaultyProxy>,
  ) {
    this.servers = servers;
    this.sentinels = sentinels;
    this.#proxies = proxies;
  }

  static async start(options: SentinelOptions = {}): Promise<Sentinels> {
    const { replicas = 1, sentinels: count = 3, places = [], args = [], proxied = false, password } = options;
    const servers: Server[] = [];
    const sentinels: Server[] = [];
    const proxies = new Map<Server, FaultyProxy>();
    const group = () => new Sentinels(servers, sentinels, proxies);
    const at = ({ host, port }: Server | FaultyProxy) => `${host} ${port}`;
    try {
      for (let n = 0; n <= replicas; n++) {
        const port = await freePort();
        const proxy = proxied ? await FaultyProxy.start(port) : undefined;
        const primary = servers[0] && (proxies.get(servers[0]) ?? servers[0]);
        const server = await Server.start({
          port,
          password,
          ...places[n],
          // A file, as Sentinels make a server write down whom it follows.
          config: primary ? `replicaof ${at(primary)}\n` : '',
          args: [
            ...(proxy ? ['--replica-announce-ip', proxy.host, '--replica-announce-port', String(proxy.port)] : []),
            ...args,
          ],
        });
        servers.push(server);
        if (proxy) proxies.set(server, proxy);
      }
      // Sentinels look at once, and then every ten seconds only.
      const online = RegExp(`connected_slaves:${replicas}\\b(?!(.|\\n)*state=(?!online))`);
      await until(async () => online.test(String(await servers[0]?.admin.info('replication'))));
      const config = configOf(at(proxies.get(servers[0] as Server) ?? (servers[0] as Server)), options);
      const planned: Planned[] = [];
      for (let n = 0; n < count; n++) {
        const place = places[servers.length + n];
        const { host = '127.0.0.1' } = place ?? {};
        planned.push({ id: randomBytes(20).toString('hex'), place, host, port: await freePort() });
      }
      const starting = planned.map(({ place, port }, n) =>
        Server.start({
          port,
          ...options.login,
          ...place,
          config: config + acquaintances(planned, n),
          args: ['--sentinel'],
        }),
      );
      for (const started of await Promise.allSettled(starting))
        if (started.status === 'fulfilled') sentinels.push(started.value);
      await Promise.all(starting);
      await group().settled();
    } catch (error) {
      await group().stop();
      throw error;
    }
    return group();
  }

  /** The Sentinels and the name of the primary, as one URL. */
  get url(): string {
    const login = this.servers[0]?.password === undefined ? '' : `:${encodeURIComponent(this.servers[0].password)}@`;
    return `redis+sentinel://${login}${this.sentinels.map(({ host, port }) => `${host}:${port}`).join(',')}/${NAME}`;
  }

  /** The proxies before the servers, in their order. None unless asked for. */
  get proxies(): FaultyProxy[] {
    return [...this.#proxies.values()];
  }

  proxyOf(server: Server): FaultyProxy {
    return this.#proxies.get(server) as FaultyProxy;
  }

  /** The primary that the Sentinels name. Throws while they disagree. */
  async primary(): Promise<Server> {
    const named = await Promise.all(
      this.#awake.map(async ({ admin }) => Number(((await ask(admin, 'GET-MASTER-ADDR-BY-NAME')) as string[])[1])),
    );
    const primary = this.servers.find((server) => this.#portOf(server) === named[0]);
    if (!primary || new Set(named).size > 1) throw new Error(`Sentinels name the ports ${named} as the primary`);
    return primary;
  }

  /** The other running servers. */
  async replicas(): Promise<Server[]> {
    const primary = await this.primary();
    return this.servers.filter((server) => server !== primary && server.isAwake);
  }

  get #awake(): Server[] {
    return this.sentinels.filter(({ isAwake }) => isAwake);
  }

  #portOf(server: Server): number {
    return this.#proxies.get(server)?.port ?? server.port;
  }

  /**
   * Resolves when all running Sentinels know each other and agree on a primary that runs, and all other running servers
   * are its replicas, in sync. After a failover this takes ten seconds: so long a primary that came back is left alone.
   * After one that failed they wait as long before the next, on a busy machine more than once.
   */
  async settled(ms = 120_000): Promise<void> {
    await until(async () => {
      const primary = await this.primary().catch(() => undefined);
      if (!primary?.isAwake) return false;
      const replicas = this.servers.filter((server) => server !== primary && server.isAwake);
      // One that has just woken up may still be slow.
      const roleOf = ({ admin }: Server) => admin.info('replication').catch(() => '');
      if (!/^role:master/m.test(await roleOf(primary))) return false;
      for (const replica of replicas) if (!/^master_link_status:up/m.test(await roleOf(replica))) return false;
      const views = await Promise.all(this.#awake.map((sentinel) => this.#isSettled(sentinel, replicas)));
      return views.every((view) => view);
    }, ms);
  }

  async #isSettled({ admin }: Server, replicas: readonly Server[]): Promise<boolean> {
    const master = fieldsOf((await ask(admin, 'MASTER')) as string[]);
    if (master.flags !== 'master' || Number(master['num-other-sentinels']) < this.sentinels.length - 1) return false;
    const known = ((await ask(admin, 'REPLICAS')) as string[][]).map(fieldsOf);
    // What they know of the link of a replica may be ten seconds old.
    const good = known.filter(({ flags }) => flags === 'slave').map(({ port }) => Number(port));
    return replicas.every((replica) => good.includes(this.#portOf(replica)));
  }

  /** Makes the Sentinels promote a replica, by SENTINEL FAILOVER. Resolves with it, when all of them name it. */
  async failover(): Promise<Server> {
    const before = await this.primary();
    const [sentinel] = this.#awake;
    // It is refused while no replica is known to be good.
    await until(() => ask((sentinel as Server).admin, 'FAILOVER').catch(() => false));
    await until(async () => (await this.primary().catch(() => before)) !== before);
    return this.primary();
  }

  async stop(): Promise<void> {
    await Promise.all([...this.servers, ...this.sentinels, ...this.proxies].map((one) => one.stop()));
  }
}

/** A Sentinel that is to be started. */
interface Planned {
  /** What Sentinels know each other by. */
  readonly id: string;
  readonly place: Pick<ServerOptions, 'host' | 'within'> | undefined;
  readonly host: string;
  readonly port: number;
}

/** What one of several Sentinels writes down of the others when it has heard of them, which takes seconds. */
function acquaintances(all: readonly Planned[], own: number): string {
  const lines = all.map(({ id, host, port }, n) =>
    n === own ? `sentinel myid ${id}\n` : `sentinel known-sentinel ${NAME} ${host} ${port} ${id}\n`,
  );
  return lines.join('');
}

const ask = (admin: Server['admin'], what: string) => admin.call('SENTINEL', what, NAME);

/** The fields of an answer such as [name, value, name, value]. */
function fieldsOf(list: readonly string[]): Record<string, string> {
  return Object.fromEntries(list.flatMap((name, n) => (n % 2 ? [] : [[name, list[n + 1] as string]])));
}

function configOf(primary: string, options: SentinelOptions): string {
  const { sentinels = 3, quorum = Math.floor(sentinels / 2) + 1, downAfterMs = 2_000 } = options;
  const { failoverTimeoutMs = 5_000, password, login } = options;
  const lines = [
    `sentinel monitor ${NAME} ${primary} ${quorum}`,
    `sentinel down-after-milliseconds ${NAME} ${downAfterMs}`,
    `sentinel failover-timeout ${NAME} ${failoverTimeoutMs}`,
    ...(password === undefined ? [] : [`sentinel auth-pass ${NAME} "${password}"`]),
  ];
  if (login?.user !== undefined) {
    lines.push(
      'user default off',
      `user ${login.user} on ">${login.password}" ~* &* +@all`,
      `sentinel sentinel-user ${login.user}`,
    );
  }
  if (login) lines.push(`sentinel sentinel-pass "${login.password}"`);
  return `${lines.join('\n')}\n`;
}
