/**
 * What went wrong, as one word for programs. The command line maps each code to an exit status.
 *
 * - `usage`: invalid call · `data`: invalid input data · `input`: an input file cannot be read
 * - `missing`: something the caller required does not exist
 * - `unreachable`: no connection; nothing was sent
 * - `temporary`: Redis cannot do it now (loading, read-only, full …) · `unknown`: sent, but no reply arrived
 * - `refused`: no permission · `config`: Redis or delayq is configured in a way that cannot work
 * - `output`: the output cannot be written · `internal`: a bug in delayq
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
  /** With `unknown`: the ids of the jobs in doubt. Enqueuing them again with the same ids is safe. */
  readonly ids: readonly string[];
  /** With `unknown`: whether the jobs are in Redis, and only their durability is in doubt. */
  readonly stored: boolean;

  constructor(
    code: ErrorCode,
    what: string,
    more: Partial<Pick<DelayqError, 'why' | 'next' | 'ids' | 'stored' | 'cause'>> = {},
  ) {
    super(what, more.cause === undefined ? undefined : { cause: more.cause });
    this.code = code;
    this.why = more.why;
    this.next = more.next;
    this.ids = more.ids ?? [];
    this.stored = more.stored ?? false;
  }
}

/** Whether `error` is a DelayqError. With `codes`, whether it has one of them. */
export function isDelayqError(error: unknown, ...codes: ErrorCode[]): error is DelayqError {
  return error instanceof DelayqError && (codes.length === 0 || codes.includes(error.code));
}

/** Whether the same call may succeed later: the connection or the server failed, not the request. */
export function isPassing(error: unknown): error is DelayqError {
  return isDelayqError(error, 'unreachable', 'temporary', 'unknown');
}

/** The error for a call that was carried out in part when `error` ended it. */
export function partly(error: DelayqError): DelayqError {
  return new DelayqError('unknown', error.message, { why: error.why, next: error.next, cause: error });
}

/** The error for jobs that were sent when no reply arrived. */
export function unknownOutcome(ids: string[], why: string): DelayqError {
  const one = ids.length === 1;
  return new DelayqError('unknown', `${one ? `job ${ids[0]}` : `${ids.length} jobs`} may or may not be enqueued`, {
    why,
    next: `repeat with ${one ? `the id ${ids[0]}` : 'the same ids'}: that makes no second job while the first still exists`,
    ids,
  });
}
