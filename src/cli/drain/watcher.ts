import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Connection, DelayqError, type Job, Leases, Queue } from '../../internal.js';
import { attempt } from '../host/attempt.js';
import type { Context, Globals } from '../host/context.js';
import { WATCHER } from '../host/host.js';
import { Confirmer } from './confirmer.js';
import type { Drain } from './drain.js';
import { type Pipe, type Reader, readerOfPipe } from './reader.js';

/*
 * While a wrapper or a shell also has the pipe open for writing, the reader sees no end before they end, and they may wait
 * for the drain. So a drain that has written everything ends before its reader. A process of its own, the watcher, then
 * renews the leases, and confirms what the reader has handled.
 *
 * There is one watcher for a pipe: what a reader has left is found by reading it out of the pipe, so a second one would
 * find nothing. It listens on a socket that is named after the pipe. Those that are started later hand over to it, and
 * end.
 */

/** What a watcher gets on its stdin, as JSON. */
interface Handover {
  /** The options of the drain: they say where Redis is. */
  readonly globals: Globals;
  /** Its `descriptor` is {@link PIPE} in the watcher. */
  readonly pipe: Pipe;
  readonly leaseMs: number;
  /** The lines in the order of writing. Queues are given by name, times in ms. */
  readonly lines: readonly {
    readonly queue: string;
    readonly id: string;
    readonly receipt: string;
    readonly bytes: number;
    readonly agoMs: number;
  }[];
}

/** The descriptor of the pipe in a watcher. */
const PIPE = 3;

/** What a watcher answers when it holds the leases. */
const TAKEN = 'taken\n';

/** The variable in the environment of a watcher whose value others must know that hand over to it. */
const KEY = 'DELAYQ_WATCHER_KEY';

/** How long a watcher may take to hold the leases, ms. */
const START_MS = 10_000;

/** How often to try again when one watcher ends while another one starts. */
const ATTEMPTS = 10;
const RETRY_MS = 50;

/**
 * Starts a watcher for the reader of a pipe, and tells it which lines are not confirmed. Resolves with true once it holds
 * their leases; with false if there can be none, and this process must wait itself.
 */
export async function handOver(
  context: Context,
  { globals }: Drain,
  pipe: Pipe,
  leases: Leases,
  { lines }: Confirmer,
): Promise<boolean> {
  // systemd ends what is left of a unit when its main process has ended.
  if (context.env.INVOCATION_ID) return false;
  const [node, file] = context.program;
  const child = spawn(node, [file, WATCHER, pipe.target], {
    detached: true,
    stdio: ['pipe', 'pipe', 'ignore', pipe.descriptor ?? 'ignore'],
    env: { ...context.env, [KEY]: randomUUID() },
  });
  const { stdin, stdout } = child as ChildProcessByStdio<Writable, Readable, null>;
  for (const one of [child, stdin, stdout]) one.on('error', () => {});
  const handover: Handover = {
    globals,
    pipe: { ...pipe, descriptor: pipe.descriptor && PIPE },
    leaseMs: lines.leaseMs,
    lines: lines.described().map(({ job, ...rest }) => {
      const { id, receipt } = job;
      return { queue: leases.queueOf(job)?.whole.name ?? '', id, receipt, ...rest };
    }),
  };
  stdin.end(JSON.stringify(handover));
  const isTaken = await Promise.race([
    once(stdout, 'data').then(([said]) => String(said) === TAKEN),
    once(child, 'close').then(() => false),
    sleep(START_MS, false, { ref: false }),
  ]).catch(() => false);
  if (!isTaken) child.kill('SIGKILL');
  for (const stream of [stdin, stdout]) stream.destroy();
  child.unref();
  return isTaken;
}

/** Runs until all that was handed over is confirmed or given back. Throws `usage` if nothing was. */
export async function watchPipe(context: Context): Promise<void> {
  const stop = context.stopSignal();
  const json = await text(context.stdin);
  const handover = attempt(() => JSON.parse(json) as Handover);
  if (!handover)
    throw new DelayqError('usage', 'nothing to watch', { why: 'drain starts this itself when it needs it' });
  const watcher = new Watcher(context, readerOfPipe(handover.pipe), stop);
  // Abstract: it is gone with its process (unix(7)).
  const name = `\0delayq-${process.getuid?.()}-${handover.pipe.target}`;
  for (let i = 0; i < ATTEMPTS; i++, await sleep(RETRY_MS)) {
    const server = createServer({ allowHalfOpen: true }, (socket) => answer(socket, context.env[KEY], watcher));
    server.listen(name);
    // Not if another watcher listens.
    const isListening = await once(server, 'listening').catch(() => undefined);
    if (isListening) {
      if (await watcher.take(handover)) await context.write(TAKEN);
      await watcher.idle();
      // What has connected by now is taken, too.
      await new Promise((resolve) => server.close(resolve));
      return watcher.idle();
    }
    if (await forward(name, json)) return context.write(TAKEN);
  }
}

/** Any user can connect. Only this user can read the key in our environment. */
async function answer(socket: Socket, key: string | undefined, watcher: Watcher): Promise<void> {
  socket.on('error', () => {}).write(`${process.pid}\n`);
  // Not text(): that would also close our half.
  let said = '';
  socket.setEncoding('utf8').on('data', (piece) => {
    said += piece;
  });
  try {
    await once(socket, 'end');
    const [given, ...rest] = said.split('\n');
    if (given === key && (await watcher.take(JSON.parse(rest.join('\n'))))) socket.write(TAKEN);
  } catch {
    // Its drain waits itself.
  }
  socket.end();
}

/** Hands over to the process that listens. Returns whether it has taken the leases. */
async function forward(name: string, json: string): Promise<boolean> {
  const socket = connect(name).setEncoding('latin1');
  try {
    const [pid] = await once(socket, 'data');
    const variables = readFileSync(`/proc/${Number(pid)}/environ`, 'utf8').split('\0');
    const key = variables.find((one) => one.startsWith(`${KEY}=`))?.slice(KEY.length + 1);
    if (!key) return false;
    socket.end(`${key}\n${json}`);
    return (await text(socket)) === TAKEN;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/** Waits for one reader, on behalf of all drains that have handed over. */
class Watcher {
  readonly #context: Context;
  readonly #reader: Reader;
  readonly #stop: AbortSignal;
  readonly #connections = new Map<string, Connection>();
  readonly #running = new Set<Promise<void>>();

  constructor(context: Context, reader: Reader, stop: AbortSignal) {
    this.#context = context;
    this.#reader = reader;
    this.#stop = stop;
  }

  /**
   * Takes the leases of lines. Returns false if it cannot: the reader has ended before, so it is unknown what it has read of
   * them. Throws if Redis does not answer.
   */
  async take({ globals, leaseMs, lines }: Handover): Promise<boolean> {
    if (this.#stop.aborted || (await this.#reader.check()) === 'gone') return false;
    const redis = this.#connection(globals);
    const prefix = this.#context.prefix(globals);
    const leases = new Leases({ retryMs: leaseMs });
    const confirmer = new Confirmer(leases, this.#reader);
    const queues = new Map(lines.map(({ queue }) => [queue, new Queue(redis, queue, { prefix })]));
    // Its id and receipt are all that settling needs.
    const written = lines.map(({ id, receipt, ...line }) => ({ ...line, job: { id, receipt } as Job }));
    // As if they were about to expire: they are renewed at once.
    const since = performance.now() - leaseMs;
    for (const [name, queue] of queues)
      leases.hold({ queue, jobs: written.filter((line) => line.queue === name).map(({ job }) => job), since, leaseMs });
    await leases.fresh(written.map(({ job }) => job));
    const held = written.filter(({ job }) => leases.holds(job));
    confirmer.lines.add(held, leaseMs);
    const running = this.#watch(confirmer, leases).finally(() => this.#running.delete(running));
    this.#running.add(running);
    return true;
  }

  #connection(globals: Globals): Connection {
    const server = JSON.stringify(this.#context.server(globals));
    const connection = this.#connections.get(server) ?? this.#context.redis(globals);
    this.#connections.set(server, connection);
    return connection;
  }

  async #watch(confirmer: Confirmer, leases: Leases): Promise<void> {
    try {
      await confirmer.untilRead(this.#stop);
      await confirmer.settled();
      // After a stop, too: the reader may have been stopped as well, with what it has read in its hands.
      await leases.releaseAll();
    } catch {
      // A report would have no reader. The jobs are delivered again when their leases expire.
    } finally {
      confirmer.close();
      leases.close();
    }
  }

  async idle(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }
}
