import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from './until.js';

/** Ends a process that may have ended by now. */
function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {}
}

/** How long processes may take to end by themselves, ms. */
const GRACE_MS = 2_000;

/**
 * What a run of tests leaves behind. All its temporary files go into one directory, which is also how to know its
 * processes: it is the TMPDIR of each.
 */
export class Leftovers {
  // Short: a path that tests show on a terminal, or use for a socket, has little room.
  readonly #directory = mkdtempSync(join(tmpdir(), 'dq-'));

  /** Sets TMPDIR in `environment`, which the tests and their processes must inherit. */
  constructor(environment: NodeJS.ProcessEnv = process.env) {
    // Some tests run a process as another user.
    chmodSync(this.#directory, 0o711);
    environment.TMPDIR = this.#directory;
  }

  /** Ends and removes what is left. Returns its names; nothing is expected. */
  async end(): Promise<string[]> {
    // Those of a worker that has just ended get a moment.
    await until(() => this.#processes().length === 0, GRACE_MS).catch(() => {});
    const names = this.#processes().map(({ pid, command }) => {
      kill(pid);
      return `process ${pid} (${command})`;
    });
    for (const file of readdirSync(this.#directory)) names.push(join(this.#directory, file));
    rmSync(this.#directory, { recursive: true, force: true });
    return names;
  }

  #processes(): { pid: number; command: string }[] {
    if (!existsSync('/proc')) return [];
    // Some tests give their processes a directory in it.
    const variable = `TMPDIR=${this.#directory}`;
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
      .flatMap((pid) => {
        try {
          const [environment, command] = ['environ', 'cmdline'].map((file) =>
            readFileSync(`/proc/${pid}/${file}`, 'utf8').split('\0'),
          );
          if (!environment?.some((one) => one.startsWith(variable))) return [];
          return [{ pid: Number(pid), command: command?.join(' ').trim().slice(0, 100) ?? '' }];
        } catch {
          // It has ended by now, or belongs to somebody else.
          return [];
        }
      });
  }
}
