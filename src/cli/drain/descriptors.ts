import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { constants } from 'node:os';
import { setImmediate as turn } from 'node:timers/promises';
import { attempt } from '../host/attempt.js';

/*
 * What /proc (Linux, proc(5)) tells about processes and their open files: who has a pipe open, and how. Elsewhere, and of
 * a process that has ended or belongs to another user, nothing is found.
 */

/** How many descriptors are checked before other work gets a turn: under 1 ms. A busy host has 100,000 of them. */
const SLICE = 200;

interface Mode {
  readonly reads: boolean;
  readonly writes: boolean;
}

export interface Descriptor extends Mode {
  readonly pid: number;
  readonly fd: string;
}

/** What a descriptor refers to, such as `pipe:[4711]`. */
export const targetOf = (fd: number | string, pid = process.pid): string | undefined =>
  attempt(() => readlinkSync(`/proc/${pid}/fd/${fd}`));

/** How a descriptor was opened. */
export function modeOf(fd: number | string, pid = process.pid): Mode | undefined {
  // The permissions of the link are those of the descriptor.
  const mode = attempt(() => lstatSync(`/proc/${pid}/fd/${fd}`).mode);
  return mode === undefined ? undefined : { reads: (mode & 0o400) !== 0, writes: (mode & 0o200) !== 0 };
}

/** Finds the descriptors of other processes that refer to `target`. */
export async function descriptorsOf(target: string): Promise<Descriptor[]> {
  const found: Descriptor[] = [];
  let looked = 0;
  for (const name of namesIn('/proc')) {
    const pid = Number(name);
    if (!(pid > 0) || pid === process.pid) continue;
    for (const fd of namesIn(`/proc/${pid}/fd`)) {
      if (++looked % SLICE === 0) await turn();
      if (targetOf(fd, pid) !== target) continue;
      const mode = modeOf(fd, pid);
      if (mode) found.push({ pid, fd, ...mode });
    }
  }
  return found;
}

/** Whether a descriptor found earlier still refers to `target`, and for the same use. */
export function isStillOpen({ pid, fd, reads, writes }: Descriptor, target: string): boolean {
  const mode = targetOf(fd, pid) === target ? modeOf(fd, pid) : undefined;
  return mode !== undefined && mode.reads === reads && mode.writes === writes;
}

/** The parent and process group of a process. Undefined if it has ended, even if it is still a zombie. */
export function statOf(pid: number): { readonly parent: number; readonly group: number } | undefined {
  // After the name in parentheses follow state, parent and group.
  const stat = attempt(() => readFileSync(`/proc/${pid}/stat`, 'latin1').replace(/^.*\) /s, ''));
  const [state = 'X', parent, group] = stat?.split(' ') ?? [];
  return 'ZX'.includes(state) ? undefined : { parent: Number(parent), group: Number(group) };
}

/** The memory that a process uses, bytes: VmRSS. Undefined without /proc, or if it has ended. */
export function memoryOf(pid: number): number | undefined {
  const status = attempt(() => readFileSync(`/proc/${pid}/status`, 'latin1')) ?? '';
  const [, kib] = /^VmRSS:\s+(\d+) kB$/m.exec(status) ?? [];
  return kib === undefined ? undefined : Number(kib) * 1024;
}

/** The words of the command line of a process. */
export const wordsOf = (pid: number): readonly string[] =>
  attempt(() => readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1)) ?? [];

/**
 * What a signal means to a process: it has a handler for it (`caught`), has been sent it (`pending`), or neither
 * (`none`): then it would have ended by it, or ignores it.
 */
export function signalState(pid: number, signal: NodeJS.Signals): 'caught' | 'pending' | 'none' | undefined {
  const status = attempt(() => readFileSync(`/proc/${pid}/status`, 'latin1'));
  if (status === undefined) return undefined;
  // Masks in hex; bit 0 is signal 1.
  const has = (mask: string) => {
    const [, bits = '0'] = new RegExp(`^${mask}:\\s*([0-9a-f]+)`, 'm').exec(status) ?? [];
    return ((BigInt(`0x${bits}`) >> BigInt(constants.signals[signal] - 1)) & 1n) === 1n;
  };
  if (has('SigCgt')) return 'caught';
  return has('SigPnd') || has('ShdPnd') ? 'pending' : 'none';
}

const namesIn = (directory: string): string[] => attempt(() => readdirSync(directory)) ?? [];
