import { randomBytes } from 'node:crypto';
import {
  closeSync,
  fchmodSync,
  fsyncSync,
  openSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { DelayqError, isDelayqError } from '../../internal.js';
import { attempt } from './attempt.js';

/** What to do about the usual errors, by their code. */
const NEXT: Readonly<Record<string, string>> = {
  ENOENT: 'create the directory, or choose another path',
  ENOTDIR: 'choose a path in a directory',
  EACCES: 'run it as a user who may write to the directory: the file is replaced by a new one',
  EPERM: 'run it as a user who may replace the file',
  EROFS: 'choose a path that can be written to',
};

/** The number of links in a row that Linux follows. */
const MAX_LINKS = 40;

/**
 * Writes a file atomically: a reader finds the old text or the new one. The file is readable by everybody; symbolic links
 * are followed. All calls are synchronous, so that no signal handler runs in between. Throws `output`, and leaves no
 * temporary file.
 */
export function writeWhole(path: string, text: string): void {
  const cannot = (why: string, next: string, cause?: unknown) =>
    new DelayqError('output', `cannot write ${JSON.stringify(path)}`, { why, next, cause });
  const target = behindLinks(path);
  // Hidden, and with another ending: a collector that reads the directory must not find it.
  const part = join(dirname(target), `.${basename(target)}.${randomBytes(6).toString('hex')}.tmp`);
  try {
    const there = statSync(path, { throwIfNoEntry: false });
    if (there?.isDirectory()) throw cannot('it is a directory', `choose a file in it: ${join(path, 'delayq.prom')}`);
    // Renaming would replace a device.
    if (there && !there.isFile()) throw cannot('it is not a regular file', `write to stdout instead: > ${path}`);
    const file = openSync(part, 'wx', 0o644);
    try {
      writeFileSync(file, text);
      // Whatever the umask says.
      fchmodSync(file, 0o644);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(part, target);
  } catch (cause) {
    attempt(() => rmSync(part));
    if (isDelayqError(cause)) throw cause;
    const { code = '', message } = cause as NodeJS.ErrnoException;
    throw cannot(
      message.replace(/, \w+( '.*)?$/s, ''),
      NEXT[code] ?? 'free disk space or choose another path, then repeat the command',
      cause,
    );
  }
}

/** The path that links lead to, even if nothing is there yet. */
function behindLinks(path: string): string {
  let target = resolve(path);
  for (let i = 0; i < MAX_LINKS; i++) {
    const link = attempt(() => readlinkSync(target));
    if (link === undefined) break;
    target = resolve(dirname(target), link);
  }
  return target;
}
