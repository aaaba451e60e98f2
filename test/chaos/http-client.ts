import { type Agent, type IncomingHttpHeaders, request } from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** What came back as a whole. */
export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** Where and when a client breaks off: by closing the connection, or by resetting it. */
export type Cut =
  /** In the middle of its request. */
  | { readonly at: 'request'; readonly reset: boolean }
  /** After so long, wherever it is then. */
  | { readonly at: 'any'; readonly afterMs: number; readonly reset: boolean }
  /** When the answer begins; it does not read on, and goes a little later. */
  | { readonly at: 'answer'; readonly afterMs: number; readonly reset: boolean };

export interface Asking {
  readonly port: number;
  readonly method: string;
  readonly path: string;
  readonly body?: Buffer;
  readonly headers?: Readonly<Record<string, string>>;
  /** Over a connection that is kept; by default over a new one. */
  readonly agent?: Agent;
  readonly cut?: Cut | undefined;
  /** The body goes out in so many parts, some time apart. */
  readonly parts?: number;
  readonly timeoutMs: number;
}

/** How far apart the parts of a slow body are, ms. */
const PART_MS = 100;

/**
 * Sends a request. Resolves with the answer; `refused`: the server cannot have read it as a whole; `cut`: this client
 * broke off; `lost`: the connection ended without a whole answer; `silent`: nothing came in time.
 */
export function ask(asking: Asking): Promise<Answer | 'refused' | 'cut' | 'lost' | 'silent'> {
  const { port, method, path, body, cut, headers = {}, agent, parts = 1, timeoutMs } = asking;
  return new Promise((resolve) => {
    const length = body ? { 'Content-Length': String(body.length) } : {};
    const outgoing = request({ port, method, path, agent: agent ?? false, headers: { ...headers, ...length } });
    const end = (how: Answer | 'refused' | 'cut' | 'lost' | 'silent') => {
      clearTimeout(late);
      clearTimeout(leaving);
      resolve(how);
    };
    const breakOff = (how: 'refused' | 'cut') => {
      end(how);
      const socket = outgoing.socket as Socket | null;
      if (cut?.reset && socket) socket.resetAndDestroy();
      outgoing.destroy();
    };
    const late = setTimeout(() => {
      end('silent');
      outgoing.destroy();
    }, timeoutMs);
    const leaving = cut?.at === 'any' ? setTimeout(() => breakOff('cut'), cut.afterMs) : undefined;
    outgoing.on('error', (error: NodeJS.ErrnoException) => end(error.code === 'ECONNREFUSED' ? 'refused' : 'lost'));
    outgoing.on('response', (incoming) => {
      if (cut?.at === 'answer') return void setTimeout(() => breakOff('cut'), cut.afterMs);
      const chunks: Buffer[] = [];
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
      incoming.on('error', () => end('lost'));
      incoming.on('close', () => {
        if (!incoming.complete) return end('lost');
        end({ status: incoming.statusCode as number, headers: incoming.headers, body: Buffer.concat(chunks) });
      });
    });
    if (cut?.at === 'request') outgoing.write(body?.subarray(0, body.length / 2), () => breakOff('refused'));
    else if (parts > 1 && body) void writeSlowly(outgoing, body, parts);
    else outgoing.end(body);
  });
}

async function writeSlowly(outgoing: ReturnType<typeof request>, body: Buffer, parts: number): Promise<void> {
  for (let part = 0; part < parts && !outgoing.destroyed; part++) {
    const bound = (n: number) => Math.floor((n * body.length) / parts);
    outgoing.write(body.subarray(bound(part), bound(part + 1)));
    await sleep(PART_MS);
  }
  outgoing.end();
}
