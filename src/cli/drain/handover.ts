import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Leases } from '../../internal.js';
import type { Context, Globals } from '../host/context.js';
import { WATCHER } from '../host/host.js';
import type { Pipe, Reader } from './reader.js';
import type { UnconfirmedLines } from './unconfirmed.js';

/*
 * A drain that has written everything ends, although nobody knows yet what its reader has handled: while a wrapper or a
 * shell also has the pipe open for writing, its reader sees no end before they end, and they may wait for the drain. A
 * process of its own, the watcher (watcher.ts), then renews the leases, and confirms what the reader has handled.
 */

/** What a watcher is told on its stdin, as JSON. */
export interface Handover {
  /** Where Redis is. */
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
export const TAKEN = 'taken\n';

/** The variable in the environment of a watcher whose value others must know that hand over to it. */
export const KEY = 'DELAYQ_WATCHER_KEY';

/** How long a watcher may take to hold the leases, ms. */
const START_MS = 10_000;

/**
 * Starts a watcher for the reader of stdout, and tells it which lines are not confirmed. Resolves with true once it holds
 * their leases; with false if there can be none, and this process must wait itself.
 */
export async function handOver(
  context: Context,
  globals: Globals,
  reader: Reader,
  leases: Leases,
  unconfirmed: UnconfirmedLines,
): Promise<boolean> {
  // systemd ends what is left of a unit when its main process has ended.
  if (context.env.INVOCATION_ID) return false;
  const pipe = reader.handOver();
  if (!pipe) return false;
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
    leaseMs: unconfirmed.leaseMs,
    lines: unconfirmed.described().map(({ job, ...rest }) => {
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
