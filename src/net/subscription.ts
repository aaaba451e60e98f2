import type { Address } from './address.js';
import { makeClient, type Redis } from './client.js';
import type { SettingNames } from './errors.js';
import { Link } from './link.js';

/** Called with each message, and the channel it came on. */
export type Heard = (channel: string, message: string) => void;

/**
 * Messages of some channels of one server, over a connection of its own. Best effort: after a failure nothing is heard
 * any more, and `alive` is false.
 */
export class Subscription {
  #client: Redis | undefined;
  alive = true;
  /** The address of the server; undefined until that is known. */
  address: string | undefined;
  /** Resolves when the server has confirmed; rejects if there will be no messages. */
  readonly ready: Promise<void>;

  /** `sharded`: the server is known to be one of a cluster, and to own the slots of all channels. */
  constructor(
    where: Promise<Address>,
    names: SettingNames,
    channels: readonly string[],
    heard: Heard,
    sharded = false,
  ) {
    this.ready = this.#begin(where, new Link(names), channels, heard, sharded);
    this.ready.catch(() => this.close());
  }

  async #begin(where: Promise<Address>, link: Link, channels: readonly string[], heard: Heard, sharded: boolean) {
    const address = await where;
    this.address = address.shown;
    const open = await link.prepare(address);
    if (!this.alive) throw new Error('closed');
    const client = await makeClient(address, 'delayq-wake', open);
    this.#client = client;
    client.on('error', () => {});
    client.on('close', () => this.close());
    client.on('message', heard);
    client.on('smessage', heard);
    // A slot of a channel has moved to another server.
    client.on('moved', () => this.close());
    await client.connect();
    // A node says that it is one only when it does not own a slot. Without permission for INFO, it counts as none.
    const isNode = sharded || /cluster_enabled:1/.test(String(await client.info('cluster').catch(() => '')));
    await client.subscribe(...channels);
    // To hear SPUBLISH. One by one, because they may be in different slots. Redis 6 has no SSUBSCRIBE, and a user may lack
    // permission.
    if (isNode) await Promise.all(channels.map((channel) => client.ssubscribe(channel).catch(() => {})));
  }

  close(): void {
    this.alive = false;
    this.#client?.disconnect();
  }
}
