/*
 * Glossary
 *
 * job       an id, a payload and a due time
 * payload   one JSON value, kept as the bytes given; one job is one line
 * due       the millisecond, by Redis's clock, at which the job may be delivered
 * drain     to take due jobs, oldest due first
 * lease     how long a taken job is hidden from other drains
 * receipt   the word that proves who holds the current lease
 * failure   a handler said no; counted against `tries`
 * loss      a lease ended unanswered; counted against `maxLost`
 * attempt   1 + failures + losses
 * dead      out of tries or losses, or refused; kept until an operator acts
 */
import { DelayqError } from './errors.js';
import { newId } from './id.js';
import { jsonOf } from './payload.js';
import { LONGEST_MS, parseDuration } from './time.js';
import { checkCount, checkId } from './validate.js';

/** The longest error that is kept of a job, characters: enough for a few lines, little beside the payload. */
export const MAX_ERROR = 2_000;

/** A job to enqueue. A duration is ms, or text such as `15m`. */
export interface NewJob {
  /** Any value that JSON can hold, or a {@link JsonText} to keep its bytes. */
  readonly payload: unknown;
  /** Due this long after Redis receives it. Neither `in` nor `at` means due now. */
  readonly in?: number | string | undefined;
  /** Due at this time; a number is ms since 1970. */
  readonly at?: number | Date | undefined;
  /** Made by delayq when left out. */
  readonly id?: string | undefined;
  /** Failures until it is dead, instead of the queue's default. */
  readonly tries?: number | undefined;
  /** Losses until it is dead, instead of the queue's default. */
  readonly maxLost?: number | undefined;
  /** Worthless when later than this after its first due time: then it is dropped and counted as expired. */
  readonly ttl?: number | string | undefined;
}

/** A job that was checked and is ready to be sent. Durations and times are ms. */
export interface ReadyJob {
  readonly id: string;
  /** Bytes where they come from Redis and go back as they were. */
  readonly json: string | Buffer;
  readonly in: number;
  readonly at: number | undefined;
  readonly tries: number | undefined;
  readonly maxLost: number | undefined;
  readonly ttl: number | undefined;
  /** Instead of tries, maxLost and ttl: the record that the job had before. */
  readonly record?: Buffer | undefined;
}

/** What became of an enqueued job: `kept` and `kept-dead` say that a job with this id was there and stays as it was. */
export type Outcome = 'created' | 'replaced' | 'kept' | 'kept-dead';

/** A job that was enqueued, or whose id was taken. */
export interface Enqueued {
  readonly id: string;
  readonly outcome: Outcome;
  /** When the job as asked for falls due, ms by Redis's clock. For `kept` that of the refused one. */
  readonly due: number;
  /** What was confirmed of it, if that was asked for. */
  readonly confirmed?: Confirmed;
}

/** How far a job has got beyond Redis's memory: on its disk, in the memory of so many replicas. */
export interface Confirmed {
  readonly disk?: boolean;
  readonly replicas?: number;
}

/** A job as a drain hands it out. */
export interface Job {
  readonly id: string;
  /** When it fell due, ms by Redis's clock. */
  readonly due: number;
  /** 1 + failures + losses so far. */
  readonly attempt: number;
  /** How often a handler said no so far. */
  readonly failures: number;
  /** Failures until it is dead. */
  readonly tries: number;
  /** Proves that the one who drained it holds its lease. */
  readonly receipt: string;
  /** The payload's bytes, as stored. */
  readonly payload: Buffer;
  /** Only of a job that was removed as it was taken: what else was known of it, for putting it back. */
  readonly record?: Buffer;
}

/** Proof of a lease: what ack, nack and renew need of a job. */
export interface Held {
  readonly id: string;
  readonly receipt: string;
}

/** Whether a lease was still held, lost (its job was taken by another) or superseded (its job was replaced or cancelled). */
export type Answer = 'held' | 'lost' | 'superseded';

/** What nack did: the job is pending again, dead now, or not ours any more. */
export type NackAnswer = 'pending' | 'dead' | 'lost' | 'superseded';

/** What nack did to a job, and how long it waits if that was a failure to be tried again, ms. */
export interface Nacked {
  readonly answer: NackAnswer;
  readonly delayMs: number;
}

/**
 * What an answer means when the call was repeated because a reply was lost: `lost` counts as done, as most likely the
 * first sending did it, and if not the job only comes again.
 */
export function afterRepeat<A extends Answer | Nacked>(answer: A): A {
  if (typeof answer === 'string') return (answer === 'lost' ? 'held' : answer) as A;
  return (answer.answer === 'lost' ? { answer: 'pending', delayMs: answer.delayMs } : answer) as A;
}

/** A job to be given back. */
export interface Given extends Held {
  /** Due again after so long, ms. Left out: by the backoff, or, when nothing is counted, as due as before. */
  readonly delayMs?: number | undefined;
  /** Kept as the job's last error, cut to {@link MAX_ERROR} characters. */
  readonly error?: string | undefined;
}

/** A job as it stands, with all that is known of it. Times and durations are ms, times by Redis's clock. */
export interface StoredJob {
  /** Of an id that no line of text stands for: base64:…, and in `idBase64` its bytes. */
  readonly id: string;
  readonly idBase64?: string;
  readonly state: 'pending' | 'active' | 'dead';
  /** When it falls or fell due; of a dead job when it first did, as far as that is known. */
  readonly due: number | undefined;
  /** Only of an active job: who holds it, since when, and when its lease may be taken back. */
  readonly lease: { readonly by: string; readonly since: number; readonly ends: number } | undefined;
  /** Only of a dead job: when it died. */
  readonly died: number | undefined;
  /**
   * Why it died: `failed` or `lost` too often, `refused` by its handler, `buried` by an operator, `orphaned`: it
   * has no payload, `bad id`: its id is not UTF-8 or has a NUL byte, so no handler can be given it. Or what doctor has
   * set aside: `found`, its id was in no set, `bad due`, its due time was none.
   */
  readonly reason: string | undefined;
  /** How often it was handed out so far: failures, losses, and a lease that runs. */
  readonly attempts: number;
  readonly failures: number;
  readonly losses: number;
  /** What the last handler that said no left behind, and when that was. */
  readonly error: string | undefined;
  readonly failed: number | undefined;
  /** Its own limits, where it has any. */
  readonly tries: number | undefined;
  readonly maxLost: number | undefined;
  readonly ttl: number | undefined;
  /** The payload's bytes, as stored; undefined: there is none. */
  readonly payload: Buffer | undefined;
  /** Only of a job that an unfinished move holds: the queue that it goes to, and where it stood. */
  readonly moving?: { readonly to: string; readonly from: 'pending' | 'dead' };
}
/** Checks a job and fills in what was left out. Throws a `usage` or `data` error. */
export function readyJob(job: NewJob): ReadyJob {
  if (job.in !== undefined && job.at !== undefined) {
    throw new DelayqError('usage', 'a job has one due time', {
      why: 'both in and at are given',
      next: 'leave one out',
    });
  }
  const at = job.at === undefined ? undefined : Math.round(Number(job.at));
  if (at !== undefined && !(Math.abs(at) <= 8.64e15)) {
    throw new DelayqError('usage', 'at is not a time', { next: 'give a valid Date, or ms since 1970' });
  }
  return {
    id: job.id === undefined ? newId() : checkId(job.id),
    json: jsonOf(job.payload).text,
    in: duration(job.in) ?? 0,
    at,
    tries: checkCount(job.tries, 'tries'),
    maxLost: checkCount(job.maxLost, 'maxLost'),
    ttl: duration(job.ttl),
  };
}

function duration(value: number | string | undefined): number | undefined {
  if (value === undefined || (typeof value === 'number' && value >= 0 && Number.isFinite(value))) {
    return value === undefined ? undefined : Math.min(Math.round(value), LONGEST_MS);
  }
  return parseDuration(String(value));
}
