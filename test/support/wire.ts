import { connect, type Socket } from 'node:net';
import { afterwards } from './afterwards.js';
import { until } from './until.js';

/** One answer, as its bytes came. */
export interface WireAnswer {
  readonly status: number;
  /** By names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: Buffer;
  readonly json: unknown;
}

/** One connection on which a test writes requests byte by byte, closed after the test. */
export class Wire {
  readonly #socket: Socket;
  #received = Buffer.alloc(0);
  /** The other side has closed its half. */
  hasEnded = false;
  /** The connection was reset. */
  wasReset = false;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on('data', (data: Buffer) => {
      this.#received = Buffer.concat([this.#received, data]);
    });
    socket.on('end', () => {
      this.hasEnded = true;
    });
    socket.on('error', () => {
      this.wasReset = true;
    });
  }

  /** Connects to a URL. The end of the other side does not end this one. */
  static async to(url: string): Promise<Wire> {
    const { hostname, port } = new URL(url);
    const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
    afterwards(() => socket.destroy());
    const wire = new Wire(socket);
    await until(() => !socket.connecting);
    return wire;
  }

  /** Writes bytes: lines that end in CRLF, or a buffer. */
  write(...parts: readonly (string | Buffer)[]): void {
    this.#socket.write(Buffer.concat(parts.map((part) => Buffer.from(part as string))));
  }

  /** How many bytes wait in this process because the other side does not take them. */
  get waiting(): number {
    return this.#socket.writableLength;
  }

  /** The next answer. `bodiless`: it has no body whatever its headers say, as that of a HEAD. */
  async answer({ bodiless = false } = {}): Promise<WireAnswer> {
    await until(() => this.#received.includes('\r\n\r\n') || this.hasEnded || this.wasReset);
    const end = this.#received.indexOf('\r\n\r\n');
    if (end < 0) throw new Error(`no answer but ${JSON.stringify(this.#received.toString())}`);
    const [first = '', ...lines] = this.#received.subarray(0, end).toString('latin1').split('\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(first)?.[1]);
    const headers = new Map(
      lines.map((line) => {
        const colon = line.indexOf(':');
        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const;
      }),
    );
    const none = bodiless || status < 200 || status === 204 || status === 304;
    const length = none ? 0 : Number(headers.get('content-length'));
    const from = end + 4;
    await until(() => this.#received.length >= from + length || this.hasEnded || this.wasReset);
    const body = this.#received.subarray(from, from + length);
    this.#received = this.#received.subarray(from + length);
    return { status, headers, body, json: length > 0 ? JSON.parse(body.toString()) : undefined };
  }

  /** Writes a request and returns its answer. */
  ask(...parts: readonly (string | Buffer)[]): Promise<WireAnswer> {
    this.write(...parts);
    return this.answer();
  }

  /** What came and was not read as an answer. */
  get rest(): string {
    return this.#received.toString();
  }

  /** Reads nothing from now on, as a client that hangs. */
  pause(): void {
    this.#socket.pause();
  }

  close(): void {
    this.#socket.destroy();
  }

  /** Resets the connection, as a kernel does whose program has not read all before it closed. */
  reset(): void {
    this.#socket.resetAndDestroy();
  }
}

/** The bytes of a request: its line, headers as they are given, and a body. */
export function request(line: string, headers: readonly string[], body: string | Buffer = ''): Buffer {
  return Buffer.concat([
    Buffer.from([`${line} HTTP/1.1`, ...headers, '', ''].join('\r\n')),
    Buffer.from(body as string),
  ]);
}
