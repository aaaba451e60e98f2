import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';

/** What a scripted server replies; undefined: nothing. An error is an error reply. */
export type Said = string | number | Error | undefined | readonly Said[];

/** Replies to a call, given as words. */
type Answer = (call: readonly string[]) => Said | Promise<Said>;

/** Speaks for a server as a test tells it: for replies that real servers give at rare moments only. */
export class Scripted {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** All calls until now, but for those that name a connection. */
  readonly calls: string[] = [];
  /** How many connections there have been. */
  connections = 0;

  private constructor(answer: Answer) {
    this.#server = createServer((socket) => {
      this.connections += 1;
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket)).on('error', () => {});
      let last: Promise<unknown> = Promise.resolve();
      let rest = '';
      socket.setEncoding('latin1').on('data', (data) => {
        let call: string[] | undefined;
        for ([call, rest] = next(rest + data); call; [call, rest] = next(rest)) {
          const words = call;
          const isName = words[0]?.toLowerCase() === 'client';
          if (!isName) this.calls.push(words.join(' '));
          const said = isName ? 'OK' : answer(words);
          last = last.then(async () => socket.write(encoded(await said)));
        }
      });
    });
  }

  static async start(answer: Answer): Promise<Scripted> {
    const scripted = new Scripted(answer);
    await once(scripted.#server.listen(0, '127.0.0.1'), 'listening');
    return scripted;
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port;
  }

  get place(): string {
    return `127.0.0.1:${this.port}`;
  }

  /** How many calls began with these words. */
  heard(words: string): number {
    return this.calls.filter((call) => call.startsWith(words)).length;
  }

  /** Sends something to all connections, without having been asked. */
  say(said: Said): void {
    for (const socket of this.#sockets) socket.write(encoded(said));
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    if (this.#server.listening) await once(this.#server.close(), 'close');
  }
}

/** The first call in what has arrived, if it is whole, and the rest. */
function next(text: string): [string[] | undefined, string] {
  const head = /^\*(\d+)\r\n/.exec(text);
  if (!head) return [undefined, text];
  const words: string[] = [];
  let at = head[0].length;
  while (words.length < Number(head[1])) {
    const bulk = /^\$(\d+)\r\n/.exec(text.slice(at));
    if (!bulk) return [undefined, text];
    const from = at + bulk[0].length;
    at = from + Number(bulk[1]) + 2;
    if (text.length < at) return [undefined, text];
    words.push(text.slice(from, at - 2));
  }
  return [words, text.slice(at)];
}

function encoded(said: Said): string {
  if (said === undefined) return '';
  if (said instanceof Error) return `-${said.message}\r\n`;
  if (typeof said === 'number') return `:${said}\r\n`;
  if (said === 'OK') return '+OK\r\n';
  if (typeof said === 'string') return `$${said.length}\r\n${said}\r\n`;
  return `*${said.length}\r\n${said.map(encoded).join('')}`;
}
