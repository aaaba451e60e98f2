import type { Redis } from 'ioredis';
import { DelayqError } from '../model/errors.js';
import { DEFAULT_URL, parseUrl } from './url.js';

/** How long a connection attempt or one call may take, ms: an answer that takes longer counts as none. */
export const DEADLINE_MS = 5_000;

/** What Redis may answer to a call sent through {@link Connection.call}: bulk strings stay bytes. */
export type Reply = number | null | Buffer | Reply[];

/** A value for a call: text is sent as UTF-8. */
export type Arg = string | number | Buffer;

/** Whatever takes calls: a {@link Connection}, or one that was pinned. */
export interface Caller {
  /** Where it leads, without user and password. */
  readonly address: string;
  call(command: string, ...args: Arg[]): Promise<Reply>;
}

/** What the first word of an error of Redis means for us. Anything else is a bug of ours. */
const TEMPORARY: Record<string, string> = {
  LOADING: 'wait until Redis has loaded its data and try again',
  BUSY: 'another script is holding Redis up: wait, or end it with SCRIPT KILL',
  READONLY: 'this is a replica: connect to the primary',
  MASTERDOWN: 'this replica has lost its primary: connect to the primary',
  OOM: 'Redis is full: drain, cancel, or raise maxmemory; nothing was changed',
  CLUSTERDOWN: 'wait until the cluster serves all its slots again',
  TRYAGAIN: 'slots are moving: try again',
  NOREPLICAS: 'Redis wants more replicas than are connected (min-replicas-to-write)',
  MISCONF: 'Redis cannot save its data to disk: look at its log',
  UNBLOCKED: 'the role of this server changed: try again',
};
const REFUSED: Record<string, string> = {
  NOAUTH: 'put the password into the Redis URL (DELAYQ_REDIS_URL)',
  WRONGPASS: 'check user and password in the Redis URL (DELAYQ_REDIS_URL)',
  NOPERM: "give this user the rights it lacks (ACL SETUSER): all commands used, on the prefix's keys",
  DENIED: "Redis runs in protected mode: set a password, or bind it to this client's network",
};
const CONFIG: Record<string, string> = {
  LAYOUT: 'install a newer delayq on this machine',
  WRONGTYPE: 'something else uses this key: rename it, or choose another --prefix',
  MOVED:
    'this is a node of a Redis Cluster and a plain connection was asked for: connect to a server that is not clustered',
  ASK: 'this is a node of a Redis Cluster and a plain connection was asked for: connect to a server that is not clustered',
  CROSSSLOT: 'this is a Redis Cluster that does not keep the keys of a queue together',
  NOPROTO: 'use Redis 6.2 or newer, or Valkey',
};

/** Known once there is a client. */
let Command: typeof import('ioredis').Command;

/** Turns an error that Redis answered into ours. `where` is the address as people may see it. */
function fromReply(error: Error, where: string): DelayqError {
  // Of AUTH it holds the password, and whoever logs an error logs its cause.
  if ('command' in error) delete error.command;
  // An error inside a script comes wrapped: "… script: <sha>, on @user_script:3." or, from Redis 6, "ERR Error running
  // script (call to f_<sha>): @user_script:3: @user_script: 3: -OOM …".
  const text = error.message
    .replace(/ script: [0-9a-f]{40}.*$/s, '')
    .replace(/^ERR Error running script .*@user_script: ?\d+: -?/s, '')
    .replace(/^ERR (?=[A-Z]{3,} )/, '');
  const word = /^[A-Z]+/.exec(text)?.[0] ?? '';
  const make = (code: 'temporary' | 'refused' | 'config', next: string) =>
    new DelayqError(code, `Redis at ${where} refused the call`, { why: text, next, cause: error });
  if (TEMPORARY[word]) return make('temporary', TEMPORARY[word]);
  if (REFUSED[word]) return make('refused', REFUSED[word]);
  // Without a password Redis takes only short commands, and calls longer ones a protocol error.
  if (/unauthenticated/.test(text)) return make('refused', REFUSED.NOAUTH as string);
  // So Redis 7.0 says NOPERM of a command in a script.
  if (/user executing the script/.test(text)) return make('refused', REFUSED.NOPERM as string);
  if (/^ERR (invalid password|.*AUTH|operation not permitted)/i.test(text))
    return make('refused', REFUSED.WRONGPASS as string);
  if (CONFIG[word]) return make('config', CONFIG[word]);
  if (/DB index|unknown command|unknown Redis command/i.test(text)) {
    return make('config', 'check the database in the Redis URL, and that Redis is 6.2 or newer');
  }
  return new DelayqError('internal', `Redis at ${where} did not understand a call of delayq`, {
    why: text,
    next: 'please report this as a bug, with the version of Redis',
    cause: error,
  });
}

/**
 * One connection to Redis that is made when first needed and made anew, by the next call, when it was lost. Nothing is
 * ever sent a second time by itself, and every call ends by a deadline.
 */
export class Connection {
  readonly #address: ReturnType<typeof parseUrl>;
  #client: Redis | undefined;
  #connecting: Promise<Redis> | undefined;
  #trouble: Error | undefined;
  #pinned: { readonly stream: Redis['stream']; readonly line: Caller } | undefined;
  #dropped: { readonly stream: Redis['stream']; readonly gone: Promise<void> } | undefined;
  #closed = false;

  /** Throws a `usage` error when the URL cannot be read. Connects to nothing yet. */
  constructor(url: string = DEFAULT_URL) {
    this.#address = parseUrl(url);
  }

  /** The address without user and password. */
  get address(): string {
    return this.#address.shown;
  }

  /**
   * Connects now rather than at the first call. Throws `unreachable`, or `refused` and `config` when Redis turns the
   * connection down, within 6 s.
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

  async #make(connectionName: string): Promise<Redis> {
    // Loaded when needed: most of a start's time goes here, and not every command connects.
    const { Command: loaded, Redis } = await import('ioredis');
    Command = loaded;
    return new Redis({
      ...this.#address.options,
      connectionName,
      lazyConnect: true,
      protocol: 2,
      replyMapping: 'legacy',
      connectTimeout: DEADLINE_MS,
      commandTimeout: DEADLINE_MS,
      maxRetriesPerRequest: 0,
      // It would send scripts again whose reply was lost.
      autoResendUnfulfilledCommands: false,
      autoResubscribe: false,
      enableOfflineQueue: false,
      // INFO may be forbidden, and LOADING is told by the first call anyway.
      enableReadyCheck: false,
      disableClientInfo: true,
      retryStrategy: () => null,
    });
  }

  async #open(): Promise<Redis> {
    if (!this.#client) {
      this.#client = await this.#make('delayq');
      // The cause of a failed connection arrives here, not in the rejection of connect().
      this.#client.on('error', (error: Error) => {
        this.#trouble ??= error;
      });
    }
    const client = this.#client;
    this.#trouble = undefined;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no answer within ${DEADLINE_MS / 1000} s`)), DEADLINE_MS);
    });
    try {
      const opened = client.connect();
      opened.catch(() => {});
      await Promise.race([opened, late]);
      // A refused SELECT is only an event: going on would write to another database.
      if (this.#trouble) throw this.#trouble;
      return client;
    } catch (error) {
      // The next attempt cannot begin before this one has ended.
      await this.#drop(client);
      const cause = this.#trouble ?? (error as Error);
      const code = (cause as NodeJS.ErrnoException).code;
      if (code === undefined && /^(ERR|[A-Z]{5,}) /.test(cause.message)) throw fromReply(cause, this.address);
      throw new DelayqError('unreachable', `cannot reach Redis at ${this.address}`, {
        why: reason(cause),
        next: 'start Redis there (redis-server), or name another with --redis or DELAYQ_REDIS_URL',
        cause,
      });
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Sends one command and returns its reply. Throws `unreachable` when there is no connection (nothing was sent),
   * `unknown` when it was sent and no answer came in time, and what Redis answered otherwise.
   */
  async call(command: string, ...args: Arg[]): Promise<Reply> {
    return this.#send(await this.#writable(), command, args);
  }

  /**
   * The connection as it is now, made if need be: the same object until it is lost. Its calls fail as those of
   * {@link Connection.call} do, and with `unreachable` once it is lost: they never go over a new connection, which
   * knows nothing of what was written over this one.
   */
  async pin(): Promise<Caller> {
    const client = await this.#writable();
    // The client is the same after a reconnect; its stream is not.
    const { stream } = client;
    if (this.#pinned?.stream !== stream) {
      const call = async (command: string, ...args: Arg[]) => {
        if (client.stream === stream && stream.writable) return this.#send(client, command, args);
        throw new DelayqError('unreachable', `lost the connection to Redis at ${this.address}`, {
          why: 'the connection was closed',
          next: 'check that Redis is up, then repeat',
        });
      };
      this.#pinned = { stream, line: { address: this.address, call } };
    }
    return this.#pinned.line;
  }

  async #writable(): Promise<Redis> {
    const client = await this.#ready();
    if (client.stream.writable) return client;
    // The connection has broken, and ioredis will hear of it in a moment. Nothing was sent: a new one may serve.
    await this.#drop(client);
    return this.#ready();
  }

  /**
   * Ends the stream that `client` has now, at once: a peer that is frozen would never say goodbye. Once, however many calls
   * it has failed: each time would leave listeners.
   */
  async #drop(client: Redis): Promise<void> {
    const { stream } = client;
    if (client.status === 'end') return;
    if (this.#dropped?.stream !== stream) {
      const gone = new Promise<void>((resolve) => {
        client.once('end', resolve).disconnect();
        stream.destroy();
      });
      this.#dropped = { stream, gone };
    }
    await this.#dropped.gone;
  }

  async #send(client: Redis, command: string, args: Arg[]): Promise<Reply> {
    const sent = new Command(command, args, { replyEncoding: null });
    try {
      return (await client.sendCommand(sent)) as Reply;
    } catch (error) {
      throw this.#failed(client, error as Error);
    } finally {
      // Commands hang together for longer than they live; without this, all that was sent until the next full collection.
      sent.args = [];
    }
  }

  #failed(client: Redis, error: Error): DelayqError {
    if (error.name === 'ReplyError' || ('command' in error && /^[A-Z]+ /.test(error.message))) {
      return fromReply(error, this.address);
    }
    // Whatever else ioredis rejects with, this stream of replies can no longer be trusted.
    const sent = !/isn't writeable/.test(error.message);
    const late = /timed out/.test(error.message);
    this.#drop(client);
    return new DelayqError(sent ? 'unknown' : 'unreachable', `lost the connection to Redis at ${this.address}`, {
      why: late ? `no answer within ${DEADLINE_MS / 1000} s` : reason(this.#trouble ?? error),
      next: 'check that Redis is up, then repeat',
      cause: error,
    });
  }

  /** Redis's clock, ms. */
  async now(): Promise<number> {
    const [seconds, micros] = (await this.call('TIME')) as [Buffer, Buffer];
    return Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
  }

  /**
   * Hears `channels` over a connection of its own, until `close` is called on what it returns. Best effort: when it
   * cannot be had or breaks, `heard` is simply not called any more, and `alive()` says so.
   */
  listen(channels: string[], heard: (message: string) => void): { alive(): boolean; close(): void } {
    let client: Redis | undefined;
    let over = false;
    const close = () => {
      over = true;
      client?.disconnect();
    };
    this.#make('delayq-wake')
      .then(async (made) => {
        client = made;
        if (over) return;
        client.on('error', () => {});
        client.on('close', close);
        client.on('message', (_channel: string, message: string) => heard(message));
        await client.connect();
        await client.subscribe(...channels);
      })
      .catch(close);
    return { alive: () => !over, close };
  }

  /** Closes the connection. What has no answer yet fails with `unknown`. */
  close(): void {
    this.#closed = true;
    this.#client?.disconnect();
  }
}

function reason(error: Error): string {
  const code = (error as NodeJS.ErrnoException).code;
  const said: Record<string, string> = {
    ECONNREFUSED: 'nothing listens there (ECONNREFUSED)',
    ENOENT: 'the socket does not exist (ENOENT)',
    ENOTFOUND: 'the host name is not known (ENOTFOUND)',
    EAI_AGAIN: 'the host name could not be looked up (EAI_AGAIN)',
    EACCES: 'the socket may not be opened by this user (EACCES)',
    ETIMEDOUT: `no answer within ${DEADLINE_MS / 1000} s (ETIMEDOUT)`,
    ECONNRESET: 'it closed the connection (ECONNRESET)',
    EPIPE: 'it closed the connection (EPIPE)',
  };
  if (code && said[code]) return said[code];
  if (error.message === 'Connection is closed.' || /connection close/.test(error.message))
    return 'the connection was closed';
  return code && !error.message.includes(code) ? `${error.message} (${code})` : error.message;
}
