import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

/**
 * What may happen to a connection.
 *
 * - `cut`: what was asked is carried out, and the connection cut before the reply
 * - `refuse`: the connection is cut before the request arrives
 * - `silent`: requests arrive, and nothing comes back any more; the connection stays open
 * - `deaf`: requests no longer arrive; the connection stays open
 * - `half-open`: neither, as if the other host had lost power
 */
export type FaultKind = 'cut' | 'refuse' | 'silent' | 'deaf' | 'half-open';

/** What happens to a call whose bytes hold `word`, such as the name of a command or the hash of a script. */
export interface Fault {
  readonly word: string;
  readonly kind: FaultKind;
  /** How many calls it strikes. */
  times: number;
}

/** A Unix socket's path, or a port on 127.0.0.1. */
export type Target = string | number;

/** A TCP proxy between clients and Redis. Its faults strike by what is asked, or all connections that are open. */
export class FaultyProxy {
  readonly #server: Server;
  readonly #links = new Set<Link>();
  #target: Target;
  /** The fault that strikes next, if any. */
  fault: Fault | undefined;
  /** How many calls were struck. */
  struck = 0;

  private constructor(target: Target) {
    this.#target = target;
    this.#server = createServer((client) => {
      const link = new Link(client, this.#target, (data) => this.#strikes(data));
      this.#links.add(link);
      link.closed.then(() => this.#links.delete(link));
    });
  }

  static async start(target: Target): Promise<FaultyProxy> {
    const proxy = new FaultyProxy(target);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  #strikes(data: Buffer): FaultKind | undefined {
    const { fault } = this;
    if (!fault || fault.times <= 0 || !data.includes(fault.word)) return undefined;
    fault.times -= 1;
    this.struck += 1;
    return fault.kind;
  }

  /** Strikes the open connections that `which` picks (all), at once. Returns how many. */
  strike(kind: FaultKind, which: (said: string) => boolean = () => true): number {
    const links = [...this.#links].filter((link) => which(link.said));
    for (const link of links) link.strike(kind);
    return links.length;
  }

  /** Holds up all that is under way on the open connections for `ms`. */
  delay(ms: number): void {
    for (const link of this.#links) link.delay(ms);
  }

  /** Sends whoever connects from now on elsewhere, and cuts what is open. */
  retarget(target: Target): void {
    this.#target = target;
    this.strike('refuse');
  }

  async stop(): Promise<void> {
    this.strike('refuse');
    this.#server.close();
    await once(this.#server, 'close');
  }
}

/** One connection through the proxy. */
class Link {
  readonly #client: Socket;
  readonly #redis: Socket;
  #struck: FaultKind | undefined;
  /** The first words of the client: tells a replica from the others. */
  said = '';
  readonly closed: Promise<void>;

  constructor(client: Socket, target: Target, strikes: (data: Buffer) => FaultKind | undefined) {
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
      const arrives = this.#struck === undefined || this.#struck === 'cut' || this.#struck === 'silent';
      if (arrives) this.#redis.write(data);
    });
    this.#redis.on('data', (data: Buffer) => {
      if (this.#struck === 'cut') this.#end();
      else if (this.#struck === undefined || this.#struck === 'deaf') client.write(data);
    });
  }

  #end(): void {
    // A half-open connection is one whose end is never told.
    if (this.#struck !== 'half-open') this.#client.destroy();
    this.#redis.destroy();
  }

  strike(kind: FaultKind): void {
    this.#struck = kind;
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
