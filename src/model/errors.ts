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

/** An error in three parts: what failed, why, and what to do next. Its `message` has all of them, in one line. */
export class DelayqError extends Error {
  override readonly name = 'DelayqError';
  readonly code: ErrorCode;
  /** What failed. */
  readonly what: string;
  /** Why it failed; may have several lines. */
  readonly why: string | undefined;
  /** What to do next. */
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
    const { why, next, cause, ids = [], stored = false } = more;
    const reason = why ? `${what}: ${why.replaceAll('\n', '; ')}` : what;
    super(next ? `${reason}; ${next}` : reason, cause === undefined ? undefined : { cause });
    this.code = code;
    this.what = what;
    this.why = why;
    this.next = next;
    this.ids = ids;
    this.stored = stored;
    // The message has them: console.error() need not print them again.
    for (const part of ['what', 'why', 'next']) Object.defineProperty(this, part, { enumerable: false });
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
  return new DelayqError('unknown', error.what, { why: error.why, next: error.next, cause: error });
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
