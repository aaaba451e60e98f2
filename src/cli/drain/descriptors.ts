import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setImmediate as turn } from 'node:timers/promises';

/** So many descriptors are looked at before others get a turn: less than a ms. A busy host has 100,000. */
const SLICE = 200;

/** How a descriptor was opened. */
interface Mode {
  readonly reads: boolean;
  readonly writes: boolean;
}

/** A descriptor of some process. */
export interface Descriptor extends Mode {
  readonly pid: number;
  readonly fd: string;
}

/** What a descriptor of ours leads to, such as `pipe:[4711]` (proc(5)); undefined where there is no /proc. */
export function targetOf(fd: number): string | undefined {
  return linkOf(process.pid, String(fd));
}

/** How a descriptor of ours was opened; undefined where there is no /proc. */
export function modeOf(fd: number): Mode | undefined {
  return modeAt(process.pid, String(fd));
}

/** Descriptors of processes other than this one that lead to `target`, as far as this user may see them. */
export async function descriptorsOf(target: string): Promise<Descriptor[]> {
  const found: Descriptor[] = [];
  let looked = 0;
  for (const name of namesIn('/proc')) {
    const pid = Number(name);
    if (!(pid > 0) || pid === process.pid) continue;
    for (const fd of namesIn(`/proc/${pid}/fd`)) {
      if (++looked % SLICE === 0) await turn();
      if (linkOf(pid, fd) !== target) continue;
      const mode = modeAt(pid, fd);
      if (mode) found.push({ pid, fd, ...mode });
    }
  }
  return found;
}

/** Parent and group of a process; undefined when it has ended, be it a zombie. */
export function statOf(pid: number): { readonly parent: number; readonly group: number } | undefined {
  try {
    // Behind the name in parentheses: state, parent, group (proc(5)).
    const [state = '', parent, group] = readFileSync(`/proc/${pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ');
    return 'ZX'.includes(state) ? undefined : { parent: Number(parent), group: Number(group) };
  } catch {
    return undefined;
  }
}

/** Whether a descriptor that was found earlier still leads to `target` and can be read from. */
export function stillReads({ pid, fd }: Descriptor, target: string): boolean {
  return linkOf(pid, fd) === target && (modeAt(pid, fd)?.reads ?? false);
}

function linkOf(pid: number, fd: string): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/fd/${fd}`);
  } catch {
    return undefined;
  }
}

function modeAt(pid: number, fd: string): Mode | undefined {
  try {
    // The permissions of the link tell it (proc(5)).
    const { mode } = lstatSync(`/proc/${pid}/fd/${fd}`);
    return { reads: (mode & 0o400) !== 0, writes: (mode & 0o200) !== 0 };
  } catch {
    return undefined;
  }
}

/** Nothing for processes that have ended, or belong to another user. */
function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
