import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster as Client, Redis } from 'ioredis';
import { Cluster } from '../support/cluster.js';
import { tagsOf } from '../support/partitions.js';
import { FaultyProxy } from '../support/proxy.js';
import { key } from '../support/redis.js';
import { Sentinels } from '../support/sentinel.js';
import { Server } from '../support/server.js';
import type { Random } from './random.js';

/** Strikes Redis. Resolves when that is over, and all servers are well again. */
interface RedisFault {
  readonly strike: (random: Random) => Promise<unknown>;
  /** Redis may lose what it did shortly before, and until this is over, if it was not on every replica. */
  readonly forgets?: boolean;
}

/** The Redis of a storm: one server, a cluster, or servers with Sentinels. */
export interface Deployment {
  /** Where clients connect, through the proxies. */
  readonly url: string;
  /** The same without proxies, if clients can do without. */
  readonly directUrl: string;
  readonly proxies: readonly FaultyProxy[];
  readonly servers: readonly Server[];
  /** What can strike it, by name. */
  readonly faults: Readonly<Record<string, RedisFault>>;
  /** A plain client of all keys, now. */
  client(): Promise<Redis | Client>;
  /** The server that has the keys of a queue now. */
  ownerOf(queue: string): Promise<Server>;
  stop(): Promise<unknown>;
}

/** How often each fault of Redis strikes in a storm, as weights. */
export const ONE_SERVER_STORM = {
  'SCRIPT FLUSH': 4,
  'CLIENT KILL': 3,
  'CLIENT PAUSE': 2,
  'DEBUG SLEEP': 2,
  'Redis full': 3,
  'freeze Redis': 2,
  'kill Redis': 3,
};

export const CLUSTER_STORM = {
  'SCRIPT FLUSH': 2,
  'CLIENT KILL': 2,
  'node full': 1,
  'freeze master': 2,
  'freeze replica': 1,
  'restart master': 2,
  'kill master': 3,
  'CLUSTER FAILOVER': 3,
  'move slot': 4,
};

export const SENTINEL_STORM = {
  'SCRIPT FLUSH': 2,
  'CLIENT KILL': 2,
  'node full': 1,
  'freeze primary': 2,
  'kill replica': 1,
  'kill Sentinel': 1,
  'kill primary': 3,
  'SENTINEL FAILOVER': 3,
};

const ARGS = ['--appendonly', 'yes', '--enable-debug-command', 'yes', '--appendfsync'];

/** If another fault has stopped the server, this call waits too. The fault counts anyway. */
const ask = (server: Server, ...call: [string, ...string[]]) =>
  Promise.race([server.admin.call(...call).catch(() => {}), sleep(3_000)]);

const flush = (server: Server) => ask(server, 'SCRIPT', 'FLUSH');
const killClients = (server: Server) => ask(server, 'CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');

async function fill(server: Server, random: Random): Promise<void> {
  await ask(server, 'CONFIG', 'SET', 'maxmemory', '1mb');
  await sleep(random.whole(100, 1_500));
  await ask(server, 'CONFIG', 'SET', 'maxmemory', '0');
}

async function freeze(server: Server, ms: number): Promise<void> {
  server.signal('SIGSTOP');
  await sleep(ms);
  server.signal('SIGCONT');
}

async function restart(server: Server, afterMs: number): Promise<void> {
  await server.end('SIGKILL');
  await sleep(afterMs);
  await server.run();
}

/** One server behind a proxy. */
export async function oneServer(appendfsync: 'always' | 'everysec' = 'always'): Promise<Deployment> {
  const server = await Server.start({ args: [...ARGS, appendfsync] });
  const proxy = await FaultyProxy.start(server.socket);
  return {
    url: proxy.url,
    directUrl: server.url,
    proxies: [proxy],
    servers: [server],
    client: async () => server.admin,
    ownerOf: async () => server,
    faults: {
      'SCRIPT FLUSH': { strike: () => flush(server) },
      'CLIENT KILL': { strike: () => killClients(server) },
      'CLIENT PAUSE': { strike: (random) => ask(server, 'CLIENT', 'PAUSE', String(random.whole(100, 2_000)), 'ALL') },
      'DEBUG SLEEP': { strike: (random) => ask(server, 'DEBUG', 'SLEEP', String(random.whole(1, 15) / 10)) },
      'Redis full': { strike: (random) => fill(server, random) },
      'freeze Redis': { strike: (random) => freeze(server, random.whole(100, 2_000)) },
      'kill Redis': {
        strike: (random) => restart(server, random.whole(0, 1_500)),
        forgets: appendfsync === 'everysec',
      },
    } satisfies Record<keyof typeof ONE_SERVER_STORM, RedisFault>,
    stop: () => Promise.all([server.stop(), proxy.stop()]),
  };
}

/** Three masters, each with a replica. `queues` are those whose slots move. */
export async function cluster(queues: readonly string[], appendfsync = 'always'): Promise<Deployment> {
  const redis = await Cluster.start({ replicas: 1, proxied: true, args: [...ARGS, appendfsync] });
  /** Strikes one of the masters, and waits until all is well. */
  const aMaster =
    (how: (master: Server, random: Random) => Promise<unknown>) =>
    async (random: Random): Promise<void> => {
      await redis.settled();
      await how(random.pick(await redis.masters()), random);
      await redis.settled();
    };
  return {
    url: redis.url,
    directUrl: redis.url,
    proxies: redis.proxies,
    servers: redis.nodes,
    client: async () => redis.admin,
    ownerOf: (queue) => redis.ownerOf(key(queue, 'pending')),
    faults: {
      'SCRIPT FLUSH': { strike: async () => Promise.all((await redis.masters()).map(flush)) },
      'CLIENT KILL': { strike: aMaster(killClients) },
      'node full': { strike: aMaster(fill) },
      // Up to twice the node timeout: some are replaced.
      'freeze master': {
        strike: aMaster((master, random) => freeze(master, random.whole(100, 4_000))),
        forgets: true,
      },
      'freeze replica': {
        strike: aMaster(async (master, random) => {
          const [replica] = await redis.replicasOf(master);
          if (replica) await freeze(replica, random.whole(100, 4_000));
        }),
      },
      'restart master': {
        strike: aMaster((master, random) => restart(master, random.whole(0, 1_000))),
        forgets: true,
      },
      'kill master': {
        strike: aMaster(async (master) => {
          await master.end('SIGKILL');
          await redis.settled();
          await master.run();
        }),
        forgets: true,
      },
      // It waits until the replica has everything.
      'CLUSTER FAILOVER': {
        strike: aMaster(async (master) => {
          const [replica] = await redis.replicasOf(master);
          if (replica) await redis.failover(replica);
        }),
      },
      'move slot': {
        strike: async (random) => {
          await redis.settled();
          const tags = await tagsOf(redis.admin, random.pick(queues));
          const slot = await redis.slotOf(key(random.pick(tags), 'pending'));
          await redis.migrate(slot, random.pick(await redis.masters()), random.whole(1, 4));
          await redis.settled();
        },
      },
    } satisfies Record<keyof typeof CLUSTER_STORM, RedisFault>,
    stop: () => redis.stop(),
  };
}

/** A primary, two replicas, three Sentinels. */
export async function withSentinels(): Promise<Deployment> {
  const redis = await Sentinels.start({ replicas: 2, proxied: true, args: [...ARGS, 'always'] });
  /** Strikes a server, and waits until all is well. */
  const aServer =
    (of: () => Promise<readonly Server[]>, how: (server: Server, random: Random) => Promise<unknown>) =>
    async (random: Random): Promise<void> => {
      await redis.settled();
      await how(random.pick(await of()), random);
      await redis.settled();
    };
  const primary = async () => [await redis.primary()];
  /** Long enough for the Sentinels to replace it. */
  const kill = async (server: Server, random: Random) => restart(server, random.pick([500, 6_000]));
  return {
    url: redis.url,
    directUrl: redis.url,
    proxies: redis.proxies,
    servers: redis.servers,
    client: async () => (await redis.primary()).admin,
    ownerOf: async () => {
      await redis.settled();
      return redis.primary();
    },
    faults: {
      'SCRIPT FLUSH': { strike: async () => Promise.all(redis.servers.map(flush)) },
      'CLIENT KILL': { strike: aServer(primary, killClients) },
      'node full': { strike: aServer(primary, fill) },
      'freeze primary': {
        strike: aServer(primary, (server, random) => freeze(server, random.whole(100, 6_000))),
        forgets: true,
      },
      'kill replica': { strike: aServer(() => redis.replicas(), kill) },
      'kill Sentinel': { strike: aServer(async () => redis.sentinels, kill) },
      'kill primary': { strike: aServer(primary, kill), forgets: true },
      'SENTINEL FAILOVER': { strike: aServer(primary, () => redis.failover()), forgets: true },
    } satisfies Record<keyof typeof SENTINEL_STORM, RedisFault>,
    stop: () => redis.stop(),
  };
}
