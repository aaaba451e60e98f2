import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

/** What happens to a call whose bytes hold `word`. */
export interface Fault {
  /** A part of the request, such as EVALSHA. */
  readonly word: string;
  /** `cut`: it is carried out and the connection cut before its reply · `silent`: nothing comes back any more. */
  readonly kind: 'cut' | 'silent' | 'refuse';
  /** How many calls it strikes. */
  times: number;
}

/** A TCP proxy between a client and Redis whose faults are placed by what is asked, not by time. */
export class FaultyProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** The fault that strikes next, if any. */
  fault: Fault | undefined;
  /** How many calls were struck. */
  struck = 0;

  private constructor(target: string) {
    this.#server = createServer((client) => this.#serve(client, target));
  }

  static async start(targetSocket: string): Promise<FaultyProxy> {
    const proxy = new FaultyProxy(targetSocket);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get url(): string {
    return `redis://127.0.0.1:${(this.#server.address() as { port: number }).port}`;
  }

  #serve(client: Socket, target: string): void {
    const redis = connect(target);
    for (const socket of [client, redis]) {
      this.#sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        this.#sockets.delete(socket);
        client.destroy();
        redis.destroy();
      });
    }
    let striking: Fault['kind'] | undefined;
    client.on('data', (data) => {
      const fault = this.fault;
      if (fault && fault.times > 0 && data.includes(fault.word)) {
        fault.times -= 1;
        this.struck += 1;
        striking = fault.kind;
        if (striking === 'refuse') client.destroy();
      }
      redis.write(data);
    });
    redis.on('data', (data) => {
      if (striking === 'cut') client.destroy();
      else if (striking === undefined) client.write(data);
    });
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }
}
