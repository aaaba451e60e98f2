import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { within } from './until.js';

/**
 * Faults of a connection.
 *
 * - `cut`: Redis runs the call (with the script's text, if it does not know the script), and the connection is closed before the reply
 * - `refuse`: the connection is closed before the request arrives
 * - `silent`: requests arrive, but no replies come back; the connection stays open
 * - `deaf`: requests do not arrive; the connection stays open
 * - `half-open`: both, as if the other host had lost power
 */
export type FaultKind = 'cut' | 'refuse' | 'silent' | 'deaf' | 'half-open';

/** A fault for calls that contain `word`, such as the name of a command or the hash of a script. */
export interface Fault {
  readonly word: string;
  /** `pass`: nothing happens to the call itself. */
  readonly kind: FaultKind | 'pass';
  /** Called before the call goes on. */
  readonly before?: () => void;
  /** How many calls it affects. */
  times: number;
  /** How many calls pass before; default 0. */
  after?: number;
}

/** A Unix socket's path, or a port on 127.0.0.1. */
export type Target = string | number;

/**
 * A TCP proxy between clients and Redis, with faults for certain calls or for all open connections. With several targets
 * it stands before each node of a cluster: in replies, it puts its own addresses in the place of theirs.
 */
export class FaultyProxy {
  readonly host = '127.0.0.1';
  readonly #servers: readonly Server[];
  readonly #links = new Set<Link>();
  #targets: readonly Target[];
  /** The next fault, if any. */
  fault: Fault | undefined;
  /** How many calls were affected. */
  struck = 0;
  /** How many of them came before the server knew the script: they come again with its text. */
  #spared = 0;

  private constructor(targets: readonly Target[]) {
    this.#targets = targets;
    this.#servers = targets.map((_, n) =>
      createServer((client) => {
        const strikes = (data: Buffer) => this.#strikes(data);
        const spares = () => this.#spares();
        const link = new Link(client, this.#targets[n] as Target, strikes, spares, (data) => this.#translated(data));
        this.#links.add(link);
        link.closed.then(() => this.#links.delete(link));
      }),
    );
  }

  static async start(...targets: readonly Target[]): Promise<FaultyProxy> {
    const proxy = new FaultyProxy(targets);
    for (const server of proxy.#servers) {
      server.listen(0, proxy.host);
      await once(server, 'listening');
    }
    return proxy;
  }

  get #ports(): number[] {
    return this.#servers.map((server) => (server.address() as { port: number }).port);
  }

  /** The port before the first target. */
  get port(): number {
    return this.#ports[0] as number;
  }

  get url(): string {
    return `redis://${this.#ports.map((port) => `127.0.0.1:${port}`).join(',')}`;
  }

  /** A reply, with the addresses of nodes (of redirects, CLUSTER SLOTS, SHARDS and NODES) replaced. */
  #translated(data: Buffer): Buffer {
    if (this.#targets.length === 1) return data;
    const text = data.toString('latin1').replace(/(127\.0\.0\.1(?:\r\n)?:|port\r\n:)(\d+)/g, (all, before, port) => {
      const n = this.#targets.indexOf(Number(port));
      return n < 0 ? all : `${before}${this.#ports[n]}`;
    });
    return Buffer.from(text, 'latin1');
  }

  #strikes(data: Buffer): FaultKind | undefined {
    const { fault } = this;
    if (!fault || fault.times <= 0) return undefined;
    if (this.#spared > 0 && data.includes('\r\nEVAL\r\n')) {
      this.#spared -= 1;
      fault.times -= 1;
      return 'cut';
    }
    if (!data.includes(fault.word)) return undefined;
    fault.after = (fault.after ?? 0) - 1;
    if (fault.after >= 0) return undefined;
    fault.times -= 1;
    this.struck += 1;
    fault.before?.();
    return fault.kind === 'pass' ? undefined : fault.kind;
  }

  /** A call that was to be cut has not run: its script's text is struck instead. Returns whether there is a fault. */
  #spares(): boolean {
    if (!this.fault) return false;
    this.fault.times += 1;
    this.#spared += 1;
    return true;
  }

  /** Applies a fault to the open connections that `which` selects (default: all). Returns how many. */
  strike(kind: FaultKind, which: (said: string) => boolean = () => true): number {
    const links = [...this.#links].filter((link) => which(link.said));
    for (const link of links) link.strike(kind);
    return links.length;
  }

  /** Delays all traffic of the open connections that `which` selects (default: all) for `ms`. Returns how many. */
  delay(ms: number, which: (said: string) => boolean = () => true): number {
    const links = [...this.#links].filter((link) => which(link.said));
    for (const link of links) link.delay(ms);
    return links.length;
  }

  /** Sends new connections to another target, and closes the open ones unless they are to be kept. */
  retarget(target: Target, { keep = false }: { keep?: boolean } = {}): void {
    this.#targets = [target];
    if (!keep) this.strike('refuse');
  }

  async stop(): Promise<void> {
    const closed = this.#servers.map((server) => once(server.close(), 'close'));
    // The last, so that no connection comes after it.
    this.strike('refuse');
    await within(30_000, 'a proxy, with all connections closed,', Promise.all(closed));
  }
}

/** How a server replies that does not know the script of a call. */
const NO_SCRIPT = '-NOSCRIPT ';

/** One connection through the proxy. */
class Link {
  readonly #client: Socket;
  readonly #redis: Socket;
  /** A fault adds to those before it: what has lost bytes once must pass none that follow. */
  readonly #struck = new Set<FaultKind>();
  /** The client's first bytes: they identify a replica. */
  said = '';
  readonly closed: Promise<void>;

  constructor(
    client: Socket,
    target: Target,
    strikes: (data: Buffer) => FaultKind | undefined,
    spares: () => boolean,
    translated: (data: Buffer) => Buffer,
  ) {
    this.#client = client;
    this.#redis = typeof target === 'string' ? connect(target) : connect(target, '127.0.0.1');
    for (const socket of [client, this.#redis]) {
      socket.setNoDelay(true);
      socket.on('error', () => {});
      socket.on('close', () => this.#end());
    }
    this.closed = new Promise((resolve) => client.once('close', () => resolve()));
    client.on('data', (data: Buffer) => {
      if (this.said.length < 1_000) this.said += data.toString('latin1');
      const kind = strikes(data);
      if (kind) this.strike(kind);
      if (!this.#has('deaf', 'half-open')) this.#redis.write(data);
    });
    this.#redis.on('data', (data: Buffer) => {
      if (this.#has('cut') && data.includes(NO_SCRIPT) && spares()) this.#struck.delete('cut');
      if (this.#has('cut')) this.#end();
      else if (!this.#has('silent', 'half-open')) client.write(translated(data));
    });
  }

  #has(...kinds: readonly FaultKind[]): boolean {
    return kinds.some((kind) => this.#struck.has(kind));
  }

  #end(): void {
    // The client of a half-open connection never learns of its end.
    if (!this.#has('half-open')) this.#client.destroy();
    this.#redis.destroy();
  }

  strike(kind: FaultKind): void {
    this.#struck.add(kind);
    if (kind !== 'refuse') return;
    this.#client.destroy();
    this.#redis.destroy();
  }

  delay(ms: number): void {
    for (const socket of [this.#client, this.#redis]) {
      socket.pause();
      setTimeout(() => socket.resume(), ms);
    }
  }
}
