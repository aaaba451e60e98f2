import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../../internal.js';
import { type Memory, TOO_MUCH } from './memory.js';
import { Refusal, refusalOf } from './refusal.js';
import { requestId } from './request-id.js';

/** Thrown when the client has gone, and needs no answer. */
export const GONE = Symbol('gone');

/** How many bytes of an unwanted body to read: otherwise the client might not see the answer. */
const MAX_DROPPED = 16 * 1024 * 1024;

/** Answers that are larger, bytes, are sent only while there is memory for them. */
const LARGE = 16 * 1024;

const NOTHING = Buffer.alloc(0);

/** The least room for a body that comes in several chunks, bytes. */
const LEAST = 4 * 1024;

/** The header of an answer that is JSON as text already. */
export const JSON_TYPE = ['Content-Type', 'application/json; charset=utf-8'];

/** The body of an answer: an object becomes JSON; bytes and text are sent as they are. */
export type Body = object | Buffer | string | undefined;

/** How long a listener waits for its clients, ms: what the documents promise. */
export const PATIENCE = {
  /** For the headers of a request. */
  headersMs: 10_000,
  /** For a whole request. */
  requestMs: 30_000,
  /** For the next request of a connection. Long: clients do not repeat a PUT that meets a closed connection. */
  idleMs: 650_000,
  /** For a client to take an answer. */
  answerMs: 60_000,
  /** For a client to read why it is cut off. */
  lingerMs: 2_000,
  /** How often it looks for clients that are late with a request. */
  checkMs: 2_000,
};
export type Patience = Readonly<typeof PATIENCE>;

/** What the requests of a listener share. */
export interface Host {
  readonly memory: Memory;
  readonly clock: Clock;
  readonly patience: Patience;
  /** Aborts when the server stops: answers close their connections. */
  readonly signal: AbortSignal;
  /** Called once for each, when the kernel has taken the whole answer, or the client has gone. */
  readonly ended: (exchange: Exchange) => void;
}

/** What the requests of one connection share. */
export interface HttpConnection {
  /** Those that have not ended. */
  exchanges: readonly Exchange[];
  /** A request of it was admitted: it stays open. */
  isAdmitted: boolean;
  /** It is about to close, and no further request of it is served. */
  isClosing: boolean;
  /** What to do if the client resets it soon after an answer, and since when. */
  reset: { readonly act: () => void; readonly since: number } | undefined;
}

const NO_HEADERS = {};
const NO_RAW_HEADERS: string[] = [];

/** No exchanges. */
export const NONE: readonly Exchange[] = [];

/** One request and its answer. */
export class Exchange {
  readonly id = requestId();
  readonly request: IncomingMessage;
  readonly method: string;
  /** Without the query, as it was sent. */
  readonly path: string;
  /** The pattern of its route, for the log and for metrics. */
  route = '-';
  /** Who asked, for the log: the fingerprint of the token. */
  who = '-';
  readonly since = performance.now();
  /** Why it failed, for the log. */
  cause: unknown;
  /** Called with each error of the handler. */
  onFailure: ((error: unknown) => void) | undefined;
  readonly #response: ServerResponse;
  readonly #host: Host;
  readonly #connection: HttpConnection;
  #search: string;
  #query: URLSearchParams | undefined;
  /** How many bytes of bodies this request holds. */
  #held = 0;
  #state: 'open' | 'answered' | 'delivered' | 'gone' = 'open';
  #answeredAt = 0;
  /** The client sends its body only after 100 Continue. */
  #isWaiting: boolean;
  /** The answer of the handler was replaced by another. */
  #isReplaced = false;
  #watchers: ((delivered: boolean) => void)[] | undefined;
  /** The client has shut its side of the connection: it may wait for its answer, or have gone. */
  isShut = false;
  #onShut: (() => void) | undefined;

  constructor(request: IncomingMessage, response: ServerResponse, host: Host, connection: HttpConnection) {
    this.request = request;
    this.#response = response;
    this.#host = host;
    this.#connection = connection;
    this.method = request.method ?? '';
    this.#isWaiting = request.headers.expect !== undefined && request.httpVersion === '1.1';
    const { url: target = '' } = request;
    // Clients of a proxy write a whole URL.
    const url = target.startsWith('/') ? target : target.replace(/^https?:\/\/[^/?]*/i, '');
    const mark = url.indexOf('?');
    this.path = mark < 0 ? url : url.slice(0, mark);
    this.#search = mark < 0 ? '' : url.slice(mark + 1);
    response.on('finish', () => this.#end('delivered'));
    // A new array of exact length: one that grows has room for 17 more.
    connection.exchanges = connection.exchanges.length > 0 ? [...connection.exchanges, this] : [this];
    connection.reset = undefined;
  }

  get query(): URLSearchParams {
    this.#query ??= new URLSearchParams(this.#search);
    return this.#query;
  }

  /** Frees the query and the headers: the request may wait for long. */
  dropHead(): void {
    this.#search = '';
    this.#query = undefined;
    this.request.headers = NO_HEADERS;
    this.request.rawHeaders = NO_RAW_HEADERS;
  }

  /** A header of the request; of several the first. */
  header(name: string): string | undefined {
    const value = this.request.headers[name];
    return Array.isArray(value) ? value[0] : value;
  }

  /** Keeps the connection open for more requests: this client may use the server. */
  admitted(): void {
    this.#connection.isAdmitted = true;
  }

  /** The client has gone, or its connection is broken: nothing can be sent any more. */
  get isGone(): boolean {
    return this.#state === 'gone';
  }

  get isAnswered(): boolean {
    return this.#state !== 'open';
  }

  /** The client has not taken the whole answer in time. */
  get isStuck(): boolean {
    const { clock, patience } = this.#host;
    return this.#state === 'answered' && clock.now() - this.#answeredAt > patience.answerMs;
  }

  get status(): number {
    return this.#response.statusCode;
  }

  /** Called by the listener when the connection is closed. */
  closed(): void {
    this.#end('gone');
  }

  /** Called by the listener when the client has shut its side. */
  shut(): void {
    this.isShut = true;
    if (!this.#onShut) return;
    this.#onShut();
    this.closed();
  }

  /**
   * Calls `act` when the client has shut its side, and then counts it as gone: for answers that must reach a client. A
   * client that has gone looks the same until it is written to. `act` must still answer: later requests of the
   * connection wait for that.
   */
  onShut(act: () => void): void {
    this.#onShut = act;
    if (this.isShut) this.shut();
  }

  /**
   * Calls `act` if the connection is reset soon, and before the next request: the client had left, but its end of the
   * connection was not yet read when the answer was written.
   */
  onReset(act: () => void): void {
    this.#connection.reset = { act, since: this.#host.clock.now() };
  }

  /**
   * Calls `ended` once: with true when the kernel has taken the whole answer, with false as soon as the client has gone
   * before that.
   */
  onEnd(ended: (delivered: boolean) => void): void {
    if (this.#state === 'delivered' || this.#state === 'gone') ended(this.#isDelivered);
    else if (this.#watchers) this.#watchers.push(ended);
    else this.#watchers = [ended];
  }

  #end(how: 'delivered' | 'gone'): void {
    if (this.#state === 'delivered' || this.#state === 'gone') return;
    this.#state = how;
    this.#host.memory.release(this.#held);
    this.#held = 0;
    const { exchanges } = this.#connection;
    this.#connection.exchanges = exchanges.length > 1 ? exchanges.filter((one) => one !== this) : NONE;
    this.#host.ended(this);
    for (const ended of this.#watchers ?? []) ended(this.#isDelivered);
    this.#watchers = undefined;
  }

  get #isDelivered(): boolean {
    return this.#state === 'delivered' && !this.#isReplaced;
  }

  /** The length of the body by its header, bytes; 0: none; NaN: unknown. */
  get #length(): number {
    const { headers } = this.request;
    return headers['transfer-encoding'] === undefined ? Number(headers['content-length'] ?? 0) : Number.NaN;
  }

  #goOn(): void {
    if (this.#isWaiting) this.#response.writeContinue();
    this.#isWaiting = false;
  }

  /**
   * Reads the body, at most `maxBytes` bytes. Throws a refusal: 413 if it is longer, 503 if too much is in flight; GONE
   * if the client goes away.
   */
  body(maxBytes: number): Promise<Buffer> {
    const { request } = this;
    if (this.#length > maxBytes) throw tooLarge();
    this.#goOn();
    const whole = Number.isNaN(this.#length) ? maxBytes : this.#length;
    return new Promise((resolve, reject) => {
      // A buffer that grows, not a list: thousands of small chunks would take many times their bytes.
      let bytes: Buffer = NOTHING;
      let length = 0;
      let isWhole = false;
      // Rejecting a resolved promise costs a call out of JavaScript.
      this.onEnd(() => isWhole || reject(GONE));
      const take = (chunk: Buffer) => {
        const before = length;
        length += chunk.length;
        try {
          if (length > maxBytes) throw tooLarge();
          if (length > bytes.length) {
            // Most bodies come as one chunk.
            const size = before === 0 ? length : Math.min(whole, Math.max(LEAST, 2 * length));
            this.#host.memory.reserve(size - bytes.length);
            this.#held += size - bytes.length;
            const old = bytes;
            bytes = before === 0 ? chunk : Buffer.allocUnsafeSlow(size);
            old.copy(bytes, 0, 0, before);
          }
          if (before > 0) chunk.copy(bytes, before);
        } catch (error) {
          request.off('data', take);
          reject(error);
        }
      };
      request.on('data', take);
      request.on('end', () => {
        isWhole = true;
        resolve(bytes.subarray(0, length));
      });
    });
  }

  /** Reads the body, and drops it. */
  dropBody(): void {
    if (this.#length <= MAX_DROPPED) this.#goOn();
    this.request.resume();
  }

  /** Answers a request that cannot be read to its end, and closes the connection. */
  cut(status: number, error: string): void {
    this.#isWaiting = true;
    // The handler may already have jobs for it, which are then not delivered.
    this.#isReplaced = true;
    this.answer(status, { error });
  }

  /** Lets `act` answer. Turns its errors into answers. */
  attempt(act: () => Promise<void> | void): void {
    try {
      act()?.catch((error: unknown) => this.refuse(error));
    } catch (error) {
      this.refuse(error);
    }
  }

  /** Answers with the refusal of an error. */
  refuse(error: unknown): void {
    if (error === GONE) {
      // Node may only know that the client sends nothing more.
      this.request.socket.destroy();
      return;
    }
    this.onFailure?.(error);
    const refusal = refusalOf(error);
    this.cause = refusal.cause;
    this.answer(refusal.status, refusal.body, Object.entries(refusal.headers).flat());
  }

  /**
   * Answers, with 503 if there is no memory for a large answer: it then counts as not delivered. Does nothing if the
   * client has gone. `headers`: names and values in turn.
   */
  answer(status: number, body?: Body, headers: readonly string[] = []): void {
    if (this.#state !== 'open') return;
    const isRaw = Buffer.isBuffer(body) || typeof body === 'string';
    const content = body === undefined ? '' : isRaw ? body : JSON.stringify(body);
    const length = typeof content === 'string' ? Buffer.byteLength(content) : content.length;
    const { memory, signal } = this.#host;
    // Half of the memory is for requests: clients that do not read must not stop those that publish.
    if (length > LARGE && memory.used + length > memory.limit / 2) {
      this.#isReplaced = true;
      this.answer(503, { error: TOO_MUCH }, ['Retry-After', '1']);
      return;
    }
    this.#state = 'answered';
    this.#answeredAt = this.#host.clock.now();
    memory.note(length);
    this.#held += length;
    const all = ['X-Request-ID', this.id, ...headers];
    if (!isRaw && body !== undefined) all.push(...JSON_TYPE);
    if (status !== 204) all.push('Content-Length', String(length));
    const isPart = !this.request.complete && this.#length !== 0;
    // Otherwise strangers could hold all connections, with one request each.
    const isStranger = !this.#connection.isAdmitted;
    const isLast = signal.aborted || isStranger;
    const isCut = isPart && (isLast || status === 413 || this.#isWaiting || this.#length > MAX_DROPPED);
    if (isLast || isCut) {
      // Later requests of the client get no answer, so do not carry them out.
      this.#connection.isClosing = true;
      all.push('Connection', 'close');
    }
    this.#response.writeHead(status, all);
    if (!isCut) this.#response.end(content);
    else {
      this.#response.flushHeaders();
      this.#response.write(content, () => this.#end('delivered'));
    }
    if (isPart) this.#drop(isCut);
  }

  /**
   * Reads and drops the rest of the body, for a while. Closing the connection earlier would reset it, and a client that
   * writes before it reads would lose the answer.
   */
  #drop(isCut: boolean): void {
    const { request } = this;
    const response = this.#response;
    const end = () => (isCut ? response.end() : request.socket.destroy());
    let left = MAX_DROPPED;
    request.on('data', (chunk: Buffer) => {
      left -= chunk.length;
      if (left < 0) end();
    });
    if (!isCut) return;
    const timer = setTimeout(end, this.#host.patience.lingerMs).unref();
    request.on('end', () => {
      clearTimeout(timer);
      end();
    });
  }
}

const tooLarge = () => new Refusal(413, 'body too large');
