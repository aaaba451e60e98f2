import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, readdirSync, writeSync } from 'node:fs';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { LONGEST_TIMER_MS } from '../../internal.js';
import type { Context } from '../host/context.js';
import { namelessFile, noTemporary } from '../host/temporary.js';
import { statOf } from './descriptors.js';
import type { OutputRelay } from './output.js';
import { makePipes, type OutputPipes } from './pipes.js';

/** How often to check whether a process group has ended, ms. */
const CHECK_MS = 20;

export interface Program {
  readonly file: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** What it reads from stdin. */
  readonly input: Buffer;
  /** Ends the process when it aborts. */
  readonly signal: AbortSignal;
}

export interface Ended {
  /** The exit status; 128 + n after signal n, as in a shell. */
  readonly status: number;
  readonly signal: NodeJS.Signals | null;
  /** It got SIGTERM from us before it ended. */
  readonly aborted: boolean;
  /** Its last lines on stderr. */
  readonly tail: string;
}

/**
 * Runs processes, each in its own session and process group: so the processes that it starts can be ended with it, and
 * Ctrl-C on the terminal does not reach them directly. None outlives this process, unless it is killed by SIGKILL.
 */
export class Processes {
  readonly #relay: OutputRelay;
  readonly #killAfterMs: number;
  readonly #groups = new Set<number>();
  readonly #free: OutputPipes[] = [];

  constructor(context: Context, relay: OutputRelay, killAfterMs: number) {
    this.#relay = relay;
    this.#killAfterMs = killAfterMs;
    context.atExit(() => {
      for (const group of this.#groups) signalGroup(group, 'SIGKILL');
    });
  }

  /**
   * Runs a program to its end. Throws the error of spawn(2), with its `code`, if it cannot be started; `temporary` if
   * its input cannot be stored or too many files are open; `config` if pipes cannot be made.
   */
  async run(program: Program): Promise<Ended> {
    const { signal } = program;
    const pipes = this.#free.pop() ?? (await makePipes(this.#relay));
    pipes.begin();
    /** The process id of the program, which is that of its group, too. */
    let group: number | undefined;
    let kill: NodeJS.Timeout | undefined;
    try {
      const child = await start(program, pipes);
      const pid = child.pid as number;
      group = pid;
      this.#groups.add(pid);
      const end = () => {
        signalGroup(pid, 'SIGTERM');
        // A stopped process would not act on SIGTERM.
        signalGroup(pid, 'SIGCONT');
        kill = setTimeout(() => signalGroup(pid, 'SIGKILL'), Math.min(this.#killAfterMs, LONGEST_TIMER_MS));
      };
      if (signal.aborted) end();
      else signal.addEventListener('abort', end);
      // Not 'close': a process that inherited the pipes may keep them open for ever.
      const [code, by] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
      const { aborted } = signal;
      signal.removeEventListener('abort', end);
      const tail = await pipes.rest();
      if (aborted) await groupGone(pid, this.#killAfterMs);
      return { status: code ?? 128 + (by ? constants.signals[by] : 0), signal: by, aborted, tail };
    } finally {
      clearTimeout(kill);
      pipes.end();
      // If processes of the group are left, they may still write into the pipes: the next program gets others.
      if (group !== undefined && signalGroup(group, 0)) pipes.leave();
      else this.#free.push(pipes);
      if (group !== undefined) this.#groups.delete(group);
    }
  }

  get running(): number {
    return this.#groups.size;
  }

  close(): void {
    for (const pipes of this.#free.splice(0)) pipes.close();
  }
}

async function start({ file, args, env, input }: Program, { stdout, stderr }: OutputPipes): Promise<ChildProcess> {
  const stdin = inputFile(input);
  try {
    const child = spawn(file, args, { env, detached: true, stdio: [stdin, stdout, stderr] });
    if (child.pid === undefined) throw (await once(child, 'error'))[0];
    return child;
  } finally {
    closeSync(stdin);
  }
}

/**
 * Stores `input` in a file without a name, which is complete however little of it is read. Returns its descriptor, at
 * position 0.
 */
function inputFile(input: Buffer): number {
  let fd: number | undefined;
  try {
    fd = namelessFile();
    // Writing at explicit positions leaves the file offset, at which the handler will read, at 0.
    for (let at = 0; at < input.length; ) at += writeSync(fd, input, at, input.length - at, at);
    return fd;
  } catch (cause) {
    if (fd !== undefined) closeSync(fd);
    throw noTemporary('cannot store payloads for handlers', cause as Error);
  }
}

/** Waits until no process of a group is left; kills them after `ms`. */
async function groupGone(pid: number, ms: number): Promise<void> {
  const end = performance.now() + ms;
  while (signalGroup(pid, 0) && livesIn(pid)) {
    if (performance.now() >= end) {
      signalGroup(pid, 'SIGKILL');
      return;
    }
    await sleep(CHECK_MS);
  }
}

/**
 * Whether a group has a process that is not a zombie. In many containers process 1 does not wait for orphans, which
 * stay zombies for ever. Always true without /proc.
 */
function livesIn(group: number): boolean {
  if (process.platform !== 'linux') return true;
  return readdirSync('/proc').some((name) => /^\d+$/.test(name) && statOf(Number(name))?.group === group);
}

/** Sends a signal to a process group; 0 only checks. Returns whether the group has processes. */
function signalGroup(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-pid, signal);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
