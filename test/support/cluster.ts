import { Cluster as Client } from 'ioredis';
import { FaultyProxy } from './proxy.js';
import { freePort, LIMITED, Server, type ServerOptions } from './server.js';
import { until } from './until.js';

/** How to start a cluster. */
export interface ClusterOptions extends Pick<ServerOptions, 'args' | 'password'> {
  readonly masters?: number;
  /** The replicas of each master. */
  readonly replicas?: number;
  /** How long a node may be silent before the others replace it, ms. */
  readonly nodeTimeoutMs?: number;
  /** The certificate of all nodes, as paths. Then they speak TLS only, with each other too. */
  readonly tls?: Certificate | undefined;
  /** Whether there is a proxy before each node, at the address that the node announces to clients and replicas. */
  readonly proxied?: boolean;
  /** Where each node runs, by default all on 127.0.0.1, and the certificate of each, if each has its own. */
  readonly places?: readonly (Pick<ServerOptions, 'host' | 'within'> & { readonly tls?: Certificate })[] | undefined;
}

/** The paths of a certificate, its key, and its CA. */
interface Certificate {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** Where a slot is taken from and brought to, step by step: tests may stop after any step. */
export interface Migration {
  readonly from: Server;
  readonly to: Server;
  /** The first two steps: from now on the source answers ASK for keys that it does not have. */
  begin(): Promise<void>;
  /** Moves some keys, all in one MIGRATE: by default the next `most`. Returns them. */
  move(most?: number, keys?: readonly string[]): Promise<string[]>;
  /** The last step: gives the slot to the target, also if keys are left behind. */
  finish(): Promise<void>;
  /** Gives up: the source keeps the slot and what was not moved yet. */
  abort(): Promise<void>;
}

/** What a node says of itself in CLUSTER NODES. */
interface Self {
  readonly isMaster: boolean;
  readonly epoch: number;
  readonly slots: readonly (readonly [number, number])[];
}

const SLOTS = 16_384;

/** A Redis Cluster for one test: real servers on 127.0.0.1. */
export class Cluster {
  /** The masters first, then their replicas, as they were at the start. */
  readonly nodes: readonly Server[];
  readonly #masters: number;
  readonly #options: ClusterOptions;
  readonly #proxies: ReadonlyMap<Server, FaultyProxy>;
  readonly #ids = new Map<Server, string>();
  #admin: Client | undefined;
  /** Ends with the last MIGRATE. */
  #moved: Promise<void> = Promise.resolve();

  private constructor(made: readonly Made[], masters: number, options: ClusterOptions) {
    this.nodes = made.map(({ node }) => node);
    this.#proxies = new Map(made.flatMap(({ node, proxy }) => (proxy ? [[node, proxy]] : [])));
    this.#masters = masters;
    this.#options = options;
  }

  static async start(options: ClusterOptions = {}): Promise<Cluster> {
    const { masters = 3, replicas = 0 } = options;
    const making = Array.from({ length: masters * (1 + replicas) }, (_, n) => startNode(n, options));
    const made = (await Promise.allSettled(making)).flatMap((one) => (one.status === 'fulfilled' ? one.value : []));
    const cluster = new Cluster(made, masters, options);
    try {
      await Promise.all(making);
      await cluster.#join();
      await cluster.settled();
    } catch (error) {
      await cluster.stop();
      throw error;
    }
    return cluster;
  }

  async #join(): Promise<void> {
    const [first, ...others] = this.nodes;
    await Promise.all(
      this.nodes.map(async (node, n) => {
        this.#ids.set(node, String(await node.admin.call('CLUSTER', 'MYID')));
        // The same epoch on two masters would have to be resolved first.
        await node.admin.call('CLUSTER', 'SET-CONFIG-EPOCH', n + 1);
        const bound = (i: number) => Math.floor((i * SLOTS) / this.#masters);
        if (n < this.#masters) await node.admin.call('CLUSTER', 'ADDSLOTSRANGE', bound(n), bound(n + 1) - 1);
      }),
    );
    for (const { host, port } of others) await first?.admin.call('CLUSTER', 'MEET', host, port);
    await Promise.all(
      this.nodes.slice(this.#masters).map(async (replica, n) => {
        const id = this.idOf(this.nodes[n % this.#masters] as Server);
        // It must have heard of its master.
        await until(() => replica.admin.call('CLUSTER', 'REPLICATE', id).catch(() => false));
      }),
    );
  }

  /** The masters at the start, as one URL. */
  get url(): string {
    const scheme = this.#hasTls ? 'rediss' : 'redis';
    const login = this.#options.password === undefined ? '' : `:${encodeURIComponent(this.#options.password)}@`;
    return `${scheme}://${login}${this.nodes.slice(0, this.#masters).map((node) => this.#placeOf(node))}`;
  }

  get #hasTls(): boolean {
    const { tls, places = [] } = this.#options;
    return Boolean(tls ?? places[0]?.tls);
  }

  /** The URL of one node. */
  urlOf(node: Server): string {
    return this.url.replace(/[^/@]*$/, this.#placeOf(node));
  }

  /** `host:port`, as URLs have it. */
  #placeOf(node: Server): string {
    const { host, port } = this.addressOf(node);
    return `${host.includes(':') ? `[${host}]` : host}:${port}`;
  }

  /** Where clients reach a node: it, or its proxy. */
  addressOf(node: Server): { host: string; port: number } {
    return { host: node.host, port: this.#proxies.get(node)?.port ?? node.port };
  }

  /** The proxies before the nodes, in their order. None unless asked for. */
  get proxies(): FaultyProxy[] {
    return [...this.#proxies.values()];
  }

  proxyOf(node: Server): FaultyProxy {
    return this.#proxies.get(node) as FaultyProxy;
  }

  idOf(node: Server): string {
    return this.#ids.get(node) as string;
  }

  /** A plain client of the whole cluster, to look at it without delayq, nor through proxies: those may be silent. */
  get admin(): Client {
    const { password } = this.#options;
    const announced = [...this.#proxies].map(([{ host, port }, proxy]) => [`${host}:${proxy.port}`, { host, port }]);
    this.#admin ??= new Client(
      this.nodes.map(({ host, port }) => ({ host, port })),
      {
        clusterRetryStrategy: () => 50,
        natMap: Object.fromEntries(announced),
        redisOptions: {
          protocol: 2,
          ...LIMITED,
          ...(password === undefined ? {} : { password }),
          ...(this.#hasTls ? { tls: { rejectUnauthorized: false } } : {}),
        },
      },
    ).on('error', () => {});
    return this.#admin;
  }

  /** The masters of now. Nodes that are frozen or killed do not count. */
  async masters(): Promise<Server[]> {
    const selves = await this.#selves();
    return selves.filter(([, { isMaster, slots }]) => isMaster && slots.length > 0).map(([node]) => node);
  }

  /** The running replicas of a master. */
  async replicasOf(master: Server): Promise<Server[]> {
    const replicas = (await linesOf(master)).filter((line) => line[3] === this.idOf(master)).map(([id]) => id);
    return this.nodes.filter((node) => node.isAwake && replicas.includes(this.idOf(node)));
  }

  /** The master of a key's slot. */
  async ownerOf(key: string): Promise<Server> {
    return this.ownerOfSlot(await this.slotOf(key));
  }

  async slotOf(key: string): Promise<number> {
    const node = this.nodes.find(({ isAwake }) => isAwake) as Server;
    return Number(await node.admin.call('CLUSTER', 'KEYSLOT', key));
  }

  /** The master of a slot: if two say so, the one that was elected last. */
  async ownerOfSlot(slot: number): Promise<Server> {
    const owners = (await this.#selves())
      .filter(([, { isMaster, slots }]) => isMaster && slots.some(([from, to]) => from <= slot && slot <= to))
      .sort(([, a], [, b]) => b.epoch - a.epoch);
    if (!owners[0]) throw new Error(`no running node has the slot ${slot}`);
    return owners[0][0];
  }

  async #selves(): Promise<[Server, Self][]> {
    const awake = this.nodes.filter(({ isAwake }) => isAwake);
    const asked = awake.map(async (node): Promise<[Server, Self][]> => {
      // A new replica of much data does not answer while it loads that.
      const self = await unlessLoading(selfOf(node));
      return self ? [[node, self]] : [];
    });
    return (await Promise.all(asked)).flat();
  }

  /**
   * Resolves when all running nodes agree: every slot is served, every replica is in sync, and those that are frozen or
   * killed have been replaced.
   */
  async settled(ms = 60_000): Promise<void> {
    await until(async () => {
      const awake = this.nodes.filter(({ isAwake }) => isAwake);
      const ids = awake.map((node) => this.idOf(node));
      const [first, ...views] = await Promise.all(awake.map((node) => unlessLoading(viewOf(node, ids))));
      return first !== undefined && views.every((view) => view === first);
    }, ms);
  }

  /** Prepares the migration of a slot, and does nothing yet. */
  async migration(slot: number, to: Server): Promise<Migration> {
    const from = await this.ownerOfSlot(slot);
    const set = (node: Server, ...how: string[]) => node.admin.call('CLUSTER', 'SETSLOT', slot, ...how);
    const login = this.#options.password === undefined ? [] : ['AUTH', this.#options.password];
    return {
      from,
      to,
      begin: async () => {
        await set(to, 'IMPORTING', this.idOf(from));
        await set(from, 'MIGRATING', this.idOf(to));
      },
      move: async (most = 100, keys) => {
        const some = keys ?? ((await from.admin.call('CLUSTER', 'GETKEYSINSLOT', slot, most)) as string[]);
        // Two nodes that migrate to each other at once wait for each other until both time out.
        const moving = this.#moved.then(async () => {
          if (some.length > 0)
            await from.admin.call('MIGRATE', to.host, to.port, '', 0, 60_000, ...login, 'KEYS', ...some);
        });
        this.#moved = moving.catch(() => {});
        await moving;
        return [...some];
      },
      finish: async () => {
        // In this order no node ever sees a slot without an owner.
        const others = (await this.masters()).filter((node) => node !== from && node !== to);
        for (const node of [to, from, ...others]) await set(node, 'NODE', this.idOf(to));
      },
      abort: async () => {
        for (const node of [to, from]) await set(node, 'STABLE');
      },
    };
  }

  /** Migrates a slot, a few keys at a time, as redis-cli does. */
  async migrate(slot: number, to: Server, keysAtOnce = 10): Promise<void> {
    const migration = await this.migration(slot, to);
    if (migration.from === to) return;
    await migration.begin();
    while ((await migration.move(keysAtOnce)).length > 0);
    await migration.finish();
  }

  /**
   * Makes a replica of `master` take over, by CLUSTER FAILOVER. Resolves with that replica, when it has the slots.
   * A master that is frozen or killed needs FORCE, or TAKEOVER if there is no majority.
   */
  async failover(replica: Server, how?: 'FORCE' | 'TAKEOVER'): Promise<void> {
    await until(async () => {
      // A replica may need a moment to see that it may ask.
      await replica.admin.call('CLUSTER', 'FAILOVER', ...(how ? [how] : [])).catch(() => {});
      const asked = performance.now();
      await until(async () => (await selfOf(replica)).isMaster || performance.now() - asked > 2_000);
      return (await selfOf(replica)).isMaster;
    });
  }

  async stop(): Promise<void> {
    this.#admin?.disconnect();
    await Promise.all([...this.nodes, ...this.proxies].map((one) => one.stop()));
  }
}

interface Made {
  readonly node: Server;
  readonly proxy: FaultyProxy | undefined;
}

async function startNode(n: number, options: ClusterOptions): Promise<Made> {
  const { nodeTimeoutMs = 2_000, args = [], password, proxied = false, places = [] } = options;
  const { tls = options.tls, ...place } = places[n % Math.max(1, places.length)] ?? {};
  const port = await freeNodePort();
  const proxy = proxied ? await FaultyProxy.start(port) : undefined;
  const node = await Server.start({
    port,
    password,
    ...place,
    args: [
      ...['--cluster-enabled', 'yes', '--cluster-node-timeout', String(nodeTimeoutMs)],
      ...(tls ? ['--port', '0', '--tls-port', String(port), '--tls-cluster', 'yes', '--tls-replication', 'yes'] : []),
      ...(tls ? ['--tls-cert-file', tls.cert, '--tls-key-file', tls.key, '--tls-ca-cert-file', tls.ca] : []),
      ...(tls ? ['--tls-auth-clients', 'optional'] : []),
      ...(place.host === undefined ? [] : ['--cluster-announce-ip', place.host]),
      ...(proxy ? ['--cluster-announce-port', String(proxy.port)] : []),
      ...args,
    ],
  });
  return { node, proxy };
}

/** A port whose bus port (10,000 above) is free too. */
async function freeNodePort(): Promise<number> {
  let port = 0;
  await until(async () => {
    port = await freePort();
    return freePort(port + 10_000).catch(() => false);
  });
  return port;
}

/** The lines of CLUSTER NODES as one node answers them: id, address, flags, master, …, config epoch, link, slots. */
async function linesOf(node: Server): Promise<string[][]> {
  const text = String(await node.admin.call('CLUSTER', 'NODES'));
  return text.split('\n').flatMap((line) => (line === '' ? [] : [line.split(' ')]));
}

async function unlessLoading<T>(asked: Promise<T>): Promise<T | undefined> {
  return asked.catch((error: Error) => {
    if (!error.message.startsWith('LOADING')) throw error;
    return undefined;
  });
}

async function selfOf(node: Server): Promise<Self> {
  const line = (await linesOf(node)).find((fields) => fields[2]?.includes('myself')) as string[];
  const [, , flags = '', , , , epoch] = line;
  return { isMaster: flags.includes('master'), epoch: Number(epoch), slots: slotsOf(line) };
}

/** The ranges of slots in a line, without those that are on their way. */
function slotsOf(line: readonly string[]): (readonly [number, number])[] {
  const ranges = line.slice(8).filter((range) => !range.startsWith('['));
  return ranges.map((range) => range.split('-').map(Number)).map(([from = 0, to = from]) => [from, to] as const);
}

/** What a node knows: who serves which slots, and who replicates whom. Undefined until it sees these up and the rest down. */
async function viewOf(node: Server, ids: readonly string[]): Promise<string | undefined> {
  const [lines, state, replication] = await Promise.all([
    linesOf(node),
    node.admin.call('CLUSTER', 'INFO'),
    node.admin.info('replication'),
  ]);
  if (!/cluster_state:ok/.test(String(state))) return;
  if (/master_link_status:down|master_sync_in_progress:1/.test(replication)) return;
  // Also those that it does not know well: handshake, noaddr, fail?.
  const up = lines.filter(([, , flags = '']) => /^(myself,)?(master|slave)$/.test(flags));
  if (up.length !== ids.length || !up.every(([id = '']) => ids.includes(id))) return;
  const served = up.flatMap(slotsOf).reduce((sum, [from, to]) => sum + to - from + 1, 0);
  if (served < SLOTS) return;
  return up
    .map((line) => [line[0], line[2]?.replace('myself,', ''), line[3], ...slotsOf(line)].join(' '))
    .sort()
    .join('\n');
}
