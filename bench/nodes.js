// Servers that can fail: a cluster, and a primary with replicas and Sentinels, set up as the guide says.
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { serve } from './processes.js';

const HOST = '127.0.0.1';
const SLOTS = 16_384;
const LONGEST_WAIT = 120_000;
/** What the Sentinels call the primary. */
const NAME = 'bench';

/** How long the others wait before they replace a server, ms. */
export const TIMEOUT = 2_000;

/** Asks until the answer is neither falsy nor an error. @template T @param {() => Promise<T>} what @returns {Promise<T>} */
async function until(what) {
  for (const end = performance.now() + LONGEST_WAIT; ; await sleep(20)) {
    const answer = await what().catch(() => undefined);
    if (answer) return answer;
    if (performance.now() > end) throw new Error(`the servers did not come to rest: ${what}`);
  }
}

/** A port that is free, as is the one 10,000 above it; below those that the system gives to clients. */
async function freePort() {
  const isFree = (port) =>
    new Promise((resolve) => {
      const server = createServer().once('error', () => resolve(false));
      server.listen(port, HOST, () => server.close(() => resolve(true)));
    });
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 12_000);
    if ((await isFree(port)) && (await isFree(port + 10_000))) return port;
  }
}

/** A server that can be killed, frozen and started again. Its files are in the directory of the rig. */
class Node {
  awake = false;
  #command;
  #shell;

  /** @param {import('./rig.js').Rig} rig @param {string[]} args @param {string} config its file, which it may rewrite */
  static async start(rig, args, config = '') {
    const port = await freePort();
    const directory = rig.file(`node-${port}`);
    mkdirSync(directory);
    writeFileSync(`${directory}/redis.conf`, config);
    const flags = ['--bind', HOST, '--port', String(port), '--dir', directory, '--save', '', '--loglevel', 'warning'];
    const node = new Node(port, ['redis-server', `${directory}/redis.conf`, ...flags, ...args]);
    await node.run();
    return node;
  }

  constructor(port, command) {
    this.port = port;
    this.#command = command;
    this.admin = new Redis({ host: HOST, port, retryStrategy: () => 50, maxRetriesPerRequest: null });
    this.admin.on('error', () => {});
  }

  async run() {
    this.#shell = serve(this.#command, { signal: 'KILL' });
    this.awake = true;
    const info = await until(() => this.admin.info('server'));
    this.pid = Number(/process_id:(\d+)/.exec(info)?.[1]);
  }

  /** @param {'SIGKILL' | 'SIGSTOP'} signal */
  strike(signal) {
    this.awake = false;
    process.kill(this.pid, signal);
    this.signal = signal;
  }

  /** Starts it again, or lets it go on. */
  async comeBack() {
    if (this.signal === 'SIGSTOP') {
      process.kill(this.pid, 'SIGCONT');
      this.awake = true;
    } else {
      this.#shell.stdin.end();
      await this.run();
    }
  }

  stop() {
    this.admin.disconnect();
    this.#shell.stdin.end();
  }

  async info() {
    return this.admin.info('replication');
  }
}

/** Masters, three unless said otherwise, and a replica of each, or none. */
export class ClusterNodes {
  /** The replicas of each master. */
  replicas = 1;

  /** @param {import('./rig.js').Rig} rig @param {{ masters?: number, replicas?: 0 | 1 }} [options] */
  static async start(rig, { masters = 3, replicas = 1 } = {}) {
    const args = ['--cluster-enabled', 'yes', '--cluster-node-timeout', String(TIMEOUT)];
    args.push('--cluster-require-full-coverage', 'no', '--repl-diskless-sync-delay', '0');
    const cluster = new ClusterNodes();
    cluster.replicas = replicas;
    const count = masters * (1 + replicas);
    cluster.nodes = await Promise.all(Array.from({ length: count }, () => Node.start(rig, args)));
    const [first, ...others] = cluster.nodes;
    for (const [n, { admin }] of cluster.nodes.entries()) {
      await admin.call('CLUSTER', 'SET-CONFIG-EPOCH', n + 1);
      const bound = (i) => Math.floor((i * SLOTS) / masters);
      if (n < masters) await admin.call('CLUSTER', 'ADDSLOTSRANGE', bound(n), bound(n + 1) - 1);
    }
    for (const { port } of others) await first.admin.call('CLUSTER', 'MEET', HOST, port);
    for (const [n, { admin }] of cluster.nodes.slice(masters).entries()) {
      const id = await cluster.nodes[n].admin.call('CLUSTER', 'MYID');
      await until(() => admin.call('CLUSTER', 'REPLICATE', id));
    }
    await cluster.settled();
    return cluster;
  }

  get url() {
    return `redis+cluster://${this.nodes.map(({ port }) => `${HOST}:${port}`).join(',')}`;
  }

  get peer() {
    return { cluster: this.nodes.map(({ port }) => ({ host: HOST, port })) };
  }

  /** [from, to, [ports of the master and its replicas]] as a node sees it. @param {Node} node */
  async #slots(node) {
    const slots = await node.admin.call('CLUSTER', 'SLOTS');
    return slots.map(([from, to, ...nodes]) => ({ from, to, ports: nodes.map(([, port]) => port) }));
  }

  /** The slot of a queue, its master and the replica. @param {string} queue */
  async of(queue) {
    const seer = this.nodes.find(({ awake }) => awake);
    const slot = await seer.admin.call('CLUSTER', 'KEYSLOT', `{${queue}}`);
    const { ports } = (await this.#slots(seer)).find(({ from, to }) => slot >= from && slot <= to);
    const [master, replica] = ports.map((port) => this.nodes.find((node) => node.port === port));
    return { slot, master, replica };
  }

  /** The masters. */
  async masters() {
    const ports = (await this.#slots(this.nodes[0])).map(({ ports }) => ports[0]);
    return this.nodes.filter(({ port }) => ports.includes(port));
  }

  /** Resolves when another node than `old` serves a slot: one master says so besides itself. */
  async replaced(old, slot) {
    await until(async () => {
      const others = this.nodes.filter((node) => node !== old && node.awake);
      const views = await Promise.all(others.map((node) => this.#slots(node)));
      const owners = views.map((view) => view.find(({ from, to }) => slot >= from && slot <= to)?.ports[0]);
      return owners.filter((port, i) => port !== old.port && others[i].port === port).length === 1;
    });
  }

  /** CLUSTER FAILOVER, to the replica. */
  async failover(queue) {
    const { replica } = await this.of(queue);
    await replica.admin.call('CLUSTER', 'FAILOVER');
  }

  /** Moves the slot of a queue to a master, ten keys a call, as redis-cli does. */
  async reshard(queue, to) {
    const { slot, master: from } = await this.of(queue);
    const [source, target] = await Promise.all([from, to].map(({ admin }) => admin.call('CLUSTER', 'MYID')));
    const set = ({ admin }, ...how) => admin.call('CLUSTER', 'SETSLOT', slot, ...how);
    await set(to, 'IMPORTING', source);
    await set(from, 'MIGRATING', target);
    for (;;) {
      const keys = await from.admin.call('CLUSTER', 'GETKEYSINSLOT', slot, 10);
      if (keys.length === 0) break;
      await from.admin.call('MIGRATE', HOST, to.port, '', 0, 60_000, 'REPLACE', 'KEYS', ...keys);
    }
    const others = (await this.masters()).filter((node) => node !== from && node !== to);
    for (const node of [to, from, ...others]) await set(node, 'NODE', target);
  }

  /** Resolves when all nodes run and agree, and all replicas are in sync. */
  async settled() {
    await until(async () => {
      const views = await Promise.all(
        this.nodes.map(async (node) => {
          const state = await node.admin.call('CLUSTER', 'INFO');
          const text = String(await node.admin.call('CLUSTER', 'NODES'));
          const lines = text.trim().split('\n');
          const well =
            lines.length === this.nodes.length && lines.every((line) => /\S+ \S+ (myself,)?(master|slave) /.test(line));
          if (!/cluster_state:ok/.test(state) || !well) return;
          if (/master_link_status:down|master_sync_in_progress:1/.test(await node.info())) return;
          const slots = (await this.#slots(node)).map(({ from, to, ports: [first, ...rest] }) =>
            [from, to, first, ...rest.sort()].join(' '),
          );
          return slots.sort().join();
        }),
      );
      return views[0] && views.every((view) => view === views[0]);
    });
  }

  stop() {
    for (const node of this.nodes) node.stop();
  }
}

/** A primary with two replicas, and three Sentinels. */
export class SentinelNodes {
  replicas = 2;

  /** @param {import('./rig.js').Rig} rig */
  static async start(rig) {
    const group = new SentinelNodes();
    const args = ['--min-replicas-to-write', '1', '--min-replicas-max-lag', '10', '--repl-diskless-sync-delay', '0'];
    const primary = await Node.start(rig, args);
    const follow = `replicaof ${HOST} ${primary.port}\n`;
    group.nodes = [primary, await Node.start(rig, args, follow), await Node.start(rig, args, follow)];
    // Sentinels look at once, and then every ten seconds only.
    await until(async () => [...(await primary.info()).matchAll(/state=online/g)].length === 2);
    const config = [
      `sentinel monitor ${NAME} ${HOST} ${primary.port} 2`,
      `sentinel down-after-milliseconds ${NAME} ${TIMEOUT}`,
      `sentinel failover-timeout ${NAME} 5000\n`,
    ].join('\n');
    group.sentinels = await Promise.all([1, 2, 3].map(() => Node.start(rig, ['--sentinel'], config)));
    await group.settled();
    return group;
  }

  get url() {
    return `redis+sentinel://${this.sentinels.map(({ port }) => `${HOST}:${port}`).join(',')}/${NAME}`;
  }

  get peer() {
    return { sentinels: this.sentinels.map(({ port }) => ({ host: HOST, port })), master: NAME };
  }

  async #named({ admin }) {
    const [, port] = await admin.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', NAME);
    return this.nodes.find((node) => node.port === Number(port));
  }

  async of() {
    return { slot: 0, master: await this.#named(this.sentinels[0]) };
  }

  async masters() {
    return [await this.#named(this.sentinels[0])];
  }

  /** Resolves when a Sentinel names another primary, which says so too. */
  async replaced(old) {
    await until(async () => {
      const named = await Promise.all(this.sentinels.map((sentinel) => this.#named(sentinel)));
      const primary = named.find((node) => node && node !== old);
      return primary && /role:master/.test(await primary.info());
    });
  }

  async failover() {
    await until(() => this.sentinels[0].admin.call('SENTINEL', 'FAILOVER', NAME));
  }

  /** Resolves when all Sentinels agree, and all other servers are replicas in sync. */
  async settled() {
    await until(async () => {
      const [primary, ...others] = await Promise.all(this.sentinels.map((sentinel) => this.#named(sentinel)));
      if (others.some((node) => node !== primary)) return false;
      const infos = await Promise.all(this.nodes.map((node) => node.info()));
      const well = infos.map((info, i) =>
        this.nodes[i] === primary
          ? [...info.matchAll(/state=online/g)].length === 2
          : /master_link_status:up/.test(info) && info.includes(`master_port:${primary.port}`),
      );
      const states = await Promise.all(this.sentinels.map(({ admin }) => viewOf(admin)));
      return well.every(Boolean) && states.every(Boolean);
    });
  }

  stop() {
    for (const node of [...this.nodes, ...this.sentinels]) node.stop();
  }
}

/** Whether a Sentinel finds all servers well, and knows the other two Sentinels. @param {Redis} admin */
async function viewOf(admin) {
  const fields = (list) => Object.fromEntries(list.map((name, i) => [name, list[i + 1]]).filter((_, i) => i % 2 === 0));
  const master = fields(await admin.call('SENTINEL', 'MASTER', NAME));
  const replicas = (await admin.call('SENTINEL', 'REPLICAS', NAME)).map(fields);
  const well = replicas.filter(({ flags }) => flags === 'slave').length === 2;
  return well && master.flags === 'master' && master['num-other-sentinels'] === '2';
}
