import { accessSync, closeSync, constants, openSync, readSync, type Stats, statSync } from 'node:fs';
import { basename, delimiter, join } from 'node:path';
import { DelayqError, shellWord } from '../../internal.js';
import { attempt } from './attempt.js';

/** Why a program cannot be started, and what to do about it. */
interface Obstacle {
  readonly why: string;
  readonly next: string;
}

/** Where execvp(3) looks without a PATH. */
const DEFAULT_PATH = '/bin:/usr/bin';

/** The most that Linux reads of a script to find its interpreter, bytes. */
const HEAD = 256;

/** The file that is run as `name`, found as execvp(3) does. Throws `config` if there is none that can be started. */
export function findProgram(name: string, path = DEFAULT_PATH): string {
  const isPath = name.includes('/');
  const places = isPath || name === '' ? [] : path.split(delimiter);
  const files = isPath ? [name] : places.map((directory) => join(directory || '.', name));
  const program = files.find((file) => !obstacleTo(file));
  if (program !== undefined) return program;
  // What is there, but cannot be started, tells more than where it is not.
  const there = files.find(statOf);
  const obstacle = obstacleTo(there ?? name) as Obstacle;
  const why = there || isPath ? obstacle.why : 'it is not in PATH';
  throw new DelayqError('config', `cannot start ${name || "''"}`, { ...obstacle, why });
}

/** What keeps a file from being started; undefined if nothing is known that does. */
export function obstacleTo(file: string): Obstacle | undefined {
  const stat = statOf(file);
  if (!stat) {
    const next = /[\s|&;<>]/.test(file)
      ? `start a shell for it: -- sh -c ${shellWord(file)}`
      : 'check that the program exists and is executable; cron has a short PATH, so give the full path there';
    return { why: 'the program does not exist (ENOENT)', next };
  }
  if (stat.isDirectory()) return { why: 'it is a directory', next: 'give the path of an executable file' };
  try {
    accessSync(file, constants.X_OK);
  } catch {
    return { why: 'no permission to execute it (EACCES)', next: `make it executable: chmod +x ${shellWord(file)}` };
  }
  return obstacleInHead(file);
}

/** What is wrong with the first line of a script: execve(2) then says that the script itself does not exist. */
function obstacleInHead(file: string): Obstacle | undefined {
  const [, line, interpreter = ''] = /^#!([ \t]*([^ \t\n]+)[^\n]*)\n/.exec(headOf(file)) ?? [];
  if (line === undefined) return undefined;
  // env(1) would look for a program whose name ends with a carriage return.
  if (line.endsWith('\r') && (interpreter.endsWith('\r') || basename(interpreter) === 'env')) {
    const next = `convert its line ends: sed -i 's/\\r$//' ${shellWord(file)}`;
    return { why: 'its first line ends with CRLF, as on Windows: the interpreter is not found', next };
  }
  if (statOf(interpreter)) return undefined;
  return {
    why: `its interpreter ${interpreter} does not exist`,
    next: `install it, or correct the first line of ${file}`,
  };
}

/** The beginning of a file; empty if it cannot be read: a program may be executable without being readable. */
function headOf(file: string): string {
  const fd = attempt(() => openSync(file, constants.O_RDONLY | constants.O_NONBLOCK));
  if (fd === undefined) return '';
  const bytes = Buffer.alloc(HEAD);
  const length = attempt(() => readSync(fd, bytes)) ?? 0;
  closeSync(fd);
  return bytes.toString('latin1', 0, length);
}

/** Undefined also in a directory that may not be searched. */
const statOf = (file: string): Stats | undefined => attempt(() => statSync(file));
