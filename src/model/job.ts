/*
 * Glossary
 *
 * job       an id, a payload and a due time
 * payload   one JSON value, or any bytes (RawPayload), stored byte for byte
 * attribute a short text by name, which belongs to a job besides its payload
 * due       the time, by Redis's clock, from which the job may be delivered
 * drain     to take due jobs, oldest due first
 * lease     the time for which a delivered job is hidden from other drains
 * receipt   the random word that proves who holds the current lease
 * ack       the job is done: remove it
 * nack      the job is not done: give it back
 * failure   a handler reported an error; counted against `tries`
 * loss      a lease expired without an answer; counted against `maxLost`
 * attempt   1 + failures + losses
 * window    the time for which the id of a job that has ended stays taken (`onceFor`)
 * dead      out of tries or losses, or rejected for good; kept until an operator acts
 */
import { type Attributes, packAttributes } from './attributes.js';
import { DelayqError } from './errors.js';
import { newId } from './id.js';
import { type Bytes, type JsonText, jsonOf, RawPayload } from './payload.js';
import { LONGEST_MS, parseDuration, parseInstant } from './time.js';
import { checkCount, checkDue, checkId, checkInstant, keysOf } from './validate.js';

/** The longest error text stored with a job, characters: a few lines, little memory compared to the payload. */
export const MAX_ERROR = 2_000;

/** A job to enqueue, with a payload of type `T`. Durations are numbers in ms, or text such as `15m`. */
export interface NewJob<T = unknown> {
  /**
   * Any value that JSON can represent, a {@link JsonText} to keep its exact text, or a {@link RawPayload} of any bytes.
   */
  readonly payload: T | JsonText | RawPayload;
  /** Due this long after Redis receives it. Without `in` and `at` it is due now. */
  readonly in?: number | string | undefined;
  /** Due at this time. A number is ms since 1970; text has a UTC offset or Z: `2026-11-21T14:00:00+01:00`. */
  readonly at?: number | Date | string | undefined;
  /** Default: an id made by delayq. */
  readonly id?: string | undefined;
  /** Failures after which it is dead. Default: the queue's. */
  readonly tries?: number | undefined;
  /** Expired leases after which it is dead. Default: the queue's. */
  readonly maxLost?: number | undefined;
  /** Deliveries after which it is dead, failed or lost. Replaces the queue's `tries` and `maxLost`, but not its own. */
  readonly deliveries?: number | undefined;
  /**
   * Expires this long after its first due time: it is then dropped and counted. Default: the queue's. With 0 it never
   * expires, whatever the queue says.
   */
  readonly ttl?: number | string | undefined;
  /** Reserve its id for this long after it has ended (done, expired). Default: the queue's. */
  readonly onceFor?: number | string | undefined;
  /**
   * When its producer made it, as `at`, for its handler. For jobs from elsewhere, or whose id has no time: {@link
   * timeOfId}.
   */
  readonly created?: number | Date | string | undefined;
  /**
   * Short texts for its handler, besides the payload: at most 16. A name has 1 to 32 of the characters `a-z 0-9 _ -`
   * and begins with a letter. A value has at most 128 bytes, and no control characters; undefined is left out.
   */
  readonly attributes?: Readonly<Record<string, string | undefined>> | undefined;
}

/** Each key of a job, with words that people try instead. */
const checkJob = keysOf<NewJob>('a job', {
  payload: true,
  in: true,
  at: true,
  id: true,
  tries: true,
  maxLost: true,
  deliveries: true,
  ttl: true,
  onceFor: true,
  created: true,
  attributes: true,
});

/** The payload of a single job as it was typed. A queue of texts stores this text instead of JSON. */
export const GIVEN = Symbol('given');

/** A checked job, ready to be sent: a copy, because callers may change theirs. Durations and times are ms. */
export interface ReadyJob {
  readonly id: string;
  /** Whether delayq made its id. */
  readonly ours: boolean;
  /** Bytes if they need not be JSON: a raw payload, or what came from Redis and goes back unchanged. */
  readonly json: string | Buffer;
  readonly in: number;
  readonly at: number | undefined;
  /** Its record; '' if it needs none. */
  readonly record: string | Buffer;
  readonly [GIVEN]?: string;
}

/**
 * The result of an enqueue. `kept`, `kept-dead`: a job with this id already existed, and was not changed. `kept-done`:
 * a job with this id has ended within its window (`onceFor`), and none was made.
 */
export type Outcome = 'created' | 'replaced' | 'kept' | 'kept-dead' | 'kept-done';

/** The result of enqueuing one job. */
export interface Enqueued {
  readonly id: string;
  readonly outcome: Outcome;
  /** Due time of the job passed to enqueue, ms by Redis's clock; also if it was not stored (`kept`). */
  readonly due: number;
  /** What Redis confirmed, if `durable` or `replicas` was set. */
  readonly confirmed?: Confirmed;
}

/** Where a job is stored beyond the memory of the primary: on its disk, and in the memory of how many replicas. */
export interface Confirmed {
  readonly disk?: boolean;
  readonly replicas?: number;
}

/** A job as a drain returns it. */
export interface Job {
  readonly id: string;
  /** Its due time, ms by Redis's clock. */
  readonly due: number;
  /** 1 + failures + losses. */
  readonly attempt: number;
  /** How often a handler has failed. */
  readonly failures: number;
  /** Failures after which it is dead; losses may end it before. */
  readonly tries: number;
  /** Proves that the caller holds its lease. */
  readonly receipt: string;
  /** The payload's bytes, as stored. */
  readonly payload: Bytes;
  /** What it was enqueued with besides its payload; empty if nothing. */
  readonly attributes: Attributes;
  /** Its own limit of deliveries, if it has one: this is its last one if `attempt` has reached it. */
  readonly deliveries?: number | undefined;
  /**
   * When its producer made it, ms by the producer's clock, if it was enqueued with that; else {@link timeOfId} may
   * tell.
   */
  readonly created?: number | undefined;
  /** Until when it may be delivered again, ms by Redis's clock, if it has a time to live of its own. */
  readonly expires?: number | undefined;
  /** Only for a job that was removed on delivery (lease 0): its record, for putting it back. */
  readonly record?: Buffer;
  /** Only of a queue that keeps what comes out of jobs (`keepDone`). */
  readonly keepsResult?: true;
}

/** A job under a lease: what ack, nack and renew need. */
export interface Held {
  readonly id: string;
  readonly receipt: string;
}

/**
 * The state of a lease: `held`, `lost` (it expired, and a drain took the job back) or `superseded` (the job was
 * replaced or cancelled).
 */
export type Answer = 'held' | 'lost' | 'superseded';

/** The result of a nack: the job is pending again, or dead, or the lease was no longer held. */
export type NackAnswer = 'pending' | 'dead' | 'lost' | 'superseded';

/** The result of a nack, and how long the job waits for its next attempt, ms (0 if it was not a failure). */
export interface Nacked {
  readonly answer: NackAnswer;
  readonly delayMs: number;
}

/**
 * What an answer means if the call was repeated after a lost reply. `lost` then counts as done: most likely the first
 * call did it, and if not, the job is only delivered again.
 */
export function afterRepeat<A extends Answer | Nacked>(answer: A): A {
  if (typeof answer === 'string') return (answer === 'lost' ? 'held' : answer) as A;
  return (answer.answer === 'lost' ? { answer: 'pending', delayMs: answer.delayMs } : answer) as A;
}

/** A job to nack. */
export interface Given extends Held {
  /** Due again after this time, ms. Default: the backoff; with mode `release`, the due time stays. */
  readonly delayMs?: number | undefined;
  /** Stored as the job's last error, cut to {@link MAX_ERROR} characters. */
  readonly error?: string | undefined;
}

/** The set that contains a job's id. */
export type State = 'pending' | 'active' | 'dead';

/** Everything that is stored about a job. Times and durations are ms, times by Redis's clock. */
export interface StoredJob {
  /** The id as text; if it cannot be a line of text, base64:…, and `idBase64` holds its bytes. */
  readonly id: string;
  readonly idBase64?: string;
  readonly state: State;
  /** Its due time; for a dead job its first one, if that is known. */
  readonly due: number | undefined;
  /** Only for an active job: who holds it, since when, and when its lease expires. */
  readonly lease: { readonly by: string; readonly since: number; readonly ends: number } | undefined;
  /** Only for a dead job: when it died. */
  readonly died: number | undefined;
  /**
   * Why it is dead: it `failed`, was `lost` or `released` too often, was `refused` by its handler or `buried` by an
   * operator. `orphaned`: it has no payload. `bad id`: its id is not UTF-8 or contains NUL, so no handler can receive it.
   * Moved there by doctor: `found` (its id was in no set) and `bad due` (its due time was invalid).
   */
  readonly reason: string | undefined;
  /** How often it was delivered: failures + losses, + 1 if it is active. */
  readonly attempts: number;
  readonly failures: number;
  readonly losses: number;
  /** How often handlers gave it back, which counts as no failure. */
  readonly releases: number;
  /** The error of the last failure, and its time. */
  readonly error: string | undefined;
  readonly failed: number | undefined;
  /** Its own limits, if it has any. */
  readonly tries: number | undefined;
  readonly maxLost: number | undefined;
  readonly deliveries: number | undefined;
  readonly ttl: number | undefined;
  readonly onceFor: number | undefined;
  /** When its own time to live ends, ms by Redis's clock; undefined for a dead job, which does not expire. */
  readonly expires: number | undefined;
  /** When its producer made it, ms by the producer's clock: as it was enqueued with, or else as its id tells. */
  readonly created: number | undefined;
  readonly attributes: Attributes;
  /** The payload's bytes as stored. Undefined: it has none. */
  readonly payload: Bytes | undefined;
  /** Only for a job that an unfinished move holds: the destination queue, and the state it was in before. */
  readonly moving?: { readonly to: string; readonly from: 'pending' | 'dead' };
}

/** A job that is done, as a queue with `keepDone` keeps it. Times and durations are ms, times by Redis's clock. */
export interface DoneJob {
  /** As {@link StoredJob.id}. */
  readonly id: string;
  readonly idBase64?: string;
  /** When it was done. */
  readonly done: number;
  /** Its first due time. */
  readonly due: number | undefined;
  /** Who has done it: `host:pid`. */
  readonly by: string;
  /** How often it was delivered. */
  readonly attempts: number;
  /** How long its handler ran the last time; without a handler of delayq, how long the lease was held. */
  readonly tookMs: number;
  /** What came out of it: text, at most 4 KiB of it; undefined: nothing. */
  readonly result: string | undefined;
}

/** A job to ack, and what came out of it, for queues that keep results. */
export interface Finishing extends Held {
  readonly result?: string | undefined;
  /** How long its handler ran, ms. */
  readonly tookMs?: number | undefined;
}

/**
 * Checks a job and fills in defaults. `makeId`: for a job without one. Throws `usage` or `data` if a part of it is
 * invalid.
 */
export function readyJob(job: NewJob, makeId = newId): ReadyJob {
  checkJob(job);
  const at = instant(job.at);
  checkDue({ in: job.in, at });
  return {
    id: job.id === undefined ? makeId() : checkId(job.id),
    ours: job.id === undefined,
    json: job.payload instanceof RawPayload ? job.payload.bytes : jsonOf(job.payload).text,
    in: duration(job.in) ?? 0,
    at,
    record: recordOf(job),
  };
}

/** The record of a new job, as JSON; '' if it needs none. Throws `usage` if a part of it is invalid. */
export function recordOf(
  job: Pick<NewJob, 'tries' | 'maxLost' | 'deliveries' | 'ttl' | 'onceFor' | 'created' | 'attributes'>,
): string {
  const { tries, maxLost, deliveries, ttl, onceFor, created, attributes } = job;
  // Most jobs have none of these. An array and every() would take longer.
  const isPlain = tries === undefined && maxLost === undefined && deliveries === undefined && ttl === undefined;
  if (isPlain && onceFor === undefined && created === undefined && attributes === undefined) return '';
  const limits = {
    tries: checkCount(tries, 'tries'),
    maxLost: checkCount(maxLost, 'maxLost'),
    deliveries: checkCount(deliveries, 'deliveries'),
    ttl: lifetime(ttl),
    once: windowOf(onceFor),
    created: checkInstant(instant(created), 'created'),
  };
  const text = JSON.stringify(attributes === undefined ? limits : { ...limits, ...packAttributes(attributes) });
  return text === '{}' ? '' : text;
}

/** Converts the length of a window to ms. Throws `usage` if it has none. */
function windowOf(value: number | string | undefined): number | undefined {
  const ms = duration(value);
  if (ms === undefined || ms > 0) return ms;
  throw new DelayqError('usage', 'onceFor must be greater than zero', {
    next: "give a duration such as '1d', or leave it out",
  });
}

/** Converts a time to ms since 1970; NaN if it is none. */
function instant(value: NewJob['at'] | null): number | undefined {
  if (typeof value === 'string') return parseInstant(value);
  return value === undefined ? undefined : value === null ? Number.NaN : Math.round(Number(value));
}

/** Converts a time to live to ms; 0 to one without an end. Throws `usage` if it is none. */
export function lifetime(value: number | string | undefined): number | undefined {
  const ms = duration(value);
  return ms === 0 ? LONGEST_MS : ms;
}

/** Converts a duration to ms. Numbers over 100 years are cut to that. Throws `usage` if it is none. */
export function duration(value: number | string | undefined): number | undefined {
  if (value === undefined) return undefined;
  if (typeof value === 'number' && value >= 0 && Number.isFinite(value)) return Math.min(Math.round(value), LONGEST_MS);
  return parseDuration(String(value));
}
