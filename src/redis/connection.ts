import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError, isDelayqError } from '../model/errors.js';
import { type Address, addressAt, addressOf } from '../net/address.js';
import type { Arg, Caller, Reply } from '../net/call.js';
import {
  DEADLINE_MS,
  ELSEWHERE,
  LIBRARY_NAMES,
  REPLACED,
  REPLICAS_MS,
  type SettingNames,
  wordOf,
} from '../net/errors.js';
import { SLOW_MS } from '../net/in-flight.js';
import { type Hooks, RedisNode } from '../net/node.js';
import type { Heard } from '../net/subscription.js';
import { type ConnectOptions, DEFAULT_URL } from '../net/url.js';
import type { Cluster } from './cluster.js';
import type { Sentinels } from './sentinel.js';

export type { Arg, Caller, Reply } from '../net/call.js';

/** When to check whether the server is a node of a cluster, ms: before other nodes are needed. */
const LOOK_MS = 1_000;

/** How often to leave a primary without enough replicas for its possible successor, ms. */
const LEAVE_MS = 1_000;

/** The pause before a call that lacks replicas is sent again, ms. */
const RETRY_MS = 50;

/**
 * A connection to Redis: to one server, to the primary that Sentinels name, or to all nodes of a Redis Cluster. It
 * connects on the first call, and again on the next call after it was lost. It sends a call again only if it was
 * certainly not executed, and every call ends within a time limit.
 */
export class Connection implements Caller {
  readonly #address: Address;
  readonly #names: SettingNames;
  /** The server of all calls, unless there is a cluster. */
  readonly #one: RedisNode;
  #cluster: Cluster | undefined;
  #sentinels: Sentinels | undefined;
  /** How often the servers of a list were tried. */
  #turn = 0;
  /** When a primary without enough replicas was left last (monotonic, ms). */
  #leftAt = Number.NEGATIVE_INFINITY;
  #left: Promise<void> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  /** Throws `usage` if `to` is invalid. Does not connect yet. */
  constructor(to?: string | ConnectOptions);
  /** As above. `names` are those of the settings, for errors. @internal */
  constructor(to?: string | ConnectOptions, names?: SettingNames);
  constructor(to: string | ConnectOptions = DEFAULT_URL, names: SettingNames = LIBRARY_NAMES) {
    this.#address = addressOf(to, names);
    this.#names = names;
    this.#one = new RedisNode(this.#address, names, this.#hooks());
  }

  /** The address without user and password. */
  get address(): string {
    return this.#address.shown;
  }

  /** Whether it is known to lead to a cluster. @internal */
  get sharded(): boolean {
    return this.#cluster !== undefined || this.#address.several?.kind === 'cluster';
  }

  #hooks(): Hooks {
    const { several, options } = this.#address;
    if (several?.kind === 'sentinel')
      return { patient: true, locate: () => this.#primary(), verify: async (ask) => this.#sentinels?.verify(ask) };
    // Reads the map of a cluster early: after the loss of the first node there would be no node to ask. Only a node
    // that can be left is worth the question; a cluster has no other databases than 0.
    const lookLater = () => {
      this.#timer = setTimeout(() => this.#look().catch(() => {}), LOOK_MS).unref();
    };
    const opened = options.path === undefined && !options.db ? lookLater : undefined;
    const verify = several?.kind === 'cluster' ? (ask: Caller['call']) => this.#requireCluster(ask) : undefined;
    return { opened, verify, ...(several && { locate: async () => this.#servers(several.places.length) }) };
  }

  /** The servers of a list, each time beginning with the next one. */
  #servers(count: number): Address[] {
    const places = this.#address.several?.places ?? [];
    const turn = this.#turn++;
    return places.map((_, i) => addressAt(this.#address, places[(turn + i) % count] as (typeof places)[0]));
  }

  async #primary(): Promise<Address[]> {
    if (!this.#sentinels) {
      const { Sentinels } = await import('./sentinel.js');
      const made = await Sentinels.of(this.#address, this.#names, () => this.#one.drop());
      this.#sentinels ??= made;
      if (this.#closed) this.#sentinels.close();
    }
    return [await this.#sentinels.locate()];
  }

  /** Checks that the server is a node of a cluster, and takes over its map. */
  async #requireCluster(ask: Caller['call']): Promise<void> {
    const map = await ask('CLUSTER', 'SLOTS').catch((error: DelayqError) => error.why ?? '');
    if (Array.isArray(map)) await this.#join(map);
    else if (/cluster support disabled/i.test(String(map))) {
      throw new DelayqError('config', `Redis at ${this.#one.address} is not a node of a cluster`, {
        why: String(map),
        next: `set a URL that begins with redis:// or rediss://, with ${this.#names.url}`,
      });
    }
  }

  /**
   * From now on calls go to the nodes of this map. It is empty if this node is in no cluster, or has left it: then
   * others of a list may know more.
   */
  async #join(map: Reply[]): Promise<void> {
    if (map.length === 0 && !this.#address.several) return;
    const cluster = await this.#asCluster();
    if (map.length > 0) cluster.take(map as Reply[][], this.#one);
  }

  async #asCluster(): Promise<Cluster> {
    if (!this.#cluster) {
      const { Cluster } = await import('./cluster.js');
      this.#cluster ??= new Cluster(this.#address, this.#names, this.#one);
      if (this.#closed) this.#cluster.close();
    }
    return this.#cluster;
  }

  /**
   * After the one server has refused a call with `error`: tries again `here`, or `over` the cluster that it turned out to
   * belong to. Throws the error if no other server may execute the call.
   */
  async #retry<T>(
    error: unknown,
    by: number,
    here: () => Promise<T>,
    over: (cluster: Cluster, refusal: unknown) => Promise<T>,
  ): Promise<T> {
    let refusal = error;
    if (!this.#cluster && REPLACED.has(wordOf(error))) {
      try {
        return await this.#retryHere(error, by, here);
      } catch (again) {
        if (REPLACED.has(wordOf(again))) throw again;
        refusal = again;
      }
    }
    if (!ELSEWHERE.has(wordOf(refusal))) throw refusal;
    return over(await this.#asCluster(), refusal);
  }

  /**
   * Repeats `attempt` until `by`, after the one server has refused with READONLY or NOREPLICAS: there may be another
   * primary at its address, or in the list; or its replicas need a moment to follow it.
   */
  async #retryHere<T>(refusal: unknown, by: number, attempt: () => Promise<T>): Promise<T> {
    const until = Math.min(by, performance.now() + REPLICAS_MS);
    const { several } = this.#address;
    // A list may not be left: its next server may be any other.
    const mayLeave = !several || several.kind === 'sentinel';
    let others = several?.places.length ?? 1;
    let failure = refusal;
    for (let n = 0; !this.#closed; n++) {
      const word = wordOf(failure);
      // Other calls on this connection are being refused as well: they must not be reported as lost.
      if (word === 'READONLY' && others-- > 0) await this.#one.drop(SLOW_MS);
      else if (word === 'NOREPLICAS' && mayLeave && performance.now() + RETRY_MS <= until) {
        if (n > 0) await sleep(RETRY_MS);
        await this.#leave();
      } else break;
      try {
        return await attempt();
      } catch (again) {
        failure = again;
      }
    }
    throw failure;
  }

  /**
   * Drops the connection to a primary without enough replicas, but not often. For some seconds a primary that was
   * replaced still takes itself for one; others only wait for their replicas.
   */
  #leave(): Promise<void> {
    const now = performance.now();
    if (now - this.#leftAt >= LEAVE_MS) {
      this.#leftAt = now;
      this.#left = this.#one.drop(SLOW_MS);
    }
    return this.#left;
  }

  /**
   * Connects now instead of on the first call. Throws within 6 s: `unreachable`; `refused` or `config` if Redis rejects
   * the connection; `config` if the server is not Redis, or a file for TLS cannot be used.
   */
  async connect(): Promise<void> {
    await this.#one.connect();
  }

  /**
   * Sends one command and returns its reply. On a cluster it goes to the node that owns its key. Throws `unreachable`
   * if there is no connection (nothing was sent), `unknown` if it was sent and no reply arrived in time, and another
   * code for an error reply of Redis.
   */
  async call(command: string, ...args: Arg[]): Promise<Reply> {
    if (this.#cluster) return this.#cluster.call(command, args);
    const by = performance.now() + DEADLINE_MS;
    try {
      return await this.#one.call(command, ...args);
    } catch (error) {
      const here = () => this.#one.callBy(by, command, args);
      const refusal = (error: unknown) => ({ node: this.#one, error });
      return this.#retry(error, by, here, (cluster, again) => cluster.call(command, args, by, refusal(again)));
    }
  }

  /**
   * Runs `act` on one connection, to the server that owns `key`, and returns its result. The calls of `act` throw what
   * {@link Connection.call} throws, and `unreachable` after a loss: they never use another connection, on which WAIT
   * would not cover what was written on this one. If the server refuses a call because another one owns the key, `act`
   * runs again on a connection to that one; so what refuses must be its first write.
   *
   * @internal
   */
  async pinned<T>(key: string, act: (caller: Caller) => Promise<T>): Promise<T> {
    if (this.#cluster) return this.#cluster.pinned(key, act);
    const attempt = async () => act(await this.#one.pin());
    const over = (cluster: Cluster) => cluster.pinned(key, act);
    try {
      return await attempt();
    } catch (error) {
      const word = wordOf(error);
      // WAIT has no key: a node of a cluster that is not the owner has answered it for itself.
      if (isDelayqError(error, 'temporary', 'config') && (REPLACED.has(word) || !ELSEWHERE.has(word))) {
        const cluster = await this.#look().catch(() => undefined);
        if (cluster && (await cluster.foundOwner(key)) !== this.#one) return over(cluster);
      }
      return this.#retry(error, performance.now() + DEADLINE_MS, attempt, over);
    }
  }

  /**
   * The primaries: of a cluster, all nodes that own slots; otherwise the one server. For calls that have no key.
   *
   * @internal
   */
  async nodes(): Promise<readonly Caller[]> {
    const cluster = await this.#look();
    return cluster ? cluster.owners() : [this.#one];
  }

  /** The cluster of the server, if it is a node of one. */
  async #look(): Promise<Cluster | undefined> {
    if (this.#cluster || this.#address.several?.kind === 'sentinel') return this.#cluster;
    const map = await this.#one.call('CLUSTER', 'SLOTS').catch((error: unknown) => {
      if (error instanceof DelayqError && ['unreachable', 'unknown', 'usage'].includes(error.code)) throw error;
      return undefined;
    });
    if (Array.isArray(map)) await this.#join(map);
    return this.#cluster;
  }

  /** The Sentinels that name the primary; undefined without them, or before the first call. @internal */
  get sentinels(): { readonly name: string; readonly nodes: readonly Caller[] } | undefined {
    return this.#sentinels;
  }

  /** Returns the time of Redis's clock, ms; of a cluster, that of the node that owns `key`, or of any. */
  async now(key?: string): Promise<number> {
    const time = key === undefined ? this.call('TIME') : this.pinned(key, (owner) => owner.call('TIME'));
    const [seconds, micros] = (await time) as [Buffer, Buffer];
    return Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
  }

  /**
   * Subscribes to channels on connections of their own, until `close()`. `heard` is called with the channel and each
   * message. Best effort: if one of the connections fails, or a channel belongs to another server by now, `alive()`
   * returns false.
   *
   * @internal
   */
  listen(channels: readonly string[], heard: Heard): { alive(): boolean; close(): void } {
    const cluster = this.#cluster;
    const ownerOf = (channel: string) => cluster?.ownerOf(channel) ?? this.#one;
    const owners = new Map(channels.map((channel) => [channel, ownerOf(channel)] as const));
    const listening = [...new Set(owners.values())].map((node) => {
      const own = channels.filter((channel) => owners.get(channel) === node);
      return { node, subscription: node.subscribe(own, heard) };
    });
    const alive = () =>
      cluster === this.#cluster &&
      listening.every(
        ({ node, subscription: { alive, address = node.address } }) => alive && address === node.address,
      ) &&
      channels.every((channel) => ownerOf(channel) === owners.get(channel));
    return {
      alive,
      close: () => {
        for (const { subscription } of listening) subscription.close();
      },
    };
  }

  /** Closes the connection. Calls that have no reply yet fail with `unknown`. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#one.close();
    this.#cluster?.close();
    this.#sentinels?.close();
  }

  /** Closes the connection: for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}
