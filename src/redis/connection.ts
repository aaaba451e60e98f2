import type { Redis, RedisOptions } from 'ioredis';
import { DelayqError } from '../model/errors.js';
import { type Address, addressOf } from '../net/address.js';
import { type Arg, type Caller, encode, type Reply } from '../net/call.js';
import { DEADLINE_MS, errorFromReply, LIBRARY_NAMES, type SettingNames, withoutLogin } from '../net/errors.js';
import { connectionFault, isForeign, unconnected } from '../net/faults.js';
import { Link } from '../net/link.js';
import { type ConnectOptions, DEFAULT_URL } from '../net/url.js';

export type { Arg, Caller, Reply } from '../net/call.js';

/** How long a server may take to close its side before the stream is destroyed. */
const DISCONNECT_MS = 2_000;

/** The class of the commands that connections send: made when ioredis is loaded. */
let Call: ReturnType<typeof callClass>;

const AS_BYTES = { replyEncoding: null };

const callClass = (Command: typeof import('ioredis').Command) =>
  class extends Command {
    readonly sentAt = performance.now();
    #encoded: string | Buffer;

    constructor(command: string, args: readonly Arg[]) {
      super(command, [], AS_BYTES);
      this.#encoded = encode(command, args);
    }

    /** ioredis calls this once. It links commands to each other, so what was sent must not stay with them. */
    override toWritable(): string | Buffer {
      const encoded = this.#encoded;
      this.#encoded = '';
      return encoded;
    }

    /** Not a timer for each command: the connection has one for all. */
    override setTimeout(): void {}
  };

/**
 * One connection to Redis. It connects on the first call, and again on the next call after it was lost. It never sends
 * a call twice, and every call ends within a time limit.
 */
export class Connection {
  readonly #address: Address;
  readonly #names: SettingNames;
  readonly #link: Link;
  #client: Redis | undefined;
  #connecting: Promise<Redis> | undefined;
  #trouble: Error | undefined;
  #pinned: { readonly stream: Redis['stream']; readonly caller: Caller } | undefined;
  #dropped: { readonly stream: Redis['stream']; readonly ended: Promise<void> } | undefined;
  #closed = false;
  /** Calls without a reply, the oldest first. */
  readonly #inFlight = new Set<InstanceType<typeof Call>>();
  #timer: NodeJS.Timeout | undefined;

  /** Throws `usage` if `to` is invalid. Does not connect yet. `names` are those of the settings, for errors. */
  constructor(to: string | ConnectOptions = DEFAULT_URL, names: SettingNames = LIBRARY_NAMES) {
    this.#address = addressOf(to, names);
    this.#names = names;
    this.#link = new Link(this.#address, names);
  }

  /** The address without user and password. */
  get address(): string {
    return this.#address.shown;
  }

  /**
   * Connects now instead of on the first call. Throws within 6 s: `unreachable`; `refused` or `config` if Redis rejects
   * the connection; `config` if the server is not Redis, or a file for TLS cannot be used.
   */
  async connect(): Promise<void> {
    await this.#ready();
  }

  async #ready(): Promise<Redis> {
    if (this.#closed) throw new DelayqError('usage', 'the connection is closed', { next: 'make a new one' });
    if (this.#client?.status === 'ready') return this.#client;
    this.#connecting ??= this.#open().finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  async #make(connectionName: string, link: Link): Promise<Redis> {
    // Loaded on demand: it is most of the start-up time, and not every command connects.
    const { AbstractConnector, Command, Redis } = await import('ioredis');
    Call ??= callClass(Command);
    const { options, tls } = this.#address;
    return new Redis({
      ...(options as RedisOptions),
      // ioredis then waits until the stream is secure; the link makes it so.
      ...(tls && { tls: {} }),
      Connector: class extends AbstractConnector {
        constructor() {
          super(DISCONNECT_MS);
        }

        override async connect() {
          this.stream = link.open();
          return this.stream;
        }
      } as unknown as NonNullable<RedisOptions['Connector']>,
      connectionName,
      lazyConnect: true,
      protocol: 2,
      replyMapping: 'legacy',
      // Later than ours, which knows what was still missing.
      connectTimeout: DEADLINE_MS + 500,
      commandTimeout: DEADLINE_MS,
      maxRetriesPerRequest: 0,
      // It would repeat scripts whose reply was lost.
      autoResendUnfulfilledCommands: false,
      autoResubscribe: false,
      enableOfflineQueue: false,
      // INFO may be forbidden, and the first call reports LOADING anyway.
      enableReadyCheck: false,
      disableClientInfo: true,
      retryStrategy: () => null,
    });
  }

  /** Connects `client`, unless `isOver` says that this is no longer wanted. */
  async #join(client: Redis, link: Link, isOver: () => boolean): Promise<void> {
    await link.prepare();
    if (isOver() || this.#closed) throw new Error('Connection is closed.');
    await client.connect();
  }

  async #open(): Promise<Redis> {
    if (!this.#client) {
      this.#client = await this.#make('delayq', this.#link);
      // The cause of a failed connection is emitted here; connect() does not reject with it.
      this.#client.on('error', (error: Error) => {
        this.#trouble ??= error;
      });
    }
    const client = this.#client;
    this.#trouble = undefined;
    let timer: NodeJS.Timeout | undefined;
    let isOver = false;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(Object.assign(new Error('timed out'), { code: 'ETIMEDOUT' })), DEADLINE_MS);
    });
    try {
      const opened = this.#join(client, this.#link, () => isOver);
      opened.catch(() => {});
      await Promise.race([opened, late]);
      // A failed SELECT is only an event, but continuing would write to another database.
      if (this.#trouble) throw this.#trouble;
      if (isForeign(this.#link.greeting)) throw new Error('not a reply of Redis');
      return client;
    } catch (error) {
      isOver = true;
      // The next attempt cannot start before this one has ended.
      await this.#drop(client);
      const cause = this.#trouble ?? (error as Error);
      if (cause instanceof DelayqError) throw cause;
      const code = (cause as NodeJS.ErrnoException).code;
      if (code === undefined && /^(ERR|[A-Z]{5,}) /.test(cause.message)) {
        throw errorFromReply(withoutLogin(cause, this.#address.options), this.address, this.#names);
      }
      throw unconnected(cause, this.#address, this.#names, this.#link);
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Sends one command and returns its reply. Throws `unreachable` if there is no connection (nothing was sent),
   * `unknown` if it was sent and no reply arrived in time, and another code for an error reply of Redis.
   */
  async call(command: string, ...args: Arg[]): Promise<Reply> {
    return this.#send(await this.#writable(), command, args);
  }

  /**
   * Returns the current connection, connecting if necessary: the same object until the connection is lost. Its calls
   * throw what {@link Connection.call} throws, and `unreachable` after the loss. They never use a new connection, on
   * which WAIT would not cover what was written on this one.
   */
  async pin(): Promise<Caller> {
    const client = await this.#writable();
    // A reconnect keeps the client, but not its stream.
    const { stream } = client;
    if (this.#pinned?.stream !== stream) {
      const call = async (command: string, ...args: Arg[]) => {
        if (client.stream === stream && stream.writable) return this.#send(client, command, args);
        throw this.#lost('unreachable', 'the connection was closed');
      };
      this.#pinned = { stream, caller: { address: this.address, call } };
    }
    return this.#pinned.caller;
  }

  async #writable(): Promise<Redis> {
    const client = await this.#ready();
    if (client.stream.writable) return client;
    // The connection is broken, but ioredis has not noticed yet. Nothing was sent, so a new connection can be used.
    await this.#drop(client);
    return this.#ready();
  }

  /**
   * Closes the current stream of `client` without waiting for the peer, which may be frozen. Does so only once, however
   * many calls have failed on it, because each time would leave a listener behind.
   */
  async #drop(client: Redis): Promise<void> {
    const { stream } = client;
    if (client.status === 'wait' || client.status === 'end') return;
    if (this.#dropped?.stream !== stream) {
      const ended = new Promise<void>((resolve) => {
        client.once('end', resolve).disconnect();
        stream.destroy();
      });
      this.#dropped = { stream, ended };
    }
    await this.#dropped.ended;
  }

  async #send(client: Redis, command: string, args: readonly Arg[]): Promise<Reply> {
    if (/^([ps]?(un)?subscribe|monitor|reset|hello)$/i.test(command)) {
      const next = 'use a client of your own for it';
      throw new DelayqError('usage', `a connection of delayq cannot be used for ${command}`, { next });
    }
    const call = new Call(command, args);
    this.#inFlight.add(call);
    if (!this.#timer) this.#endLate(DEADLINE_MS);
    try {
      return (await client.sendCommand(call)) as Reply;
    } catch (error) {
      throw this.#failed(client, error as Error);
    } finally {
      this.#inFlight.delete(call);
    }
  }

  /** Ends calls at their time limit, the first time in `ms`. All have the same limit, so the oldest is the next to end. */
  #endLate(ms: number): void {
    // The stream keeps the process alive while calls are in flight.
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      for (const call of this.#inFlight) {
        const left = call.sentAt + DEADLINE_MS - performance.now();
        if (left > 0) return this.#endLate(left);
        call.reject(new Error('Command timed out'));
      }
    }, ms).unref();
  }

  #failed(client: Redis, error: Error): DelayqError {
    if (error.name === 'ReplyError' || ('command' in error && /^[A-Z]+ /.test(error.message))) {
      return errorFromReply(withoutLogin(error, this.#address.options), this.address, this.#names);
    }
    // After any other error of ioredis, the replies on this stream can no longer be matched to calls.
    const sent = !/isn't writeable/.test(error.message);
    const late = /timed out/.test(error.message);
    this.#drop(client);
    const why = late ? `no answer within ${DEADLINE_MS / 1000} s` : connectionFault(this.#trouble ?? error);
    return this.#lost(sent ? 'unknown' : 'unreachable', why, error);
  }

  #lost(code: 'unknown' | 'unreachable', why: string, cause?: Error): DelayqError {
    const next = 'check that Redis is up, then repeat';
    return new DelayqError(code, `lost the connection to Redis at ${this.address}`, { why, next, cause });
  }

  /** Returns the time of Redis's clock, ms. */
  async now(): Promise<number> {
    const [seconds, micros] = (await this.call('TIME')) as [Buffer, Buffer];
    return Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
  }

  /**
   * Subscribes to `channels` on a connection of its own, until `close()`. Best effort: if that connection fails,
   * `heard` is not called any more, and `alive()` returns false.
   */
  listen(channels: string[], heard: (message: string) => void): { alive(): boolean; close(): void } {
    let client: Redis | undefined;
    let over = false;
    const link = new Link(this.#address, this.#names);
    const close = () => {
      over = true;
      client?.disconnect();
    };
    this.#make('delayq-wake', link)
      .then(async (made) => {
        client = made;
        client.on('error', () => {});
        client.on('close', close);
        client.on('message', (_channel: string, message: string) => heard(message));
        await this.#join(client, link, () => over);
        await client.subscribe(...channels);
      })
      .catch(close);
    return { alive: () => !over, close };
  }

  /** Closes the connection. Calls that have no reply yet fail with `unknown`. */
  close(): void {
    this.#closed = true;
    this.#client?.disconnect();
  }

  /** Closes the connection: for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}
