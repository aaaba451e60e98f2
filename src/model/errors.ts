/**
 * What went wrong, as one word a program can act on. The command line maps each to an exit code.
 *
 * - `usage`: called wrongly · `data`: bad input data · `input`: an input file cannot be read
 * - `missing`: not there, where the caller asked to be told
 * - `unreachable`: no connection; nothing was sent
 * - `temporary`: Redis answered "not now" (loading, read-only, full …) · `unknown`: sent, but no answer came back
 * - `refused`: no permission · `config`: Redis or delayq is set up in a way that cannot work
 * - `output`: the output cannot be written · `internal`: a bug of ours
 */
export type ErrorCode =
  | 'usage'
  | 'data'
  | 'input'
  | 'missing'
  | 'unreachable'
  | 'temporary'
  | 'unknown'
  | 'refused'
  | 'config'
  | 'output'
  | 'internal';

/** An error in three parts: what failed (`message`), why, and what to do next. */
export class DelayqError extends Error {
  override readonly name = 'DelayqError';
  readonly code: ErrorCode;
  readonly why: string | undefined;
  readonly next: string | undefined;
  /** With `unknown`: the ids of the jobs whose fate is unknown. Enqueuing with the same id again is safe. */
  readonly ids: readonly string[];
  /** With `unknown`: these jobs are there; what is unknown is only whether they would outlive a crash of Redis. */
  readonly stored: boolean;

  constructor(
    code: ErrorCode,
    what: string,
    more: {
      why?: string | undefined;
      next?: string | undefined;
      ids?: readonly string[];
      stored?: boolean;
      cause?: unknown;
    } = {},
  ) {
    super(what, more.cause === undefined ? undefined : { cause: more.cause });
    this.code = code;
    this.why = more.why;
    this.next = more.next;
    this.ids = more.ids ?? [];
    this.stored = more.stored ?? false;
  }
}

/** Whether `error` is a DelayqError, of one of `codes` if any are given. */
export function isDelayqError(error: unknown, ...codes: ErrorCode[]): error is DelayqError {
  return error instanceof DelayqError && (codes.length === 0 || codes.includes(error.code));
}

/** Whether the same call may succeed a moment later: the connection or the server is in trouble, not the request. */
export function isPassing(error: unknown): error is DelayqError {
  return isDelayqError(error, 'unreachable', 'temporary', 'unknown');
}

/** The error for jobs that were sent when no reply to that could be had. */
export function unknownOutcome(ids: string[], why: string): DelayqError {
  const [id] = ids;
  return new DelayqError(
    'unknown',
    ids.length === 1 ? `job ${id} may or may not be enqueued` : `${ids.length} jobs may or may not be enqueued`,
    {
      why,
      next: `repeat with ${ids.length === 1 ? `--id ${id}` : 'the same ids'}: that makes one job while the first still exists`,
      ids,
    },
  );
}
