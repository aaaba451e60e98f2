import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, readdirSync } from 'node:fs';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { LONGEST_TIMER_MS } from '../../internal.js';
import type { Context } from '../host/context.js';
import { statOf } from './descriptors.js';
import type { Output } from './output.js';
import { type Channels, inputFile, makeChannels } from './pipes.js';

/** How often a group of processes that was told to end is looked at, ms. */
const LOOK_MS = 20;

/** For how many processes pipes are made at once. */
const AT_ONCE = 8;

/** A process to run. */
export interface Program {
  readonly file: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** What it finds on its stdin. */
  readonly input: Iterable<Buffer>;
  /** Ends it when it aborts. */
  readonly signal: AbortSignal;
  readonly output: Output;
}

/** How a process ended, with the last it wrote to stderr. */
export interface Ended {
  /** As a shell tells it: 128 + n after signal n. */
  readonly status: number;
  readonly signal: NodeJS.Signals | null;
  /** It had been told to end before it did. */
  readonly aborted: boolean;
  readonly tail: string;
}

/**
 * Runs processes, each in a session and process group of its own, so that those it started can be ended with it, and a
 * Ctrl-C on the terminal reaches them only through us. None outlives us, unless we are killed by SIGKILL.
 */
export class Processes {
  readonly #killAfterMs: number;
  readonly #groups = new Set<number>();
  readonly #free: Channels[] = [];
  #making: Promise<void> | undefined;

  constructor(context: Context, killAfterMs: number) {
    this.#killAfterMs = killAfterMs;
    context.atExit(() => {
      for (const group of this.#groups) signalGroup(group, 'SIGKILL');
    });
  }

  /**
   * Runs a program to its end. Throws the error of spawn(2), with its `code`, when it cannot be started; `temporary` when
   * its input cannot be stored or there are too many open files; and `config` where pipes cannot be made.
   */
  async run({ file, args, env, input, signal, output }: Program): Promise<Ended> {
    const channels = await this.#channels();
    channels.open(output);
    let pid: number | undefined;
    let kill: NodeJS.Timeout | undefined;
    const end = () => {
      kill ??= this.#endGroup(pid as number);
    };
    try {
      const stdin = inputFile(input);
      const child = (() => {
        try {
          return spawn(file, args, { env, detached: true, stdio: [stdin, channels.stdout, channels.stderr] });
        } finally {
          closeSync(stdin);
        }
      })();
      if (child.pid === undefined) {
        const [error] = (await once(child, 'error')) as [Error];
        throw error;
      }
      pid = child.pid;
      this.#groups.add(pid);
      if (signal.aborted) end();
      signal.addEventListener('abort', end);
      // Not 'close': whoever inherited the pipes may hold them open for ever.
      const ended = await new Promise<Omit<Ended, 'tail'>>((resolve) =>
        child.once('exit', (code, by) => {
          signal.removeEventListener('abort', end);
          const status = code ?? 128 + (by ? constants.signals[by] : 0);
          resolve({ status, signal: by, aborted: signal.aborted });
        }),
      );
      const tail = await channels.rest();
      if (ended.aborted) await groupGone(pid, this.#killAfterMs);
      return { ...ended, tail };
    } finally {
      clearTimeout(kill);
      signal.removeEventListener('abort', end);
      output.end();
      // Pipes in which somebody is left who may write are not for the next process.
      if (pid !== undefined && signalGroup(pid, 0)) channels.leave();
      else this.#free.push(channels);
      if (pid !== undefined) this.#groups.delete(pid);
    }
  }

  /** Lets go of the pipes. */
  close(): void {
    for (const channels of this.#free.splice(0)) channels.close();
  }

  async #channels(): Promise<Channels> {
    for (;;) {
      const channels = this.#free.pop();
      if (channels) return channels;
      this.#making ??= makeChannels(AT_ONCE)
        .then((made) => void this.#free.push(...made))
        .finally(() => {
          this.#making = undefined;
        });
      await this.#making;
    }
  }

  /** SIGTERM, and SIGKILL for whatever is left a while later, unless the timer that it returns is cleared. */
  #endGroup(pid: number): NodeJS.Timeout {
    signalGroup(pid, 'SIGTERM');
    // One that is stopped would not hear of it.
    signalGroup(pid, 'SIGCONT');
    return setTimeout(() => signalGroup(pid, 'SIGKILL'), Math.min(this.#killAfterMs, LONGEST_TIMER_MS));
  }
}

/** Waits until no process of a group is left, and kills them when that takes longer than `ms`. */
async function groupGone(pid: number, ms: number): Promise<void> {
  const end = performance.now() + ms;
  while (signalGroup(pid, 0) && livesIn(pid)) {
    if (performance.now() >= end) {
      signalGroup(pid, 'SIGKILL');
      return;
    }
    await sleep(LOOK_MS);
  }
}

/**
 * Whether a process of the group is more than a zombie. Where process 1 does not wait for orphans, as in many
 * containers, they stay that for ever. Where there is no /proc: yes.
 */
function livesIn(group: number): boolean {
  if (process.platform !== 'linux') return true;
  return readdirSync('/proc').some((name) => /^\d+$/.test(name) && statOf(Number(name))?.group === group);
}

/** Whether there was anybody in the group to be told. */
function signalGroup(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-pid, signal);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
