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

/** What to do about the usual errors; the first word of Node's message is their code. */
const NEXT: Readonly<Record<string, string>> = {
  ENOENT: 'make the directory, or name another place',
  ENOTDIR: 'name a file in a directory',
  EACCES: 'run it as a user who may write into the directory (a new file takes the place of the old one there)',
  EPERM: 'run it as a user who may replace the file',
  EROFS: 'name a place that can be written to',
};

/** As many links in a row as Linux follows. */
const MOST_LINKS = 40;

/**
 * Writes a file whole or not at all, readable by everybody: whoever reads it finds the old text or the new one. Through a
 * symbolic link, to where it points. All in one go, so that no signal that the process listens to comes between. Throws
 * `output`, with nothing left behind.
 */
export function writeWhole(path: string, text: string): void {
  const cannot = (why: string, next: string, cause?: unknown) =>
    new DelayqError('output', `cannot write ${JSON.stringify(path)}`, { why, next, cause });
  let part: string | undefined;
  try {
    const there = statSync(path, { throwIfNoEntry: false });
    if (there?.isDirectory()) throw cannot('it is a directory', `name a file in it: ${join(path, 'delayq.prom')}`);
    // A device would be replaced, too.
    if (there && !there.isFile()) throw cannot('it is no regular file', `write to stdout instead: > ${path}`);
    const target = behindLinks(path);
    // Hidden, and without the ending that a reader of the directory may look for.
    const name = join(dirname(target), `.${basename(target)}.${randomBytes(6).toString('hex')}.tmp`);
    const file = openSync(name, 'wx', 0o644);
    part = name;
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
    if (part !== undefined) rmSync(part, { force: true });
    if (isDelayqError(cause)) throw cause;
    const { code = '', message } = cause as NodeJS.ErrnoException;
    throw cannot(
      message.replace(/, \w+( '.*)?$/s, ''),
      NEXT[code] ?? 'free space or name another place, then repeat',
      cause,
    );
  }
}

/** Where `path` leads, even if nothing is there yet. */
function behindLinks(path: string): string {
  let target = resolve(path);
  for (let i = 0; i < MOST_LINKS; i++) {
    try {
      target = resolve(dirname(target), readlinkSync(target));
    } catch {
      break;
    }
  }
  return target;
}
