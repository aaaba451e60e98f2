import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { type Clock, realClock } from '../../internal.js';
import { Exchange, type Host, type HttpConnection, NONE, PATIENCE, type Patience } from './exchange.js';
import type { Memory } from './memory.js';
import { Refusal } from './refusal.js';
import { requestId } from './request-id.js';

/** Where a listener listens. */
export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** A client that had left before its answer resets the connection within this time, ms. */
const RESET_MS = 5_000;

/** Requests of one connection whose answers are not sent yet: a client that pipelines more is cut off. */
const MAX_PIPELINED = 64;

/** The most bytes of headers. */
const MAX_HEADERS = 16 * 1024;

/** The answers to faulty requests other than 400, by Node's codes. */
const FAULTS: Readonly<Record<string, readonly [status: number, phrase: string]>> = {
  HPE_HEADER_OVERFLOW: [431, 'Request Header Fields Too Large'],
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'Request Timeout'],
};

export interface ListenerOptions {
  readonly place: HostPort;
  /** The bytes of bodies; listeners may share it. */
  readonly memory: Memory;
  readonly maxConnections: number;
  /** Once it aborts, each answer closes its connection. */
  readonly signal: AbortSignal;
  /** Default: {@link PATIENCE}. */
  readonly patience?: Partial<Patience> | undefined;
  readonly clock?: Clock | undefined;
  /** Answers a request: with `refusal`, if there is one. */
  readonly handle: (exchange: Exchange, refusal?: Refusal) => void;
  /** Called when a request has ended. */
  readonly ended: (exchange: Exchange) => void;
  /** Called with the address of each connection over the limit. */
  readonly dropped: (address: string) => void;
}

const CLOSE = { headers: { Connection: 'close' } };

/** An HTTP server on one address: its limits, its connections, and its end. */
export class Listener {
  readonly #server: Server;
  readonly #options: ListenerOptions;
  readonly #host: Host;
  /**
   * Each connection has its requests. Not one set of all: V8 would copy it again and again, and old copies keep ended
   * requests in memory.
   */
  readonly #open = new Map<Socket, HttpConnection>();
  #stopWatching = () => {};

  constructor(options: ListenerOptions) {
    const { memory, maxConnections, signal, clock = realClock, ended, dropped } = options;
    const patience = { ...PATIENCE, ...options.patience };
    this.#options = options;
    this.#host = { memory, clock, patience, signal, ended };
    const server = createServer({
      headersTimeout: patience.headersMs,
      requestTimeout: patience.requestMs,
      keepAliveTimeout: patience.idleMs,
      connectionsCheckingInterval: patience.checkMs,
      maxHeaderSize: MAX_HEADERS,
      keepAlive: true,
      keepAliveInitialDelay: 60_000,
      noDelay: true,
      // Node's own answer has no body.
      requireHostHeader: false,
    });
    // RFC 9112, 9.6: a client that has shut its side may still wait for its answer. Then Node closes the connection.
    (server as Server & { httpAllowHalfOpen: boolean }).httpAllowHalfOpen = true;
    server.maxConnections = maxConnections;
    // Node would drop headers after the 2,000th, perhaps the X-Forwarded-For of a proxy. Their size is limited.
    server.maxHeadersCount = 0;
    server.on('drop', (data) => dropped(data?.remoteAddress ?? 'an unknown address'));
    server.on('request', (request, response) => this.#serve(request, response));
    // A client that waits for its body's turn is answered at once if the body is not wanted.
    server.on('checkContinue', (request, response) => this.#serve(request, response));
    server.on('checkExpectation', (request, response) =>
      this.#serve(request, response, new Refusal(417, 'expectation failed', CLOSE)),
    );
    server.on('clientError', (error: NodeJS.ErrnoException, socket) => this.#refuse(error, socket as Socket));
    // The same functions for all connections.
    const open = this.#open;
    const onEnd = function (this: Socket) {
      for (const exchange of open.get(this)?.exchanges ?? NONE) exchange.shut();
    };
    const onClose = function (this: Socket, isReset: boolean) {
      const { exchanges, reset } = open.get(this) as HttpConnection;
      for (const exchange of exchanges) exchange.closed();
      open.delete(this);
      if (isReset && reset && clock.now() - reset.since < RESET_MS) reset.act();
    };
    server.on('connection', (socket) => {
      open.set(socket, { exchanges: NONE, isAdmitted: false, isClosing: false, reset: undefined });
      socket.on('end', onEnd);
      socket.on('close', onClose);
    });
    this.#server = server;
  }

  #serve(request: IncomingMessage, response: ServerResponse, refusal?: Refusal): void {
    const { socket } = request;
    const connection = this.#open.get(socket);
    if (!connection || connection.isClosing) return;
    if (connection.exchanges.length < MAX_PIPELINED) {
      const exchange = new Exchange(request, response, this.#host, connection);
      this.#options.handle(exchange, refusal ?? faultOf(request));
    } else {
      // Node parses on what it has read, but nothing of it is served.
      connection.isClosing = true;
      socket.destroy();
    }
  }

  /** Answers an invalid request, once per connection: after an error, all that follows is one. */
  #refuse(error: NodeJS.ErrnoException, socket: Socket): void {
    const connection = this.#open.get(socket);
    if (!socket.writable || error.code === 'ECONNRESET') return void socket.destroy();
    if (!connection || connection.isClosing) return;
    connection.isClosing = true;
    const [status, phrase] = FAULTS[error.code ?? ''] ?? [400, 'Bad Request'];
    const last = connection.exchanges.at(-1);
    if (!last) this.#say(socket, status, phrase);
    else if (last.request.complete) last.onEnd(() => this.#say(socket, status, phrase));
    else if (last.isAnswered) socket.destroy();
    else last.cut(status, phrase.toLowerCase());
  }

  /** Answers without an exchange, and closes the connection. */
  #say(socket: Socket, status: number, phrase: string): void {
    const body = JSON.stringify({ error: phrase.toLowerCase() });
    const headers = [
      `HTTP/1.1 ${status} ${phrase}`,
      `X-Request-ID: ${requestId()}`,
      'Content-Type: application/json; charset=utf-8',
      `Content-Length: ${body.length}`,
      'Connection: close',
    ];
    socket.end(`${headers.join('\r\n')}\r\n\r\n${body}`);
    // Not at once: that would reset the connection, and the answer might be lost.
    setTimeout(() => socket.destroy(), this.#host.patience.lingerMs).unref();
  }

  /** Begins to listen. Rejects with Node's error. */
  async start(): Promise<void> {
    this.#server.listen({ ...this.#options.place, backlog: 4096 });
    await once(this.#server, 'listening');
    this.#watchAnswers();
  }

  /** Where it listens, as a URL. */
  get url(): string {
    const { address, port, family } = this.#server.address() as AddressInfo;
    return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
  }

  get connections(): number {
    return this.#open.size;
  }

  /** The requests that have not ended. */
  get running(): Exchange[] {
    return [...this.#open.values()].flatMap(({ exchanges }) => exchanges);
  }

  /** A client that reads nothing must not hold its answer for ever. */
  #watchAnswers(): void {
    const { clock, patience } = this.#host;
    const look = () => {
      for (const [socket, { exchanges }] of this.#open) {
        if (exchanges.some(({ isStuck }) => isStuck)) socket.destroy();
      }
      this.#watchAnswers();
    };
    this.#stopWatching = clock.after(patience.answerMs / 6, look, { ref: false });
  }

  /** Accepts no more connections, closes those without a request, and resolves when all others have ended. */
  async stop(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
      // Node closes only idle connections that have had a request.
      for (const [socket, { exchanges }] of this.#open) if (exchanges.length === 0) socket.destroy();
    });
  }

  /** Cuts all connections. */
  cut(): void {
    this.#stopWatching();
    this.#server.closeAllConnections();
  }
}

/** Faults that Node's parser accepts, but that a proxy in front may read in another way. */
function faultOf(request: IncomingMessage): Refusal | undefined {
  const { httpVersion, headers } = request;
  const coding = headers['transfer-encoding'];
  const fault = !hasGoodHost(request)
    ? 'invalid host'
    : httpVersion !== '1.1' && httpVersion !== '1.0'
      ? 'invalid HTTP version'
      : coding !== undefined && (httpVersion === '1.0' || coding.toLowerCase() !== 'chunked')
        ? 'invalid transfer encoding'
        : undefined;
  return fault === undefined ? undefined : new Refusal(400, fault, CLOSE);
}

/** RFC 9112, 3.2: exactly one in HTTP/1.1. Never two: a proxy may have checked the other one. */
function hasGoodHost({ rawHeaders, httpVersion }: IncomingMessage): boolean {
  let count = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] as string;
    if (name.length === 4 && name.toLowerCase() === 'host') count++;
  }
  return count === 1 || (count === 0 && httpVersion === '1.0');
}
