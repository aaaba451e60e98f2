import { tmpdir } from 'node:os';
import { DelayqError } from '../../internal.js';

/** Errors that pass when space or descriptors are free again. Any other calls for another directory. */
const PASSING = new Set(['ENOSPC', 'EDQUOT', 'EMFILE', 'ENFILE']);

/** The error for what needs a temporary file or directory and cannot have it. */
export function noTemporary(what: string, cause: NodeJS.ErrnoException): DelayqError {
  const passing = PASSING.has(cause.code ?? '');
  return new DelayqError(passing ? 'temporary' : 'config', what, {
    why: cause.message,
    next: passing
      ? `free space in ${tmpdir()}, or set TMPDIR to another directory`
      : 'set TMPDIR to a directory that exists and can be written to',
    cause,
  });
}
