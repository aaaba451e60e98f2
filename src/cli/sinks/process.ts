import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import type { Context } from '../context.js';
import type { Output } from './relay.js';

/** How much of what a process last wrote to stderr is kept, bytes. */
const TAIL = 1_500;

/** After a process has ended, the most bytes that are still taken from what it left in its pipes: others may hold them. */
const MOST_AFTER_END = 4 * 1024 * 1024;

/** How often a group of processes that was told to end is looked at, ms. */
const LOOK_MS = 20;

/** A process to run. */
export interface Program {
  readonly file: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** Written to its stdin. */
  readonly input: Buffer;
  /** Ends it when it aborts. */
  readonly signal: AbortSignal;
  readonly output: Output;
}

/** How a process ended, with the last it wrote to stderr. */
export interface Ended {
  /** As a shell tells it: 128 + n after signal n. */
  readonly status: number;
  readonly signal: NodeJS.Signals | null;
  readonly tail: string;
}

/**
 * Runs processes, each in a session and process group of its own, so that those it started can be ended with it, and a
 * Ctrl-C on the terminal reaches them only through us. None outlives us, unless we are killed by SIGKILL.
 */
export class Processes {
  readonly #killAfterMs: number;
  readonly #groups = new Set<number>();

  constructor(context: Context, killAfterMs: number) {
    this.#killAfterMs = killAfterMs;
    context.atExit(() => {
      for (const group of this.#groups) signalGroup(group, 'SIGKILL');
    });
  }

  /** Runs a program to its end. Throws the error of spawn(2), with its `code`, when it cannot be started. */
  async run({ file, args, env, input, signal, output }: Program): Promise<Ended> {
    const child = spawn(file, args, { env, detached: true, stdio: ['pipe', 'pipe', 'pipe'] });
    const { pid } = child;
    if (pid === undefined) {
      const [error] = (await once(child, 'error')) as [Error];
      throw error;
    }
    this.#groups.add(pid);
    const read = reading(child, output);
    // A handler need not read its input.
    child.stdin.on('error', () => {});
    child.stdin.end(input);
    const ending = new AbortController();
    const end = () => void this.#endGroup(pid, ending.signal);
    if (signal.aborted) end();
    signal.addEventListener('abort', end);
    try {
      // Not 'close': whoever inherited the pipes may hold them open for ever.
      const [code, by] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve) =>
        child.once('exit', (...how) => resolve(how)),
      );
      const tail = await read.rest();
      if (signal.aborted) await groupGone(pid, this.#killAfterMs);
      return { status: code ?? 128 + (by ? constants.signals[by] : 0), signal: by, tail };
    } finally {
      ending.abort();
      signal.removeEventListener('abort', end);
      this.#groups.delete(pid);
      await output.end();
    }
  }

  /** SIGTERM, and SIGKILL for whatever is left a while later. */
  async #endGroup(pid: number, over: AbortSignal): Promise<void> {
    signalGroup(pid, 'SIGTERM');
    // One that is stopped would not hear of it.
    signalGroup(pid, 'SIGCONT');
    await sleep(Math.min(this.#killAfterMs, 2 ** 31 - 1), undefined, { signal: over }).catch(() => {});
    if (!over.aborted) signalGroup(pid, 'SIGKILL');
  }
}

/** Waits until no process of a group is left, and kills them when that takes longer than `ms`. */
async function groupGone(pid: number, ms: number): Promise<void> {
  const end = performance.now() + ms;
  while (signalGroup(pid, 0)) {
    if (performance.now() >= end) {
      signalGroup(pid, 'SIGKILL');
      return;
    }
    await sleep(LOOK_MS);
  }
}

/** Whether there was anybody in the group to be told. */
function signalGroup(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-pid, signal);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Takes what a process writes, and no faster than it can be passed on. */
function reading(child: ChildProcess, output: Output): { rest(): Promise<string> } {
  let tail = Buffer.alloc(0);
  let bytes = 0;
  const waits = new Set<Promise<void>>();
  for (const channel of ['stdout', 'stderr'] as const) {
    const stream = child[channel];
    stream?.on('error', () => {});
    stream?.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (channel === 'stderr') tail = Buffer.concat([tail, chunk.subarray(-TAIL)]).subarray(-TAIL);
      const room = output.take(channel, chunk);
      if (!room) return;
      stream.pause();
      const wait = room.then(() => {
        waits.delete(wait);
        stream.resume();
      });
      waits.add(wait);
    });
  }
  return {
    /** After the end of the process: what it left in the pipes is read until a turn of the loop brings nothing more. */
    async rest() {
      const most = bytes + MOST_AFTER_END;
      for (let before = -1; before !== bytes && bytes < most; ) {
        before = bytes;
        await Promise.all(waits);
        await turn();
        await turn();
      }
      for (const stream of child.stdio) stream?.destroy();
      return lastLines(tail);
    },
  };
}

/** The text of the last bytes of an output, from the beginning of a line where there is one. */
function lastLines(tail: Buffer): string {
  const text = tail.toString('utf8').trimEnd();
  const cut = tail.length >= TAIL ? text.indexOf('\n') + 1 : 0;
  return text.slice(cut).split('\n').slice(-10).join('\n').trim();
}
