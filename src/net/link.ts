import { connect, type Socket } from 'node:net';
import type { Address } from './address.js';
import type { SettingNames } from './errors.js';

/** Opens the streams of one client, and records how far the last one came. */
export class Link {
  readonly #names: SettingNames;
  #address: Address | undefined;
  #openTls: ((port: number) => Socket) | undefined;
  /** The host accepted the connection. */
  reached = false;
  /** The TLS handshake is complete. */
  secured = false;
  /** The first bytes from the server. */
  greeting: Buffer | undefined;

  constructor(names: SettingNames) {
    this.#names = names;
  }

  /**
   * Sets where to connect, and reads the files for TLS: before each stream, as they may be renewed. Throws `config` if
   * they cannot be used.
   */
  async prepare(address: Address): Promise<void> {
    // A secure stream is opened by the name that it was made for.
    if (address.shown !== this.#address?.shown) this.#openTls = undefined;
    this.#address = address;
    this.reached = false;
    this.secured = false;
    this.greeting = undefined;
    const { tls, options } = address;
    if (!tls) return;
    const { secure } = await import('./tls.js');
    try {
      this.#openTls = await secure(tls, options.host as string, this.#names);
    } catch (error) {
      // While files are being replaced, use their old contents.
      if (!this.#openTls) throw error;
    }
  }

  open(): Socket {
    const { path, host = '', port = 0 } = (this.#address as Address).options;
    const stream = this.#openTls?.(port) ?? connect(path === undefined ? { host, port } : { path });
    // ioredis stops to listen before the stream is closed, and an error after that would end the process.
    stream.on('error', () => {});
    stream.once('connect', () => {
      this.reached = true;
    });
    stream.once('secureConnect', () => {
      this.secured = true;
    });
    stream.once('data', (data: Buffer) => {
      this.greeting = data;
    });
    // The first commands are one write: if a server answered the first and closed, writing the second would fail before
    // that answer is read.
    stream.once(this.#openTls ? 'secureConnect' : 'connect', () => {
      stream.cork();
      process.nextTick(() => stream.uncork());
    });
    return stream;
  }
}
