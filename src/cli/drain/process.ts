import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, readdirSync, readSync, writeSync } from 'node:fs';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { LONGEST_TIMER_MS } from '../../internal.js';
import type { Context } from '../host/context.js';
import { namelessFile, noTemporary } from '../host/temporary.js';
import { MAX_ANSWER } from './answers.js';
import { statOf } from './descriptors.js';
import type { OutputRelay } from './output.js';
import { makePipes, OutputPipes, type Pipe } from './pipes.js';

/** How often to check whether a process group has ended, ms. */
const CHECK_MS = 20;

/** What to run. */
export interface Command {
  readonly file: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
}

/** A process for one job, or a batch. */
export interface Program extends Command {
  /** What it reads from stdin. */
  readonly input: Buffer;
  /** It can write an answer to descriptor 3. */
  readonly answers: boolean;
  /** Its last line on stdout is wanted. */
  readonly speaks?: boolean | undefined;
  /** Ends the process when it aborts. */
  readonly signal: AbortSignal;
}

export interface Exit {
  /** The exit status; 128 + n after signal n, as in a shell. */
  readonly status: number;
  readonly signal: NodeJS.Signals | null;
}

export interface Ended extends Exit {
  /** It got SIGTERM from us before it ended. */
  readonly aborted: boolean;
  /** Its last lines on stderr. */
  readonly tail: string;
  /** What it wrote to descriptor 3. */
  readonly answer?: string;
  /** Its last line on stdout, if that was wanted. */
  readonly said?: string;
}

/**
 * Runs processes, each in its own session and process group: so the processes that it starts can be ended with it, and
 * Ctrl-C on the terminal does not reach them directly. None outlives this process, unless it is killed by SIGKILL.
 */
export class Processes {
  readonly #relay: OutputRelay;
  readonly #killAfterMs: number;
  readonly #running = new Set<Running>();
  readonly #free: OutputPipes[] = [];

  constructor(context: Context, relay: OutputRelay, killAfterMs: number) {
    this.#relay = relay;
    this.#killAfterMs = killAfterMs;
    context.atExit(() => {
      for (const { pid } of this.#running) signalGroup(pid, 'SIGKILL');
    });
  }

  /**
   * Runs a program to its end. Throws the error of spawn(2), with its `code`, if it cannot be started; `temporary` if
   * its input cannot be stored or too many files are open; `config` if pipes cannot be made.
   */
  async run(program: Program): Promise<Ended> {
    const { signal } = program;
    const pipes =
      this.#free.pop() ?? new OutputPipes(this.#relay, (await makePipes('output', 'output')) as [Pipe, Pipe]);
    pipes.begin(program.speaks);
    let running: Running | undefined;
    let files: number[] = [];
    try {
      files = filesFor(program);
      const [stdin, answers] = files as [number, number?];
      const { stdout, stderr } = pipes;
      running = await this.start(program, [stdin, stdout, stderr, ...(answers === undefined ? [] : [answers])]);
      closeSync(files.shift() as number);
      const { end } = running;
      if (signal.aborted) end();
      else signal.addEventListener('abort', end);
      const exit = await running.exited;
      const { aborted } = signal;
      signal.removeEventListener('abort', end);
      const tail = await pipes.rest();
      if (aborted) await running.gone();
      return { ...exit, aborted, tail, answer: answers === undefined ? '' : textIn(answers), said: pipes.said };
    } finally {
      for (const file of files) closeSync(file);
      pipes.end();
      // If processes of the group are left, they may still write into the pipes: the next program gets others.
      if (running?.hasGroup) pipes.leave();
      else this.#free.push(pipes);
    }
  }

  /**
   * Starts a program with these descriptors as its 0, 1, 2 …, which the caller closes. Throws the error of spawn(2),
   * with its `code`, if it cannot be started.
   */
  async start({ file, args, env }: Command, descriptors: number[]): Promise<Running> {
    const child = spawn(file, args, { env, detached: true, stdio: descriptors });
    if (child.pid === undefined) throw (await once(child, 'error'))[0];
    const running = new Running(child, child.pid, this.#killAfterMs);
    this.#running.add(running);
    running.exited.then(() => this.#running.delete(running));
    return running;
  }

  get running(): number {
    return this.#running.size;
  }

  close(): void {
    for (const pipes of this.#free.splice(0)) pipes.close();
  }
}

/** A process that was started, and leads a process group. */
export class Running {
  readonly pid: number;
  /** Resolves when the process has ended; others of its group may be left. */
  readonly exited: Promise<Exit>;
  readonly #killAfterMs: number;
  #kill: NodeJS.Timeout | undefined;
  #hasExited = false;

  constructor(child: ChildProcess, pid: number, killAfterMs: number) {
    this.pid = pid;
    this.#killAfterMs = killAfterMs;
    this.exited = this.#ended(child);
  }

  async #ended(child: ChildProcess): Promise<Exit> {
    // Not 'close': a process that inherited the pipes may keep them open for ever.
    const [code, by] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
    this.#hasExited = true;
    clearTimeout(this.#kill);
    return { status: code ?? 128 + (by ? constants.signals[by] : 0), signal: by };
  }

  /** Ends the group: by SIGTERM, and by SIGKILL if the process has not ended in time. */
  readonly end = (): void => {
    if (this.#hasExited) return;
    signalGroup(this.pid, 'SIGTERM');
    // A stopped process would not act on SIGTERM.
    signalGroup(this.pid, 'SIGCONT');
    clearTimeout(this.#kill);
    this.#kill = setTimeout(() => signalGroup(this.pid, 'SIGKILL'), Math.min(this.#killAfterMs, LONGEST_TIMER_MS));
  };

  /** After the end of the process: waits until no other of its group is left, and kills those that stay. */
  gone(): Promise<void> {
    return groupGone(this.pid, this.#killAfterMs);
  }

  /** After the end of the process: whether others of its group are left. */
  get hasGroup(): boolean {
    return signalGroup(this.pid, 0);
  }
}

/**
 * The descriptors for stdin and, if the program can answer, its answer. Both are files without a name: the input is
 * complete however little of it is read, and what a process that is left behind writes later answers for no other job.
 */
function filesFor({ input, answers }: Program): number[] {
  const files: number[] = [];
  try {
    const stdin = namelessFile();
    files.push(stdin);
    // Writing at explicit positions leaves the file offset, at which the handler will read, at 0.
    for (let at = 0; at < input.length; ) at += writeSync(stdin, input, at, input.length - at, at);
    if (answers) files.push(namelessFile('a+'));
    return files;
  } catch (cause) {
    for (const file of files) closeSync(file);
    throw noTemporary('cannot store payloads for handlers', cause as Error);
  }
}

const scratch = Buffer.allocUnsafe(MAX_ANSWER);

/** The beginning of a file. */
const textIn = (file: number): string => scratch.toString('utf8', 0, readSync(file, scratch, 0, MAX_ANSWER, 0));

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
