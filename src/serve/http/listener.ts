import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { CLOCK, type Clock } from './clock.js';
import { Exchange, type Host, type HttpConnection } from './exchange.js';
import type { Memory } from './memory.js';
import { PATIENCE, type Patience } from './patience.js';
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

/** A socket as Node's HTTP server keeps it, with the parser of its requests, which is no part of Node's API. */
type Parsed = Socket & { readonly parser?: { onIncoming: () => number } | null };

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
}

/** What a listener does with requests. */
interface Handlers {
  /** Answers a request: with `refusal`, if there is one. */
  readonly handle: (exchange: Exchange, refusal?: Refusal) => void;
  /** Called when a request has ended. */
  readonly ended: (exchange: Exchange) => void;
  /** Called with the address of each connection over the limit. */
  readonly dropped: (address: string) => void;
}

/** A connection, with its requests that have not ended. */
interface Open extends HttpConnection {
  exchanges: readonly Exchange[];
}

const NONE: readonly Exchange[] = [];

const CLOSE = { headers: { Connection: 'close' } };

/** An HTTP server on one address: its limits, its connections, and its end. */
export class Listener {
  readonly #server: Server;
  readonly #place: HostPort;
  /**
   * Each connection has its requests. Not one set of all: V8 would copy it again and again, and old copies keep ended
   * requests in memory.
   */
  readonly #open = new Map<Socket, Open>();
  /** What to do if the connection is reset, and since when. */
  readonly #onReset = new WeakMap<Socket, { act: () => void; since: number }>();
  readonly #host: Host;
  #stopWatching = () => {};

  constructor(
    { place, memory, maxConnections, signal, patience: own, clock = CLOCK }: ListenerOptions,
    { handle, ended, dropped }: Handlers,
  ) {
    this.#place = place;
    const patience = { ...PATIENCE, ...own };
    const host = {
      memory,
      clock,
      patience,
      signal,
      ended: (exchange: Exchange) => {
        const open = this.#open.get(exchange.request.socket);
        if (open) open.exchanges = open.exchanges.length > 1 ? open.exchanges.filter((one) => one !== exchange) : NONE;
        ended(exchange);
      },
      onReset: ({ request }: Exchange, act: () => void) => {
        this.#onReset.set(request.socket, { act, since: clock.now() });
      },
    };
    this.#host = host;
    const options = {
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
    };
    const serve = (request: IncomingMessage, response: ServerResponse, refusal?: Refusal) => {
      const { socket } = request;
      const open = this.#open.get(socket);
      if (!open || open.isClosing) return;
      if (open.exchanges.length >= MAX_PIPELINED) {
        this.#cutFlood(socket, open);
        return;
      }
      const exchange = new Exchange(request, response, host, open);
      // A new array of exact length: one that grows has room for 17 more.
      open.exchanges = open.exchanges.length > 0 ? [...open.exchanges, exchange] : [exchange];
      this.#onReset.delete(socket);
      handle(exchange, refusal ?? faultOf(request));
    };
    const exchangesOf = (socket: Socket) => this.#open.get(socket)?.exchanges ?? NONE;
    const closed = (socket: Socket, isReset: boolean) => {
      for (const exchange of exchangesOf(socket)) exchange.closed();
      this.#open.delete(socket);
      const reset = this.#onReset.get(socket);
      if (isReset && reset && clock.now() - reset.since < RESET_MS) reset.act();
    };
    // The same functions for all connections.
    const onEnd = function (this: Socket) {
      for (const exchange of exchangesOf(this)) exchange.shut();
    };
    const onClose = function (this: Socket, isReset: boolean) {
      closed(this, isReset);
    };
    this.#server = createServer(options, (request, response) => serve(request, response));
    // A client that waits for its body's turn is answered at once if the body is not wanted.
    this.#server.on('checkContinue', (request, response) => serve(request, response));
    this.#server.on('checkExpectation', (request, response) =>
      serve(request, response, new Refusal(417, 'expectation failed', CLOSE)),
    );
    // RFC 9112, 9.6: a client that has shut its side may still wait for its answer. Then Node closes the connection.
    (this.#server as Server & { httpAllowHalfOpen: boolean }).httpAllowHalfOpen = true;
    this.#server.maxConnections = maxConnections;
    this.#server.on('drop', (data) => dropped(data?.remoteAddress ?? 'an unknown address'));
    // Node would drop headers after the 2,000th, perhaps the X-Forwarded-For of a proxy. Their size is limited.
    this.#server.maxHeadersCount = 0;
    this.#server.on('connection', (socket) => {
      this.#open.set(socket, { exchanges: NONE, isAdmitted: false, isClosing: false });
      socket.on('end', onEnd);
      socket.on('close', onClose);
    });
    this.#server.on('clientError', (error: NodeJS.ErrnoException, socket) => this.#refuse(error, socket as Socket));
  }

  /** Answers an invalid request, once per connection: after an error, all that follows is one. */
  #refuse(error: NodeJS.ErrnoException, socket: Socket): void {
    if (!socket.writable || error.code === 'ECONNRESET') return void socket.destroy();
    const open = this.#open.get(socket);
    if (!open || open.isClosing) return;
    open.isClosing = true;
    const [status, phrase] = FAULTS[error.code ?? ''] ?? [400, 'Bad Request'];
    const last = open.exchanges.at(-1);
    if (last && !last.request.complete) {
      if (last.isAnswered) socket.destroy();
      else last.cut(status, phrase.toLowerCase());
      return;
    }
    if (last) last.onEnd(() => this.#say(socket, status, phrase));
    else this.#say(socket, status, phrase);
  }

  /**
   * Cuts off a client that pipelines too much. Its earlier requests get answers if those are soon. The rest is not even
   * parsed: a thousand requests would hold up all other clients.
   */
  #cutFlood(socket: Socket, open: Open): void {
    open.isClosing = true;
    const { parser } = socket as Parsed;
    // Any number but 0, 1 and 2 is an error for the parser.
    if (parser) parser.onIncoming = () => -1;
    open.exchanges.at(-1)?.onEnd(() => this.#say(socket, 429, 'Too Many Requests'));
    this.#linger(socket);
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
    this.#linger(socket);
  }

  #linger(socket: Socket): void {
    setTimeout(() => socket.destroy(), this.#host.patience.lingerMs).unref();
  }

  /** Begins to listen. Rejects with Node's error. */
  async start(): Promise<void> {
    const { host, port } = this.#place;
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ host, port, backlog: 4096 }, () => {
        this.#server.off('error', reject);
        resolve();
      });
    });
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
    this.#stopWatching = clock.after(patience.answerMs / 6, () => {
      for (const [socket, { exchanges }] of this.#open) {
        if (exchanges.some(({ isStuck }) => isStuck)) socket.destroy();
      }
      this.#watchAnswers();
    });
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
