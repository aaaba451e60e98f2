import { isDelayqError } from '../../internal.js';

/** An answer that is not a success. Handlers throw it; `body` is sent as JSON. */
export class Refusal {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
  readonly headers: Readonly<Record<string, string>>;
  /** Why, for the log; never sent. */
  readonly cause: unknown;

  constructor(
    status: number,
    body: string | Readonly<Record<string, unknown>>,
    { headers = {}, cause }: { headers?: Readonly<Record<string, string>>; cause?: unknown } = {},
  ) {
    this.status = status;
    this.body = typeof body === 'string' ? { error: body } : body;
    this.headers = headers;
    this.cause = cause;
  }
}

/** The answer while Redis is down. */
export const unavailable = (cause?: unknown): Refusal =>
  new Refusal(503, 'redis is not available', { headers: { 'Retry-After': '1' }, cause });

/** Turns an error of a handler into an answer, without the words of Redis: they may hold names and addresses. */
export function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (isDelayqError(error, 'unreachable', 'temporary')) return unavailable(error);
  if (isDelayqError(error, 'unknown')) {
    // No reply arrived: the job may or may not be there.
    const { ids } = error;
    const body = { error: 'redis did not answer: the outcome is unknown', ...(ids.length > 0 && { job_ids: ids }) };
    return new Refusal(503, body, { headers: { 'Retry-After': '1' }, cause: error });
  }
  if (isDelayqError(error, 'usage', 'data')) return new Refusal(400, error.what, { cause: error });
  if (isDelayqError(error, 'missing'))
    return new Refusal(404, [error.what, error.why].filter(Boolean).join(': '), { cause: error });
  return new Refusal(500, 'internal error', { cause: error });
}
