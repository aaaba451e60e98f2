import { randomUUID } from 'node:crypto';
import { openSync, unlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DelayqError } from '../../internal.js';

/** Asked for once: each time costs Node some 15 system calls. */
export const TEMPORARY = tmpdir();

/** Errors that pass when space or descriptors are free again. Any other calls for another directory. */
const PASSING = new Set(['ENOSPC', 'EDQUOT', 'EMFILE', 'ENFILE']);

/**
 * Opens a file without a name, for reading and writing (`w+`) or appending (`a+`): nothing is left of it however this
 * process ends.
 */
export function namelessFile(mode: 'w+' | 'a+' = 'w+'): number {
  const name = join(TEMPORARY, `delayq-${randomUUID()}`);
  const fd = openSync(name, mode.replace('+', 'x+'), 0o600);
  unlinkSync(name);
  return fd;
}

/** The error for what needs a temporary file or directory and cannot have it. */
export function noTemporary(what: string, cause: NodeJS.ErrnoException): DelayqError {
  const passing = PASSING.has(cause.code ?? '');
  return new DelayqError(passing ? 'temporary' : 'config', what, {
    why: cause.message,
    next: passing
      ? `free space in ${TEMPORARY}, or set TMPDIR to another directory`
      : 'set TMPDIR to a directory that exists and can be written to',
    cause,
  });
}
