import { setTimeout as sleep } from 'node:timers/promises';
import { isDelayqError } from '../model/errors.js';
import { within } from '../model/time.js';
import { type Address, addressAt } from '../net/address.js';
import type { Arg, Caller, Reply } from '../net/call.js';
import { DEADLINE_MS, REPLICAS_MS, type SettingNames, wordOf } from '../net/errors.js';
import { SLOW_MS } from '../net/in-flight.js';
import { type Hooks, RedisNode } from '../net/node.js';
import type { HostPort } from '../net/url.js';
import { slotOf, slotOfKey } from './slots.js';

/** Pauses before a call is sent again that no node has executed, ms. The last one repeats. */
const PAUSES_MS = [10, 20, 50, 100, 200];

/** The number of redirects to follow without a pause. */
const FREE_REDIRECTS = 2;

/** With less time than this for its reply, a call is not sent again: at its end the connection would be closed, ms. */
const LEAST_MS = 250;

/** How long a replaced node may take to answer its open calls, ms. */
const REPLACED_MS = 300;

/** How long a node may take to show its map of the cluster before another one is asked as well, ms. */
const STAGGER_MS = 200;

/** Words of replies to calls that were not executed, and may succeed after a pause. */
const LATER = new Set(['TRYAGAIN', 'CLUSTERDOWN', 'LOADING', 'MASTERDOWN', 'READONLY', 'NOREPLICAS']);

/** Where one call goes, while it is tried. */
interface Route {
  slot: number | undefined;
  readonly by: number;
  /** The next attempt goes to this node, after ASKING: ASK is about one attempt. */
  ask: RedisNode | undefined;
  attempts: number;
  /** Why the last attempt failed that had its full time. */
  failure?: unknown;
}

/** The nodes that serve a range of slots. */
interface Range {
  readonly from: number;
  readonly to: number;
  readonly node: RedisNode;
}

/**
 * A Redis Cluster: sends each call to the node that owns the slot of its key. It learns owners from MOVED, and from the
 * map of another node when one is slow or cannot be reached.
 *
 * Repeats only calls that were certainly not executed, and only within the time limit of the call. A lost reply is
 * `unknown`, as on one server. Redirects as in
 * https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/.
 */
export class Cluster {
  readonly #address: Address;
  readonly #names: SettingNames;
  /** By host and port. */
  readonly #nodes = new Map<string, RedisNode>();
  /** Keys of the nodes that were given: they stay known when the cluster does not mention them. */
  readonly #seeds: ReadonlySet<string>;
  /** Owners by slot, from MOVED or looked up in the map. */
  readonly #owners = new Map<number, RedisNode>();
  #map: readonly Range[] = [];
  #learning: Promise<void> | undefined;
  #closed = false;

  /** `first`: a connected node. */
  constructor(address: Address, names: SettingNames, first: RedisNode) {
    this.#address = address;
    this.#names = names;
    const { host = '', port = 0 } = first.at.options;
    this.#nodes.set(keyOf({ host, port }), first);
    first.becomeNode(this.#hooksOf(first));
    for (const place of address.several?.places ?? []) this.#nodeAt(place);
    this.#seeds = new Set(this.#nodes.keys());
  }

  /** Sends a call, by `by`. `refusal`: why `node` has refused it already. */
  async call(
    command: string,
    args: readonly Arg[],
    by = performance.now() + DEADLINE_MS,
    refusal?: { readonly node: RedisNode; readonly error: unknown },
  ): Promise<Reply> {
    const route: Route = { slot: slotOf(command, args), by, ask: undefined, attempts: 0 };
    if (refusal) await this.#learn(refusal.error, refusal.node, route);
    return this.#follow(route, (node, how) => node.callBy(by, command, args, how));
  }

  /** Runs `act` on one connection of the owner of `key`: again while its first call was refused. */
  async pinned<T>(key: string, act: (caller: Caller) => Promise<T>): Promise<T> {
    const route: Route = { slot: slotOfKey(key), by: performance.now() + DEADLINE_MS, ask: undefined, attempts: 0 };
    // WAIT has no key: any other node would answer it for itself.
    await this.foundOwner(key);
    return this.#follow(route, async (node, how) => act(await node.pin(how)));
  }

  async #follow<T>(
    route: Route,
    attempt: (node: RedisNode, how: { asking: boolean; patienceMs: number }) => Promise<T>,
  ): Promise<T> {
    for (;;) {
      const node = route.ask ?? this.#ownerOf(route.slot);
      const isShort = performance.now() + SLOW_MS > route.by;
      try {
        return await attempt(node, { asking: route.ask === node, patienceMs: SLOW_MS });
      } catch (error) {
        const { failure } = route;
        if (!isShort) route.failure = error;
        // Not "no connection in time", if there was hardly any.
        const isCut = isShort && isDelayqError(error, 'unreachable') && isDelayqError(failure, 'unreachable');
        await this.#learn(isCut ? failure : error, node, route);
      }
    }
  }

  /** Learns from an error where a call is to be sent next, and when. Throws it if the call may have been executed. */
  async #learn(error: unknown, node: RedisNode, route: Route): Promise<void> {
    route.ask = undefined;
    route.attempts += 1;
    const word = wordOf(error);
    const isUnreachable = isDelayqError(error, 'unreachable');
    if (word === 'MOVED' || word === 'ASK') {
      const [, slot = '', host = '', port = ''] = /^\w+ (\d+) (.*):(\d+)/.exec((error as { why: string }).why) ?? [];
      // Without a host it is that of the node which answered.
      const to = this.#nodeAt({ host: host || (node.at.options.host as string), port: Number(port) });
      route.slot = Number(slot);
      if (word === 'ASK') route.ask = to;
      else this.#owners.set(route.slot, to);
      if (route.attempts <= FREE_REDIRECTS) return;
    } else if (!LATER.has(word) && !isUnreachable) throw error;
    const pause = PAUSES_MS[Math.min(route.attempts, PAUSES_MS.length) - 1] as number;
    const last = word === 'NOREPLICAS' ? route.by - DEADLINE_MS + REPLICAS_MS : route.by - LEAST_MS;
    if (this.#closed || performance.now() + pause > last) throw error;
    // CLUSTERDOWN: perhaps only for this node, which has left the cluster or has come back empty.
    const isLost = isUnreachable || word === 'READONLY' || word === 'CLUSTERDOWN';
    if (isLost) await within(last - performance.now(), this.#readMap(node));
    await sleep(pause);
    if (performance.now() > last) throw error;
  }

  /** The known owner of a slot, or any node, which will redirect. */
  #ownerOf(slot: number | undefined): RedisNode {
    return this.#knownOwner(slot) ?? (this.#byHealth()[0] as RedisNode);
  }

  #knownOwner(slot: number | undefined): RedisNode | undefined {
    if (slot === undefined) return undefined;
    const known = this.#owners.get(slot) ?? this.#map.find(({ from, to }) => slot >= from && slot <= to)?.node;
    if (known) this.#owners.set(slot, known);
    return known;
  }

  /** All nodes that are known: those with a connection first, `last` at the end. */
  #byHealth(last?: RedisNode): RedisNode[] {
    const rank = (node: RedisNode) => (node === last ? 2 : node.connected ? 0 : 1);
    return [...this.#nodes.values()].sort((one, other) => rank(one) - rank(other));
  }

  #nodeAt(place: HostPort): RedisNode {
    const key = keyOf(place);
    let node = this.#nodes.get(key);
    if (!node) {
      node = new RedisNode(addressAt(this.#address, place), this.#names);
      node.becomeNode(this.#hooksOf(node));
      if (this.#closed) node.close();
      this.#nodes.set(key, node);
    }
    return node;
  }

  #hooksOf(node: RedisNode): Pick<Hooks, 'slow'> {
    const slow = async () => {
      await this.#readMap(node);
      const isReplaced = this.#map.length > 0 && !this.#map.some((range) => range.node === node);
      // In a planned failover it answers its open calls now; a frozen node does not.
      if (isReplaced) void node.drop(REPLACED_MS);
    };
    return { slow };
  }

  /** Reads the map of the cluster from any node; `doubted` only if there is no other. Never throws. */
  async #readMap(doubted?: RedisNode): Promise<void> {
    // In a microtask: a call to a slow node would read the map again at once.
    this.#learning ??= Promise.resolve()
      .then(() => this.#askForMap(doubted))
      .finally(() => {
        this.#learning = undefined;
      });
    await this.#learning;
  }

  async #askForMap(doubted?: RedisNode): Promise<void> {
    let isOver = false;
    const ask = async (node: RedisNode) => {
      // With its whole time limit: at the end of it the connection is closed, with all calls on it.
      const by = performance.now() + DEADLINE_MS;
      const reply = await node.callBy(by, 'CLUSTER', ['SLOTS'], { patienceMs: SLOW_MS });
      if ((reply as Reply[]).length === 0) throw new Error('it knows of no slots');
      if (!isOver) this.take(reply as Reply[][], node);
      isOver = true;
    };
    const asked = this.#byHealth(doubted);
    const answers: Promise<void>[] = [];
    // The node in doubt would tell its own view, if it answers at all.
    for (const node of asked.filter((one) => one !== doubted || asked.length === 1)) {
      const answer = ask(node);
      answers.push(answer);
      await within(
        STAGGER_MS,
        answer.catch(() => {}),
      );
      if (isOver || this.#closed) return;
    }
    await within(
      SLOW_MS,
      Promise.any(answers).catch(() => {}),
    );
    isOver = true;
  }

  /** Takes over the map of the cluster, the reply of CLUSTER SLOTS of one node. */
  take(reply: readonly Reply[][], teller: RedisNode): void {
    this.#owners.clear();
    this.#map = reply.map(([from, to, owner]) => ({
      from: Number(from),
      to: Number(to),
      node: this.#nodeAt(placeOf(owner as Reply[], teller)),
    }));
    // Replicas are the next owners: they can also show the map when all owners of now are gone.
    const mentioned = new Set(
      reply.flatMap(([, , ...nodes]) => nodes.map((node) => this.#nodeAt(placeOf(node as Reply[], teller)))),
    );
    for (const [key, node] of this.#nodes) {
      if (mentioned.has(node) || node.connected || this.#seeds.has(key)) continue;
      node.close({ replaced: true });
      this.#nodes.delete(key);
    }
  }

  /** The nodes that own slots, after a look at the map; or any node, if none knows of slots. */
  async owners(): Promise<RedisNode[]> {
    await this.#readMap();
    const owners = new Set(this.#map.map(({ node }) => node));
    return owners.size > 0 ? [...owners] : this.#byHealth().slice(0, 1);
  }

  /** The owner of the slot of `key`, after a look at the map if it is not known. */
  async foundOwner(key: string): Promise<RedisNode | undefined> {
    const slot = slotOfKey(key);
    if (!this.#knownOwner(slot)) await this.#readMap();
    return this.#knownOwner(slot);
  }

  /** The owner of the slot of `key`, as far as is known. */
  ownerOf(key: string): RedisNode {
    return this.#ownerOf(slotOfKey(key));
  }

  close(): void {
    this.#closed = true;
    for (const node of this.#nodes.values()) node.close();
  }
}

const keyOf = ({ host, port }: HostPort) => `${host}:${port}`;

/** The place of a node in the reply of CLUSTER SLOTS. Without a host it is that of the node which replied. */
function placeOf([host, port, , more]: readonly Reply[], teller: RedisNode): HostPort {
  const preferred = String(host ?? '');
  const pairs = (more as Reply[] | undefined)?.map(String) ?? [];
  // The node prefers a host name, but has none.
  const known = preferred === '?' ? pairs[pairs.indexOf('ip') + 1] : preferred;
  return { host: known || (teller.at.options.host as string), port: Number(port) };
}
