import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError, isPassing } from '../model/errors.js';
import { within } from '../model/time.js';
import type { Address } from './address.js';
import type { Arg, Caller, Reply } from './call.js';
import { commandOf, makeClient, type Redis } from './client.js';
import { DEADLINE_MS, errorFromReply, type SettingNames, withoutLogin } from './errors.js';
import { connectionFault, isForeign, noneReached, unconnected } from './faults.js';
import { InFlight } from './in-flight.js';
import { Link, type Progress } from './link.js';
import { type Heard, Subscription } from './subscription.js';

/** Pause before the servers are located again, ms. */
const LOCATE_AGAIN_MS = 100;

/** The least time for a connection to one of several servers, ms. */
const LEAST_MS = 1_000;

/** What may differ between the only server, a node of a cluster, and a primary that Sentinels know. */
export interface Hooks {
  /** Returns the servers to try, in this order. Default: the address. */
  readonly locate?: (() => Promise<readonly Address[]>) | undefined;
  /** Checks a new connection before it is used. */
  readonly verify?: ((ask: Caller['call']) => Promise<void>) | undefined;
  /** Locate unreachable servers again, until the time limit: another one may take over. */
  readonly patient?: boolean;
  /** Called when the first connection is made. */
  readonly opened?: (() => void) | undefined;
  /** Called each second while the oldest call is slow. */
  readonly slow?: (() => void) | undefined;
}

/**
 * A connection to one server. It connects on the first call, and again on the next call after it was lost. It never
 * sends a call twice, and every call ends within a time limit.
 */
export class RedisNode implements Caller {
  readonly #names: SettingNames;
  readonly #link: Link;
  #hooks: Hooks;
  /** Where the server is; of several, where the connection was made last. */
  at: Address;
  /** Of the last connection. Each has its own, so that nothing sent on one can come to another. */
  #client: Redis | undefined;
  #connecting: Promise<Redis> | undefined;
  /** What has gone wrong with it first. */
  #trouble: Error | undefined;
  #hasOpened = false;
  #pinned: { readonly client: Redis; readonly caller: Caller } | undefined;
  #closed: 'for good' | 'replaced' | undefined;
  readonly #inFlight = new InFlight(() => this.#hooks.slow);
  /** It is a node of a cluster. */
  sharded = false;

  /** Does not connect yet. `names` are those of the settings, for errors. */
  constructor(address: Address, names: SettingNames, hooks: Hooks = {}) {
    this.at = address;
    this.#names = names;
    this.#hooks = hooks;
    this.#link = new Link(names);
  }

  get address(): string {
    return this.at.shown;
  }

  get connected(): boolean {
    return this.#usable !== undefined;
  }

  /** The client, if it can send a call now. */
  get #usable(): Redis | undefined {
    const isReady = !this.#connecting && this.#client?.status === 'ready' && this.#client.stream.writable;
    return isReady ? this.#client : undefined;
  }

  /** Makes this a node of a cluster, at its present address. */
  becomeNode(hooks: Pick<Hooks, 'slow'>): void {
    this.#hooks = hooks;
    this.sharded = true;
  }

  /**
   * Connects now instead of on the first call. Throws within 6 s: `unreachable`; `refused` or `config` if Redis rejects
   * the connection; `config` if the server is not Redis, or a file for TLS cannot be used.
   */
  async connect(): Promise<void> {
    await this.#ready();
  }

  async #ready(): Promise<Redis> {
    if (this.#closed === 'replaced') throw this.#lost('unreachable', 'it serves no slots any more');
    if (this.#closed) throw new DelayqError('usage', 'the connection is closed', { next: 'make a new one' });
    if (this.#usable) return this.#usable;
    this.#connecting ??= this.#open().finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  async #open(): Promise<Redis> {
    const { locate, verify, patient, opened } = this.#hooks;
    const by = performance.now() + DEADLINE_MS;
    for (;;) {
      const servers = locate ? await locate() : [this.at];
      const failures: DelayqError[] = [];
      for (const [i, listed] of servers.entries()) {
        const address = this.sharded ? this.at : listed; // A node of a cluster stays where it is.
        const left = by - performance.now();
        if (i > 0 && left <= 0) break;
        try {
          const client = await this.#openAt(address, Math.max(LEAST_MS, left / (servers.length - i)), verify);
          if (!this.#hasOpened) opened?.();
          this.#hasOpened = true;
          return client;
        } catch (error) {
          failures.push(error as DelayqError);
        }
      }
      const failure = failures.find((error) => !isPassing(error)) ?? noneReached(failures, servers, this.#names);
      if (!patient || !isPassing(failure) || performance.now() + LOCATE_AGAIN_MS > by) throw failure;
      await sleep(LOCATE_AGAIN_MS);
    }
  }

  async #openAt(address: Address, limitMs: number, verify: Hooks['verify']): Promise<Redis> {
    this.at = address;
    this.#drop();
    this.#trouble = undefined;
    let isOver = false;
    const progress: Progress = { reached: false, secured: false, greeting: undefined };
    const join = async () => {
      const open = await this.#link.prepare(address);
      const client = await makeClient(address, 'delayq', () => open(progress));
      if (isOver || this.#closed) throw new Error('Connection is closed.');
      this.#client = client;
      // The cause of a failed connection is emitted here; connect() does not reject with it.
      client.on('error', (error: Error) => {
        if (client === this.#client) this.#trouble ??= error;
      });
      await client.connect();
      // A failed SELECT is only an event, but continuing would write to another database.
      if (this.#trouble) throw this.#trouble;
      if (isForeign(progress.greeting)) throw new Error('not a reply of Redis');
      await verify?.((command, ...args) => this.#send(client, command, args));
      return client;
    };
    try {
      const joined = await within(limitMs, join());
      if (joined) return joined;
      throw Object.assign(new Error('timed out'), { code: 'ETIMEDOUT' });
    } catch (error) {
      isOver = true;
      this.#drop();
      const cause = this.#trouble ?? (error as Error);
      if (cause instanceof DelayqError) throw cause;
      const { code } = cause as NodeJS.ErrnoException;
      if (code === undefined && /^(ERR|[A-Z]{5,}) /.test(cause.message)) {
        throw errorFromReply(withoutLogin(cause, address.options), this.address, this.#names);
      }
      throw unconnected(cause, address, this.#names, progress);
    }
  }

  /**
   * Sends one command and returns its reply. Throws `unreachable` if there is no connection (nothing was sent),
   * `unknown` if it was sent and no reply arrived in time, and another code for an error reply of Redis.
   */
  async call(command: string, ...args: Arg[]): Promise<Reply> {
    return this.#send(this.#usable ?? (await this.#ready()), command, args);
  }

  /**
   * Like {@link call}, by a time of the monotonic clock, ms. Waits `patienceMs` for a connection. `asking`: for ASK.
   */
  async callBy(
    by: number,
    command: string,
    args: readonly Arg[],
    { asking = false, patienceMs = DEADLINE_MS } = {},
  ): Promise<Reply> {
    const client = await this.#readyWithin(Math.min(by - performance.now(), patienceMs));
    return this.#send(client, command, args, { by, asking });
  }

  async #readyWithin(ms: number): Promise<Redis> {
    const client = this.#usable ?? (await within(Math.max(1, ms), this.#ready()));
    if (client) return client;
    throw this.#lost('unreachable', 'there was no connection in time');
  }

  /**
   * Returns the current connection, connecting if necessary: the same object until the connection is lost, but for
   * `asking` (as ASK requires). Its calls throw what {@link RedisNode.call} throws, and `unreachable` after the loss.
   * They never use a new connection, on which WAIT would not cover what was written on this one.
   */
  async pin({ asking = false, patienceMs = 2 * DEADLINE_MS } = {}): Promise<Caller> {
    const client = await this.#readyWithin(patienceMs);
    if (!asking && this.#pinned?.client === client) return this.#pinned.caller;
    const call = async (command: string, ...args: Arg[]) => {
      if (this.#usable !== client) throw this.#lost('unreachable', 'the connection was closed');
      return this.#send(client, command, args, { asking });
    };
    const caller = { address: this.address, sharded: this.sharded, call };
    if (!asking) this.#pinned = { client, caller };
    return caller;
  }

  /** Closes the connection. What has no reply after `graceMs` fails with `unknown`. */
  async drop(graceMs = 0): Promise<void> {
    const client = this.#client;
    await this.#inFlight.settled(graceMs);
    this.#drop(client);
  }

  /** Closes a connection without waiting for the peer, which may be frozen. */
  #drop(client = this.#client): void {
    if (!client || client.stream?.destroyed) return;
    client.disconnect();
    client.stream?.destroy();
  }

  async #send(
    client: Redis,
    command: string,
    args: readonly Arg[],
    { by, asking = false }: { by?: number; asking?: boolean } = {},
  ): Promise<Reply> {
    const call = commandOf(command, args, by);
    this.#inFlight.add(call);
    try {
      if (asking) (client.sendCommand(commandOf('ASKING', [], by)) as Promise<unknown>).catch(() => {});
      return (await client.sendCommand(call)) as Reply;
    } catch (thrown) {
      throw this.#failed(client, thrown as Error);
    } finally {
      this.#inFlight.delete(call);
    }
  }

  #failed(client: Redis, error: Error): DelayqError {
    if (error.name === 'ReplyError' || ('command' in error && /^[A-Z]+ /.test(error.message))) {
      return errorFromReply(withoutLogin(error, this.at.options), this.address, this.#names);
    }
    // After any other error of ioredis, the replies on this stream can no longer be matched to calls.
    const sent = !/isn't writeable/.test(error.message);
    this.#drop(client);
    const why = /timed out/.test(error.message)
      ? `no answer within ${DEADLINE_MS / 1000} s`
      : connectionFault(this.#trouble ?? error);
    return this.#lost(sent ? 'unknown' : 'unreachable', why, error);
  }

  #lost(code: 'unknown' | 'unreachable', why: string, cause?: Error): DelayqError {
    const next = 'check that Redis is up, then repeat';
    return new DelayqError(code, `lost the connection to Redis at ${this.address}`, { why, next, cause });
  }

  /** Subscribes to channels of this server, where it is then. `heard` is called with each message. */
  subscribe(channels: readonly string[], heard: Heard): Subscription {
    const where = async () => {
      if (this.#hooks.locate) await this.#ready();
      return this.at;
    };
    return new Subscription(where(), this.#names, channels, heard, this.sharded);
  }

  /**
   * Closes the connection. Calls that have no reply yet fail with `unknown`. `replaced`: the cluster goes on without
   * this node, so that calls to it throw `unreachable`.
   */
  close({ replaced = false } = {}): void {
    this.#closed = replaced ? 'replaced' : 'for good';
    // ioredis would wait for the end of a stream that is destroyed already.
    if (!this.#client?.stream?.destroyed) this.#client?.disconnect();
  }
}
