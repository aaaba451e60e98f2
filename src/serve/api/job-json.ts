import { type Job, timeOfId } from '../../internal.js';

/** The fields of a delivered or stored job that the API shows. */
export interface Shown extends Pick<Job, 'id' | 'created' | 'expires' | 'attributes'> {
  readonly payload: Buffer | undefined;
  readonly due: number | undefined;
}

/** Where a job is, and what only the caller knows. */
export interface Circumstances {
  readonly ns: string;
  /** Without the namespace. */
  readonly queue: string;
  /** The time of Redis's clock, ms. */
  readonly now: number;
  /** How many deliveries are left. */
  readonly left: number;
  /** Further fields, as JSON with commas at their ends: `"msg":"new job",`. */
  readonly more?: string;
}

/**
 * A job as lmstfy's clients read it: whole numbers, and base64 in place of bytes. `ttl` in seconds, rounded up, so that
 * a new job has what it was published with; 0: for ever. `elapsed_ms`: since it was published, or else since it was
 * due.
 */
export function jobJson(job: Shown, { ns, queue, now, left, more = '' }: Circumstances): string {
  const { id, payload, due = now, expires, attributes } = job;
  const ttl = expires === undefined ? 0 : Math.max(1, Math.ceil((expires - now) / 1000));
  // Clocks differ: a job may seem to come from the future.
  const elapsed = Math.max(0, Math.round(now - (job.created ?? timeOfId(id) ?? due)));
  const known = Object.keys(attributes).length > 0 ? JSON.stringify(attributes) : 'null';
  return `{${more}"namespace":"${ns}","queue":"${queue}","job_id":${JSON.stringify(id)},"data":"${
    payload?.toString('base64') ?? ''
  }","ttl":${ttl},"elapsed_ms":${elapsed},"remain_tries":${Math.max(0, left)},"attributes":${known}}`;
}
