import { connect, type Socket } from 'node:net';
import type { Address } from './address.js';
import type { SettingNames } from './errors.js';

/** How far a stream has come. */
export interface Progress {
  /** The host accepted the connection. */
  reached: boolean;
  /** The TLS handshake is complete. */
  secured: boolean;
  /** The first bytes from the server. */
  greeting: Buffer | undefined;
}

/** Opens the streams to one server. */
export class Link {
  readonly #names: SettingNames;
  #shown: string | undefined;
  #openTls: ((port: number) => Socket) | undefined;

  constructor(names: SettingNames) {
    this.#names = names;
  }

  /**
   * Returns what opens one stream to `address`. Reads the files for TLS each time, as they may be renewed; throws
   * `config` if they cannot be used.
   */
  async prepare({ options, tls, shown }: Address): Promise<(progress?: Partial<Progress>) => Socket> {
    // A secure stream is opened by the name that it was made for.
    if (shown !== this.#shown) this.#openTls = undefined;
    this.#shown = shown;
    const { path, host = '', port = 0 } = options;
    if (tls) {
      const { secure } = await import('./tls.js');
      try {
        this.#openTls = await secure(tls, host, this.#names);
      } catch (error) {
        // While files are being replaced, use their old contents.
        if (!this.#openTls) throw error;
      }
    }
    const openTls = this.#openTls;
    return (progress) => watched(openTls?.(port) ?? connect(path === undefined ? { host, port } : { path }), progress);
  }
}

/** Notes in `progress` how far a stream comes. */
function watched(stream: Socket, progress: Partial<Progress> = {}): Socket {
  // ioredis stops to listen before the stream is closed, and an error after that would end the process.
  stream.on('error', () => {});
  stream.once('data', (data: Buffer) => {
    progress.greeting = data;
  });
  for (const [event, stage] of [
    ['connect', 'reached'],
    ['secureConnect', 'secured'],
  ] as const) {
    stream.once(event, () => {
      progress[stage] = true;
      // The first commands are one write: if a server answered the first and closed, writing the second would fail
      // before that answer is read.
      stream.cork();
      process.nextTick(() => stream.uncork());
    });
  }
  return stream;
}
