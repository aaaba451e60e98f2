import { DelayqError, isDelayqError } from '../model/errors.js';
import { printable } from '../model/text.js';
import { within } from '../model/time.js';
import { type Address, addressAt, type Several } from '../net/address.js';
import type { Caller, Reply } from '../net/call.js';
import { DEADLINE_MS, namesOfSentinels, type SettingNames } from '../net/errors.js';
import { noneReached } from '../net/faults.js';
import { RedisNode } from '../net/node.js';
import { sentinelAt } from '../net/sentinels.js';
import type { Subscription } from '../net/subscription.js';
import type { HostPort } from '../net/url.js';

/** How long to wait for further Sentinels after the first has answered, ms. */
const GRACE_MS = 100;

/** How often lost subscriptions are made again, ms. Also: when the first is made, so that short runs need none. */
const LISTEN_MS = 1_000;

/** Where the primary is, as one Sentinel sees it. */
interface Sighting extends HostPort {
  /** Each failover has a higher one. */
  readonly epoch: number;
}

/**
 * Sentinels that know where the primary is: asked before each connection, and listened to, so that a demoted primary
 * is left at once. As https://redis.io/docs/latest/develop/reference/sentinel-clients/ says.
 */
export class Sentinels {
  readonly name: string;
  readonly nodes: readonly RedisNode[];
  readonly #address: Address;
  readonly #names: SettingNames;
  readonly #moved: () => void;
  readonly #subscriptions = new Map<RedisNode, Subscription>();
  #found: Address | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  private constructor(address: Address, names: SettingNames, sentinels: readonly Address[], moved: () => void) {
    this.name = address.several?.sentinel?.name ?? '';
    this.#names = namesOfSentinels(names);
    this.nodes = sentinels.map((at) => new RedisNode(at, this.#names));
    this.#address = address;
    this.#moved = moved;
  }

  /**
   * Reads the login of the Sentinels of `address`. `moved` is called when another server has become the primary. Throws
   * `config` if the file of the password cannot be used.
   */
  static async of(address: Address, names: SettingNames, moved: () => void): Promise<Sentinels> {
    const { places } = address.several as Several;
    const sentinels = await Promise.all(places.map((place) => sentinelAt(address, place, names)));
    return new Sentinels(address, names, sentinels, moved);
  }

  /**
   * Returns where the primary is, by the latest view of a Sentinel. Throws `unreachable` if none answers, `config` if
   * none knows the name.
   */
  async locate(): Promise<Address> {
    const found = await this.#ask();
    const { db } = this.#address.options;
    const at = addressAt(this.#address, found);
    this.#found = db ? { ...at, shown: `${at.shown}/${db}` } : at;
    if (!this.#closed) this.#timer ??= setInterval(() => this.#listen(), LISTEN_MS).unref();
    return this.#found;
  }

  async #ask(): Promise<Sighting> {
    const by = performance.now() + DEADLINE_MS;
    const seen: Sighting[] = [];
    const asked = this.nodes.map(async (node) => seen.push(await this.#sightingOf(node, by)));
    const all = Promise.allSettled(asked);
    await Promise.any(asked).catch(() => {});
    if (seen.length > 0) await within(GRACE_MS, all);
    const [latest] = seen.sort((one, other) => other.epoch - one.epoch);
    if (latest) return latest;
    const failures = (await all).map((one) => (one as PromiseRejectedResult).reason as DelayqError);
    const telling = failures.find((error) => !isDelayqError(error, 'unreachable', 'unknown'));
    const addresses = this.nodes.map(({ at }) => at);
    throw telling ?? noneReached(failures, addresses, this.#names);
  }

  async #sightingOf(node: RedisNode, by: number): Promise<Sighting> {
    const ask = (...args: string[]) => node.callBy(by, 'SENTINEL', args);
    try {
      const [place, state] = await Promise.all([
        ask('GET-MASTER-ADDR-BY-NAME', this.name),
        // A user may lack permission for it.
        ask('MASTER', this.name).catch(() => []),
      ]);
      if (!Array.isArray(place)) throw await this.#stranger(node, ask);
      const [host, port] = place.map(String) as [string, string];
      const fields = (state as Reply[]).map(String);
      return { host, port: Number(port), epoch: Number(fields[fields.indexOf('config-epoch') + 1]) || 0 };
    } catch (error) {
      if (!isDelayqError(error) || !/unknown command/i.test(error.why ?? '')) throw error;
      throw new DelayqError('config', `the server at ${node.address} is not a Sentinel`, {
        why: 'it does not know the command SENTINEL',
        next: `give the port of a Sentinel (usually 26379), or connect to Redis itself with redis://, with ${this.#names.url}`,
        cause: error,
      });
    }
  }

  /** The error for a name that a Sentinel does not know. */
  async #stranger(node: RedisNode, ask: (...args: string[]) => Promise<Reply>): Promise<DelayqError> {
    // A user may lack permission for it.
    const masters = (await ask('MASTERS').catch(() => undefined)) as Reply[][] | undefined;
    const others = masters?.map((fields) => {
      const words = fields.map(String);
      return printable(words[words.indexOf('name') + 1] ?? '', 60);
    });
    const why = others?.length === 0 ? 'it knows none' : others && `it knows ${others.join(', ')}`;
    const what = `the Sentinel at ${node.address} knows no primary called ${printable(this.name, 60)}`;
    const next =
      others?.length === 0
        ? 'let it watch the primary (SENTINEL MONITOR), or name the Sentinels that do'
        : `correct the name after the / of the URL, with ${this.#names.url}`;
    return new DelayqError('config', what, { why: why ?? 'it does not monitor one of this name', next });
  }

  /** Checks that a new connection leads to a primary. Throws `temporary` if it does not, or not yet. */
  async verify(ask: Caller['call']): Promise<void> {
    const [role] = (await ask('ROLE')) as Reply[];
    if (String(role) === 'master') return;
    throw new DelayqError('temporary', `Redis at ${this.#found?.shown} is no primary`, {
      why: `its role is ${role}, while the Sentinels name it for ${printable(this.name, 60)}`,
      next: 'wait until the failover is over, then repeat',
    });
  }

  /** Listens to each Sentinel that is not listened to. */
  #listen(): void {
    for (const node of this.nodes) {
      if (this.#subscriptions.get(node)?.alive) continue;
      const heard = (_: string, message: string) => {
        const [name, , , host = '', port] = message.split(' ');
        if (name === this.name) this.#compare({ host, port: Number(port) });
      };
      const subscription = node.subscribe(['+switch-master'], heard);
      this.#subscriptions.set(node, subscription);
      // A failover may have come before the subscription.
      subscription.ready
        .then(() => this.#ask())
        .then((seen) => this.#compare(seen))
        .catch(() => {});
    }
  }

  /** Ignores repeated reports of a failover: each Sentinel sends one. */
  #compare({ host, port }: HostPort): void {
    const { options } = this.#found as Address;
    if (host !== options.host || port !== options.port) this.#moved();
  }

  close(): void {
    this.#closed = true;
    clearInterval(this.#timer);
    for (const subscription of this.#subscriptions.values()) subscription.close();
    for (const node of this.nodes) node.close();
  }
}
